#pragma once

#include <redlatch/core/server_address.hpp>
#include <redlatch/error.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace redlatch::inline v0::detail {

/// Where a server is, and how to log in.
struct Endpoint {
    enum class Transport { tcp, unix_socket };
    enum class Mode { server, cluster_node, sentinel };

    Transport transport = Transport::tcp;
    bool tls = false;
    Mode mode = Mode::server;  ///< a server that says that it is in another one is refused
    bool any_role = false;     ///< a replica will do
    std::string host;          ///< a name or a numeric address, without brackets
    std::uint16_t port = 6379;
    std::string path;  ///< of the socket
    std::optional<std::string> user;
    std::optional<std::string> password;
    std::uint32_t db = 0;
    std::optional<std::chrono::milliseconds> connect_timeout;
    std::optional<std::chrono::milliseconds> command_timeout;

    /// Empty: not given. A user without a password logs in with an empty one, and never as somebody else.
    void log_in_as(const std::string& its_user, const std::string& its_password) {
        if (!its_user.empty()) user = its_user;
        if (!its_user.empty() || !its_password.empty()) password = its_password;
    }

    /// The same at another address.
    Endpoint at(const ServerAddress& address) const {
        Endpoint other = *this;
        other.host = address.host;
        other.port = address.port;
        return other;
    }

    /// What messages call this server.
    std::string name() const {
        if (transport == Transport::unix_socket) return printable(path);
        const bool v6 = host.find(':') != std::string::npos;
        return printable(v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
    }
};

}  // namespace redlatch::inline v0::detail
