// rediss+sentinel:// and rediss+cluster://: TLS to the Sentinels and to every server they lead to.

#include "async_tools.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/authority.hpp"
#include "support/cluster.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/sentinels.hpp"
#include <redlatch/core/slot.hpp>
#include <redlatch/tls.hpp>

#include <gtest/gtest.h>

#include <deque>
#include <string>

namespace redlatch::test {
namespace {

class TlsTopology : public ::testing::Test {
protected:
    /// All servers show a certificate for these names.
    ServerTls with(const std::string& names = "IP:127.0.0.1") {
        return {authority_.issue(names), authority_.file()};
    }

    ClientOptions options(const std::string& uri, const std::string& server_name = {}) const {
        ClientOptions options = options_for(uri, 10s);
        options.tls = tls({.ca_file = authority_.file(), .server_name = server_name});
        return options;
    }

    Authority authority_;
};

bool extends(Held& held) {
    Outcome<void> extended;
    held.async_extend(40s, extended.callback());
    return extended.get().has_value();
}

/// Two clients take turns: by a grant, and so by messages.
void take_turns(Client& client, Client& other, const std::string& name, RawRedis redis) {
    Held held = Lock<Watchdog<Reentrant>>{client, name}.acquire({.wait = 30s}).value();
    auto waiter = in_background([&] {
        return Lock<Watchdog<Reentrant>>{other, name}.acquire({.wait = 60s});
    });
    ASSERT_TRUE(eventually([&] { return redis.exists("redlatch:queue:{" + name + "}"); }));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

/// The same without a thread that waits.
void take_turns_without_threads(Client& client, Client& other, const std::string& name) {
    Lock<Watchdog<Reentrant>> lock{client, name};
    Lock<Watchdog<Reentrant>> theirs{other, name};
    Held held = take(lock);
    Outcome<Held> waiting;
    theirs.async_acquire({.wait = 60s}, {}, waiting.callback());
    Outcome<Release> released;
    held.async_release(released.callback());
    EXPECT_TRUE(is_outcome(released.get(), Release::released));
    Result<Held> next = waiting.get();
    ASSERT_TRUE(succeeds(next));
    EXPECT_TRUE(extends(*next));
}

TEST_F(TlsTopology, a_failover_under_sentinel_is_followed) {
    SentinelGroup group{{.tls = with(), .sentinels = 1}};
    Client client{options(group.uri())};
    Client other{options(group.uri())};
    take_turns(client, other, "job", RawRedis{group.first()});
    take_turns_without_threads(client, other, "job");
    Held held = Lock<Watchdog<Simple>>{client, "kept", {.replicas = 1}}.acquire().value();
    group.first().kill();
    ASSERT_TRUE(group.master_becomes(group.second().port()));
    EXPECT_TRUE(eventually([&] { return held.extend(30s).has_value(); }));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    take_turns(client, other, "job", RawRedis{group.second()});
    take_turns_without_threads(client, other, "job");
}

TEST_F(TlsTopology, sentinels_may_want_a_user_of_their_own) {
    if (redis_server_version() < redis_6_2) GTEST_SKIP() << "Sentinels have no users before 6.2";
    SentinelGroup group{{.password = "for-data",
                         .sentinel_password = "for-operators",
                         .sentinel_config = {{"user",
                                              "locks on >for-locks resetchannels "
                                              "&+switch-master +subscribe "
                                              "+sentinel|get-master-addr-by-name"}},
                         .tls = with(),
                         .sentinels = 1}};
    ClientOptions right = options(group.uri());
    right.sentinel_user = "locks";
    right.sentinel_password = "for-locks";
    Client client{right};
    ASSERT_TRUE(eventually([&] { return client.ping().has_value(); }));
    const auto listens = [&] {
        RawRedis sentinel{group.sentinel(0).uri()};
        sentinel.auth("for-operators");
        for (const auto& connection : sentinel.client_list()) {
            if (connection.at("user") == "locks" && connection.at("sub") == "1") return true;
        }
        return false;
    };
    EXPECT_TRUE(eventually(listens)) << "for changes of the master";

    Client by_uri{options(group.uri() + "?sentinel_user=locks&sentinel_password=for-locks")};
    EXPECT_TRUE(eventually([&] { return by_uri.ping().has_value(); }));

    ClientOptions wrong = right;
    wrong.sentinel_password = "guessed";
    const auto answer = Client{wrong}.ping();
    ASSERT_TRUE(fails_with(answer, Errc::denied));
    EXPECT_EQ(answer.error().describe().find("guessed"), std::string::npos) << "a secret is shown";
}

TEST_F(TlsTopology, a_certificate_has_to_be_for_what_sentinel_calls_the_master) {
    SentinelGroup group{{.tls = with("DNS:redis.example"), .sentinels = 1}};
    const auto answer = Client{options(group.uri())}.ping();
    ASSERT_TRUE(fails_with(answer, Errc::denied));
    EXPECT_TRUE(speaks_of(answer.error(), "mismatch")) << answer.error().describe();
    EXPECT_TRUE(succeeds(Client{options(group.uri(), "redis.example")}.ping()))
        << "the one name of all servers can be given";
}

TEST_F(TlsTopology, several_masters_each_show_their_certificate) {
    const ServerTls shown = with();
    std::deque<RedisServer> masters;
    for (int i = 0; i < 3; ++i) masters.emplace_back(RedisServerOptions{.tls = shown});
    ClientOptions all = options(masters[0].tls_uri("127.0.0.1"));
    for (const std::size_t i : {1U, 2U}) all.uris.emplace_back(masters[i].tls_uri("127.0.0.1"));
    all.node_timeout = 10s;
    all.longest_lease = 0ms;
    Client client{all};
    Client other{all};
    Held held = Lock<Watchdog<Simple>>{client, "job"}.acquire({.wait = 30s}).value();
    EXPECT_TRUE(fails_with(Lock<Simple>{other, "job"}.acquire({.wait = 0s}), Errc::timed_out));
    EXPECT_TRUE(extends(held));
    take_turns_without_threads(client, other, "another");
    Authority stranger;
    ClientOptions wrong = all;
    wrong.tls = tls({.ca_file = stranger.file()});
    Client mistrusts{wrong};
    EXPECT_TRUE(fails_with(Lock<Simple>{mistrusts, "job"}.acquire({.wait = 0s}), Errc::denied));

    masters[1].kill();
    EXPECT_TRUE(succeeds(held.extend(30s)));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    EXPECT_TRUE(succeeds(Lock<Reentrant>{other, "job"}.acquire({.wait = 30s})));
}

TEST_F(TlsTopology, locks_of_a_cluster_are_found_and_followed) {
    ClusterGroup group{{.tls = with()}};
    Client client{options(group.uri(0))};
    Client other{options(group.uri(5))};
    const auto owner = [](const std::string& name) {
        return ClusterGroup::owner_of(detail::slot_of(name));
    };
    for (const std::string name : {"a", "b", "c", "d", "e"}) {
        take_turns(client, other, name, RawRedis{group.server(owner(name))});
        take_turns_without_threads(client, other, name);
    }

    const std::string name = "moved";
    const std::size_t from = owner(name);
    const std::size_t to = (from + 1) % 3;
    const unsigned slot = detail::slot_of(name);
    Held held = Lock<Watchdog<Simple>>{client, name}.acquire().value();
    group.begin_to_move(slot, from, to);
    group.move_keys(slot, from, to);
    EXPECT_TRUE(succeeds(held.extend(40s))) << "by ASK";
    EXPECT_TRUE(extends(held)) << "by ASK";
    group.finish_move(slot, from, to);
    EXPECT_TRUE(extends(held)) << "by MOVED";
    EXPECT_TRUE(succeeds(held.extend(40s))) << "by MOVED";
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
}

}  // namespace
}  // namespace redlatch::test
