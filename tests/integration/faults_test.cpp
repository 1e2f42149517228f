// Servers that come and go, and answers that get lost on the way.

#include "fault_tools.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

/// One plain SET of an acquisition; "CLIENT SETNAME" contains "SET" too.
constexpr auto plain_set = "\r\nNX\r\n";
constexpr auto script_call = "EVALSHA";

// -------------------------------------------------------------------- servers that come and go

TEST(Outage, lock_waits_through_a_stopped_server) {
    RedisServer server;
    auto journal = std::make_shared<Journal>();
    ClientOptions options = options_for(server.uri(), 10s);
    options.observer = journal;
    Client client{options};
    Lock<Simple> lock{client, "job"};
    server.stop();

    auto locked = in_background([&] {
        lock.lock();
        return lock.release();
    });
    EXPECT_TRUE(eventually([&] { return journal->errors().size() >= 2; }));
    server.start();
    ASSERT_TRUE(finishes(locked));
    EXPECT_TRUE(is_outcome(locked.get(), Release::released));
    EXPECT_TRUE(eventually([&] { return journal->reconnects() == 1; }));
}

TEST(Outage, a_waiter_goes_on_behind_a_holder_that_outlived_a_restart) {
    RedisServer server{{.append_only = true}};
    Client holding{options_for(server.uri(), 10s)};
    Client waiting{options_for(server.uri(), 10s)};
    Lock<Simple> held{holding, "job"};
    Lock<Simple> wanted{waiting, "job"};
    held.lock();

    auto locked = in_background([&] {
        wanted.lock();
        return wanted.release();
    });
    server.restart();
    EXPECT_EQ(locked.wait_for(200ms), std::future_status::timeout);
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(locked));
    EXPECT_TRUE(is_outcome(locked.get(), Release::released));
}

TEST(Outage, a_holder_learns_that_a_restart_lost_its_lock) {
    RedisServer server;
    Client client{options_for(server.uri(), 10s)};
    Lock<Watchdog<Simple>> lock{client, "job", {.lease = 3s}};
    lock.lock();
    const auto lost = lock.lost();
    const Stopwatch watch;
    server.restart();

    EXPECT_TRUE(eventually([&] { return lost.stop_requested(); }));
    EXPECT_LT(watch.elapsed(), 3s + 10s);
    EXPECT_EQ(lock.state(), HoldState::lost);
    EXPECT_FALSE(lock.held());
    EXPECT_TRUE(is_outcome(lock.release(), Release::expired));
    EXPECT_TRUE(lock.try_lock());
}

TEST(Outage, a_hold_outlives_a_restart_that_kept_its_key) {
    RedisServer server{{.append_only = true}};
    auto journal = std::make_shared<Journal>();
    ClientOptions options = options_for(server.uri(), 10s);
    options.observer = journal;
    Client client{options};
    Lock<Watchdog<Reentrant>> lock{
        client, "job", {.lease = 15s}};  // the first renewal comes behind that
    lock.lock();
    server.restart();

    const int before = journal->renewals();
    EXPECT_TRUE(eventually([&] { return journal->renewals() > before; }));
    EXPECT_EQ(lock.state(), HoldState::held);
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    EXPECT_EQ(journal->errors().size(), 0U);
}

TEST(Outage, an_unanswered_renewal_makes_a_hold_uncertain_not_lost) {
    RedisServer server;
    Client client{options_for(server.uri(), 2s)};
    Lock<Watchdog<Simple>> lock{client, "job", {.lease = 15s}};
    lock.lock();
    const auto lost = lock.lost();
    server.freeze();
    EXPECT_TRUE(eventually([&] { return lock.state() == HoldState::uncertain; }));
    EXPECT_TRUE(lock.held());
    server.thaw();
    EXPECT_TRUE(eventually([&] { return lock.state() == HoldState::held; }));
    EXPECT_FALSE(lost.stop_requested());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

template <class Policy>
class LossWithoutAServer : public testing::Test {};
using Kinds = testing::Types<Simple, Reentrant, Watchdog<Simple>>;
TYPED_TEST_SUITE(LossWithoutAServer, Kinds);

TYPED_TEST(LossWithoutAServer, is_told_by_the_end_of_validity) {
    RedisServer server;
    Client client{options_for(server.uri(), 10s)};
    Lock<TypeParam> lock{client, "job", {.lease = 5s}};
    lock.lock();
    const auto lost = lock.lost();
    const Stopwatch watch;
    server.stop();
    EXPECT_FALSE(lost.stop_requested());
    EXPECT_TRUE(eventually([&] { return lost.stop_requested(); }));
    EXPECT_LT(watch.elapsed(), 5s + 10s);
    EXPECT_FALSE(lock.held());
    EXPECT_TRUE(is_outcome(lock.release(), Release::expired));
}

TEST(Outage, flushall_and_script_flush_while_held_are_noticed) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    Lock<Reentrant> lock{client, "job"};
    lock.lock();
    raw.script_flush();
    EXPECT_TRUE(succeeds(lock.extend(30s)));
    raw.flushall();
    EXPECT_TRUE(fails_with(lock.extend(30s), Errc::lost));
    EXPECT_TRUE(is_outcome(lock.release(), Release::expired));
}

// ------------------------------------------------------------------- answers that get lost

class LostReply : public testing::Test {
protected:
    ClientOptions through_proxy() {
        ClientOptions options = options_for(proxy.uri(), 5s);
        options.observer = journal;
        return options;
    }

    /// Makes the server know the scripts of a policy, so that none is sent whole below.
    template <class Policy>
    void warm_up() {
        Lock<Policy> lock{client, "warm-up"};
        lock.lock();
        ASSERT_TRUE(succeeds(lock.extend(30s)));
        if constexpr (Policy::reentrant) {
            lock.lock();
            lock.unlock();
        }
        lock.unlock();
    }

    void expect_dropped(int count) { EXPECT_EQ(proxy.counts().dropped_replies, count); }

    RedisServer server;
    Proxy proxy{server.uri()};
    RawRedis raw{server};
    std::shared_ptr<Journal> journal = std::make_shared<Journal>();
    Client client{through_proxy()};
};

TEST_F(LostReply, of_a_plain_set_leaves_the_lock_held_once) {
    Lock<Simple> lock{client, "job"};
    proxy.drop_replies_once(1, plain_set);
    auto held = lock.acquire({.wait = 10s});
    ASSERT_TRUE(succeeds(held));
    expect_dropped(1);
    EXPECT_EQ(raw.get("job"), held->token());
    EXPECT_FALSE(lock.try_lock());
    EXPECT_TRUE(is_outcome(held->release(), Release::released));
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(LostReply, of_a_plain_set_on_a_used_connection_is_resolved_in_silence) {
    warm_up<Simple>();
    Lock<Simple> lock{client, "job"};
    proxy.drop_replies_once(1, plain_set);
    ASSERT_TRUE(lock.try_lock());
    expect_dropped(1);
    EXPECT_EQ(journal->errors().size(), 0U);
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(LostReply, of_an_acquire_script_counts_the_hold_once) {
    warm_up<Reentrant>();
    Lock<Reentrant> lock{client, "job"};
    proxy.drop_replies_once(2, script_call);
    auto held = lock.acquire({.wait = 10s});
    ASSERT_TRUE(succeeds(held));
    expect_dropped(2);
    EXPECT_EQ(raw.hgetall("job"), (std::map<std::string, std::string>{{held->token(), "1"}}));
    EXPECT_TRUE(is_outcome(held->release(), Release::released));
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(LostReply, of_a_nested_acquire_counts_it_once) {
    warm_up<Reentrant>();
    Lock<Reentrant> lock{client, "job"};
    auto outer = lock.acquire();
    ASSERT_TRUE(succeeds(outer));
    proxy.drop_replies_once(2, script_call);
    auto inner = lock.acquire({.wait = 10s});
    ASSERT_TRUE(succeeds(inner));
    expect_dropped(2);
    EXPECT_EQ(raw.hgetall("job"), (std::map<std::string, std::string>{{outer->token(), "2"}}));
    EXPECT_TRUE(is_outcome(inner->release(), Release::still_held));
    EXPECT_TRUE(is_outcome(outer->release(), Release::released));
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(LostReply, of_a_nested_release_counts_it_once) {
    warm_up<Reentrant>();
    Lock<Reentrant> lock{client, "job"};
    lock.lock();
    lock.lock();
    lock.lock();
    proxy.drop_replies_once(1, script_call);
    EXPECT_TRUE(is_outcome(lock.release(), Release::still_held));
    expect_dropped(1);
    EXPECT_EQ(raw.hgetall("job").begin()->second, "2");
    EXPECT_TRUE(lock.held());
    EXPECT_TRUE(is_outcome(lock.release(), Release::still_held));
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(LostReply, of_an_extension_extends) {
    warm_up<Simple>();
    Lock<Simple> lock{client, "job", {.lease = 20s}};
    lock.lock();
    proxy.drop_replies_once(1, script_call);
    EXPECT_TRUE(succeeds(lock.extend(100s)));
    expect_dropped(1);
    EXPECT_GT(lock.remaining(), 60s);
    EXPECT_GT(raw.pttl("job"), 60'000);
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(LostReply, of_a_renewal_loses_nothing) {
    warm_up<Simple>();
    Lock<Watchdog<Simple>> lock{client, "job", {.lease = 6s}};
    lock.lock();
    proxy.drop_replies_once(1, script_call);
    EXPECT_TRUE(eventually([&] { return proxy.counts().dropped_replies == 1; }));
    EXPECT_TRUE(eventually([&] { return journal->renewals() >= 1; }));
    EXPECT_EQ(lock.state(), HoldState::held);
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(LostReply, of_a_release_releases) {
    for (const int drops : {1, 2, 3}) {
        warm_up<Simple>();
        Lock<Simple> lock{client, "job"};
        lock.lock();
        const int before = proxy.counts().dropped_replies;
        proxy.drop_replies_once(drops, script_call);
        EXPECT_TRUE(is_outcome(lock.release(), Release::released));
        expect_dropped(before + drops);
        EXPECT_FALSE(raw.exists("job"));
        EXPECT_FALSE(lock.held());
    }
}

TEST_F(LostReply, while_the_client_closes_leaves_no_lock) {
    std::optional<Client> closing{through_proxy()};
    Lock<Simple> lock{*closing, "job"};
    lock.lock();
    ASSERT_TRUE(raw.exists("job"));
    proxy.drop_replies_once(1, "INFO");  // what a new connection asks first
    closing.reset();
    expect_dropped(1);
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(LostReply, of_a_release_never_frees_the_next_owners_lock) {
    warm_up<Simple>();
    Lock<Simple> lock{client, "job"};
    lock.lock();
    proxy.copy_once(script_call);
    proxy.drop_replies_once(1, script_call);
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    expect_dropped(1);
    raw.set("job", "the next owner");
    // The repetition, as it would arrive had it been on its way until now.
    EXPECT_FALSE(proxy.deliver_copy().is_error());
    EXPECT_EQ(raw.get("job"), "the next owner");
}

TEST_F(LostReply, of_a_forced_unlock_ends_the_own_hold) {
    warm_up<Simple>();
    Lock<Simple> lock{client, "job"};
    lock.lock();
    Lock<Simple> absent{client, "absent"};
    EXPECT_TRUE(succeeds(absent.force_unlock()));  // the server knows the script now
    proxy.drop_replies_once(1, script_call);
    const auto forced = lock.force_unlock();
    ASSERT_TRUE(succeeds(forced));
    expect_dropped(1);
    EXPECT_FALSE(raw.exists("job"));
    EXPECT_EQ(*forced, Forced::removed);
    EXPECT_FALSE(lock.held());
}

TEST_F(LostReply, of_a_forced_unlock_of_readers_ends_the_own_ones) {
    Lock<Shared> lock{client, "job"};
    EXPECT_TRUE(succeeds(lock.force_unlock("nobody")));  // the server knows the script now
    for (const bool by_owner : {true, false}) {
        const auto reading = lock.acquire_shared();
        ASSERT_TRUE(succeeds(reading));
        EXPECT_TRUE(succeeds(lock.inspect()));  // and this one
        const int before = proxy.counts().dropped_replies;
        proxy.drop_replies_once(1, reading->token() + "\r\n");
        const auto forced = by_owner ? lock.force_unlock(reading->token()) : lock.force_unlock();
        ASSERT_TRUE(succeeds(forced));
        expect_dropped(before + 1);
        EXPECT_EQ(*forced, Forced::removed);
        EXPECT_FALSE(reading->held());
    }
}

TEST_F(LostReply, that_comes_late_confuses_nobody) {
    warm_up<Simple>();
    Lock<Simple> lock{client, "job"};
    proxy.hold_replies();
    const Stopwatch watch;
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 300ms}), Errc::unavailable));
    EXPECT_LT(watch.elapsed(), 300ms + 4s);  // and not until a command's time is over
    EXPECT_TRUE(eventually([&] { return raw.command_calls("set") >= 2; }));  // it was carried out
    proxy.pass();
    // What was taken unawares is given back, long before its lease of 30 s ends.
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
    EXPECT_TRUE(lock.try_lock_for(10s));
    const auto info = lock.inspect();
    ASSERT_TRUE(succeeds(info));
    EXPECT_EQ(info->owner, raw.get("job"));
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(LostReply, of_a_try_given_up_leaves_no_key_behind) {
    Client impatient{options_for(server.uri(), 2s)};
    Lock<Simple> lock{impatient, "job"};
    ASSERT_TRUE(succeeds(impatient.ping()));
    server.freeze();
    const auto error = thrown_by([&] { static_cast<void>(lock.try_lock()); });
    EXPECT_TRUE(is_error(error, Errc::unavailable));
    server.thaw();  // now the server finds the SET that waited for it
    EXPECT_TRUE(eventually([&] { return raw.command_calls("set") == 1; }));
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
}

TEST_F(LostReply, a_set_that_arrives_after_the_release_is_cleaned_up) {
    Lock<Simple> lock{client, "job"};
    proxy.drop_replies_once(1, plain_set);
    auto held = lock.acquire({.wait = 10s});
    ASSERT_TRUE(succeeds(held));
    const std::string token = held->token();
    EXPECT_TRUE(is_outcome(held->release(), Release::released));
    // As the network would bring a copy of the first try that it had kept.
    raw.command({"SET", "job", token, "NX", "PX", "30000"});
    EXPECT_TRUE(raw.exists("job"));
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
}

TEST(LateAnswer, does_not_bring_a_hold_back) {
    RedisServer server;
    Proxy proxy{server.uri()};
    Client client{options_for(proxy.uri(), 5s)};
    Lock<Reentrant> lock{client, "job", {.lease = 300ms}};
    Held held = lock.acquire().value();
    proxy.hold_replies();
    auto extended = in_background([&] { return held.extend(5s); });
    ASSERT_TRUE(eventually([&] { return !held.held(); }));
    proxy.pass();
    EXPECT_TRUE(fails_with(extended.get(), Errc::lost));
    EXPECT_EQ(held.state(), HoldState::lost);
    RawRedis raw{server};
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
}

}  // namespace
}  // namespace redlatch::test
