// redis+cluster://: each lock on the master of its slot, wherever that is.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "cluster_tools.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "scripted_server.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/socket.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace redlatch::test {
namespace {

using detail::slot_of;

/// Outlasts a busy machine's pauses while it is renewed.
constexpr std::chrono::milliseconds renewed_lease = 6s;

/// Whether a call is refused with these words. It is made anew where no answer came in time.
template <class Call>
testing::AssertionResult is_refused(const Call& call, std::string_view words) {
    const Stopwatch watch;
    for (;;) {
        const auto answer = call();
        const auto refused = fails_with(answer, Errc::unavailable);
        if (!refused || speaks_of(answer.error(), words)) return refused;
        if (watch.elapsed() > generous_limit) {
            return testing::AssertionFailure() << answer.error().describe();
        }
    }
}

class Cluster : public ::testing::Test {
protected:
    RawRedis look_at(std::size_t i) { return RawRedis{group_.server(i).tcp_uri()}; }

    /// Somebody in the queue of a lock, as its master sees it.
    [[nodiscard]] bool queues(std::size_t master, const std::string& name) {
        RawRedis redis = look_at(master);
        return eventually([&] { return redis.exists("redlatch:queue:{" + name + "}"); });
    }

    /// How often the masters have told clients the map so far.
    [[nodiscard]] long long asked_for_the_map() {
        long long sum = 0;
        for (std::size_t i = 0; i < 3; ++i) sum += look_at(i).command_calls("cluster|slots");
        return sum;
    }

    ClusterGroup group_;
    Client client_{options_for(group_.uri(0), 10s)};
    Client other_{options_for(group_.uri(4), 10s)};  // a replica tells the map as well
};

TEST_F(Cluster, takes_waits_for_and_grants_locks_on_every_master) {
    ASSERT_TRUE(succeeds(client_.ping()));
    ASSERT_TRUE(succeeds(other_.ping()));
    for (const std::size_t master : {0U, 1U, 2U}) {
        const std::string name = name_on(master);
        SCOPED_TRACE(name);
        Lock<Watchdog<Reentrant>> lock{client_, name, {.lease = renewed_lease}};
        Held held = lock.acquire().value();
        EXPECT_TRUE(look_at(master).exists(name));
        EXPECT_FALSE((Lock<Watchdog<Reentrant>>{other_, name}.try_lock()));
        for (int turn = 0; turn < 3; ++turn) {
            auto waiter = in_background([&] {
                return Lock<Watchdog<Reentrant>>{other_, name}.acquire({.wait = 30s});
            });
            ASSERT_TRUE(queues(master, name));
            EXPECT_TRUE(is_outcome(held.release(), Release::released));
            ASSERT_TRUE(finishes(waiter));
            ASSERT_TRUE(succeeds(waiter.get()));  // and released again
            held = lock.acquire({.wait = 30s}).value();
        }
        EXPECT_TRUE(is_renewed(held));
    }
    EXPECT_TRUE(succeeds((Lock<Simple>{client_, "{tag}x"}.acquire())));
}

TEST_F(Cluster, is_found_as_long_as_one_node_of_the_uri_answers) {
    const std::string port = std::to_string(group_.server(2).port());
    group_.server(0).freeze();
    group_.server(4).kill();
    const std::string dead = std::to_string(group_.server(4).port());
    Client client{options_for(group_.uri(0) + ",127.0.0.1:" + dead + ",127.0.0.1:" + port, 10s)};
    Lock<Simple> lock{client, name_on(2)};
    EXPECT_TRUE(lock.try_lock()) << "at the first try";
    group_.server(0).thaw();
    Client blind{options_for("redis+cluster://127.0.0.1:" + dead, 500ms)};
    EXPECT_TRUE(fails_with(blind.ping(), Errc::unavailable));
}

TEST_F(Cluster, whose_node_is_taken_for_a_single_master_says_how_its_uri_begins) {
    Client client{options_for(group_.server(0).tcp_uri(), 10s)};
    Lock<Simple> lock{client, name_on(1)};
    std::promise<Result<Held>> asynchronous;
    lock.async_acquire({}, {}, [&](Result<Held> held) { asynchronous.set_value(std::move(held)); });
    const Error told = asynchronous.get_future().get().error();
    for (const auto& refused : {told, lock.acquire({.wait = 0s}).error()}) {
        EXPECT_EQ(refused.code, Errc::protocol);
        EXPECT_TRUE(speaks_of(refused, "MOVED ")) << refused.describe();
        EXPECT_TRUE(speaks_of(refused, "redis+cluster://")) << refused.describe();
    }
}

TEST_F(Cluster, refuses_names_that_no_slot_keeps_together) {
    for (const std::string name : {"a}b", "}a", "{}a", "{}", "}"}) {
        const auto error = thrown_by([&] { Lock<Simple>{client_, name}; });
        ASSERT_TRUE(is_error(error, Errc::invalid_argument)) << name;
        EXPECT_EQ(error->key, name);
    }
    for (const std::string name : {"{", "a", "{a}", "x{a}y", "a{", "a{b", "a}b{c}"}) {
        EXPECT_TRUE(succeeds(Lock<Simple>{client_, name}.acquire())) << name;
    }
}

TEST_F(Cluster, a_held_lock_survives_the_move_of_its_slot) {
    const std::string name = name_on(0);
    const unsigned slot = slot_of(name);
    Lock<Watchdog<Reentrant>> lock{client_, name, {.lease = renewed_lease}};
    Held held = lock.acquire().value();
    auto waiter = in_background([&] {
        return Lock<Watchdog<Reentrant>>{other_, name}.acquire({.wait = 60s});
    });
    ASSERT_TRUE(queues(0, name));

    group_.begin_to_move(slot, 0, 1);
    group_.move_keys(slot, 0, 1);
    EXPECT_TRUE(is_renewed(held)) << "by ASK";
    EXPECT_TRUE(succeeds(held.extend(renewed_lease)));
    group_.finish_move(slot, 0, 1);
    EXPECT_TRUE(is_renewed(held)) << "by MOVED";
    EXPECT_TRUE(look_at(1).exists(name));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

TEST_F(Cluster, waits_while_the_keys_of_a_lock_are_in_two_places) {
    const std::string name = name_on(0);
    const unsigned slot = slot_of(name);
    Lock<Reentrant> lock{client_, name};
    Lock<Simple> another{client_, name_on(0, "another")};
    ASSERT_TRUE(another.try_lock());
    group_.begin_to_move(slot, 0, 1);
    // Once more where a busy node was silent for so long that the map might have been wrong.
    EXPECT_TRUE(eventually([&] {
        const auto journal = std::make_shared<Journal>();
        std::optional<Client> client{options_for(group_.uri(0), 10s, journal)};
        EXPECT_TRUE(succeeds(Lock<Simple>{*client, name_on(1)}.acquire())) << "it has the map";
        Lock<Reentrant> refused{*client, name};
        const long long asked = asked_for_the_map();
        for (int i = 0; i < 2; ++i) {
            EXPECT_TRUE(is_refused([&] { return refused.acquire({.wait = 300ms}); }, "TRYAGAIN"));
        }
        client.reset();  // all events have been told
        return asked_for_the_map() == asked && journal->reconnects() == 0;
    })) << "the map is right, and no server was away";
    another.unlock();
    auto waiter = in_background([&] { return lock.acquire(); });
    EXPECT_FALSE(finishes(waiter, 300ms));
    group_.finish_move(slot, 0, 1);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

TEST_F(Cluster, the_end_of_a_client_releases_a_lock_whose_slot_is_moving) {
    const std::string name = name_on(0);
    const unsigned slot = slot_of(name);
    auto client = std::make_unique<Client>(options_for(group_.uri(0), 20s));
    Held held = Lock<Simple>{*client, name, {.lease = 10min}}.acquire().value();
    group_.begin_to_move(slot, 0, 1);
    auto end = in_background([&] { client.reset(); });
    EXPECT_FALSE(finishes(end, 300ms)) << "TRYAGAIN";
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    EXPECT_TRUE(finishes(end));
    EXPECT_FALSE(look_at(1).exists(name));
}

TEST_F(Cluster, a_release_that_is_only_sent_follows_its_slot) {
    const std::string name = name_on(0);
    const unsigned slot = slot_of(name);
    const auto journal = std::make_shared<Journal>();
    Client client{options_for(group_.uri(0), 20s, journal)};
    Lock<Simple> lock{client, name, {.lease = 10min, .release_mode = ReleaseMode::sent}};
    lock.lock();
    lock.unlock();  // from now on the connection knows the script
    ASSERT_TRUE(eventually([&] { return journal->releases().size() == 1; }));
    lock.lock();
    group_.begin_to_move(slot, 0, 1);
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    lock.unlock();
    EXPECT_TRUE(eventually([&] { return !look_at(1).exists(name); })) << "by a clean-up";
    ASSERT_TRUE(eventually([&] { return journal->releases().size() == 2; }));
    EXPECT_TRUE(fails_with(journal->releases().back(), Errc::unclear));
    const std::vector<Error> errors = journal->errors();
    ASSERT_EQ(errors.size(), 1U) << "the clean-up finds it at once";
    EXPECT_EQ(errors.front().code, Errc::unavailable) << errors.front().describe();
    EXPECT_TRUE(speaks_of(errors.front(), "MOVED")) << errors.front().describe();
}

TEST_F(Cluster, goes_on_after_a_master_died) {
    const std::string name = name_on(2);
    const std::string elsewhere = name_on(0);
    Held there =
        Lock<Watchdog<Simple>>{client_, elsewhere, {.lease = renewed_lease}}.acquire().value();
    // Outlasts a failover on a busy machine.
    Held held = Lock<Watchdog<Simple>>{client_, name, {.lease = 5min}}.acquire().value();
    ASSERT_TRUE(eventually([&] { return look_at(5).command({"DBSIZE"}).integer == 1; }));
    auto waiter = in_background([&] { return Lock<Simple>{other_, name}.acquire({.wait = 60s}); });
    group_.kill(2);
    ASSERT_TRUE(group_.becomes_master(5));
    EXPECT_TRUE(is_renewed(there)) << "the others go on";
    ASSERT_TRUE(eventually([&] { return held.extend(5min).has_value(); }));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(waiter, 30s));
    EXPECT_TRUE(succeeds(waiter.get()));
    EXPECT_TRUE(there.held());
}

// Each attempt to connect to the silent one takes all the time that it has.
TEST_F(Cluster, holds_and_waiters_go_on_at_the_replica_of_a_silent_master) {
    const std::string name = name_on(1);
    Client holder{options_for(group_.uri(0), 1s)};
    Client waiter{options_for(group_.uri(0), 1s)};
    Held held = Lock<Watchdog<Simple>>{holder, name, {.lease = 20s}}.acquire().value();
    Lock<Simple> wanted{waiter, name};
    Outcome<Held> waiting;
    wanted.async_acquire({.wait = 60s}, {}, waiting.callback());
    ASSERT_TRUE(queues(1, name));
    ASSERT_TRUE(eventually([&] { return look_at(4).command({"DBSIZE"}).integer > 0; }));
    group_.silence(1);
    ASSERT_TRUE(group_.becomes_master(4));
    EXPECT_TRUE(is_renewed(held));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    EXPECT_TRUE(waiting.get());
    group_.server(1).thaw();
}

TEST_F(Cluster, a_node_without_slots_is_listened_to_no_more) {
    const std::string name = name_on(0);
    const auto listeners = [&](std::size_t server) {
        return look_at(server).command({"CLIENT", "LIST", "TYPE", "pubsub"}).text.size();
    };
    const auto take_turns_on = [&](std::size_t master) {
        Held held = Lock<Simple>{client_, name}.acquire({.wait = 30s}).value();
        auto waiter = in_background([&] {
            return Lock<Simple>{other_, name}.acquire({.wait = 60s});
        });
        EXPECT_TRUE(queues(master, name));
        EXPECT_TRUE(eventually([&] { return listeners(master) > 0; }));
        EXPECT_TRUE(is_outcome(held.release(), Release::released));
        ASSERT_TRUE(finishes(waiter));
        EXPECT_TRUE(succeeds(waiter.get()));
    };
    take_turns_on(0);
    group_.ask(3, {"CLUSTER", "FAILOVER"});
    ASSERT_TRUE(group_.becomes_master(3));
    take_turns_on(3);
    int others = 0;
    EXPECT_TRUE(eventually([&] {  // the node that is asked for the map may have an old one at first
        const std::string another = name_on(0, "other" + std::to_string(++others) + "-");
        static_cast<void>(Lock<Simple>{other_, another}.acquire({.wait = 0s}));
        return listeners(0) == 0;
    }));
}

TEST_F(Cluster, a_node_without_slots_keeps_no_connection) {
    ClientOptions options = options_for(group_.uri(0), 10s);
    options.client_name = "leaves";
    Client leaving{std::move(options)};
    const auto connections = [&](std::size_t server) {
        const std::string all = look_at(server).command({"CLIENT", "LIST"}).text;
        std::size_t count = 0;
        for (std::size_t at = 0; (at = all.find("name=leaves", at)) != all.npos; ++at) ++count;
        return count;
    };
    const std::string name = name_on(0);
    Lock<> lock{leaving, name, {.lease = renewed_lease}};
    Held renewed = lock.acquire({.wait = 30s}).value();
    EXPECT_TRUE(is_renewed(renewed));
    EXPECT_TRUE(is_outcome(renewed.release(), Release::released));
    EXPECT_TRUE(is_outcome(take(lock, {.wait = 30s}).release(), Release::released));
    EXPECT_GE(connections(0), 3U);  // one of the pool, the renewal's, the engine's
    group_.ask(3, {"CLUSTER", "FAILOVER"});
    ASSERT_TRUE(group_.becomes_master(3));
    int others = 0;
    EXPECT_TRUE(eventually([&] {  // the node that is asked for the map may have an old one at first
        const std::string another = name_on(0, "other" + std::to_string(++others) + "-");
        static_cast<void>(Lock<Simple>{leaving, another}.acquire({.wait = 0s}));
        return connections(0) == 0;
    }));
    EXPECT_TRUE(succeeds(lock.acquire({.wait = 30s})));
}

TEST_F(Cluster, a_frozen_master_starves_nobody_elsewhere) {
    const auto journal = std::make_shared<Journal>();
    Client client{options_for(group_.uri(0), 3s, journal)};
    const auto take = [&client](const std::string& name, Lease lease) {
        return Lock<Watchdog<Simple>>{client, name, {.lease = lease}}.acquire().value();
    };
    // Of those on the frozen one, some are to be renewed again and again, all the time.
    std::vector<Held> frozen;
    for (int i = 1; i <= 12; ++i) {
        frozen.push_back(take(name_on(1, "frozen" + std::to_string(i) + "-"), i * 1500ms));
    }
    std::vector<Held> others;
    for (int i = 0; i < 20; ++i) {
        const std::size_t master = i % 2 == 0 ? 0 : 2;
        others.push_back(take(name_on(master, "other" + std::to_string(i) + "-"), renewed_lease));
    }
    for (std::size_t i = 0; i < 6; ++i) {  // it stays the master
        group_.ask(i, {"CONFIG", "SET", "cluster-node-timeout", "60000"});
    }
    group_.server(1).freeze();
    const auto held = [](const Held& one) { return one.held(); };
    EXPECT_TRUE(
        stays([&] { return std::all_of(others.begin(), others.end(), held); }, 2 * renewed_lease));
    const auto errors = journal->errors();
    const std::string name = "127.0.0.1:" + std::to_string(group_.server(1).port());
    EXPECT_GE(std::count_if(errors.begin(), errors.end(),
                            [&name](const Error& error) { return error.node == name; }),
              3)
        << "the frozen one was asked meanwhile";
    group_.server(1).thaw();
}

/// One node by itself.
class ClusterNode : public ::testing::Test {
protected:
    void serve_all_slots() {
        ASSERT_EQ(redis_.command(add_slots(0, 16384)).text, "OK");
        ASSERT_TRUE(eventually([this] { return redis_.command({"GET", "x"}).is_nil(); }));
    }

    ClusterPorts ports_;
    RedisServer server_{
        {.tcp = true, .port = ports_.data(), .config = {{"cluster-enabled", "yes"}}}};
    RawRedis redis_{server_};
};

TEST_F(ClusterNode, is_waited_for_until_its_slots_are_served) {
    Client client{options_for("redis+cluster://127.0.0.1:" + std::to_string(server_.port()), 10s)};
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(is_refused([&] { return lock.acquire({.wait = 200ms}); }, "CLUSTERDOWN"));
    auto waiter = in_background([&] { return lock.acquire(); });
    serve_all_slots();
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

// Behind redis:// every name works, but not at a server whose slots tear its keys apart.
TEST_F(ClusterNode, that_cannot_keep_a_locks_keys_together_says_so_at_once) {
    serve_all_slots();
    Client client{options_for(server_.uri(), 10s)};
    EXPECT_TRUE(succeeds(Lock<Reentrant>{client, "job"}.acquire()));
    const auto refused = Lock<Reentrant>{client, "a}b"}.acquire();
    ASSERT_TRUE(fails_with(refused, Errc::protocol));
    EXPECT_TRUE(speaks_of(refused.error(), "CROSSSLOT")) << refused.error().describe();
    EXPECT_TRUE(speaks_of(refused.error(), "redis+cluster://")) << refused.error().describe();
    EXPECT_FALSE(redis_.exists("a}b"));
}

TEST_F(Cluster, a_slot_that_nobody_serves_is_waited_for) {
    const std::string name = name_on(0);
    const std::string slot = std::to_string(slot_of(name));
    Client client{
        options_for(group_.uri(0), 3s)};  // for so long an extension is tried again and again
    Held held = Lock<Watchdog<Simple>>{client, name, {.lease = 60s}}.acquire().value();
    group_.ask(0, {"CLUSTER", "DELSLOTS", slot});
    ASSERT_TRUE(is_refused([&] { return held.extend(60s); }, "CLUSTERDOWN"));
    EXPECT_TRUE(held.held()) << "nobody has said that it is lost";
    auto waiter = in_background([&] { return Lock<Simple>{other_, name}.acquire({.wait = 60s}); });
    EXPECT_TRUE(stays([&] { return waiter.wait_for(0s) != std::future_status::ready; }, 300ms));
    group_.ask(0, {"CLUSTER", "ADDSLOTS", slot});
    EXPECT_TRUE(eventually([&] { return held.extend(60s).has_value(); }));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(waiter, 30s));
    EXPECT_TRUE(succeeds(waiter.get()));
}

TEST_F(Cluster, keys_that_are_in_two_places_are_waited_for) {
    const std::string name = name_on(0);
    const unsigned slot = slot_of(name);
    const auto journal = std::make_shared<Journal>();
    Client newcomer{options_for(group_.uri(2), 10s, journal)};
    Held held = Lock<Watchdog<Reentrant>>{client_, name, {.lease = 20s}}.acquire().value();
    const auto has_its_turn = [&name](Client& client) {
        return in_background([&client, &name] {
            return Lock<Reentrant>{client, name}.acquire({.wait = 60s}).has_value();
        });
    };
    auto first = has_its_turn(other_);
    ASSERT_TRUE(queues(0, name));

    group_.begin_to_move(slot, 0, 1);
    group_.move_key("redlatch:queue:{" + name + "}", 0, 1);
    auto second = has_its_turn(newcomer);
    EXPECT_TRUE(eventually([&] {
        const auto errors = journal->errors();
        return std::any_of(errors.begin(), errors.end(),
                           [](const Error& error) { return speaks_of(error, "TRYAGAIN"); });
    }));
    EXPECT_TRUE(held.held());

    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    for (auto* const waiter : {&first, &second}) {
        ASSERT_TRUE(finishes(*waiter));
        EXPECT_TRUE(waiter->get());
    }
}

/// Finds a lock by the map, and follows its slot from master 1 to 2 by ASK and MOVED.
void follow_a_slot(ClusterGroup& group, const std::string& name) {
    SCOPED_TRACE(name);
    const unsigned slot = slot_of(name);
    Client client{options_for(group.uri(0), 10s)};
    Held held = Lock<Watchdog<Reentrant>>{client, name}.acquire({.wait = 0s}).value();
    group.begin_to_move(slot, 1, 2);
    group.move_keys(slot, 1, 2);
    EXPECT_TRUE(succeeds(held.extend(40s))) << "by ASK";
    group.finish_move(slot, 1, 2);
    EXPECT_TRUE(succeeds(held.extend(40s))) << "by MOVED";
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
}

TEST_F(Cluster, may_call_its_nodes_by_names_or_not_at_all) {
    if (redis_server_version() < redis_7) GTEST_SKIP() << "the server knows no names";
    struct Case {
        std::string type;
        std::string hostname;
        std::string
            told;  ///< in place of a host; where there is none, it is the one that was asked
    };
    for (const auto& [type, hostname, told] :
         {Case{"unknown-endpoint", "", ""}, Case{"hostname", "", "?"},
          Case{"hostname", "localhost", "localhost"}}) {
        for (std::size_t i = 0; i < 6; ++i) {
            group_.ask(i, {"CONFIG", "SET", "cluster-preferred-endpoint-type", type,
                           "cluster-announce-hostname", hostname});
        }
        const std::string name = name_on(1, "called " + told);
        ASSERT_TRUE(eventually([&, words = " " + told + ":"] {
            return look_at(0).command({"GET", name}).text.find(words) != std::string::npos;
        }));
        follow_a_slot(group_, name);
    }
}

TEST(ClusterOnIpv6, is_found_and_followed) {
    if (!ipv6_available()) GTEST_SKIP() << "this machine has no IPv6 loopback, ::1";
    ClusterGroup group{{.ipv6 = true}};
    follow_a_slot(group, name_on(1));
}

// --------------------------------------------------------------- nodes that no Cluster would have

/// A node of a Cluster with one master, whose address changes. A node that is not the master says so.
class MovingNode {
public:
    struct Shared {
        std::atomic<std::uint16_t> master{0};
        std::atomic<bool> knows_map{true};
    };

    explicit MovingNode(Shared& shared) : shared_(&shared) {}

    std::uint16_t port() const { return server_.port(); }

    /// How often it was asked for the map.
    int asked() const { return asked_; }

private:
    std::string answer(const ScriptedServer::Words& command) {
        const std::uint16_t master = shared_->master;
        if (command.front() == "CLUSTER") {
            ++asked_;
            if (!shared_->knows_map) return "-ERR not now\r\n";
            return ScriptedServer::slots("127.0.0.1", master);
        }
        if (const auto usual = ScriptedServer::of_handshake(command)) return *usual;
        if (!shared_->knows_map) return "-CLUSTERDOWN not now\r\n";
        if (master == port()) {
            if (command.front() == "SET") return "+OK\r\n";
            constexpr std::size_t words_of_acquire = 14;
            if (command.size() != words_of_acquire) return ":1\r\n";
            return "*5\r\n:1\r\n:30000\r\n:0\r\n:1700000000000000\r\n:0\r\n";
        }
        const std::string& key = command[command.front() == "SET" ? 1 : 3];
        return "-MOVED " + std::to_string(slot_of(key)) + " 127.0.0.1:" + std::to_string(master) +
               "\r\n";
    }

    Shared* shared_;
    std::atomic<int> asked_{0};
    ScriptedServer server_{[this](const auto& command, const auto&) { return answer(command); }};
};

TEST(ClusterThatMoves, has_only_its_present_nodes_asked_for_the_map) {
    MovingNode::Shared shared;
    MovingNode seed{shared};
    std::vector<std::unique_ptr<MovingNode>> masters;
    for (int i = 0; i < 5; ++i) masters.push_back(std::make_unique<MovingNode>(shared));
    shared.master = masters.front()->port();
    Client client{options_for("redis+cluster://127.0.0.1:" + std::to_string(seed.port()), 10s)};
    int names = 0;
    const auto lock_another = [&](std::chrono::milliseconds wait) {
        Lock<Simple> lock{client, "job:" + std::to_string(++names)};
        return lock.acquire({.wait = wait}).has_value();
    };
    const auto asked = [&] {
        int sum = seed.asked();
        for (const auto& master : masters) sum += master->asked();
        return sum;
    };
    for (const auto& master : masters) {
        shared.master = master->port();
        const int told = asked();
        EXPECT_TRUE(eventually([&] { return lock_another(0ms) && asked() > told; }));
    }
    std::vector<int> before;
    for (const auto& master : masters) before.push_back(master->asked());
    shared.knows_map = false;
    EXPECT_TRUE(eventually([&] {
        EXPECT_FALSE(lock_another(500ms));
        return masters.back()->asked() > before.back();
    }));
    for (std::size_t i = 0; i + 1 < masters.size(); ++i) {
        EXPECT_EQ(masters[i]->asked(), before[i]) << "the master number " << i << " is long gone";
    }
    shared.knows_map = true;
    shared.master = masters.front()->port();  // an address that comes back is a node as before
    EXPECT_TRUE(eventually([&] { return lock_another(500ms); }));
}

/// An address at which nothing listens.
std::string nowhere() {
    Address address{.path = {}, .host = "127.0.0.1", .port = 0};
    const UniqueFd closed_at_the_end = bind_to(address);
    return address.host + ":" + std::to_string(address.port);
}

/// What a master that grants everything answers to the commands of a lock.
std::string grants(const ScriptedServer::Words& command) {
    return ScriptedServer::of_handshake(command).value_or(command.front() == "SET" ? "+OK\r\n"
                                                                                   : ":1\r\n");
}

/// What a node of a Cluster says whose slots all belong to the `master`.
std::string says_node(const ScriptedServer& node, std::uint16_t master,
                      const ScriptedServer::Words& command) {
    if (command.front() == "CLUSTER") return ScriptedServer::slots("127.0.0.1", master);
    if (master == node.port()) return grants(command);
    return ScriptedServer::of_handshake(command).value_or(
        "-MOVED 0 127.0.0.1:" + std::to_string(master) + "\r\n");
}

// The address of a node goes to a server that has nothing to do with the Cluster.
TEST(ClusterAddress, of_another_server_by_now_is_left_for_the_one_in_the_map) {
    for (const std::string password : {"", "of its own"}) {
        SCOPED_TRACE(password);
        RedisServer another{{.tcp = true, .password = password}};
        std::atomic<std::uint16_t> master{another.port()};
        const ScriptedServer node{
            [&](const auto& command, const auto&) { return says_node(node, master, command); }};
        Client client{options_for("redis+cluster://" + node.place(), 10s)};
        Lock<Simple> lock{client, "job"};
        Result<Held> refused = Held{};
        EXPECT_TRUE(eventually([&] {  // an answer may come too late
            refused = lock.acquire({.wait = 300ms});
            return code_of(refused) != Errc::unavailable;
        }));
        ASSERT_TRUE(fails_with(refused, password.empty() ? Errc::protocol : Errc::denied));
        master = node.port();
        EXPECT_TRUE(eventually([&] { return lock.acquire({.wait = 300ms}).has_value(); }));
        EXPECT_TRUE(RawRedis{another}.keys().empty()) << "a second holder might be there";
    }
}

// A Redis without a password answers so to whoever is not on its own machine.
TEST(ClusterAddress, of_a_server_in_protected_mode_by_now_is_left_for_the_one_in_the_map) {
    const ScriptedServer another{[](const auto&, const auto&) {
        return std::string{"-DENIED Redis is running in protected mode\r\n"};
    }};
    std::atomic<std::uint16_t> master{another.port()};
    const ScriptedServer node{
        [&](const auto& command, const auto&) { return says_node(node, master, command); }};
    Client client{options_for("redis+cluster://" + node.place(), 10s)};
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(eventually([&] {  // an answer may come too late
        return code_of(lock.acquire({.wait = 300ms})) == Errc::denied;
    }));
    master = node.port();
    EXPECT_TRUE(eventually([&] { return lock.acquire({.wait = 300ms}).has_value(); }));
}

TEST(ClusterAddress, of_servers_that_are_no_cluster_is_refused) {
    RedisServer one{{.tcp = true}};
    RedisServer two{{.tcp = true}};
    const auto address = [](const RedisServer& server) {
        return "127.0.0.1:" + std::to_string(server.port());
    };
    const std::string hosts = address(one) + "," + address(two);
    Client client{options_for("redis+cluster://" + hosts, 10s)};
    for (const Wait wait : {Wait::unlimited(), Wait{1s}}) {
        Result<Held> refused = Held{};
        EXPECT_TRUE(eventually([&] {  // an answer may come too late
            refused = Lock<Simple>{client, "job"}.acquire({.wait = wait});
            return code_of(refused) != Errc::unavailable;
        }));
        ASSERT_TRUE(fails_with(refused, Errc::protocol)) << "no use to wait for";
        EXPECT_TRUE(speaks_of(refused.error(), "no node of a Cluster"))
            << refused.error().describe();
    }
    EXPECT_TRUE(RawRedis{one}.keys().empty());
}

TEST(ClusterMap, that_nobody_tells_is_explained_by_all_that_were_asked) {
    const std::string first = nowhere();
    const std::string second = nowhere();
    const ScriptedServer denying{[](const auto& command, const auto&) -> std::string {
        if (command.front() == "CLUSTER")
            return "-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n";
        return ScriptedServer::of_handshake(command).value_or("-CLUSTERDOWN no slots\r\n");
    }};
    ClientOptions options =
        options_for("redis+cluster://" + first + "," + second + "," + denying.place());
    Client client{options};
    options.connections = Connections::shared;
    Client sharing{options};
    const auto acquire = [](Client& by) {
        return Lock<Simple>{by, "job"}.acquire({.wait = 300ms}).error();
    };
    const auto explains = [&](const Error& error) {
        const std::string text = error.describe();
        const auto tells = [&text](const std::string& what) {
            return text.find(what) != std::string::npos;
        };
        return tells(first) && tells(second) && tells(denying.place()) && tells("cluster|slots");
    };
    // A slow machine asks fewer of them within one such wait.
    EXPECT_TRUE(eventually([&] { return explains(client.ping().error()); }));
    EXPECT_TRUE(eventually([&] { return explains(acquire(client)); }));
    EXPECT_TRUE(eventually([&] { return explains(acquire(sharing)); }))
        << acquire(sharing).describe();
}

TEST(ClusterMap, is_waited_for_by_all_who_need_it_while_one_asks) {
    std::atomic<std::uint16_t> port{0};
    std::atomic<bool> may_tell{false};
    const ScriptedServer server{[&](const auto& command, const auto&) {
        if (command.front() != "CLUSTER") return grants(command);
        EXPECT_TRUE(eventually([&] { return may_tell.load(); }));
        return ScriptedServer::slots("127.0.0.1", port);
    }};
    port = server.port();
    Client client{options_for("redis+cluster://" + nowhere() + "," + server.place(), 40s)};
    std::vector<std::future<Result<Held>>> all;
    for (int i = 0; i < 8; ++i) {
        all.push_back(in_background([&client, i] {
            return Lock<Simple>{client, "job" + std::to_string(i)}.acquire({.wait = 0s});
        }));
    }
    EXPECT_TRUE(stays(
        [&] {
            return std::all_of(all.begin(), all.end(), [](const auto& one) {
                return one.wait_for(0s) != std::future_status::ready;
            });
        },
        200ms));
    may_tell = true;
    for (auto& one : all) {
        ASSERT_TRUE(finishes(one));
        EXPECT_TRUE(succeeds(one.get()));
    }
}

TEST(ClusterMap, is_waited_for_until_the_callers_own_limit_or_stop) {
    std::atomic<bool> over{false};
    const ScriptedServer server{[&](const auto& command, const auto&) {
        if (command.front() != "CLUSTER") return grants(command);
        EXPECT_TRUE(eventually([&] { return over.load(); }));
        return std::string{"-ERR not now\r\n"};
    }};
    Client client{options_for("redis+cluster://" + nowhere() + "," + server.place(), 20s)};
    const auto takes = [&client](const std::string& name, AcquireOptions options) {
        return in_background([&client, name, options] {
            return Lock<Simple>{client, name}.acquire(options);
        });
    };
    auto first = takes("first", {.wait = 0s});
    std::stop_source stop;
    auto cancelled = takes("cancelled", {.stop = stop.get_token()});
    auto hasty = takes("hasty", {.wait = 100ms});
    ASSERT_TRUE(finishes(hasty));
    EXPECT_TRUE(fails_with(hasty.get(), Errc::unavailable));
    stop.request_stop();
    ASSERT_TRUE(finishes(cancelled));
    EXPECT_TRUE(fails_with(cancelled.get(), Errc::cancelled));
    over = true;
    ASSERT_TRUE(finishes(first));
}

/// An answer to CLUSTER SLOTS.
struct ToldRange {
    int first;
    int last;
    std::string host;
    int port;
};
std::string told(const std::vector<ToldRange>& ranges) {
    std::string answer = "*" + std::to_string(ranges.size()) + "\r\n";
    for (const auto& [first, last, host, port] : ranges) {
        answer += "*3\r\n:" + std::to_string(first) + "\r\n:" + std::to_string(last) +
                  "\r\n*2\r\n" + ScriptedServer::bulk(host) + ":" + std::to_string(port) + "\r\n";
    }
    return answer;
}

TEST(ClusterMap, that_contradicts_itself_is_refused_and_the_next_node_asked) {
    const ScriptedServer trap{
        [](const auto&, const auto&) { return std::string{"-ERR trap\r\n"}; }};
    std::atomic<std::uint16_t> port{0};
    const ScriptedServer honest{[&](const auto& command, const auto&) {
        return command.front() == "CLUSTER" ? ScriptedServer::slots("127.0.0.1", port)
                                            : grants(command);
    }};
    port = honest.port();
    const int there = trap.port();
    for (const std::vector<ToldRange>& lie : {
             std::vector<ToldRange>{{0, 16383, "127.0.0.1", there}, {16383, 16383, "127.0.0.1", 1}},
             std::vector<ToldRange>{{0, 16383, "127.0.0.1", there}, {16384, 16384, "127.0.0.1", 1}},
             std::vector<ToldRange>{{0, 16382, "127.0.0.1", there}, {16383, 16382, "127.0.0.1", 1}},
             std::vector<ToldRange>{{0, 16382, "127.0.0.1", there}, {-1, -1, "127.0.0.1", 1}},
             std::vector<ToldRange>{{0, 16382, "127.0.0.1", there}, {16383, 16383, "a b", 1}},
         }) {
        const ScriptedServer liar{[&](const auto& command, const auto&) {
            return command.front() == "CLUSTER" ? told(lie) : grants(command);
        }};
        Client client{options_for("redis+cluster://" + liar.place() + "," + honest.place(), 40s)};
        EXPECT_TRUE(succeeds(Lock<Simple>{client, "job"}.acquire({.wait = 0s})));
    }
}

TEST(ClusterMap, of_as_many_masters_as_slots_holds_nobody_up) {
    std::atomic<std::uint16_t> port{0};
    std::atomic<int> asked{0};
    const ScriptedServer server{[&](const auto& command, const auto&) {
        if (command.front() != "CLUSTER") return grants(command);
        std::vector<ToldRange> ranges;
        const int present = port;
        for (int slot = 0; slot < 16384; ++slot) {
            ranges.push_back({slot, slot, "127.0.0.1", slot % 2 == 0 ? present : slot + 1});
        }
        ++asked;
        return told(ranges);
    }};
    port = server.port();
    Client client{options_for("redis+cluster://" + server.place(), 60s)};
    ASSERT_TRUE(succeeds(client.ping()));
    EXPECT_GT(asked, 0);
    int name = 0;
    while (slot_of("job" + std::to_string(name)) % 2 != 0) ++name;
    EXPECT_TRUE(succeeds(Lock<Simple>{client, "job" + std::to_string(name)}.acquire({.wait = 0s})));
}

TEST(ClusterRedirection, to_a_host_that_cannot_be_one_is_a_protocol_error) {
    const std::vector<std::string> hostile{"a b:6379", "evil\x1b[31m:6379", "\xff:1", "h:0",
                                           std::string(256, 'x') + ":6379"};
    for (const std::string& target : hostile) {
        for (const std::string kind : {"MOVED", "ASK"}) {
            SCOPED_TRACE(kind + " " + target);
            const ScriptedServer server{[&](const auto& command, const auto&) {
                if (command.front() == "CLUSTER") return std::string{"-ERR not now\r\n"};
                const std::string elsewhere = "-" + kind + " 1 " + target + "\r\n";
                return ScriptedServer::of_handshake(command).value_or(elsewhere);
            }};
            Client client{options_for("redis+cluster://" + server.place(), 10s)};
            const auto held = Lock<Simple>{client, "job"}.acquire({.wait = 0s});
            EXPECT_TRUE(fails_with(held, Errc::protocol));
        }
    }
}

/// Text for a log, in one line.
testing::AssertionResult is_printable(const std::string& text) {
    const bool fine =
        std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
    return fine ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
}

TEST(HostNames, from_a_server_are_shown_as_printable_text_or_refused) {
    for (const std::string host : {"evil\r\nlog entry", "\x1b[31mred", "a b", "\xff", "x\0y"}) {
        SCOPED_TRACE(host);
        const ScriptedServer server{[&host](const auto& command, const auto&) {
            const std::string& name = command.front();
            if (name == "CLUSTER") return ScriptedServer::slots(host, 1);
            if (name == "SENTINEL") {
                return "*2\r\n" + ScriptedServer::bulk(host) + ScriptedServer::bulk("1");
            }
            const std::string none = "-CLUSTERDOWN not now\r\n";
            return ScriptedServer::of_handshake(command).value_or(none);
        }};
        for (const std::string& uri : {"redis+cluster://" + server.place(),
                                       "redis+sentinel://" + server.place() + "/service"}) {
            const auto journal = std::make_shared<Journal>();
            Client client{options_for(uri, command_timeout, journal)};
            const auto pinged = client.ping();
            ASSERT_FALSE(pinged.has_value());
            EXPECT_TRUE(is_printable(pinged.error().describe()));
            const auto held = Lock<Simple>{client, "job"}.acquire({.wait = 200ms});
            ASSERT_FALSE(held.has_value());
            EXPECT_TRUE(is_printable(held.error().describe()));
            for (const Error& error : journal->errors()) {
                EXPECT_TRUE(is_printable(error.describe()));
            }
        }
    }
}

}  // namespace
}  // namespace redlatch::test
