// `Lock` where the standard library expects a mutex.

#include "busy_machine.hpp"
#include "lock_test.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace redlatch::test {
namespace {

template <class Policy>
class LockInterface : public LockTest {
protected:
    /// The same lock as another process would see it.
    Lock<Policy> lock_{client_, "job"};
    Lock<Policy> elsewhere_{other_client_, "job"};
};
TYPED_TEST_SUITE(LockInterface, AllPolicies);

TYPED_TEST(LockInterface, works_with_lock_guard) {
    {
        const std::lock_guard guard{this->lock_};
        EXPECT_TRUE(this->lock_.held());
        EXPECT_FALSE(this->elsewhere_.try_lock());
    }
    EXPECT_FALSE(this->lock_.held());
    ASSERT_TRUE(this->elsewhere_.try_lock());
    EXPECT_FALSE(this->lock_.try_lock());
}

TYPED_TEST(LockInterface, works_with_lock_guard_that_adopts) {
    ASSERT_TRUE(this->lock_.try_lock(10s, 30s));
    {
        const std::lock_guard scope{this->lock_, std::adopt_lock};
        EXPECT_GT(this->lock_.remaining(), 20s);
    }
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(LockInterface, works_with_unique_lock) {
    using UniqueLock = std::unique_lock<Lock<TypeParam>>;
    {
        UniqueLock scope{this->lock_, 10s};
        EXPECT_TRUE(scope.owns_lock());
        EXPECT_TRUE(times_out([&] { return UniqueLock{this->elsewhere_, 20ms}.owns_lock(); }));
        EXPECT_FALSE((UniqueLock{this->elsewhere_, std::try_to_lock}.owns_lock()));
        EXPECT_TRUE(times_out([&] {
            const auto soon = std::chrono::steady_clock::now() + 20ms;
            return UniqueLock{this->elsewhere_, soon}.owns_lock();
        }));
        scope.unlock();
        // Who has given up may still be leaving the queue.
        EXPECT_TRUE(eventually([&] {
            return UniqueLock{this->elsewhere_, std::try_to_lock}.owns_lock();
        }));
        scope.lock();
        UniqueLock moved{std::move(scope)};
        EXPECT_TRUE(moved.owns_lock());
    }
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
    UniqueLock deferred{this->lock_, std::defer_lock};
    EXPECT_FALSE(this->lock_.held());
    EXPECT_TRUE(deferred.try_lock_for(generous_limit));
    EXPECT_TRUE(this->lock_.held());
}

TYPED_TEST(LockInterface, is_released_by_an_exception) {
    const auto work = [this] {
        const std::lock_guard guard{this->lock_};
        throw std::runtime_error{"work failed"};
    };
    EXPECT_THROW(work(), std::runtime_error);
    EXPECT_TRUE(this->elsewhere_.try_lock());
}

TYPED_TEST(LockInterface, scoped_lock_takes_two_in_opposite_orders) {
    Lock<TypeParam> left{this->client_, "left"};
    Lock<TypeParam> right{this->client_, "right"};
    Lock<TypeParam> other_left{this->other_client_, "left"};
    Lock<TypeParam> other_right{this->other_client_, "right"};
    int unguarded = 0;
    constexpr int rounds = 15;
    {
        std::jthread one{[&] {
            for (int i = 0; i < rounds; ++i) {
                const std::scoped_lock both{left, right};
                ++unguarded;
            }
        }};
        std::jthread two{[&] {
            for (int i = 0; i < rounds; ++i) {
                const std::scoped_lock both{right, left};
                ++unguarded;
            }
        }};
    }
    EXPECT_EQ(unguarded, 2 * rounds);
    EXPECT_TRUE(this->redis_.keys().empty());
    // The same across clients, where only Redis orders them.
    std::atomic<int> done{0};
    {
        std::jthread one{[&] {
            for (int i = 0; i < rounds; ++i) {
                const std::scoped_lock both{left, right};
                ++done;
            }
        }};
        std::jthread two{[&] {
            for (int i = 0; i < rounds; ++i) {
                const std::scoped_lock both{other_right, other_left};
                ++done;
            }
        }};
    }
    EXPECT_EQ(done, 2 * rounds);
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(LockInterface, works_with_a_condition_variable) {
    std::condition_variable_any changed;
    bool ready = false;
    std::jthread setter{[&] {
        const std::lock_guard guard{this->lock_};
        ready = true;
        changed.notify_all();
    }};
    std::unique_lock scope{this->lock_};
    while (!ready) changed.wait_for(scope, 50ms);
    EXPECT_TRUE(this->lock_.held());
}

// Each of these waits takes a free lock and gives it back.
TYPED_TEST(LockInterface, takes_a_free_lock_with_any_wait) {
    using std::chrono::duration;
    using std::chrono::steady_clock;
    using std::chrono::system_clock;
    auto& lock = this->lock_;
    const auto took = [&lock](bool had) {
        const Release outcome = lock.release().value();
        return had && outcome == Release::released;
    };
    EXPECT_TRUE(took(lock.try_lock()));
    EXPECT_TRUE(took(lock.try_lock_for(0s)));
    EXPECT_TRUE(took(lock.try_lock_for(-1s)));
    EXPECT_TRUE(eventually([&] {
        try {
            return took(lock.try_lock_for(1ns));
        } catch (const LockError& error) {
            EXPECT_EQ(error.code(), Errc::unavailable) << "a busy machine has not answered in time";
            return false;
        }
    }));
    EXPECT_TRUE(took(lock.try_lock_for(std::chrono::nanoseconds::max())));
    EXPECT_TRUE(took(lock.try_lock_for(std::chrono::nanoseconds::min())));
    EXPECT_TRUE(took(lock.try_lock_for(std::chrono::hours::max())));
    EXPECT_TRUE(took(lock.try_lock_for(std::chrono::hours::min())));
    EXPECT_TRUE(took(lock.try_lock_for(std::chrono::years::max())));
    EXPECT_TRUE(took(lock.try_lock_for(duration<double>{60.5})));
    EXPECT_TRUE(took(lock.try_lock_for(duration<double>::max())));
    EXPECT_TRUE(took(lock.try_lock_for(duration<double>::min())));
    EXPECT_TRUE(took(lock.try_lock_for(duration<double>{std::numeric_limits<double>::infinity()})));
    EXPECT_TRUE(
        took(lock.try_lock_for(duration<double>{std::numeric_limits<double>::quiet_NaN()})));
    EXPECT_TRUE(took(lock.try_lock_for(Wait::unlimited())));
    EXPECT_TRUE(took(lock.try_lock_until(steady_clock::now())));
    EXPECT_TRUE(took(lock.try_lock_until(steady_clock::now() + 1min)));
    EXPECT_TRUE(took(lock.try_lock_until(steady_clock::time_point::max())));
    EXPECT_TRUE(took(lock.try_lock_until(steady_clock::time_point::min())));
    EXPECT_TRUE(took(lock.try_lock_until(system_clock::now() + 1min)));
    EXPECT_TRUE(took(lock.try_lock_until(system_clock::time_point::max())));
    EXPECT_TRUE(took(lock.try_lock_until(system_clock::time_point{})));
    EXPECT_TRUE(
        took(lock.try_lock_until(std::chrono::time_point<system_clock, std::chrono::days>::max())));
    EXPECT_TRUE(took(lock.try_lock_until(Clock::now() + 1min)));
    EXPECT_TRUE(took(lock.try_lock_until(Clock::time_point::max())));
    EXPECT_TRUE(took(lock.try_lock(1min, 1min)));
    EXPECT_TRUE(took(lock.try_lock(Wait::none(), Lease::max())));
    EXPECT_TRUE(took((lock.lock(), true)));
    EXPECT_TRUE(took((lock.lock(1min), true)));
}

TYPED_TEST(LockInterface, tries_a_taken_lock_once_with_a_wait_that_is_over) {
    using std::chrono::steady_clock;
    using std::chrono::system_clock;
    const std::lock_guard guard{this->elsewhere_};
    auto& lock = this->lock_;
    const Stopwatch watch;
    EXPECT_FALSE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock_for(0s));
    EXPECT_FALSE(lock.try_lock_for(-1h));
    EXPECT_FALSE(lock.try_lock_for(std::chrono::hours::min()));
    EXPECT_FALSE(lock.try_lock_for(std::chrono::duration<double>::min()));
    EXPECT_FALSE(lock.try_lock_until(steady_clock::now() - 1s));
    EXPECT_FALSE(lock.try_lock_until(steady_clock::time_point::min()));
    EXPECT_FALSE(lock.try_lock_until(system_clock::now() - 1h));
    EXPECT_FALSE(lock.try_lock_until(system_clock::time_point::min()));
    EXPECT_LT(watch.elapsed(), 60s);
}

TYPED_TEST(LockInterface, waits_for_as_long_as_it_was_told) {
    const std::lock_guard guard{this->elsewhere_};
    const Stopwatch watch;
    EXPECT_TRUE(times_out([&] { return this->lock_.try_lock_for(100ms); }));
    EXPECT_GE(watch.elapsed(), 100ms);
    EXPECT_TRUE(times_out(
        [&] { return this->lock_.try_lock_until(std::chrono::system_clock::now() + 100ms); }));
    EXPECT_GE(watch.elapsed(), 190ms) << "wall clocks may step a little";
    EXPECT_TRUE(times_out([&] { return this->lock_.try_lock(100ms, 10s); }));
    EXPECT_GE(watch.elapsed(), 290ms);
    EXPECT_LT(watch.elapsed(), 60s);
}

TYPED_TEST(LockInterface, waits_without_limit_for_the_longest_times) {
    const auto waits = [this](auto take) {
        this->elsewhere_.lock();
        std::atomic<bool> done{false};
        std::jthread waiter{[&] {
            EXPECT_TRUE(take());
            this->lock_.unlock();
            done = true;
        }};
        EXPECT_TRUE(stays([&] { return !done; }, 50ms));
        this->elsewhere_.unlock();
        EXPECT_TRUE(eventually([&] { return done.load(); }));
    };
    auto& lock = this->lock_;
    waits([&] { return lock.try_lock_for(std::chrono::nanoseconds::max()); });
    waits([&] { return lock.try_lock_for(std::chrono::hours::max()); });
    waits([&] { return lock.try_lock_until(std::chrono::steady_clock::time_point::max()); });
    waits([&] { return lock.try_lock_until(std::chrono::system_clock::time_point::max()); });
    waits([&] { return (lock.lock(), true); });
}

TYPED_TEST(LockInterface, waits_for_another_thread_as_well) {
    std::atomic<int> had{0};
    this->lock_.lock();
    {
        std::jthread unlimited{[&] {
            const std::lock_guard guard{this->lock_};
            ++had;
        }};
        std::jthread limited{[&] {
            if (!this->lock_.try_lock_for(generous_limit)) return;
            ++had;
            this->lock_.unlock();
        }};
        EXPECT_FALSE(on_another_thread([&] { return this->lock_.try_lock(); }));
        EXPECT_FALSE(on_another_thread([&] { return this->lock_.try_lock_for(30ms); }));
        EXPECT_FALSE(on_another_thread(
            [&] { return this->lock_.try_lock_until(std::chrono::system_clock::now()); }));
        EXPECT_EQ(had, 0);
        this->lock_.unlock();
    }
    EXPECT_EQ(had, 2);
}

TYPED_TEST(LockInterface, unlock_does_nothing_without_a_hold) {
    this->lock_.unlock();
    const std::lock_guard guard{this->elsewhere_};
    this->lock_.unlock();
    EXPECT_TRUE(this->elsewhere_.held());
    EXPECT_TRUE(this->redis_.exists("job"));
}

TYPED_TEST(LockInterface, unlock_never_throws_with_a_stopped_server) {
    Client client{{.uris = {this->server_.uri()}, .command_timeout = 300ms}};
    Lock<TypeParam> lock{client, "job"};
    lock.lock();
    this->server_.stop();
    const Stopwatch watch;
    lock.unlock();
    EXPECT_LT(watch.elapsed(), generous_limit);
    EXPECT_FALSE(lock.held());
    EXPECT_EQ(lock.state(), HoldState::none);
    try {
        EXPECT_FALSE(lock.try_lock()) << "no server, yet had";
        ADD_FAILURE() << "a fault is not contention";
    } catch (const LockError& error) {
        EXPECT_EQ(error.code(), Errc::unavailable) << error.what();
        EXPECT_EQ(error.error().key, "job");
    }
}

template <class Policy>
class SelfDeadlock : public LockInterface<Policy> {};
using PoliciesThatDontNest = ::testing::Types<Simple, Watchdog<Simple>>;
TYPED_TEST_SUITE(SelfDeadlock, PoliciesThatDontNest);

TYPED_TEST(SelfDeadlock, throws_where_the_wait_has_no_limit) {
    Lock<TypeParam> handle{this->client_, "job"};
    const std::lock_guard guard{this->lock_};
    for (Lock<TypeParam>* lock : {&this->lock_, &handle}) {
        try {
            lock->lock();
            ADD_FAILURE() << "locked twice";
        } catch (const LockError& error) {
            EXPECT_EQ(error.code(), Errc::deadlock);
            EXPECT_TRUE(error.code() == std::errc::resource_deadlock_would_occur);
            EXPECT_EQ(error.error().key, "job");
        }
        EXPECT_THROW(static_cast<void>(lock->try_lock_for(Wait::unlimited())), LockError);
        EXPECT_THROW(static_cast<void>(lock->try_lock_until(Clock::time_point::max())), LockError);
        EXPECT_EQ(code_of(lock->acquire()), Errc::deadlock);
    }
    EXPECT_TRUE(this->lock_.held()) << "what was held stays held";
}

TYPED_TEST(SelfDeadlock, is_false_where_the_wait_ends) {
    const Held held = this->lock_.acquire().value();
    const Stopwatch watch;
    EXPECT_FALSE(this->lock_.try_lock());
    EXPECT_FALSE(this->lock_.try_lock_for(50ms));
    EXPECT_GE(watch.elapsed(), 50ms);
    EXPECT_FALSE(this->lock_.try_lock_until(std::chrono::steady_clock::now() + 10ms));
    EXPECT_EQ(code_of(this->lock_.acquire({.wait = 10ms})), Errc::timed_out);
    EXPECT_TRUE(held.held());
}

}  // namespace
}  // namespace redlatch::test
