// A watched lock lasts until its release, the end of its process or `max_hold`; nothing renews it
// a moment longer.

#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

template <class Policy>
class WatchdogOf : public LockTest {};
using WatchedPolicies = ::testing::Types<Watchdog<Simple>, Watchdog<Reentrant>>;
TYPED_TEST_SUITE(WatchdogOf, WatchedPolicies);

/// Long enough for a renewal that comes some seconds late, as it does where the machine stands still.
constexpr std::chrono::milliseconds renewed_lease = 9s;

TYPED_TEST(WatchdogOf, holds_beyond_its_first_lease) {
    constexpr auto lease = renewed_lease;
    Lock<TypeParam> lock{this->client_, "job", {.lease = lease}};
    Lock<TypeParam> elsewhere{this->other_client_, "job"};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    EXPECT_TRUE(stays(
        [&] {
            const auto ttl = this->redis_.pttl("job");
            return held.held() && ttl > 0 && ttl <= lease.count() && !elsewhere.try_lock();
        },
        lease + 1s));
    EXPECT_TRUE(eventually([&] { return held.state() == HoldState::held; }));
    EXPECT_FALSE(lost.stop_requested());
    EXPECT_EQ(held.release().value(), Release::released);
    EXPECT_FALSE(this->redis_.exists("job"));
}

TYPED_TEST(WatchdogOf, is_not_renewed_after_its_release) {
    constexpr auto lease = renewed_lease;
    Lock<TypeParam> lock{this->client_, "job", {.lease = lease}};
    lock.lock();
    ASSERT_TRUE(eventually([&] { return this->redis_.command_calls("pexpire") > 0; }));
    EXPECT_EQ(lock.release().value(), Release::released);
    EXPECT_FALSE(this->redis_.exists("job"));
    // A renewal may have been on its way; it finds the token gone.
    const auto calls = this->redis_.command_calls("evalsha");
    const auto renewals = this->redis_.command_calls("pexpire");
    EXPECT_TRUE(stays([&] { return !this->redis_.exists("job"); }, lease / 2));
    EXPECT_LE(this->redis_.command_calls("evalsha"), calls + 1);
    EXPECT_EQ(this->redis_.command_calls("pexpire"), renewals);
}

TYPED_TEST(WatchdogOf, ends_with_its_process) {
    constexpr auto lease = renewed_lease;
    ChildProcess child{[&](LineChannel& parent) {
        Client client{patient(this->server_.uri())};
        Lock<TypeParam> lock{client, "job", {.lease = lease}};
        lock.lock();
        parent.write_line("held");
        parent.read_line();
        return 1;
    }};
    ASSERT_EQ(child.read_line(), "held");
    auto least = this->redis_.pttl("job");
    EXPECT_TRUE(eventually([&] {
        const auto ttl = this->redis_.pttl("job");
        return ttl > std::exchange(least, ttl);
    })) << "its process renews it";
    child.kill();
    const Stopwatch watch;
    ASSERT_TRUE(child.wait());
    Lock<TypeParam> lock{this->client_, "job"};
    EXPECT_TRUE(lock.try_lock_for(generous_limit));
    EXPECT_LT(watch.elapsed(), lease + 15s);
}

TYPED_TEST(WatchdogOf, ends_when_its_process_stands_still) {
    constexpr auto lease = 300ms;
    ChildProcess child{[&](LineChannel& parent) {
        Client client{this->server_.uri()};
        Lock<TypeParam> lock{client, "job", {.lease = lease}};
        Held held = lock.acquire().value();
        const std::stop_token lost = held.lost();
        parent.write_line("held");
        parent.read_line();
        const bool told = fires(lost);
        const bool kept = held.held();
        const bool freed = held.release().value() != Release::expired;
        return (told ? 0 : 1) + (kept ? 2 : 0) + (freed ? 4 : 0);
    }};
    ASSERT_EQ(child.read_line(), "held");
    child.freeze();
    Lock<TypeParam> lock{this->client_, "job"};
    const Held next = lock.acquire({.wait = generous_limit}).value();
    child.thaw();
    child.write_line("go on");
    EXPECT_EQ(child.wait(), ExitStatus{});
    EXPECT_EQ(lock.inspect().value().owner, next.token());
}

TYPED_TEST(WatchdogOf, max_hold_ends_it_and_tells) {
    constexpr auto lease = 300ms;
    constexpr auto max_hold = 900ms;
    Lock<TypeParam> lock{this->client_, "job", {.lease = lease, .max_hold = max_hold}};
    const Stopwatch watch;
    Held held = lock.acquire().value();
    EXPECT_LE(held.remaining(), lease);
    ASSERT_TRUE(fires(held.lost()));
    EXPECT_FALSE(held.held());
    EXPECT_EQ(held.state(), HoldState::lost);
    EXPECT_LT(watch.elapsed(), max_hold + 15s);
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); }));
    EXPECT_LT(watch.elapsed(), max_hold + 15s) << "the server was not asked for more either";
    EXPECT_EQ(held.release().value(), Release::expired);
}

TYPED_TEST(WatchdogOf, max_hold_bounds_the_first_lease_too) {
    Lock<TypeParam> lock{this->client_, "job", {.lease = 30s, .max_hold = 400ms}};
    Held held = lock.acquire().value();
    EXPECT_LE(this->redis_.pttl("job"), 400);
    EXPECT_TRUE(fires(held.lost()));
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); }));
}

TYPED_TEST(WatchdogOf, max_hold_bounds_what_extend_asks_for) {
    Lock<TypeParam> lock{this->client_, "job", {.lease = 6s, .max_hold = 10s}};
    Held held = lock.acquire().value();
    EXPECT_TRUE(held.extend(60s));
    EXPECT_LE(held.remaining(), 10s);
    EXPECT_LE(this->redis_.pttl("job"), 10'000) << "others need not wait for longer";
    EXPECT_TRUE(held.held());
}

TYPED_TEST(WatchdogOf, tells_that_its_key_was_deleted) {
    Lock<TypeParam> lock{this->client_, "job", {.lease = 300ms}};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    this->redis_.del("job");
    EXPECT_TRUE(fires(lost));
    EXPECT_EQ(held.state(), HoldState::lost);
    EXPECT_FALSE(this->redis_.exists("job")) << "a renewal takes nothing again";
    EXPECT_EQ(held.release().value(), Release::expired);
}

TYPED_TEST(WatchdogOf, never_renews_the_key_of_another_type_that_replaced_it) {
    Lock<TypeParam> lock{this->client_, "job", {.lease = 300ms}};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    this->redis_.pipeline({{"MULTI"}, {"DEL", "job"}, {"RPUSH", "job", "data"}, {"EXEC"}});
    EXPECT_TRUE(fires(lost));
    EXPECT_EQ(this->redis_.pttl("job"), -1);
    EXPECT_EQ(held.release().value(), Release::expired);
    EXPECT_EQ(this->redis_.type("job"), "list");
}

using WatchdogLock = LockTest;

TEST_F(WatchdogLock, renews_a_nest_until_its_outermost_end) {
    Lock<Watchdog<Reentrant>> lock{client_, "job", {.lease = renewed_lease}};
    lock.lock();
    {
        lock.lock();
        EXPECT_TRUE(is_renewed(lock));
        EXPECT_EQ(lock.release().value(), Release::still_held);
    }
    EXPECT_TRUE(is_renewed(lock));
    EXPECT_TRUE(redis_.exists("job"));
    EXPECT_EQ(lock.release().value(), Release::released);
    EXPECT_FALSE(redis_.exists("job"));
}

TEST_F(WatchdogLock, max_hold_bounds_what_a_nested_hold_asks_for) {
    Lock<Watchdog<Reentrant>> lock{client_, "job", {.lease = 6s, .max_hold = 10s}};
    Lock<Reentrant> plain{client_, "job"};
    const Held outer = lock.acquire().value();
    const Held inner = plain.acquire({.lease = 60s}).value();
    EXPECT_LE(redis_.pttl("job"), 10'000);
    EXPECT_LE(inner.remaining(), 10s);
}

TEST_F(WatchdogLock, that_is_destroyed_with_several_nested_holds_renews_none_of_them_any_more) {
    Lock<Reentrant> outer{client_, "job", {.lease = 3s}};
    outer.lock();
    {
        Lock<Watchdog<Reentrant>> inner{client_, "job", {.lease = 3s}};
        inner.lock();
        inner.lock();
    }
    EXPECT_TRUE(eventually([&] { return !outer.held(); }));
}

TEST_F(WatchdogLock, renews_an_unwatched_hold_for_as_long_as_a_nested_one_is_watched) {
    Lock<Reentrant> plain{client_, "job", {.lease = renewed_lease}};
    Lock<Watchdog<Reentrant>> watched{client_, "job", {.lease = renewed_lease}};
    Held outer = plain.acquire().value();
    Held inner = watched.acquire().value();
    EXPECT_TRUE(is_renewed(outer));
    EXPECT_TRUE(inner.held());
    EXPECT_EQ(inner.release().value(), Release::still_held);
    EXPECT_TRUE(fires(outer.lost()));
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

TEST_F(WatchdogLock, max_hold_of_a_nested_hold_ends_the_renewal_of_an_unwatched_one) {
    Lock<Reentrant> plain{client_, "job", {.lease = 3s}};
    Lock<Watchdog<Reentrant>> watched{client_, "job", {.lease = 3s, .max_hold = 5s}};
    Held outer = plain.acquire().value();
    Held inner = watched.acquire().value();
    EXPECT_TRUE(fires(outer.lost()));
    EXPECT_FALSE(inner.held());
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

TEST_F(WatchdogLock, max_hold_of_a_nested_hold_counts_when_a_longer_one_has_ended) {
    Lock<Reentrant> plain{client_, "job", {.lease = 3s}};
    Lock<Watchdog<Reentrant>> longer{client_, "job", {.lease = 3s}};
    Lock<Watchdog<Reentrant>> shorter{client_, "job", {.lease = 3s, .max_hold = 5s}};
    Held outer = plain.acquire().value();
    Held first = longer.acquire().value();
    Held second = shorter.acquire().value();
    EXPECT_EQ(first.release().value(), Release::still_held);
    EXPECT_TRUE(fires(outer.lost()));
    EXPECT_FALSE(second.held());
}

TEST_F(WatchdogLock, goes_on_when_the_outer_hold_of_a_nest_ends_first) {
    Lock<Watchdog<Reentrant>> lock{client_, "job", {.lease = renewed_lease}};
    Held outer = lock.acquire().value();
    Held inner = lock.acquire().value();
    EXPECT_EQ(outer.release().value(), Release::still_held);
    EXPECT_TRUE(is_renewed(inner));
    EXPECT_EQ(inner.release().value(), Release::released);
}

TEST_F(WatchdogLock, renews_a_nest_whose_watched_acquisitions_end_and_begin_at_the_same_moment) {
    constexpr int names = 2000;
    const LockOptions options{.lease = 10s};
    struct Nest {
        Held outer;  // not watched itself
        Held first;
        Held second;
    };
    std::deque<Nest> nests;
    std::atomic<int> begun = 0;
    std::atomic<int> ended = 0;
    std::atomic<Nest*> nest = nullptr;
    std::jthread other{[&] {
        for (int i = 1; i <= names; ++i) {
            while (begun.load() < i) std::this_thread::yield();
            EXPECT_EQ(nest.load()->first.release().value(), Release::still_held);
            ended = i;
        }
    }};
    for (int i = 1; i <= names; ++i) {
        const std::string name = "job" + std::to_string(i);
        Lock<Reentrant> plain{client_, name, options};
        Lock<Watchdog<Reentrant>> watched{client_, name, options};
        nests.push_back({plain.acquire().value(), watched.acquire().value(), Held{}});
        nest = &nests.back();
        begun = i;
        nests.back().second = watched.acquire().value();
        while (ended.load() < i) std::this_thread::yield();
    }
    // Each is more than a lease old then.
    std::this_thread::sleep_for(11s);
    for (const Nest& watched : nests) EXPECT_TRUE(watched.second.held()) << watched.second.token();
}

TEST_F(WatchdogLock, renews_a_short_lease_while_it_has_time_for_a_long_one) {
    Lock<> slow{client_, "slow", {.lease = 60s}};
    Lock<> fast{client_, "fast", {.lease = renewed_lease}};
    for (int i = 0; i < 3; ++i) {
        const std::lock_guard ended_before_its_renewal{slow};
    }
    const std::lock_guard scope{fast};
    EXPECT_TRUE(is_renewed(fast));
}

TEST_F(WatchdogLock, of_200_names_need_one_connection) {
    constexpr auto lease = renewed_lease;
    constexpr std::size_t names = 200;
    ClientOptions options = patient(server_.uri());
    options.client_name = "dogs";
    Client client{options};
    std::vector<std::unique_ptr<Lock<>>> locks;
    std::vector<Held> holds;
    for (std::size_t i = 0; i < names; ++i) {
        locks.push_back(std::make_unique<Lock<>>(client, "job" + std::to_string(i),
                                                 LockOptions{.lease = lease}));
        holds.push_back(locks.back()->acquire().value());
    }
    EXPECT_TRUE(stays(
        [&] {
            return std::all_of(holds.begin(), holds.end(), [](const Held& h) { return h.held(); });
        },
        lease + 1s));
    EXPECT_EQ(redis_.keys().size(), names);
    const auto connections = redis_.client_list();
    const auto ours = std::count_if(connections.begin(), connections.end(),
                                    [](const auto& c) { return c.at("name") == "dogs"; });
    EXPECT_EQ(ours, 2) << "one for this thread's commands, one for all renewals";
    for (Held& held : holds) EXPECT_EQ(held.release().value(), Release::released);
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(WatchdogLock, is_uncertain_while_renewals_get_no_answer_and_held_again_after) {
    Client client{{.uris = {server_.uri()}, .command_timeout = 2s}};
    Lock<> lock{client, "job", {.lease = 15s}};
    Held held = lock.acquire().value();
    server_.freeze();
    EXPECT_TRUE(eventually([&] { return held.state() == HoldState::uncertain; }));
    EXPECT_TRUE(held.held());
    server_.thaw();
    EXPECT_TRUE(eventually([&] { return held.state() == HoldState::held; }));
    EXPECT_EQ(held.release().value(), Release::released);
}

TEST_F(WatchdogLock, waits_of_others_go_on_while_it_is_renewed) {
    constexpr auto lease = renewed_lease;
    Lock<> lock{client_, "job", {.lease = lease}};
    Lock<> elsewhere{other_client_, "job"};
    Held held = lock.acquire().value();
    EXPECT_TRUE(times_out([&] { return elsewhere.acquire({.wait = lease + 1s}); }));
    auto waiter =
        in_background([&] { return code_of(elsewhere.acquire({.wait = generous_limit})); });
    EXPECT_EQ(held.release().value(), Release::released);
    EXPECT_EQ(waiter.get(), Errc{});
}

/// Takes and loses locks with a lease that is too short for the server, until its end.
class ShortLeases {
public:
    ShortLeases(Client& client, std::chrono::milliseconds lease, int threads) {
        for (int i = 0; i < threads; ++i) {
            threads_.emplace_back([&client, lease, i](const std::stop_token& stop) {
                Lock<> lock{client, "short" + std::to_string(i), {.lease = lease}};
                while (!stop.stop_requested()) {
                    const auto held = lock.acquire({.wait = 100ms});
                    std::this_thread::sleep_for(lease);
                }
            });
        }
    }

private:
    std::vector<std::jthread> threads_;
};

TEST_F(WatchdogLock, with_a_long_lease_outlives_short_ones_at_a_slow_server) {
    Proxy proxy{server_.uri()};
    Client client{patient(proxy.uri())};
    proxy.delay_replies(60ms);
    Lock<> lock{client, "long", {.lease = renewed_lease}};
    Held held = lock.acquire({.wait = generous_limit}).value();
    const ShortLeases others{client, 100ms, 8};
    EXPECT_TRUE(stays([&] { return held.held(); }, 10s));
    EXPECT_EQ(held.release().value(), Release::released);
}

TEST_F(WatchdogLock, with_a_long_lease_outlives_short_ones_at_several_slow_masters) {
    RedisServer second;
    RedisServer third;
    Proxy proxies[]{Proxy{server_.uri()}, Proxy{second.uri()}, Proxy{third.uri()}};
    Client client{{.uris = {Uri{proxies[0].uri()}, Uri{proxies[1].uri()}, Uri{proxies[2].uri()}},
                   .command_timeout = 10s,
                   .node_timeout = 1s,
                   .longest_lease = 0ms}};
    for (Proxy& proxy : proxies) proxy.delay_replies(60ms);
    Lock<> lock{client, "long", {.lease = renewed_lease}};
    Held held = lock.acquire({.wait = generous_limit}).value();
    const ShortLeases others{client, 100ms, 8};
    EXPECT_TRUE(stays([&] { return held.held(); }, 10s));
    EXPECT_EQ(held.release().value(), Release::released);
}

TEST_F(WatchdogLock, is_renewed_by_an_answer_that_comes_late) {
    const auto journal = std::make_shared<Journal>();
    Proxy proxy{server_.uri()};
    Client client{{.uris = {Uri{proxy.uri()}}, .command_timeout = 5s, .observer = journal}};
    Lock<> lock{client, "job", {.lease = 6s}};
    Held held = lock.acquire().value();
    ASSERT_TRUE(eventually([&] { return journal->renewals() > 0; }));
    proxy.delay_replies(2500ms);  // a try is over after 2 s
    EXPECT_TRUE(eventually([&] { return held.state() == HoldState::uncertain; }));
    EXPECT_TRUE(stays([&] { return held.held(); }, 12s));
}

TEST_F(WatchdogLock, is_renewed_on_a_new_connection_where_the_old_one_is_silent) {
    const auto journal = std::make_shared<Journal>();
    Proxy proxy{server_.uri()};
    const std::string through = proxy.uri().substr(std::string_view{"unix://"}.size());
    std::atomic<bool> direct = false;
    const ConnectionFactory factory{.connect = [&](std::chrono::milliseconds) {
        return redisConnectUnix((direct ? server_.socket_path() : through).c_str());
    }};
    Client client{{.factories = {factory}, .command_timeout = 5s, .observer = journal}};
    Lock<> lock{client, "job", {.lease = 9s}};
    Held held = lock.acquire().value();
    ASSERT_TRUE(eventually([&] { return journal->renewals() > 0; }));
    // As if a firewall had forgotten the connections: nothing tells either side.
    direct = true;
    proxy.black_hole();
    const int renewals = journal->renewals();
    EXPECT_TRUE(eventually([&] { return journal->renewals() > renewals; }));
    EXPECT_TRUE(held.held());
}

// Each would be taken for the answer to the renewal that comes next.
TEST_F(WatchdogLock, is_not_renewed_by_answers_that_nobody_has_asked_for) {
    Proxy proxy{server_.uri()};
    const auto journal = std::make_shared<Journal>();
    Client client{options_for(proxy.uri(), 10s, journal)};
    Lock<Watchdog<Simple>> lock{client, "job", {.lease = 3s}};
    Held held = lock.acquire().value();
    ASSERT_TRUE(eventually([&] { return journal->renewals() >= 1; }));
    proxy.say(":1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    redis_.command({"SET", "job", "another's"});
    const int renewals = journal->renewals();
    EXPECT_TRUE(eventually([&] { return held.state() == HoldState::lost; }));
    EXPECT_LE(journal->renewals(), renewals + 1) << "one may have been under way";
}

TEST_F(WatchdogLock, with_a_very_short_lease_is_not_renewed_in_a_hot_loop) {
    constexpr auto lease = 30ms;
    Lock<> lock{client_, "job", {.lease = lease}};
    const Stopwatch watch;
    const auto before = redis_.command_calls("pexpire");
    while (watch.elapsed() < 2s) {  // on a busy machine it is lost now and then
        const auto held = lock.acquire();
        while (held && held->held() && watch.elapsed() < 2s) std::this_thread::sleep_for(1ms);
    }
    const auto renewals = redis_.command_calls("pexpire") - before;
    EXPECT_GT(renewals, 0);
    EXPECT_LT(renewals, watch.elapsed() / (lease / 10)) << "three in each lease are wanted";
}

TEST_F(WatchdogLock, however_many_end_with_their_client_in_bounded_time) {
    constexpr std::size_t names = 15'000;
    std::vector<std::unique_ptr<Lock<Simple>>> locks;
    std::vector<Held> holds;
    Stopwatch watch;
    {
        Client client{options_for(server_.uri(), 2s)};
        for (std::size_t i = 0; i < names; ++i) {
            locks.push_back(std::make_unique<Lock<Simple>>(client, "job" + std::to_string(i)));
            holds.push_back(locks.back()->acquire({.lease = 10min}).value());
        }
        server_.freeze();
        watch = Stopwatch{};
    }
    const auto closed_after = watch.elapsed();
    server_.thaw();
    EXPECT_LT(closed_after, 3 * 2s + 10s)
        << "three command timeouts and the work, not one for each 1000";
}

}  // namespace
}  // namespace redlatch::test
