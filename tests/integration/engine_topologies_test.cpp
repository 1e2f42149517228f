// The engine where other servers than one decide: Sentinel's master, a Cluster, several masters.

#include "cluster_tools.hpp"
#include "engine_tools.hpp"
#include "fault_tools.hpp"
#include "scripted_server.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/sentinels.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::slot_of;

void submit(detail::Session& session, const OrderPtr& what) {
    on_engine(session.engine(), [&] { session.engine().submit(what); });
}

std::string answer(detail::Session& session, const OrderPtr& what) {
    submit(session, what);
    const Outcome outcome = what->wait();
    return outcome.answered() ? outcome.value : outcome.fault.error.message;
}

detail::ClientSetup setup_for(const std::vector<std::string>& uris,
                              std::chrono::milliseconds timeout = 10s) {
    ClientOptions options = options_for(uris.front(), timeout);
    options.uris.clear();
    for (const std::string& uri : uris) options.uris.emplace_back(uri);
    options.node_timeout = timeout;
    options.longest_lease = 0ms;
    return detail::check_client(std::move(options)).value();
}

// --- A Cluster

class AnEngineInACluster : public ::testing::Test {
protected:
    ClusterGroup group_;
    detail::Session session_{setup_for({group_.uri(0)})};
};

TEST_F(AnEngineInACluster, sends_each_order_to_the_master_of_its_key) {
    std::vector<OrderPtr> orders;
    for (const std::size_t master : {0U, 1U, 2U}) {
        orders.push_back(order({"SET", name_on(master), "1"}));
    }
    on_engine(session_.engine(), [&] {
        for (const OrderPtr& each : orders) session_.engine().submit(each);
    });
    for (const OrderPtr& each : orders) EXPECT_EQ(each->wait().value, "OK");
    for (const std::size_t master : {0U, 1U, 2U}) {
        EXPECT_EQ(RawRedis{group_.server(master)}.get(name_on(master)), "1");
    }
}

TEST_F(AnEngineInACluster, follows_a_slot_that_has_moved_and_one_that_is_moving) {
    const std::string name = name_on(0);
    const unsigned slot = slot_of(name);
    EXPECT_EQ(answer(session_, order({"SET", name, "1"})), "OK");
    group_.begin_to_move(slot, 0, 1);
    group_.move_key(name, 0, 1);
    EXPECT_EQ(answer(session_, order({"GET", name})), "1") << "by ASK";
    const Script script{"return redis.call('INCR', KEYS[1])"};
    EXPECT_EQ(answer(session_, order(script, name)), "2");
    group_.finish_move(slot, 0, 1);
    EXPECT_EQ(answer(session_, order({"GET", name})), "2") << "by MOVED";
    EXPECT_EQ(answer(session_, order(script, name)), "3");
}

TEST_F(AnEngineInACluster, goes_on_where_a_replica_has_become_the_master) {
    const std::string name = name_on(0);
    EXPECT_EQ(answer(session_, order({"SET", name, "1"})), "OK");
    group_.kill(0);
    ASSERT_TRUE(group_.becomes_master(3));
    EXPECT_TRUE(eventually([&] { return answer(session_, order({"SET", name, "2"})) == "OK"; }));
    EXPECT_EQ(RawRedis{group_.server(3)}.get(name), "2");
}

TEST_F(AnEngineInACluster, closes_while_orders_wait_for_the_map) {
    const OrderPtr first = order({"SET", name_on(1), "1"});
    submit(session_, first);
    session_.engine().close();
    const Outcome outcome = first->wait();
    EXPECT_TRUE(outcome.answered() || outcome.fault.error.code == Errc::cancelled);
    EXPECT_TRUE(eventually([&] { return first.use_count() == 1; }));
}

TEST_F(AnEngineInACluster, serves_asynchronous_acquisitions) {
    Client client{options_for(group_.uri(0), 10s)};
    for (const std::size_t master : {0U, 1U, 2U}) {
        Lock<Watchdog<Reentrant>> lock{client, name_on(master)};
        std::promise<Result<Held>> acquired;
        lock.async_acquire({}, {}, [&](Result<Held> held) { acquired.set_value(std::move(held)); });
        Result<Held> held = acquired.get_future().get();
        ASSERT_TRUE(succeeds(held));
        EXPECT_TRUE(RawRedis{group_.server(master)}.exists(name_on(master)));
        std::promise<Result<Release>> released;
        held->async_release([&](Result<Release> outcome) { released.set_value(outcome); });
        EXPECT_TRUE(is_outcome(released.get_future().get(), Release::released));
    }
}

/// More than a link has unanswered at a time waits in front of an order that is to go on to another server.
TEST(AnEngineInASlowCluster, follows_a_redirection_in_the_time_that_has_begun_anew) {
    std::atomic<int> times_set{0};
    const ScriptedServer elsewhere{[&](const auto& command, const auto&) -> std::string {
        if (command == ScriptedServer::Words{"SET", "a", "1"}) ++times_set;
        return ScriptedServer::of_handshake(command).value_or("+OK\r\n");
    }};
    std::atomic<bool> answers{true};
    std::atomic<bool> ends{false};
    const ScriptedServer server{[&](const auto& command, const auto&) {
        if (command.front() == "CLUSTER") return ScriptedServer::slots("", server.port());
        while (command.front() == "GET" && !answers && !ends) std::this_thread::sleep_for(1ms);
        const std::string other =
            command.front() == "GET"
                ? "$-1\r\n"
                : "-ASK 1 127.0.0.1:" + std::to_string(elsewhere.port()) + "\r\n";
        return ScriptedServer::of_handshake(command).value_or(other);
    }};
    detail::Session session{setup_for({"redis+cluster://" + server.place()})};
    EXPECT_EQ(answer(session, order({"GET", "a"})), "nil");
    answers = false;
    const OrderPtr strict = order({"SET", "b", "1"}, 500ms);
    const OrderPtr patient = order({"SET", "a", "1"}, 500ms);
    patient->time.give_up_at = detail::saturating_add(Clock::now(), generous_limit);
    on_engine(session.engine(), [&] {
        for (int i = 0; i < 1024; ++i) session.engine().submit(order({"GET", "a"}));
        session.engine().submit(strict);
        session.engine().submit(patient);
    });
    EXPECT_FALSE(strict->wait().answered());
    answers = true;
    EXPECT_EQ(patient->wait().value, "OK") << patient->wait().fault.error.describe();
    EXPECT_EQ(times_set, 1);
    ends = true;
}

// --- Sentinel

TEST(AnEngineWithSentinels, follows_the_master) {
    SentinelGroup group;
    detail::Session session{setup_for({group.uri()})};
    EXPECT_EQ(answer(session, order({"SET", "a", "1"})), "OK");
    ASSERT_TRUE(group.switch_master());
    EXPECT_TRUE(eventually([&] {  // the old one may say yes before it knows
        return answer(session, order({"SET", "a", "2"})) == "OK" &&
               RawRedis{group.second()}.get("a") == "2";
    }));
}

// --- A master with a replica

class AnEngineWithAReplica : public ::testing::Test {
protected:
    AnEngineWithAReplica() {
        RawRedis{replica_}.command({"REPLICAOF", "127.0.0.1", std::to_string(server_.port())});
        EXPECT_TRUE(eventually([this] {
            const auto info = redis_.info("replication");
            const auto first = info.find("slave0");
            return first != info.end() && first->second.find("state=online") != std::string::npos;
        }));
    }

    static OrderPtr set(std::string key, Replicas replicas,
                        std::chrono::milliseconds wait = generous_limit) {
        OrderPtr made = order({"SET", std::move(key), "1"}, wait);
        made->replicas = replicas;
        made->shape = detail::ReplyShape::ok_or_nil;
        return made;
    }

    RedisServer server_{{.tcp = true, .config = {{"repl-diskless-sync-delay", "0"}}}};
    RedisServer replica_;
    RawRedis redis_{server_};
    detail::Session session_{setup_for({server_.uri()})};
};

TEST_F(AnEngineWithAReplica, waits_once_for_all_that_ask_for_the_same_number) {
    for (const Replicas replicas : {Replicas{1}, Replicas::all()}) {
        ASSERT_EQ(answer(session_, set("a", replicas)), "OK");
        const auto before = redis_.command_calls("wait");
        std::vector<OrderPtr> orders;
        for (const char* key : {"b", "c", "d"}) orders.push_back(set(key, replicas));
        on_engine(session_.engine(), [&] {
            for (const OrderPtr& each : orders) session_.engine().submit(each);
        });
        for (const OrderPtr& each : orders) {
            EXPECT_EQ(each->wait().value, "OK");
            EXPECT_EQ(each->wait().replicas, 1);
            EXPECT_EQ(each->wait().replicas_wanted, 1);
        }
        EXPECT_EQ(redis_.command_calls("wait"), before + 1);
        EXPECT_EQ(RawRedis{replica_}.get("d"), "1");
    }
}

TEST_F(AnEngineWithAReplica, tells_in_time_how_many_have_it_and_keeps_nobody_else_waiting) {
    replica_.freeze();
    OrderPtr waiting;
    int tries = 0;
    EXPECT_TRUE(eventually([&] {  // a busy server may say too late that it has waited in vain
        const std::string key = "a" + std::to_string(++tries);
        waiting = set(key, Replicas{1}, 3s);
        submit(session_, waiting);
        if (!eventually([&] { return redis_.exists(key); }, 3s)) return false;
        EXPECT_EQ(answer(session_, order({"PING"})), "PONG");
        if (!waiting->wait().answered()) return false;
        // What comes behind it is written when nobody waits for the replica any more.
        submit(session_, set(key + ":next", Replicas{1}, 3s));
        return eventually([&] { return redis_.exists(key + ":next"); }, 4s);
    }));
    EXPECT_EQ(waiting->wait().value, "OK");
    EXPECT_EQ(waiting->wait().replicas, 0);
    EXPECT_EQ(waiting->wait().replicas_wanted, 1);
    const OrderPtr abandoned = set("b", Replicas{1});
    submit(session_, abandoned);
    ASSERT_TRUE(eventually([&] { return redis_.exists("b"); }));
    bool maybe_executed = false;
    on_engine(session_.engine(), [&] { maybe_executed = session_.engine().abandon(*abandoned); });
    EXPECT_TRUE(maybe_executed);
    session_.engine().close();
    EXPECT_EQ(abandoned->late().size(), 1U);
    EXPECT_EQ(abandoned.use_count(), 1);
}

TEST(AnEngineForReplicas, tells_that_none_has_it_where_nobody_says_so_in_time) {
    const ScriptedServer server{[](const auto& command, const auto&) {
        const std::string answer = command.front() == "WAIT" ? "" : "+OK\r\n";
        return ScriptedServer::of_handshake(command).value_or(answer);
    }};
    detail::Session session{setup_for({"redis://" + server.place()})};
    const OrderPtr taken = order({"SET", "a", "1"}, 2s);
    taken->replicas = Replicas{2};
    taken->shape = detail::ReplyShape::ok_or_nil;
    submit(session, taken);
    EXPECT_EQ(taken->wait().value, "OK");
    EXPECT_EQ(taken->wait().replicas, 0);
    EXPECT_EQ(taken->wait().replicas_wanted, 2);
}

TEST_F(AnEngineWithAReplica, serves_asynchronous_acquisitions) {
    Client client{options_for(server_.uri(), 10s)};
    Lock<Simple> lock{client, "job", {.replicas = Replicas{1}}};
    std::promise<Result<Held>> acquired;
    lock.async_acquire({}, {}, [&](Result<Held> held) { acquired.set_value(std::move(held)); });
    Result<Held> held = acquired.get_future().get();
    ASSERT_TRUE(succeeds(held));
    EXPECT_EQ(RawRedis{replica_}.get("job"), held->token());
}

// --- Several masters

class AnEngineForSeveralMasters : public ::testing::Test {
protected:
    /// An order that a majority has to say yes to.
    static OrderPtr set(std::string key) {
        OrderPtr made = order({"SETNX", std::move(key), "1"});
        made->shape = detail::ReplyShape::integer;
        return made;
    }

    /// How many masters have the key.
    int count(const std::string& key) {
        int masters = 0;
        for (RedisServer& server : servers_) masters += RawRedis{server}.exists(key) ? 1 : 0;
        return masters;
    }

    /// Returns when there is a connection to each: an order that takes no lock does not wait for the last one.
    void reach_all() {
        int tries = 0;
        ASSERT_TRUE(eventually([&] {
            const std::string key = "try:" + std::to_string(++tries);
            return answer(session_, set(key)) == "1" && count(key) == 3;
        }));
    }

    std::array<RedisServer, 3> servers_;
    std::array<Proxy, 3> proxies_{Proxy{servers_[0].uri()}, Proxy{servers_[1].uri()},
                                  Proxy{servers_[2].uri()}};
    detail::Session session_{setup_for({proxies_[0].uri(), proxies_[1].uri(), proxies_[2].uri()})};
};

TEST_F(AnEngineForSeveralMasters, asks_all_and_decides_by_the_majority) {
    reach_all();
    const OrderPtr first = set("a");
    EXPECT_EQ(answer(session_, first), "1");
    EXPECT_TRUE(eventually([&] { return count("a") == 3; }));
    EXPECT_EQ(first->wait().masters.asked, 7U);
    EXPECT_GE(std::popcount(first->wait().masters.agreed), 2);
    EXPECT_EQ(answer(session_, set("a")), "0");
    EXPECT_NE(first->wait().sent, detail::TimePoint::min());
    EXPECT_TRUE(eventually([&] { return first.use_count() == 1; }));
}

TEST_F(AnEngineForSeveralMasters, needs_no_answer_of_one_and_hears_it_late) {
    reach_all();
    proxies_[1].hold_replies();
    const OrderPtr second = set("b");
    EXPECT_EQ(answer(session_, second), "1");
    EXPECT_EQ(second->wait().masters.late, 2U);
    EXPECT_TRUE(second->late().empty());
    const detail::TimePoint passed = Clock::now();
    proxies_[1].pass();
    ASSERT_TRUE(eventually([&] { return second->late().size() == 1; }));
    EXPECT_LT(second->late().front().sent, passed);
    EXPECT_EQ(second->late().front().value, "1");
    EXPECT_TRUE(eventually([&] { return second.use_count() == 1; }));
}

TEST_F(AnEngineForSeveralMasters, does_without_one_that_is_not_there) {
    proxies_[2].refuse();
    EXPECT_EQ(answer(session_, set("a")), "1");
    EXPECT_EQ(count("a"), 2);
}

TEST_F(AnEngineForSeveralMasters, says_why_there_is_no_majority) {
    proxies_[0].refuse();
    proxies_[2].refuse();
    const OrderPtr lonely = set("a");
    submit(session_, lonely);
    const Outcome outcome = lonely->wait();
    EXPECT_EQ(outcome.fault.error.code, Errc::no_quorum);
    EXPECT_EQ(outcome.fault.error.causes.size(), 2U);
    for (const Error& cause : outcome.fault.error.causes) EXPECT_FALSE(cause.node.empty());
}

TEST_F(AnEngineForSeveralMasters, takes_an_order_back_that_is_abandoned) {
    reach_all();
    for (Proxy& proxy : proxies_) proxy.hold_replies();
    const OrderPtr second = set("b");
    submit(session_, second);
    ASSERT_TRUE(eventually([&] { return count("b") == 3; }));
    bool maybe_executed = false;
    on_engine(session_.engine(), [&] { maybe_executed = session_.engine().abandon(*second); });
    EXPECT_TRUE(maybe_executed);
    for (Proxy& proxy : proxies_) proxy.pass();
    EXPECT_TRUE(eventually([&] { return second->late().size() == 3; }));
    EXPECT_EQ(second->times_told(), 0);
    EXPECT_TRUE(eventually([&] { return second.use_count() == 1; }));
}

/// More than a link has unanswered at a time: what comes behind them waits for its turn at each master.
TEST_F(AnEngineForSeveralMasters, give_an_order_that_waits_behind_others_its_time_anew) {
    reach_all();
    for (Proxy& proxy : proxies_) proxy.hold_replies();
    std::vector<OrderPtr> before;
    for (int i = 0; i < 1024; ++i) before.push_back(order({"EXISTS", "a"}));
    const OrderPtr patient = set("a");
    const OrderPtr strict = set("b");
    patient->time = {detail::saturating_add(Clock::now(), 500ms),
                     detail::saturating_add(Clock::now(), generous_limit)};
    strict->time = detail::saturating_add(Clock::now(), 500ms);
    on_engine(session_.engine(), [&] {
        for (const OrderPtr& each : before) session_.engine().submit(each);
        session_.engine().submit(patient);
        session_.engine().submit(strict);
    });
    const Outcome outcome = strict->wait();
    EXPECT_EQ(outcome.fault.error.code, Errc::no_quorum);
    EXPECT_FALSE(outcome.fault.maybe_executed);
    for (const Error& cause : outcome.fault.error.causes) {
        EXPECT_EQ(cause.message, "too much was to be sent before it");
    }
    EXPECT_FALSE(patient->is_told());
    for (Proxy& proxy : proxies_) proxy.pass();
    EXPECT_EQ(patient->wait().value, "1");
    EXPECT_EQ(count("b"), 0);
}

TEST_F(AnEngineForSeveralMasters, counts_answers_that_came_while_its_thread_was_busy) {
    constexpr auto timeout = 2s;
    detail::Session hurried{
        setup_for({proxies_[0].uri(), proxies_[1].uri(), proxies_[2].uri()}, timeout)};
    ASSERT_TRUE(eventually([&] {
        answer(hurried, set("first"));
        return count("first") == 3;
    }));
    for (Proxy& proxy : proxies_) proxy.hold_replies();
    const OrderPtr second = set("b");
    submit(hurried, second);
    ASSERT_TRUE(eventually([&] { return count("b") == 3; }));
    on_engine(hurried.engine(), [&] {
        for (Proxy& proxy : proxies_) proxy.pass();
        std::this_thread::sleep_for(timeout + 1s);
    });
    EXPECT_EQ(second->wait().value, "1");
}

TEST_F(AnEngineForSeveralMasters, closes_with_orders_under_way) {
    reach_all();
    for (Proxy& proxy : proxies_) proxy.hold_replies();
    const OrderPtr second = set("b");
    submit(session_, second);
    session_.engine().close();
    EXPECT_EQ(second->wait().fault.error.code, Errc::cancelled);
    EXPECT_EQ(second->times_told(), 1);
    EXPECT_EQ(second.use_count(), 1);
}

TEST_F(AnEngineForSeveralMasters,
       does_not_know_what_became_of_an_order_that_no_majority_has_answered) {
    reach_all();
    for (Proxy& proxy : proxies_) proxy.hold_replies();
    const OrderPtr second = set("b");
    submit(session_, second);
    ASSERT_TRUE(eventually([&] { return count("b") == 3; }));
    session_.engine().close();
    EXPECT_TRUE(second->wait().fault.maybe_executed);
}

}  // namespace
