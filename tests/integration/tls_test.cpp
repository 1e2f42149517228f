// rediss://: locks over TLS, and servers that are not who they should be.

#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/authority.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/sanitizers.hpp"
#include "support/socket.hpp"
#include "support/temp_folder.hpp"
#include <redlatch/tls.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(REDLATCH_TEST_HIREDIS_SSL)
#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#endif

namespace redlatch::test {
namespace {

ClientOptions options_with(std::string uri, TlsOptions options) {
    ClientOptions result = options_for(uri, 10s);
    result.tls = tls(std::move(options));
    return result;
}

class Tls : public ::testing::Test {
protected:
    ServerTls with(const Certificate& certificate, bool ask_clients = false) const {
        return {certificate, authority_.file(), ask_clients};
    }

    ClientOptions options(const RedisServer& server, const std::string& host = "localhost") const {
        return options_with(server.tls_uri(host), {.ca_file = authority_.file()});
    }

    /// What a client says about the server, if it is not content.
    Error complaint(ClientOptions options) const {
        Client client{std::move(options)};
        const auto answer = client.ping();
        EXPECT_FALSE(answer) << "it was content";
        return answer ? Error{} : answer.error();
    }

    Authority authority_;
    const Certificate usual_ = authority_.issue("DNS:localhost,IP:127.0.0.1");
};

TEST_F(Tls, carries_commands_renewals_and_messages) {
    RedisServer server{{.tls = with(usual_)}};
    Client client{options(server)};
    Client other{options(server)};
    Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 6s}};
    Held held = lock.acquire().value();
    EXPECT_TRUE(is_renewed(held));
    auto waiter = in_background([&] {
        return Lock<Watchdog<Reentrant>>{other, "job"}.acquire({.wait = 60s});
    });
    RawRedis redis{server};
    ASSERT_TRUE(eventually([&] { return redis.exists("redlatch:queue:{job}"); }));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

TEST_F(Tls, host_may_be_a_name_or_an_address) {
    RedisServer server{{.tls = with(usual_)}};
    EXPECT_TRUE(succeeds(Client{options(server, "localhost")}.ping()));
    EXPECT_TRUE(succeeds(Client{options(server, "127.0.0.1")}.ping()));
}

TEST_F(Tls, host_may_be_an_address_with_a_zone) {
    if (!ipv6_available()) GTEST_SKIP() << "this machine has no IPv6 loopback, ::1";
    const RedisServer server{{.ipv6 = true, .tls = with(authority_.issue("IP:::1"))}};
    EXPECT_TRUE(succeeds(Client{options(server, "[::1]")}.ping()));
    EXPECT_TRUE(succeeds(Client{options(server, "[::1%251]")}.ping()));
}

TEST_F(Tls, a_server_with_a_certificate_for_another_host_is_refused) {
    RedisServer server{{.tls = with(authority_.issue("DNS:other.example,IP:127.0.0.2"))}};
    for (const std::string host : {"localhost", "127.0.0.1"}) {
        const Error error = complaint(options(server, host));
        EXPECT_TRUE(is_error(error, Errc::denied));
        EXPECT_TRUE(speaks_of(error, "certificate is not accepted")) << error.describe();
        EXPECT_TRUE(speaks_of(error, "mismatch")) << error.describe();
        EXPECT_EQ(error.node, server.tls_uri(host).substr(9));
    }
    for (const std::string name : {"other.example", "other.example."}) {
        const ClientOptions expecting =
            options_with(server.tls_uri(), {.ca_file = authority_.file(), .server_name = name});
        EXPECT_TRUE(succeeds(Client{expecting}.ping())) << "the name that is expected can be given";
    }
}

TEST_F(Tls, an_expired_certificate_is_refused) {
    RedisServer server{{.tls = with(authority_.issue("DNS:localhost", -1))}};
    const Error error = complaint(options(server));
    EXPECT_TRUE(is_error(error, Errc::denied));
    EXPECT_TRUE(speaks_of(error, "expired")) << error.describe();
}

TEST_F(Tls, a_self_signed_certificate_is_refused) {
    const Certificate own = authority_.self_signed("DNS:localhost");
    RedisServer server{{.tls = with(own)}};
    const Error error = complaint(options(server));
    EXPECT_TRUE(is_error(error, Errc::denied));
    EXPECT_TRUE(speaks_of(error, "self")) << error.describe();
    EXPECT_TRUE(succeeds(Client{options_with(server.tls_uri(), {.ca_file = own.file})}.ping()))
        << "unless it is what is trusted";
}

TEST_F(Tls, an_authority_that_the_system_does_not_know_is_refused_by_default) {
    RedisServer server{{.tls = with(usual_)}};
    EXPECT_TRUE(is_error(complaint(options_with(server.tls_uri(), {})), Errc::denied));
}

TEST_F(Tls, a_refused_certificate_ends_a_wait_at_once) {
    RedisServer server{{.tls = with(authority_.issue("DNS:other.example"))}};
    Client client{options(server)};
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(is_error(thrown_by([&] { lock.lock(); }), Errc::denied));
}

TEST_F(Tls, shows_its_own_certificate_where_the_server_wants_one) {
    RedisServer server{{.tls = with(usual_, true)}};
    const Certificate own = authority_.issue("DNS:client");
    EXPECT_TRUE(succeeds(Client{options_with(server.tls_uri(), {.ca_file = authority_.file(),
                                                                .certificate_file = own.file,
                                                                .key_file = own.key_file})}
                             .ping()));

    const Certificate locked = authority_.with_password(own, "open sesame");
    EXPECT_TRUE(succeeds(Client{options_with(server.tls_uri(), {.ca_file = authority_.file(),
                                                                .certificate_file = locked.file,
                                                                .key_file = locked.key_file,
                                                                .key_password = "open sesame"})}
                             .ping()));

    const Error error = complaint(options(server));
    EXPECT_TRUE(is_error(error, Errc::denied)) << "without one";
    EXPECT_TRUE(speaks_of(error, "certificate required")) << error.describe();
}

TEST_F(Tls, files_that_cannot_be_used_are_refused_before_any_io) {
    const auto error_of = [](TlsOptions options) {
        const auto error = thrown_by([&] { static_cast<void>(tls(std::move(options))); });
        EXPECT_TRUE(is_error(error, Errc::invalid_argument));
        return error.value_or(Error{}).message;
    };
    const Certificate own = authority_.issue("DNS:client");
    const Certificate other = authority_.issue("DNS:other");
    const Certificate locked = authority_.with_password(own, "open sesame");
    EXPECT_NE(error_of({.ca_file = "/no/ca"}).find("/no/ca"), std::string::npos);
    EXPECT_NE(error_of({.certificate_file = "/no/cert"}).find("/no/cert"), std::string::npos);
    EXPECT_NE(error_of({.certificate_file = own.file}).find("key"), std::string::npos);
    EXPECT_NE(error_of({.certificate_file = own.file, .key_file = other.key_file}).find("mismatch"),
              std::string::npos);
    const std::string wrong = error_of(
        {.certificate_file = own.file, .key_file = locked.key_file, .key_password = "guessed"});
    // One wrong password in 256 decrypts a key to something that looks like a key, and is none.
    EXPECT_TRUE(wrong.find("bad decrypt") != wrong.npos || wrong.find("unsupported") != wrong.npos)
        << wrong;
    const std::string no_certificate = error_of({.certificate_file = own.key_file});
    EXPECT_NE(no_certificate.find("no start line"), std::string::npos) << no_certificate;
    EXPECT_EQ(wrong.find("guessed"), std::string::npos) << "a secret is shown";
}

TEST_F(Tls, options_that_cannot_work_are_refused_with_the_systems_reason) {
    const Certificate own = authority_.issue("DNS:client");
    const TempFolder folder;
    const std::string missing = folder.path() + "/nothing";
    constexpr const char* none = "No such file or directory";
    constexpr const char* no_folder = "Not a directory";
    constexpr const char* a_folder = "Is a directory";
    struct Case {
        TlsOptions options;
        std::vector<std::string> words;  ///< all of them are in the message
    };
    const std::vector<Case> cases{
        {{.ca_file = missing}, {"ca_file", missing, none}},
        {{.ca_file = folder.path()}, {"ca_file", a_folder}},
        {{.ca_folder = missing}, {"ca_folder", missing, none}},
        {{.ca_folder = own.file}, {"ca_folder", own.file, no_folder}},
        {{.ca_file = authority_.file(), .ca_folder = missing}, {"ca_folder", none}},
        {{.ca_file = missing, .ca_folder = folder.path()}, {"ca_file", none}},
        {{.certificate_file = missing}, {"certificate_file", missing, none}},
        {{.certificate_file = folder.path()}, {"certificate_file", a_folder}},
        {{.certificate_file = own.file, .key_file = missing}, {"key_file", missing, none}},
        {{.certificate_file = own.file, .key_file = folder.path()}, {"key_file", a_folder}},
        {{.key_file = own.key_file}, {"key_file", "certificate_file"}},
        {{.key_password = "open sesame"}, {"key_password", "certificate_file"}},
        {{.server_name = std::string(256, 'a')}, {"server_name", "host"}},
        {{.server_name = std::string{"localhost\0.elsewhere", 20}}, {"server_name", "host"}},
    };
    for (const auto& [options, words] : cases) {
        const auto error = thrown_by([&refused = options] { static_cast<void>(tls(refused)); });
        ASSERT_TRUE(is_error(error, Errc::invalid_argument)) << words.front();
        for (const std::string& word : words) {
            EXPECT_TRUE(speaks_of(*error, word)) << error->describe() << " lacks " << word;
        }
        EXPECT_FALSE(speaks_of(*error, "sesame")) << error->describe();
    }
    EXPECT_FALSE(thrown_by([&] { static_cast<void>(tls({.ca_folder = folder.path()})); }));
}

TEST_F(Tls, is_what_a_server_may_want_that_hangs_up_on_a_client_without_it) {
    RedisServer server{{.tls = with(usual_)}};
    std::string uri = server.tls_uri("127.0.0.1");
    uri.erase(std::string{"redis"}.size(), 1);
    Client client{options_for(uri, 2s)};
    const auto refused = client.ping();
    ASSERT_TRUE(fails_with(refused, Errc::unavailable));
    EXPECT_TRUE(speaks_of(refused.error(), "does the server expect TLS"))
        << refused.error().describe();
}

TEST_F(Tls, to_a_server_that_speaks_none_says_so) {
    RedisServer server{{.tcp = true}};
    const std::string uri = "rediss" + server.tcp_uri().substr(5);
    ClientOptions options = options_with(uri, {.ca_file = authority_.file()});
    options.connect_timeout = 2s;
    const Error error = complaint(options);
    EXPECT_TRUE(is_error(error, Errc::unavailable)) << "such a server waits for the rest";
    EXPECT_TRUE(speaks_of(error, "does the server expect TLS")) << error.describe();
}

TEST_F(Tls, deadlines_hold_against_a_silent_server) {
    RedisServer server{{.tls = with(usual_)}};
    Proxy proxy{server.tcp_uri(), {.tcp = true}};
    const std::string uri = "rediss" + proxy.uri().substr(5);
    ClientOptions options = options_with(uri, {.ca_file = authority_.file()});
    constexpr auto limit = 2s;
    options.connect_timeout = limit;
    options.command_timeout = limit;
    Client client{options};
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock_for(generous_limit));
    proxy.black_hole();
    const Stopwatch watch;
    EXPECT_TRUE(fails_with(client.ping(), Errc::unavailable)) << "in the middle of a connection";
    EXPECT_TRUE(fails_with(client.ping(), Errc::unavailable)) << "while shaking hands";
    EXPECT_LT(watch.elapsed(), 2 * limit + 10s);
}

TEST_F(Tls, deadlines_hold_while_a_record_comes_byte_by_byte) {
    RedisServer server{{.tls = with(usual_)}};
    Proxy proxy{server.tcp_uri(), {.tcp = true}};
    Client client{options_with("rediss" + proxy.uri().substr(5), {.ca_file = authority_.file()})};
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock_for(generous_limit));
    lock.unlock();
    proxy.trickle(1, 19ms);  // an answer takes more than a second
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 100ms}), Errc::unavailable));
}

TEST_F(Tls, a_server_with_a_passing_trouble_is_waited_for) {
    Address address = Address::parse("redis://127.0.0.1:0");
    const UniqueFd listener = listen_on(address);
    std::atomic<bool> is_over{false};
    std::atomic<int> came{0};
    std::thread server{[&] {
        const std::string internal_error{"\x15\x03\x03\x00\x02\x02\x50", 7};  // a fatal alert
        while (!is_over) {
            const UniqueFd connection{::accept(listener.get(), nullptr, nullptr)};
            if (connection.get() < 0) {
                std::this_thread::sleep_for(1ms);
                continue;
            }
            ++came;
            ::send(connection.get(), internal_error.data(), internal_error.size(), MSG_NOSIGNAL);
            std::array<char, 4096> hello{};
            while (::recv(connection.get(), hello.data(), hello.size(), 0) > 0) {
            }
        }
    }};
    Client client{options_with("rediss" + address.uri().substr(5), {.ca_file = authority_.file()})};
    std::stop_source stop;
    auto waiting = in_background([&] {
        return Lock<>{client, "job"}.acquire({.stop = stop.get_token()});
    });
    EXPECT_TRUE(eventually([&] { return came > 2; })) << "it is tried again";
    stop.request_stop();
    EXPECT_TRUE(fails_with(waiting.get(), Errc::cancelled));
    is_over = true;
    server.join();
}

TEST_F(Tls, a_server_that_goes_away_raises_no_signal) {
    RedisServer server{{.tls = with(usual_)}};
    Client client{options(server)};
    ASSERT_TRUE(succeeds(client.ping()));
    server.kill();
    EXPECT_TRUE(fails_with(client.ping(), Errc::unavailable));
    server.start();
    EXPECT_TRUE(succeeds(client.ping()));
}

TEST_F(Tls, long_commands_and_many_threads_work) {
    RedisServer server{{.tls = with(usual_)}};
    Client client{options(server)};
    std::vector<std::future<bool>> all;
    for (int i = 0; i < 8; ++i) {
        all.push_back(in_background([&client, i] {
            const std::string name = std::string(1000, 'x') + std::to_string(i % 2);
            for (int turn = 0; turn < 20; ++turn) {
                Lock<Reentrant> lock{client, name};
                if (!lock.try_lock_for(30s)) return false;
                lock.unlock();
            }
            return true;
        }));
    }
    for (auto& done : all) EXPECT_TRUE(done.get());
}

TEST_F(Tls, a_forked_child_has_connections_of_its_own) {
#if defined(REDLATCH_TEST_TSAN)
    GTEST_SKIP() << "forks a process with threads";
#endif
    RedisServer server{{.tls = with(usual_)}};
    Client client{options(server)};
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock());
    ChildProcess child{[&](LineChannel& parent) {
        Lock<Simple> another{client, "another"};
        parent.write_line(another.try_lock() && !lock.try_lock() ? "ok" : "wrong");
        another.unlock();
        return 0;
    }};
    EXPECT_EQ(child.read_line(), "ok");
    EXPECT_TRUE(child.wait());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(Tls, a_forked_child_whose_files_are_gone_is_told_so_by_its_calls) {
#if defined(REDLATCH_TEST_TSAN)
    GTEST_SKIP() << "forks a process with threads";
#endif
    RedisServer server{{.tls = with(usual_)}};
    const TempFolder folder;
    const std::string file = folder.file("ca.pem");
    const auto restore = [&] { std::filesystem::copy_file(authority_.file(), file); };
    restore();
    Client client{options_with(server.tls_uri("localhost"), {.ca_file = file})};
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock());
    const auto takes_another = [&](LineChannel& parent) {
        parent.write_line(Lock<Simple>{client, "another"}.try_lock() ? "ok" : "refused");
        return 0;
    };

    std::filesystem::remove(file);
    ChildProcess asks_nothing{[&](LineChannel& parent) {
        const bool none =
            !lock.held() && lock.remaining() == 0ms && lock.state() == HoldState::none;
        parent.write_line(none ? "none" : "held");
        restore();
        return takes_another(parent);
    }};
    EXPECT_EQ(asks_nothing.read_line(), "none");
    EXPECT_EQ(asks_nothing.read_line(), "ok") << "what does no I/O has not set up TLS";
    EXPECT_TRUE(asks_nothing.wait());

    std::filesystem::remove(file);
    ChildProcess asks{[&](LineChannel& parent) {
        const auto held = lock.acquire({.wait = 10s});
        parent.write_line(held ? "acquired" : held.error().describe());
        restore();
        ChildProcess grandchild{takes_another};
        parent.write_line(grandchild.read_line().value_or("no answer from the grandchild"));
        return 0;
    }};
    const std::string answer = asks.read_line().value_or("no answer from the child");
    EXPECT_NE(answer.find("ca.pem"), std::string::npos) << answer;
    EXPECT_TRUE(answer.starts_with("invalid argument")) << answer;
    EXPECT_EQ(asks.read_line(), "ok") << "they are back";
    EXPECT_TRUE(asks.wait());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

#if defined(REDLATCH_TEST_HIREDIS_SSL)

class TlsOfHiredis : public Tls {
protected:
    ConnectionFactory factory() {
        return {.connect = [this](std::chrono::milliseconds) {
            redisContext* const context = redisConnect("127.0.0.1", port_);
            EXPECT_EQ(redisInitiateSSLWithContext(context, context_.get()), REDIS_OK);
            last_socket_ = context->fd;
            return context;
        }};
    }

    /// Of the connection that was made last, as `fcntl` tells them.
    int socket_flags() const { return ::fcntl(last_socket_, F_GETFL); }

    struct Free {
        void operator()(redisSSLContext* context) const { redisFreeSSLContext(context); }
    };
    RedisServer server_{{.tls = with(usual_)}};
    Proxy proxy_{server_.tcp_uri(), {.tcp = true}};
    const int port_ = std::stoi(proxy_.uri().substr(proxy_.uri().rfind(':') + 1));
    std::unique_ptr<redisSSLContext, Free> context_{redisCreateSSLContext(
        authority_.file().c_str(), nullptr, nullptr, nullptr, "localhost", nullptr)};

private:
    std::atomic<int> last_socket_{-1};
};

// hiredis would wait in the socket, for a server that is silent or reads nothing, and with it the engine and
// the renewal, which have other connections to look after.
TEST_F(TlsOfHiredis, keeps_no_thread_in_its_socket) {
    Client client{{.factories = {factory()}, .connect_timeout = 10s, .command_timeout = 10s}};
    ASSERT_TRUE(succeeds(client.ping()));
    EXPECT_NE(socket_flags() & O_NONBLOCK, 0);
}

TEST_F(TlsOfHiredis, may_come_with_a_connection_of_the_users_own) {
    const auto options = [this] {
        return ClientOptions{
            .factories = {factory()}, .connect_timeout = 10s, .command_timeout = 10s};
    };
    Client client{options()};
    Client other{options()};
    Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 6s}};
    Held held = lock.acquire().value();
    EXPECT_TRUE(is_renewed(held));
    auto waiter = in_background([&] {
        return Lock<Watchdog<Reentrant>>{other, "job"}.acquire({.wait = 60s});
    });
    RawRedis redis{server_};
    ASSERT_TRUE(eventually([&] { return redis.exists("redlatch:queue:{job}"); }));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

TEST_F(TlsOfHiredis, keeps_deadlines_and_raises_no_signal) {
    constexpr auto limit = 3s;
    Client client{{.factories = {factory()}, .connect_timeout = 10s, .command_timeout = limit}};
    ASSERT_TRUE(succeeds(client.ping()));
    proxy_.hold_replies();
    const Stopwatch watch;
    EXPECT_TRUE(fails_with(client.ping(), Errc::unavailable));
    EXPECT_LT(watch.elapsed(), limit + 10s);
    proxy_.pass();
    ASSERT_TRUE(succeeds(client.ping()));
    for (int i = 0; i < 3; ++i) {
        proxy_.cut();
        EXPECT_TRUE(succeeds(client.ping())) << "on a new one";
    }
}

#endif

}  // namespace
}  // namespace redlatch::test
