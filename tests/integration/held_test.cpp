// `Held` and `LockGuard`: holds that are objects.

#include "busy_machine.hpp"
#include "lock_test.hpp"

#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

void expect_nothing(Held& held) {
    EXPECT_FALSE(held.held());
    EXPECT_EQ(held.remaining(), 0ms);
    EXPECT_EQ(held.state(), HoldState::none);
    EXPECT_EQ(held.token(), "");
    EXPECT_TRUE(held.lost().stop_requested());
    EXPECT_EQ(code_of(held.extend(10s)), Errc::not_held);
    EXPECT_EQ(held.release().value(), Release::not_held);
}

using HeldToTheEnd = LockTest;

using ReentrantPolicies = ::testing::Types<Reentrant, Watchdog<Reentrant>, Fenced<Reentrant>>;

template <class Policy>
class HeldOf : public LockTest {
protected:
    Lock<Policy> lock_{client_, "job"};
};
TYPED_TEST_SUITE(HeldOf, AllPolicies);

TYPED_TEST(HeldOf, tells_about_its_hold) {
    const Held held = this->lock_.acquire({.lease = 20s}).value();
    EXPECT_TRUE(held.held());
    EXPECT_EQ(held.state(), HoldState::held);
    EXPECT_GT(held.remaining(), 10s);
    EXPECT_LE(held.remaining(), 20s);
    EXPECT_FALSE(held.token().empty());
    EXPECT_FALSE(held.lost().stop_requested());
    EXPECT_TRUE(this->lock_.held()) << "it is this thread's hold too";
}

// A fraction of a millisecond before its end, `remaining()` is 0 already.
TEST_F(HeldToTheEnd, is_what_state_and_held_agree_on) {
    Lock<Simple> lock{client_, "job"};
    for (int i = 0; i < 3; ++i) {
        const Held held = lock.acquire({.lease = 50ms}).value();
        while (held.held()) continue;
        EXPECT_EQ(held.state(), HoldState::lost);
        EXPECT_FALSE(held.held());
    }
    for (int i = 0; i < 3; ++i) {
        lock.lock(Lease{50ms});
        while (lock.held()) continue;
        EXPECT_EQ(lock.state(), HoldState::lost);
        lock.unlock();
    }
}

TYPED_TEST(HeldOf, holds_nothing_by_default) {
    Held held;
    expect_nothing(held);
}

TYPED_TEST(HeldOf, is_released_by_its_destructor) {
    { const Held held = this->lock_.acquire().value(); }
    EXPECT_TRUE(this->redis_.keys().empty());
    EXPECT_FALSE(this->lock_.held());
}

TYPED_TEST(HeldOf, is_released_by_an_exception) {
    const auto work = [this] {
        const Held held = this->lock_.acquire().value();
        throw std::runtime_error{"work failed"};
    };
    EXPECT_THROW(work(), std::runtime_error);
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(HeldOf, is_released_once) {
    Held held = this->lock_.acquire().value();
    EXPECT_EQ(held.release().value(), Release::released);
    expect_nothing(held);
    const Held next = this->lock_.acquire().value();
    EXPECT_EQ(held.release().value(), Release::not_held);
    EXPECT_TRUE(next.held());
    EXPECT_EQ(this->lock_.inspect().value().owner, next.token());
}

TYPED_TEST(HeldOf, moves_and_leaves_nothing) {
    Held first = this->lock_.acquire().value();
    const std::string token = first.token();
    Held second{std::move(first)};
    expect_nothing(first);
    EXPECT_TRUE(second.held());
    EXPECT_EQ(second.token(), token);
    Held third;
    third = std::move(second);
    expect_nothing(second);
    EXPECT_TRUE(third.held());
    Held& same = third;
    third = std::move(same);
    EXPECT_TRUE(third.held()) << "moved to itself";
    EXPECT_EQ(third.release().value(), Release::released);
}

TYPED_TEST(HeldOf, releases_what_an_assignment_replaces) {
    Lock<TypeParam> other{this->client_, "other"};
    Held held = this->lock_.acquire().value();
    held = other.acquire().value();
    EXPECT_EQ(this->redis_.keys(), std::vector<std::string>{"other"});
    held = Held{};
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(HeldOf, lives_in_containers) {
    std::vector<Held> holds;
    std::vector<std::unique_ptr<Lock<TypeParam>>> locks;
    for (int i = 0; i < 20; ++i) {
        locks.push_back(
            std::make_unique<Lock<TypeParam>>(this->client_, "job" + std::to_string(i)));
        holds.push_back(locks.back()->acquire().value());
    }
    EXPECT_EQ(this->redis_.keys().size(), 20U);
    holds.erase(holds.begin(), holds.begin() + 10);
    EXPECT_EQ(this->redis_.keys().size(), 10U);
    holds.clear();
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(HeldOf, is_released_by_another_thread) {
    Held held = this->lock_.acquire().value();
    EXPECT_EQ(on_another_thread([&] { return held.release().value(); }), Release::released);
    EXPECT_TRUE(this->redis_.keys().empty());
    EXPECT_FALSE(this->lock_.held());
    EXPECT_TRUE(this->lock_.try_lock());
}

TYPED_TEST(HeldOf, goes_to_another_thread_that_outlives_its_own) {
    std::optional<Held> held;
    std::thread{[&] { held = this->lock_.acquire().value(); }}.join();
    EXPECT_TRUE(held->held());
    EXPECT_TRUE(held->extend(40s));
    EXPECT_FALSE(this->lock_.held()) << "not this thread's acquisition";
    EXPECT_FALSE(this->lock_.try_lock());
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_TRUE(this->lock_.try_lock());
}

TYPED_TEST(HeldOf, answers_questions_of_many_threads) {
    Held held = this->lock_.acquire().value();
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&held] {
                for (int round = 0; round < 50; ++round) {
                    EXPECT_TRUE(held.held());
                    EXPECT_GT(held.remaining(), 0ms);
                    EXPECT_EQ(held.state(), HoldState::held);
                    EXPECT_FALSE(held.lost().stop_requested());
                    EXPECT_FALSE(held.token().empty());
                }
            });
        }
    }
    EXPECT_EQ(held.release().value(), Release::released);
}

TYPED_TEST(HeldOf, outlives_its_lock) {
    std::optional<Lock<TypeParam>> lock{std::in_place, this->client_, "job"};
    Held held = lock->acquire().value();
    lock.reset();
    EXPECT_TRUE(held.held());
    EXPECT_TRUE(held.extend(40s));
    EXPECT_GT(this->redis_.pttl("job"), 30'000);
    EXPECT_EQ(held.release().value(), Release::released);
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(HeldOf, outlives_its_client_and_holds_nothing_more) {
    std::optional<Client> client{std::in_place, patient(this->server_.uri())};
    Lock<TypeParam> lock{*client, "job"};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    client.reset();
    EXPECT_FALSE(this->redis_.exists("job"));
    EXPECT_TRUE(lost.stop_requested());
    EXPECT_FALSE(held.held());
    EXPECT_EQ(held.state(), HoldState::lost);
    EXPECT_EQ(code_of(held.extend(10s)), Errc::lost);
    EXPECT_EQ(held.release().value(), Release::expired);
    expect_nothing(held);
}

TYPED_TEST(HeldOf, is_lost_by_extending_what_somebody_removed) {
    Held held = this->lock_.acquire().value();
    this->redis_.del("job");
    EXPECT_EQ(code_of(held.extend(10s)), Errc::lost);
    EXPECT_EQ(held.state(), HoldState::lost);
    EXPECT_FALSE(this->redis_.exists("job"));
    EXPECT_EQ(held.release().value(), Release::expired);
}

TYPED_TEST(HeldOf, refuses_bad_leases_without_a_command) {
    Held held = this->lock_.acquire().value();
    this->redis_.reset_stats();
    for (const Lease lease : {Lease{0s}, Lease{-1s}, Lease{9ms}, Lease{std::chrono::days{25}},
                              Lease{std::chrono::hours::max()}}) {
        EXPECT_EQ(code_of(held.extend(lease)), Errc::invalid_argument);
    }
    EXPECT_EQ(this->redis_.command_calls("evalsha"), 0);
    EXPECT_TRUE(held.held());
}

/// Holds of reentrant locks, owned by their thread or by themselves.
template <class Policy>
class NestedHeld : public LockTest {
protected:
    std::uint64_t count() { return lock_.inspect().value().hold_count; }

    Lock<Policy> lock_{client_, "job"};
};
TYPED_TEST_SUITE(NestedHeld, ReentrantPolicies);

TYPED_TEST(NestedHeld, is_one_more_hold_of_the_same_nest) {
    for (const Owner owner : {Owner::thread, Owner::hold}) {
        Held outer = this->lock_.acquire({.lease = 20s, .owner = owner}).value();
        Held inner = outer.nest().value();
        Held third = inner.nest().value();
        EXPECT_EQ(inner.token(), outer.token());
        EXPECT_EQ(this->count(), 3U);
        EXPECT_EQ(outer.release().value(), Release::still_held) << "in any order";
        EXPECT_EQ(third.release().value(), Release::still_held);
        EXPECT_EQ(this->count(), 1U);
        EXPECT_TRUE(inner.held());
        EXPECT_GT(inner.remaining(), 10s);
        EXPECT_EQ(inner.release().value(), Release::released);
        EXPECT_FALSE(this->redis_.exists("job"));
    }
}

TYPED_TEST(NestedHeld, is_made_by_any_thread) {
    Held outer = this->lock_.acquire({.owner = Owner::hold}).value();
    Held inner = on_another_thread([&outer] { return outer.nest().value(); });
    EXPECT_EQ(outer.release().value(), Release::still_held);
    EXPECT_EQ(code_of(this->lock_.acquire({.wait = Wait::none()})), Errc::timed_out);
    EXPECT_EQ(inner.release().value(), Release::released);
}

TYPED_TEST(NestedHeld, is_refused_once_the_lock_is_lost) {
    Held outer = this->lock_.acquire().value();
    this->redis_.command({"DEL", "job"});
    EXPECT_EQ(code_of(outer.nest()), Errc::lost);
    EXPECT_EQ(outer.state(), HoldState::lost);
    EXPECT_EQ(code_of(outer.nest()), Errc::not_held);
    EXPECT_FALSE(this->redis_.exists("job")) << "a lost lock is not taken again";
    EXPECT_EQ(outer.release().value(), Release::expired);
    EXPECT_EQ(code_of(outer.nest()), Errc::not_held);
}

TYPED_TEST(NestedHeld, that_cannot_be_made_leaves_the_outer_hold_as_it_was) {
    Client client{{.uris = {this->server_.uri()}, .command_timeout = 2s}};
    Held outer = Lock<TypeParam>{client, "job"}.acquire({.lease = 60s}).value();
    this->server_.freeze();
    const auto began = Clock::now();
    const auto nested = outer.nest();
    const auto took = Clock::now() - began;
    this->server_.thaw();
    EXPECT_EQ(code_of(nested), Errc::unavailable);
    EXPECT_LT(took, 2s + generous_limit);
    EXPECT_GE(took, 1900ms) << "command_timeout";
    EXPECT_TRUE(outer.held());
    EXPECT_EQ(outer.release().value(), Release::released);
    EXPECT_TRUE(eventually([this] { return !this->redis_.exists("job"); }));
}

TEST_F(HeldToTheEnd, does_not_nest_where_its_policy_does_not) {
    Lock<Fenced<Simple>> lock{client_, "job"};
    Held held = lock.acquire().value();
    EXPECT_EQ(code_of(held.nest()), Errc::invalid_argument);
    EXPECT_TRUE(held.held());
    EXPECT_EQ(code_of(Held{}.nest()), Errc::not_held);
}

template <class Policy>
class LockGuardOf : public HeldOf<Policy> {};
TYPED_TEST_SUITE(LockGuardOf, AllPolicies);

TYPED_TEST(LockGuardOf, is_a_scope_that_holds) {
    {
        LockGuard guard{this->lock_};
        ASSERT_TRUE(guard);
        EXPECT_TRUE(guard.hold().held());
        EXPECT_TRUE(this->lock_.held());
        EXPECT_TRUE(this->redis_.exists("job"));
    }
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(LockGuardOf, takes_a_wait_and_a_lease) {
    LockGuard guard{this->lock_, generous_limit, Lease{50s}};
    ASSERT_TRUE(guard);
    EXPECT_GT(this->redis_.pttl("job"), 30'000);
    EXPECT_EQ(guard.hold().release().value(), Release::released);
    EXPECT_TRUE(guard) << "it was acquired; whether it still is, hold() tells";
    EXPECT_FALSE(guard.hold().held());
}

TYPED_TEST(LockGuardOf, says_no_and_why) {
    Lock<TypeParam> elsewhere{this->other_client_, "job"};
    const std::lock_guard holder{elsewhere};
    const Stopwatch watch;
    EXPECT_TRUE(times_out([&]() -> Result<void> {
        LockGuard guard{this->lock_, 50ms};
        if (guard) return {};
        EXPECT_EQ(guard.error().key, "job");
        return Unexpected{guard.error()};
    }));
    EXPECT_GE(watch.elapsed(), 50ms);
    EXPECT_FALSE(this->lock_.held());
    EXPECT_TRUE(elsewhere.held()) << "and touches nothing at its end";
}

TYPED_TEST(LockGuardOf, says_faults_too) {
    this->server_.stop();
    const LockGuard guard{this->lock_, Wait::none()};
    ASSERT_FALSE(guard);
    EXPECT_EQ(guard.error().code, Errc::unavailable);
}

}  // namespace
}  // namespace redlatch::test
