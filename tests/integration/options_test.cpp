// Each option and each part of a URI does something that can be seen.

#include "busy_machine.hpp"
#include "lock_test.hpp"
#include "support/socket.hpp"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

class LockOption : public LockTest {
protected:
    /// How often a waiter asks in half a second.
    long long tries(Backoff backoff) {
        Lock<Simple> lock{client_, "foreign", {.backoff = backoff}};
        EXPECT_TRUE(times_out([&] {
            redis_.reset_stats();
            return lock.acquire({.wait = 500ms});
        }));
        return redis_.command_calls("evalsha");
    }
};

TEST_F(LockOption, lease_is_the_servers_ttl_and_the_validity) {
    Lock<Simple> lock{client_, "job", {.lease = 20s}};
    lock.lock();
    EXPECT_LE(redis_.pttl("job"), 20'000);
    EXPECT_GT(redis_.pttl("job"), 1000);
    EXPECT_LE(lock.remaining(), 20s);
    EXPECT_GT(lock.remaining(), 1s);
    lock.unlock();
    Lock<Simple> by_default{client_, "job"};
    by_default.lock();
    EXPECT_LE(redis_.pttl("job"), 30'000);
    EXPECT_GT(redis_.pttl("job"), 15'000);
}

TEST_F(LockOption, lease_can_differ_for_one_acquisition) {
    Lock<Simple> lock{client_, "job", {.lease = 5s}};
    lock.lock(60s);
    EXPECT_GT(redis_.pttl("job"), 30'000);
    lock.unlock();
    EXPECT_TRUE(lock.try_lock(10s, 50s));
    EXPECT_GT(redis_.pttl("job"), 30'000);
    lock.unlock();
    const Held held = lock.acquire({.lease = 40s}).value();
    EXPECT_GT(redis_.pttl("job"), 30'000);
}

TEST_F(LockOption, backoff_bounds_the_rate_of_tries) {
    ASSERT_TRUE(foreign_set(redis_, "foreign"));
    // The first try and the last one are not paused for; the machine may be slow, never fast.
    EXPECT_LE(tries({.min = 100ms, .max = 200ms}), 2 + 500 / 100);
    EXPECT_LE(tries({.min = 50ms, .max = 51ms}), 2 + 500 / 50);
    // On a busy machine the last one comes too late to be sent, or a try whose answer does is undone by a script more.
    EXPECT_TRUE(eventually([&] { return tries({.min = 10s, .max = 60s}) == 2; }));
    EXPECT_TRUE(eventually([&] { return tries({.min = 1ms, .max = 3ms}) > 2 + 500 / 50; }))
        << "and eager ones ask more often";
}

TEST_F(LockOption, max_hold_ends_a_watched_hold) {
    const LockOptions options{.lease = 300ms, .max_hold = 400ms};
    Lock<Watchdog<Simple>> watched{client_, "watched", options};
    Held held = watched.acquire().value();
    const std::stop_token lost = held.lost();
    EXPECT_TRUE(fires(lost));
    EXPECT_EQ(held.release().value(), Release::expired);
}

TEST_F(LockOption, max_hold_makes_no_lease_right_that_is_too_long_for_any_lock) {
    const LockOptions options{.lease = 300ms, .max_hold = 400ms};
    Lock<Watchdog<Simple>> lock{client_, "job", options};
    const Lease too_long{Lease::max().duration() + 1ms};
    EXPECT_EQ(code_of(lock.acquire({.lease = too_long})), Errc::invalid_argument);
    EXPECT_TRUE(lock.acquire({.lease = Lease::max()}));
    EXPECT_THROW((Lock<Watchdog<Simple>>{client_, "job", {.lease = too_long, .max_hold = 1s}}),
                 LockError);
}

TEST_F(LockOption, lock_delay_keeps_the_key_longer_than_the_validity) {
    Lock<Simple> lock{client_, "job", {.lease = 200ms, .lock_delay = 60s}};
    Lock<Simple> elsewhere{other_client_, "job"};
    Held held = lock.acquire().value();
    EXPECT_LE(held.remaining(), 200ms);
    EXPECT_GT(redis_.pttl("job"), 30'000);
    ASSERT_TRUE(fires(held.lost()));
    EXPECT_TRUE(redis_.exists("job"));
    EXPECT_FALSE(elsewhere.try_lock()) << "what the lost holder sent last may still land";
    EXPECT_EQ(held.release().value(), Release::expired);
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); })) << "its holder is done with it";

    Held normal = lock.acquire({.lease = 10s}).value();
    EXPECT_EQ(normal.release().value(), Release::released);
    EXPECT_TRUE(elsewhere.try_lock()) << "a normal release frees at once";
}

TEST_F(LockOption, lock_delay_makes_no_late_release_one_in_time) {
    Lock<Simple> lock{client_, "job", {.lease = 200ms, .lock_delay = 60s}};
    Held held = lock.acquire().value();
    ASSERT_TRUE(eventually([&] { return held.state() == HoldState::lost; }));
    EXPECT_EQ(held.release().value(), Release::expired) << "nobody has asked for lost()";
    EXPECT_FALSE(redis_.exists("job"));
}

TEST_F(LockOption, lock_delay_makes_no_late_release_of_a_nested_hold_one_in_time) {
    const LockOptions options{.lease = 2s, .lock_delay = 60s};
    Lock<Reentrant> nested{client_, "nested", options};
    Held outer = nested.acquire().value();
    Held inner = outer.nest().value();
    Lock<Shared> shared{client_, "shared", options};
    Held writing = shared.acquire().value();
    Held reading = shared.acquire_shared().value();
    ASSERT_TRUE(eventually([&] { return !outer.held() && !writing.held(); }));
    EXPECT_EQ(inner.release().value(), Release::expired) << "nobody has asked for lost()";
    EXPECT_EQ(outer.release().value(), Release::expired);
    EXPECT_EQ(writing.release().value(), Release::expired);
    EXPECT_EQ(reading.release().value(), Release::expired);
    EXPECT_FALSE(redis_.exists("nested"));
    EXPECT_FALSE(redis_.exists("shared"));
}

TEST_F(LockOption, lock_delay_counts_for_renewals_extensions_and_nested_holds) {
    Lock<Watchdog<Reentrant>> lock{client_, "job", {.lease = 6s, .lock_delay = 60s}};
    lock.lock();
    lock.lock();
    EXPECT_GT(redis_.pttl("job"), 30'000);
    redis_.command({"PEXPIRE", "job", "20000"});
    EXPECT_TRUE(eventually([&] { return redis_.pttl("job") > 30'000; })) << "renewed";
    redis_.command({"PEXPIRE", "job", "20000"});
    EXPECT_TRUE(lock.extend(6s));
    EXPECT_GT(redis_.pttl("job"), 30'000);
    EXPECT_LE(lock.remaining(), 6s);
}

TEST_F(LockOption, drift_is_not_relied_on) {
    Lock<Simple> half{client_, "half", {.lease = 60s, .drift = {.factor = 0.5, .floor = 0ms}}};
    half.lock();
    EXPECT_LE(half.remaining(), 30s);
    EXPECT_GT(half.remaining(), 15s);
    EXPECT_GT(redis_.pttl("half"), 45'000) << "the server keeps the whole lease";
    Lock<Simple> less{client_, "less", {.lease = 60s, .drift = {.factor = 0, .floor = 20s}}};
    less.lock();
    EXPECT_LE(less.remaining(), 40s);
    EXPECT_GT(less.remaining(), 25s);
    Lock<Simple> by_default{client_, "default", {.lease = 60s}};
    by_default.lock();
    EXPECT_LE(by_default.remaining(), 60'000ms * 99 / 100 - 2ms);
    EXPECT_GT(by_default.remaining(), 45s);
}

/// Clients with options of the case's own.
class ClientOption : public ::testing::Test {
protected:
    std::vector<std::string> names_on(RawRedis& redis) {
        std::vector<std::string> names;
        for (const auto& connection : redis.client_list()) names.push_back(connection.at("name"));
        std::sort(names.begin(), names.end());
        return names;
    }
    static ClientOptions named(const RedisServer& server, const std::string& name) {
        ClientOptions options = patient(server.uri());
        options.client_name = name;
        return options;
    }
    static std::string ping_error(Client& client) {
        const auto answer = client.ping();
        return answer ? "no error" : answer.error().describe();
    }
};

TEST_F(ClientOption, client_name_shows_in_client_list_and_in_tokens) {
    const RedisServer server;
    RawRedis redis{server};
    Client client{named(server, "billing-7")};
    Lock<> lock{client, "job"};
    const Held held = lock.acquire().value();
    EXPECT_NE(held.token().find(":billing-7:"), std::string::npos) << held.token();
    const auto names = names_on(redis);
    EXPECT_EQ(std::count(names.begin(), names.end(), "billing-7"), 1);
}

TEST_F(ClientOption, client_name_is_host_and_pid_by_default) {
    const RedisServer server;
    RawRedis redis{server};
    Client client{patient(server.uri())};
    Lock<> lock{client, "job"};
    const Held held = lock.acquire().value();
    const std::string pid = ":" + std::to_string(::getpid());
    EXPECT_NE(held.token().find(pid + ":"), std::string::npos) << held.token();
    const auto names = names_on(redis);
    EXPECT_TRUE(std::any_of(names.begin(), names.end(),
                            [&pid](const std::string& name) { return name.ends_with(pid); }));
}

TEST_F(ClientOption, tokens_of_clients_of_one_name_differ) {
    const RedisServer server;
    const ClientOptions options = named(server, "twin");
    Client one{options};
    Client two{options};
    const std::string first = Lock<>{one, "job"}.acquire().value().token();
    const std::string second = Lock<>{two, "job"}.acquire().value().token();
    EXPECT_NE(first, second);
}

TEST_F(ClientOption, max_connections_bounds_them) {
    const RedisServer server;
    RawRedis redis{server};
    constexpr std::size_t most = 2;
    ClientOptions options = named(server, "bounded");
    options.max_connections = most;
    Client client{options};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&client, i] {
                Lock<Simple> lock{client, "job" + std::to_string(i)};
                for (int round = 0; round < 50; ++round) {
                    const std::lock_guard guard{lock};
                }
            });
        }
    }
    const auto names = names_on(redis);
    EXPECT_LE(std::count(names.begin(), names.end(), "bounded"), std::ptrdiff_t{most});
    EXPECT_GE(std::count(names.begin(), names.end(), "bounded"), 1);
}

TEST_F(ClientOption, connections_are_reused_and_made_at_the_first_use) {
    const RedisServer server;
    RawRedis redis{server};
    Client client{named(server, "lazy")};
    Lock<Simple> lock{client, "job"};
    auto names = names_on(redis);
    EXPECT_EQ(std::count(names.begin(), names.end(), "lazy"), 0);
    for (int i = 0; i < 20; ++i) {
        const std::lock_guard guard{lock};
    }
    names = names_on(redis);
    EXPECT_EQ(std::count(names.begin(), names.end(), "lazy"), 1);
}

TEST_F(ClientOption, command_timeout_bounds_a_call) {
    RedisServer server;
    Client hasty{{.uris = {server.uri()}, .command_timeout = 100ms}};
    Client patient{{.uris = {server.uri()}, .command_timeout = 30s}};
    ASSERT_TRUE(eventually([&] { return hasty.ping().has_value(); }));
    ASSERT_TRUE(patient.ping());
    server.freeze();
    const Stopwatch watch;
    EXPECT_EQ(code_of(hasty.ping()), Errc::unavailable);
    EXPECT_GE(watch.elapsed(), 100ms);
    EXPECT_LT(watch.elapsed(), 15s);
    auto answer = in_background([&] { return code_of(patient.ping()); });
    EXPECT_EQ(answer.wait_for(300ms), std::future_status::timeout);
    server.thaw();
    EXPECT_EQ(answer.get(), Errc{});
}

TEST_F(ClientOption, connect_timeout_bounds_a_connection) {
    RedisServer server{{.tcp = true}};
    server.freeze();  // the kernel accepts, nobody shakes hands
    for (const std::string& uri : {server.uri(), server.tcp_uri()}) {
        Client hasty{{.uris = {uri}, .connect_timeout = 100ms, .command_timeout = 30s}};
        const Stopwatch watch;
        EXPECT_EQ(code_of(hasty.ping()), Errc::unavailable);
        EXPECT_GE(watch.elapsed(), 100ms);
        EXPECT_LT(watch.elapsed(), 10s);
    }
    server.thaw();
}

TEST_F(ClientOption, timeouts_of_the_uri_override_those_of_the_options) {
    RedisServer server;
    const auto impatient = [&server](const std::string& parameters) {
        Client client{
            {.uris = {server.uri() + parameters}, .connect_timeout = 30s, .command_timeout = 30s}};
        const Stopwatch watch;
        EXPECT_EQ(code_of(client.ping()), Errc::unavailable);
        return watch.elapsed() < 10s;
    };
    server.freeze();
    EXPECT_TRUE(impatient("?connect_timeout=100"));
    EXPECT_TRUE(impatient("?command_timeout=100"));
    EXPECT_TRUE(impatient("?db=3&connect_timeout=100&command_timeout=20000"));
    server.thaw();
}

TEST_F(ClientOption, database_is_selected_by_the_uri) {
    const RedisServer server{{.tcp = true}};
    RawRedis redis{server};
    for (const std::string& uri : {server.uri() + "?db=3", server.tcp_uri() + "/3"}) {
        Client client{patient(uri)};
        Lock<> lock{client, "job"};
        const Held held = lock.acquire().value();
        redis.select(0);
        EXPECT_FALSE(redis.exists("job"));
        redis.select(3);
        EXPECT_EQ(redis.get("job"), held.token()) << uri;
    }
}

TEST_F(ClientOption, database_that_is_not_there_is_reported) {
    const RedisServer server;
    Client client{patient(server.uri() + "?db=99")};
    EXPECT_EQ(code_of(client.ping()), Errc::invalid_argument);
}

TEST_F(ClientOption, password_of_the_uri_is_used) {
    const RedisServer server{{.tcp = true, .password = "s3cret/&?#@: "}};
    const std::string path = server.socket_path();
    const std::string encoded = "s3cret%2F%26%3F%23%40%3A%20";
    for (const std::string& uri :
         {"unix://:" + encoded + "@" + path,
          "redis://:" + encoded + "@127.0.0.1:" + std::to_string(server.port()) + "/2"}) {
        Client client{patient(uri)};
        EXPECT_EQ(ping_error(client), "no error");
        EXPECT_TRUE(Lock<>(client, "job").acquire());
    }
}

TEST_F(ClientOption, password_that_is_wrong_or_missing_is_denied_and_never_shown) {
    const RedisServer server{{.password = "right"}};
    for (const char* const credentials : {"", ":wr0ng@", "somebody:wr0ng@"}) {
        Client client{patient(std::string{"unix://"} + credentials + server.socket_path())};
        EXPECT_EQ(code_of(client.ping()), Errc::denied);
        Lock<> lock{client, "job"};
        const auto held = lock.acquire();  // without limit: nothing to wait for
        ASSERT_EQ(code_of(held), Errc::denied);
        EXPECT_EQ(held.error().describe().find("wr0ng"), std::string::npos);
        EXPECT_EQ(held.error().node, server.socket_path());
    }
}

TEST_F(ClientOption, user_of_the_uri_is_used) {
    const RedisServer server{{.password = "other", .acl = {"alice on >wonder ~job* +@all"}}};
    Client client{patient("unix://alice:wonder@" + server.socket_path())};
    EXPECT_EQ(ping_error(client), "no error");
    Lock<> allowed{client, "job:1"};
    EXPECT_TRUE(allowed.acquire());
    Lock<> forbidden{client, "elsewhere"};
    EXPECT_EQ(code_of(forbidden.acquire()), Errc::denied);
}

/// A machine without /etc/hosts and name servers knows no name at all.
bool knows_localhost() {
    addrinfo* found = nullptr;
    if (::getaddrinfo("localhost", nullptr, nullptr, &found) != 0) return false;
    ::freeaddrinfo(found);
    return true;
}

TEST_F(ClientOption, every_kind_of_address_works) {
    const RedisServer server{{.tcp = true}};
    const std::string port = std::to_string(server.port());
    std::vector<std::string> uris{server.uri(), server.tcp_uri(),
                                  "redis://127.0.0.1:" + port + "/"};
    if (knows_localhost()) uris.push_back("redis://localhost:" + port);
    for (const std::string& uri : uris) {
        Client client{patient(uri)};
        EXPECT_EQ(ping_error(client), "no error") << uri;
    }
    if (!ipv6_available()) return;
    const RedisServer v6{{.ipv6 = true}};
    Client client{patient("redis://[::1]:" + std::to_string(v6.port()))};
    EXPECT_EQ(ping_error(client), "no error");
}

}  // namespace
}  // namespace redlatch::test
