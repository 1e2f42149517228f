#include "support/socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace redlatch::test {
namespace {

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;

    sockaddr* data() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress unix_address(const std::string& path) {
    sockaddr_un address{};
    if (path.size() >= sizeof address.sun_path) {
        throw std::invalid_argument{"path too long for a Unix socket: " + path};
    }
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    SocketAddress result;
    std::memcpy(&result.storage, &address, sizeof address);
    result.size = sizeof address;
    return result;
}

SocketAddress ipv4_address(const Address& from) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(from.port);
    if (::inet_pton(AF_INET, from.host.c_str(), &address.sin_addr) != 1) {
        throw std::invalid_argument{"not a numeric address: " + from.host};
    }
    SocketAddress result;
    std::memcpy(&result.storage, &address, sizeof address);
    result.size = sizeof address;
    return result;
}

SocketAddress ipv6_address(const Address& from) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(from.port);
    if (::inet_pton(AF_INET6, from.host.c_str(), &address.sin6_addr) != 1) {
        throw std::invalid_argument{"not a numeric address: " + from.host};
    }
    SocketAddress result;
    std::memcpy(&result.storage, &address, sizeof address);
    result.size = sizeof address;
    return result;
}

SocketAddress socket_address(const Address& from) {
    if (from.is_unix()) {
        return unix_address(from.path);
    }
    return from.host.find(':') == std::string::npos ? ipv4_address(from) : ipv6_address(from);
}

std::uint16_t bound_port(int fd) {
    SocketAddress bound;
    bound.size = sizeof bound.storage;
    ::getsockname(fd, bound.data(), &bound.size);
    // The port lies at the same place in sockaddr_in and sockaddr_in6.
    sockaddr_in address{};
    std::memcpy(&address, &bound.storage, sizeof address);
    return ntohs(address.sin_port);
}

UniqueFd new_socket(int family) {
    UniqueFd fd{::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!fd) {
        throw std::system_error{errno, std::generic_category(), "socket"};
    }
    const int on = 1;
    if (family != AF_UNIX) {
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    return fd;
}

/// `shares`: also where another socket has the port that does not listen. Others may have it likewise afterwards.
UniqueFd bound_socket(const Address& address, bool shares) {
    SocketAddress local = socket_address(address);
    UniqueFd fd = new_socket(local.storage.ss_family);
    const auto let_share = [&fd](int on) {
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    };
    let_share(shares ? 1 : 0);
    if (::bind(fd.get(), local.data(), local.size) != 0) {
        throw std::system_error{errno, std::generic_category(), "bind " + address.uri()};
    }
    let_share(1);
    return fd;
}

}  // namespace

void UniqueFd::reset() {
    if (fd_ >= 0) {
        ::close(std::exchange(fd_, -1));
    }
}

Address Address::parse(std::string_view text) {
    constexpr std::string_view unix_scheme = "unix://";
    constexpr std::string_view tcp_scheme = "redis://";
    const std::invalid_argument bad{"not an address: " + std::string{text}};
    Address result;
    if (text.starts_with('/')) {
        result.path = text;
        return result;
    }
    if (text.starts_with(unix_scheme)) {
        result.path = text.substr(unix_scheme.size());
        return result;
    }
    const std::size_t colon = text.rfind(':');
    if (!text.starts_with(tcp_scheme) || colon < tcp_scheme.size()) {
        throw bad;
    }
    std::string_view host = text.substr(tcp_scheme.size(), colon - tcp_scheme.size());
    if (host.starts_with('[') && host.ends_with(']')) {
        host = host.substr(1, host.size() - 2);
    }
    result.host = host;
    const std::string_view port = text.substr(colon + 1);
    const char* const end = port.data() + port.size();
    const auto parsed = std::from_chars(port.data(), end, result.port);
    if (parsed.ec != std::errc{} || parsed.ptr != end) {
        throw bad;
    }
    return result;
}

std::string Address::uri() const {
    if (is_unix()) {
        return "unix://" + path;
    }
    const bool v6 = host.find(':') != std::string::npos;
    return "redis://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

UniqueFd connect_to(const Address& address) {
    SocketAddress target = socket_address(address);
    UniqueFd fd = new_socket(target.storage.ss_family);
    if (::connect(fd.get(), target.data(), target.size) != 0 && errno != EINPROGRESS) {
        fd.reset();
    }
    return fd;
}

UniqueFd bind_to(Address& address) {
    if (address.is_unix()) {
        ::unlink(address.path.c_str());
    }
    UniqueFd fd = bound_socket(address, true);
    if (!address.is_unix() && address.port == 0) {
        address.port = bound_port(fd.get());
    }
    return fd;
}

UniqueFd bind_alone_to(const Address& address) {
    return bound_socket(address, false);
}

UniqueFd listen_on(Address& address) {
    UniqueFd fd = bind_to(address);
    if (::listen(fd.get(), 128) != 0) {
        throw std::system_error{errno, std::generic_category(), "listen " + address.uri()};
    }
    return fd;
}

bool ipv6_available() {
    try {
        Address any_port{.path = {}, .host = "::1", .port = 0};
        return static_cast<bool>(bind_to(any_port));
    } catch (const std::system_error&) {
        return false;
    }
}

}  // namespace redlatch::test
