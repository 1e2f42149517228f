// What docs/deployment.md advises.

#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

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

/// Whether the server has refused the library nothing.
testing::AssertionResult everything_was_allowed(RawRedis& redis) {
    const RawReply log = redis.command({"ACL", "LOG"});
    if (log.elements.empty()) return testing::AssertionSuccess();
    auto result = testing::AssertionFailure();
    for (const RawReply& field : log.elements.front().elements) result << field.text << ' ';
    return result;
}

template <class Policy>
void lock_wait_and_look(const std::string& uri, RawRedis& redis) {
    Client client{patient(uri)};
    Client other{patient(uri)};
    ASSERT_TRUE(succeeds(client.ping()));
    for (int turn = 0; turn < 3; ++turn) {
        Lock<Policy> lock{client, "order:pay"};
        Held held = lock.acquire().value();
        EXPECT_TRUE(succeeds(held.extend(40s)));
        auto waiter = in_background([&other] {
            return Lock<Policy>{other, "order:pay"}.acquire({.wait = 30s});
        });
        ASSERT_TRUE(eventually([&] { return redis.exists("redlatch:queue:{order:pay}"); }));
        EXPECT_TRUE(succeeds(lock.inspect()));
        EXPECT_TRUE(is_outcome(held.release(), Release::released));
        ASSERT_TRUE(finishes(waiter));
        EXPECT_TRUE(succeeds(waiter.get()));
    }
}

/// Readers, a writer, and permits whose number somebody sets.
void read_write_and_take(const std::string& uri, RawRedis& redis) {
    Client client{patient(uri)};
    Client other{patient(uri)};
    Lock<Watchdog<Shared>> lock{client, "order:config"};
    Held writing = lock.acquire().value();
    auto reader = in_background([&other] {
        return Lock<Watchdog<Shared>>{other, "order:config"}.acquire_shared({.wait = 30s});
    });
    ASSERT_TRUE(eventually([&] { return redis.exists("redlatch:queue:{order:config}"); }));
    EXPECT_TRUE(succeeds(writing.downgrade()));
    EXPECT_TRUE(succeeds(reader.get()));
    EXPECT_TRUE(succeeds(lock.force_unlock()));
    Semaphore<> gpus{client, "order:gpus", 2};
    Held permits = gpus.take({.permits = 2}).value();
    auto taker = in_background([&other] {
        return Semaphore<>{other, "order:gpus", 2}.take({.wait = 30s});
    });
    ASSERT_TRUE(eventually([&] { return redis.exists("redlatch:queue:{order:gpus}"); }));
    EXPECT_TRUE(succeeds(permits.extend(40s)));
    EXPECT_TRUE(succeeds(gpus.inspect()));
    EXPECT_TRUE(succeeds(gpus.set_permits(3)));
    EXPECT_TRUE(succeeds(taker.get()));
    EXPECT_TRUE(succeeds(gpus.force_release(permits.token())));
}

TEST(Deployment, the_least_acl_is_enough_for_everything) {
    const std::string acl = least_acl();
    ASSERT_TRUE(acl.starts_with("locks on >password ")) << acl;
    RedisServer server{{.acl = {acl}}};
    RawRedis redis{server};
    const std::string uri = "unix://locks:password@" + server.socket_path() + "?db=1";
    redis.select(1);
    lock_wait_and_look<Watchdog<Simple>>(uri, redis);
    lock_wait_and_look<Watchdog<Reentrant>>(uri, redis);
    lock_wait_and_look<Watchdog<Fenced<Shared>>>(uri, redis);
    read_write_and_take(uri, redis);
    EXPECT_TRUE(everything_was_allowed(redis));
}

}  // namespace
}  // namespace redlatch::test
