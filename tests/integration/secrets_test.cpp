// A password goes to the server and nowhere else, whatever the server says about it.

#include "fault_tools.hpp"
#include "scripted_server.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
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

using Words = ScriptedServer::Words;

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

/// Answers as a Redis without data, or a Sentinel or a Cluster of it, but one of the commands with an
/// error that quotes all words it has ever received on the connection.
class QuotingServer {
public:
    QuotingServer(std::string quoted_command, Quoting quoting)
        : quoted_command_(std::move(quoted_command)), quoting_(std::move(quoting)) {}

    std::string place() const { return server_.place(); }

    /// How often it has quoted.
    int quoted() const { return quoted_; }

private:
    std::string answer(const Words& command, const Words& received) {
        using Server = ScriptedServer;
        const std::string& name = command.front();
        if (name == quoted_command_) {
            ++quoted_;
            std::string text = "-" + quoting_.code;
            for (const std::string& word : received) text += quoting_.quote(word);
            return text + "\r\n";
        }
        if (name == "SENTINEL") {
            return "*2\r\n" + Server::bulk("127.0.0.1") +
                   Server::bulk(std::to_string(server_.port()));
        }
        if (name == "CLUSTER") return Server::slots("127.0.0.1", server_.port());
        return Server::of_handshake(command).value_or("+OK\r\n");
    }

    const std::string quoted_command_;
    const Quoting quoting_;
    std::atomic<int> quoted_{0};
    ScriptedServer server_{
        [this](const Words& command, const Words& received) { return answer(command, received); }};
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
    Client client{options_for(uri, 10s)};
    const auto pinged = client.ping();
    ASSERT_TRUE(fails_with(pinged, Errc::denied));
    EXPECT_TRUE(speaks_of(pinged.error(), "does not know AUTH")) << pinged.error().describe();
}

TEST(RefusedLogin, says_why_in_our_own_words) {
    const RedisServer with_acl{{.acl = {"ann on >other ~* +@all"}}};
    Client wrong{options_for(with_password("unix", with_acl.socket_path()), 10s)};
    auto told = wrong.ping();
    ASSERT_TRUE(fails_with(told, Errc::denied));
    EXPECT_TRUE(speaks_of(told.error(), "WRONGPASS")) << told.error().describe();

    const RedisServer open;
    Client needless{
        options_for("unix://:" + std::string{password_in_uri} + "@" + open.socket_path(), 10s)};
    told = needless.ping();
    ASSERT_TRUE(fails_with(told, Errc::denied));
    EXPECT_TRUE(speaks_of(told.error(), "no password is set")) << told.error().describe();

    const RedisServer small{{.password = "x", .config = {{"databases", "2"}}}};
    Client nowhere{options_for("unix://:x@" + small.socket_path() + "?db=7", 10s)};
    told = nowhere.ping();
    ASSERT_TRUE(fails_with(told, Errc::invalid_argument));
    EXPECT_TRUE(speaks_of(told.error(), "DB index is out of range")) << told.error().describe();
}

}  // namespace
}  // namespace redlatch::test
