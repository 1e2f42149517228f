// Every call returns in time, whatever the server does.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

/// Runs `call` and checks that it was done `bound` after it began, or a little later.
template <class Function>
auto within(std::chrono::milliseconds bound, Function&& call) {
    struct Check {
        std::chrono::milliseconds bound;
        Stopwatch watch{};
        ~Check() { EXPECT_LT(watch.elapsed(), bound + slack); }
    } const check{bound};
    return call();
}

/// What ~Client promises.
constexpr auto client_bound = 3 * command_timeout;

// ------------------------------------------------- a server that is there and does not answer

/// With and without connections from the time when the server still answered.
class FrozenServer : public testing::TestWithParam<bool> {
protected:
    FrozenServer() {
        ClientOptions options = options_for(server.uri());
        options.observer = journal;
        client = std::make_unique<Client>(options);
        const bool keep_a_connection = GetParam();
        if (keep_a_connection) {
            EXPECT_TRUE(eventually([this] { return client->ping().has_value(); }));
        }
    }
    ~FrozenServer() override { server.thaw(); }

    RedisServer server;
    std::shared_ptr<Journal> journal = std::make_shared<Journal>();
    std::unique_ptr<Client> client;
};

INSTANTIATE_TEST_SUITE_P(Connections, FrozenServer, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "kept" : "new"; });

TEST_P(FrozenServer, lock_waits_until_it_thaws) {
    Lock<Simple> lock{*client, "job"};
    server.freeze();
    auto locked = in_background([&] {
        lock.lock();
        return lock.release();
    });
    EXPECT_TRUE(eventually([&] { return journal->errors().size() >= 2; }));
    server.thaw();
    ASSERT_TRUE(finishes(locked));
    EXPECT_TRUE(is_outcome(locked.get(), Release::released));
}

TEST_P(FrozenServer, a_stop_token_ends_an_unlimited_wait) {
    Lock<Simple> lock{*client, "job"};
    server.freeze();
    std::stop_source stop;
    auto acquired = in_background([&] { return lock.acquire({.stop = stop.get_token()}); });
    EXPECT_EQ(acquired.wait_for(100ms), std::future_status::timeout);
    stop.request_stop();
    within(50ms, [&] { ASSERT_TRUE(finishes(acquired)); });
    EXPECT_TRUE(fails_with(acquired.get(), Errc::cancelled));
}

TEST_P(FrozenServer, try_lock_gives_up_after_the_command_timeout) {
    Lock<Simple> lock{*client, "job"};
    server.freeze();
    const auto error = within(
        command_timeout, [&] { return thrown_by([&] { static_cast<void>(lock.try_lock()); }); });
    EXPECT_TRUE(is_error(error, Errc::unavailable));
}

TEST_P(FrozenServer, timed_tries_give_up_at_their_deadline) {
    Lock<Simple> simple{*client, "job"};
    Lock<Reentrant> reentrant{*client, "task"};
    Lock<> watched{*client, "watched"};
    server.freeze();
    const auto error_of = [](auto&& call) {
        return within(150ms, [&] { return thrown_by([&] { static_cast<void>(call()); }); });
    };
    EXPECT_TRUE(is_error(error_of([&] { return simple.try_lock_for(150ms); }), Errc::unavailable));
    EXPECT_TRUE(is_error(
        error_of([&] { return simple.try_lock_until(std::chrono::steady_clock::now() + 150ms); }),
        Errc::unavailable));
    EXPECT_TRUE(
        is_error(error_of([&] { return reentrant.try_lock(150ms, 30s); }), Errc::unavailable));
    EXPECT_TRUE(is_error(error_of([&] { return watched.try_lock_for(150ms); }), Errc::unavailable));
    const auto held = within(150ms, [&] { return simple.acquire({.wait = 150ms}); });
    EXPECT_TRUE(fails_with(held, Errc::unavailable));
    const LockGuard guard = within(150ms, [&] { return LockGuard{reentrant, 150ms}; });
    EXPECT_FALSE(guard);
    EXPECT_EQ(guard.error().code, Errc::unavailable);
}

TEST_P(FrozenServer, calls_that_do_not_wait_give_up_after_the_command_timeout) {
    Lock<Reentrant> lock{*client, "job"};
    server.freeze();
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return client->ping(); }),  //
                           Errc::unavailable));
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.inspect(); }),  //
                           Errc::unavailable));
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.force_unlock(); }),
                           Errc::unavailable));
}

TEST_P(FrozenServer, calls_of_operators_give_up_after_the_command_timeout) {
    Lock<Simple> lock{*client, "job"};
    Semaphore<> semaphore{*client, "pool", 4};
    const auto gives_up = [](auto&& call) {
        return fails_with(within(command_timeout, call), Errc::unavailable);
    };
    server.freeze();
    EXPECT_TRUE(gives_up([&] { return lock.force_unlock("somebody"); }));
    EXPECT_TRUE(gives_up([&] { return semaphore.set_permits(3); }));
    EXPECT_TRUE(gives_up([&] { return semaphore.inspect(); }));
    EXPECT_TRUE(gives_up([&] { return semaphore.force_release("somebody"); }));
}

TEST_P(FrozenServer, adopting_gives_up_after_the_command_timeout) {
    Lock<Simple> lock{*client, "job", {.lease = 60s}};
    const Ticket ticket = [this] {
        Client other{options_for(server.uri(), 10s)};
        return Lock<Simple>{other, "job", {.lease = 60s}}.acquire().value().detach().value();
    }();
    server.freeze();
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.adopt(ticket); }),  //
                           Errc::unavailable));
    EXPECT_FALSE(lock.held());
}

TEST_P(FrozenServer, claims_and_sets_give_up_at_their_deadline_however_patient_commands_are) {
    Client patient{options_for(server.uri(), 20s)};
    EXPECT_TRUE(!GetParam() || succeeds(patient.ping()));
    Lock<Shared> shared{patient, "table"};
    Semaphore<> semaphore{patient, "pool", 4};
    LockSet<Simple> set{patient, {"a", "b"}};
    const auto gives_up = [](auto&& call) {
        return fails_with(within(150ms, call), Errc::unavailable);
    };
    server.freeze();
    EXPECT_TRUE(gives_up([&] { return shared.acquire_shared({.wait = 150ms}); }));
    EXPECT_TRUE(gives_up([&] { return shared.acquire({.wait = 150ms}); }));
    EXPECT_TRUE(gives_up([&] { return semaphore.take({.wait = 150ms}); }));
    EXPECT_TRUE(gives_up([&] { return set.acquire({.wait = 150ms}); }));
    server.thaw();  // the end of a client is as patient
}

TEST_P(FrozenServer, the_thread_behind_a_stuck_one_gives_up_at_its_own_deadline) {
    Lock<Simple> lock{*client, "job"};
    server.freeze();
    std::stop_source stop;
    auto front = in_background([&] { return lock.acquire({.stop = stop.get_token()}); });
    EXPECT_TRUE(eventually([&] { return !journal->errors().empty(); }));
    // Nobody holds the lock: that the other thread is at it too does not make this a contention.
    const auto behind = within(200ms, [&] { return lock.acquire({.wait = 200ms}); });
    EXPECT_TRUE(fails_with(behind, Errc::unavailable));
    const auto at_once = within(0ms, [&] { return lock.acquire({.wait = Wait::none()}); });
    EXPECT_TRUE(fails_with(at_once, Errc::unavailable));
    stop.request_stop();
    EXPECT_TRUE(fails_with(front.get(), Errc::cancelled));
}

TEST_P(FrozenServer, threads_behind_one_that_has_no_answer_yet_meet_a_fault_and_no_contention) {
    // So patient that all waits end while the first one has no answer, on a busy machine too.
    Client patient{options_for(server.uri(), 1500ms)};
    EXPECT_TRUE(!GetParam() || eventually([&] { return patient.ping().has_value(); }));
    Lock<Simple> lock{patient, "job"};
    server.freeze();
    std::vector<std::future<Errc>> tries;
    for (int i = 0; i < 4; ++i) {
        tries.push_back(in_background([&] { return code_of(lock.acquire({.wait = 0ms})); }));
        tries.push_back(in_background([&] { return code_of(lock.acquire({.wait = 300ms})); }));
    }
    for (auto& one : tries) {
        ASSERT_TRUE(finishes(one));
        EXPECT_EQ(one.get(), Errc::unavailable);
    }
}

TEST_P(FrozenServer, closing_the_client_ends_every_wait) {
    Lock<Simple> lock{*client, "job"};
    server.freeze();
    auto front = in_background([&] { return lock.acquire(); });
    EXPECT_TRUE(eventually([&] { return !journal->errors().empty(); }));
    auto behind = in_background([&] { return lock.acquire(); });
    within(client_bound, [&] { client.reset(); });
    within(command_timeout, [&] {
        EXPECT_TRUE(fails_with(front.get(), Errc::cancelled));
        EXPECT_TRUE(fails_with(behind.get(), Errc::cancelled));
    });
}

// --------------------------------------------------- a server that stops while locks are held

class FrozenUnderAHold : public testing::Test {
protected:
    ~FrozenUnderAHold() override { server.thaw(); }

    RedisServer server;
    std::unique_ptr<Client> client = std::make_unique<Client>(options_for(server.uri()));
};

/// It tries to give back what it may have been given, as long as the end of its client lasts.
TEST_F(FrozenUnderAHold, a_call_whose_client_ends_returns_within_its_command_timeout) {
    constexpr auto timeout = 7s;  // twice that is more than it and `slack`
    client = std::make_unique<Client>(options_for(server.uri(), timeout));
    Lock<Simple> lock{*client, "job"};
    ASSERT_TRUE(client->ping());
    server.freeze();
    auto waits = in_background([&] {
        return within(timeout, [&] { return code_of(lock.acquire({.wait = timeout - 100ms})); });
    });
    EXPECT_EQ(waits.wait_for(50ms), std::future_status::timeout);
    client.reset();
    ASSERT_TRUE(finishes(waits));
    EXPECT_NE(waits.get(), Errc{});
}

TEST_F(FrozenUnderAHold, release_gives_up_after_the_command_timeout) {
    Lock<Simple> lock{*client, "job"};
    lock.lock();
    server.freeze();
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.release(); }), Errc::unclear));
    EXPECT_EQ(lock.state(), HoldState::none);
}

TEST_F(FrozenUnderAHold, unlock_returns_after_the_command_timeout) {
    Lock<> lock{*client, "job"};
    lock.lock();
    server.freeze();
    within(command_timeout, [&] { lock.unlock(); });
    EXPECT_EQ(lock.state(), HoldState::none);
}

TEST_F(FrozenUnderAHold, extend_gives_up_and_the_hold_goes_on) {
    Lock<Simple> lock{*client, "job"};
    lock.lock();
    server.freeze();
    EXPECT_TRUE(
        fails_with(within(command_timeout, [&] { return lock.extend(60s); }), Errc::unavailable));
    EXPECT_TRUE(lock.held());
    EXPECT_LE(lock.remaining(), 30s);
}

TEST_F(FrozenUnderAHold, detaching_gives_up_and_leaves_no_hold) {
    Lock<Simple> lock{*client, "job", {.lease = 60s}};
    Held held = lock.acquire().value();
    server.freeze();
    EXPECT_TRUE(
        fails_with(within(command_timeout, [&] { return held.detach(); }), Errc::unavailable));
    EXPECT_FALSE(held.held());
}

TEST_F(FrozenUnderAHold, a_downgrade_gives_up_and_the_hold_goes_on) {
    client = std::make_unique<Client>(options_for(server.uri(), 3s));
    Lock<Shared> lock{*client, "table", {.lease = 60s}};
    Held writer = lock.acquire().value();
    server.freeze();
    EXPECT_TRUE(fails_with(within(3s, [&] { return writer.downgrade(); }), Errc::unavailable));
    EXPECT_TRUE(writer.held());
    server.thaw();
    EXPECT_TRUE(is_outcome(writer.release(), Release::released));
}

TEST_F(FrozenUnderAHold, an_asynchronous_downgrade_gives_up_and_the_hold_goes_on) {
    client = std::make_unique<Client>(options_for(server.uri(), 3s));
    Lock<Shared> lock{*client, "table", {.lease = 60s}};
    Held writer = take(lock);
    server.freeze();
    Outcome<void> outcome;
    EXPECT_TRUE(fails_with(within(3s,
                                  [&] {
                                      writer.async_downgrade(outcome.callback());
                                      return outcome.get();
                                  }),
                           Errc::unavailable));
    EXPECT_TRUE(writer.held());
    server.thaw();
    EXPECT_TRUE(is_outcome(writer.release(), Release::released));
}

TEST_F(FrozenUnderAHold, claims_are_given_back_within_the_command_timeout) {
    Lock<Shared> lock{*client, "table", {.lease = 60s}};
    Semaphore<> semaphore{*client, "pool", 4, {.lease = 60s}};
    Held reader = lock.acquire_shared().value();
    Held permits = semaphore.take({.permits = 2}).value();
    semaphore.acquire();
    server.freeze();
    EXPECT_TRUE(
        fails_with(within(command_timeout, [&] { return reader.extend(50s); }), Errc::unavailable));
    EXPECT_TRUE(reader.held());
    EXPECT_FALSE(within(command_timeout, [&] { return reader.release(); }).has_value());
    EXPECT_FALSE(within(command_timeout, [&] { return permits.release(); }).has_value());
    EXPECT_FALSE(within(command_timeout, [&] { return semaphore.release(); }).has_value());
}

TEST_F(FrozenUnderAHold, a_set_is_extended_and_given_back_within_one_command_timeout) {
    constexpr auto timeout = 3s;  // six of it are far more than `slack`
    client = std::make_unique<Client>(options_for(server.uri(), timeout));
    LockSet<Simple> set{*client, {"a", "b", "c", "d", "e", "f"}, {.lease = 60s}};
    HeldSet held = set.acquire().value();
    server.freeze();
    EXPECT_FALSE(within(timeout, [&] { return held.extend(50s); }).has_value());
    EXPECT_TRUE(held.held());
    EXPECT_FALSE(within(timeout, [&] { return held.release(); }).has_value());
}

/// What its waiters are granted while it closes comes from the proxy, and the server says nothing any more.
TEST_F(FrozenUnderAHold, the_end_of_a_client_takes_no_time_for_each_grant_that_comes_meanwhile) {
    constexpr std::size_t names =
        40;  // as many command timeouts are far more than `client_bound` and `slack`
    client = std::make_unique<Client>(options_for(server.uri(), 10s));
    Proxy proxy{server.uri()};
    RawRedis redis{server};
    auto closing = std::make_unique<Client>(options_for(proxy.uri()));
    std::vector<Held> held;
    std::vector<std::unique_ptr<Lock<Simple>>> locks;
    std::vector<std::future<Errc>> waiting;
    for (std::size_t i = 0; i < names; ++i) {
        const std::string name = "job" + std::to_string(i);
        held.push_back(Lock<Simple>{*client, name}.acquire({.owner = Owner::hold}).value());
        locks.push_back(std::make_unique<Lock<Simple>>(*closing, name));
        waiting.push_back(
            in_background([&lock = *locks.back()] { return code_of(lock.acquire()); }));
    }
    for (std::size_t i = 0; i < names; ++i) {
        const std::string queue = "redlatch:queue:{job" + std::to_string(i) + "}";
        ASSERT_TRUE(eventually([&] { return redis.exists(queue); }));
    }
    proxy.delay_replies(100ms);
    for (Held& one : held) EXPECT_TRUE(one.release());
    server.freeze();
    within(client_bound, [&] { closing.reset(); });
    for (auto& one : waiting) ASSERT_TRUE(finishes(one));
}

TEST_F(FrozenUnderAHold, a_nested_try_gives_up_and_the_outer_hold_goes_on) {
    client = std::make_unique<Client>(options_for(server.uri(), 3s));
    Lock<Reentrant> lock{*client, "job"};
    lock.lock();
    server.freeze();
    const auto error = within(100ms + command_timeout, [&] {
        return thrown_by([&] { static_cast<void>(lock.try_lock_for(100ms)); });
    });
    EXPECT_TRUE(is_error(error, Errc::unavailable));
    EXPECT_TRUE(lock.held());
    server.thaw();
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(FrozenUnderAHold, a_nested_try_returns_by_its_deadline_however_patient_commands_are) {
    Client patient{options_for(server.uri(), 20s)};
    Lock<Reentrant> lock{patient, "job", {.lease = 60s}};
    lock.lock();
    server.freeze();
    const auto error = within(
        100ms, [&] { return thrown_by([&] { static_cast<void>(lock.try_lock_for(100ms)); }); });
    EXPECT_TRUE(is_error(error, Errc::unavailable));
    server.thaw();
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(FrozenUnderAHold, a_nested_lock_ends_with_the_outer_holds_validity) {
    Lock<Reentrant> lock{*client, "job", {.lease = 5s}};
    lock.lock();
    server.freeze();
    const auto error = within(5s, [&] { return thrown_by([&] { lock.lock(); }); });
    EXPECT_TRUE(is_error(error, Errc::lost));
    EXPECT_EQ(lock.state(), HoldState::lost);
}

TEST_F(FrozenUnderAHold, a_nested_lock_ends_with_the_client) {
    Lock<Reentrant> lock{*client, "job", {.lease = 60s}};
    std::atomic<bool> frozen{false};
    auto nested = in_background([&] {
        lock.lock();
        server.freeze();
        frozen = true;
        return thrown_by([&] { lock.lock(); });
    });
    ASSERT_TRUE(eventually([&] { return frozen.load(); }));
    EXPECT_FALSE(finishes(nested, 2 * command_timeout));
    within(client_bound, [&] { client.reset(); });
    ASSERT_TRUE(finishes(nested));
    EXPECT_TRUE(is_error(nested.get(), Errc::cancelled));
}

TEST_F(FrozenUnderAHold, a_nested_release_gives_up_after_the_command_timeout) {
    Lock<Reentrant> lock{*client, "job"};
    lock.lock();
    lock.lock();
    server.freeze();
    EXPECT_TRUE(
        is_outcome(within(command_timeout, [&] { return lock.release(); }), Release::still_held));
    EXPECT_TRUE(lock.held());
}

TEST_F(FrozenUnderAHold, destroying_a_lock_is_bounded_however_deep_it_is_held) {
    std::optional<Lock<Reentrant>> lock{std::in_place, *client, "job"};
    for (int depth = 0; depth < 12; ++depth) lock->lock();
    server.freeze();
    within(command_timeout, [&] { lock.reset(); });
}

TEST_F(FrozenUnderAHold, destroying_a_held_is_bounded) {
    Lock<Simple> lock{*client, "job"};
    std::optional<Held> held = lock.acquire().value();
    server.freeze();
    within(command_timeout, [&] { held.reset(); });
    EXPECT_EQ(lock.state(), HoldState::none);
}

TEST_F(FrozenUnderAHold, destroying_the_client_is_bounded_and_fires_lost) {
    Lock<Simple> simple{*client, "simple"};
    Lock<Watchdog<Reentrant>> watched{*client, "watched"};
    simple.lock();
    watched.lock();
    const auto lost = simple.lost();
    const auto watched_lost = watched.lost();
    server.freeze();
    within(client_bound, [&] { client.reset(); });
    EXPECT_TRUE(lost.stop_requested());
    EXPECT_TRUE(watched_lost.stop_requested());
    EXPECT_FALSE(simple.held());
    EXPECT_FALSE(watched.held());
}

TEST_F(FrozenUnderAHold, destroying_the_client_of_many_locks_is_bounded) {
    std::vector<Held> holds;
    for (int i = 0; i < 200; ++i) {
        Lock<> lock{*client, "job " + std::to_string(i)};
        holds.push_back(lock.acquire().value());
    }
    server.freeze();
    within(client_bound, [&] { client.reset(); });
}

TEST_F(FrozenUnderAHold, destroying_the_client_amid_a_renewal_is_bounded) {
    Lock<> lock{*client, "job", {.lease = 9s}};
    lock.lock();
    server.freeze();
    EXPECT_TRUE(eventually([&] { return lock.state() == HoldState::uncertain; }));
    within(client_bound, [&] { client.reset(); });
    EXPECT_FALSE(lock.held());
}

TEST_F(FrozenUnderAHold, destroying_the_client_waits_for_no_callback_that_hangs) {
    std::promise<void> end;
    Lock<Simple> lock{*client, "job"};
    lock.lock();
    const auto lost = lock.lost();
    const std::stop_callback hang{lost, [ended = end.get_future().share()] { ended.wait(); }};
    within(client_bound, [&] { client.reset(); });
    end.set_value();
}

// -------------------------------------------------------------- no server, and a slow one

TEST(NoServer, a_timed_try_uses_its_time_and_says_unavailable) {
    RedisServer server;
    server.stop();
    Client client{options_for(server.uri())};
    Lock<Simple> lock{client, "job"};
    const Stopwatch watch;
    const auto error = thrown_by([&] { static_cast<void>(lock.try_lock(200ms, 30s)); });
    EXPECT_TRUE(is_error(error, Errc::unavailable));
    EXPECT_GE(watch.elapsed(), 190ms);
    EXPECT_LT(watch.elapsed(), 200ms + slack);
}

TEST(NoServer, every_other_call_says_unavailable_in_time) {
    RedisServer server;
    Client client{options_for(server.uri())};
    Lock<Simple> lock{client, "job"};
    lock.lock();
    server.stop();
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return client.ping(); }),  //
                           Errc::unavailable));
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.inspect(); }),  //
                           Errc::unavailable));
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.force_unlock(); }),
                           Errc::unavailable));
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.extend(60s); }),  //
                           Errc::unavailable));
    EXPECT_FALSE(within(command_timeout, [&] { return lock.release(); }).has_value());
}

class SlowServer : public testing::Test {
protected:
    RedisServer server;
    Proxy proxy{server.uri()};
    RawRedis raw{server};
    Client client{options_for(proxy.uri())};
};

TEST_F(SlowServer, one_byte_a_second_holds_nobody_up) {
    Lock<Simple> lock{client, "job"};
    Lock<Simple> other{client, "other"};
    lock.lock();
    proxy.trickle(1, 1s);
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return client.ping(); }),  //
                           Errc::unavailable));
    EXPECT_TRUE(fails_with(within(300ms, [&] { return other.acquire({.wait = 300ms}); }),
                           Errc::unavailable));
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.inspect(); }),  //
                           Errc::unavailable));
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.extend(60s); }),  //
                           Errc::unavailable));
    // No connection was made in that time, so the release was not even sent.
    EXPECT_TRUE(fails_with(within(command_timeout, [&] { return lock.release(); }),  //
                           Errc::unavailable));
}

TEST_F(SlowServer, one_byte_at_a_time_is_enough_where_time_is_left) {
    Client patient{options_for(proxy.uri(), 60s)};
    Lock<Reentrant> lock{patient, "job"};
    proxy.trickle(1, 1ms);
    ASSERT_TRUE(lock.try_lock_for(60s));
    EXPECT_TRUE(lock.try_lock());
    const auto info = lock.inspect();
    ASSERT_TRUE(succeeds(info));
    EXPECT_EQ(info->hold_count, 2U);
    EXPECT_TRUE(is_outcome(lock.release(), Release::still_held));
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(SlowServer, one_byte_at_a_time_keeps_nobody_from_stopping) {
    Client patient{options_for(proxy.uri(), generous_limit)};
    Lock<Fenced<Shared>> lock{patient, "job"};
    ASSERT_TRUE(succeeds(lock.acquire()));
    proxy.trickle(1, 19ms);  // an answer takes a second
    std::stop_source stop;
    std::jthread stopper{[&] {
        std::this_thread::sleep_for(50ms);
        stop.request_stop();
    }};
    EXPECT_TRUE(fails_with(lock.acquire({.stop = stop.get_token()}), Errc::cancelled));
    proxy.pass();
}

TEST_F(SlowServer, an_answer_that_took_longer_than_the_lease_is_no_lock) {
    Client patient{options_for(proxy.uri(), 10s)};
    Lock<Simple> lock{patient, "job"};
    ASSERT_TRUE(succeeds(patient.ping()));
    proxy.delay(150ms);
    const auto error = thrown_by([&] { static_cast<void>(lock.try_lock(Wait::none(), 100ms)); });
    EXPECT_TRUE(is_error(error, Errc::unavailable));
    EXPECT_FALSE(lock.held());
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
}

TEST_F(SlowServer, farther_away_than_the_last_try_may_wait_says_who_has_the_lock) {
    Client patient{options_for(proxy.uri(), 10s)};
    Lock<Simple> lock{patient, "job"};
    raw.set("job", "theirs");
    proxy.delay(40ms);
    EXPECT_TRUE(times_out([&] { return lock.try_lock_for(2s); }));
    EXPECT_TRUE(times_out([&] { return lock.acquire({.wait = 2s}); }));
}

TEST_F(SlowServer, validity_counts_from_the_send) {
    Client patient{options_for(proxy.uri(), 10s)};
    Lock<Simple> lock{patient, "job"};
    ASSERT_TRUE(succeeds(patient.ping()));
    proxy.delay_replies(500ms);
    ASSERT_TRUE(lock.try_lock(Wait::none(), 5s));
    EXPECT_LE(lock.remaining(), 4500ms);
    const long long at_server = raw.pttl("job");  // asked first: both go down meanwhile
    EXPECT_LE(lock.remaining().count(), at_server);
    proxy.pass();
}

}  // namespace
}  // namespace redlatch::test
