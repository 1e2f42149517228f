#pragma once

#include <redlatch/net/socket.hpp>
#include <redlatch/net/thread.hpp>

#include <netdb.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What one look-up found.
struct Lookup {
    std::vector<Address> addresses{};  ///< without a port
    int error = 0;                     ///< of getaddrinfo
};

inline Lookup look_up(const std::string& host, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* found = nullptr;
    Lookup result;
    result.error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (result.error != 0) return result;
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
/// half a minute, so each look-up has a thread that is never joined and owns all it needs. There is
/// one for a name at a time: everybody who needs the name meanwhile shares its result, and nobody
/// else does. Thread-safe.
class Resolver {
public:
    /// The addresses of `host`, without a port, in the system's order of preference.
    Expected<std::vector<Address>, Fault> resolve(const std::string& host, const Limit& limit) {
        Lookup result = look_up(host, AI_NUMERICHOST);
        if (result.error == EAI_NONAME) {
            auto waited = wait_for(host, limit);
            if (!waited) return Unexpected{std::move(waited).error()};
            result = *std::move(waited);
        }
        if (result.error != 0) {
            return Unexpected{
                io_fault(std::string{"name resolution: "} + ::gai_strerror(result.error))};
        }
        return std::move(result.addresses);
    }

private:
    using Pending = std::shared_ptr<std::optional<Lookup>>;  // empty until it is answered

    /// What the threads need too.
    struct State {
        std::mutex mutex;
        std::condition_variable answered;
        std::map<std::string, Pending> pending;  // by host
    };

    Expected<Lookup, Fault> wait_for(const std::string& host, const Limit& limit) {
        State& state = *state_;
        std::unique_lock lock{state.mutex};
        const Pending lookup = join(host);
        if (lookup == nullptr) {
            return Unexpected{io_fault("name resolution: cannot start a thread")};
        }
        while (!*lookup) {
            if (limit.cancelled()) return Unexpected{cancelled_fault()};
            const Clock::duration left = limit.left();
            if (left == Clock::duration::zero()) {
                return Unexpected{io_fault("name resolution: no answer in time")};
            }
            state.answered.wait_for(lock, std::min<Clock::duration>(left, stop_check_interval));
        }
        return **lookup;
    }

    /// The look-up that is under way, or a new one; null without a thread to be had. With the mutex
    /// held, which the thread needs for its answer.
    Pending join(const std::string& host) {
        const auto found = state_->pending.find(host);
        if (found != state_->pending.end()) return found->second;
        auto lookup = std::make_shared<std::optional<Lookup>>();
        std::thread thread =
            start_service_thread([state = state_, lookup, host] { run(*state, lookup, host); });
        if (!thread.joinable()) return nullptr;
        thread.detach();
        state_->pending.emplace(host, lookup);
        return lookup;
    }

    static void run(State& state, const Pending& lookup, const std::string& host) {
        Lookup result;
        try {
            result = look_up(host, 0);
        } catch (const std::bad_alloc&) {
            result.error = EAI_MEMORY;
        }
        const std::lock_guard lock{state.mutex};
        *lookup = std::move(result);
        state.pending.erase(host);
        state.answered.notify_all();
    }

    const std::shared_ptr<State> state_ = std::make_shared<State>();
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
