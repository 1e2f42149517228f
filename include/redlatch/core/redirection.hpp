#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/core/parse_number.hpp>
#include <redlatch/core/server_address.hpp>
#include <redlatch/core/slot.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

/// A server of a Cluster says which other one a command belongs to. Nothing was executed.
struct Redirection {
    bool once = false;  ///< for this command only (ASK); else from now on (MOVED)
    unsigned slot = 0;
    std::string host;  ///< empty: the host that said so
    std::uint16_t port = 0;
};

/// What `MOVED slot host:port` or `ASK slot host:port` says; the host may be an IPv6 address without
/// brackets, and empty or `?` where the server does not know it. Nothing for another fault, and where
/// slot, host or port cannot be.
inline std::optional<Redirection> redirection_of(const Fault& fault) {
    std::string_view text = fault.error.message;
    Redirection to;
    if (text.starts_with("ASK ")) {
        to.once = true;
        text.remove_prefix(4);
    } else if (text.starts_with("MOVED ")) {
        text.remove_prefix(6);
    } else {
        return std::nullopt;
    }
    const std::size_t space = text.find(' ');
    const std::size_t colon = text.rfind(':');
    if (space == std::string_view::npos || colon == std::string_view::npos || colon < space) {
        return std::nullopt;
    }
    const auto slot = whole_number<unsigned>(text.substr(0, space));
    const auto port = parse_port(text.substr(colon + 1));
    if (!slot || *slot >= slot_count || !port) return std::nullopt;
    to.slot = *slot;
    to.port = *port;
    const std::string_view host = text.substr(space + 1, colon - space - 1);
    if (host.empty() || host == "?") return to;
    if (!may_be_host(host)) return std::nullopt;
    to.host = host;
    return to;
}

/// Says what an error of a Cluster's node means to a client that takes it for the one master.
inline void explain_cluster(Fault& fault) {
    std::string& message = fault.error.message;
    if (redirection_of(fault) || message.starts_with("CROSSSLOT "))
        message += "; the server is a node of a Cluster: its URI begins with redis+cluster://";
}

/// Servers send a command from one to the other for too long: they do not agree yet where its key is.
inline void disagree(Fault& fault) {
    fault.error.code = Errc::unavailable;
    fault.transient = true;
}

/// Whether a server says that a lock's keys are in two places just now, as their slot moves: no server can run the
/// command. Where a script has deleted a key and comes back to it, that key has gone on to the other server.
inline bool says_between_servers(std::string_view words) {
    if (words.starts_with("ERR ")) words.remove_prefix(4);
    return words.starts_with("TRYAGAIN") ||
           words.starts_with("Script attempted to access a non local key") ||
           words.starts_with("Lua script attempted to access a non local key");  // before Redis 7.0
}

inline bool is_between_servers(const Fault& fault) {
    return says_between_servers(fault.error.message);
}

}  // namespace redlatch::inline v0::detail
