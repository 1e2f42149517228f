#pragma once

#include "support/socket.hpp"
#include <redlatch/net/open_connection.hpp>

#include <hiredis/hiredis.h>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::test {

/// The server's end of a connection, in the test's own thread.
class OtherEnd {
public:
    /// A new connection, of which this is the other end from now on.
    detail::Connection connect() {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) {
            throw std::runtime_error{"socketpair"};
        }
        socket_ = UniqueFd{ends[1]};
        answer("$0\r\n\r\n$0\r\n\r\n*2\r\n$1\r\n1\r\n$1\r\n1\r\n");  // to what a new one is asked
        auto connection =
            detail::adopt_connection(detail::ContextPtr{redisConnectFd(ends[0])}, "here", nullptr,
                                     detail::Limit::in(std::chrono::seconds{20}));
        sent();
        return *std::move(connection);
    }

    /// The server's answers, as they go over the wire.
    void answer(std::string_view bytes) {
        if (::write(socket_.get(), bytes.data(), bytes.size()) != std::ssize(bytes)) {
            throw std::runtime_error{"write"};
        }
    }

    /// What the server has been sent since it was asked last.
    std::string sent() {
        std::string all;
        std::array<char, 4096> buffer{};
        for (;;) {
            const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            if (n <= 0) return all;
            all.append(buffer.data(), static_cast<std::size_t>(n));
        }
    }

    void hang_up() { socket_ = {}; }

private:
    UniqueFd socket_;
};

}  // namespace redlatch::test
