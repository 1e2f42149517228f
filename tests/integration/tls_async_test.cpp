// Asynchronous operations over rediss://: their link is secured as every connection is.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/authority.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <redlatch/tls.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

class AsyncTls : public ::testing::Test {
protected:
    ClientOptions options(std::chrono::milliseconds timeout = 10s) const {
        ClientOptions options = options_for("rediss" + proxy_.uri().substr(5), timeout);
        options.connect_timeout = 10s;
        options.tls = tls({.ca_file = authority_.file()});
        return options;
    }

    /// The servers' part of what is left of locks.
    std::size_t keys_left() { return redis_.command({"KEYS", "job*"}).elements.size(); }

    Authority authority_;
    RedisServer server_{{.tls = ServerTls{authority_.issue("IP:127.0.0.1"), authority_.file()}}};
    Proxy proxy_{server_.tcp_uri(), {.tcp = true}};
    RawRedis redis_{server_};
};

/// Takes a lock of its own and gives it back, and then the next, `rounds` times.
Detached use(Client& client, std::string name, int rounds, std::atomic<int>& done,
             std::atomic<int>& failed) {
    Lock<Reentrant> lock{client, name};
    for (int i = 0; i < rounds; ++i) {
        Result<Held> held = co_await lock.async_acquire({.wait = 60s});
        if (!held) {
            ++failed;
            continue;
        }
        const Result<Release> released = co_await held->async_release();
        if (!released || *released != Release::released) ++failed;
    }
    ++done;
}

TEST_F(AsyncTls, every_operation_works) {
    Client client{options()};
    Client other{options()};
    Lock<Watchdog<Fenced<Reentrant>>> lock{client, "job", {.lease = 6s}};
    Held held = take(lock);
    EXPECT_TRUE(is_renewed(held));
    Outcome<void> extended;
    held.async_extend(30s, extended.callback());
    EXPECT_TRUE(succeeds(extended.get()));
    Outcome<Held> nested;
    held.async_nest(nested.callback());
    Held inner = nested.get().value();
    Outcome<LockInfo> info;
    lock.async_inspect(info.callback());
    EXPECT_EQ(info.get().value().hold_count, 2U);

    Lock<Watchdog<Fenced<Reentrant>>> theirs{other, "job", {.lease = 6s}};
    Outcome<Held> waiting;
    theirs.async_acquire({.wait = 60s}, {}, waiting.callback());
    ASSERT_TRUE(eventually([&] { return redis_.exists("redlatch:queue:{job}"); }));
    for (Held* const each : {&inner, &held}) {
        Outcome<Release> released;
        each->async_release(released.callback());
        EXPECT_TRUE(succeeds(released.get()));
    }
    EXPECT_TRUE(succeeds(waiting.get())) << "by a grant";
}

// Names so long that what is written together is many records of TLS, and what comes back too.
TEST_F(AsyncTls, threads_share_one_link) {
    ClientOptions shared = options();
    shared.connections = Connections::shared;
    Client client{shared};
    std::atomic<int> failed{0};
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 8; ++t) {
            threads.emplace_back([&, t] {
                Lock<Fenced<Simple>> lock{client, "job" + std::to_string(t)};
                for (int i = 0; i < 20; ++i) {
                    lock.lock();
                    if (!lock.release()) ++failed;
                }
            });
        }
    }
    EXPECT_EQ(failed, 0);
    EXPECT_EQ(keys_left(), 0U);
    EXPECT_EQ(proxy_.counts().connections, 1);
}

TEST_F(AsyncTls, crowd_shares_one_link) {
    Client client{options()};
    std::atomic<int> done{0};
    std::atomic<int> failed{0};
    proxy_.stall(Way::requests);
    for (int i = 0; i < 300; ++i) {
        use(client, "job" + std::string(1000, 'x') + std::to_string(i), 3, done, failed);
    }
    proxy_.pass();
    EXPECT_TRUE(eventually([&] { return done == 300; }));
    EXPECT_EQ(failed, 0);
    EXPECT_TRUE(eventually([&] { return keys_left() == 0; }));
    EXPECT_LE(proxy_.counts().connections, 2) << "a link, and one for messages";
}

TEST_F(AsyncTls, answers_may_come_byte_by_byte) {
    Client client{options()};
    std::atomic<int> done{0};
    std::atomic<int> failed{0};
    use(client, "job", 1, done, failed);
    ASSERT_TRUE(eventually([&] { return done == 1; }));
    proxy_.trickle(3, 1ms, Way::replies);
    for (int i = 0; i < 20; ++i) use(client, "job" + std::to_string(i), 1, done, failed);
    EXPECT_TRUE(eventually([&] { return done == 21; }));
    EXPECT_EQ(failed, 0);
}

TEST_F(AsyncTls, silent_server_ends_no_wait_late_and_is_used_again) {
    constexpr auto limit = 2s;
    Client client{options(limit)};
    Lock<Simple> lock{client, "job"};
    Held held = take(lock);
    server_.freeze();
    Outcome<Held> tried;
    const Stopwatch watch;
    Lock<Simple>{client, "job2"}.async_acquire({.wait = 1s}, {}, tried.callback());
    Outcome<Release> released;
    held.async_release(released.callback());
    EXPECT_EQ(code_of(tried.get()), Errc::unavailable);
    EXPECT_EQ(code_of(released.get()), Errc::unclear);
    EXPECT_LT(watch.elapsed(), 2 * limit + slack);
    server_.thaw();
    const auto works = [&] {
        Outcome<Held> again;
        Lock<Simple>{client, "job"}.async_acquire({.wait = 60s}, {}, again.callback());
        return again.get().has_value();
    };
    EXPECT_TRUE(eventually(works));
    EXPECT_TRUE(eventually([&] { return keys_left() == 0; })) << "late commands are undone";
}

TEST_F(AsyncTls, link_that_is_cut_again_and_again_loses_no_operation) {
    Client client{options()};
    std::atomic<int> done{0};
    std::atomic<int> failed{0};
    for (int round = 0; round < 10; ++round) {
        done = 0;
        for (int i = 0; i < 50; ++i) use(client, "job" + std::to_string(i), 3, done, failed);
        if (round % 2 == 0) {
            proxy_.cut();
        } else {
            proxy_.reset();
        }
        ASSERT_TRUE(eventually([&] { return done == 50; })) << "round " << round;
    }
    EXPECT_TRUE(eventually([&] { return keys_left() == 0; })) << "what is in doubt is released";
}

TEST_F(AsyncTls, closing_the_client_ends_what_is_under_way) {
    Outcome<Held> waiting;
    Outcome<Held> asking;
    {
        Client client{options(1s)};
        redis_.command({"SET", "job", "others", "PX", "600000"});
        Lock<Simple>{client, "job"}.async_acquire({}, {}, waiting.callback());
        ASSERT_TRUE(eventually([&] { return redis_.exists("redlatch:queue:{job}"); }));
        proxy_.black_hole();
        Lock<Simple>{client, "job2"}.async_acquire({}, {}, asking.callback());
    }
    EXPECT_EQ(code_of(waiting.get()), Errc::cancelled);
    EXPECT_EQ(code_of(asking.get()), Errc::cancelled);
}

}  // namespace
}  // namespace redlatch::test
