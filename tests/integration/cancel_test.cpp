// A stop token ends a wait soon, wherever the waiter is. The promise is 50 ms, which `CancelInTime` shows; the bound of
// the others allows for slow machines, and the waits would last far longer.

#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/proxy.hpp"
#include "support/waiting_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace redlatch::test {
namespace {

constexpr auto soon = 13s;

/// A call on a thread of its own, and what it comes to.
class Waiter {
public:
    explicit Waiter(std::function<Errc()> call)
        : thread_{[this, call = std::move(call)] { code_ = call(); }} {}

    /// Whether it sleeps in its call; waits for that.
    [[nodiscard]] bool still_waits() {
        thread_.wait_until_asleep();
        return !thread_.done();
    }
    Errc get() {
        thread_.join();
        return code_;
    }

private:
    Errc code_{};
    WaitingThread thread_;
};

template <class Policy>
class Cancel : public LockTest {
protected:
    /// Starts a wait without limit, to be stopped by `stop_`.
    Waiter start_waiting(Lock<Policy>& lock) {
        return Waiter{
            [&lock, token = stop_.get_token()] { return code_of(lock.acquire({.stop = token})); }};
    }

    void expect_cancelled_soon(Waiter& waiter) {
        const Stopwatch watch;
        stop_.request_stop();
        EXPECT_EQ(waiter.get(), Errc::cancelled);
        EXPECT_LT(watch.elapsed(), soon);
    }

    std::stop_source stop_;
};
TYPED_TEST_SUITE(Cancel, AllPolicies);

TYPED_TEST(Cancel, ends_a_wait_behind_another_thread) {
    Lock<TypeParam> lock{this->client_, "job"};
    const Held held = lock.acquire().value();
    Waiter first = this->start_waiting(lock);
    Waiter second = this->start_waiting(lock);
    EXPECT_TRUE(first.still_waits());
    EXPECT_TRUE(second.still_waits());
    this->expect_cancelled_soon(first);
    this->expect_cancelled_soon(second);
    EXPECT_TRUE(held.held());
}

TYPED_TEST(Cancel, ends_the_pause_between_two_tries) {
    Lock<TypeParam> elsewhere{this->other_client_, "job"};
    elsewhere.lock();
    Lock<TypeParam> lock{this->client_, "job", {.backoff = {.min = 30s, .max = 60s}}};
    Waiter waiter = this->start_waiting(lock);
    EXPECT_TRUE(waiter.still_waits());
    this->expect_cancelled_soon(waiter);
    EXPECT_TRUE(elsewhere.held());
}

TYPED_TEST(Cancel, ends_a_wait_for_the_answer_of_a_frozen_server) {
    Client client{{.uris = {this->server_.uri()}, .connect_timeout = 30s, .command_timeout = 30s}};
    Lock<TypeParam> lock{client, "job"};
    { const std::lock_guard guard{lock}; }  // it is connected
    this->server_.freeze();
    Waiter waiter = this->start_waiting(lock);
    EXPECT_TRUE(waiter.still_waits());
    this->expect_cancelled_soon(waiter);
    this->server_.thaw();
}

TYPED_TEST(Cancel, ends_connecting_to_a_frozen_server) {
    Client client{{.uris = {this->server_.uri()}, .connect_timeout = 30s, .command_timeout = 30s}};
    Lock<TypeParam> lock{client, "job"};
    this->server_.freeze();
    Waiter waiter = this->start_waiting(lock);
    EXPECT_TRUE(waiter.still_waits());
    this->expect_cancelled_soon(waiter);
    this->server_.thaw();
}

TYPED_TEST(Cancel, ends_a_wait_for_a_server_that_is_not_there) {
    Lock<TypeParam> lock{this->client_, "job"};
    this->server_.stop();
    Waiter waiter = this->start_waiting(lock);
    EXPECT_TRUE(waiter.still_waits());
    this->expect_cancelled_soon(waiter);
}

TYPED_TEST(Cancel, ends_a_wait_for_a_connection_of_the_pool) {
    Client client{{.uris = {this->server_.uri()},
                   .connect_timeout = 30s,
                   .command_timeout = 30s,
                   .max_connections = 1}};
    Lock<TypeParam> lock{client, "job"};
    ASSERT_TRUE(client.ping());
    this->server_.freeze();
    Waiter occupant{[&] { return code_of(client.ping()); }};
    EXPECT_TRUE(occupant.still_waits());
    Waiter waiter = this->start_waiting(lock);
    EXPECT_TRUE(waiter.still_waits());
    this->expect_cancelled_soon(waiter);
    this->server_.thaw();
    EXPECT_EQ(occupant.get(), Errc{});
}

TYPED_TEST(Cancel, after_the_server_gave_the_lock_leaves_nothing_behind) {
    Proxy proxy{this->server_.uri()};
    Client client{{.uris = {proxy.uri()}, .connect_timeout = 30s, .command_timeout = 30s}};
    Lock<TypeParam> lock{client, "job", {.lease = 60s}};
    { const std::lock_guard guard{lock}; }  // the server knows the scripts
    proxy.hold_replies();
    Waiter waiter = this->start_waiting(lock);
    EXPECT_TRUE(eventually([&] { return this->redis_.exists("job"); }));
    this->expect_cancelled_soon(waiter);
    proxy.pass();
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); }));
    EXPECT_TRUE(lock.try_lock_for(generous_limit));
}

TYPED_TEST(Cancel, asked_for_before_takes_nothing) {
    Lock<TypeParam> lock{this->client_, "job"};
    this->stop_.request_stop();
    EXPECT_EQ(code_of(lock.acquire({.stop = this->stop_.get_token()})), Errc::cancelled);
    EXPECT_EQ(code_of(lock.acquire({.wait = Wait::none(), .stop = this->stop_.get_token()})),
              Errc::cancelled);
    EXPECT_TRUE(this->redis_.keys().empty());
    EXPECT_FALSE(lock.held());
}

TYPED_TEST(Cancel, tells_the_key_and_the_fault_on_the_way) {
    const auto journal = std::make_shared<Journal>();
    ClientOptions options = patient(this->server_.uri());
    options.observer = journal;
    Client client{options};
    Lock<TypeParam> lock{client, "job"};
    this->server_.stop();
    auto waiter =
        in_background([&] { return lock.acquire({.stop = this->stop_.get_token()}).error(); });
    EXPECT_TRUE(eventually([&] { return !journal->errors().empty(); }));
    this->stop_.request_stop();
    const Error error = waiter.get();
    EXPECT_EQ(error.code, Errc::cancelled);
    EXPECT_EQ(error.key, "job");
    ASSERT_EQ(error.causes.size(), 1U);
    EXPECT_EQ(error.causes.front().code, Errc::unavailable);
}

TYPED_TEST(Cancel, of_one_waiter_is_nothing_to_the_others) {
    Lock<TypeParam> lock{this->client_, "job"};
    Held held = lock.acquire().value();
    Waiter before{[&] { return code_of(lock.acquire()); }};
    EXPECT_TRUE(before.still_waits());
    Waiter waiter = this->start_waiting(lock);
    EXPECT_TRUE(waiter.still_waits());
    Waiter behind{[&] { return code_of(lock.acquire()); }};
    EXPECT_TRUE(behind.still_waits());
    this->expect_cancelled_soon(waiter);
    EXPECT_EQ(held.release().value(), Release::released);
    EXPECT_EQ(before.get(), Errc{});
    EXPECT_EQ(behind.get(), Errc{});
}

TYPED_TEST(Cancel, of_the_contending_waiter_lets_the_next_one_contend) {
    Lock<TypeParam> elsewhere{this->other_client_, "job"};
    Held held = elsewhere.acquire().value();
    Lock<TypeParam> lock{this->client_, "job"};
    Waiter waiter = this->start_waiting(lock);
    EXPECT_TRUE(waiter.still_waits());
    Waiter behind{[&] { return code_of(lock.acquire()); }};
    EXPECT_TRUE(behind.still_waits());
    this->expect_cancelled_soon(waiter);
    EXPECT_TRUE(behind.still_waits());
    EXPECT_EQ(held.release().value(), Release::released);
    EXPECT_EQ(behind.get(), Errc{});
}

TYPED_TEST(Cancel, after_the_acquisition_does_nothing) {
    Lock<TypeParam> lock{this->client_, "job"};
    const Held held = lock.acquire({.stop = this->stop_.get_token()}).value();
    this->stop_.request_stop();
    EXPECT_TRUE(held.held());
    EXPECT_FALSE(held.lost().stop_requested());
    EXPECT_TRUE(this->redis_.exists("job"));
}

TYPED_TEST(Cancel, of_many_waits_at_once) {
    Lock<TypeParam> elsewhere{this->other_client_, "job"};
    const std::lock_guard guard{elsewhere};
    Lock<TypeParam> lock{this->client_, "job"};
    std::deque<Waiter> waiters;
    for (int i = 0; i < 16; ++i) {
        waiters.emplace_back(
            [&] { return code_of(lock.acquire({.stop = this->stop_.get_token()})); });
    }
    for (Waiter& waiter : waiters) EXPECT_TRUE(waiter.still_waits());
    for (auto& waiter : waiters) this->expect_cancelled_soon(waiter);
}

/// A stop ends a wait within 50 ms. A busy machine may be late, but not always.
class CancelInTime : public LockTest {
protected:
    /// Whether some stops in a row end such a wait in time.
    [[nodiscard]] static bool ends_in_time(
        const std::function<Errc(const std::stop_token&)>& wait) {
        constexpr int enough = 5;
        int in_row = 0;
        return eventually([&] {
            std::stop_source stop;
            Waiter waiter{[&] { return wait(stop.get_token()); }};
            EXPECT_TRUE(waiter.still_waits());
            std::this_thread::sleep_for(in_row * 37ms);  // how it waits changes with time
            const Stopwatch watch;
            stop.request_stop();
            EXPECT_EQ(waiter.get(), Errc::cancelled);
            in_row = watch.elapsed() < 50ms ? in_row + 1 : 0;
            return in_row == enough;
        });
    }
};

TEST_F(CancelInTime, of_a_wait_behind_another_thread) {
    Lock<> lock{client_, "job"};
    const Held held = lock.acquire({.owner = Owner::hold}).value();
    EXPECT_TRUE(ends_in_time(
        [&](const std::stop_token& stop) { return code_of(lock.acquire({.stop = stop})); }));
}

TEST_F(CancelInTime, of_a_wait_in_the_queue) {
    Lock<> elsewhere{other_client_, "job"};
    const std::lock_guard guard{elsewhere};
    Lock<> lock{client_, "job"};
    EXPECT_TRUE(ends_in_time(
        [&](const std::stop_token& stop) { return code_of(lock.acquire({.stop = stop})); }));
}

TEST_F(CancelInTime, of_a_wait_for_a_frozen_server) {
    Client client{{.uris = {server_.uri()}, .connect_timeout = 30s, .command_timeout = 30s}};
    Lock<> lock{client, "job"};
    ASSERT_TRUE(client.ping());
    server_.freeze();
    EXPECT_TRUE(ends_in_time(
        [&](const std::stop_token& stop) { return code_of(lock.acquire({.stop = stop})); }));
    server_.thaw();
}

TEST_F(CancelInTime, of_a_wait_for_a_server_that_is_not_there) {
    Lock<> lock{client_, "job", {.backoff = {.min = 30s, .max = 60s}}};
    server_.stop();
    EXPECT_TRUE(ends_in_time(
        [&](const std::stop_token& stop) { return code_of(lock.acquire({.stop = stop})); }));
}

TEST_F(CancelInTime, of_a_wait_for_permits) {
    Semaphore<> elsewhere{other_client_, "gpus", 1};
    const Held taken = elsewhere.take().value();
    Semaphore<> semaphore{client_, "gpus", 1};
    EXPECT_TRUE(ends_in_time(
        [&](const std::stop_token& stop) { return code_of(semaphore.take({.stop = stop})); }));
}

using CancelByThread = LockTest;

TEST_F(CancelByThread, jthread_ends_its_own_wait) {
    Lock<> elsewhere{other_client_, "job"};
    const std::lock_guard guard{elsewhere};
    Lock<> lock{client_, "job"};
    std::atomic<bool> waiting{false};
    std::atomic<bool> cancelled{false};
    const Stopwatch watch;
    {
        const std::jthread worker{[&](const std::stop_token& stop) {
            waiting = true;
            cancelled = code_of(lock.acquire({.stop = stop})) == Errc::cancelled;
        }};
        ASSERT_TRUE(eventually([&] { return waiting.load(); }));
    }
    EXPECT_TRUE(cancelled);
    EXPECT_LT(watch.elapsed(), generous_limit);
}

TEST_F(CancelByThread, a_lost_lock_can_cancel_the_wait_for_the_next) {
    Lock<> outer{client_, "outer", {.lease = 300ms}};
    Lock<> elsewhere{other_client_, "inner"};
    const std::lock_guard guard{elsewhere};
    Lock<> inner{client_, "inner"};
    const Held held = outer.acquire().value();
    auto waiter = in_background([&] { return code_of(inner.acquire({.stop = held.lost()})); });
    redis_.del("outer");
    EXPECT_EQ(waiter.get(), Errc::cancelled);
}

/// Handles may outlive their client.
class ClosedClient : public LockTest, public ::testing::WithParamInterface<Connections> {};

TEST_P(ClosedClient, sends_nothing_any_more) {
    std::optional<Client> client{ClientOptions{.uris = {server_.uri()}, .connections = GetParam()}};
    Lock<Simple> lock{*client, "job"};
    Semaphore<> semaphore{*client, "pool", 3};
    const Ticket ticket = Lock<Simple>{other_client_, "job"}.acquire()->detach().value();
    client.reset();
    const auto scripts = [&] {
        return redis_.command_calls("eval") + redis_.command_calls("evalsha");
    };
    const auto before = scripts();
    EXPECT_EQ(code_of(lock.acquire({.wait = Wait::none()})), Errc::cancelled);
    EXPECT_EQ(code_of(lock.inspect()), Errc::cancelled);
    EXPECT_EQ(code_of(lock.adopt(ticket)), Errc::cancelled);
    EXPECT_EQ(code_of(lock.force_unlock()), Errc::cancelled);
    EXPECT_EQ(code_of(lock.force_unlock("owner")), Errc::cancelled);
    EXPECT_EQ(code_of(semaphore.inspect()), Errc::cancelled);
    EXPECT_EQ(code_of(semaphore.set_permits(2)), Errc::cancelled);
    EXPECT_EQ(code_of(semaphore.force_release("owner")), Errc::cancelled);
    EXPECT_EQ(lock.inspect().error().key, "job");
    EXPECT_EQ(scripts(), before);
    EXPECT_TRUE(Lock<Simple>(other_client_, "job").adopt(ticket)) << "it can still be used";
}

TEST_P(ClosedClient, tells_a_nested_call_of_its_end_and_of_no_loss) {
    Proxy proxy{server_.uri()};
    std::optional<Client> client{ClientOptions{
        .uris = {proxy.uri()}, .command_timeout = generous_limit, .connections = GetParam()}};
    Lock<Reentrant> lock{*client, "job"};
    std::promise<std::stop_token> outer;
    auto nested = in_background([&] {
        lock.lock();
        lock.lock();  // from now on the server knows the script
        lock.unlock();
        proxy.hold_replies();
        outer.set_value(lock.lost());
        return code_of(lock.acquire());
    });
    const std::stop_token lost = outer.get_future().get();
    ASSERT_TRUE(eventually([&] {
        const auto fields = redis_.hgetall("job");
        return fields.size() == 1 && fields.begin()->second == "2";
    }));
    auto end = in_background([&] { client.reset(); });
    ASSERT_TRUE(eventually([&] { return lost.stop_requested(); }));
    proxy.pass();
    EXPECT_EQ(nested.get(), Errc::cancelled);
    end.get();
}

TEST(CancelledThread, in_a_nested_call_leaves_the_outer_hold_to_its_own_end) {
#if defined(REDLATCH_TEST_TSAN)
    GTEST_SKIP() << "the sanitizer loses count of what a cancelled thread unwinds";
#endif
    RedisServer server;
    RawRedis redis{server};
    Proxy proxy{server.uri()};
    Client client{{.uris = {proxy.uri()}, .command_timeout = generous_limit}};
    Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 5min}};
    std::promise<::pthread_t> outer;
    std::thread thread{[&] {
        const std::lock_guard scope{lock};
        lock.lock();  // from now on the server knows the script
        lock.unlock();
        proxy.hold_replies();
        outer.set_value(::pthread_self());
        lock.lock();
        ADD_FAILURE() << "it was not cancelled";
        lock.unlock();
    }};
    const ::pthread_t id = outer.get_future().get();
    EXPECT_TRUE(eventually([&] {
        const auto fields = redis.hgetall("job");
        return fields.size() == 1 && fields.begin()->second == "2";
    }));
    ::pthread_cancel(id);
    proxy.pass();
    thread.join();
    EXPECT_FALSE(redis.exists("job"));
}

TEST(CancelledThread, gives_the_place_of_its_connection_back) {
#if defined(REDLATCH_TEST_TSAN)
    GTEST_SKIP() << "the sanitizer loses count of what a cancelled thread unwinds";
#endif
    RedisServer server;
    Client client{{.uris = {server.uri()}, .command_timeout = 5s, .max_connections = 1}};
    client.ping().value();
    std::thread thread{[&] {
        Lock<Simple> lock{client, "job"};
        ::pthread_cancel(::pthread_self());
        static_cast<void>(lock.try_lock());
        ADD_FAILURE() << "it was not cancelled";
    }};
    thread.join();
    EXPECT_TRUE(succeeds(client.ping()));
}

TEST(CancelledThread, ends_behind_a_factory_of_the_user_s_and_not_within) {
#if defined(REDLATCH_TEST_TSAN)
    GTEST_SKIP() << "the sanitizer loses count of what a cancelled thread unwinds";
#endif
    std::atomic<bool> has_begun{false};
    std::atomic<bool> may_end{false};
    std::atomic<bool> has_ended{false};
    Client client{{.factories = {{.connect = [&](std::chrono::milliseconds) -> redisContext* {
                       has_begun = true;
                       while (!may_end) std::this_thread::sleep_for(1ms);
                       has_ended = true;
                       return nullptr;
                   }}}}};
    std::thread thread{[&] {
        Lock<Simple> lock{client, "job"};
        lock.lock();
        ADD_FAILURE() << "it was not cancelled";
    }};
    EXPECT_TRUE(eventually([&] { return has_begun.load(); }));
    ::pthread_cancel(thread.native_handle());
    may_end = true;
    thread.join();
    EXPECT_TRUE(has_ended);
}

INSTANTIATE_TEST_SUITE_P(Connections, ClosedClient,
                         ::testing::Values(Connections::pooled, Connections::shared));

}  // namespace
}  // namespace redlatch::test
