// What can go wrong between a client and its socket.

#include "fault_tools.hpp"
#include "support/process.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/sanitizers.hpp"
#include "support/socket.hpp"
#include "support/temp_folder.hpp"
#include <redlatch/net/node.hpp>
#include <redlatch/net/open_connection.hpp>
#include <redlatch/service/eviction_check.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <future>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

/// Says OK to each connection's first request, its answers to all others, the last one again and
/// again, and hangs up after that if so told. One connection at a time.
class FakeServer {
public:
    FakeServer(std::string answer, bool hang_up)
        : FakeServer(std::vector<std::string>{std::move(answer)}, hang_up) {}
    explicit FakeServer(std::vector<std::string> answers, bool hang_up = false)
        : answers_(std::move(answers)), hang_up_(hang_up), thread_([this] { run(); }) {}
    ~FakeServer() {
        stop_ = true;
        thread_.join();
    }

    std::string uri() const { return address_.uri(); }

    /// What nobody has asked for, on the present connection. Returns when it was said.
    [[nodiscard]] bool say(std::string words) {
        {
            const std::lock_guard lock{mutex_};
            to_say_ = std::move(words);
        }
        return eventually([this] {
            const std::lock_guard lock{mutex_};
            return to_say_.empty();
        });
    }

    /// How many connections the other side has closed, or this one.
    int ended() const { return ended_; }

    /// The requests that were answered; to be asked when there will be no more.
    const std::vector<std::string>& requests() const { return requests_; }

private:
    void run() {
        while (!stop_) {
            if (!readable(listener_.get())) continue;
            const UniqueFd connection{::accept(listener_.get(), nullptr, nullptr)};
            if (connection) serve(connection.get());
            ++ended_;
        }
    }

    void serve(int fd) {
        std::vector<char> buffer(4096);
        for (bool first = true; !stop_;) {
            say_to(fd);
            if (!readable(fd)) continue;
            const ssize_t size = ::recv(fd, buffer.data(), buffer.size(), 0);
            if (size <= 0) return;
            const std::string_view text = first ? shaken_hands : answer();
            if (!first) note({buffer.data(), static_cast<std::size_t>(size)});
            ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
            if (!first && hang_up_) return;
            first = false;
        }
    }

    void say_to(int fd) {
        const std::lock_guard lock{mutex_};
        ::send(fd, to_say_.data(), to_say_.size(), MSG_NOSIGNAL);
        to_say_.clear();
    }

    std::string_view answer() const {
        return answers_[std::min(requests_.size(), answers_.size() - 1)];
    }

    void note(std::string_view request) { requests_.emplace_back(request); }

    static bool readable(int fd) {
        pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
        return ::poll(&entry, 1, 10) > 0;
    }

    /// To CLIENT SETNAME, twice INFO, and TIME.
    static constexpr std::string_view shaken_hands =
        "+OK\r\n$0\r\n\r\n$0\r\n\r\n*2\r\n$1\r\n1\r\n$1\r\n0\r\n";

    TempFolder folder_;
    Address address_{.path = folder_.file("fake"), .host = {}};
    UniqueFd listener_ = listen_on(address_);
    const std::vector<std::string> answers_;
    std::vector<std::string> requests_;
    const bool hang_up_;
    std::atomic<bool> stop_{false};
    std::atomic<int> ended_{0};
    std::mutex mutex_;
    std::string to_say_;
    std::thread thread_;
};

struct Garbage {
    const char* what;
    std::string answer;
    bool hang_up;
    Errc code;
};

std::string nested(int depth) {
    std::string arrays;
    for (int i = 0; i < depth; ++i) arrays += "*1\r\n";
    return arrays;
}

TEST(Connection, answers_garbage_with_an_error) {
    const std::vector<Garbage> all{
        {"no protocol at all", "220 mail ready\r\n", false, Errc::protocol},
        {"a status that SET never gives", "+QUEUED\r\n", false, Errc::protocol},
        {"a number", ":1\r\n", false, Errc::protocol},
        {"an array of another shape", "*3\r\n:1\r\n:1\r\n:1\r\n", false, Errc::protocol},
        {"an answer and one more", "*2\r\n:0\r\n:1\r\n+OK\r\n", false, Errc::protocol},
        {"an array of strings", "*2\r\n$1\r\n1\r\n$1\r\n1\r\n", false, Errc::protocol},
        {"nothing where something is due", "$-1\r\n", false, Errc::protocol},
        {"a map of RESP3", "%1\r\n+a\r\n+b\r\n", false, Errc::protocol},
        {"an unknown error", "-EVIL do as I say\r\n", false, Errc::protocol},
        {"a huge bulk", "$2000000\r\n" + std::string(1'500'000, 'x'), false, Errc::protocol},
        {"a huge array", "*100000000\r\n", false, Errc::protocol},
        {"an array of large ones", "*2\r\n*1000000\r\n*1000000\r\n", false, Errc::protocol},
        {"arrays in arrays without end", nested(1'000), false, Errc::protocol},
        {"half an array", "*2\r\n:1\r\n", false, Errc::unavailable},
        {"half an array and the end", "*2\r\n:1\r\n", true, Errc::unavailable},
        {"the end", "", true, Errc::unavailable},
    };
    for (const Garbage& garbage : all) {
        SCOPED_TRACE(garbage.what);
        const FakeServer server{garbage.answer, garbage.hang_up};
        constexpr auto timeout = 2s;
        Client client{options_for(server.uri(), timeout)};
        Lock<Simple> lock{client, "job"};
        const Stopwatch watch;
        EXPECT_TRUE(is_error(thrown_by([&] { static_cast<void>(lock.try_lock()); }), garbage.code));
        EXPECT_LT(watch.elapsed(), timeout + slack);
        EXPECT_FALSE(lock.held());
        // What it was for is anybody's guess, and so would the next answer be. An error is an answer.
        const bool is_answer = garbage.answer.starts_with('-');
        EXPECT_TRUE(is_answer || eventually([&] { return server.ended() >= 1; }));
    }
}

/// What an acquire says: the last but one of its words, each of which stands behind its length.
long long server_deadline(const std::string& request) {
    std::istringstream lines{request};
    std::vector<std::string> words;
    for (std::string line; std::getline(lines, line);) words.push_back(line);
    return std::stoll(words.at(words.size() - 3));
}

// A log gets a line of each try.
TEST(Connection, passes_on_no_more_of_an_error_than_a_line_has_room_for) {
    RedisServer server;
    detail::Resolver resolver;
    const detail::Limit limit = detail::Limit::in(generous_limit);
    detail::Endpoint endpoint;
    endpoint.transport = detail::Endpoint::Transport::unix_socket;
    endpoint.path = server.socket_path();
    auto connection = detail::open_connection(endpoint, "somebody", nullptr, resolver, limit);
    ASSERT_TRUE(connection);
    const std::string script = "return redis.error_reply('ERR ' .. string.rep('x', 100000))";
    const auto reply = connection->call(
        detail::Call::plain({"EVAL", std::string_view{script}, std::int64_t{0}}).wire(), limit);
    ASSERT_FALSE(reply);
    EXPECT_TRUE(reply.error().error.message.starts_with("ERR xxx"));
    EXPECT_TRUE(reply.error().error.message.ends_with("x..."));
    EXPECT_LT(reply.error().error.message.size(), 2'100U);
}

// A command that arrives mangled: the server says so and hangs up.
TEST(Connection, is_over_when_the_server_did_not_understand) {
    RedisServer server;
    detail::Endpoint endpoint;
    endpoint.transport = detail::Endpoint::Transport::unix_socket;
    endpoint.path = server.socket_path();
    const detail::Limit limit = detail::Limit::in(generous_limit);
    detail::Resolver resolver;
    auto connection = detail::open_connection(endpoint, "mangled", nullptr, resolver, limit);
    ASSERT_TRUE(connection);
    const auto reply = connection->call("*1\r\n$-7\r\n", limit);
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().error.code, Errc::protocol);
    EXPECT_FALSE(reply.error().transient);
    EXPECT_NE(reply.error().error.message.find("Protocol error"), std::string::npos);
    EXPECT_FALSE(connection->call(detail::Call::plain({"PING"}).wire(), limit));
    EXPECT_FALSE(connection->alive());
}

/// A connection to a server that speaks over a Unix socket.
Expected<detail::Connection, detail::Fault> connect_to(const RedisServer& server) {
    detail::Endpoint endpoint;
    endpoint.transport = detail::Endpoint::Transport::unix_socket;
    endpoint.path = server.socket_path();
    detail::Resolver resolver;
    return detail::open_connection(endpoint, "somebody", nullptr, resolver,
                                   detail::Limit::in(generous_limit));
}

TEST(Connection, waits_for_a_unix_socket_that_has_too_many_to_let_in) {
    RedisServer server{{.config = {{"tcp-backlog", "1"}}}};
    server.freeze();
    const auto address = detail::Address::of_path(server.socket_path());
    const auto* const to = reinterpret_cast<const sockaddr*>(&address.storage);
    std::vector<detail::Descriptor> waiting;
    int why = 0;
    while (why == 0) {
        waiting.push_back(*detail::open_socket(AF_UNIX));
        if (::connect(waiting.back().get(), to, address.length) != 0) why = errno;
    }
    ASSERT_EQ(why, EAGAIN);
    auto connection = in_background([&server] { return connect_to(server).has_value(); });
    EXPECT_EQ(connection.wait_for(100ms), std::future_status::timeout);
    server.thaw();
    ASSERT_TRUE(finishes(connection));
    EXPECT_TRUE(connection.get());
}

TEST(Connection, gives_up_on_a_unix_socket_that_goes_on_having_too_many) {
    RedisServer server{{.config = {{"tcp-backlog", "1"}}}};
    server.freeze();
    Client client{{.uris = {server.uri()}, .connect_timeout = 200ms, .command_timeout = 200ms}};
    std::vector<std::future<Result<void>>> pings;
    for (int i = 0; i < 16; ++i) pings.push_back(in_background([&] { return client.ping(); }));
    for (auto& ping : pings) {
        ASSERT_TRUE(finishes(ping));
        EXPECT_FALSE(ping.get());
    }
    server.thaw();
}

TEST(EvictionCheck, looks_again_after_a_while_until_it_has_warned) {
    RedisServer server;
    RawRedis redis{server};
    std::vector<std::string> warnings;
    detail::EvictionCheck check{
        [&](const Observer::Warning& warning) { warnings.push_back(warning.message); }, 300ms};
    const detail::Limit limit = detail::Limit::in(generous_limit);
    detail::Connection connection = *connect_to(server);
    EXPECT_TRUE(check.look_at(connection, limit));
    redis.command({"CONFIG", "SET", "maxmemory", "100mb"});
    redis.command({"CONFIG", "SET", "maxmemory-policy", "allkeys-random"});
    EXPECT_TRUE(warnings.empty());
    EXPECT_TRUE(eventually([&] {
        EXPECT_TRUE(check.look_at(connection, limit));
        return !warnings.empty();
    }));
    for (const Stopwatch watch; watch.elapsed() < 600ms;) {
        EXPECT_TRUE(check.look_at(connection, limit));
    }
    EXPECT_EQ(warnings.size(), 1U);
}

TEST(Connection, sends_again_by_the_servers_clock_what_that_one_finds_late) {
    constexpr long long server_time = 5'000'000'000;
    const std::string time = std::to_string(server_time);
    const FakeServer server{{"-LATE " + time + " is the time\r\n",
                             "*5\r\n:1\r\n:30000\r\n:0\r\n:" + time + "\r\n:0\r\n", ":1\r\n"}};
    constexpr std::chrono::milliseconds timeout{5000};
    {
        Client client{options_for(server.uri(), timeout)};
        Lock<Reentrant> lock{client, "job"};
        EXPECT_TRUE(lock.try_lock());
    }
    const auto& requests = server.requests();
    ASSERT_GE(requests.size(), 2U);
    constexpr long long most_microseconds = 1'000LL * (timeout + detail::late_margin).count();
    EXPECT_LE(server_deadline(requests[0]), 1'000'000 + 60'000'000)
        << "a minute after the handshake";
    EXPECT_GT(server_deadline(requests[1]), server_time);
    EXPECT_LE(server_deadline(requests[1]), server_time + most_microseconds);
}

TEST(Connection, gives_up_on_a_server_that_finds_everything_late) {
    const FakeServer server{{"-LATE 5000000000 is the time\r\n"}};
    Client client{options_for(server.uri(), 2s)};
    Lock<Reentrant> lock{client, "job"};
    const auto error = thrown_by([&] { static_cast<void>(lock.try_lock()); });
    ASSERT_TRUE(is_error(error, Errc::unavailable));
    EXPECT_TRUE(speaks_of(*error, "LATE")) << error->describe();
}

TEST(Connection, does_without_the_time_of_a_server_that_keeps_it_to_itself) {
    RedisServer server{{.acl = {"default on nopass ~* +@all -time"}}};
    Client client{options_for(server.uri(), 10s)};
    Lock<Reentrant> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST(Connection, survives_a_denied_client_setname) {
    RedisServer server{{.acl = {"default on nopass ~* +@all -client|setname"}}};
    Client client{options_for(server.uri(), 10s)};
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(lock.try_lock());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST(Connection, gives_up_on_a_name_without_address) {
    Client client{options_for("redis://no-such-host.invalid")};
    Lock<Simple> lock{client, "job"};
    const Stopwatch watch;
    EXPECT_TRUE(is_error(thrown_by([&] { static_cast<void>(lock.try_lock_for(200ms)); }),
                         Errc::unavailable));
    EXPECT_LT(watch.elapsed(), 200ms + slack);
}

TEST(Connection, raises_no_sigpipe) {
    struct sigaction action {};
    ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &action), 0);
    ASSERT_EQ(action.sa_handler, SIG_DFL) << "the test would show nothing";

    RedisServer server;
    Client client{options_for(server.uri(), 10s)};
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock());
    server.kill();
    lock.unlock();  // writes to a socket whose other end is closed
    EXPECT_TRUE(
        is_error(thrown_by([&] { static_cast<void>(lock.try_lock()); }), Errc::unavailable));
}

/// While it lives, a signal interrupts this process every millisecond.
class SignalStorm {
public:
    SignalStorm() {
        struct sigaction action {};
        action.sa_handler = [](int) { ++count; };  // and no SA_RESTART
        ::sigaction(SIGALRM, &action, &before_);
        set_interval(1000);
    }
    ~SignalStorm() {
        set_interval(0);
        ::sigaction(SIGALRM, &before_, nullptr);
    }

    static inline std::atomic<int> count{0};

private:
    static void set_interval(suseconds_t microseconds) {
        const itimerval timer{{0, microseconds}, {0, microseconds}};
        ::setitimer(ITIMER_REAL, &timer, nullptr);
    }

    struct sigaction before_ {};
};

TEST(Connection, keeps_its_deadline_in_a_storm_of_signals) {
    RedisServer server;
    Client client{options_for(server.uri(), 10s)};
    Lock<Simple> lock{client, "job"};
    server.freeze();
    {
        const SignalStorm storm;
        const Stopwatch watch;
        EXPECT_TRUE(is_error(thrown_by([&] { static_cast<void>(lock.try_lock_for(300ms)); }),
                             Errc::unavailable));
        EXPECT_GE(watch.elapsed(), 300ms);
        EXPECT_LT(watch.elapsed(), 300ms + slack);
    }
    EXPECT_GT(SignalStorm::count, 10);
    server.thaw();
    const SignalStorm storm;
    lock.lock();
    EXPECT_TRUE(lock.held());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

bool can_lock(const std::string& uri) {
    Client client{options_for(uri, 10s)};
    Lock<Simple> lock{client, "job"};
    return lock.try_lock() && lock.release().value() == Release::released;
}

TEST(Connection, reports_used_up_descriptors) {
#ifdef REDLATCH_TEST_ASAN
    // Built together with it: the check of vptrs tries memory by writing it into a pipe.
    GTEST_SKIP() << "the undefined behaviour sanitizer needs descriptors itself";
#endif
    const RedisServer server;
    ChildProcess child{[&](LineChannel&) {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        const rlim_t allowed = limit.rlim_cur;
        const UniqueFd next{::dup(STDERR_FILENO)};  // the lowest free number
        limit.rlim_cur = static_cast<rlim_t>(next.get());
        ::setrlimit(RLIMIT_NOFILE, &limit);
        for (const std::string& uri : {server.uri(), std::string{"redis://localhost:1"}}) {
            Client client{options_for(uri, 10s)};
            Lock<Simple> lock{client, "job"};
            const auto error = thrown_by([&] { static_cast<void>(lock.try_lock()); });
            if (!is_error(error, Errc::unavailable) || !speaks_of(*error, "open files")) return 1;
        }
        limit.rlim_cur = allowed;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        return can_lock(server.uri()) ? 0 : 2;
    }};
    EXPECT_EQ(child.wait()->code, 0);
}

TEST(Connection, works_above_descriptor_1023) {
    const RedisServer server;
    ChildProcess child{[&](LineChannel&) {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        std::vector<UniqueFd> taken;
        while (taken.empty() || taken.back().get() < 1100) {
            taken.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
            if (!taken.back()) return 1;
        }
        return can_lock(server.uri()) ? 0 : 2;
    }};
    EXPECT_EQ(child.wait()->code, 0);
}

TEST(Connection, leaves_the_standard_descriptors_alone) {
    const RedisServer server;
    ChildProcess child{[&](LineChannel&) {
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
        Client client{options_for(server.uri(), 10s)};
        Lock<Simple> lock{client, "job"};
        if (!lock.try_lock()) return 1;
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
            if (::fcntl(fd, F_GETFD) != -1) return 2;
        }
        return lock.release().value() == Release::released ? 0 : 3;
    }};
    EXPECT_EQ(child.wait()->code, 0);
}

TEST(Connection, is_closed_on_exec) {
    RedisServer server;
    Client client{options_for(server.uri(), 10s)};
    const std::size_t before = open_descriptors();
    client.ping().value();
    ASSERT_GT(open_descriptors(), before);
    for (int fd = STDERR_FILENO + 1; fd < 200; ++fd) {
        sockaddr_storage peer{};
        socklen_t size = sizeof peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
        if (peer.ss_family != AF_UNIX) continue;
        EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd;
    }
}

TEST(Connection, leaks_nothing_when_it_fails) {
    RedisServer server;
    server.stop();
    Client client{options_for(server.uri(), 10s)};
    Lock<Simple> lock{client, "job"};
    static_cast<void>(thrown_by([&] { static_cast<void>(lock.try_lock()); }));
    const std::size_t descriptors = open_descriptors();
    const std::size_t threads = running_threads();
    for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(
            is_error(thrown_by([&] { static_cast<void>(lock.try_lock()); }), Errc::unavailable));
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(running_threads(), threads);
}

TEST(Pool, replaces_connections_that_died_idle_without_an_error) {
    RedisServer server;
    RawRedis raw{server};
    const auto journal = std::make_shared<Journal>();
    ClientOptions options = options_for(server.uri(), 10s);
    options.observer = journal;
    Client client{options};
    Lock<Simple> lock{client, "job"};
    const auto kill_all = [&] { raw.command({"CLIENT", "KILL", "TYPE", "normal"}); };

    client.ping().value();
    kill_all();
    ASSERT_TRUE(lock.try_lock());
    kill_all();
    EXPECT_TRUE(succeeds(lock.extend(60s)));
    kill_all();
    EXPECT_TRUE(lock.inspect().value().locked);
    kill_all();
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    EXPECT_FALSE(raw.exists("job"));

    server.restart();
    EXPECT_TRUE(lock.try_lock());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    EXPECT_TRUE(journal->errors().empty());
}

TEST(Pool, uses_no_connection_on_which_something_came_that_nobody_asked_for) {
    const std::string taken = "*6\r\n:0\r\n:1000\r\n:-1\r\n:1\r\n:0\r\n$0\r\n\r\n";
    FakeServer server{{"+PONG\r\n", "$-1\r\n", taken}};
    Client client{options_for(server.uri(), 10s)};
    ASSERT_TRUE(succeeds(client.ping()));
    ASSERT_TRUE(server.say("+OK\r\n"));
    Lock<Simple> lock{client, "job"};
    EXPECT_FALSE(lock.try_lock()) << "somebody else has it";
    EXPECT_TRUE(eventually([&] { return server.ended() == 1; }));
}

/// Accepts, and hangs up at once.
class ClosedDoor {
public:
    ~ClosedDoor() {
        stop_ = true;
        thread_.join();
    }
    std::string uri() const { return address_.uri(); }
    int knocks() const { return knocks_; }

private:
    void run() {
        while (!stop_) {
            pollfd entry{.fd = listener_.get(), .events = POLLIN, .revents = 0};
            if (::poll(&entry, 1, 10) <= 0) continue;
            const UniqueFd closed_at_the_end{::accept(listener_.get(), nullptr, nullptr)};
            ++knocks_;
        }
    }

    Address address_{.path = {}, .host = "127.0.0.1", .port = 0};
    UniqueFd listener_ = listen_on(address_);
    std::atomic<bool> stop_{false};
    std::atomic<int> knocks_{0};
    std::thread thread_{[this] { run(); }};
};

// A hundred threads of each of a hundred processes would keep a server busy that has just come back.
TEST(Pool, dials_a_server_that_is_away_once_for_all_its_threads) {
    ClosedDoor door;
    Client client{options_for(door.uri(), 1s)};
    const Stopwatch watch;
    std::vector<std::future<Errc>> waiters;
    for (int i = 0; i < 40; ++i) {
        waiters.push_back(in_background([&client, i] {
            Lock<Simple> lock{
                client, "job" + std::to_string(i), {.backoff = {.min = 1ms, .max = 2ms}}};
            return lock.acquire({.wait = 1500ms}).error().code;
        }));
    }
    for (auto& waiter : waiters) EXPECT_EQ(waiter.get(), Errc::unavailable);
    const auto rounds = watch.elapsed() / 25ms;
    // At first all dial, as nobody knows better; a thread besides listens to the server, and one renews.
    EXPECT_LE(door.knocks(), 40 + 3 * rounds);
}

/// Has many threads wait for locks of their own over one connection, for either time. None may be told that it is
/// in use.
void expect_nobody_blames_the_pool(const std::string& uri, std::chrono::milliseconds timeout,
                                   std::array<std::chrono::milliseconds, 2> waits) {
    ClientOptions options = options_for(uri, timeout);
    options.max_connections = 1;
    Client client{options};
    std::vector<std::future<Error>> waiters;
    for (std::size_t i = 0; i < 20; ++i) {
        waiters.push_back(in_background([&client, i, wait = waits[i % 2]] {
            Lock<Simple> lock{client, "job" + std::to_string(i)};
            return lock.acquire({.wait = wait}).error();
        }));
    }
    for (auto& waiter : waiters) {
        const Error error = waiter.get();
        EXPECT_EQ(error.code, Errc::unavailable);
        EXPECT_FALSE(speaks_of(error, "in use")) << error.describe();
    }
}

TEST(Pool, with_few_places_says_of_a_server_that_is_away_that_it_is) {
    const ClosedDoor door;
    expect_nobody_blames_the_pool(door.uri(), 10s, {0ms, 300ms});
}

// It takes connections, and says nothing on any of them: as a frozen one does.
TEST(Pool, with_few_places_says_of_a_silent_server_that_it_is) {
    Address address{.path = {}, .host = "127.0.0.1", .port = 0};
    const UniqueFd listener = listen_on(address);
    expect_nobody_blames_the_pool(address.uri(), 300ms, {2s, 3s});
}

TEST(Node, that_was_silent_has_been_away) {
    for (const Connections connections : {Connections::pooled, Connections::shared}) {
        RedisServer server;
        const auto journal = std::make_shared<Journal>();
        ClientOptions options = options_for(server.uri(), 500ms, journal);
        options.connections = connections;
        std::optional<Client> client{options};
        Lock<Simple> lock{*client, "job"};
        const auto takes = [&] {  // an answer may come too late
            return !thrown_by([&] { static_cast<void>(lock.try_lock()); }) && lock.extend(30s);
        };
        ASSERT_TRUE(eventually(takes));
        // Once more where a busy machine hears the answer together with the end of the time for it.
        EXPECT_TRUE(eventually([&] {
            server.freeze();
            EXPECT_FALSE(lock.extend(30s));
            server.thaw();
            EXPECT_TRUE(eventually([&] { return lock.extend(30s).has_value(); }));
            return eventually([&] { return journal->reconnects() >= 1; }, 1s);
        }));
        lock.unlock();
        client.reset();  // all events have been told
        EXPECT_GE(journal->reconnects(), 1) << "shared: " << (connections == Connections::shared);
    }
}

// Its connections are all in use, which is nothing that a server comes back from.
TEST(Node, whose_pool_is_full_has_not_been_away) {
    RedisServer server;
    detail::Endpoint endpoint;
    endpoint.transport = detail::Endpoint::Transport::unix_socket;
    endpoint.path = server.socket_path();
    detail::Resolver resolver;
    int times_back = 0;
    detail::Node node{
        std::make_unique<detail::DirectDialer>(
            endpoint, detail::DialOptions{"somebody", 10s, nullptr, {}, &resolver, {}}),
        {.command_timeout = 10s, .max_connections = 1},
        [&](const std::string&) { ++times_back; }};
    const detail::Call ping = detail::Call::plain({"PING"});
    ASSERT_TRUE(node.run(ping, detail::Limit::in(generous_limit)));
    {
        const auto loan = node.borrow_idle();
        ASSERT_TRUE(loan);
        const auto refused = node.run(ping, detail::Limit::in(10ms));
        ASSERT_FALSE(refused);
        EXPECT_TRUE(speaks_of(refused.error().error, "in use"));
    }
    ASSERT_TRUE(node.run(ping, detail::Limit::in(generous_limit)));
    EXPECT_EQ(times_back, 0);
}

TEST(Pool, stays_as_it_is_over_thousands_of_locks) {
    RedisServer server;
    RawRedis raw{server};
    Client client{options_for(server.uri(), 10s)};
    const auto use = [&client](int rounds) {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&client, t, rounds] {
                for (int i = 0; i < rounds; ++i) {
                    Lock<> own{client, "own:" + std::to_string(t) + ":" + std::to_string(i)};
                    Lock<> shared{client, "shared"};
                    const std::scoped_lock both{own, shared};
                }
            });
        }
    };
    use(20);
    const std::size_t descriptors = open_descriptors();
    const std::size_t threads = running_threads();
    use(300);
    EXPECT_LE(open_descriptors(), descriptors + 4);  // never more than one for each thread
    EXPECT_LE(raw.client_list().size(), 6U);         // those, the renewal's, and this one
    EXPECT_TRUE(eventually([&] { return running_threads() <= threads; }));
    EXPECT_TRUE(eventually([&] { return raw.keys().empty(); }));
}

}  // namespace
}  // namespace redlatch::test
