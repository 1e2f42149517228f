// redis+sentinel://: locks on the master of a service, wherever that is.

#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "scripted_server.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/sentinels.hpp"
#include "warnings.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

ClientOptions with_journal(const std::string& uri, const std::shared_ptr<Journal>& journal) {
    ClientOptions options = options_for(uri, 10s);
    options.observer = journal;
    return options;
}

std::string server_name(const RedisServer& server) {
    return "127.0.0.1:" + std::to_string(server.port());
}

/// Whether a client gets an answer; waits for that. A Sentinel has half a second for its own.
bool answers(Client& client) {
    return eventually([&client] { return client.ping().has_value(); });
}

/// What a client is told in the end, once a Sentinel has had the time to answer.
Result<void> told(Client& client) {
    Result<void> answer;
    static_cast<void>(eventually([&] {
        answer = client.ping();
        return code_of(answer) != Errc::unavailable;
    }));
    return answer;
}

/// A look at a server over TCP, as the master may change under a RedisServer's options.
RawRedis look_at(const RedisServer& server) {
    return RawRedis{server.tcp_uri()};
}

/// Whether a client of this process is.
bool is_connected_to(const RedisServer& server) {
    try {
        for (const auto& connection : look_at(server).client_list()) {
            const std::string pid = ":" + std::to_string(::getpid());
            if (connection.at("name").ends_with(pid)) return true;
        }
        return false;
    } catch (const std::runtime_error&) {
        return true;  // Sentinel has ended the look
    }
}

TEST(SentinelDiscovery, finds_the_master_as_long_as_one_sentinel_answers) {
    SentinelGroup group;
    Client client{options_for(group.uri(), 10s)};
    ASSERT_TRUE(answers(client));
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock());
    EXPECT_TRUE(look_at(group.first()).exists("job"));

    group.sentinel(0).kill();
    group.sentinel(1).freeze();
    Client another{options_for(group.uri(), 10s)};
    EXPECT_TRUE(answers(another));
    EXPECT_TRUE(eventually([&] {
        look_at(group.first()).command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
        const Stopwatch watch;
        return another.ping() && watch.elapsed() < 500ms;
    })) << "the frozen one was asked first again";

    group.sentinel(2).kill();
    Client blind{options_for(group.uri(), 3s)};
    const auto answer = blind.ping();
    ASSERT_TRUE(fails_with(answer, Errc::unavailable));
    EXPECT_TRUE(speaks_of(answer.error(), "no Sentinel names the master"));
    EXPECT_EQ(answer.error().causes.size(), 3U) << answer.error().describe();
}

TEST(SentinelDiscovery, says_that_the_service_is_unknown) {
    RedisServer master{{.tcp = true}};
    Sentinel sentinel{master.port(), 1};
    const std::string base = "redis+sentinel://" + sentinel.address();
    Client right{options_for(base + "/mymaster", 10s)};
    ASSERT_TRUE(eventually([&] { return right.ping().has_value(); }));
    Client wrong{options_for(base + "/yours", 10s)};
    const auto answer = told(wrong);
    ASSERT_TRUE(fails_with(answer, Errc::invalid_argument));
    EXPECT_TRUE(speaks_of(answer.error(), "no service 'yours'")) << answer.error().describe();
    Lock<Simple> lock{wrong, "job"};
    EXPECT_TRUE(is_error(thrown_by([&] { lock.lock(); }), Errc::invalid_argument))
        << "no use to wait for";
}

TEST(SentinelDiscovery, says_how_the_uri_begins_where_a_sentinel_is_taken_for_the_master) {
    RedisServer master{{.tcp = true}};
    Sentinel sentinel{master.port(), 1};
    for (const std::string scheme : {"redis://", "redis+cluster://"}) {
        SCOPED_TRACE(scheme);
        Client client{options_for(scheme + sentinel.address(), 10s)};
        const auto answer = told(client);
        ASSERT_TRUE(fails_with(answer, Errc::protocol));
        EXPECT_TRUE(speaks_of(answer.error(), "redis+sentinel://")) << answer.error().describe();
        const auto held = Lock<Simple>{client, "job"}.acquire();
        ASSERT_TRUE(fails_with(held, Errc::protocol)) << "no use to wait for";
        EXPECT_TRUE(speaks_of(held.error(), "redis+sentinel://")) << held.error().describe();
    }
}

TEST(SentinelDiscovery, does_not_take_a_replica_for_the_master) {
    RedisServer master{{.tcp = true}};
    RedisServer replica{
        {.tcp = true, .config = {{"replicaof", "127.0.0.1 " + std::to_string(master.port())}}}};
    Sentinel sentinel{replica.port(), 5};  // has been told a wrong one, and can not change it
    Client client{options_for("redis+sentinel://" + sentinel.address() + "/mymaster", 500ms)};
    std::optional<Error> error;
    ASSERT_TRUE(eventually([&] {
        const auto answer = client.ping();
        if (!answer && speaks_of(answer.error(), "replica")) error = answer.error();
        return error.has_value();
    }));
    EXPECT_TRUE(is_error(error, Errc::unavailable));
    EXPECT_EQ(error->node, server_name(replica));
}

TEST(SentinelDiscovery, logs_in_to_sentinels_and_master_apart) {
    SentinelGroup group{
        {.password = "for-data", .sentinel_password = "for-sentinels", .sentinels = 1}};
    ClientOptions options = options_for(group.uri(), 10s);
    const auto told_with = [](const ClientOptions& given) {
        Client client{given};
        return told(client);
    };
    EXPECT_TRUE(fails_with(told_with(options), Errc::denied));
    options.sentinel_password = "for-sentinels";
    EXPECT_TRUE(succeeds(told_with(options)));
    Client by_uri{options_for(group.uri() + "?sentinel_password=for%2Dsentinels", 10s)};
    EXPECT_TRUE(answers(by_uri));
    Lock<Simple> lock{by_uri, "job"};
    EXPECT_TRUE(lock.try_lock());

    options.sentinel_password = "guessed";
    const auto answer = told_with(options);
    ASSERT_TRUE(fails_with(answer, Errc::denied));
    EXPECT_EQ(answer.error().describe().find("guessed"), std::string::npos) << "a secret is shown";
}

/// A Sentinel that always names the same server.
class FixedSentinel {
public:
    explicit FixedSentinel(std::uint16_t port) : port_(std::to_string(port)) {}
    std::string place() const { return server_.place(); }

private:
    std::string port_;
    ScriptedServer server_{[this](const auto& command, const auto&) {
        if (command.front() != "SENTINEL") {
            return ScriptedServer::of_handshake(command).value_or("-ERR unknown\r\n");
        }
        return "*2\r\n" + ScriptedServer::bulk("127.0.0.1") + ScriptedServer::bulk(port_);
    }};
};

TEST(SentinelDisagreement, is_settled_by_the_servers_where_one_is_a_replica) {
    RedisServer master{{.tcp = true}};
    RedisServer replica{
        {.tcp = true, .config = {{"replicaof", "127.0.0.1 " + std::to_string(master.port())}}}};
    const FixedSentinel outdated{replica.port()};
    const FixedSentinel right{master.port()};
    const std::string sentinels = outdated.place() + "," + right.place();
    Client client{options_for("redis+sentinel://" + sentinels + "/mymaster", 10s)};
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(succeeds(lock.acquire({.wait = 0s}))) << "at the first try";
}

// Its word is out of date, and the address has gone to somebody else.
TEST(SentinelDisagreement, is_settled_where_one_names_another_service) {
    RedisServer master{{.tcp = true}};
    RedisServer another{{.tcp = true, .password = "of its own"}};
    Sentinel sentinel{master.port(), 1};
    const ScriptedServer outdated{[&](const auto& command, const auto&) -> std::string {
        if (command.front() != "SENTINEL")
            return ScriptedServer::of_handshake(command).value_or("-ERR unknown command\r\n");
        return "*2\r\n" + ScriptedServer::bulk("127.0.0.1") +
               ScriptedServer::bulk(std::to_string(another.port()));
    }};
    Client client{options_for(
        "redis+sentinel://" + outdated.place() + "," + sentinel.address() + "/mymaster", 10s)};
    EXPECT_TRUE(fails_with(client.ping(), Errc::denied));
    EXPECT_TRUE(answers(client));
}

TEST(SentinelDisagreement, is_settled_where_one_names_a_server_that_is_gone) {
    RedisServer master{{.tcp = true}};
    RedisServer gone{{.tcp = true}};
    const FixedSentinel outdated{gone.port()};
    const FixedSentinel right{master.port()};
    gone.kill();
    const std::string sentinels = outdated.place() + "," + right.place();
    Client client{options_for("redis+sentinel://" + sentinels + "/mymaster", 2s)};
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(succeeds(lock.acquire({.wait = 20s})));
}

/// Sentinels that say what a test wants, and two servers that could both be the master. The client has an idle
/// connection to the first one, which goes on as if nothing were.
class SentinelWatching : public ::testing::Test {
protected:
    struct Sentinel {
        std::atomic<const RedisServer*> names;
        bool may_listen = true;
        std::atomic<bool> is_silent = false;
        std::atomic<bool> is_closed = false;  // to whom comes anew
        std::atomic<int> refused = 0;
        std::atomic<int> asked = 0;  // to be listened to, and from then on over that connection
        ScriptedServer server{[this](const auto& command, const auto& received) {
            return is_silent ? std::string{} : answer(command, received);
        }};

        std::string answer(const ScriptedServer::Words& command,
                           const ScriptedServer::Words& received) {
            const bool subscribed = std::ranges::find(received, "SUBSCRIBE") != received.end();
            if (subscribed) ++asked;
            if (is_closed) {
                ++refused;
                return "-NOAUTH Authentication required.\r\n";
            }
            if (command.front() == "SENTINEL") {
                return "*2\r\n" + ScriptedServer::bulk("127.0.0.1") +
                       ScriptedServer::bulk(std::to_string(names.load()->port()));
            }
            if (command.front() == "SUBSCRIBE") {
                return may_listen ? "*3\r\n" + ScriptedServer::bulk("subscribe") +
                                        ScriptedServer::bulk("+switch-master") + ":1\r\n"
                                  : "-NOPERM this user has no permissions to access one of the "
                                    "channels used as arguments\r\n";
            }
            return ScriptedServer::of_handshake(command).value_or("-ERR unknown\r\n");
        }
    };

    Client client() {
        ClientOptions options = options_for(
            "redis+sentinel://" + first_.server.place() + "," + second_.server.place() + "/svc",
            2s);
        options.observer = warnings_;
        return Client{options};
    }
    [[nodiscard]] bool takes_locks_at(Client& client, const RedisServer& server) {
        RawRedis redis{server};
        return eventually([&] {
            const auto held = Lock<Simple>{client, "job"}.acquire();
            return held && redis.exists("job");
        });
    }

    RedisServer deposed_{{.tcp = true}};
    RedisServer master_{{.tcp = true}};
    Sentinel first_{.names = &deposed_};
    Sentinel second_{.names = &master_};
    std::shared_ptr<Warnings> warnings_ = std::make_shared<Warnings>();
};

TEST_F(SentinelWatching, goes_on_at_another_sentinel_where_one_has_fallen_silent) {
    Client client = this->client();
    ASSERT_TRUE(takes_locks_at(client, deposed_));
    ASSERT_TRUE(eventually([&] { return first_.asked > 1; })) << "it is asked whether it is there";
    first_.is_silent = true;
    EXPECT_TRUE(takes_locks_at(client, master_));
    EXPECT_TRUE(warnings_->all().empty());
}

TEST_F(SentinelWatching, goes_on_soon_where_all_have_denied_it_for_a_moment) {
    Client client = this->client();
    ASSERT_TRUE(takes_locks_at(client, deposed_));
    ASSERT_TRUE(eventually([&] { return first_.asked > 1; }));
    first_.is_closed = second_.is_closed = true;
    ASSERT_TRUE(eventually([&] { return first_.refused > 1 && second_.refused > 1; }));
    first_.names = &master_;
    first_.is_closed = second_.is_closed = false;
    EXPECT_TRUE(takes_locks_at(client, master_));
}

TEST_F(SentinelWatching, asks_from_time_to_time_where_an_acl_forbids_to_listen) {
    first_.may_listen = false;
    Client client = this->client();
    ASSERT_TRUE(takes_locks_at(client, deposed_));
    ASSERT_TRUE(eventually([&] { return first_.asked > 1; }));
    first_.names = &master_;
    EXPECT_TRUE(takes_locks_at(client, master_));
    ASSERT_TRUE(eventually([&] { return warnings_->all().size() == 1; }));
    EXPECT_NE(warnings_->all().front().message.find("&+switch-master"), std::string::npos);
    EXPECT_EQ(warnings_->all().front().node, first_.server.place());
}

TEST_F(SentinelWatching, leaves_no_master_for_what_an_outdated_sentinel_says_again_and_again) {
    first_.may_listen = false;
    Client client = this->client();
    ASSERT_TRUE(takes_locks_at(client, deposed_));
    ASSERT_TRUE(eventually([&] { return first_.asked > 1; }));
    RawRedis{deposed_}.command({"REPLICAOF", "127.0.0.1", std::to_string(master_.port())});
    ASSERT_TRUE(takes_locks_at(client, master_)) << "by what the servers say";
    RawRedis redis{master_};
    ASSERT_TRUE(
        eventually([&] { return redis.info("replication").at("connected_slaves") == "1"; }));
    const auto connections = redis.info("stats").at("total_connections_received");
    const int asked = first_.asked;
    ASSERT_TRUE(eventually([&] { return first_.asked > asked + 2; }));
    EXPECT_TRUE(succeeds(Lock<Simple>{client, "job"}.acquire()));
    EXPECT_EQ(redis.info("stats").at("total_connections_received"), connections);
}

TEST(DistantSentinels, are_reached_however_many_there_are) {
    SentinelGroup group{{.sentinels = 1}};
    std::vector<std::unique_ptr<Proxy>> links;
    std::string uri = "redis+sentinel://";
    for (int i = 0; i < 5; ++i) {
        const std::string sentinel = "redis://" + group.sentinel(0).address();
        links.push_back(std::make_unique<Proxy>(sentinel, ProxyOptions{.tcp = true}));
        links.back()->delay(50ms);  // each way
        uri +=
            (i == 0 ? "" : ",") + links.back()->uri().substr(std::string_view{"redis://"}.size());
    }
    Client client{ClientOptions{.uris = {uri + "/mymaster"}}};
    EXPECT_TRUE(succeeds(Lock<>{client, "job"}.acquire({.wait = generous_limit})));
}

/// A lock that is held and renewed, one that somebody waits for, and a failover.
class SentinelFailover : public ::testing::Test {
protected:
    SentinelGroup group_{{.sentinels = 1}};
    std::shared_ptr<Journal> journal_ = std::make_shared<Journal>();
    Client client_{with_journal(group_.uri(), journal_)};
    Client other_{options_for(group_.uri(), 10s)};
};

TEST_F(SentinelFailover, holders_go_on_where_their_key_got_across) {
    // Outlasts a failover on a busy machine.
    Lock<Watchdog<Reentrant>> lock{client_, "job", {.lease = 5min}};
    Held held = lock.acquire().value();
    ASSERT_TRUE(eventually([&] { return !look_at(group_.second()).hgetall("job").empty(); }));
    group_.first().kill();
    ASSERT_TRUE(group_.master_becomes(group_.second().port()));
    EXPECT_TRUE(succeeds(held.extend(5min)));
    EXPECT_FALSE((Lock<Watchdog<Reentrant>>{other_, "job"}.try_lock()));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    EXPECT_TRUE(look_at(group_.second()).keys().empty());
}

TEST_F(SentinelFailover, holders_learn_whether_their_key_was_left_behind) {
    const LockOptions replicated{.lease = 5min, .replicas = 1};  // longer than a failover
    Held kept = Lock<Watchdog<Simple>>{client_, "kept", replicated}.acquire().value();
    // From here on the replica is deaf.
    group_.second().freeze();
    look_at(group_.first()).command({"CLIENT", "KILL", "TYPE", "replica"});
    Client hasty{options_for(group_.uri(), 3s)};
    ASSERT_TRUE(answers(hasty));
    EXPECT_TRUE(fails_with(Lock<Simple>{hasty, "refused", replicated}.acquire({.wait = 0s}),
                           Errc::not_replicated));
    Held held = Lock<Watchdog<Simple>>{client_, "job", {.lease = 20s}}.acquire().value();
    const std::stop_token lost = held.lost();
    group_.first().kill();
    group_.second().thaw();
    ASSERT_TRUE(group_.master_becomes(group_.second().port()));
    EXPECT_TRUE(fires(lost)) << "by the next renewal";
    EXPECT_FALSE(held.held());
    Held taken = Lock<Simple>{other_, "job"}.acquire({.wait = 30s}).value();
    EXPECT_TRUE(taken.held());

    EXPECT_TRUE(succeeds(kept.extend(5min)));
    EXPECT_FALSE(kept.lost().stop_requested());
    EXPECT_FALSE((Lock<Simple>{other_, "kept"}.try_lock()));
    EXPECT_TRUE(is_outcome(kept.release(), Release::released));
}

TEST_F(SentinelFailover, takes_no_lock_along_that_a_replica_has_acknowledged) {
    // A replica that has just come counts only after its first acknowledgement.
    ASSERT_TRUE(succeeds(Lock<Simple>{client_, "first", {.replicas = 1}}.acquire({.wait = 30s})));
    std::vector<std::pair<std::string, Held>> all;
    std::atomic<std::size_t> taken{0};
    auto taker = in_background([&] {
        for (;;) {
            const std::string name = "job" + std::to_string(taken);
            auto held =
                Lock<Simple>{client_, name, {.lease = 60s, .replicas = 1}}.acquire({.wait = 0s});
            if (!held) return;
            all.emplace_back(name, *std::move(held));
            ++taken;
        }
    });
    ASSERT_TRUE(eventually([&] { return taken >= 50; }));
    group_.first().kill();  // in the middle of one of them
    ASSERT_TRUE(finishes(taker));
    ASSERT_TRUE(group_.master_becomes(group_.second().port()));
    RawRedis master = look_at(group_.second());
    for (const auto& [name, held] : all) {
        EXPECT_TRUE(held.held());
        EXPECT_EQ(master.get(name), held.token()) << name;
    }
}

TEST_F(SentinelFailover, waiters_go_on_and_are_served_by_the_new_master) {
    Held held = Lock<Simple>{client_, "job", {.lease = 60s}}.acquire().value();
    auto waiter = in_background([&] {
        return Lock<Simple>{other_, "job", {.lease = 60s}}.acquire({.wait = 60s});
    });
    ASSERT_TRUE(
        eventually([&] { return look_at(group_.second()).exists("redlatch:queue:{job}"); }));
    group_.first().kill();
    ASSERT_TRUE(group_.master_becomes(group_.second().port()));
    EXPECT_TRUE(stays([&] { return waiter.wait_for(0s) != std::future_status::ready; }, 300ms));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(waiter, 30s));
    const auto result = waiter.get();
    ASSERT_TRUE(succeeds(result));
    EXPECT_TRUE(look_at(group_.second()).exists("job"));
}

TEST_F(SentinelFailover, of_a_frozen_master_leaves_nobody_with_it) {
    Client client{options_for(group_.uri(), 3s)};
    Client other{options_for(group_.uri(), 3s)};
    Lock<Watchdog<Simple>> lock{client, "job", {.lease = 3s}};
    Held held = lock.acquire().value();
    const std::string channel = "redlatch:client:" + held.token().substr(0, held.token().find(':'));
    auto waiter = in_background([&] { return Lock<Simple>{other, "job"}.acquire({.wait = 60s}); });
    ASSERT_TRUE(
        eventually([&] { return look_at(group_.second()).exists("redlatch:queue:{job}"); }));
    group_.first().freeze();
    ASSERT_TRUE(group_.master_becomes(group_.second().port()));
    // The key went across, or the lease ends there: one of the two has it in the end.
    static_cast<void>(held.release());
    ASSERT_TRUE(finishes(waiter, 30s));
    Result<Held> taken = waiter.get();
    ASSERT_TRUE(succeeds(taken));
    EXPECT_TRUE(look_at(group_.second()).exists("job"));

    // The next waiter is told, not only woken by its own re-checks. The other client need not listen any more.
    auto next = in_background([&] { return Lock<Simple>{client, "job"}.acquire({.wait = 60s}); });
    ASSERT_TRUE(eventually([&] {
        const RawReply channels =
            look_at(group_.second()).command({"PUBSUB", "CHANNELS", "redlatch:*"});
        return std::ranges::any_of(channels.elements,
                                   [&](const RawReply& one) { return one.text == channel; });
    })) << "it listens at the new master";
    EXPECT_TRUE(is_outcome(taken->release(), Release::released));
    ASSERT_TRUE(finishes(next));
    EXPECT_TRUE(succeeds(next.get()));
    group_.first().thaw();
}

TEST_F(SentinelFailover, that_was_asked_for_moves_all_connections) {
    std::vector<std::future<bool>> all;
    std::atomic<bool> stop{false};
    std::atomic<int> sections{0};
    for (Client* client : {&client_, &other_, &client_, &other_}) {
        all.push_back(in_background([client, &stop, &sections] {
            Lock<Watchdog<Reentrant>> lock{*client, "job", {.lease = 2s}};
            while (!stop) {
                auto held = lock.acquire({.wait = 30s});
                if (!held) return false;
                ++sections;
            }
            return true;
        }));
    }
    ASSERT_TRUE(eventually([&] { return sections > 50; }));
    ASSERT_TRUE(group_.switch_master());
    const int before = sections;
    EXPECT_TRUE(eventually([&] { return sections > before + 50; }));
    stop = true;
    for (auto& one : all) {
        ASSERT_TRUE(finishes(one, 60s));
        EXPECT_TRUE(one.get());
    }
    EXPECT_TRUE(eventually([&] { return !is_connected_to(group_.first()); }))
        << "nothing of ours stays with the old master";
}

}  // namespace
}  // namespace redlatch::test
