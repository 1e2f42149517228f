// What docs/deployment.md and docs/compatibility.md say of ACLs.

#include "busy_machine.hpp"
#include "cluster_tools.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/cluster.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace redlatch::test {
namespace {

/// The user's line of the document, which stands there in several.
std::string least_acl() {
    std::ifstream document{REDLATCH_DEPLOYMENT_DOCUMENT};
    std::string acl;
    const std::string begin = "user ";
    for (std::string line; std::getline(document, line);) {
        if (acl.empty() && !line.starts_with(begin)) continue;
        if (line.starts_with("```")) break;
        acl += acl.empty() ? line.substr(begin.size()) : line;
    }
    return acl;
}

/// The same without one of its words.
std::string without(std::string acl, std::string_view word) {
    const auto at = acl.find(word);
    EXPECT_NE(at, std::string::npos) << word;
    return at == std::string::npos ? acl : acl.erase(at, word.size());
}

/// The commands that it allows, as a server counts them.
std::vector<std::string> allowed_by(const std::string& acl) {
    std::vector<std::string> commands;
    std::istringstream words{acl};
    for (std::string word; words >> word;) {
        if (word.starts_with('+')) commands.push_back(word.substr(1));
    }
    return commands;
}

/// Where the user of the document logs in, and a look behind the scenes at what serves a name.
struct Deployed {
    std::string uri;
    std::function<RawRedis(const std::string& name)> look_at;

    [[nodiscard]] bool queues(const std::string& name) const {
        RawRedis redis = look_at(name);
        return eventually([&] { return redis.exists("redlatch:queue:{" + name + "}"); });
    }
};

/// Whether the server has refused the library nothing.
testing::AssertionResult everything_was_allowed(RawRedis& redis) {
    const RawReply log = redis.command({"ACL", "LOG"});
    if (log.elements.empty()) return testing::AssertionSuccess();
    auto result = testing::AssertionFailure();
    for (const RawReply& field : log.elements.front().elements) result << field.text << ' ';
    return result;
}

template <class Policy>
void lock_wait_and_look(const Deployed& at) {
    Client client{patient(at.uri)};
    Client other{patient(at.uri)};
    for (int turn = 0; turn < 3; ++turn) {
        Lock<Policy> lock{client, "order:pay"};
        Held held = lock.acquire().value();
        EXPECT_TRUE(succeeds(held.extend(40s)));
        auto waiter = in_background([&other] {
            return Lock<Policy>{other, "order:pay"}.acquire({.wait = 30s});
        });
        ASSERT_TRUE(at.queues("order:pay"));
        EXPECT_TRUE(succeeds(lock.inspect()));
        EXPECT_TRUE(is_outcome(held.release(), Release::released));
        ASSERT_TRUE(finishes(waiter));
        EXPECT_TRUE(succeeds(waiter.get()));
    }
}

/// Readers, a writer, and permits whose number somebody sets.
void read_write_and_take(const Deployed& at) {
    Client client{patient(at.uri)};
    Client other{patient(at.uri)};
    Lock<Watchdog<Shared>> lock{client, "order:config"};
    Held writing = lock.acquire().value();
    auto reader = in_background([&other] {
        return Lock<Watchdog<Shared>>{other, "order:config"}.acquire_shared({.wait = 30s});
    });
    ASSERT_TRUE(at.queues("order:config"));
    EXPECT_TRUE(succeeds(writing.downgrade()));
    EXPECT_TRUE(succeeds(reader.get()));
    EXPECT_TRUE(succeeds(lock.force_unlock()));
    Semaphore<> gpus{client, "order:gpus", 2};
    Held permits = gpus.take({.permits = 2}).value();
    auto taker = in_background([&other] {
        return Semaphore<>{other, "order:gpus", 2}.take({.wait = 30s});
    });
    ASSERT_TRUE(at.queues("order:gpus"));
    EXPECT_TRUE(succeeds(permits.extend(40s)));
    EXPECT_TRUE(succeeds(gpus.inspect()));
    EXPECT_TRUE(succeeds(gpus.set_permits(3)));
    EXPECT_TRUE(succeeds(taker.get()));
    EXPECT_TRUE(succeeds(gpus.force_release(permits.token())));
}

/// A ticket, a tombstone, what a replica has to have, an end by force, and a loss.
template <class Policy>
void hand_over_keep_and_replicate(const Deployed& at) {
    Client client{patient(at.uri)};
    Client other{patient(at.uri)};
    Lock<Policy> lock{client, "order:job"};
    auto held = lock.acquire();
    ASSERT_TRUE(succeeds(held));
    const auto ticket = held->detach();
    ASSERT_TRUE(succeeds(ticket));
    auto adopted = Lock<Policy>{other, "order:job"}.adopt(*ticket);
    ASSERT_TRUE(succeeds(adopted));
    EXPECT_TRUE(is_outcome(adopted->release(), Release::released));
    EXPECT_TRUE(succeeds(Lock<Policy>{client, "order:job", {.min_hold = 300ms}}.acquire()));
    EXPECT_TRUE(succeeds(Lock<Policy>{other, "order:job"}.acquire({.wait = 30s})));
    auto replicated = Lock<Policy>{client, "order:job", {.replicas = 1}}.acquire();
    EXPECT_TRUE(succeeds(replicated));
    EXPECT_TRUE(succeeds(lock.force_unlock()));
    auto lost = lock.acquire();
    ASSERT_TRUE(succeeds(lost));
    at.look_at("order:job").del("order:job");
    EXPECT_TRUE(is_outcome(lost->release(), Release::expired));
}

/// Several in one, and one in another.
void nest_and_join(const Deployed& at) {
    Client client{patient(at.uri)};
    Lock<Watchdog<Reentrant>> lock{client, "order:nest", {.lease = 9s}};
    Held outer = lock.acquire().value();
    Held inner = lock.acquire().value();
    EXPECT_TRUE(is_renewed(outer));
    EXPECT_TRUE(is_outcome(inner.release(), Release::still_held));
    EXPECT_TRUE(is_outcome(outer.release(), Release::released));
    LockSet<Fenced<Simple>> set{client, {"order:a", "order:b"}};
    EXPECT_TRUE(succeeds(set.acquire()));
    RawRedis redis = at.look_at("order:list");
    redis.command({"RPUSH", "order:list", "data"});
    EXPECT_TRUE(fails_with(Lock<>{client, "order:list"}.acquire(), Errc::wrong_type));
    redis.del("order:list");
}

void do_everything(const Deployed& at) {
    lock_wait_and_look<Watchdog<Simple>>(at);
    lock_wait_and_look<Watchdog<Reentrant>>(at);
    lock_wait_and_look<Watchdog<Fenced<Shared>>>(at);
    read_write_and_take(at);
    hand_over_keep_and_replicate<Watchdog<Simple>>(at);
    hand_over_keep_and_replicate<Watchdog<Reentrant>>(at);
    hand_over_keep_and_replicate<Watchdog<Fenced<Simple>>>(at);
    nest_and_join(at);
}

/// A server with the user, who has a database of its own, and with a replica.
class DeployedServer {
public:
    explicit DeployedServer(const std::string& acl)
        : server_{{.tcp = true, .acl = {acl}, .config = {{"repl-diskless-sync-delay", "0"}}}} {
        RawRedis{replica_}.command({"REPLICAOF", "127.0.0.1", std::to_string(server_.port())});
        EXPECT_TRUE(eventually([&] {
            return RawRedis{server_}.info("replication")["slave0"].find("state=online") !=
                   std::string::npos;
        }));
    }

    Deployed deployed() const {
        return {.uri = "unix://locks:password@" + server_.socket_path() + "?db=1",
                .look_at = [this](const std::string&) {
                    RawRedis redis{server_};
                    redis.select(1);
                    return redis;
                }};
    }
    RawRedis look() const { return RawRedis{server_}; }

    /// The user may do this from now on, and nothing else.
    void allow(const std::string& acl) const {
        RawRedis::Command command{"ACL", "SETUSER"};
        std::istringstream words{acl_rules(acl)};
        for (std::string word; words >> word;) {
            command.push_back(word);
            if (command.size() == 3) command.emplace_back("reset");  // behind the user's name
        }
        RawRedis redis = look();
        const RawReply done = redis.command(command);
        EXPECT_FALSE(done.is_error()) << acl << ": " << done.text;
        redis.flushall();
        redis.command({"SCRIPT", "FLUSH"});
    }

private:
    RedisServer server_;
    RedisServer replica_;
};

TEST(Deployment, the_least_acl_is_enough_for_everything) {
    const std::string acl = least_acl();
    ASSERT_TRUE(acl.starts_with("locks on >password ")) << acl;
    const DeployedServer server{acl};
    const Deployed at = server.deployed();
    Client client{patient(at.uri)};
    EXPECT_TRUE(succeeds(client.ping()));
    do_everything(at);
    RawRedis redis = server.look();
    EXPECT_TRUE(everything_was_allowed(redis));
    for (const std::string& command : allowed_by(acl)) {
        EXPECT_GT(redis.command_calls(command), 0) << "nothing needs " << command;
    }
}

TEST(Deployment, without_ping_a_ping_fails_and_nothing_else_does) {
    const DeployedServer server{without(least_acl(), " +ping")};
    const Deployed at = server.deployed();
    Client client{patient(at.uri)};
    EXPECT_TRUE(fails_with(client.ping(), Errc::denied));
    RawRedis redis = server.look();
    redis.command({"ACL", "LOG", "RESET"});
    do_everything(at);
    EXPECT_TRUE(everything_was_allowed(redis));
}

TEST(Deployment, the_least_acl_of_a_cluster_is_enough_for_everything) {
    const std::string acl = without(least_acl(), " +select") + " +cluster|slots +asking";
    ClusterGroup group{{.config = {{"user", acl}}}};
    const auto look_at_server = [&](std::size_t i) { return RawRedis{group.server(i).tcp_uri()}; };
    std::string uri = group.uri();
    const Deployed at{.uri = uri.insert(uri.find("//") + 2, "locks:password@"),
                      .look_at = [&](const std::string& name) {
                          return look_at_server(ClusterGroup::owner_of(detail::slot_of(name)));
                      }};
    do_everything(at);

    Client client{patient(at.uri)};
    const std::string moved = name_on(0, "order:");
    const unsigned slot = detail::slot_of(moved);
    Lock<Watchdog<Reentrant>> lock{client, moved, {.lease = 9s}};
    Held held = lock.acquire().value();
    group.begin_to_move(slot, 0, 1);
    group.move_keys(slot, 0, 1);
    EXPECT_TRUE(is_renewed(held)) << "by ASK";
    EXPECT_TRUE(succeeds(held.extend(20s)));
    group.finish_move(slot, 0, 1);
    EXPECT_TRUE(is_outcome(held.release(), Release::released));

    for (const std::string command : {"cluster|slots", "asking"}) {
        long long calls = 0;
        for (std::size_t i = 0; i < 6; ++i) calls += look_at_server(i).command_calls(command);
        EXPECT_GT(calls, 0) << "nothing needs " << command;
    }
    for (std::size_t i = 0; i < 6; ++i) {
        RawRedis redis = look_at_server(i);
        EXPECT_TRUE(everything_was_allowed(redis)) << i;
    }
}

// ---- What an ACL leaves out

/// What the user is denied: "at once", or "to waiters".
using Denials = std::map<std::string, std::string>;

/// `take` is tried, and then `wait` while somebody has it. What is denied says where to look.
template <class Take, class Wait>
std::string denial(Take take, Wait wait) {
    const auto is_denied = [](const auto& result) {
        if (result || result.error().code != Errc::denied) return false;
        const std::string text = result.error().describe();
        EXPECT_TRUE(text.find("deployment.md") != std::string::npos ||
                    text.find("the ACL has to allow") != std::string::npos)
            << text;
        EXPECT_EQ(text.find(",)"), std::string::npos) << text;
        return true;
    };
    auto held = take();
    if (is_denied(held)) return "at once";
    if (!succeeds(held)) return held.error().describe();
    bool waiter_is_denied = false;
    const bool waiter_ends = times_out([&] {
        auto result = wait();
        waiter_is_denied = is_denied(result);
        return result;
    });
    EXPECT_TRUE(is_outcome(held->release(), Release::released));
    if (waiter_is_denied) return "to waiters";
    EXPECT_TRUE(waiter_ends);
    // A waiter whose time is over tells the server so in the background, and gives back what it
    // was granted meanwhile.
    EXPECT_TRUE(eventually([&] { return static_cast<bool>(take()); }));
    return {};
}

template <class Policy>
std::string denial_of(const std::string& uri, LockOptions options = {}) {
    Client client{patient(uri)};
    Client other{patient(uri)};
    return denial(
        [&] {
            return Lock<Policy>{client, "order:pay", options}.acquire({.wait = 0s});
        },
        [&] {
            return Lock<Policy>{other, "order:pay", options}.acquire({.wait = 20ms});
        });
}

std::string denial_of_permits(const std::string& uri) {
    Client client{patient(uri)};
    Client other{patient(uri)};
    return denial(
        [&] {
            return Semaphore<>{client, "order:gpu", 1}.take({.wait = 0s});
        },
        [&] {
            return Semaphore<>{other, "order:gpu", 1}.take({.wait = 20ms});
        });
}

Denials denials(const std::string& uri) {
    Denials found{{"Simple", denial_of<Simple>(uri)},
                  {"Reentrant", denial_of<Reentrant>(uri)},
                  {"Fenced", denial_of<Fenced<Simple>>(uri)},
                  {"Shared", denial_of<Shared>(uri)},
                  {"Semaphore", denial_of_permits(uri)},
                  {"replicas", denial_of<Simple>(uri, {.replicas = 1})},
                  {"all()", denial_of<Simple>(uri, {.replicas = Replicas::all()})}};
    std::erase_if(found, [](const auto& one) { return one.second.empty(); });
    return found;
}

/// The same without each word that begins so.
std::string without_all(const std::string& acl, std::string_view beginning) {
    std::string rest;
    std::istringstream words{acl};
    for (std::string word; words >> word;) {
        if (!word.starts_with(beginning)) rest += (rest.empty() ? "" : " ") + word;
    }
    return rest;
}

TEST(Deployment, without_a_part_of_the_least_acl_no_more_is_denied_than_the_document_says) {
    const std::string acl = least_acl();
    const DeployedServer server{acl};
    const std::string uri = server.deployed().uri;
    const auto denials_without = [&](const std::vector<std::string>& beginnings) {
        std::string rest = acl;
        for (const std::string& beginning : beginnings) rest = without_all(rest, beginning);
        server.allow(rest);
        return denials(uri);
    };
    const Denials no_queue{{"Fenced", "at once"}, {"Shared", "at once"}, {"Semaphore", "at once"}};
    EXPECT_EQ(denials_without({}), Denials{});
    EXPECT_EQ(denials_without({"~redlatch:*"}), no_queue);
    EXPECT_EQ(denials_without({"+z"}), no_queue);
    EXPECT_EQ(denials_without({"+time"}), no_queue);
    EXPECT_EQ(denials_without({"+subscribe", "+publish", "+pubsub", "&"}), Denials{});
    EXPECT_EQ(denials_without({"+zscore", "+zrangebyscore", "+zcount", "+exists"}),
              (Denials{{"Shared", "at once"}, {"Semaphore", "at once"}}));
    EXPECT_EQ(denials_without({"+info"}), (Denials{{"all()", "at once"}}));
    ClientOptions shared = patient(uri);
    shared.connections = Connections::shared;
    Client client{shared};
    const auto all = Lock<>{client, "order:pay", {.replicas = Replicas::all()}}.acquire();
    ASSERT_TRUE(fails_with(all, Errc::denied));
    EXPECT_TRUE(speaks_of(all.error(), "deployment.md")) << all.error().describe();
    EXPECT_EQ(denials_without({"+client"}), Denials{});
    EXPECT_EQ(denials_without({"+type"}), Denials{});
    EXPECT_EQ(denials_without({"+wait"}), (Denials{{"replicas", "at once"}, {"all()", "at once"}}));
    EXPECT_EQ(denials_without({"+h"}), (Denials{{"Reentrant", "at once"},
                                                {"Fenced", "to waiters"},
                                                {"Shared", "to waiters"},
                                                {"Semaphore", "to waiters"}}));
}

/// What the table of docs/compatibility.md names: in which row, and as words of an ACL.
std::map<std::string, std::string> needs() {
    std::map<std::string, std::string> rows;
    std::ifstream document{REDLATCH_COMPATIBILITY_DOCUMENT};
    for (std::string line; std::getline(document, line);) {
        std::istringstream cells{line};
        std::string margin;
        std::string what;
        std::string words;
        std::getline(cells, margin, '|');
        std::getline(cells, what, '|');
        std::getline(cells, words);
        std::string acl;
        for (std::size_t at = words.find('`'); at < words.size();) {
            const std::size_t end = words.find('`', at + 1);
            std::string word = words.substr(at + 1, end - at - 1);
            const bool is_channel = word.starts_with("redlatch:client:");
            const bool is_key = !is_channel && word.starts_with("redlatch:");
            std::ranges::transform(word, word.begin(), [](unsigned char c) {
                return static_cast<char>(std::tolower(c));
            });
            at = words.find('`', end + 1);
            if (word.find('(') != std::string::npos) continue;  // a call, and no command
            acl += (is_channel ? " &" : is_key ? " ~" : " +") + word;
        }
        if (words.find("those of granting") != std::string::npos) {
            acl += rows["being granted a lock instead of polling for it"];
        }
        if (what.size() > 2) rows[what.substr(1, what.size() - 2)] = acl;
    }
    return rows;
}

TEST(Deployment, what_docs_compatibility_names_for_each_policy_is_enough_for_it) {
    const DeployedServer server{least_acl()};
    const std::string uri = server.deployed().uri;
    std::map<std::string, std::string> rows = needs();
    const auto allow = [&](const std::string& row) {
        ASSERT_NE(rows[row], "") << row;
        server.allow("locks on >password resetchannels ~order:* +select" + rows["any lock"] +
                     rows[row]);
    };
    allow("any lock");
    EXPECT_EQ(denial_of<Simple>(uri), "");
    allow("being granted a lock instead of polling for it");
    EXPECT_EQ(denial_of<Simple>(uri), "");
    allow("`Reentrant`");
    EXPECT_EQ(denial_of<Reentrant>(uri), "");
    allow("`Shared`, `Semaphore`");
    EXPECT_EQ(denial_of<Shared>(uri), "");
    EXPECT_EQ(denial_of_permits(uri), "");
    allow("`Fenced`");
    EXPECT_EQ(denial_of<Fenced<Simple>>(uri), "");
    allow("`LockOptions::replicas`");
    EXPECT_EQ(denial_of<Simple>(uri, {.replicas = 1}), "");
    EXPECT_EQ(denial_of<Simple>(uri, {.replicas = Replicas::all()}), "");
}

}  // namespace
}  // namespace redlatch::test
