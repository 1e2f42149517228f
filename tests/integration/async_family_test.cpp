// Shared locks, semaphores and sets of locks, taken without a thread that waits.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "support/no_more_threads.hpp"
#include "support/proxy.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

/// Whether all leases of six seconds are set anew, of a set each; waits for that.
template <class Object>
bool are_renewed(const Object& held) {
    return eventually([&] { return held.remaining() < 5s; }) &&
           eventually([&] { return held.remaining() > 5s; });
}

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

/// Two locks of a set, of which either hinders.
class Sets {
public:
    using Object = HeldSet;

    explicit Sets(Client& client, LockOptions options = {})
        : set_{client, {"key", "other"}, options} {}

    AsyncResult<HeldSet> take(std::stop_token stop = {}) {
        return set_.async_acquire({.wait = 60s}, std::move(stop));
    }
    template <class Done>
    void take(AsyncOptions options, std::stop_token stop, Done done, Executor* executor = nullptr) {
        set_.async_acquire(options, std::move(stop), std::move(done), executor);
    }

    static Result<HeldSet> take_alone(Client& client, Wait wait = 20s) {
        return LockSet<Simple>{client, {"key", "other"}}.acquire(
            {.wait = wait, .owner = Owner::hold});
    }
    static bool has_waiter(Client& client) {
        return Lock<Simple>{client, "key"}.inspect().value().waiters > 0;
    }
    static bool is_at(RawRedis& redis) { return redis.exists("other"); }

private:
    LockSet<> set_;
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
using Kinds = ::testing::Types<Readers, Permits, Sets>;
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
    this->kind_.take({.lease = 20s}, {}, outcome.callback());
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
    this->kind_.take({.wait = Wait::none()}, {}, tried.callback());
    EXPECT_EQ(code_of(tried.get()), Errc::timed_out);
    EXPECT_TRUE(times_out([&] {
        Outcome<typename TypeParam::Object> waited;
        this->kind_.take({.wait = 50ms}, {}, waited.callback());
        return waited.get();
    }));

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
    int succeeded = 0;
    int cancelled = 0;
    const Stopwatch watch;
    const auto is_enough = [&](int rounds) {
        return (rounds >= 100 && succeeded > 0 && cancelled > 0) ||
               watch.elapsed() > generous_limit;
    };
    for (int i = 0; !is_enough(i); ++i) {
        std::stop_source stop;
        Outcome<typename TypeParam::Object> outcome;
        this->kind_.take({.wait = 60s}, stop.get_token(), outcome.callback());
        const auto longer = i / 100 * 20us;  // for a machine that needs more
        const auto until = std::chrono::steady_clock::now() + (i % 25) * (20us + longer);
        while (std::chrono::steady_clock::now() < until) {
        }
        stop.request_stop();
        const Errc code = code_of(outcome.get());
        ASSERT_TRUE(code == Errc{} || code == Errc::cancelled) << static_cast<int>(code);
        ++(code == Errc{} ? succeeded : cancelled);
        EXPECT_EQ(outcome.calls(), 1);
    }
    EXPECT_GT(succeeded, 0);
    EXPECT_GT(cancelled, 0);
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
    std::optional<Client> client{std::in_place, patient(this->server_.uri())};
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
    std::optional<Client> client{std::in_place, patient(this->server_.uri())};
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
    TypeParam kind{this->client_, {.lease = 6s}};
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
    EXPECT_TRUE(are_renewed(*held)) << "since then";
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
    EXPECT_TRUE(times_out([&] {
        Outcome<Held> writing;
        lock.async_acquire({.wait = 30ms}, {}, writing.callback());
        return writing.get();
    })) << "it waits like anybody, and is no deadlock";
}

/// How it ends that a hold is downgraded in a coroutine, during which it is moved.
Coroutine downgrade(Held held, Executor& executor, Held& left,
                    std::optional<Result<void>>& outcome) {
    auto downgrade = held.async_downgrade();
    left = std::move(held);
    outcome.emplace(co_await std::move(downgrade).via(executor));
}

TEST_F(AsyncReading, begins_by_a_downgrade_without_a_gap_for_a_writer) {
    Lock<Shared> lock{client_, "key"};
    Lock<Shared> elsewhere{other_client_, "key"};
    Held held = take(lock);
    Outcome<Held> writing;
    elsewhere.async_acquire({.wait = 60s}, {}, writing.callback());
    ASSERT_TRUE(eventually([&] { return lock.inspect().value().waiters == 1; }));
    Loop loop;
    Held left;
    std::optional<Result<void>> outcome;
    const Coroutine coroutine = downgrade(std::move(held), loop, left, outcome);
    ASSERT_TRUE(loop.run_until([&] { return outcome.has_value(); }));
    EXPECT_TRUE(outcome->has_value());
    EXPECT_TRUE(left.held());
    const LockInfo info = lock.inspect().value();
    EXPECT_EQ(info.waiters, 1U) << "the writer";
    ASSERT_EQ(info.holders.size(), 1U);
    EXPECT_FALSE(info.holders.front().writes);
    Outcome<void> again;
    left.async_downgrade(again.callback());
    EXPECT_EQ(code_of(again.get()), Errc::not_held) << "it reads already";
    EXPECT_FALSE(writing.is_there());
    EXPECT_EQ(left.release().value(), Release::released);
    EXPECT_TRUE(writing.get());
}

TEST_F(AsyncReading, by_a_downgrade_fails_as_it_does_where_a_thread_waits) {
    Lock<Shared> lock{client_, "key"};
    Lock<> plain{client_, "plain"};
    Held other = take(plain);
    Outcome<void> of_another_policy;
    other.async_downgrade(of_another_policy.callback());
    EXPECT_EQ(code_of(of_another_policy.get()), Errc::invalid_argument);
    EXPECT_TRUE(other.held());

    Outcome<void> of_nothing;
    Held{}.async_downgrade(of_nothing.callback());
    EXPECT_EQ(code_of(of_nothing.get()), Errc::not_held);

    Held removed = take(lock);
    redis_.del("key");
    Outcome<void> of_the_removed;
    removed.async_downgrade(of_the_removed.callback());
    EXPECT_EQ(code_of(of_the_removed.get()), Errc::lost);
    EXPECT_EQ(removed.state(), HoldState::lost);
}

Detached use_nothing(Held held, HeldSet set, std::vector<std::thread::id>& threads) {
    const auto note = [&] { threads.push_back(std::this_thread::get_id()); };
    EXPECT_EQ((co_await held.async_release()).value(), Release::not_held);
    note();
    EXPECT_EQ(code_of(co_await held.async_extend(1s)), Errc::not_held);
    note();
    EXPECT_EQ(code_of(co_await held.async_nest()), Errc::not_held);
    note();
    EXPECT_EQ((co_await set.async_release()).value(), Release::not_held);
    note();
}

TEST_F(AsyncReading, of_nothing_goes_on_on_the_same_thread) {
    std::vector<std::thread::id> threads;
    use_nothing({}, {}, threads);
    EXPECT_EQ(threads, std::vector(4, std::this_thread::get_id()));
    Lock<> lock{client_, "key"};
    Held held = take(lock);
    Held elsewhere;
    std::swap(held, elsewhere);
    threads.clear();
    use_nothing(std::move(held), {}, threads);
    EXPECT_EQ(threads, std::vector(4, std::this_thread::get_id()));
    EXPECT_TRUE(elsewhere.held());
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
    ASSERT_TRUE(are_queued("redlatch:queue:{key}", 1));
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

Coroutine inspect(const Semaphore<>& semaphore, Executor& executor,
                  std::optional<Result<SemaphoreInfo>>& info) {
    info.emplace(co_await semaphore.async_inspect().via(executor));
}

TEST_F(AsyncSemaphore, crowd_that_waits_leaves_no_place_behind_its_client) {
    constexpr int crowd = 1500;
    const Held held = Semaphore<>{other_client_, "key", 2}.take({.permits = 2}).value();
    std::atomic<int> cancelled{0};
    std::optional<Client> client{std::in_place, patient(server_.uri())};
    Semaphore<> semaphore{*client, "key", 2};
    for (int i = 0; i < crowd; ++i) {
        semaphore.async_take({}, {}, [&](const Result<Held>& outcome) {
            if (code_of(outcome) == Errc::cancelled) ++cancelled;
        });
    }
    ASSERT_TRUE(are_queued("redlatch:queue:{key}", crowd));
    const auto before = redis_.command_calls("hget");
    client.reset();
    ASSERT_TRUE(eventually([&] { return cancelled == crowd; })) << cancelled;
    EXPECT_TRUE(are_queued("redlatch:queue:{key}", 0));
    EXPECT_LT(redis_.command_calls("hget") - before, 4 * crowd)
        << "no release looks at all of them";
}

TEST_F(AsyncSemaphore, is_inspected) {
    const Semaphore<> semaphore{client_, "key", 3};
    const Held held = Semaphore<>{other_client_, "key", 3}.take({.permits = 2}).value();
    Outcome<SemaphoreInfo> seen;
    semaphore.async_inspect(seen.callback());
    const SemaphoreInfo info = seen.get().value();
    EXPECT_EQ(info.taken, 2U);
    EXPECT_EQ(info.permits, 3U) << "of this object, as nobody has set it";
    ASSERT_EQ(info.holders.size(), 1U);
    EXPECT_EQ(info.holders.front().owner, held.token());

    redis_.del("key");
    redis_.set("key", "somebody's data");
    Loop loop;
    std::optional<Result<SemaphoreInfo>> of_foreign_data;
    const Coroutine coroutine = inspect(semaphore, loop, of_foreign_data);
    ASSERT_TRUE(loop.run_until([&] { return of_foreign_data.has_value(); }));
    EXPECT_EQ(code_of(*of_foreign_data), Errc::wrong_type);
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

// ---- Several locks at once

template <class Policy>
class AsyncSetOf : public LockTest {
protected:
    static constexpr std::chrono::milliseconds lease = 6s;

    /// Begins to take `a` and `b`, of which somebody has `b`, and has `a` by then.
    void take_a_and_wait_for_b(AsyncOptions options = {}) {
        other_ = b_.acquire();
        ASSERT_TRUE(other_);
        set_.async_acquire(options, stop_.get_token(), outcome_.callback());
        ASSERT_TRUE(eventually([&] { return b_.inspect().value().waiters == 1; }));
        ASSERT_TRUE(redis_.exists("a")) << "taken in the order of their bytes";
    }

    bool is_given_back() {
        return eventually([&] { return !redis_.exists("a"); });
    }

    Lock<Policy> a_{other_client_, "a"};
    Lock<Policy> b_{other_client_, "b"};
    Result<Held> other_ = Held{};
    LockSet<Policy> set_{client_, {"b", "a"}, {.lease = lease}};
    std::stop_source stop_{};
    Outcome<HeldSet> outcome_;
};
using SetPolicies =
    ::testing::Types<Simple, Reentrant, Watchdog<Simple>, Watchdog<Fenced<Reentrant>>>;
TYPED_TEST_SUITE(AsyncSetOf, SetPolicies);

TYPED_TEST(AsyncSetOf, renews_those_before_while_it_waits_and_has_whole_leases_in_the_end) {
    this->take_a_and_wait_for_b();
    const std::string owner = this->a_.inspect().value().owner;
    const auto is_used = [&] {
        const auto ttl = this->redis_.pttl("a");
        return ttl > 0 && ttl < 5000;
    };
    ASSERT_TRUE(eventually(is_used));
    ASSERT_TRUE(eventually([&] { return this->redis_.pttl("a") > 5200; })) << "renewed";
    ASSERT_TRUE(eventually(is_used));
    const Stopwatch watch;
    static_cast<void>(this->other_->release());
    const auto held = this->outcome_.get();
    ASSERT_TRUE(held) << held.error().describe();
    EXPECT_EQ(this->a_.inspect().value().owner, owner) << "and not taken anew";
    for (const std::string name : {"a", "b"}) {
        const auto ttl = this->redis_.pttl(name);
        EXPECT_GT(ttl + watch.elapsed_ms(), 5200) << "what it had since the release";
    }
    EXPECT_EQ(held->fence("a") > 0 && held->fence("b") > 0, is_fenced<TypeParam>);
    if (TypeParam::watched) {
        EXPECT_TRUE(are_renewed(*held));
    } else {
        EXPECT_TRUE(fires(held->lost())) << "without a watchdog none is renewed any more";
        EXPECT_TRUE(this->is_given_back());
    }
}

TYPED_TEST(AsyncSetOf, begins_anew_where_one_is_lost_while_another_is_waited_for) {
    this->take_a_and_wait_for_b();
    const std::string first = this->a_.inspect().value().owner;
    this->redis_.del("a");
    ASSERT_TRUE(eventually([&] {
        const auto owner = this->a_.inspect().value().owner;
        return !owner.empty() && owner != first;
    })) << "by another token";
    EXPECT_FALSE(this->outcome_.is_there());
    static_cast<void>(this->other_->release());
    const auto held = this->outcome_.get();
    ASSERT_TRUE(held) << held.error().describe();
    EXPECT_TRUE(held->held());
}

TYPED_TEST(AsyncSetOf, gives_back_what_it_has_when_it_is_cancelled) {
    this->take_a_and_wait_for_b({.lease = 5min});
    this->stop_.request_stop();
    EXPECT_EQ(code_of(this->outcome_.get()), Errc::cancelled);
    EXPECT_TRUE(this->is_given_back());
    EXPECT_TRUE(this->other_->held());
}

TYPED_TEST(AsyncSetOf, that_was_refused_is_not_in_the_way_of_the_next_try) {
    Lock<TypeParam> own{this->client_, "a"};
    // What a busy machine has not given back by the deadline is in the way of one try, now and then.
    constexpr int rounds = 100;
    int in_the_way = 0;
    for (int round = 0; round < rounds; ++round) {
        this->other_ = this->b_.acquire();
        ASSERT_TRUE(this->other_);
        Outcome<HeldSet> refused;
        this->set_.async_acquire({.wait = 0s}, {}, refused.callback());
        EXPECT_EQ(code_of(refused.get()), Errc::timed_out);
        static_cast<void>(this->other_->release());
        const bool is_free = own.acquire({.wait = 0s}).has_value();
        Outcome<HeldSet> again;
        this->set_.async_acquire({.wait = 0s}, {}, again.callback());
        const bool all_are_free = again.get().has_value();
        if (!is_free || !all_are_free) ++in_the_way;
    }
    EXPECT_LE(in_the_way, rounds / 20);
}

TYPED_TEST(AsyncSetOf, is_lost_with_the_first_of_them) {
    this->set_.async_acquire({}, {}, this->outcome_.callback());
    auto held = this->outcome_.get();
    ASSERT_TRUE(held);
    const std::stop_token lost = held->lost();
    EXPECT_EQ((Lock<TypeParam>{this->client_, "b"}.force_unlock().value()), Forced::removed);
    EXPECT_TRUE(fires(lost));
    EXPECT_FALSE(held->held());
    Outcome<void> extended;
    held->async_extend(10s, extended.callback());
    EXPECT_EQ(code_of(extended.get()), Errc::lost);
    Outcome<Release> released;
    held->async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::expired);
    EXPECT_FALSE(this->redis_.exists("a"));
    Outcome<Release> again;
    held->async_release(again.callback());
    EXPECT_EQ(again.get().value(), Release::not_held);
    Outcome<void> none;
    held->async_extend(10s, none.callback());
    EXPECT_EQ(code_of(none.get()), Errc::not_held);
}

template <class Policy>
Coroutine take_in_coroutine(LockSet<Policy>& set, Executor& executor) {
    (void)co_await set.async_acquire({.lease = 5min}).via(executor);
    ADD_FAILURE() << "nobody resumes it";
}

TYPED_TEST(AsyncSetOf, gives_back_what_it_has_when_its_coroutine_is_destroyed) {
    this->other_ = this->b_.acquire();
    Loop loop;
    {
        const Coroutine coroutine = take_in_coroutine(this->set_, loop);
        ASSERT_TRUE(eventually([&] { return this->b_.inspect().value().waiters == 1; }));
        EXPECT_TRUE(this->redis_.exists("a"));
    }
    EXPECT_TRUE(this->is_given_back());
    EXPECT_TRUE(eventually([&] { return this->b_.inspect().value().waiters == 0; }));
}

using AsyncSet = LockTest;

TEST_F(AsyncSet, has_one_wait_for_all) {
    Result<Held> a = Lock<Simple>{other_client_, "a"}.acquire();
    Result<Held> b = Lock<Simple>{other_client_, "b"}.acquire();
    ASSERT_TRUE(a && b);
    LockSet<Simple> set{client_, {"a", "b"}, {.lease = 5min}};
    Outcome<HeldSet> outcome;
    const Stopwatch watch;
    set.async_acquire({.wait = 6s}, {}, outcome.callback());
    std::this_thread::sleep_for(5s);
    static_cast<void>(a->release());
    EXPECT_FALSE(outcome.get());
    EXPECT_LT(watch.elapsed(), 10500ms) << "it has no wait of its own for each";
    static_cast<void>(b->release());
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

TEST_F(AsyncSet, min_hold_is_for_what_was_delivered) {
    Lock<Simple> b{other_client_, "b"};
    std::optional<Result<Held>> other = b.acquire();
    std::optional<Client> client{std::in_place, patient(server_.uri())};
    const LockOptions options{.min_hold = 1h};
    {
        Loop loop;
        LockSet<Simple> set{*client, {"a", "b"}, options};
        Outcome<HeldSet> waiting;
        set.async_acquire({}, {}, waiting.callback());
        ASSERT_TRUE(eventually([&] { return b.inspect().value().waiters == 1; }));
        client.reset();
        EXPECT_EQ(code_of(waiting.get()), Errc::cancelled);
        EXPECT_FALSE(redis_.exists("a")) << "nobody has had it";
    }
    other.reset();
    {
        Loop loop;
        client.emplace(patient(server_.uri()));
        LockSet<Simple> set{*client, {"a", "b"}, options};
        Outcome<HeldSet> taken;
        set.async_acquire({}, {}, taken.callback(), &loop);
        ASSERT_TRUE(eventually([&] { return redis_.exists("b"); }));
        client.reset();
        EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); })) << "nobody has had them";
        ASSERT_TRUE(loop.run_until([&] { return taken.is_there(); }));
        EXPECT_EQ(code_of(taken.get()), Errc::cancelled);
    }
    LockSet<Simple> set{client_, {"a", "b"}, options};
    Outcome<HeldSet> outcome;
    set.async_acquire({}, {}, outcome.callback());
    Outcome<Release> released;
    outcome.get()->async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    EXPECT_GT(redis_.pttl("a"), 3'000'000);
    EXPECT_GT(redis_.pttl("b"), 3'000'000);
}

// g++ 12 does not compile a braced list of names within a `co_await`.
Coroutine take_names(Client& client, std::vector<std::string> names, int& taken) {
    LockSet set{client, {"a", "b"}};
    Result<HeldSet> held = co_await set.async_acquire({.wait = 20s});
    if (held && held->held()) ++taken;
    EXPECT_EQ((co_await held->async_release()).value(), Release::released);
    Result<HeldSet> again = co_await LockSet<>{client, names}.async_acquire();
    if (again && again->held()) ++taken;
    EXPECT_TRUE(co_await again->async_extend(90s));
    EXPECT_GT(again->remaining(), 60s);
}

TEST_F(AsyncSet, is_written_in_a_coroutine_as_elsewhere) {
    Loop loop;
    ClientOptions options = patient(server_.uri());
    options.completions = &loop;
    Client client{options};
    int taken = 0;
    const Coroutine coroutine = take_names(client, {"b", "c"}, taken);
    ASSERT_TRUE(loop.run_until([&] { return taken == 2; }));
}

Detached transfer(Client& client, std::vector<std::string> names, int rounds,
                  std::atomic<int>& inside, std::atomic<int>& done, std::latch& ended) {
    LockSet<Simple> set{client, names};
    for (int round = 0; round < rounds; ++round) {
        Result<HeldSet> held = co_await set.async_acquire({.wait = 60s});
        if (!held) break;
        EXPECT_EQ(++inside, 1) << "b is in all of them";
        --inside;
        ++done;
        (void)co_await held->async_release();
    }
    ended.count_down();
}

TEST_F(AsyncSet, waits_in_no_circle_with_other_sets_of_threads_and_coroutines) {
    constexpr int rounds = 30;
    std::atomic<int> inside{0};
    std::atomic<int> done{0};
    std::latch ended{8};
    const std::vector<std::vector<std::string>> orders{
        {"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"c", "b"}};
    for (std::size_t i = 0; i < 8; ++i) {
        transfer(i % 2 == 0 ? client_ : other_client_, orders[i % orders.size()], rounds, inside,
                 done, ended);
    }
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < 2; ++i) {
            threads.emplace_back([&, i] {
                LockSet<Simple> set{i % 2 == 0 ? client_ : other_client_, orders[i]};
                for (int round = 0; round < rounds; ++round) {
                    const auto held = set.acquire({.wait = 60s});
                    if (!held) return;
                    EXPECT_EQ(++inside, 1);
                    --inside;
                    ++done;
                }
            });
        }
    }
    ended.wait();
    EXPECT_EQ(done, 10 * rounds);
}

TEST_F(AsyncSet, is_released_within_one_command_timeout) {
    Proxy proxy{server_.uri()};
    Client far{{.uris = {proxy.uri()}, .connect_timeout = 10s, .command_timeout = 2s}};
    LockSet<Simple> set{far, {"a", "b", "c", "d", "e", "f", "g", "h"}};
    Outcome<HeldSet> outcome;
    set.async_acquire({}, {}, outcome.callback());
    auto held = outcome.get();
    ASSERT_TRUE(held) << held.error().describe();
    proxy.black_hole();
    const auto start = std::chrono::steady_clock::now();
    Outcome<void> extended;
    held->async_extend(60s, extended.callback());
    EXPECT_EQ(code_of(extended.get()), Errc::unavailable);
    Outcome<Release> released;
    held->async_release(released.callback());
    EXPECT_FALSE(released.get().has_value());
    EXPECT_LT(std::chrono::steady_clock::now() - start, 14s) << "and not eight times as long";
}

TEST_F(AsyncSet, is_tried_once_within_one_command_timeout) {
    Proxy proxy{server_.uri()};
    Client far{{.uris = {proxy.uri()}, .command_timeout = 1s}};
    ASSERT_TRUE(eventually([&] { return far.ping().has_value(); }));
    LockSet<Simple> set{far, {"a", "b", "c", "d", "e", "f"}};
    proxy.delay_replies(300ms);
    Outcome<HeldSet> outcome;
    set.async_acquire({.wait = Wait::none()}, {}, outcome.callback());
    EXPECT_EQ(code_of(outcome.get()), Errc::unavailable);
    proxy.pass();
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

TEST_F(AsyncSet, hears_a_stop_while_the_first_are_given_a_full_lease) {
    Proxy proxy{server_.uri()};
    const auto acquisitions = std::make_shared<Acquisitions>();
    Client far{{.uris = {proxy.uri()}, .command_timeout = 60s, .observer = acquisitions}};
    LockSet<Simple> set{far, {"a", "b"}, {.lease = 5min}};
    auto other = Lock<Simple>{client_, "b"}.acquire();
    std::stop_source stop;
    Outcome<HeldSet> outcome;
    set.async_acquire({}, stop.get_token(), outcome.callback());
    ASSERT_TRUE(are_queued("redlatch:queue:{b}", 1));
    const auto hears = [&] { return !redis_.command({"PUBSUB", "CHANNELS"}).elements.empty(); };
    ASSERT_TRUE(eventually(hears));
    std::this_thread::sleep_for(100ms);  // until a is to be given a full lease
    proxy.black_hole(Way::requests);
    static_cast<void>(other->release());
    ASSERT_TRUE(eventually([&] { return acquisitions->number == 2; })) << "by a message";
    EXPECT_FALSE(outcome.is_there());
    stop.request_stop();
    EXPECT_TRUE(eventually([&] { return outcome.is_there(); }, 20s));
    proxy.pass_whole();
    EXPECT_EQ(code_of(outcome.get()), Errc::cancelled);
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

TEST(AsyncSetOverMasters, is_taken_and_released_at_a_majority) {
    std::array<RedisServer, 3> servers;
    ClientOptions options{.connect_timeout = 10s, .command_timeout = 10s};
    for (const RedisServer& server : servers) options.uris.emplace_back(server.uri());
    options.node_timeout = 10s;
    options.longest_lease = 0ms;  // they have just started
    Client client{options};
    LockSet<Simple> set{client, {"a", "b"}};
    Outcome<HeldSet> outcome;
    set.async_acquire({.wait = 30s}, {}, outcome.callback());
    auto held = outcome.get();
    ASSERT_TRUE(held) << held.error().describe();
    Lock<Simple> a{client, "a"};
    EXPECT_FALSE(a.try_lock());
    Outcome<Release> released;
    held->async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    EXPECT_TRUE(a.try_lock_for(20s));
}

}  // namespace
}  // namespace redlatch::test
