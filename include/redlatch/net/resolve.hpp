#pragma once

#include <redlatch/net/socket.hpp>

#include <netdb.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What one look-up found.
struct Lookup {
    std::vector<Address> addresses;
    int error = 0;  ///< of getaddrinfo
};

inline Lookup look_up(const std::string& host, const std::string& port, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    Lookup result;
    result.error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
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

/// A look-up in a thread of its own: `getaddrinfo` cannot be cancelled and may take half a minute,
/// so the thread is never joined, owns all it needs, and is left behind when the limit is over.
class LookupThread {
public:
    LookupThread(const std::string& host, const std::string& port)
        : shared_(std::make_shared<Shared>()) {
        std::thread{[shared = shared_, host, port] {
            Lookup result = look_up(host, port, 0);
            const std::lock_guard lock{shared->mutex};
            shared->result = std::move(result);
            shared->done = true;
            shared->finished.notify_one();
        }}.detach();
    }

    Expected<Lookup, Fault> wait(const Limit& limit) {
        std::unique_lock lock{shared_->mutex};
        while (!shared_->done) {
            if (limit.cancelled()) return Unexpected{cancelled_fault()};
            const Clock::duration left = limit.left();
            if (left == Clock::duration::zero()) {
                return Unexpected{io_fault("name resolution: no answer in time")};
            }
            shared_->finished.wait_for(lock, std::min<Clock::duration>(left, stop_check_interval));
        }
        return std::move(shared_->result);
    }

private:
    struct Shared {
        std::mutex mutex;
        std::condition_variable finished;
        bool done = false;
        Lookup result;
    };
    std::shared_ptr<Shared> shared_;
};

/// All addresses of a TCP endpoint, in the system's order of preference.
inline Expected<std::vector<Address>, Fault> resolve(const Endpoint& endpoint, const Limit& limit) {
    const std::string port = std::to_string(endpoint.port);
    Lookup result = look_up(endpoint.host, port, AI_NUMERICHOST);
    if (result.error == EAI_NONAME) {
        try {
            auto waited = LookupThread{endpoint.host, port}.wait(limit);
            if (!waited) return Unexpected{std::move(waited).error()};
            result = *std::move(waited);
        } catch (const std::system_error& error) {
            return Unexpected{io_fault(std::string{"name resolution: "} + error.what())};
        }
    }
    if (result.error != 0) {
        return Unexpected{
            io_fault(std::string{"name resolution: "} + ::gai_strerror(result.error))};
    }
    return std::move(result.addresses);
}

/// Connects to an endpoint: its socket, or its addresses in turn, each of which gets its share of
/// the time that is left.
inline Expected<Descriptor, Fault> connect_endpoint(const Endpoint& endpoint, const Limit& limit) {
    if (endpoint.transport == Endpoint::Transport::unix_socket) {
        return connect_socket(Address::of_path(endpoint.path), limit);
    }
    auto addresses = resolve(endpoint, limit);
    if (!addresses) return Unexpected{std::move(addresses).error()};
    Expected<Descriptor, Fault> socket{Unexpected{io_fault("the name has no address")}};
    auto remaining = static_cast<int>(addresses->size());
    for (const Address& address : *addresses) {
        socket = connect_socket(address, limit.within(limit.left() / remaining));
        if (socket || limit.cancelled()) break;
        --remaining;
    }
    return socket;
}

}  // namespace redlatch::inline v0::detail
