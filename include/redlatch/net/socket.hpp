#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/net/descriptor.hpp>
#include <redlatch/net/endpoint.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/process_sockets.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <ratio>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace redlatch::inline v0::detail {

/// How often a wait for the network looks whether its caller has given up.
inline constexpr std::chrono::milliseconds stop_check_interval{40};

inline std::string system_message(int code) {
    return std::system_category().message(code);
}

inline Fault io_fault(std::string message) {
    return {.error = make_error(Errc::unavailable, std::move(message))};
}

/// Waits until something is ready among `entries`: false when the limit is over, a fault when the
/// caller cancels. `poll` and not `select`: descriptors may be larger than 1023.
inline Expected<bool, Fault> wait_any(std::span<pollfd> entries, const Limit& limit) {
    for (;;) {
        if (limit.cancelled()) return Unexpected{cancelled_fault()};
        const Clock::duration left = limit.left();
        Clock::duration slice = std::min<Clock::duration>(left, std::chrono::hours{1});
        if (limit.stop.stop_possible())
            slice = std::min<Clock::duration>(slice, stop_check_interval);

        const auto seconds = std::chrono::floor<std::chrono::duration<std::time_t>>(slice);
        const std::chrono::duration<long, std::nano> rest = slice - seconds;
        const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = rest.count()};
        const int ready = ::ppoll(entries.data(), entries.size(), &timeout, nullptr);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return Unexpected{io_fault(system_message(errno))};
        if (left == Clock::duration::zero()) return false;
    }
}

/// Waits until `fd` is ready for `events` or has an error. A fault when the limit is over or the
/// caller cancels.
inline Expected<void, Fault> wait_ready(int fd, short events, const Limit& limit) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    auto ready = wait_any({&entry, 1}, limit);
    if (!ready) return Unexpected{std::move(ready).error()};
    if (!*ready) return Unexpected{unanswered_fault()};
    return {};
}

/// A socket's address, ready for `connect`.
struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    int family() const noexcept { return storage.ss_family; }

    /// Of an address for TCP.
    void set_port(std::uint16_t port) noexcept {
        if (family() == AF_INET6) {
            reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
        } else {
            reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
        }
    }

    /// `path` has to fit; the URI's parser has seen to that.
    static Address of_path(std::string_view path) noexcept {
        Address address;
        sockaddr_un un{};
        un.sun_family = AF_UNIX;
        std::copy(path.begin(), path.end(), un.sun_path);
        std::memcpy(&address.storage, &un, sizeof un);
        address.length = sizeof un;
        return address;
    }
};

inline void set_option(int fd, int level, int name, int value) noexcept {
    ::setsockopt(fd, level, name, &value, sizeof value);  // worth having, not worth failing for
}

/// Sends at once, and notices a peer that is gone without a word within half a minute.
inline void tune_tcp(int fd) noexcept {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#if defined(TCP_KEEPIDLE)
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
#endif
}

/// How long a receive on a connected socket blocks by itself. To `poll` first costs a system call
/// more for each answer, so that begins only after this; short enough to notice a limit or a stop
/// request in time.
inline constexpr std::chrono::milliseconds blocking_receive{20};

/// Lets `recv` block, for `blocking_receive` at most.
inline void make_blocking(int fd) noexcept {
    const timeval timeout{.tv_sec = 0,
                          .tv_usec = std::chrono::microseconds{blocking_receive}.count()};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

/// Lets neither `recv` nor `send` block.
inline void make_non_blocking(int fd) noexcept {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/// A new non-blocking socket, closed on exec. Never one of the three standard descriptors: where
/// the process runs with those closed, its next `printf` would otherwise talk to Redis.
inline Expected<Descriptor, Fault> open_socket(int family) {
    Descriptor socket{::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (socket.valid() && socket.get() <= STDERR_FILENO) {
        socket = Descriptor{::fcntl(socket.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1)};
    }
    if (!socket.valid()) return Unexpected{io_fault("socket: " + system_message(errno))};
    ProcessSockets::add(socket.get());
    return socket;
}

/// How soon a server that had too many to let in is asked again.
inline constexpr std::chrono::milliseconds full_backlog_pause{5};

/// Connects to one address.
inline Expected<Descriptor, Fault> connect_socket(const Address& address, const Limit& limit) {
    auto socket = open_socket(address.family());
    if (!socket) return socket;
    const int fd = socket->get();
    if (address.family() != AF_UNIX) tune_tcp(fd);

    const auto* const to = reinterpret_cast<const sockaddr*>(&address.storage);
    for (;;) {
        if (::connect(fd, to, address.length) == 0) return socket;
        // A server on a Unix socket that has too many to let in just now: `poll` tells nothing of that.
        const bool is_full = errno == EAGAIN && address.family() == AF_UNIX;
        if (!is_full || limit.over()) break;
        auto paused = wait_any({}, limit.within(full_backlog_pause));
        if (!paused) return Unexpected{std::move(paused).error()};
    }
    if (errno != EINPROGRESS && errno != EINTR) {
        return Unexpected{io_fault("connect: " + system_message(errno))};
    }
    if (auto ready = wait_ready(fd, POLLOUT, limit); !ready) {
        if (ready.error().error.code == Errc::unavailable) {
            ready.error().error.message = "connect: no answer in time";
        }
        return Unexpected{std::move(ready).error()};
    }
    int code = 0;
    socklen_t size = sizeof code;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
    if (code != 0) return Unexpected{io_fault("connect: " + system_message(code))};
    return socket;
}

}  // namespace redlatch::inline v0::detail
