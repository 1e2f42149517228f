// What happens while the name service is silent.

#include "fault_tools.hpp"
#include "support/process.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <netdb.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

/// Names that end in `.silent` have the address 127.0.0.1, but nobody says so before `answer`.
class NameService {
public:
    static NameService& instance() {
        static auto* const service = new NameService;  // look-ups may outlive everything
        return *service;
    }

    static bool asked_for(const char* host) {
        return host != nullptr && std::string_view{host}.ends_with(".silent");
    }

    void begin() {
        std::unique_lock lock{mutex_};
        answering_ = false;
        lookups_ = most_at_once_ = 0;
    }

    void answer() {
        const std::lock_guard lock{mutex_};
        answering_ = true;
        changed_.notify_all();
    }

    void look_up() {
        std::unique_lock lock{mutex_};
        ++lookups_;
        most_at_once_ = std::max(most_at_once_, ++waiting_);
        changed_.wait(lock, [this] { return answering_; });
        --waiting_;
        changed_.notify_all();
    }

    int lookups() {
        const std::lock_guard lock{mutex_};
        return lookups_;
    }
    int most_at_once() {
        const std::lock_guard lock{mutex_};
        return most_at_once_;
    }
    int waiting() {
        const std::lock_guard lock{mutex_};
        return waiting_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool answering_ = true;
    int lookups_ = 0;
    int most_at_once_ = 0;
    int waiting_ = 0;
};

}  // namespace
}  // namespace redlatch::test

/// In place of the C library's.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** found) {
    using redlatch::test::NameService;
    using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto original = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (!NameService::asked_for(host) || numeric) return original(host, service, hints, found);
    NameService::instance().look_up();
    return original("127.0.0.1", service, hints, found);
}

namespace redlatch::test {
namespace {

class SilentNames : public testing::Test {
protected:
    SilentNames() { names_.begin(); }
    ~SilentNames() override {
        names_.answer();
        EXPECT_TRUE(eventually([this] { return names_.waiting() == 0; }));
    }

    ClientOptions options(const std::string& host = "redis.silent") const {
        const std::string port = std::to_string(server_.port());
        ClientOptions options = options_for("redis://" + host + ":" + port, 50ms);
        options.observer = journal_;
        return options;
    }

    bool failed(std::size_t times) {
        return eventually([&] { return journal_->errors().size() >= times; });
    }

    RedisServer server_{{.tcp = true}};
    std::shared_ptr<Journal> journal_ = std::make_shared<Journal>();
    NameService& names_ = NameService::instance();
};

TEST_F(SilentNames, cost_one_thread_however_many_wait_and_however_long) {
    Client client{options()};
    std::vector<std::jthread> threads;
    const std::size_t before = running_threads();
    for (int i = 0; i < 20; ++i) {
        threads.emplace_back([&client, i](const std::stop_token& stop) {
            Lock<Simple> lock{client, "job:" + std::to_string(i)};
            const auto held = lock.acquire({.stop = stop});
            EXPECT_EQ(held.has_value(), !stop.stop_requested());
        });
    }
    EXPECT_TRUE(failed(100));
    EXPECT_TRUE(eventually([&] { return names_.lookups() >= 1; }));
    EXPECT_EQ(names_.most_at_once(), 1);
    EXPECT_EQ(names_.lookups(), 1);
    constexpr std::size_t of_the_client = 8;  // and one that looks the name up
    EXPECT_LE(running_threads(), before + threads.size() + of_the_client);
    names_.answer();
    for (std::jthread& thread : threads) thread.join();  // each has had its lock
}

TEST_F(SilentNames, that_answer_are_asked_again_for_the_next_connection) {
    Client client{options()};
    EXPECT_TRUE(fails_with(client.ping(), Errc::unavailable));
    names_.answer();
    EXPECT_TRUE(eventually([&] { return client.ping().has_value(); }));
    const int before = names_.lookups();
    server_.restart();
    EXPECT_TRUE(eventually([&] { return client.ping().has_value(); }));
    EXPECT_GT(names_.lookups(), before);
}

TEST_F(SilentNames, of_several_masters_at_one_host_cost_one_look_up) {
    ClientOptions several = options();
    several.uris.emplace_back("redis://redis.silent:1");
    several.uris.emplace_back("redis://redis.silent:2");
    Client client{several};
    EXPECT_FALSE(client.ping().has_value());
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(
        is_error(thrown_by([&] { static_cast<void>(lock.try_lock_for(500ms)); }), Errc::no_quorum));
    EXPECT_TRUE(eventually([&] { return names_.lookups() >= 1; }));
    EXPECT_EQ(names_.lookups(), 1);
}

TEST_F(SilentNames, keep_nobody_who_has_given_up) {
    ClientOptions patient = options();
    patient.connect_timeout = 60s;
    patient.command_timeout = 60s;
    Client client{patient};
    std::stop_source stop;
    auto waiting = in_background([&] {
        Lock<Simple> lock{client, "job"};
        return lock.acquire({.stop = stop.get_token()});
    });
    auto limited = in_background([&] {
        Lock<Simple> lock{client, "task"};
        return lock.acquire({.wait = 100ms});
    });
    ASSERT_TRUE(finishes(limited)) << "each waits by a limit of its own";
    EXPECT_TRUE(fails_with(limited.get(), Errc::unavailable));
    EXPECT_TRUE(eventually([&] { return names_.waiting() == 1; }));
    stop.request_stop();
    ASSERT_TRUE(finishes(waiting));
    EXPECT_TRUE(fails_with(waiting.get(), Errc::cancelled));
}

TEST_F(SilentNames, outlive_their_client) {
    {
        Client client{options()};
        EXPECT_TRUE(fails_with(client.ping(), Errc::unavailable));
    }
    EXPECT_TRUE(eventually([&] { return names_.waiting() == 1; }));
}

TEST_F(SilentNames, of_a_parent_are_not_waited_for_by_its_child) {
    Client client{options()};
    EXPECT_TRUE(fails_with(client.ping(), Errc::unavailable));
    EXPECT_TRUE(eventually([&] { return names_.waiting() == 1; }));
    const pid_t child = ::fork();
    if (child == 0) {
        const auto asks = [&] { return names_.lookups() == 2; };  // one of its own
        const bool failed = !client.ping();
        ::_exit(failed && eventually(asks) ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace redlatch::test
