// Any bytes from a server: replies that are looked at in every way, or a typed error and the end of the
// connection. Never more than a moment, nor more memory than a reply may have.

#include <redlatch/net/open_connection.hpp>

#include <hiredis/hiredis.h>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace {

using namespace redlatch;
using namespace redlatch::detail;

void require(bool condition) {
    if (!condition) std::abort();
}

void look_at(const ReplyView& reply) {
    for (const ReplyShape answer :
         {ReplyShape::any, ReplyShape::integer, ReplyShape::ok_or_nil, ReplyShape::acquired,
          ReplyShape::moved, ReplyShape::lock_info}) {
        if (!reply.fits(answer)) continue;
        static_cast<void>(reply.is_taken(answer));
        static_cast<void>(reply.time(answer));
    }
    static_cast<void>(reply.text());
}

void require_typed(const Error& error) {
    require(error.code != Errc{});
    require(!error.describe().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::array<int, 2> ends{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    require(::write(ends[1], data, size) == static_cast<ssize_t>(size));
    ::shutdown(ends[1], SHUT_WR);

    const Limit limit = Limit::in(std::chrono::seconds{5});
    auto connection = adopt_connection(ContextPtr{redisConnectFd(ends[0])}, "fuzz", nullptr, limit);
    for (int replies = 0; connection && connection->alive() && replies < 10'000; ++replies) {
        auto reply = connection->receive(limit);
        if (reply) {
            look_at(reply->view());
        } else {
            require_typed(reply.error().error);
        }
    }
    require(!connection || !connection->alive());
    ::close(ends[1]);
    return 0;
}
