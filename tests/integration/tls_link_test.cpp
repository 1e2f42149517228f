// A link whose connection is secured, and the server's end of that: what belongs to TLS stays there.

#include "lock_test.hpp"
#include "support/authority.hpp"
#include "support/socket.hpp"
#include "unit/service_tools.hpp"
#include <redlatch/net/link.hpp>
#include <redlatch/net/open_connection.hpp>
#include <redlatch/tls.hpp>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::test {
namespace {

using namespace detail;

/// The server's end of a connection by TLS, in the test's own thread but for the first handshake.
class SecuredEnd {
public:
    explicit SecuredEnd(int tls_version) : context_(::SSL_CTX_new(::TLS_server_method())) {
        const Certificate own = authority_.issue("DNS:localhost");
        SSL_CTX* const context = context_.get();
        ::SSL_CTX_use_certificate_chain_file(context, own.file.c_str());
        ::SSL_CTX_use_PrivateKey_file(context, own.key_file.c_str(), SSL_FILETYPE_PEM);
        ::SSL_CTX_set_min_proto_version(context, tls_version);
        ::SSL_CTX_set_max_proto_version(context, tls_version);
    }

    /// Of whose socket the buffer takes no more than some kilobytes.
    Connection connect() {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) {
            throw std::runtime_error{"socketpair"};
        }
        const int little = 4096;
        ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
        socket_ = UniqueFd{ends[1]};
        ssl_.reset(::SSL_new(context_.get()));
        ::SSL_set_fd(ssl_.get(), socket_.get());
        auto greeted = in_background([this] {
            if (::SSL_accept(ssl_.get()) != 1) return false;
            answer("$0\r\n\r\n$0\r\n\r\n*2\r\n$1\r\n1\r\n$1\r\n1\r\n");
            return true;
        });
        const auto layer = tls({.ca_file = authority_.file()});
        const Limit limit = Limit::in(generous_limit);
        auto stream = layer->secure(ends[0], "localhost", limit);
        if (!stream) throw std::runtime_error{stream.error().error.describe()};
        auto connection = adopt_connection(ContextPtr{redisConnectFd(ends[0])}, "here",
                                           *std::move(stream), limit);
        if (!greeted.get() || !connection) throw std::runtime_error{"no handshake"};
        ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
        sent();
        return *std::move(connection);
    }

    /// In records of 16 KiB, as long as there is that much.
    void answer(std::string_view bytes) {
        if (::SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) !=
            static_cast<int>(bytes.size())) {
            throw std::runtime_error{"SSL_write"};
        }
    }

    /// What the server has been sent since it was asked last, as far as it has come.
    std::string sent() {
        std::string all;
        std::array<char, 4096> buffer{};
        for (;;) {
            ::ERR_clear_error();
            const int n = ::SSL_read(ssl_.get(), buffer.data(), int{buffer.size()});
            if (n <= 0) return all;
            all.append(buffer.data(), static_cast<std::size_t>(n));
        }
    }

    SSL* ssl() const noexcept { return ssl_.get(); }

private:
    struct Free {
        void operator()(SSL* ssl) const noexcept { ::SSL_free(ssl); }
        void operator()(SSL_CTX* context) const noexcept { ::SSL_CTX_free(context); }
    };

    Authority authority_;
    std::unique_ptr<SSL_CTX, Free> context_;
    UniqueFd socket_;
    std::unique_ptr<SSL, Free> ssl_;
};

/// Counts its answers.
class Counted final : public LinkCommand {
public:
    Counted(std::string text, std::atomic<int>& answers)
        : text_(std::move(text)), answers_(&answers) {}

    Call call(bool) const override { return Call::plain({"DO", text_}, ReplyShape::integer); }
    TimePoint answer_by() const noexcept override { return TimePoint::max(); }
    void ended(Expected<Reply, Fault>&& reply, CommandStep::Next) noexcept override {
        if (reply) ++*answers_;
    }

private:
    const std::string text_;
    std::atomic<int>* answers_;
};

class TlsLink : public ::testing::TestWithParam<int> {
protected:
    TlsLink() { link_.connected(end_.connect()); }

    /// So many commands with a text that long.
    void add(int count, std::size_t length) {
        for (int i = 0; i < count; ++i) {
            link_.add(commands_.emplace_back(std::string(length, 'x'), answers_),
                      CommandRank::usual, {});
        }
    }

    /// One turn of the engine, where its `epoll` tells of something or there was more to write.
    void turn() {
        pollfd entry = link_.awaits();
        if (::poll(&entry, 1, 0) != 1 && !more_) return;
        link_.read();
        more_ = link_.write();
    }

    /// Writes all that there is, while the server reads.
    std::string write_all() {
        std::string arrived;
        more_ = link_.write();
        while (link_.has_unwritten() || (link_.awaits().events & POLLOUT) != 0) {
            arrived += end_.sent();
            turn();
            if (!link_.is_connected()) break;
        }
        return arrived + end_.sent();
    }

    static std::string ones(std::size_t count) {
        std::string all;
        for (std::size_t i = 0; i < count; ++i) all += ":1\r\n";
        return all;
    }

    SecuredEnd end_{GetParam()};
    std::atomic<int> asked_{0};
    std::atomic<int> answers_{0};
    bool more_ = false;
    Node node_{std::make_unique<RefusingDialer>(asked_),
               {.command_timeout = 1h, .max_connections = 1},
               {}};
    std::deque<Counted> commands_;
    Link link_{node_, {.command_timeout = 1h}};
};

INSTANTIATE_TEST_SUITE_P(Version, TlsLink, ::testing::Values(TLS1_2_VERSION, TLS1_3_VERSION),
                         [](const auto& version) {
                             return version.param == TLS1_2_VERSION ? "v1_2" : "v1_3";
                         });

TEST_P(TlsLink, writes_in_pieces_what_the_socket_does_not_take_at_once) {
    add(40, 30'000);
    link_.write();
    EXPECT_NE(link_.awaits().events & POLLOUT, 0);
    const std::string arrived = write_all();
    std::string all;
    for (const Counted& command : commands_) all += command.call(false).wire();
    EXPECT_EQ(arrived == all, true) << arrived.size() << " bytes of " << all.size();
    end_.answer(ones(40));
    link_.read();
    EXPECT_EQ(answers_, 40);
}

// What is decrypted already, `epoll` knows nothing of.
TEST_P(TlsLink, reads_to_its_end_what_came_in_one_record) {
    constexpr int count = 1000;
    add(count, 1);
    write_all();
    end_.answer(ones(count));
    link_.read();
    EXPECT_EQ(answers_, count);
}

TEST_P(TlsLink, waits_for_no_room_to_write_while_there_is_nothing_to_write) {
    add(1, 1);
    EXPECT_NE(write_all().size(), 0U);
    EXPECT_EQ(link_.awaits().events, POLLIN);
    end_.answer(ones(1));
    link_.read();
    EXPECT_EQ(answers_, 1);
    EXPECT_EQ(link_.awaits().events, POLLIN);
}

TEST_P(TlsLink, goes_on_after_the_server_has_closed_tls) {
    add(1, 1);
    write_all();
    ::SSL_shutdown(end_.ssl());
    link_.read();
    EXPECT_FALSE(link_.is_connected());
    EXPECT_EQ(answers_, 0);
    link_.connected(end_.connect());
    add(1, 1);
    write_all();
    end_.answer(ones(1));
    link_.read();
    EXPECT_EQ(answers_, 1);
}

// It may have nothing more to send, and say so to the socket only.
TEST_P(TlsLink, tells_that_the_server_has_closed_what_had_nothing_to_read_before) {
    add(1, 1);
    write_all();
    link_.read();  // EAGAIN
    ASSERT_TRUE(link_.is_connected());
    ::shutdown(::SSL_get_fd(end_.ssl()), SHUT_WR);
    link_.read();
    ASSERT_FALSE(link_.is_connected());
    const auto fault = link_.take_fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error.message, "the server closed the connection");
}

/// The server wants new keys, with commands and answers under way both before and after.
TEST_P(TlsLink, agrees_on_new_keys_while_it_is_in_use) {
    add(20, 100);
    write_all();
    end_.answer(ones(10));
    if (GetParam() == TLS1_3_VERSION) {
        ASSERT_EQ(::SSL_key_update(end_.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
    } else {
        ASSERT_EQ(::SSL_renegotiate(end_.ssl()), 1);
    }
    ::SSL_do_handshake(end_.ssl());
    if (GetParam() == TLS1_3_VERSION) end_.answer(ones(10));
    ASSERT_TRUE(eventually([&] {
        turn();
        end_.sent();
        return answers_ >= 10;
    }));
    if (GetParam() != TLS1_3_VERSION) {
        ASSERT_TRUE(eventually([&] {
            turn();
            end_.sent();
            return ::SSL_renegotiate_pending(end_.ssl()) == 0;
        }));
        end_.answer(ones(10));
    }
    ASSERT_TRUE(eventually([&] {
        turn();
        return answers_ == 20;
    }));
    add(20, 30'000);
    EXPECT_GT(write_all().size(), 600'000U);
    end_.answer(ones(20));
    link_.read();
    EXPECT_EQ(answers_, 40);
    EXPECT_TRUE(link_.is_connected());
}

/// While the server has not yet agreed, nothing can be written, and the thread sleeps.
TEST_P(TlsLink, waits_without_spinning_where_a_write_has_to_read_first) {
    if (GetParam() == TLS1_3_VERSION) GTEST_SKIP() << "there a write never has to read";
    ASSERT_EQ(::SSL_renegotiate(end_.ssl()), 1);
    ::SSL_do_handshake(end_.ssl());
    turn();  // the client begins its part, and waits for the server's
    add(1, 1);
    link_.write();
    EXPECT_TRUE(link_.is_connected());
    EXPECT_EQ(link_.awaits().events, POLLIN);
    std::string arrived;
    ASSERT_TRUE(eventually([&] {
        arrived += end_.sent();
        turn();
        return !arrived.empty();
    }));
    end_.answer(ones(1));
    ASSERT_TRUE(eventually([&] {
        turn();
        return answers_ == 1;
    }));
}

}  // namespace
}  // namespace redlatch::test
