#include "lock_test.hpp"
#include "support/redis_server.hpp"
#include <redlatch/redlatch.hpp>
#include <redlatch/testing.hpp>

#include <gtest/gtest.h>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

TEST(TestServer, answers_as_soon_as_it_is_made) {
    const TestServer server{redis_server_program()};
    Client client{patient(server.uri())};
    EXPECT_TRUE(client.ping());
    Lock<> lock{client, "mine"};
    EXPECT_TRUE(lock.try_lock());
}

TEST(TestServer, is_nobody_elses) {
    const TestServer one{redis_server_program()};
    const TestServer other{redis_server_program()};
    Client client{patient(one.uri())};
    Client elsewhere{patient(other.uri())};
    Lock<> lock{client, "mine"};
    Lock<> same_name{elsewhere, "mine"};
    EXPECT_TRUE(lock.try_lock());
    EXPECT_TRUE(same_name.try_lock());
}

TEST(TestServer, leaves_nothing_behind) {
    std::string folder;
    {
        const TestServer server{redis_server_program()};
        folder = std::filesystem::path{server.socket()}.parent_path();
        EXPECT_TRUE(std::filesystem::exists(folder));
    }
    EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(TestServer, has_forgotten_everything_after_a_restart) {
    TestServer server{redis_server_program()};
    Client client{patient(server.uri())};
    Lock<Simple> lock{client, "mine"};
    ASSERT_TRUE(lock.try_lock());
    server.stop();
    server.stop();
    EXPECT_FALSE(client.ping());
    server.start();
    server.start();
    EXPECT_FALSE(lock.inspect()->locked);
}

TEST(TestServer, answers_nothing_while_it_is_frozen) {
    const TestServer server{redis_server_program()};
    Client client{ClientOptions{.uris = {server.uri()}, .command_timeout = 3s}};
    ASSERT_TRUE(client.ping());
    server.freeze();
    EXPECT_FALSE(client.ping());
    server.thaw();
    EXPECT_TRUE(client.ping());
}

TEST(TestServer, does_nothing_in_a_forked_child) {
    TestServer server{redis_server_program()};
    Client client{patient(server.uri())};
    ASSERT_TRUE(client.ping());
    const ::pid_t child = ::fork();
    if (child == 0) {
        server.freeze();
        server.stop();
        server.start();
        ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(client.ping());
}

TEST(TestServer, takes_more_arguments) {
    const TestServer server{redis_server_program(), {"--requirepass", "secret"}};
    Client stranger{patient(server.uri())};
    EXPECT_EQ(stranger.ping().error().code, Errc::denied);
    Client client{patient("unix://:secret@" + server.socket())};
    EXPECT_TRUE(client.ping());
}

TEST(TestServer, says_why_there_is_none) {
    try {
        const TestServer server{"no-such-server"};
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string{error.what()}.find("no-such-server does not answer"),
                  std::string::npos);
    }
    try {
        const TestServer server{redis_server_program(), {"--maxmemory", "a lot"}};
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string{error.what()}.find("does not answer"), std::string::npos);
    }
}

}  // namespace
}  // namespace redlatch::test
