// Shared locks, semaphores and sets of locks, taken without a thread that waits.

#include "async_tools.hpp"
#include "support/no_more_threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

namespace redlatch::test {
namespace {

// ---- What all keep, each kind in its own way

/// Reading, which a writer hinders.
class Readers {
public:
    using Object = Held;

    explicit Readers(Client& client, LockOptions options = {}) : lock_{client, "key", options} {}

    AsyncResult<Held> take(std::stop_token stop = {}) {
        return lock_.async_acquire_shared({.wait = 60s}, std::move(stop));
    }
    template <class Done>
    void take(AsyncOptions options, std::stop_token stop, Done done, Executor* executor = nullptr) {
        lock_.async_acquire_shared(options, std::move(stop), std::move(done), executor);
    }

    /// What nobody has beside it.
    static Result<Held> take_alone(Client& client, Wait wait = 20s) {
        return Lock<Shared>{client, "key"}.acquire({.wait = wait, .owner = Owner::hold});
    }
    static bool has_waiter(Client& client) {
        return Lock<Shared>{client, "key"}.inspect().value().waiters > 0;
    }
    static bool is_at(RawRedis& redis) { return redis.exists("key"); }

private:
    Lock<Watchdog<Shared>> lock_;
};

/// Two of three permits, which somebody with two of them hinders.
class Permits {
public:
    using Object = Held;

    explicit Permits(Client& client, LockOptions options = {})
        : semaphore_{client, "key", 3, options} {}

    AsyncResult<Held> take(std::stop_token stop = {}) {
        return semaphore_.async_take({.permits = 2, .wait = 60s}, std::move(stop));
    }
    template <class Done>
    void take(AsyncOptions options, std::stop_token stop, Done done, Executor* executor = nullptr) {
        semaphore_.async_take({.permits = 2, .wait = options.wait, .lease = options.lease},
                              std::move(stop), std::move(done), executor);
    }

    static Result<Held> take_alone(Client& client, Wait wait = 20s) {
        return Semaphore<>{client, "key", 3}.take({.permits = 3, .wait = wait});
    }
    static bool has_waiter(Client& client) {
        return Semaphore<>{client, "key", 3}.inspect().value().waiters > 0;
    }
    static bool is_at(RawRedis& redis) { return redis.exists("key"); }

private:
    Semaphore<> semaphore_;
};

template <class Kind>
class AsyncFamily : public LockTest {
protected:
    using Object = typename Kind::Object;

    static Coroutine take_in_coroutine(Kind& kind, Executor& executor,
                                       std::optional<Result<Object>>& result) {
        result.emplace(co_await kind.take().via(executor));
    }

    /// Whether somebody gets all of it, which nobody has then.
    bool is_free() { return Kind::take_alone(other_client_).has_value(); }

    Kind kind_{client_};
};
using Kinds = ::testing::Types<Readers, Permits>;
TYPED_TEST_SUITE(AsyncFamily, Kinds);

TYPED_TEST(AsyncFamily, is_taken_and_released) {
    Outcome<typename TypeParam::Object> outcome;
    this->kind_.take({}, {}, outcome.callback());
    auto held = outcome.get();
    ASSERT_TRUE(held) << held.error().describe();
    EXPECT_TRUE(held->held());
    EXPECT_EQ(held->state(), HoldState::held);
    EXPECT_FALSE(held->lost().stop_requested());
    EXPECT_EQ(code_of(TypeParam::take_alone(this->other_client_, Wait::none())), Errc::timed_out);
    Outcome<Release> released;
    held->async_release(released.callback());
    EXPECT_FALSE(held->held()) << "at the call";
    EXPECT_EQ(released.get().value(), Release::released);
    EXPECT_TRUE(TypeParam::take_alone(this->other_client_, Wait::none()));
}

TYPED_TEST(AsyncFamily, destructor_posts_the_release) {
    Outcome<typename TypeParam::Object> outcome;
    this->kind_.take({}, {}, outcome.callback());
    ASSERT_TRUE(outcome.get());
    EXPECT_TRUE(this->is_free());
}

TYPED_TEST(AsyncFamily, release_that_nobody_awaits_is_on_its_way) {
    Outcome<typename TypeParam::Object> outcome;
    this->kind_.take({}, {}, outcome.callback());
    auto held = outcome.get();
    ASSERT_TRUE(held);
    (void)held->async_release();
    EXPECT_TRUE(this->is_free());
}

TYPED_TEST(AsyncFamily, is_extended) {
    Outcome<typename TypeParam::Object> outcome;
    this->kind_.take({.lease = 5s}, {}, outcome.callback());
    auto held = outcome.get();
    ASSERT_TRUE(held);
    Outcome<void> longer;
    held->async_extend(60s, longer.callback());
    EXPECT_TRUE(longer.get());
    EXPECT_GT(held->remaining(), 30s);
    Outcome<void> refused;
    held->async_extend(1ms, refused.callback());
    EXPECT_EQ(code_of(refused.get()), Errc::invalid_argument);
}

TYPED_TEST(AsyncFamily, waits_for_another_client_in_the_queue) {
    auto other = TypeParam::take_alone(this->other_client_);
    ASSERT_TRUE(other);
    Outcome<typename TypeParam::Object> outcome;
    this->kind_.take({}, {}, outcome.callback());
    ASSERT_TRUE(eventually([&] { return TypeParam::has_waiter(this->other_client_); }));
    EXPECT_FALSE(outcome.is_there());
    EXPECT_EQ(other->release().value(), Release::released);
    EXPECT_TRUE(outcome.get());
}

TYPED_TEST(AsyncFamily, bad_lease_completes_like_all_else) {
    Loop loop;
    Outcome<typename TypeParam::Object> outcome;
    this->kind_.take({.lease = 1ms}, {}, outcome.callback(), &loop);
    EXPECT_FALSE(outcome.is_there()) << "not inside the call";
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(code_of(outcome.get()), Errc::invalid_argument);
}

TYPED_TEST(AsyncFamily, wait_ends_with_its_time_or_with_a_stop) {
    const auto other = TypeParam::take_alone(this->other_client_);
    ASSERT_TRUE(other);
    Outcome<typename TypeParam::Object> tried;
    Outcome<typename TypeParam::Object> waited;
    this->kind_.take({.wait = Wait::none()}, {}, tried.callback());
    EXPECT_EQ(code_of(tried.get()), Errc::timed_out);
    this->kind_.take({.wait = 50ms}, {}, waited.callback());
    EXPECT_EQ(code_of(waited.get()), Errc::timed_out);

    std::stop_source stop;
    Outcome<typename TypeParam::Object> stopped;
    this->kind_.take({}, stop.get_token(), stopped.callback());
    ASSERT_TRUE(eventually([&] { return TypeParam::has_waiter(this->other_client_); }));
    stop.request_stop();
    EXPECT_EQ(code_of(stopped.get()), Errc::cancelled);
    Outcome<typename TypeParam::Object> late;
    this->kind_.take({}, stop.get_token(), late.callback());
    EXPECT_EQ(code_of(late.get()), Errc::cancelled) << "one that was stopped before";
    EXPECT_TRUE(eventually([&] { return !TypeParam::has_waiter(this->other_client_); }));
}

TYPED_TEST(AsyncFamily, cancel_races_with_success_and_nothing_is_left_behind) {
    for (int i = 0; i < 100; ++i) {
        std::stop_source stop;
        Outcome<typename TypeParam::Object> outcome;
        this->kind_.take({.wait = 60s}, stop.get_token(), outcome.callback());
        const auto until = std::chrono::steady_clock::now() + (i % 25) * 20us;
        while (std::chrono::steady_clock::now() < until) {
        }
        stop.request_stop();
        const Errc code = code_of(outcome.get());
        EXPECT_TRUE(code == Errc{} || code == Errc::cancelled) << static_cast<int>(code);
        EXPECT_EQ(outcome.calls(), 1);
    }
    EXPECT_TRUE(this->is_free());
}

TYPED_TEST(AsyncFamily, destroyed_coroutine_leaves_nothing_behind) {
    Loop loop;
    for (int i = 0; i < 40; ++i) {
        std::optional<Result<typename TypeParam::Object>> result;
        {
            const Coroutine coroutine = this->take_in_coroutine(this->kind_, loop, result);
            if (i % 3 == 1) std::this_thread::sleep_for((i % 10) * 50us);
            if (i % 3 == 2) (void)eventually([&] { return TypeParam::is_at(this->redis_); }, 20ms);
        }
        EXPECT_FALSE(result);
    }
    loop.run_ready();
    EXPECT_TRUE(eventually([&] {
        loop.run_ready();
        return TypeParam::take_alone(this->other_client_, Wait::none()).has_value();
    }));
}

TYPED_TEST(AsyncFamily, handle_may_be_destroyed_meanwhile) {
    auto other = TypeParam::take_alone(this->other_client_);
    ASSERT_TRUE(other);
    std::optional<TypeParam> kind{std::in_place, this->client_};
    Outcome<typename TypeParam::Object> outcome;
    kind->take({}, {}, outcome.callback());
    kind.reset();
    EXPECT_TRUE(stays([&] { return !outcome.is_there(); }, 20ms));
    (void)other->release();
    EXPECT_TRUE(outcome.get());
}

TYPED_TEST(AsyncFamily, closed_client_cancels_what_waits) {
    const auto other = TypeParam::take_alone(this->other_client_);
    ASSERT_TRUE(other);
    std::optional<Client> client{std::in_place, this->server_.uri()};
    TypeParam kind{*client};
    Outcome<typename TypeParam::Object> waiting;
    kind.take({}, {}, waiting.callback());
    ASSERT_TRUE(eventually([&] { return TypeParam::has_waiter(this->other_client_); }));
    client.reset();
    EXPECT_EQ(code_of(waiting.get()), Errc::cancelled);
    Outcome<typename TypeParam::Object> after;
    kind.take({}, {}, after.callback());
    EXPECT_EQ(code_of(after.get()), Errc::cancelled);
    EXPECT_FALSE(TypeParam::has_waiter(this->other_client_));
}

TYPED_TEST(AsyncFamily, success_that_is_not_delivered_is_cancelled_by_the_close) {
    Loop loop;
    std::optional<Client> client{std::in_place, this->server_.uri()};
    TypeParam kind{*client};
    Outcome<typename TypeParam::Object> outcome;
    kind.take({}, {}, outcome.callback(), &loop);
    ASSERT_TRUE(eventually([&] { return TypeParam::is_at(this->redis_); }));
    client.reset();
    EXPECT_TRUE(TypeParam::take_alone(this->other_client_, Wait::none())) << "released";
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(code_of(outcome.get()), Errc::cancelled);
}

TYPED_TEST(AsyncFamily, destroyed_queue_discards_what_completes) {
    Outcome<typename TypeParam::Object> outcome;
    {
        Loop loop;
        this->kind_.take({}, {}, outcome.callback(), &loop);
        ASSERT_TRUE(eventually([&] { return TypeParam::is_at(this->redis_); }));
    }
    EXPECT_TRUE(this->is_free()) << "nobody keeps it";
    EXPECT_FALSE(outcome.is_there());
}

TYPED_TEST(AsyncFamily, renewal_begins_at_delivery) {
    TypeParam kind{this->client_, {.lease = 400ms}};
    Loop loop;
    Outcome<typename TypeParam::Object> late;
    kind.take({}, {}, late.callback(), &loop);
    ASSERT_TRUE(eventually([&] { return TypeParam::is_at(this->redis_); }));
    EXPECT_TRUE(this->is_free()) << "not renewed before";
    ASSERT_TRUE(loop.run_until([&] { return late.is_there(); }));
    EXPECT_EQ(code_of(late.get()), Errc::lost);

    Outcome<typename TypeParam::Object> outcome;
    kind.take({}, {}, outcome.callback(), &loop);
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    const auto held = outcome.get();
    ASSERT_TRUE(held);
    EXPECT_TRUE(stays([&] { return held->held(); }, 1200ms)) << "renewed since";
}

TYPED_TEST(AsyncFamily, system_without_a_thread_to_give_is_unavailable) {
    Loop loop;
    Outcome<typename TypeParam::Object> outcome;
    {
        const NoMoreThreads none;
        this->kind_.take({}, {}, outcome.callback(), &loop);
    }
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(code_of(outcome.get()), Errc::unavailable);
    Outcome<typename TypeParam::Object> later;
    this->kind_.take({}, {}, later.callback(), &loop);
    ASSERT_TRUE(loop.run_until([&] { return later.is_there(); }));
    EXPECT_TRUE(later.get());
}

// ---- Shared locks

template <class Policy>
class AsyncShared : public LockTest {};
using SharedPolicies =
    ::testing::Types<Shared, Watchdog<Shared>, Fenced<Shared>, Watchdog<Fenced<Shared>>>;
TYPED_TEST_SUITE(AsyncShared, SharedPolicies);

TYPED_TEST(AsyncShared, many_read_or_one_writes) {
    Lock<TypeParam> lock{this->client_, "key"};
    Held writer = take(lock);
    Outcome<Held> first;
    Outcome<Held> second;
    lock.async_acquire_shared({}, {}, first.callback());
    lock.async_acquire_shared({}, {}, second.callback());
    EXPECT_TRUE(stays([&] { return !first.is_there() && !second.is_there(); }, 20ms));
    const auto fence = writer.fence();
    (void)writer.async_release();
    Result<Held> one = first.get();
    const Result<Held> other = second.get();
    ASSERT_TRUE(one && other);
    EXPECT_EQ(lock.inspect().value().holders.size(), 2U);
    EXPECT_EQ(one->fence(), fence) << "the last writer's";
    EXPECT_TRUE(lock.try_lock_shared()) << "threads read beside them";
    lock.unlock_shared();
    EXPECT_FALSE(lock.try_lock());
}

using AsyncReading = LockTest;

TEST_F(AsyncReading, is_nested_without_a_command) {
    Lock<Shared> lock{client_, "key"};
    Outcome<Held> outcome;
    lock.async_acquire_shared({}, {}, outcome.callback());
    Result<Held> outer = outcome.get();
    ASSERT_TRUE(outer);
    Outcome<Held> nested;
    outer->async_nest(nested.callback());
    Result<Held> inner = nested.get();
    ASSERT_TRUE(inner);
    EXPECT_EQ(lock.inspect().value().holders.size(), 1U);
    EXPECT_EQ(outer->release().value(), Release::still_held);
    EXPECT_EQ(inner->release().value(), Release::released);
}

TEST_F(AsyncReading, of_one_thread_is_nobodys_but_its_own) {
    Lock<Shared> lock{client_, "key"};
    Outcome<Held> outcome;
    lock.async_acquire_shared({}, {}, outcome.callback());
    const Result<Held> reading = outcome.get();
    ASSERT_TRUE(reading);
    EXPECT_FALSE(lock.held());
    Outcome<Held> writing;
    lock.async_acquire({.wait = 30ms}, {}, writing.callback());
    EXPECT_EQ(code_of(writing.get()), Errc::timed_out)
        << "it waits like anybody, and is no deadlock";
}

Detached read(Lock<Watchdog<Shared>>& lock, std::atomic<int>& readers, std::atomic<int>& writers,
              std::latch& done) {
    Result<Held> held = co_await lock.async_acquire_shared({.wait = 60s});
    EXPECT_TRUE(held);
    ++readers;
    EXPECT_EQ(writers, 0);
    --readers;
    if (held) (void)co_await held->async_release();
    done.count_down();
}

Detached write(Lock<Watchdog<Shared>>& lock, std::atomic<int>& readers, std::atomic<int>& writers,
               std::latch& done) {
    Result<Held> held = co_await lock.async_acquire({.wait = 60s});
    EXPECT_TRUE(held);
    EXPECT_EQ(++writers, 1);
    EXPECT_EQ(readers, 0);
    --writers;
    if (held) (void)co_await held->async_release();
    done.count_down();
}

TEST_F(AsyncReading, is_never_beside_a_writer) {
    Lock<Watchdog<Shared>> lock{client_, "key"};
    std::atomic<int> readers{0};
    std::atomic<int> writers{0};
    std::latch done{200};
    for (int i = 0; i < 200; ++i) {
        if (i % 5 == 0) {
            write(lock, readers, writers, done);
        } else {
            read(lock, readers, writers, done);
        }
    }
    done.wait();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
}

// ---- Semaphores

using AsyncSemaphore = LockTest;

TEST_F(AsyncSemaphore, gives_all_permits_or_none_and_in_order) {
    Semaphore<> semaphore{client_, "key", 3};
    Outcome<Held> two;
    Outcome<Held> three;
    Outcome<Held> one;
    semaphore.async_take({.permits = 2}, {}, two.callback());
    Result<Held> held = two.get();
    ASSERT_TRUE(held);
    EXPECT_EQ(semaphore.inspect().value().taken, 2);
    semaphore.async_take({.permits = 3}, {}, three.callback());
    ASSERT_TRUE(eventually([&] { return semaphore.inspect().value().waiters == 1; }));
    semaphore.async_take({}, {}, one.callback());
    ASSERT_TRUE(eventually([&] { return semaphore.inspect().value().waiters == 2; }));
    EXPECT_TRUE(stays([&] { return !three.is_there() && !one.is_there(); }, 20ms))
        << "there is a permit, and nobody is overtaken";
    (void)held->async_release();
    Result<Held> all = three.get();
    ASSERT_TRUE(all);
    EXPECT_FALSE(one.is_there());
    EXPECT_EQ(all->release().value(), Release::released);
    EXPECT_TRUE(one.get());
}

TEST_F(AsyncSemaphore, refuses_numbers_that_it_has_not_got) {
    Semaphore<> semaphore{client_, "key", 3};
    for (const int permits : {0, -1, 4}) {
        Loop loop;
        Outcome<Held> outcome;
        semaphore.async_take({.permits = permits}, {}, outcome.callback(), &loop);
        EXPECT_FALSE(outcome.is_there()) << "not inside the call";
        ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
        EXPECT_EQ(code_of(outcome.get()), Errc::invalid_argument);
    }
}

TEST_F(AsyncSemaphore, permits_of_a_take_are_not_given_back_by_the_object) {
    Semaphore<> semaphore{client_, "key", 1};
    Outcome<Held> outcome;
    semaphore.async_take({}, {}, outcome.callback());
    const Result<Held> held = outcome.get();
    ASSERT_TRUE(held);
    EXPECT_EQ(semaphore.release().value(), Release::not_held);
    EXPECT_TRUE(held->held());
}

}  // namespace
}  // namespace redlatch::test
