// Asynchronous operations doing their job.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "on_engine.hpp"
#include "support/no_more_threads.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"
#include <redlatch/service/shared_client.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <deque>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using AsyncTest = LockTest;

/// What becomes of an acquisition.
template <class Policy>
Result<Held> outcome_of(Lock<Policy>& lock, const AsyncOptions& options) {
    Outcome<Held> outcome;
    lock.async_acquire(options, {}, outcome.callback());
    return outcome.get();
}

template <class Policy>
class Async : public LockTest {};
#ifdef REDLATCH_TEST_SANITIZED
using AsyncPolicies = ::testing::Types<Simple, Watchdog<Fenced<Reentrant>>>;
#else
using AsyncPolicies = ::testing::Types<Simple, Reentrant, Watchdog<Simple>, Watchdog<Reentrant>,
                                       Fenced<Simple>, Watchdog<Fenced<Reentrant>>>;
#endif
TYPED_TEST_SUITE(Async, AsyncPolicies);

TYPED_TEST(Async, lock_is_taken_and_released) {
    Lock<TypeParam> lock{this->client_, "key"};
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback());
    Result<Held> held = outcome.get();
    ASSERT_TRUE(held);
    EXPECT_TRUE(held->held());
    EXPECT_FALSE(held->lost().stop_requested());
    EXPECT_EQ(this->redis_.exists("key"), true);
    EXPECT_EQ(held->fence() > 0, is_fenced<TypeParam>);

    Outcome<Release> released;
    held->async_release(released.callback());
    EXPECT_FALSE(held->held()) << "at the call";
    EXPECT_EQ(released.get().value(), Release::released);
    EXPECT_EQ(this->redis_.exists("key"), false);
}

TYPED_TEST(Async, destructor_posts_the_release) {
    Lock<TypeParam> lock{this->client_, "key"};
    { const Held held = take(lock); }
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("key"); }));
    EXPECT_TRUE(lock.try_lock_for(10s)) << "and the next one has it";
    lock.unlock();
}

TYPED_TEST(Async, waits_for_another_client_in_the_queue) {
    Lock<TypeParam> theirs{this->other_client_, "key"};
    Lock<TypeParam> lock{this->client_, "key"};
    Result<Held> other = theirs.acquire();
    ASSERT_TRUE(other);
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback());
    ASSERT_TRUE(eventually([&] { return lock.inspect().value().waiters == 1; }));
    EXPECT_FALSE(outcome.is_there());
    EXPECT_EQ(other->release().value(), Release::released);
    EXPECT_TRUE(outcome.get());
}

Detached sell(Lock<Simple>& lock, int& coupons, std::atomic<int>& inside, std::atomic<int>& sold,
              std::latch& done) {
    Result<Held> held = co_await lock.async_acquire({.wait = 10min});
    if (held) {
        EXPECT_EQ(++inside, 1);
        if (coupons > 0) {
            --coupons;
            ++sold;
        }
        --inside;
        EXPECT_EQ((co_await held->async_release()).value(), Release::released);
    }
    done.count_down();
}

TEST_F(AsyncTest, fifty_coroutines_sell_fifty_coupons) {
    Lock<Simple> lock{client_, "coupons"};
    int coupons = 40;
    std::atomic<int> inside{0};
    std::atomic<int> sold{0};
    std::latch done{50};
    for (int i = 0; i < 50; ++i) sell(lock, coupons, inside, sold, done);
    done.wait();
    EXPECT_EQ(sold, 40);
    EXPECT_EQ(coupons, 0);
    EXPECT_EQ(redis_.exists("coupons"), false);
}

TEST_F(AsyncTest, threads_and_coroutines_wait_in_one_queue) {
    Lock<Simple> lock{client_, "key"};
    std::mutex mutex;
    std::vector<int> order;
    const auto note = [&](int who) {
        const std::lock_guard guard{mutex};
        order.push_back(who);
    };
    std::optional<Held> first = take(lock);
    Outcome<Held> second;
    lock.async_acquire({}, {}, [&](Result<Held> held) {
        note(2);
        EXPECT_TRUE(held);
    });
    Outcome<LockInfo> seen;
    lock.async_inspect(seen.callback());
    EXPECT_TRUE(seen.get());  // by then the second one stands in the queue
    std::jthread third{[&] {
        EXPECT_TRUE(lock.try_lock_for(60s));
        note(3);
        lock.unlock();
    }};
    ASSERT_TRUE(stays([&] { return order.empty(); }, 50ms));
    std::latch done{1};
    lock.async_acquire({}, {}, [&](Result<Held> held) {
        note(4);
        EXPECT_TRUE(held);
        done.count_down();
    });
    first.reset();
    done.wait();
    third.join();
    EXPECT_EQ(order.front(), 2);
    EXPECT_EQ(order.size(), 3U);
}

TEST_F(AsyncTest, completes_on_the_executor_that_is_given) {
    Lock<Simple> lock{client_, "key"};
    Loop loop;
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback(), &loop);
    EXPECT_TRUE(stays([&] { return !outcome.is_there(); }, 20ms));
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(outcome.thread(), std::this_thread::get_id());
    EXPECT_TRUE(outcome.get());
}

Coroutine acquire_via(Lock<Simple>& lock, Executor& executor, std::optional<Result<Held>>& result,
                      std::stop_token stop = {}) {
    result.emplace(co_await lock.async_acquire({.wait = 60s}, std::move(stop)).via(executor));
}

TEST_F(AsyncTest, coroutine_goes_on_where_it_says) {
    Lock<Simple> lock{client_, "key"};
    Loop loop;
    std::optional<Result<Held>> result;
    const Coroutine coroutine = acquire_via(lock, loop, result);
    ASSERT_TRUE(loop.run_until([&] { return result.has_value(); }));
    EXPECT_TRUE(result->has_value());
}

TEST_F(AsyncTest, completes_on_the_clients_executor) {
    Loop loop;
    Client client{ClientOptions{.uris = {server_.uri()}, .completions = &loop}};
    Lock<Simple> lock{client, "key"};
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback());
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(outcome.thread(), std::this_thread::get_id());
}

TEST_F(AsyncTest, bad_lease_completes_like_all_else) {
    Lock<Simple> lock{client_, "key"};
    Loop loop;
    Outcome<Held> outcome;
    lock.async_acquire({.lease = 1ms}, {}, outcome.callback(), &loop);
    EXPECT_FALSE(outcome.is_there()) << "not inside the call";
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(code_of(outcome.get()), Errc::invalid_argument);
}

TEST_F(AsyncTest, times_out_when_another_client_holds_it) {
    Lock<Simple> theirs{other_client_, "key"};
    const Result<Held> other = theirs.acquire();
    Lock<Simple> lock{client_, "key"};
    Outcome<Held> waited;
    Outcome<Held> tried;
    lock.async_acquire({.wait = 50ms}, {}, waited.callback());
    lock.async_acquire({.wait = Wait::none()}, {}, tried.callback());
    const Errc code = code_of(waited.get());
    EXPECT_TRUE(code == Errc::timed_out || code == Errc::unavailable) << static_cast<int>(code);
    EXPECT_TRUE(times_out([&] { return outcome_of(lock, {.wait = 50ms}); }));
    EXPECT_EQ(code_of(tried.get()), Errc::timed_out);
    EXPECT_TRUE(eventually([&] { return lock.inspect().value().waiters == 0; }));
}

/// The release of an asynchronous hold is only on its way when its `Held` has ended.
TEST(AsyncRelease, is_waited_for_by_a_single_try_of_its_own_client) {
    const RedisServer server;
    Proxy proxy{server.uri()};
    Client client{options_for(proxy.uri(), 10s)};
    Lock<> lock{client, "key"};
    ASSERT_TRUE(lock.try_lock());
    lock.unlock();
    proxy.delay_replies(50ms);
    { const Held held = take(lock); }
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
    { const Held held = take(lock); }
    EXPECT_TRUE(outcome_of(lock, {.wait = Wait::none()}));
}

TEST_F(AsyncTest, stop_ends_the_wait_wherever_it_waits) {
    Lock<Simple> theirs{other_client_, "key"};
    const Result<Held> other = theirs.acquire();
    Lock<Simple> lock{client_, "key"};
    std::stop_source stop;
    Outcome<Held> front;
    Outcome<Held> behind;
    lock.async_acquire({}, stop.get_token(), front.callback());
    lock.async_acquire({}, stop.get_token(), behind.callback());
    ASSERT_TRUE(eventually([&] { return lock.inspect().value().waiters == 1; }));
    stop.request_stop();
    EXPECT_EQ(code_of(front.get()), Errc::cancelled);
    EXPECT_EQ(code_of(behind.get()), Errc::cancelled);
    EXPECT_TRUE(eventually([&] { return lock.inspect().value().waiters == 0; }));

    Outcome<Held> late;
    lock.async_acquire({}, stop.get_token(), late.callback());
    EXPECT_EQ(code_of(late.get()), Errc::cancelled) << "one that was stopped before";
}

TEST_F(AsyncTest, destroyed_coroutine_leaves_nothing_behind) {
    Lock<Simple> lock{client_, "key"};
    Loop loop;
    for (int i = 0; i < 100; ++i) {
        std::optional<Result<Held>> result;
        {
            const Coroutine coroutine = acquire_via(lock, loop, result);
            if (i % 3 == 1) std::this_thread::sleep_for((i % 10) * 50us);
            if (i % 3 == 2) (void)eventually([&] { return redis_.exists("key"); }, 20ms);
        }
        EXPECT_FALSE(result);
    }
    ASSERT_TRUE(loop.run_until([&] { return !redis_.exists("key"); }));
    EXPECT_TRUE(lock.try_lock_for(20s));
    lock.unlock();
}

TEST_F(AsyncTest, destroyed_coroutine_gives_back_what_lies_with_its_executor) {
    Lock<Simple> lock{client_, "key"};
    Loop idle;
    std::optional<Result<Held>> result;
    {
        const Coroutine coroutine = acquire_via(lock, idle, result);
        pollfd entry{.fd = idle.descriptor(), .events = POLLIN, .revents = 0};
        ASSERT_TRUE(eventually([&] { return ::poll(&entry, 1, 5) == 1; }));
        EXPECT_TRUE(redis_.exists("key"));
    }
    EXPECT_TRUE(eventually([&] { return !redis_.exists("key"); })) << "nobody has run the executor";
    idle.run_ready();
    EXPECT_FALSE(result);
}

TEST_F(AsyncTest, destroyed_coroutine_passes_on_what_it_waited_for) {
    Lock<Simple> lock{client_, "key"};
    Loop loop;
    std::optional<Held> holder = take(lock);
    std::optional<Result<Held>> result;
    std::optional<Coroutine> first{acquire_via(lock, loop, result)};
    Outcome<Held> second;
    lock.async_acquire({}, {}, second.callback());
    first.reset();
    holder.reset();
    EXPECT_TRUE(second.get());
    EXPECT_FALSE(result);
}

TEST_F(AsyncTest, handle_may_be_destroyed_meanwhile) {
    Lock<Simple> keeper{client_, "key"};
    std::optional<Held> holder = take(keeper);
    std::optional<Lock<Simple>> lock{std::in_place, client_, "key"};
    Outcome<Held> outcome;
    lock->async_acquire({}, {}, outcome.callback());
    lock.reset();
    EXPECT_TRUE(stays([&] { return !outcome.is_there(); }, 20ms));
    holder.reset();
    EXPECT_TRUE(outcome.get());
}

TEST_F(AsyncTest, closed_client_cancels_what_waits) {
    Lock<Simple> theirs{other_client_, "key"};
    const Result<Held> other = theirs.acquire();
    std::optional<Client> client{std::in_place, patient(server_.uri())};
    Lock<Simple> lock{*client, "key"};
    Outcome<Held> front;
    Outcome<Held> behind;
    lock.async_acquire({}, {}, front.callback());
    lock.async_acquire({}, {}, behind.callback());
    client.reset();
    EXPECT_EQ(code_of(front.get()), Errc::cancelled);
    EXPECT_EQ(code_of(behind.get()), Errc::cancelled);
    Outcome<Held> after;
    lock.async_acquire({}, {}, after.callback());
    EXPECT_EQ(code_of(after.get()), Errc::cancelled);
    EXPECT_EQ(theirs.inspect().value().waiters, 0U);
}

/// A callback that ends the client as it is moved for the `nth` time, on its way into the call that it is given to.
class EndsClient {
public:
    EndsClient(std::optional<Client>& client, int nth, std::function<void(Result<Release>)> told)
        : client_(&client), left_(nth), told_(std::move(told)) {}
    EndsClient(EndsClient&& other) noexcept
        : client_(other.client_), left_(other.left_ - 1), told_(std::move(other.told_)) {
        if (left_ == 0) client_->reset();
    }
    void operator()(Result<Release> outcome) { told_(std::move(outcome)); }

private:
    std::optional<Client>* client_;
    int left_;
    std::function<void(Result<Release>)> told_;
};

TEST_F(AsyncTest, release_that_begins_while_the_client_ends_is_sent) {
    for (int nth = 1; nth <= 3; ++nth) {
        std::optional<Client> client{std::in_place, patient(server_.uri())};
        Lock<Simple> lock{*client, "key", {.lease = 1h}};
        Held held = take(lock);
        Outcome<Release> outcome;
        held.async_release(EndsClient{client, nth, outcome.callback()});
        EXPECT_FALSE(client) << nth;
        static_cast<void>(outcome.get());
        ASSERT_TRUE(eventually([&] { return !redis_.exists("key"); })) << nth;
    }
}

TEST_F(AsyncTest, first_call_completes_once_where_the_client_ends_meanwhile) {
    for (int i = 0; i < 50; ++i) {
        auto client = std::make_unique<Client>(patient(server_.uri()));
        Lock<Simple> lock{*client, "key"};
        Outcome<Held> outcome;
        std::latch both{2};
        std::jthread caller{[&] {
            both.arrive_and_wait();
            lock.async_acquire({}, {}, outcome.callback());
        }};
        both.arrive_and_wait();
        client.reset();
        caller.join();
        const Errc code = code_of(outcome.get());
        EXPECT_TRUE(code == Errc{} || code == Errc::cancelled || code == Errc::lost);
        EXPECT_EQ(outcome.calls(), 1);
    }
}

/// Whether the engine was faster is a matter of luck: the close takes over what is not written then.
TEST_F(AsyncTest, release_that_the_close_takes_over_is_no_error) {
    for (int i = 0; i < 50; ++i) {
        const auto journal = std::make_shared<Journal>();
        ClientOptions options = patient(server_.uri());
        options.observer = journal;
        std::optional<Client> client{std::in_place, std::move(options)};
        std::vector<Held> held;
        for (const char* const key : {"a", "b", "c", "d"}) {
            held.push_back(Lock<Simple>{*client, key}.acquire().value());
        }
        for (Held& one : held) one.async_release([](const Result<Release>&) {});
        client.reset();
        for (const Error& error : journal->errors()) ADD_FAILURE() << error.describe();
        for (const char* const key : {"a", "b", "c", "d"}) EXPECT_FALSE(redis_.exists(key));
    }
}

TEST_F(AsyncTest, success_that_is_not_delivered_is_cancelled_by_the_close) {
    Loop loop;
    std::optional<Client> client{std::in_place, patient(server_.uri())};
    Lock<Watchdog<Simple>> lock{*client, "key"};
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback(), &loop);
    ASSERT_TRUE(eventually([&] { return redis_.exists("key"); }));
    client.reset();
    EXPECT_FALSE(redis_.exists("key")) << "released";
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(code_of(outcome.get()), Errc::cancelled);
}

TEST_F(AsyncTest, destroyed_queue_discards_what_completes) {
    Lock<Simple> lock{client_, "key"};
    Outcome<Held> pending;
    Outcome<Held> waiting;
    {
        Loop loop;
        lock.async_acquire({}, {}, pending.callback(), &loop);
        lock.async_acquire({}, {}, waiting.callback(), &loop);
        ASSERT_TRUE(eventually([&] { return redis_.exists("key"); }));
    }
    EXPECT_TRUE(lock.try_lock_for(20s)) << "nobody keeps it";
    lock.unlock();
    EXPECT_FALSE(pending.is_there());
    EXPECT_FALSE(waiting.is_there());
}

TEST_F(AsyncTest, whose_queue_is_destroyed_gives_its_place_up) {
    Lock<Simple> theirs{other_client_, "key"};
    const Held held = theirs.acquire().value();
    const auto waiters = [&] { return theirs.inspect().value().waiters; };
    Lock<Simple> lock{client_, "key"};
    LockSet<Simple> set{client_, {"key", "other"}};
    {
        Loop loop;
        lock.async_acquire(
            {}, {}, [](const Result<Held>&) { FAIL(); }, &loop);
        ASSERT_TRUE(eventually([&] { return waiters() == 1; }));
    }
    EXPECT_TRUE(eventually([&] { return waiters() == 0; }));
    {
        Loop loop;
        set.async_acquire(
            {}, {}, [](const Result<HeldSet>&) { FAIL(); }, &loop);
        ASSERT_TRUE(eventually([&] { return waiters() == 1; }));
    }
    EXPECT_TRUE(eventually([&] { return waiters() == 0; }));
    EXPECT_TRUE(theirs.held());
}

TEST_F(AsyncTest, callback_of_a_destroyed_queue_is_destroyed_where_it_may_close_the_client) {
    Lock<Simple> theirs{other_client_, "key"};
    std::optional<Result<Held>> other = theirs.acquire();
    ASSERT_TRUE(*other);
    std::atomic<bool> is_closed{false};
    {
        const std::shared_ptr<Client> client{new Client{patient(server_.uri())}, [&](Client* its) {
                                                 delete its;
                                                 is_closed = true;
                                             }};
        Lock<Simple> lock{*client, "key"};
        Loop loop;
        lock.async_acquire(
            {}, {}, [client](const Result<Held>&) { FAIL(); }, &loop);
        ASSERT_TRUE(eventually([&] { return theirs.inspect().value().waiters == 1; }));
    }
    EXPECT_FALSE(is_closed);
    other.reset();
    EXPECT_TRUE(eventually([&] { return is_closed.load(); }));
    EXPECT_TRUE(eventually([&] { return !redis_.exists("key"); }));
}

TEST_F(AsyncTest, min_hold_is_for_what_was_delivered) {
    Loop loop;
    std::optional<Client> client{std::in_place, patient(server_.uri())};
    Lock<Simple> lock{*client, "key", {.min_hold = 1h}};
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback(), &loop);
    ASSERT_TRUE(eventually([&] { return redis_.exists("key"); }));
    client.reset();
    EXPECT_FALSE(redis_.exists("key")) << "nobody has had it";
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(code_of(outcome.get()), Errc::cancelled);

    Lock<Simple> other{other_client_, "key", {.min_hold = 1h}};
    EXPECT_EQ(take(other).release().value(), Release::released);
    EXPECT_GT(redis_.pttl("key"), 3'000'000);
}

TEST_F(AsyncTest, renewal_begins_at_delivery) {
    Lock<Watchdog<Simple>> lock{client_, "key", {.lease = 6s}};
    Loop loop;
    Outcome<Held> late;
    lock.async_acquire({}, {}, late.callback(), &loop);
    ASSERT_TRUE(eventually([&] { return redis_.exists("key"); }));
    ASSERT_TRUE(eventually([&] { return !redis_.exists("key"); })) << "not renewed before";
    ASSERT_TRUE(loop.run_until([&] { return late.is_there(); }));
    EXPECT_EQ(code_of(late.get()), Errc::lost);

    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback(), &loop);
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    Result<Held> held = outcome.get();
    ASSERT_TRUE(held);
    EXPECT_TRUE(is_renewed(*held)) << "since then";
}

TEST_F(AsyncTest, loss_is_told) {
    Lock<Simple> lock{client_, "key", {.lease = 3s}};
    const Held held = take(lock);
    EXPECT_TRUE(fires(held.lost()));
    EXPECT_EQ(held.state(), HoldState::lost);
}

TEST_F(AsyncTest, callback_that_sleeps_holds_up_nobody) {
    Lock<Simple> lock{client_, "key"};
    std::latch free{1};
    std::latch slept{1};
    lock.async_acquire({}, {}, [&](const Result<Held>&) {
        free.wait();
        slept.count_down();
    });
    Lock<Simple> other{client_, "other"};
    for (int i = 0; i < 20; ++i) {
        Held held = take(other);
        Outcome<Release> released;
        held.async_release(released.callback());
        EXPECT_EQ(released.get().value(), Release::released);
    }
    free.count_down();
    slept.wait();
}

TEST_F(AsyncTest, owner_is_the_acquisition) {
    Lock<Reentrant> lock{client_, "key"};
    Held held = take(lock);
    Outcome<Held> second;
    lock.async_acquire({.wait = 30ms}, {}, second.callback());
    EXPECT_EQ(code_of(second.get()), Errc::timed_out) << "no nesting by accident";
    EXPECT_FALSE(lock.held()) << "no thread's";
    EXPECT_FALSE(lock.try_lock());
    EXPECT_EQ(on_another_thread([&] { return held.release().value(); }), Release::released);
}

TEST_F(AsyncTest, nests_by_the_held_alone) {
    Lock<Reentrant> lock{client_, "key"};
    Held outer = take(lock);
    Outcome<Held> nested;
    outer.async_nest(nested.callback());
    Result<Held> inner = nested.get();
    ASSERT_TRUE(inner);
    EXPECT_EQ(lock.inspect().value().hold_count, 2U);
    Outcome<Release> first;
    outer.async_release(first.callback());
    EXPECT_EQ(first.get().value(), Release::still_held);
    EXPECT_EQ(lock.inspect().value().hold_count, 1U);
    Outcome<Release> last;
    inner->async_release(last.callback());
    EXPECT_EQ(last.get().value(), Release::released);

    Outcome<Held> none;
    outer.async_nest(none.callback());
    EXPECT_EQ(code_of(none.get()), Errc::not_held);
    Lock<Simple> simple{client_, "simple"};
    Held held = take(simple);
    Outcome<Held> refused;
    held.async_nest(refused.callback());
    EXPECT_EQ(code_of(refused.get()), Errc::invalid_argument);
}

class AsyncNest : public LockTest {
protected:
    /// Nests, and leaves it to nobody to be told of that.
    void nest_undelivered() {
        outer_.async_nest(nested_.callback(), &loop_);
        ASSERT_TRUE(eventually([&] {
            return redis_.command({"HVALS", "key"}).elements.at(0).text == "2";
        }));
    }
    void release_outer() {
        Outcome<Release> released;
        outer_.async_release(released.callback());
        EXPECT_EQ(released.get().value(), Release::still_held);
    }
    bool is_renewed() {
        return eventually([&] { return redis_.pttl("key") < 5000; }) &&
               eventually([&] { return redis_.pttl("key") > 5100; });
    }

    Lock<Watchdog<Reentrant>> lock_{client_, "key", {.lease = 6s}};
    Held outer_ = take(lock_);
    Loop loop_;
    Outcome<Held> nested_;
};

TEST_F(AsyncNest, that_is_not_delivered_lives_for_one_lease_at_most) {
    nest_undelivered();
    release_outer();
    EXPECT_TRUE(eventually([&] { return !redis_.exists("key"); })) << "nobody renews it";
    ASSERT_TRUE(loop_.run_until([&] { return nested_.is_there(); }));
    EXPECT_EQ(code_of(nested_.get()), Errc::lost);
}

TEST_F(AsyncNest, is_renewed_from_its_delivery_on) {
    nest_undelivered();
    release_outer();
    ASSERT_TRUE(loop_.run_until([&] { return nested_.is_there(); }));
    const auto inner = nested_.get();
    ASSERT_TRUE(inner) << inner.error().describe();
    EXPECT_TRUE(is_renewed());
}

Coroutine nest_in_coroutine(Held& outer, Executor& executor) {
    (void)co_await outer.async_nest().via(executor);
    ADD_FAILURE() << "nobody resumes it";
}

TEST_F(AsyncNest, that_is_never_delivered_is_given_back_once_and_the_outer_hold_goes_on) {
    {
        const Coroutine coroutine = nest_in_coroutine(outer_, loop_);
        ASSERT_TRUE(eventually([&] { return lock_.inspect().value().hold_count == 2; }));
    }
    loop_.run_ready();
    EXPECT_TRUE(eventually([&] { return lock_.inspect().value().hold_count == 1; }));
    EXPECT_TRUE(is_renewed());
    Outcome<Release> released;
    outer_.async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
}

TEST_F(AsyncTest, extends) {
    Lock<Simple> lock{client_, "key", {.lease = 20s}};
    Held held = take(lock);
    Outcome<void> longer;
    held.async_extend(60s, longer.callback());
    EXPECT_TRUE(longer.get());
    EXPECT_GT(held.remaining(), 30s);
    Outcome<void> refused;
    held.async_extend(1ms, refused.callback());
    EXPECT_EQ(code_of(refused.get()), Errc::invalid_argument);
    ASSERT_TRUE(redis_.del("key"));
    Outcome<void> lost;
    held.async_extend(60s, lost.callback());
    EXPECT_EQ(code_of(lost.get()), Errc::lost);
}

TEST(AsyncOverMasters, a_hold_is_extended_and_released_at_a_majority_or_not_at_all) {
    std::array<RedisServer, 3> servers;
    ClientOptions options{.connect_timeout = 10s, .command_timeout = 10s};
    for (const RedisServer& server : servers) options.uris.emplace_back(server.uri());
    options.node_timeout = 10s;
    options.longest_lease = 0ms;  // they have just started
    Client client{options};
    Lock<Simple> lock{client, "key", {.lease = 20s}};
    Held held = lock.acquire().value();
    Outcome<void> extended;
    held.async_extend(60s, extended.callback());
    const bool done = extended.get().has_value();
    const auto prolonged = std::count_if(servers.begin(), servers.end(), [](RedisServer& server) {
        return RawRedis{server}.pttl("key") > 20'000;
    });
    EXPECT_EQ(held.remaining() > 20s, done);
    EXPECT_EQ(prolonged >= 2, done);
    Outcome<Release> release;
    held.async_release(release.callback());
    const bool released = release.get().has_value();
    const auto free = std::count_if(servers.begin(), servers.end(), [](RedisServer& server) {
        return !RawRedis{server}.exists("key");
    });
    EXPECT_EQ(free >= 2, released);
}

TEST_F(AsyncTest, inspects) {
    Lock<Simple> lock{client_, "key"};
    const Held held = take(lock);
    Outcome<LockInfo> seen;
    lock.async_inspect(seen.callback());
    const Result<LockInfo> info = seen.get();
    ASSERT_TRUE(info);
    EXPECT_TRUE(info->locked);
    EXPECT_EQ(info->owner, held.token());
}

TEST_F(AsyncTest, one_without_a_hold_completes_too) {
    Held none;
    Outcome<Release> released;
    none.async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::not_held);
    Outcome<void> extended;
    none.async_extend(10s, extended.callback());
    EXPECT_EQ(code_of(extended.get()), Errc::not_held);
}

TEST_F(AsyncTest, server_that_is_not_there_is_unavailable) {
    Client client{"redis://127.0.0.1:1"};
    Lock<Simple> lock{client, "key"};
    Outcome<Held> outcome;
    lock.async_acquire({.wait = 50ms}, {}, outcome.callback());
    EXPECT_EQ(code_of(outcome.get()), Errc::unavailable);
}

TEST_F(AsyncTest, what_a_callback_returns_is_dropped) {
    Lock<Simple> lock{client_, "key"};
    std::atomic<bool> released{false};
    lock.async_acquire({}, {}, [&](Result<Held> held) {
        Result<Release> outcome = held->release();
        released = true;
        return outcome;
    });
    EXPECT_TRUE(eventually([&] { return released.load(); }));
    EXPECT_FALSE(redis_.exists("key"));
}

TEST_F(AsyncTest, release_that_nobody_awaits_is_on_its_way) {
    Lock<Simple> lock{client_, "key"};
    Held held = take(lock);
    (void)held.async_release();
    EXPECT_TRUE(eventually([&] { return !redis_.exists("key"); }));
}

TEST_F(AsyncTest, acquisition_that_nobody_awaits_does_nothing) {
    Lock<Simple> lock{client_, "key"};
    (void)lock.async_acquire();
    EXPECT_TRUE(stays([&] { return !redis_.exists("key"); }, 50ms));
}

TEST_F(AsyncTest, system_without_a_thread_to_give_is_unavailable) {
    Lock<Simple> lock{client_, "key"};
    Loop loop;
    Outcome<Held> outcome;
    {
        const NoMoreThreads none;
        lock.async_acquire({}, {}, outcome.callback(), &loop);
    }
    ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(code_of(outcome.get()), Errc::unavailable);
    Outcome<Held> later;
    lock.async_acquire({}, {}, later.callback(), &loop);
    ASSERT_TRUE(loop.run_until([&] { return later.is_there(); }));
    EXPECT_TRUE(later.get());
}

TEST_F(AsyncTest, nesting_without_a_thread_to_give_leaves_the_renewal_as_it_was) {
    Lock<Watchdog<Reentrant>> lock{client_, "key", {.lease = 6s}};
    Result<Held> held = lock.acquire({.owner = Owner::hold});
    ASSERT_TRUE(held);
    Loop loop;
    Outcome<Held> inner;
    {
        const NoMoreThreads none;
        held->async_nest(inner.callback(), &loop);
    }
    ASSERT_TRUE(loop.run_until([&] { return inner.is_there(); }));
    EXPECT_EQ(code_of(inner.get()), Errc::unavailable);
    EXPECT_TRUE(is_renewed(*held));
}

Detached await(AsyncResult<Held> acquiring, Outcome<Held>& outcome) {
    outcome.callback()(co_await acquiring);
}

TEST_F(AsyncTest, wait_begins_where_it_is_awaited) {
    Lock<Simple> theirs{other_client_, "key"};
    const Result<Held> other = theirs.acquire();
    Lock<Simple> lock{client_, "key"};
    EXPECT_TRUE(times_out([&] {
        auto acquiring = lock.async_acquire({.wait = 500ms});
        std::this_thread::sleep_for(600ms);
        Outcome<Held> outcome;
        const Stopwatch watch;
        await(std::move(acquiring), outcome);
        auto held = outcome.get();
        EXPECT_GE(watch.elapsed(), 450ms);
        return held;
    }));
}

Detached await(AsyncResult<void> extending, Outcome<void>& outcome) {
    outcome.callback()(co_await extending);
}

TEST_F(AsyncTest, extension_has_its_time_from_where_it_is_awaited) {
    Client client{{.uris = {server_.uri()}, .connect_timeout = 10s, .command_timeout = 4s}};
    Lock<Simple> lock{client, "key"};
    Held held = take(lock);
    auto extending = held.async_extend(60s);
    std::this_thread::sleep_for(4100ms);  // command_timeout, and more
    Outcome<void> outcome;
    await(std::move(extending), outcome);
    EXPECT_TRUE(outcome.get());
    EXPECT_GT(held.remaining(), 30s);
}

TEST_F(AsyncTest, heir_of_a_hold_that_is_just_extended_has_its_own_lease_at_the_server) {
    for (int i = 0; i < 100; ++i) {
        const std::string key = "key " + std::to_string(i);
        Lock<Simple> lock{client_, key, {.lease = 10s}};
        Held first = take(lock);
        Outcome<Held> second;
        lock.async_acquire({}, {}, second.callback());
        std::this_thread::sleep_for(1ms);  // so that it most often waits by now
        Outcome<void> extended;
        Outcome<Release> released;
        first.async_extend(1h, extended.callback());
        const auto under_way = std::chrono::steady_clock::now() + std::chrono::microseconds{i};
        while (std::chrono::steady_clock::now() < under_way) {
        }
        first.async_release(released.callback());
        EXPECT_EQ(released.get().value(), Release::released);
        const Result<Held> held = second.get();
        ASSERT_TRUE(held);
        static_cast<void>(extended.get());
        ASSERT_LE(redis_.pttl(key), 10'000);
    }
}

TEST_F(AsyncTest, held_goes_to_whoever_comes_next_without_a_command) {
    Lock<Simple> lock{client_, "key"};
    std::optional<Held> first = take(lock);
    Outcome<Held> second;
    lock.async_acquire({}, {}, second.callback());
    ASSERT_TRUE(stays([&] { return !second.is_there(); }, 20ms));
    first.reset();
    const Result<Held> held = second.get();
    ASSERT_TRUE(held);
    EXPECT_TRUE(held->held());
    EXPECT_EQ(redis_.get("key"), held->token());
}

TEST_F(AsyncTest, child_leaves_alone_what_its_parent_has_begun) {
    Lock<Simple> lock{client_, "key"};
    Lock<Simple> other{client_, "other"};
    std::optional<Held> holder = take(lock);
    const std::string token = holder->token();
    std::optional<Loop> loop{std::in_place};
    std::optional<Result<Held>> pending;
    std::optional<Coroutine> waiting{acquire_via(lock, *loop, pending)};
    Outcome<Held> completed;
    other.async_acquire({}, {}, completed.callback(), &*loop);
    ASSERT_TRUE(eventually([&] { return redis_.exists("other"); }));

    ChildProcess child{[&](LineChannel& parent) {
        const bool nothing = loop->run_ready() == 0 && !completed.is_there() && !holder->held();
        (void)holder->async_release();
        holder.reset();
        waiting.reset();
        loop.reset();
        Loop own;
        Lock<Simple> mine{client_, "child's"};
        Outcome<Held> outcome;
        mine.async_acquire({.wait = 20s}, {}, outcome.callback(), &own);
        const bool works = own.run_until([&] { return outcome.is_there(); }) && outcome.get();
        parent.write_line(nothing && works ? "ok" : "wrong");
        return 0;
    }};
    EXPECT_EQ(child.read_line(), "ok");
    EXPECT_TRUE(child.wait());

    EXPECT_EQ(redis_.get("key"), token);
    ASSERT_TRUE(loop->run_until([&] { return completed.is_there(); }));
    EXPECT_TRUE(completed.get());
    holder.reset();
    ASSERT_TRUE(loop->run_until([&] { return pending.has_value(); }));
    EXPECT_TRUE(*pending);
}

TEST_F(AsyncTest, thousand_coroutines_pass_the_lock_on) {
    Lock<Simple> lock{client_, "key"};
    int coupons = 1000;
    std::atomic<int> inside{0};
    std::atomic<int> sold{0};
    std::latch done{1000};
    for (int i = 0; i < 1000; ++i) sell(lock, coupons, inside, sold, done);
    done.wait();
    EXPECT_EQ(sold, 1000);
}

TEST_F(AsyncTest, thousands_who_wait_need_no_thread_and_one_place_for_each_name) {
    constexpr std::size_t names = 10;
    constexpr int crowd = 3000;
    std::deque<Lock<Simple>> locks;
    std::vector<Held> theirs;
    for (std::size_t i = 0; i < names; ++i) {
        locks.emplace_back(client_, "job " + std::to_string(i));
        Lock<Simple> lock{other_client_, locks.back().name()};
        theirs.push_back(lock.acquire().value());
    }
    std::atomic<int> had{0};
    const auto wait_for = [&](Lock<Simple>& lock) {
        lock.async_acquire({}, {}, [&](const Result<Held>& held) {
            EXPECT_TRUE(held);
            ++had;
        });
    };
    const auto each_has_one_place = [&] {
        return std::ranges::all_of(
            locks, [](const Lock<Simple>& lock) { return lock.inspect().value().waiters == 1; });
    };
    for (auto& lock : locks) wait_for(lock);
    ASSERT_TRUE(eventually(each_has_one_place));
    Outcome<LockInfo> first;
    locks.front().async_inspect(first.callback());
    EXPECT_TRUE(first.get()) << "what runs completions is there, too";
    const std::size_t threads = running_threads();

    for (std::size_t i = names; i < crowd; ++i) wait_for(locks[i % names]);
    Outcome<LockInfo> last;
    locks.front().async_inspect(last.callback());
    EXPECT_TRUE(last.get());  // by then all of them wait
    EXPECT_TRUE(eventually([&] { return running_threads() <= threads; }));
    EXPECT_TRUE(each_has_one_place());
    EXPECT_EQ(had, 0);

    theirs.clear();
    EXPECT_TRUE(eventually([&] { return had == crowd; }));
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
    EXPECT_EQ(had, crowd);
}

// One who has the lock gives it to the next: no call is made inside another.
TEST_F(AsyncTest, long_chains_of_hand_offs_need_no_stack) {
    constexpr int links = 6000;  // each would need more than a thousandth of a stack
    Lock<Simple> lock{client_, "key"};
    int coupons = links;
    std::atomic<int> inside{0};
    std::atomic<int> sold{0};
    std::latch done{links};
    for (int i = 0; i < links; ++i) sell(lock, coupons, inside, sold, done);
    done.wait();
    EXPECT_EQ(sold, links);
}

TEST_F(AsyncTest, callback_that_throws_ends_the_program) {
    ChildProcess child{[this](LineChannel& parent) {
        Client client{patient(server_.uri())};
        Lock<Simple> lock{client, "key"};
        lock.async_acquire({}, {}, [](const Result<Held>&) { throw std::runtime_error{"thrown"}; });
        parent.read_line();
        return 0;
    }};
    const auto ended = child.wait();
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->signal, SIGABRT);
}

TEST_F(AsyncTest, held_may_be_moved_or_destroyed_while_it_is_extended) {
    Lock<Simple> lock{client_, "key"};
    std::optional<Held> held = take(lock);
    std::deque<Outcome<void>> extended;
    for (int i = 0; i < 20; ++i) {
        held->async_extend(40s, extended.emplace_back().callback());
        Held moved = *std::move(held);
        held.emplace(std::move(moved));
    }
    EXPECT_TRUE(extended.front().get());
    held->async_extend(50s, extended.emplace_back().callback());
    held.reset();
    for (std::size_t i = 1; i < extended.size(); ++i) {
        EXPECT_TRUE(eventually([&] { return extended[i].is_there(); })) << i;
    }
    EXPECT_TRUE(eventually([&] { return !redis_.exists("key"); }));
}

TEST_F(AsyncTest, client_ends_though_a_completion_hangs_on_its_own_thread) {
    std::promise<void> end;
    std::atomic<bool> hangs{false};
    std::optional<Client> client{std::in_place, patient(server_.uri())};
    Lock<Simple> lock{*client, "key"};
    lock.async_acquire({}, {}, [&, ended = end.get_future().share()](const Result<Held>&) {
        hangs = true;
        ended.wait();
    });
    EXPECT_TRUE(eventually([&] { return hangs.load(); }));
    auto ended = in_background([&] { client.reset(); });
    EXPECT_EQ(ended.wait_for(generous_limit), std::future_status::ready);
    end.set_value();
}

// More than is written at a time waits in front of it.
TEST_F(AsyncTest, release_goes_before_what_is_not_written_yet) {
    constexpr int crowd = 8000;
    Lock<Simple> lock{client_, "key"};
    Held held = take(lock);
    server_.freeze();
    std::atomic<int> acquired{0};
    for (int i = 0; i < crowd; ++i) {
        Lock<Simple> other{client_, "other " + std::to_string(i)};
        other.async_acquire({}, {}, [&](const Result<Held>&) { ++acquired; });
    }
    std::atomic<int> before{crowd};
    held.async_release([&](const Result<Release>& released) {
        EXPECT_TRUE(released);
        before = acquired.load();
    });
    server_.thaw();
    ASSERT_TRUE(eventually([&] { return acquired == crowd; }));
    EXPECT_LT(before, crowd / 2);
}

detail::Engine& engine_of(const Client& client) {
    return detail::Access::shared(client)->session().engine();
}

TEST_F(AsyncTest, extension_of_a_hold_that_is_released_meanwhile_finds_nothing_held) {
    Proxy proxy{server_.uri()};
    Client client{patient(proxy.uri())};
    Lock<Simple> lock{client, "key"};
    Result<Held> held = lock.acquire({.owner = Owner::hold});
    ASSERT_TRUE(succeeds(held));
    proxy.hold_requests();  // there will be no link yet
    Outcome<void> extended;
    held->async_extend(60s, extended.callback());
    on_engine(engine_of(client), [] {});  // the extension waits for the link
    Outcome<Release> released;
    held->async_release(released.callback());
    EXPECT_EQ(code_of(extended.get()), Errc::not_held);
    proxy.pass();
    EXPECT_TRUE(is_outcome(released.get(), Release::released));
}

TEST_F(AsyncTest, server_hears_the_counts_of_a_nest_in_the_order_of_the_calls) {
    Lock<Reentrant> lock{client_, "key"};
    Held outer = take(lock);
    Outcome<Held> nested;
    Outcome<Release> released;
    on_engine(engine_of(client_), [&] {  // both are written together
        outer.async_nest(nested.callback());
        outer.async_release(released.callback());
    });
    EXPECT_TRUE(is_outcome(released.get(), Release::still_held));
    const Result<Held> inner = nested.get();
    ASSERT_TRUE(succeeds(inner));
    EXPECT_EQ(lock.inspect().value().hold_count, 1U);
}

/// Keeps the observers' thread from the first release on.
class HangingObserver : public Observer {
public:
    explicit HangingObserver(std::shared_future<void> until) : until_(std::move(until)) {}
    void released(const Released&) override {
        hangs = true;
        until_.wait();
    }

    std::atomic<bool> hangs{false};

private:
    const std::shared_future<void> until_;
};

TEST_F(AsyncTest, observers_completions_and_losses_do_not_wait_for_each_other) {
    std::promise<void> end;
    const auto ended = end.get_future().share();
    const auto observer = std::make_shared<HangingObserver>(ended);
    ClientOptions options = patient(server_.uri());
    options.observer = observer;
    Client client{options};
    Lock<Simple> observed{client, "observed"};
    { const Held held = take(observed); }
    EXPECT_TRUE(eventually([&] { return observer->hangs.load(); }));

    std::atomic<bool> completion_hangs{false};
    Lock<Simple> completed{client, "completed"};
    completed.async_acquire({}, {}, [&, ended](const Result<Held>&) {
        completion_hangs = true;
        ended.wait();
    });
    EXPECT_TRUE(eventually([&] { return completion_hangs.load(); }));

    std::atomic<bool> loss_hangs{false};
    Lock<Simple> first{client, "first"};
    const Held held = take(first);
    const std::stop_callback hang{held.lost(), [&, ended] {
                                      loss_hangs = true;
                                      ended.wait();
                                  }};
    EXPECT_EQ(first.force_unlock(held.token()).value(), Forced::removed);
    EXPECT_TRUE(eventually([&] { return loss_hangs.load(); }));

    Lock<Simple> second{client, "second"};
    const Held next = take(second);
    const std::stop_token lost = next.lost();
    EXPECT_EQ(second.force_unlock(next.token()).value(), Forced::removed);
    EXPECT_TRUE(fires(lost));
    end.set_value();
}

// What became of a thousand commands is not known when the server dies. It is found out with few connections, and
// a command for each.
TEST_F(AsyncTest, thousand_in_doubt_after_a_restart_make_no_storm) {
    constexpr std::size_t crowd = 1000;
    Proxy proxy{server_.uri()};
    Client client{patient(proxy.uri())};
    Lock<Simple> first{client, "first"};
    { const Held held = take(first); }
    ASSERT_TRUE(eventually([&] { return redis_.keys().empty(); }));
    const ProxyCounts before = proxy.counts();

    server_.freeze();
    std::vector<Outcome<Held>> outcomes(crowd);
    std::vector<Held> held;
    for (std::size_t i = 0; i < crowd; ++i) {
        Lock<Simple> lock{client, "job " + std::to_string(i)};
        lock.async_acquire({.wait = 60s}, {}, outcomes[i].callback());
    }
    ASSERT_TRUE(eventually([&] {
        return proxy.counts().request_bytes > before.request_bytes + 50 * crowd;
    })) << "they are on their way";
    server_.kill();
    const Stopwatch down;
    std::this_thread::sleep_for(1s);  // as long as a server takes to come up
    server_.start();
    for (auto& outcome : outcomes) {
        auto acquired = outcome.get();
        ASSERT_TRUE(acquired) << acquired.error().describe();
        held.push_back(*std::move(acquired));
    }
    RawRedis anew{server_};
    EXPECT_EQ(anew.keys().size(), crowd);
    const int connections = proxy.counts().connections - before.connections;
    // While there is no server: one after the other, with pauses.
    EXPECT_LT(connections,
              50 + 100 * std::chrono::ceil<std::chrono::seconds>(down.elapsed()).count());
    EXPECT_LT(anew.command_calls("evalsha"), 2 * static_cast<long long>(crowd))
        << "each asks once more, and few of them twice";
}

class ErrorCount : public Observer {
public:
    void error(const Error&) override { ++errors; }
    std::atomic<std::size_t> errors{0};
};

TEST_F(AsyncTest, thousands_that_wait_while_there_is_no_server_try_less_often) {
    constexpr std::size_t crowd = 5000;
    const auto count = std::make_shared<ErrorCount>();
    ClientOptions options = patient(server_.uri());
    options.observer = count;
    Client client{std::move(options)};
    server_.stop();
    std::vector<Outcome<Held>> outcomes(crowd);
    for (std::size_t i = 0; i < crowd; ++i) {
        Lock<Simple> lock{client, "job " + std::to_string(i)};
        lock.async_acquire({}, {}, outcomes[i].callback());
    }
    ASSERT_TRUE(eventually([&] { return count->errors >= crowd; }));
    const std::size_t before = count->errors;
    const Stopwatch watch;
    ASSERT_TRUE(eventually([&] { return count->errors >= before + 4 * crowd; }));
    // Each pauses for a twentieth of a millisecond or more for each that waits.
    EXPECT_GT(watch.elapsed(), 3 * crowd * 50us);
    server_.start();
    for (auto& outcome : outcomes) ASSERT_TRUE(outcome.get());
}

// ---- A server that says nothing

class AsyncSilence : public LockTest {
protected:
    /// Makes every call there is of three holds and of free locks. Each tells within its bound that nobody answers,
    /// and does so once. What arrives later leaves nothing behind. `unreleased`: what the release says.
    template <class Take>
    void expect_every_call_to_end(Take take_hold, Errc unreleased) {
        Outcome<Held> waited;
        Outcome<Held> tried;
        Outcome<void> extended;
        Outcome<Held> nested;
        Outcome<LockInfo> seen;
        Outcome<Release> released;
        const auto calls = [&] {
            return std::array{waited.calls(), tried.calls(), extended.calls(),
                              nested.calls(), seen.calls(),  released.calls()};
        };
        constexpr std::array once{1, 1, 1, 1, 1, 1};
        Lock<Reentrant> lock{brief_, "free"};
        Lock<Reentrant> other{brief_, "free too"};
        {
            Held extends = take_hold("extends");
            Held nests = take_hold("nests");
            Held releases = take_hold("releases");
            server_.freeze();
            lock.async_acquire({.wait = 150ms}, {}, waited.callback());
            other.async_acquire({.wait = Wait::none()}, {}, tried.callback());
            extends.async_extend(60s, extended.callback());
            nests.async_nest(nested.callback());
            lock.async_inspect(seen.callback());
            releases.async_release(released.callback());
            EXPECT_TRUE(eventually([&] { return calls() == once; }, command_timeout + slack));
            EXPECT_EQ(code_of(waited.get()), Errc::unavailable);
            EXPECT_EQ(code_of(tried.get()), Errc::unavailable);
            EXPECT_EQ(code_of(extended.get()), Errc::unavailable);
            EXPECT_EQ(code_of(nested.get()), Errc::unavailable);
            EXPECT_EQ(code_of(seen.get()), Errc::unavailable);
            const Errc code = code_of(released.get());  // unsent where the machine stood still
            EXPECT_TRUE(code == unreleased || code == Errc::unavailable) << static_cast<int>(code);
            EXPECT_TRUE(extends.held() && nests.held()) << "nobody has said that they are lost";
            EXPECT_FALSE(releases.held());
            server_.thaw();
        }
        EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
        EXPECT_EQ(calls(), once);
    }

    const std::shared_ptr<Journal> journal_ = std::make_shared<Journal>();

    /// Gives a command little time.
    Client brief_{[this] {
        ClientOptions options = options_for(server_.uri());
        options.observer = journal_;
        return options;
    }()};
};

TEST_F(AsyncSilence, ends_every_call_within_its_bound) {
    const auto take_hold = [this](const std::string& name) {
        Lock<Reentrant> lock{brief_, name, {.lease = 60s}};
        return take(lock);
    };
    expect_every_call_to_end(take_hold, Errc::unclear);  // the server may have read it
}

TEST_F(AsyncSilence, ends_every_call_that_would_have_been_a_links_first) {
    const auto take_hold = [this](const std::string& name) {
        Lock<Reentrant> lock{brief_, name, {.lease = 60s}};
        return lock.acquire({.owner = Owner::hold}).value();  // which goes another way
    };
    expect_every_call_to_end(take_hold, Errc::unavailable);
}

TEST_F(AsyncSilence, ends_a_wait_before_the_time_of_a_command_is_over) {
    Lock<Simple> first{client_, "first"};
    Lock<Simple> second{client_, "second"};
    Lock<Simple> third{client_, "third"};
    std::optional<Held> held = take(first);
    server_.freeze();
    Outcome<Held> waited;
    Outcome<Held> stopped;
    std::stop_source stop;
    second.async_acquire({.wait = 150ms}, {}, waited.callback());
    third.async_acquire({}, stop.get_token(), stopped.callback());
    EXPECT_TRUE(eventually([&] { return waited.is_there(); }, 150ms + slack));
    EXPECT_FALSE(stopped.is_there());
    stop.request_stop();
    EXPECT_TRUE(eventually([&] { return stopped.is_there(); }, slack));
    server_.thaw();
    EXPECT_EQ(code_of(waited.get()), Errc::unavailable);
    EXPECT_EQ(code_of(stopped.get()), Errc::cancelled);
    held.reset();
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
    EXPECT_EQ(waited.calls() + stopped.calls(), 2);
}

TEST_F(AsyncSilence, keeps_no_destructor_waiting) {
    Client client{options_for(server_.uri(), 20s)};
    Lock<Simple> lock{client, "one"};
    LockSet<Simple> set{client, {"two", "three"}};
    std::optional<Held> held = take(lock);
    Outcome<HeldSet> both;
    set.async_acquire({}, {}, both.callback());
    std::optional<HeldSet> all = both.get().value();
    server_.freeze();
    const Stopwatch watch;
    held.reset();
    all.reset();
    EXPECT_LT(watch.elapsed(), slack);
    server_.thaw();
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

TEST_F(AsyncSilence, leaves_no_long_lease_behind_a_hold_that_is_destroyed_meanwhile) {
    Lock<Simple> lock{brief_, "key", {.lease = 10min}};
    std::optional<Held> held = take(lock);
    server_.freeze();
    held.reset();
    ASSERT_TRUE(eventually([&] { return journal_->releases().size() == 1; }));
    EXPECT_FALSE(journal_->releases().front());
    std::this_thread::sleep_for(3 * command_timeout);  // until the link is given up, too
    server_.thaw();
    EXPECT_TRUE(eventually([&] { return !redis_.exists("key"); }));
}

TEST_F(AsyncSilence, that_swallows_the_release_leaves_no_long_lease_behind_either) {
    Proxy proxy{server_.uri()};
    ClientOptions options = options_for(proxy.uri());
    options.observer = journal_;
    Client client{options};
    Lock<Simple> lock{client, "key", {.lease = 10min}};
    std::optional<Held> held = take(lock);
    proxy.black_hole();
    held.reset();
    ASSERT_TRUE(eventually([&] { return journal_->releases().size() == 1; }));
    EXPECT_FALSE(journal_->releases().front());
    EXPECT_TRUE(redis_.exists("key"));
    proxy.pass();
    EXPECT_TRUE(eventually([&] { return !redis_.exists("key"); }));
}

}  // namespace
}  // namespace redlatch::test
