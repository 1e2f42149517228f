// Whose hold is it: members of `Lock` speak of the calling thread's, and the end of a `Lock` or of
// a `Client` ends what was taken through it.

#include "lock_test.hpp"
#include "support/proxy.hpp"

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

template <class Policy>
class WhoseHold : public LockTest {
protected:
    Lock<Policy> lock_{client_, "job"};
};
TYPED_TEST_SUITE(WhoseHold, AllPolicies);

TYPED_TEST(WhoseHold, members_speak_of_the_calling_thread) {
    auto& lock = this->lock_;
    lock.lock();
    EXPECT_TRUE(lock.held());
    EXPECT_GT(lock.remaining(), 0ms);
    EXPECT_EQ(lock.state(), HoldState::held);
    EXPECT_FALSE(lock.lost().stop_requested());
    EXPECT_TRUE(lock.extend(40s));
    std::thread{[&] {
        EXPECT_FALSE(lock.held());
        EXPECT_EQ(lock.remaining(), 0ms);
        EXPECT_EQ(lock.state(), HoldState::none);
        EXPECT_TRUE(lock.lost().stop_requested());
        EXPECT_EQ(code_of(lock.extend(40s)), Errc::not_held);
        EXPECT_EQ(lock.release().value(), Release::not_held);
    }}.join();
    EXPECT_TRUE(lock.held());
}

TYPED_TEST(WhoseHold, any_handle_of_the_client_speaks_of_it) {
    Lock<TypeParam> handle{this->client_, "job"};
    Lock<TypeParam> elsewhere{this->other_client_, "job"};
    this->lock_.lock();
    EXPECT_TRUE(handle.held());
    EXPECT_FALSE(elsewhere.held()) << "another client is somebody else";
    EXPECT_EQ(elsewhere.release().value(), Release::not_held);
    EXPECT_EQ(handle.release().value(), Release::released);
    EXPECT_FALSE(this->lock_.held());
    EXPECT_EQ(this->lock_.release().value(), Release::not_held);
}

TYPED_TEST(WhoseHold, another_threads_unlock_does_nothing) {
    auto& lock = this->lock_;
    lock.lock();
    std::thread{[&] {
        lock.unlock();
        EXPECT_EQ(lock.release().value(), Release::not_held);
    }}.join();
    EXPECT_TRUE(lock.held());
    EXPECT_TRUE(this->redis_.exists("job"));
    EXPECT_EQ(lock.release().value(), Release::released);
}

TYPED_TEST(WhoseHold, unlock_does_not_end_what_a_held_owns) {
    Held held = this->lock_.acquire().value();
    this->lock_.unlock();
    EXPECT_EQ(this->lock_.release().value(), Release::not_held);
    EXPECT_TRUE(held.held());
    EXPECT_TRUE(this->redis_.exists("job"));
}

TYPED_TEST(WhoseHold, the_end_of_a_lock_releases_what_was_taken_through_it) {
    std::optional<Lock<TypeParam>> handle{std::in_place, this->client_, "job"};
    handle->lock();
    EXPECT_FALSE(on_another_thread([&] { return this->lock_.try_lock(); }));
    handle.reset();
    EXPECT_TRUE(this->redis_.keys().empty());
    EXPECT_TRUE(on_another_thread([&] {
        const bool had = this->lock_.try_lock();
        this->lock_.unlock();
        return had;
    }));
}

TYPED_TEST(WhoseHold, the_end_of_a_lock_releases_what_threads_that_ended_took_through_it) {
    std::optional<Lock<TypeParam>> handle{std::in_place, this->client_, "job"};
    std::thread{[&] { handle->lock(); }}.join();
    EXPECT_FALSE(this->lock_.try_lock());
    handle.reset();
    EXPECT_TRUE(this->lock_.try_lock());
}

TYPED_TEST(WhoseHold, the_end_of_a_lock_leaves_its_helds_alone) {
    std::optional<Lock<TypeParam>> handle{std::in_place, this->client_, "job"};
    Held held = handle->acquire().value();
    handle.reset();
    EXPECT_TRUE(held.held());
    EXPECT_TRUE(this->redis_.exists("job"));
    EXPECT_EQ(held.release().value(), Release::released);
}

TYPED_TEST(WhoseHold, the_end_of_a_lock_leaves_what_was_taken_through_others_alone) {
    this->lock_.lock();
    { const Lock<TypeParam> handle{this->client_, "job"}; }
    EXPECT_TRUE(this->lock_.held());
    EXPECT_TRUE(this->redis_.exists("job"));
}

TYPED_TEST(WhoseHold, the_end_of_a_client_releases_everything_and_tells) {
    std::optional<Client> client{std::in_place, patient(this->server_.uri())};
    Lock<TypeParam> one{*client, "one"};
    Lock<TypeParam> two{*client, "two"};
    one.lock();
    const Held held = two.acquire().value();
    const std::stop_token tokens[] = {one.lost(), held.lost()};
    EXPECT_EQ(this->redis_.keys().size(), 2U);
    client.reset();
    EXPECT_TRUE(this->redis_.keys().empty());
    for (const std::stop_token& lost : tokens) EXPECT_TRUE(lost.stop_requested());
    EXPECT_EQ(one.state(), HoldState::lost);
    EXPECT_FALSE(held.held());
    EXPECT_EQ(one.release().value(), Release::expired);
    EXPECT_EQ(code_of(one.acquire()), Errc::cancelled) << "there is no client any more";
    EXPECT_THROW(one.lock(), LockError);
}

TYPED_TEST(WhoseHold, the_end_of_a_client_ends_all_waits) {
    ASSERT_TRUE(foreign_set(this->redis_, "foreign"));
    std::optional<Client> client{std::in_place, patient(this->server_.uri())};
    Lock<TypeParam> foreign{
        *client, "foreign", {.backoff = {.min = 30s, .max = 60s}}};  // a pause that is long
    Lock<TypeParam> ours{*client, "ours"};
    const Held held = ours.acquire().value();
    std::vector<std::future<Errc>> waiters;
    const auto wait_for = [&](Lock<TypeParam>& lock) {
        waiters.push_back(in_background([&lock] { return code_of(lock.acquire()); }));
    };
    if constexpr (TypeParam::key_type == KeyType::string) {
        wait_for(foreign);
        wait_for(foreign);
    }
    wait_for(ours);
    wait_for(ours);
    EXPECT_EQ(waiters.back().wait_for(100ms), std::future_status::timeout);
    const Stopwatch watch;
    client.reset();
    EXPECT_EQ(this->redis_.keys(), std::vector<std::string>{"foreign"}) << "they left the queue";
    for (auto& waiter : waiters) EXPECT_EQ(waiter.get(), Errc::cancelled);
    EXPECT_LT(watch.elapsed(), 10s);
}

TYPED_TEST(WhoseHold, the_end_of_a_client_is_bounded_with_a_frozen_server) {
    constexpr auto command_timeout = 500ms;
    std::optional<Client> client{
        std::in_place, ClientOptions{.uris = {this->server_.uri()}, .command_timeout = 500ms}};
    Lock<TypeParam> lock{*client, "job"};
    const Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    this->server_.freeze();
    auto waiter = in_background([&] {
        return code_of(lock.acquire());  // waits behind `held`
    });
    EXPECT_EQ(waiter.wait_for(50ms), std::future_status::timeout);
    const Stopwatch watch;
    client.reset();
    EXPECT_LT(watch.elapsed(), 3 * command_timeout + 15s);
    EXPECT_EQ(waiter.get(), Errc::cancelled);
    EXPECT_TRUE(lost.stop_requested());
    this->server_.thaw();
}

TYPED_TEST(WhoseHold, the_end_of_a_client_in_the_middle_of_work_leaves_nothing_behind) {
    for (int round = 0; round < 5; ++round) {
        std::optional<Client> client{std::in_place, patient(this->server_.uri())};
        std::atomic<int> sections{0};
        std::vector<std::unique_ptr<Lock<TypeParam>>> locks;
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            locks.push_back(std::make_unique<Lock<TypeParam>>(
                *client, i % 2 == 0 ? "even" : "odd",
                LockOptions{.backoff = {.min = 1ms, .max = 5ms}}));
            threads.emplace_back([&lock = *locks.back(), &sections] {
                while (auto held = lock.acquire()) ++sections;
            });
        }
        EXPECT_TRUE(eventually([&] { return sections > 20; }));
        client.reset();
        EXPECT_TRUE(this->redis_.keys().empty()) << round << ": the process may end here";
    }
}

// The server has carried out the command, and its answer is on the way.
TYPED_TEST(WhoseHold, the_end_of_a_client_gives_back_what_a_thread_is_just_acquiring) {
    Proxy proxy{this->server_.uri()};
    std::optional<Client> client{std::in_place, patient(proxy.uri())};
    ASSERT_TRUE(client->ping());
    Lock<TypeParam> lock{*client, "job"};
    proxy.delay_replies(300ms);
    auto acquired = in_background([&] { return code_of(lock.acquire()); });
    ASSERT_TRUE(eventually([&] { return this->redis_.exists("job"); }));
    client.reset();
    EXPECT_FALSE(this->redis_.exists("job"));
    EXPECT_EQ(acquired.get(), Errc::cancelled);
}

TYPED_TEST(WhoseHold, the_end_of_a_client_waits_for_a_hold_that_is_just_ended) {
    using End = void (*)(Held&);
    constexpr End release = [](Held& held) { (void)held.release(); };
    constexpr End detach = [](Held& held) { (void)held.detach(); };
    Proxy proxy{this->server_.uri()};
    for (const End end : {release, detach}) {
        std::optional<Client> client{std::in_place, patient(proxy.uri())};
        Lock<TypeParam> lock{*client, "job"};
        Held held = lock.acquire().value();
        const std::string token = held.token();
        proxy.delay_requests(300ms);
        auto ended = in_background([&] { end(held); });
        ASSERT_TRUE(eventually([&] { return !lock.held(); }));
        client.reset();
        EXPECT_NE(this->lock_.inspect().value().owner, token);
        ended.get();
        proxy.delay_requests(0ms);
        this->redis_.flushall();
    }
}

template <class Policy>
class OwnerHold : public LockTest {
protected:
    const AcquireOptions of_hold{.wait = 10s, .owner = Owner::hold};

    Lock<Policy> lock_{client_, "job"};
};
TYPED_TEST_SUITE(OwnerHold, AllPolicies);

TYPED_TEST(OwnerHold, excludes_the_thread_that_acquired_it_until_a_worker_has_released_it) {
    auto& lock = this->lock_;
    std::atomic<bool> worked{false};
    Held held = lock.acquire(this->of_hold).value();
    EXPECT_FALSE(lock.try_lock());
    EXPECT_EQ(code_of(lock.acquire({.wait = 5ms, .owner = Owner::hold})), Errc::timed_out);
    std::jthread worker{[&, held = std::move(held)]() mutable {
        std::this_thread::sleep_for(50ms);
        worked = true;
        EXPECT_EQ(held.release().value(), Release::released);
    }};
    Held next = lock.acquire({.owner = Owner::hold}).value();
    EXPECT_TRUE(worked);
    EXPECT_TRUE(next.held());
}

TYPED_TEST(OwnerHold, is_not_what_members_of_the_lock_speak_of) {
    auto& lock = this->lock_;
    const Held held = lock.acquire(this->of_hold).value();
    EXPECT_FALSE(lock.held());
    EXPECT_EQ(lock.state(), HoldState::none);
    EXPECT_EQ(code_of(lock.extend(40s)), Errc::not_held);
    EXPECT_EQ(lock.release().value(), Release::not_held);
    EXPECT_TRUE(held.held());
    EXPECT_NE(held.token().find(":hold:"), std::string::npos) << held.token();
}

TYPED_TEST(OwnerHold, does_not_nest_in_the_threads_own_hold) {
    auto& lock = this->lock_;
    lock.lock();
    EXPECT_EQ(code_of(lock.acquire({.owner = Owner::hold})), Errc::deadlock);
    EXPECT_EQ(code_of(lock.acquire({.wait = 5ms, .owner = Owner::hold})), Errc::timed_out);
    EXPECT_EQ(lock.release().value(), Release::released);
}

TYPED_TEST(OwnerHold, is_waited_for_until_its_end_by_the_thread_that_acquired_it) {
    if constexpr (!TypeParam::watched) {
        const Held forgotten = this->lock_.acquire({.lease = 200ms, .owner = Owner::hold}).value();
        this->lock_.lock();  // neither a deadlock nor for ever
        EXPECT_FALSE(forgotten.held());
    }
}

using WhoseNest = LockTest;

TEST_F(WhoseNest, ends_with_its_lock_by_one_command) {
    std::optional<Lock<Reentrant>> handle{std::in_place, client_, "job"};
    for (int i = 0; i < 30; ++i) handle->lock();
    EXPECT_EQ(redis_.hgetall("job").begin()->second, "30");
    redis_.reset_stats();
    handle.reset();
    EXPECT_TRUE(redis_.keys().empty());
    EXPECT_EQ(redis_.command_calls("hdel"), 1);
    EXPECT_LE(redis_.command_calls("evalsha"), 1);
}

TEST_F(WhoseNest, goes_on_for_the_holds_of_other_handles) {
    Lock<Reentrant> stays{client_, "job"};
    std::optional<Lock<Reentrant>> goes{std::in_place, client_, "job"};
    stays.lock();
    goes->lock();
    goes->lock();
    Held held = goes->acquire().value();
    goes.reset();
    EXPECT_TRUE(stays.held());
    EXPECT_TRUE(redis_.exists("job"));
    EXPECT_EQ(stays.release().value(), Release::still_held);
    EXPECT_EQ(held.release().value(), Release::released);
}

}  // namespace
}  // namespace redlatch::test
