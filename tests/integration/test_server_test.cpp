#include "lock_test.hpp"
#include "support/redis_server.hpp"
#include "support/temp_folder.hpp"
#include <redlatch/redlatch.hpp>
#include <redlatch/testing.hpp>

#include <gtest/gtest.h>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

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

/// What the exception says where there is no server; empty where there is one.
std::string failure_of(const std::string& program, const std::vector<std::string>& arguments = {}) {
    try {
        const TestServer server{program, arguments};
        return {};
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

TEST(TestServer, says_why_there_is_none) {
    EXPECT_EQ(failure_of("no-such-server"),
              "no-such-server does not answer: it has ended\n"
              "cannot execute 'no-such-server': No such file or directory");
    EXPECT_EQ(failure_of("/"),
              "/ does not answer: it has ended\ncannot execute '/': Permission denied");
    const std::string refused = failure_of(redis_server_program(), {"--maxmemory", "a lot"});
    EXPECT_NE(refused.find("does not answer: it has ended\n"), std::string::npos) << refused;
    EXPECT_NE(refused.find("'maxmemory \"a lot\"'"), std::string::npos) << refused;
}

/// Sets the folder for temporary files, and goes back in the end.
class TemporaryFiles {
public:
    explicit TemporaryFiles(const std::string& folder) { ::setenv("TMPDIR", folder.c_str(), 1); }
    TemporaryFiles(const TemporaryFiles&) = delete;
    TemporaryFiles& operator=(const TemporaryFiles&) = delete;
    ~TemporaryFiles() {
        if (before_) {
            ::setenv("TMPDIR", before_->c_str(), 1);
        } else {
            ::unsetenv("TMPDIR");
        }
        std::filesystem::current_path(path_before_);
    }

private:
    static std::optional<std::string> setting() {
        const char* const value = std::getenv("TMPDIR");
        return value != nullptr ? std::optional<std::string>{value} : std::nullopt;
    }

    std::optional<std::string> before_ = setting();
    std::filesystem::path path_before_ = std::filesystem::current_path();
};

TEST(TestServer, has_a_uri_whatever_the_folder_for_temporary_files_is_called) {
    const TempFolder parent;
    for (const std::string name :
         {"50%", "a%20b", "a b", "a?b", "a#b", "a@b:c", "\u00fc", "a+b&c=d"}) {
        const std::string folder = parent.file(name);
        ASSERT_TRUE(std::filesystem::create_directory(folder));
        const TemporaryFiles set{folder};
        const TestServer server{redis_server_program()};
        EXPECT_TRUE(server.socket().starts_with(folder + "/")) << server.socket();
        Client client{patient(server.uri())};
        EXPECT_TRUE(client.ping()) << server.uri();
    }
    ASSERT_TRUE(std::filesystem::create_directory(parent.file("relative")));
    const TemporaryFiles set{"relative"};
    std::filesystem::current_path(parent.path());
    const TestServer server{redis_server_program()};
    Client client{patient(server.uri())};
    EXPECT_TRUE(client.ping()) << server.uri();
}

TEST(TestServer, throws_where_the_folder_for_temporary_files_cannot_be_used) {
    const TempFolder parent;
    const std::string too_long = parent.file(std::string(100, 'x'));
    ASSERT_TRUE(std::filesystem::create_directory(too_long));
    for (const std::string& folder : {parent.file("nowhere"), too_long}) {
        const TemporaryFiles set{folder};
        EXPECT_THROW(TestServer{redis_server_program()}, std::system_error) << folder;
    }
    EXPECT_TRUE(std::filesystem::is_empty(too_long)) << "it leaves nothing behind";
}

}  // namespace
}  // namespace redlatch::test
