// What servers answer instead of what was asked for: tried again where it will pass, told at once
// where it will not.

#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "warnings.hpp"
#include <redlatch/net/node.hpp>
#include <redlatch/policy/lua.hpp>

#include <gtest/gtest.h>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

void expect_ok(const RawReply& reply) {
    EXPECT_FALSE(reply.is_error()) << reply.text;
}

/// `CONFIG SET` on one connection that was there before, as others may be refused.
class Bench {
public:
    RedisServer server{{.config = {{"enable-debug-command", "yes"},
                                   {"enable-protected-configs", "yes"},
                                   {"loading-process-events-interval-bytes", "1024"},
                                   {"lua-time-limit", "20"},
                                   {"save", "3600 1"}}}};
    RawRedis raw{server};

    void config(const std::string& name, const std::string& value) {
        expect_ok(raw.command({"CONFIG", "SET", name, value}));
    }

    /// Runs a command that blocks the server, on a connection of its own.
    void run_aside(std::vector<std::string> command) {
        aside_ = std::thread{
            [this, command = std::move(command)] { RawRedis{server}.command(command); }};
    }
    void join_aside() { aside_.join(); }

private:
    std::thread aside_;
};

/// A state that a server gets into and out of again by itself.
struct ServerState {
    std::string name;
    std::vector<std::string> words;  ///< one of them is in what it answers then
    std::function<void(Bench&)> begin;
    std::function<void(Bench&)> end;

    bool is_told_by(const Error& error) const {
        return std::any_of(words.begin(), words.end(),
                           [&](const std::string& word) { return speaks_of(error, word); });
    }
    friend std::ostream& operator<<(std::ostream& out, const ServerState& state) {
        return out << state.name;
    }
};

void begin_loading(Bench& bench) {
    expect_ok(bench.raw.command({"DEBUG", "POPULATE", "20000", "data", "200"}));
    bench.config("key-load-delay", "1000");
    bench.run_aside({"DEBUG", "RELOAD"});
    ASSERT_TRUE(eventually([&] { return bench.raw.command({"GET", "x"}).is_error(); }));
}

void end_loading(Bench& bench) {
    bench.config("key-load-delay", "0");
    bench.join_aside();
}

void begin_busy(Bench& bench) {
    bench.run_aside({"EVAL", "while true do end", "0"});
    ASSERT_TRUE(eventually([&] { return bench.raw.command({"PING"}).is_error(); }));
}

void end_busy(Bench& bench) {
    expect_ok(bench.raw.command({"SCRIPT", "KILL"}));
    bench.join_aside();
}

void begin_misconf(Bench& bench) {
    // The snapshot cannot be moved over a folder of its name.
    std::filesystem::create_directory(bench.server.folder() + "/blocked.rdb");
    bench.config("dbfilename", "blocked.rdb");
    bench.raw.set("data", "1");
    expect_ok(bench.raw.command({"BGSAVE"}));
    ASSERT_TRUE(eventually(
        [&] { return bench.raw.info("persistence").at("rdb_last_bgsave_status") == "err"; }));
}

ServerState setting(const std::string& name, const std::string& words, const std::string& option,
                    const std::string& bad, const std::string& good) {
    return {name,
            {words},
            [=](Bench& bench) { bench.config(option, bad); },
            [=](Bench& bench) { bench.config(option, good); }};
}

std::vector<ServerState> passing_states() {
    const auto replica = [](Bench& bench) {
        expect_ok(bench.raw.command({"REPLICAOF", "127.0.0.1", "1"}));
    };
    const auto master = [](Bench& bench) {
        expect_ok(bench.raw.command({"REPLICAOF", "NO", "ONE"}));
    };
    const auto strict_replica = [replica](Bench& bench) {
        bench.config("replica-serve-stale-data", "no");
        replica(bench);
    };
    return {
        {"LOADING", {"LOADING"}, begin_loading, end_loading},
        {"BUSY", {"BUSY"}, begin_busy, end_busy},
        {"READONLY", {"READONLY"}, replica, master},
        {"MASTERDOWN", {"MASTERDOWN", "READONLY"}, strict_replica, master},
        {"MISCONF",
         {"MISCONF"},
         begin_misconf,
         [](Bench& bench) { bench.config("stop-writes-on-bgsave-error", "no"); }},
        setting("OOM", "OOM", "maxmemory", "1", "0"),
        setting("NOREPLICAS", "NOREPLICAS", "min-replicas-to-write", "1", "0"),
        setting("max_clients", "max number of clients", "maxclients", "1", "1000"),
    };
}

/// The same, run for a policy that begins with a plain command and one that begins with a script.
class PassingState : public testing::TestWithParam<ServerState> {
protected:
    void SetUp() override {
        if (GetParam().name == "NOREPLICAS" && redis_server_version() < redis_7) {
            GTEST_SKIP() << "the server refuses no scripts then";
        }
        if (GetParam().name == "LOADING" && redis_server_version() < redis_6_2) {
            GTEST_SKIP() << "the server answers nobody while it loads so little";
        }
    }
    void begin() { GetParam().begin(bench); }
    void end() { GetParam().end(bench); }

    Bench bench;
    std::shared_ptr<Journal> journal = std::make_shared<Journal>();
    Client client{options_for(bench.server.uri(), 2s, journal)};
};

INSTANTIATE_TEST_SUITE_P(Server, PassingState, testing::ValuesIn(passing_states()),
                         [](const auto& state) { return state.param.name; });

TEST_P(PassingState, is_reported_with_the_servers_words_when_the_wait_ends) {
    Lock<Simple> simple{client, "job"};
    Lock<Reentrant> reentrant{client, "task"};
    begin();
    const Stopwatch watch;
    for (const auto& error : {thrown_by([&] { static_cast<void>(simple.try_lock_for(1500ms)); }),
                              thrown_by([&] { static_cast<void>(reentrant.try_lock_for(1500ms)); }),
                              thrown_by([&] { static_cast<void>(simple.try_lock()); })}) {
        ASSERT_TRUE(is_error(error, Errc::unavailable));
        EXPECT_TRUE(GetParam().is_told_by(*error)) << error->describe();
        EXPECT_FALSE(error->node.empty());
    }
    EXPECT_GE(watch.elapsed(), 2980ms);  // it was tried until the end
    EXPECT_LT(watch.elapsed(), 3s + 2s + slack);
    end();
    EXPECT_FALSE(bench.raw.exists("job"));
}

TEST_P(PassingState, is_waited_out) {
    Lock<Simple> lock{client, "job"};
    begin();
    auto acquired = in_background([&] {
        auto held = lock.acquire();
        return held ? held->release() : Result<Release>{Unexpected{held.error()}};
    });
    EXPECT_TRUE(eventually([&] { return journal->errors().size() >= 2; }));
    end();
    ASSERT_TRUE(finishes(acquired));
    EXPECT_TRUE(is_outcome(acquired.get(), Release::released));
}

TEST_P(PassingState, does_not_end_a_watched_hold) {
    Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 12s}};
    lock.lock();
    const auto lost = lock.lost();
    begin();
    // Some of these states don't concern a connection that is there, or a lease that is extended.
    const auto passed_a_renewal = [&] {
        return lock.state() == HoldState::uncertain || journal->renewals() >= 1;
    };
    EXPECT_TRUE(eventually(passed_a_renewal));
    end();
    const int before = journal->renewals();
    EXPECT_TRUE(eventually([&] { return journal->renewals() > before; }));
    EXPECT_FALSE(lost.stop_requested());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_P(PassingState, is_waited_out_by_the_end_of_a_client) {
    auto ending = std::make_unique<Client>(options_for(bench.server.uri(), 20s));
    const Held held = Lock<Simple>{*ending, "job", {.lease = 10min}}.acquire().value();
    begin();
    auto ended = in_background([&] { ending.reset(); });
    // Some of these states forbid no release.
    const bool was_refused = !finishes(ended, 300ms);
    end();
    ASSERT_TRUE(finishes(ended));
    EXPECT_FALSE(bench.raw.exists("job"));
    const auto forbids_releases = {"LOADING", "BUSY", "READONLY", "MASTERDOWN", "max_clients"};
    if (std::ranges::count(forbids_releases, GetParam().name) == 1) {
        EXPECT_TRUE(was_refused);
    }
}

// --------------------------------------------------------------------- what will not pass

/// An unlimited wait that ends at once, with few connections and commands.
template <class Policy>
std::optional<Error> refused_lock(Client& client) {
    Lock<Policy> lock{client, "job"};
    const Stopwatch watch;
    auto error = thrown_by([&] { lock.lock(); });
    EXPECT_LT(watch.elapsed(), slack);
    return error;
}

TEST(Denied, a_missing_password_ends_the_wait_at_once) {
    RedisServer server{{.password = "secret"}};
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    raw.reset_stats();
    const auto error = refused_lock<Simple>(client);
    ASSERT_TRUE(is_error(error, Errc::denied));
    EXPECT_TRUE(speaks_of(*error, "NOAUTH")) << error->describe();
    EXPECT_LE(std::stoi(raw.info("stats").at("total_connections_received")), 2);
}

TEST(Denied, a_password_that_expired_while_the_lock_was_held_is_told) {
    RedisServer server{{.acl = {"alice on >secret ~* +@all"}}};
    RawRedis raw{server};
    Client client{options_for("unix://alice:secret@" + server.socket_path(), 10s)};
    Lock<Simple> lock{client, "job"};
    lock.lock();
    expect_ok(raw.command({"ACL", "SETUSER", "alice", "resetpass", ">other"}));
    raw.command({"CLIENT", "KILL", "USER", "alice"});
    EXPECT_TRUE(fails_with(lock.extend(30s), Errc::denied));
    EXPECT_TRUE(lock.held());  // validity runs whatever the server says now
    const auto released = lock.release();
    EXPECT_TRUE(fails_with(released, Errc::denied));
    EXPECT_EQ(released.error().describe().find("secret"), std::string::npos);
}

TEST(Denied, a_disabled_user_is_told_at_once) {
    RedisServer server{{.acl = {"alice off >secret ~* +@all"}}};
    Client client{options_for("unix://alice:secret@" + server.socket_path(), 10s)};
    EXPECT_TRUE(is_error(refused_lock<Simple>(client), Errc::denied));
}

/// One command that the ACL forbids, at top level or inside a script.
class DeniedCommand : public testing::TestWithParam<std::string> {
protected:
    RedisServer server{{.acl = {"alice on >secret ~* +@all -" + GetParam()}}};
    RawRedis raw{server};
    Client client{options_for("unix://alice:secret@" + server.socket_path(), 10s)};

    /// What needs the command says so; nothing waits, and nothing stays behind for ever.
    /// `not_needed`: commands without which a lock can be taken and released.
    template <class Policy>
    void expect_told_at_once(const std::vector<std::string>& not_needed) {
        Lock<Policy> lock{client, "job"};
        const Stopwatch watch;
        auto held = lock.acquire();
        if (!held) {
            EXPECT_TRUE(fails_with(held, Errc::denied));
        } else {
            const auto extended = held->extend(60s);
            EXPECT_TRUE(extended.has_value() || extended.error().code == Errc::denied);
            const auto inspected = lock.inspect();
            EXPECT_TRUE(inspected.has_value() || inspected.error().code == Errc::denied);
            const auto released = held->release();
            EXPECT_TRUE(released.has_value() || released.error().code == Errc::denied);
        }
        EXPECT_LT(watch.elapsed(), command_timeout + slack);
        const bool all_worked = !raw.exists("job") && held;
        const bool may_work =
            std::find(not_needed.begin(), not_needed.end(), GetParam()) != not_needed.end();
        EXPECT_TRUE(may_work || !all_worked) << "done without " << GetParam();
        // -1 would be a lock that nobody holds and that never ends.
        EXPECT_NE(raw.pttl("job"), -1);
    }
};

INSTANTIATE_TEST_SUITE_P(Acl, DeniedCommand,
                         testing::Values("set", "get", "del", "evalsha", "eval", "pexpire", "pttl",
                                         "hset", "hexists", "hdel", "hgetall", "time", "zcard",
                                         "setrange", "info", "client"),
                         [](const auto& command) { return command.param; });

TEST_P(DeniedCommand, is_told_at_once_by_a_simple_lock) {
    expect_told_at_once<Simple>({"hset", "hexists", "hdel", "hgetall", "pexpire", "pttl", "time",
                                 "zcard", "setrange", "info", "client"});
}

TEST_P(DeniedCommand, is_told_at_once_by_a_reentrant_lock) {
    expect_told_at_once<Reentrant>(
        {"set", "get", "del", "hexists", "hgetall", "time", "zcard", "setrange", "info", "client"});
}

TEST(Denied, a_watchdog_that_may_not_renew_loses_its_lock_in_time) {
    RedisServer server{{.acl = {"alice on >secret ~* +@all -evalsha -eval"}}};
    Client client{options_for("unix://alice:secret@" + server.socket_path(), 10s)};
    Lock<Watchdog<Simple>> lock{client, "job", {.lease = 1s}};
    lock.lock();
    const auto lost = lock.lost();
    const Stopwatch watch;
    EXPECT_TRUE(eventually([&] { return lost.stop_requested(); }));
    EXPECT_LT(watch.elapsed(), 1s + slack);
    EXPECT_FALSE(lock.held());
}

// ------------------------------------------------------------------ keys that the ACL forbids

class DeniedKeys : public testing::Test {
protected:
    ClientOptions options(const std::shared_ptr<Observer>& observer = {}) const {
        ClientOptions options = options_for("unix://alice:secret@" + server_.socket_path(), 10s);
        options.observer = observer;
        return options;
    }

    static void lock_often(Client& client) {
        for (const std::string name : {"job", "job:2", "job:3", "job:3"}) {
            Lock<Simple> simple{client, name};
            simple.lock();
            simple.unlock();
            Lock<Reentrant> reentrant{client, name};
            reentrant.lock();
            reentrant.unlock();
        }
    }

    RedisServer server_{{.acl = {"alice on >secret ~job* +@all"}}};
    RawRedis redis_{server_};
};

TEST_F(DeniedKeys, of_the_queue_are_told_by_one_warning_that_names_them) {
    const auto seen = std::make_shared<Warnings>();
    {
        Client client{options(seen)};
        lock_often(client);
        EXPECT_TRUE(eventually([&] { return !seen->all().empty(); }));
        lock_often(client);
    }
    ASSERT_EQ(seen->all().size(), 1U);
    const auto warning = seen->all().front();
    EXPECT_EQ(warning.node, server_.socket_path());
    for (const char* const words :
         {"poll", "order", "~redlatch:queue:*", "~redlatch:waiters:*", "~redlatch:fence:*"}) {
        EXPECT_NE(warning.message.find(words), std::string::npos) << warning.message;
    }
}

TEST_F(DeniedKeys, of_the_queue_are_no_warning_where_they_are_allowed) {
    expect_ok(redis_.command({"ACL", "SETUSER", "alice", "~redlatch:*"}));
    const auto seen = std::make_shared<Warnings>();
    {
        Client client{options(seen)};
        lock_often(client);
    }
    EXPECT_TRUE(seen->all().empty());
}

TEST_F(DeniedKeys, of_fencing_tokens_are_named_by_the_error) {
    Client client{options()};
    Lock<Fenced<Simple>> lock{client, "job"};
    const auto expect_named = [](const auto& result, const std::vector<std::string>& patterns) {
        ASSERT_TRUE(fails_with(result, Errc::denied));
        EXPECT_TRUE(speaks_of(result.error(), "the lock's own name"));
        for (const std::string& pattern : patterns) {
            EXPECT_TRUE(speaks_of(result.error(), "~" + pattern + " ") ||
                        speaks_of(result.error(), "~" + pattern + ")"))
                << result.error().describe() << " lacks " << pattern;
        }
    };
    expect_named(lock.acquire({.wait = 0s}),
                 {"redlatch:queue:*", "redlatch:waiters:*", "redlatch:fence:*"});
    Lock<Fenced<Reentrant>> tagged{client, "job{1}"};
    expect_named(tagged.acquire(), {"redlatch:queue:*", "redlatch:waiters:*", "redlatch:fence:*"});

    expect_ok(redis_.command({"ACL", "SETUSER", "alice", "~redlatch:*"}));
    Held held = lock.acquire({.wait = 0s}).value();
    expect_ok(redis_.command({"ACL", "SETUSER", "alice", "resetkeys", "~job*"}));
    expect_named(held.extend(20s), {"redlatch:fence:*"});
}

TEST_F(DeniedKeys, that_scripts_alone_are_given_leave_no_lock_without_its_fencing_token) {
    if (redis_server_version() < redis_7) GTEST_SKIP() << "an ACL has no selectors";
    for (const char* const rule :
         {"~redlatch:queue:*", "~redlatch:waiters:*", "(+eval +evalsha ~*)"}) {
        expect_ok(redis_.command({"ACL", "SETUSER", "alice", rule}));
    }
    Client client{options()};
    EXPECT_TRUE(fails_with(Lock<Fenced<Simple>>{client, "job"}.acquire(), Errc::denied));
    EXPECT_TRUE(fails_with(Lock<Fenced<Reentrant>>{client, "job:2"}.acquire(), Errc::denied));
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(DeniedKeys, are_tried_again_after_a_while) {
    detail::Endpoint endpoint;
    endpoint.transport = detail::Endpoint::Transport::unix_socket;
    endpoint.path = server_.socket_path();
    endpoint.user = "alice";
    endpoint.password = "secret";
    detail::Resolver resolver;
    detail::DialOptions dial{"tries-again", 2s, {}, {}, &resolver, {}};
    detail::Node node{std::make_unique<detail::DirectDialer>(endpoint, dial),
                      {.command_timeout = 2s, .max_connections = 2, .keys_denied_for = 3s},
                      {}};
    const Script script{"return redis.call('INCR', KEYS[#KEYS])"};
    const detail::Call call{script, {"job", "redlatch:queue:{job}"}, {}};
    const auto run = [&] { return node.run(call, detail::Limit::in(generous_limit)).has_value(); };
    EXPECT_TRUE(run());
    EXPECT_EQ(redis_.get("job"), "1");
    EXPECT_FALSE(node.allows_all_keys());
    expect_ok(redis_.command({"ACL", "SETUSER", "alice", "~redlatch:*"}));
    EXPECT_TRUE(eventually([&] { return node.allows_all_keys(); }));
    EXPECT_EQ(node.key_access(), detail::KeyAccess::doubtful);
    EXPECT_TRUE(run());
    EXPECT_EQ(node.key_access(), detail::KeyAccess::all);
    EXPECT_EQ(redis_.get("redlatch:queue:{job}"), "1");
    EXPECT_TRUE(stays([&] { return node.allows_all_keys(); }, 300ms));
}

/// An address of this machine that is not a loopback one; empty if it has none.
std::string outer_address() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return {};
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{all, &::freeifaddrs};
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        const bool up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
        if (!up || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
        std::array<char, NI_MAXHOST> text{};
        if (::getnameinfo(one->ifa_addr, sizeof(sockaddr_in), text.data(), text.size(), nullptr, 0,
                          NI_NUMERICHOST) == 0) {
            return text.data();
        }
    }
    return {};
}

TEST(Denied, by_protected_mode_is_told_at_once) {
    const std::string address = outer_address();
    if (address.empty()) GTEST_SKIP() << "no address but the loopback one";
    if (redis_server_version() < redis_7) GTEST_SKIP() << "a server that binds it is not protected";
    RedisServer server{{.tcp = true, .config = {{"bind", address}, {"protected-mode", "yes"}}}};
    Client client{options_for("redis://" + address + ":" + std::to_string(server.port()), 10s)};
    const auto error = refused_lock<Simple>(client);
    ASSERT_TRUE(is_error(error, Errc::denied));
    EXPECT_TRUE(speaks_of(*error, "protected mode")) << error->describe();
    EXPECT_TRUE(is_error(refused_lock<Watchdog<Reentrant>>(client), Errc::denied));
}

/// A server that keeps commands for a while, `WRITE` those that change something: they are neither
/// refused nor answered, and run later.
class Paused : public testing::TestWithParam<std::string> {
protected:
    static constexpr std::chrono::milliseconds timeout{2000};

    void SetUp() override {
        if (redis_server_version() < redis_6_2) GTEST_SKIP() << "the server pauses in one way only";
    }

    void pause(std::chrono::milliseconds time) {
        ASSERT_TRUE(succeeds(client.ping()));
        expect_ok(raw.command({"CLIENT", "PAUSE", std::to_string(time.count()), GetParam()}));
    }

    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), timeout)};
    Lock<Simple> simple{client, "job"};
    Lock<Reentrant> reentrant{client, "task"};
};

INSTANTIATE_TEST_SUITE_P(Commands, Paused, testing::Values("WRITE", "ALL"),
                         [](const auto& what) { return what.param; });

TEST_P(Paused, are_waited_for) {
    pause(5s);
    auto one = in_background([&] { return simple.acquire(); });
    auto other = in_background([&] { return reentrant.acquire(); });
    for (auto* const acquired : {&one, &other}) {
        ASSERT_TRUE(finishes(*acquired));
        auto held = acquired->get();
        ASSERT_TRUE(succeeds(held));
        EXPECT_TRUE(is_outcome(held->release(), Release::released));
    }
    EXPECT_TRUE(eventually([&] { return raw.keys().empty(); }));
}

TEST_P(Paused, and_given_up_leave_nothing) {
    pause(10s);
    auto one = in_background([&] { return simple.acquire({.wait = 0s}); });
    EXPECT_TRUE(fails_with(reentrant.acquire({.wait = 0s}), Errc::unavailable));
    ASSERT_TRUE(finishes(one));
    EXPECT_TRUE(fails_with(one.get(), Errc::unavailable));
    if (GetParam() == "WRITE") {  // the other one keeps this command waiting too
        expect_ok(raw.command({"CLIENT", "UNPAUSE"}));
    }
    raw.set("probe", "answered when the pause is over");
    raw.del("probe");
    EXPECT_TRUE(eventually([&] { return raw.keys().empty(); }));
}

TEST(WrongType, somebody_elses_key_is_told_at_once_and_never_touched) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    raw.command({"RPUSH", "job", "data"});
    EXPECT_TRUE(is_error(refused_lock<Simple>(client), Errc::wrong_type));
    EXPECT_TRUE(is_error(refused_lock<Reentrant>(client), Errc::wrong_type));
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(fails_with(lock.inspect(), Errc::wrong_type));
    EXPECT_TRUE(fails_with(lock.force_unlock(), Errc::wrong_type));
    EXPECT_EQ(raw.type("job"), "list");
    EXPECT_EQ(raw.pttl("job"), -1);
}

bool is_told_of_data(const std::optional<Error>& error) {
    return is_error(error, Errc::wrong_type) && speaks_of(*error, "is data, and no lock");
}

TEST(WrongType, is_a_hash_or_sorted_set_of_data_too) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    raw.command({"HSET", "session", "user", "1", "name", "bob"});
    raw.command({"HSET", "name", "bob", "x"});
    raw.command({"HSET", "nobody", "bob", "0"});
    for (const std::string name : {"session", "name", "nobody"}) {
        const std::string before = raw.command({"DUMP", name}).text;
        Lock<Reentrant> lock{client, name};
        EXPECT_TRUE(is_told_of_data(thrown_by([&] { lock.lock(); })));
        EXPECT_TRUE(is_told_of_data(lock.inspect().error()));
        EXPECT_TRUE(is_told_of_data(lock.force_unlock().error()));
        if (name != "session") {  // which has no such owner
            EXPECT_TRUE(is_told_of_data(lock.force_unlock("bob").error()));
        }
        EXPECT_EQ(raw.command({"DUMP", name}).text, before);
    }
    raw.command({"ZADD", "ranking", "1", "bob"});
    Lock<Shared> shared{client, "ranking"};
    const auto error = thrown_by([&] { shared.lock(); });
    ASSERT_TRUE(is_error(error, Errc::wrong_type));
    EXPECT_TRUE(speaks_of(*error, "the sorted set is no lock of this kind")) << error->describe();
}

/// Sets a hash of so many counters, which may be owners with their hold counts.
void count(RawRedis& raw, const std::string& name, int counters) {
    RawRedis::Command write{"HSET", name};
    for (int i = 0; i < counters; ++i) {
        write.insert(write.end(), {"page:" + std::to_string(i), std::to_string(i + 1)});
    }
    EXPECT_EQ(raw.command(write).integer, counters);
}

TEST(WrongType, is_a_hash_of_many_counters_too_and_nobody_reads_it) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    count(raw, "visits", 17);
    Lock<Reentrant> lock{client, "visits"};
    EXPECT_TRUE(is_told_of_data(thrown_by([&] { static_cast<void>(lock.try_lock()); })));
    EXPECT_TRUE(is_told_of_data(thrown_by([&] { static_cast<void>(lock.try_lock_for(10s)); })));
    EXPECT_TRUE(is_told_of_data(lock.inspect().error()));
    EXPECT_TRUE(is_told_of_data(lock.force_unlock().error()));
    EXPECT_TRUE(is_told_of_data(lock.force_unlock("page:1").error()));
    EXPECT_EQ(raw.command_calls("hgetall"), 0);
    EXPECT_EQ(raw.hgetall("visits").size(), 17U);
}

TEST(WrongType, is_a_hash_of_few_counters_only_to_who_does_not_wait_for_it) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    for (const int counters : {2, 16}) {
        const std::string name = "visits:" + std::to_string(counters);
        count(raw, name, counters);
        Lock<Reentrant> lock{client, name};
        EXPECT_FALSE(lock.try_lock()) << "they may be somebody's locks";
        EXPECT_TRUE(times_out([&] { return lock.try_lock_for(100ms); }));
        EXPECT_TRUE(is_told_of_data(lock.inspect().error()));
        EXPECT_TRUE(is_told_of_data(lock.force_unlock().error()));
        EXPECT_TRUE(is_told_of_data(lock.force_unlock("page:1").error()));
        EXPECT_EQ(raw.hgetall(name).size(), static_cast<std::size_t>(counters));
    }
}

TEST(WrongType, says_what_is_there_and_what_was_wanted) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    raw.command({"RPUSH", "list", "data"});
    raw.command({"HSET", "hash", "a", "1"});
    raw.command({"SET", "string", "data"});
    const auto expect_told = [](const std::optional<Error>& error, const std::string& there,
                                const std::string& wanted) {
        ASSERT_TRUE(is_error(error, Errc::wrong_type));
        EXPECT_EQ(error->message,
                  "WRONGTYPE the key is a " + there + ", and this policy keeps a " + wanted);
    };
    for (const std::string there : {"list", "hash"}) {
        Lock<Simple> lock{client, there};
        expect_told(thrown_by([&] { lock.lock(); }), there, "string");
        expect_told(lock.inspect().error(), there, "string");
        expect_told(lock.force_unlock().error(), there, "string");
        Lock<Fenced<Simple>> fenced{client, there + "{1}"};
        raw.command({"RENAME", there, there + "{1}"});
        expect_told(fenced.acquire().error(), there, "string");
        raw.command({"RENAME", there + "{1}", there});
    }
    for (const std::string there : {"list", "string"}) {
        Lock<Watchdog<Reentrant>> lock{client, there};
        expect_told(thrown_by([&] { lock.lock(); }), there, "hash");
        expect_told(lock.inspect().error(), there, "hash");
    }
    Lock<Reentrant> held{client, "held"};
    held.lock();
    raw.set("held", "data");
    expect_told(held.extend(60s).error(), "string", "hash");
    expect_told(thrown_by([&] { held.lock(); }), "string", "hash");
    expect_told(held.release().error(), "string", "hash");
}

TEST(WrongType, says_how_to_find_out_what_is_there_where_nobody_tells) {
    RedisServer server{{.acl = {"alice on >secret ~* +@all -type"}}};
    RawRedis raw{server};
    Client client{options_for("unix://alice:secret@" + server.socket_path(), 10s)};
    raw.command({"RPUSH", "job", "data"});
    const auto error = refused_lock<Reentrant>(client);
    ASSERT_TRUE(is_error(error, Errc::wrong_type));
    for (const char* const words : {"hash", "redis-cli TYPE"}) {
        EXPECT_TRUE(speaks_of(*error, words)) << error->describe();
    }
    EXPECT_FALSE(speaks_of(*error, "script"));
}

TEST(ServerErrors, of_scripts_are_told_without_where_in_the_script) {
    RedisServer server{{.acl = {"alice on >secret ~* +@all -hset"}}};
    Client client{options_for("unix://alice:secret@" + server.socket_path(), 10s)};
    const auto error = refused_lock<Reentrant>(client);
    ASSERT_TRUE(is_error(error, Errc::denied));
    // Redis does not name the command, Valkey does.
    EXPECT_NE(speaks_of(*error, "'hset'"), speaks_of(*error, "ACL LOG")) << error->describe();
    EXPECT_TRUE(speaks_of(*error, "docs/deployment.md")) << error->describe();
    EXPECT_FALSE(speaks_of(*error, "user_script")) << error->describe();
    EXPECT_FALSE(speaks_of(*error, lua::on_hash().acquire.sha())) << error->describe();
}

TEST(WrongType, a_key_that_replaced_the_lock_ends_the_hold_and_stays) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    Lock<Simple> lock{client, "job"};
    lock.lock();
    raw.del("job");
    raw.command({"RPUSH", "job", "data"});
    EXPECT_TRUE(fails_with(lock.extend(60s), Errc::wrong_type));
    EXPECT_FALSE(lock.release().has_value());
    EXPECT_EQ(raw.type("job"), "list");
}

/// What a server says that turned into a replica under a connection that had found it a master.
class TurnedReplica : public testing::Test {
protected:
    template <class Policy>
    void expect_told(const std::string& word) {
        ASSERT_TRUE(succeeds(client.ping()));
        expect_ok(raw.command({"REPLICAOF", "127.0.0.1", "1"}));
        Lock<Policy> lock{client, "job"};
        const auto refused = lock.acquire({.wait = 0s});
        ASSERT_TRUE(fails_with(refused, Errc::unavailable));
        EXPECT_TRUE(speaks_of(refused.error(), word)) << refused.error().describe();
        if (redis_server_version() >= redis_6_2) {
            EXPECT_EQ(raw.info("errorstats").count("errorstat_" + word), 1U);
        }
        expect_ok(raw.command({"REPLICAOF", "NO", "ONE"}));
        EXPECT_TRUE(succeeds(lock.acquire()));
    }

    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 2s)};
};

TEST_F(TurnedReplica, says_readonly) {
    expect_told<Simple>("READONLY");
}

TEST_F(TurnedReplica, says_masterdown_where_it_shows_nothing_old) {
    expect_ok(raw.command({"CONFIG", "SET", "replica-serve-stale-data", "no"}));
    expect_told<Reentrant>("MASTERDOWN");
}

/// A server that becomes the replica of another one, which knows nothing of its locks.
class Replica : public testing::Test {
protected:
    void become_replica() {
        expect_ok(raw.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())}));
        ASSERT_TRUE(
            eventually([&] { return raw.info("replication").at("master_link_status") == "up"; }));
    }
    void become_master() { expect_ok(raw.command({"REPLICAOF", "NO", "ONE"})); }

    RedisServer master{{.tcp = true, .config = {{"repl-diskless-sync-delay", "0"}}}};
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 2s)};
};

template <class Policy>
class OwnLockOnReplica : public Replica {};

using BothShapes = testing::Types<Simple, Reentrant>;
TYPED_TEST_SUITE(OwnLockOnReplica, BothShapes);

TYPED_TEST(OwnLockOnReplica, is_not_lost_because_the_replica_does_not_know_it) {
    Lock<TypeParam> lock{this->client, "job"};
    ASSERT_TRUE(lock.try_lock());
    this->become_replica();
    ASSERT_FALSE(this->raw.exists("job"));
    EXPECT_TRUE(fails_with(lock.extend(60s), Errc::unavailable));
    EXPECT_TRUE(fails_with(lock.inspect(), Errc::unavailable));
    EXPECT_TRUE(fails_with(lock.force_unlock(), Errc::unavailable));
    if (TypeParam::reentrant) {
        EXPECT_TRUE(fails_with(lock.acquire({.wait = 0s}), Errc::unavailable));
    }
    EXPECT_TRUE(lock.held());
    const auto released = lock.release();
    ASSERT_TRUE(fails_with(released, Errc::unavailable));
    EXPECT_TRUE(speaks_of(released.error(), "READONLY")) << released.error().describe();
}

TYPED_TEST(OwnLockOnReplica, is_not_lost_because_the_replica_knows_no_such_owner) {
    Lock<TypeParam> lock{this->client, "job"};
    ASSERT_TRUE(lock.try_lock());
    const std::string owner = lock.inspect().value().owner;
    this->become_replica();
    ASSERT_FALSE(this->raw.exists("job"));
    EXPECT_TRUE(fails_with(lock.force_unlock(owner), Errc::unavailable));
    EXPECT_TRUE(lock.held());
}

TYPED_TEST(OwnLockOnReplica, is_lost_when_that_one_becomes_the_master) {
    Lock<TypeParam> lock{this->client, "job"};
    ASSERT_TRUE(lock.try_lock());
    this->become_replica();
    EXPECT_TRUE(fails_with(lock.extend(60s), Errc::unavailable));
    this->become_master();
    EXPECT_TRUE(fails_with(lock.extend(60s), Errc::lost));
    EXPECT_FALSE(lock.held());
}

TEST_F(Replica, is_not_asked_who_has_a_lock) {
    become_replica();
    RawRedis{master}.command({"HSET", "job", "somebody", "1"});
    ASSERT_TRUE(eventually([&] { return raw.exists("job"); }));
    Lock<Reentrant> lock{client, "job"};
    const auto error = thrown_by([&] { static_cast<void>(lock.try_lock()); });
    ASSERT_TRUE(is_error(error, Errc::unavailable));
    EXPECT_TRUE(speaks_of(*error, "READONLY")) << error->describe();
}

TEST(ServerErrors, a_foreign_lock_without_an_end_is_waited_for_no_longer_than_asked) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    raw.set("job", "somebody's");
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(times_out([&] {
        const Stopwatch watch;
        const bool had = lock.try_lock_for(1500ms);
        EXPECT_LT(watch.elapsed(), 1500ms + slack);
        return had;
    }));
    const auto info = lock.inspect();
    ASSERT_TRUE(succeeds(info));
    EXPECT_TRUE(info->locked);
    EXPECT_FALSE(info->ttl.has_value());
    EXPECT_EQ(info->owner, "somebody's");
}

TEST(ServerErrors, a_server_that_knows_no_scripts_is_told_at_once) {
    RedisServer server{
        {.config = {{"rename-command EVAL", "\"\""}, {"rename-command EVALSHA", "\"\""}}}};
    Client client{options_for(server.uri(), 10s)};
    // The server quotes the name in its answer.
    for (const std::string name :
         {"job", "AUTH:session", "max number of clients", "a: -READONLY b"}) {
        const auto error = Lock<Reentrant>{client, name}.acquire({.wait = 0s}).error();
        EXPECT_TRUE(is_error(error, Errc::protocol)) << error.describe();
        EXPECT_TRUE(speaks_of(error, "unknown command")) << error.describe();
    }
}

TEST(ServerErrors, a_database_that_is_not_there_is_told_at_once) {
    RedisServer server;
    Client client{options_for(server.uri() + "?db=99", 10s)};
    const auto error = refused_lock<Simple>(client);
    ASSERT_TRUE(is_error(error, Errc::invalid_argument));
    EXPECT_TRUE(speaks_of(*error, "DB index")) << error->describe();
}

}  // namespace
}  // namespace redlatch::test
