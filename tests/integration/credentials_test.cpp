// Passwords that expire: `ClientOptions::credentials`.

#include "fault_tools.hpp"
#include "support/cluster.hpp"
#include "support/process.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/sentinels.hpp"
#include "support/wait.hpp"
#include <redlatch/redlatch.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

/// Where a program would ask for its password.
class Vault {
public:
    explicit Vault(Credentials now) : now_(std::move(now)) {}

    void set(Credentials now) {
        const std::lock_guard lock{mutex_};
        now_ = std::move(now);
    }
    Credentials give() {
        const std::lock_guard lock{mutex_};
        ++asked_;
        return now_;
    }
    int asked() {
        const std::lock_guard lock{mutex_};
        return asked_;
    }

private:
    std::mutex mutex_;
    Credentials now_;
    int asked_ = 0;
};

std::shared_ptr<Vault> vault(std::string user, std::string password) {
    return std::make_shared<Vault>(Credentials{std::move(user), std::move(password)});
}

ClientOptions logging_in(const std::string& uri, const std::shared_ptr<Vault>& vault) {
    return {.uris = {uri}, .connect_timeout = 10s, .command_timeout = 10s, .credentials = [vault] {
                return vault->give();
            }};
}

void drop_connections(RawRedis& raw) {
    raw.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
}

class LogIn : public testing::Test {
protected:
    RedisServer server{{.password = "first"}};
    RawRedis raw{server};
};

TEST_F(LogIn, works_as_the_default_user) {
    const auto secrets = vault("", "first");
    Client client{logging_in(server.uri(), secrets)};
    Lock<Simple> lock{client, "mine"};
    EXPECT_TRUE(lock.try_lock());
    EXPECT_EQ(raw.get("mine").value_or("").empty(), false);
}

TEST_F(LogIn, works_as_a_user_of_the_acl) {
    raw.command({"ACL", "SETUSER", "alice", "on", ">hers", "~*", "+@all"});
    Client client{logging_in(server.uri(), vault("alice", "hers"))};
    EXPECT_TRUE(client.ping());
}

TEST_F(LogIn, with_a_user_and_an_empty_password_is_that_users_or_nobodys) {
    RedisServer open;
    RawRedis admin{open};
    admin.command({"ACL", "SETUSER", "alice", "on", ">hers", "~*", "+@all"});
    admin.command({"ACL", "SETUSER", "bob", "on", "nopass", "~*", "+@all"});
    Client alice{logging_in(open.uri(), vault("alice", ""))};
    const auto refused = alice.ping();
    ASSERT_FALSE(refused) << "as the default user, who needs no password";
    EXPECT_EQ(refused.error().code, Errc::denied);
    Client bob{logging_in(open.uri(), vault("bob", ""))};
    EXPECT_TRUE(bob.ping());
    EXPECT_NE(admin.command({"CLIENT", "LIST"}).text.find("user=bob"), std::string::npos);
}

TEST_F(LogIn, sends_nothing_where_nothing_is_needed) {
    RedisServer open;
    Client client{logging_in(open.uri(), vault("", ""))};
    EXPECT_TRUE(client.ping());
}

TEST_F(LogIn, asks_once_for_all_connections) {
    const auto secrets = vault("", "first");
    Client client{logging_in(server.uri(), secrets)};
    for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(eventually([&] { return client.ping().has_value(); }));
        drop_connections(raw);
    }
    EXPECT_EQ(secrets->asked(), 1);
}

TEST_F(LogIn, asks_again_after_the_password_was_changed) {
    const auto secrets = vault("", "first");
    Client client{logging_in(server.uri(), secrets)};
    Lock<Simple> lock{client, "mine"};
    ASSERT_TRUE(lock.try_lock());
    raw.command({"CONFIG", "SET", "requirepass", "second"});
    secrets->set({"", "second"});
    drop_connections(raw);
    EXPECT_TRUE(lock.release());
    EXPECT_TRUE(lock.try_lock());
    EXPECT_EQ(secrets->asked(), 2);
}

TEST_F(LogIn, asks_again_where_a_user_was_dismissed_in_favour_of_the_default_one) {
    const auto secrets = std::make_shared<std::atomic<int>>(0);
    Client client{{.uris = {server.uri()},
                   .connect_timeout = 10s,
                   .command_timeout = 10s,
                   .credentials = [secrets] {
                       return secrets->fetch_add(1) == 0 ? Credentials{"old-user", "old"}
                                                         : Credentials{"", "first"};
                   }}};
    EXPECT_TRUE(client.ping().has_value());
    EXPECT_EQ(*secrets, 2);
}

TEST_F(LogIn, asks_once_where_something_else_is_denied_than_to_log_in) {
    raw.command({"ACL", "SETUSER", "alice", "on", ">first", "+@all", "-select"});
    const auto secrets = vault("alice", "first");
    Client client{logging_in("unix://" + server.socket_path() + "?db=1", secrets)};
    for (int i = 0; i < 3; ++i) {
        const auto answer = client.ping();
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().code, Errc::denied);
    }
    EXPECT_EQ(secrets->asked(), 1);
}

TEST_F(LogIn, is_denied_at_the_second_refusal) {
    const auto secrets = vault("", "wrong-secret");
    Client client{logging_in(server.uri(), secrets)};
    const auto answer = client.ping();
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::denied);
    EXPECT_EQ(answer.error().describe().find("wrong-secret"), std::string::npos);
    EXPECT_EQ(secrets->asked(), 2);
}

// Many connections are made at once: what one of them was refused another one must not offer again as something new.
TEST_F(LogIn, takes_what_was_refused_once_for_no_second_refusal) {
    for (int round = 0; round < 40; ++round) {
        const auto asked = std::make_shared<std::atomic<int>>(0);
        Client client{{.uris = {server.uri()},
                       .connect_timeout = 10s,
                       .command_timeout = 10s,
                       .credentials = [asked]() -> Credentials {
                           return {"", asked->fetch_add(1) == 0 ? "old" : "first"};
                       }}};
        std::vector<std::future<Result<void>>> pings;
        for (int i = 0; i < 32; ++i) pings.push_back(in_background([&] { return client.ping(); }));
        for (auto& ping : pings) {
            const auto answer = ping.get();
            EXPECT_TRUE(answer) << answer.error().describe();
        }
    }
}

TEST_F(LogIn, takes_an_exception_for_a_fault_and_does_not_quote_it) {
    std::atomic<bool> throws{true};
    Client client{{.uris = {server.uri()}, .credentials = [&throws]() -> Credentials {
                       if (throws) throw std::runtime_error{"the secret is first"};
                       return {"", "first"};
                   }}};
    const auto answer = client.ping();
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::unavailable);
    EXPECT_EQ(answer.error().describe().find("first"), std::string::npos);
    EXPECT_NE(answer.error().describe().find("credentials"), std::string::npos);
    throws = false;
    EXPECT_TRUE(eventually([&] { return client.ping().has_value(); }));
}

TEST_F(LogIn, waits_no_longer_for_a_function_than_for_a_connection) {
    struct Gate {
        std::mutex mutex;
        std::condition_variable opened;
        bool open = false;
        int inside = 0;
    };
    const auto gate = std::make_shared<Gate>();
    {
        Client client{{.uris = {server.uri()},
                       .connect_timeout = 100ms,
                       .credentials = [gate]() -> Credentials {
                           std::unique_lock lock{gate->mutex};
                           ++gate->inside;
                           gate->opened.wait(lock, [&] { return gate->open; });
                           return {"", "first"};
                       }}};
        std::vector<std::thread> callers;
        callers.reserve(4);
        for (int i = 0; i < 4; ++i) {
            callers.emplace_back([&client] {
                const auto answer = client.ping();
                ASSERT_FALSE(answer);
                EXPECT_EQ(answer.error().code, Errc::unavailable);
            });
        }
        for (std::thread& caller : callers) caller.join();
        const auto inside = [&gate] {
            const std::lock_guard lock{gate->mutex};
            return gate->inside;
        };
        EXPECT_TRUE(eventually([&] { return inside() > 0; }));
        EXPECT_EQ(inside(), 1);
    }
    const std::lock_guard lock{gate->mutex};
    gate->open = true;
    gate->opened.notify_all();
}

TEST_F(LogIn, asks_for_itself_in_a_forked_child) {
    const auto secrets = vault("", "first");
    Client client{logging_in(server.uri(), secrets)};
    ChildProcess child{
        [&](LineChannel&) { return client.ping() && secrets->asked() == 1 ? 0 : 1; }};
    EXPECT_EQ(child.wait(), ExitStatus{});
}

TEST_F(LogIn, is_refused_in_two_ways_at_once) {
    const auto refused = [](ClientOptions options) {
        try {
            const Client client{std::move(options)};
        } catch (const LockError& error) {
            EXPECT_EQ(error.error().describe().find("first"), std::string::npos);
            return error.error().code == Errc::invalid_argument;
        }
        return false;
    };
    const auto secrets = vault("", "first");
    EXPECT_TRUE(refused(logging_in("unix://:first@" + server.socket_path(), secrets)));
    EXPECT_TRUE(refused(logging_in("redis://alice@localhost", secrets)));
    EXPECT_TRUE(refused({.factories = {{.connect = [](auto) { return nullptr; }}},
                         .credentials = [] { return Credentials{}; }}));
}

TEST(LogInAtSentinels, is_theirs_and_not_the_masters) {
    SentinelGroup group{{.password = "first", .sentinel_password = "other"}};
    std::string uri = group.uri();
    const std::size_t begin = uri.find("://") + 3;
    const std::size_t at = uri.find('@');
    ASSERT_NE(at, std::string::npos);
    uri.erase(begin, at + 1 - begin);
    ClientOptions options = logging_in(uri, vault("", "first"));
    options.sentinel_password = "other";
    Client client{options};
    EXPECT_TRUE(eventually([&] { return client.ping().has_value(); }));
}

TEST(LogInAtACluster, is_that_of_each_of_its_masters) {
    ClusterGroup group;
    for (std::size_t i = 0; i < 6; ++i) {
        group.ask(i, {"CONFIG", "SET", "masterauth", "first"});
        group.ask(i, {"CONFIG", "SET", "requirepass", "first"});
    }
    const auto secrets = vault("", "first");
    Client client{logging_in(group.uri(), secrets)};
    std::vector<Held> held;
    for (int i = 0; i < 8; ++i) {
        Lock<Simple> lock{client, "job " + std::to_string(i)};
        auto acquired = lock.acquire({.wait = 30s});
        ASSERT_TRUE(succeeds(acquired));
        held.push_back(*std::move(acquired));
    }
    EXPECT_EQ(secrets->asked(), 1);

    Client stranger{logging_in(group.uri(), vault("", "wrong"))};
    EXPECT_TRUE(fails_with(Lock<Simple>(stranger, "job").acquire({.wait = 0s}), Errc::denied));
}

TEST(LogInAtSeveralMasters, is_that_of_each) {
    RedisServer first{{.password = "first"}};
    RedisServer second{{.password = "first"}};
    RedisServer third{{.password = "first"}};
    const auto options = [&](const std::shared_ptr<Vault>& secrets) {
        ClientOptions all = logging_in(first.uri(), secrets);
        all.uris.push_back(second.uri());
        all.uris.push_back(third.uri());
        all.node_timeout = 5s;
        all.longest_lease = 0ms;
        return all;
    };
    Client client{options(vault("", "first"))};
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock(10s, 30s));
    for (const RedisServer* server : {&first, &second, &third}) {
        EXPECT_TRUE(eventually([&] { return RawRedis{*server}.exists("job"); }));
    }
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));

    Client stranger{options(vault("", "wrong"))};
    const auto refused = Lock<Simple>(stranger, "job").acquire({.wait = 0s});
    ASSERT_FALSE(refused);
    EXPECT_TRUE(speaks_of(refused.error(), "WRONGPASS")) << refused.error().describe();
}

}  // namespace
}  // namespace redlatch::test
