// Connections that the program makes itself.

#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace redlatch::test {
namespace {

/// A server, and a factory of connections to it that counts them.
class OwnConnection : public ::testing::Test {
protected:
    ConnectionFactory factory() {
        return {.connect =
                    [this](std::chrono::milliseconds) {
                        ++made_;
                        redisContext* const context =
                            redisConnectUnix(server_.socket_path().c_str());
                        freeReplyObject(redisCommand(context, "AUTH secret"));
                        freeReplyObject(redisCommand(context, "SELECT 3"));
                        freeReplyObject(redisCommand(context, "CLIENT SETNAME made-here"));
                        descriptor_ = context->fd;
                        return context;
                    },
                .name = "the tunnel"};
    }

    /// As the tests' patient clients.
    ClientOptions options() {
        return {.factories = {factory()}, .connect_timeout = 10s, .command_timeout = 10s};
    }

    RedisServer server_{{.password = "secret"}};
    RawRedis redis_{server_};
    std::atomic<int> made_{0};
    std::atomic<int> descriptor_{-1};
};

TEST_F(OwnConnection, stands_in_for_a_uri_and_is_used_as_it_is) {
    Client client{options()};
    EXPECT_EQ(made_, 0) << "connected before the first use";
    Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 6s}};
    Held held = lock.acquire().value();
    redis_.select(3);
    EXPECT_TRUE(redis_.exists("job")) << "in the database that the factory has selected";
    ASSERT_TRUE(stays([&] { return held.held(); }, 7s)) << "renewed";
    for (const auto& connection : redis_.client_list()) {
        const bool is_ours = connection.at("db") == "3" && connection.at("cmd") != "client|list";
        EXPECT_TRUE(!is_ours || connection.at("name") == "made-here");
    }
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    EXPECT_EQ(made_, 2) << "one for commands, one for renewal";
}

TEST_F(OwnConnection, carries_the_messages_for_waiters_too) {
    Client client{options()};
    Client other{options()};
    Held held = Lock<Simple>{client, "job"}.acquire().value();
    auto waiter = in_background([&] { return Lock<Simple>{other, "job"}.acquire({.wait = 60s}); });
    redis_.select(3);
    ASSERT_TRUE(eventually([&] { return redis_.exists("redlatch:queue:{job}"); }));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

TEST_F(OwnConnection, is_owned_by_the_client) {
    const std::size_t before = open_descriptors();
    {
        Client client{options()};
        ASSERT_TRUE(succeeds(client.ping()));
        EXPECT_EQ(::fcntl(descriptor_, F_GETFD), FD_CLOEXEC);
        EXPECT_EQ(open_descriptors(), before + 1);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(OwnConnection, is_made_anew_after_one_that_broke) {
    Client client{options()};
    ASSERT_TRUE(succeeds(client.ping()));
    redis_.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    EXPECT_TRUE(succeeds(client.ping()));
    EXPECT_EQ(made_, 2);
}

TEST(OwnConnections, that_fail_are_faults) {
    const auto error_of = [](auto connect) {
        Client client{ConnectionFactory{.connect = connect}};
        const auto answer = client.ping();
        EXPECT_TRUE(fails_with(answer, Errc::unavailable));
        return answer ? Error{} : answer.error();
    };
    using std::chrono::milliseconds;
    const Error none = error_of([](milliseconds) -> redisContext* { return nullptr; });
    EXPECT_TRUE(speaks_of(none, "made no connection"));
    EXPECT_EQ(none.node, "own connection");
    EXPECT_TRUE(speaks_of(error_of([](milliseconds) { return redisConnectUnix("/no/socket"); }),
                          "No such file"));
    EXPECT_TRUE(speaks_of(error_of([](milliseconds) -> redisContext* {
                              throw std::runtime_error{"the tunnel\nis closed"};
                          }),
                          R"(the tunnel\x0ais closed)"));
    EXPECT_TRUE(speaks_of(error_of([](milliseconds) -> redisContext* { throw 7; }), "threw"));
}

TEST(OwnConnections, are_told_how_long_they_may_take) {
    std::atomic<bool> fine{true};
    ClientOptions options{
        .factories = {{.connect = [&](std::chrono::milliseconds time) -> redisContext* {
            if (time <= 0ms || time > 300ms) fine = false;
            return nullptr;
        }}},
        .connect_timeout = 300ms};
    Client client{options};
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(is_error(thrown_by([&] { static_cast<void>(lock.try_lock_for(100ms)); }),
                         Errc::unavailable));
    EXPECT_TRUE(fine);
}

TEST_F(OwnConnection, that_is_none_of_ours_is_refused_like_any_other) {
    Client client{ConnectionFactory{.connect = [&](std::chrono::milliseconds) {
        return redisConnectUnix(server_.socket_path().c_str());  // says no password
    }}};
    EXPECT_TRUE(fails_with(client.ping(), Errc::denied));
}

}  // namespace
}  // namespace redlatch::test
