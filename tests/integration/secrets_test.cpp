// A password goes to the server and nowhere else, whatever the server says about it.

#include "fault_tools.hpp"
#include "support/redis_server.hpp"
#include "support/socket.hpp"

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

/// Has in it what servers escape, and is longer than what some of them quote.
constexpr std::string_view password = "Sesame\"open\\Sesame\tdoor'Sesame";
constexpr std::string_view password_in_uri = "Sesame%22open%5cSesame%09door%27Sesame";
constexpr std::string_view part_of_password = "esam";

using Words = std::vector<std::string>;

/// How a server quotes the words of a command.
struct Quoting {
    std::string name;
    std::string code;  ///< the first word of the error
    std::string (*quote)(std::string_view word);

    friend std::ostream& operator<<(std::ostream& out, const Quoting& quoting) {
        return out << quoting.name;
    }
};

std::string plainly(std::string_view word) {
    return "'" + std::string{word} + "' ";
}

std::string cut_off(std::string_view word) {
    return "'" + std::string{word.substr(0, 9)} + "' ";
}

std::string escaped(std::string_view word) {
    std::string text;
    for (const char c : word) text.append(c == '\\' || c == '"' ? 1U : 0U, '\\').append(1, c);
    return "'" + text + "' ";
}

std::vector<Quoting> quotings() {
    return {{"unknown_command", "ERR unknown command, with args beginning with: ", plainly},
            {"cut_off", "ERR unknown command, with args beginning with: ", cut_off},
            {"escaped", "ERR unknown command, with args beginning with: ", escaped},
            {"loading", "LOADING ", plainly},
            {"wrongpass", "WRONGPASS ", plainly},
            {"noperm", "NOPERM ", plainly},
            {"readonly", "READONLY ", plainly},
            {"without_code", "", [](std::string_view word) { return std::string{word} + " "; }},
            {"in_a_script", "ERR Error running script: ", [](std::string_view word) {
                 return ": -LOADING " + std::string{word} + " ";
             }}};
}

/// Answers the commands of a handshake as a Redis without data would, but one of them with an error
/// that quotes all words it has ever received on the connection.
class QuotingServer {
public:
    QuotingServer(std::string quoted_command, Quoting quoting)
        : quoted_command_(std::move(quoted_command)), quoting_(std::move(quoting)) {}
    ~QuotingServer() {
        stop_ = true;
        thread_.join();
        for (std::thread& thread : threads_) thread.join();
    }

    const Address& address() const { return address_; }
    std::string place() const { return address_.host + ":" + std::to_string(address_.port); }

    /// How often it has quoted.
    int quoted() const { return quoted_; }

private:
    void run() {
        while (!stop_) {
            if (!readable(listener_.get())) continue;
            const int fd = ::accept(listener_.get(), nullptr, nullptr);
            if (fd >= 0) threads_.emplace_back([this, fd] { serve(UniqueFd{fd}); });
        }
    }

    void serve(const UniqueFd& connection) {
        Words received;
        std::string unread;
        std::array<char, 4096> buffer{};
        while (!stop_) {
            if (!readable(connection.get())) continue;
            const ssize_t size = ::recv(connection.get(), buffer.data(), buffer.size(), 0);
            if (size <= 0) return;
            unread.append(buffer.data(), static_cast<std::size_t>(size));
            std::string answers;
            while (const auto command = take_command(unread)) {
                received.insert(received.end(), command->begin(), command->end());
                answers += answer(*command, received);
            }
            ::send(connection.get(), answers.data(), answers.size(), MSG_NOSIGNAL);
        }
    }

    std::string answer(const Words& command, const Words& received) {
        const std::string& name = command.front();
        if (name == quoted_command_) {
            ++quoted_;
            std::string text = "-" + quoting_.code;
            for (const std::string& word : received) text += quoting_.quote(word);
            return text + "\r\n";
        }
        if (name == "INFO") return bulk("");
        if (name == "TIME") return "*2\r\n" + bulk("1700000000") + bulk("0");
        const std::string port = std::to_string(address_.port);
        if (name == "SENTINEL") return "*2\r\n" + bulk(address_.host) + bulk(port);
        if (name == "CLUSTER") {
            return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + bulk(address_.host) + ":" + port + "\r\n";
        }
        return "+OK\r\n";
    }

    static std::string bulk(std::string_view bytes) {
        return "$" + std::to_string(bytes.size()) + "\r\n" + std::string{bytes} + "\r\n";
    }

    /// Takes one whole command away from the front of `bytes`.
    static std::optional<Words> take_command(std::string& bytes) {
        std::size_t at = 0;
        const auto number = [&]() -> std::optional<std::size_t> {
            const std::size_t end = bytes.find("\r\n", at);
            if (end == std::string::npos) return std::nullopt;
            const std::size_t value = std::stoul(bytes.substr(at + 1, end - at - 1));
            at = end + 2;
            return value;
        };
        const auto count = number();
        if (!count) return std::nullopt;
        Words words;
        while (words.size() < *count) {
            const auto size = number();
            if (!size || bytes.size() < at + *size + 2) return std::nullopt;
            words.push_back(bytes.substr(at, *size));
            at += *size + 2;
        }
        bytes.erase(0, at);
        return words;
    }

    static bool readable(int fd) {
        pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
        return ::poll(&entry, 1, 10) > 0;
    }

    const std::string quoted_command_;
    const Quoting quoting_;
    Address address_{.path = {}, .host = "127.0.0.1", .port = 0};
    UniqueFd listener_ = listen_on(address_);
    std::atomic<bool> stop_{false};
    std::atomic<int> quoted_{0};
    std::list<std::thread> threads_;
    std::thread thread_{[this] { run(); }};
};

/// Remembers all text that it was told.
class Ears : public Observer {
public:
    void error(const Error& error) override { hear(error.describe()); }
    void warning(const Warning& warning) override { hear(warning.node + " " + warning.message); }
    void reconnected(const Reconnected& reconnected) override { hear(reconnected.node); }
    void released(const Released& released) override {
        if (!released.outcome) hear(released.outcome.error().describe());
    }

    void hear(const std::string& text) {
        const std::lock_guard lock{mutex_};
        heard_ += text + "\n";
    }
    std::string heard() {
        const std::lock_guard lock{mutex_};
        return heard_;
    }

private:
    std::mutex mutex_;
    std::string heard_;
};

/// All that a program can get to see of an error.
std::string all_of(const Error& error) {
    std::string text = error.key + "\n" + error.node + "\n" + error.message + "\n" +
                       error.describe() + "\n" + LockError{error}.what() + "\n";
    for (const Error& cause : error.causes) text += all_of(cause);
    return text;
}

/// What one client says that does all it can.
std::string talk_of(ClientOptions options) {
    auto ears = std::make_shared<Ears>();
    options.observer = ears;
    options.connect_timeout = 2s;
    options.command_timeout = 2s;
    std::string told;
    {
        Client client{options};
        const auto tell = [&](const auto& result) {
            if (!result) told += all_of(result.error());
        };
        tell(client.ping());
        Lock<Watchdog<Simple>> lock{client, "job"};
        tell(lock.acquire({.wait = 50ms}));
        tell(lock.inspect());
        Lock<Fenced<Reentrant>> other{client, "task"};
        tell(other.acquire({.wait = 0ms}));
        const auto thrown = thrown_by([&] { static_cast<void>(other.try_lock()); });
        if (thrown) told += all_of(*thrown);
    }
    return told + ears->heard();
}

testing::AssertionResult says_nothing_of_the_password(const std::string& text) {
    if (text.find(part_of_password) == std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << text;
}

std::string with_password(const std::string& scheme, const std::string& place) {
    return scheme + "://ann:" + std::string{password_in_uri} + "@" + place;
}

class QuotedPassword : public testing::TestWithParam<std::tuple<Quoting, std::string>> {
protected:
    const Quoting& quoting() const { return std::get<0>(GetParam()); }
    const std::string& command() const { return std::get<1>(GetParam()); }

    /// Whether an error of that command is one of the connection; a server may refuse the others.
    bool must_be_told() const { return command() == "AUTH" || command() == "SELECT"; }

    void expect_silence(const ClientOptions& options, const QuotingServer& server) {
        const std::string text = talk_of(options);
        EXPECT_TRUE(says_nothing_of_the_password(text));
        EXPECT_GT(server.quoted(), 0) << "the test shows nothing";
        EXPECT_TRUE(!must_be_told() || !text.empty());
    }

    static ClientOptions at(std::string uri) {
        ClientOptions options;
        options.uris = {Uri{std::move(uri)}};
        return options;
    }
};

INSTANTIATE_TEST_SUITE_P(
    Handshake, QuotedPassword,
    testing::Combine(testing::ValuesIn(quotings()),
                     testing::Values("AUTH", "CLIENT", "SELECT", "INFO", "TIME")),
    [](const auto& test) { return std::get<0>(test.param).name + "_" + std::get<1>(test.param); });

TEST_P(QuotedPassword, is_in_no_message_about_a_server) {
    const QuotingServer server{command(), quoting()};
    expect_silence(at(with_password("redis", server.place() + "/1")), server);
}

TEST_P(QuotedPassword, is_in_no_message_about_several_masters) {
    const QuotingServer server{command(), quoting()};
    const QuotingServer second{command(), quoting()};
    ClientOptions options = at(with_password("redis", server.place() + "/1"));
    options.uris.emplace_back(with_password("redis", second.place() + "/1"));
    options.uris.emplace_back("redis://127.0.0.1:1");
    expect_silence(options, server);
}

TEST_P(QuotedPassword, is_in_no_message_about_a_sentinel) {
    const QuotingServer sentinel{command(), quoting()};
    ClientOptions options = at("redis+sentinel://" + sentinel.place() + "/service/1");
    options.sentinel_user = "ann";
    options.sentinel_password = password;
    expect_silence(options, sentinel);
}

TEST_P(QuotedPassword, is_in_no_message_about_a_master_that_sentinel_names) {
    const QuotingServer server{command(), quoting()};
    expect_silence(at(with_password("redis+sentinel", server.place() + "/service/1")), server);
}

TEST_P(QuotedPassword, is_in_no_message_about_a_cluster) {
    if (command() == "SELECT") return;  // a Cluster has one database only
    const QuotingServer server{command(), quoting()};
    expect_silence(at(with_password("redis+cluster", server.place())), server);
}

// The real thing: it quotes what it was sent.
TEST(UnknownAuth, is_told_without_the_password) {
    const RedisServer server{{.config = {{"rename-command", "AUTH \"\""}}}};
    const std::string uri = with_password("unix", server.socket_path());
    EXPECT_TRUE(says_nothing_of_the_password(talk_of(options_for(uri, 2s))));
    Client client{uri};
    const auto pinged = client.ping();
    ASSERT_TRUE(fails_with(pinged, Errc::denied));
    EXPECT_TRUE(speaks_of(pinged.error(), "does not know AUTH")) << pinged.error().describe();
}

TEST(RefusedLogin, says_why_in_our_own_words) {
    const RedisServer with_acl{{.acl = {"ann on >other ~* &* +@all"}}};
    Client wrong{with_password("unix", with_acl.socket_path())};
    auto told = wrong.ping();
    ASSERT_TRUE(fails_with(told, Errc::denied));
    EXPECT_TRUE(speaks_of(told.error(), "WRONGPASS")) << told.error().describe();

    const RedisServer open;
    Client needless{"unix://:" + std::string{password_in_uri} + "@" + open.socket_path()};
    told = needless.ping();
    ASSERT_TRUE(fails_with(told, Errc::denied));
    EXPECT_TRUE(speaks_of(told.error(), "no password is set")) << told.error().describe();

    const RedisServer small{{.password = "x", .config = {{"databases", "2"}}}};
    Client nowhere{"unix://:x@" + small.socket_path() + "?db=7"};
    told = nowhere.ping();
    ASSERT_TRUE(fails_with(told, Errc::invalid_argument));
    EXPECT_TRUE(speaks_of(told.error(), "DB index is out of range")) << told.error().describe();
}

}  // namespace
}  // namespace redlatch::test
