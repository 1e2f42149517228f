#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::test {

/// Owner of a file descriptor.
class UniqueFd {
public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_{fd} {}
    UniqueFd(UniqueFd&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~UniqueFd() { reset(); }

    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
    void reset();

private:
    int fd_ = -1;
};

/// Where a server listens: the path of a Unix socket, or else a numeric loopback host and a port.
struct Address {
    std::string path;
    std::string host;
    std::uint16_t port = 0;

    /// Reads `unix:///path`, a bare `/path`, `redis://host:port` or `redis://[::1]:port`; nothing
    /// else of a URI (no password, no database). Throws std::invalid_argument.
    [[nodiscard]] static Address parse(std::string_view text);

    [[nodiscard]] std::string uri() const;
    [[nodiscard]] bool is_unix() const { return !path.empty(); }
};

/// Starts a non-blocking connect. An address that refuses at once gives an empty UniqueFd; with TCP
/// a refusal may also show up later, on the first read or write.
[[nodiscard]] UniqueFd connect_to(const Address& address);

/// A bound, non-blocking socket that does not listen yet: connecting to it is refused. For TCP,
/// port 0 picks a free one and stores it in `address`.
///
/// A socket that stays bound this way also keeps its TCP port reserved: the kernel hands the port
/// to nobody who asks for any free one, while a server that binds it by number with SO_REUSEADDR
/// (as redis-server does) may listen on it.
[[nodiscard]] UniqueFd bind_to(Address& address);

/// The same for a port that nobody has bound, not even without listening on it.
[[nodiscard]] UniqueFd bind_alone_to(const Address& address);

/// `bind_to` and listen.
[[nodiscard]] UniqueFd listen_on(Address& address);

/// Whether this machine has the address ::1; without it tests over IPv6 have nothing to run on.
[[nodiscard]] bool ipv6_available();

}  // namespace redlatch::test
