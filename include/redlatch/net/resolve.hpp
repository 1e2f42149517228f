#pragma once

#include <redlatch/net/detached_calls.hpp>
#include <redlatch/net/socket.hpp>

#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What one look-up found.
struct Lookup {
    std::vector<Address> addresses{};  ///< without a port
    int error = 0;                     ///< of getaddrinfo
    int system_error = 0;              ///< and of the system, where that is why
};

inline Lookup look_up(const std::string& host, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* found = nullptr;
    Lookup result;
    errno = 0;
    result.error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (result.error != 0) {
        // Without a descriptor for the question, it says that the name is not known.
        const bool lacks_descriptor = errno == EMFILE || errno == ENFILE;
        if (result.error == EAI_SYSTEM || lacks_descriptor) result.system_error = errno;
        return result;
    }
    for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
        Address address;
        std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
        address.length = info->ai_addrlen;
        result.addresses.push_back(address);
    }
    ::freeaddrinfo(found);
    return result;
}

/// Looks names up for all connections of one client. `getaddrinfo` cannot be cancelled and may take
/// half a minute. Thread-safe.
class Resolver {
public:
    /// The addresses of `host`, without a port, in the system's order of preference.
    Expected<std::vector<Address>, Fault> resolve(const std::string& host, const Limit& limit) {
        Lookup result = look_up(host, AI_NUMERICHOST);
        if (result.error == EAI_NONAME) {
            auto asked = lookups_.run(
                host, [host] { return ask(host); }, "name resolution", limit);
            if (!asked) return Unexpected{std::move(asked).error()};
            result = *asked == nullptr ? Lookup{.error = EAI_MEMORY}
                                       : *std::static_pointer_cast<const Lookup>(*asked);
        }
        if (result.error != 0) {
            return Unexpected{io_fault("name resolution: " + why(result))};
        }
        return std::move(result.addresses);
    }

private:
    static std::string why(const Lookup& failed) {
        return failed.system_error != 0 ? system_message(failed.system_error)
                                        : ::gai_strerror(failed.error);
    }

    /// Null without memory.
    static DetachedCalls::Result ask(const std::string& host) noexcept {
        try {
            return std::make_shared<const Lookup>(look_up(host, 0));
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }

    DetachedCalls lookups_{"redlatch lookup"};
};

/// Connects to an endpoint: its socket, or its addresses in turn, each of which gets its share of
/// the time that is left.
inline Expected<Descriptor, Fault> connect_endpoint(const Endpoint& endpoint, Resolver& resolver,
                                                    const Limit& limit) {
    if (endpoint.transport == Endpoint::Transport::unix_socket) {
        return connect_socket(Address::of_path(endpoint.path), limit);
    }
    auto addresses = resolver.resolve(endpoint.host, limit);
    if (!addresses) return Unexpected{std::move(addresses).error()};
    Expected<Descriptor, Fault> socket{Unexpected{io_fault("the name has no address")}};
    auto remaining = static_cast<int>(addresses->size());
    for (Address& address : *addresses) {
        address.set_port(endpoint.port);
        socket = connect_socket(address, limit.within(limit.left() / remaining));
        if (socket || limit.cancelled()) break;
        --remaining;
    }
    return socket;
}

}  // namespace redlatch::inline v0::detail
