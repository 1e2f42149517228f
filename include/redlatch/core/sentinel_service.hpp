#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/sentinel_lookup.hpp>
#include <redlatch/core/server_address.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// What is known of a service from one search to the next: who is the master, and which Sentinel to ask
/// first.
class SentinelService {
public:
    SentinelService(std::string name, std::size_t sentinels)
        : name_(std::move(name)), sentinels_(sentinels) {}

    const std::string& name() const noexcept { return name_; }

    SentinelLookup look_up(TimePoint deadline) const {
        return {name_, first_, sentinels_, deadline, moves_};
    }

    /// That Sentinel named a master.
    void helped(std::size_t sentinel) noexcept { first_ = sentinel; }

    /// The server that it named could not be used: it is out of reach, or its address is another server's by now.
    /// Another Sentinel may know a newer master: the next search begins with that one.
    void misled(std::size_t sentinel) noexcept { first_ = (sentinel + 1) % sentinels_; }

    /// A search that began with that Sentinel found no master. The first one has most of the time, so the
    /// next search begins with another one.
    void found_none(std::size_t first) noexcept {
        if (first_ == first) first_ = (first + 1) % sentinels_;
    }

    enum class Arrival { first, same, moved, outdated };

    /// The master is at that address.
    Arrival arrive(const ServerAddress& master) {
        if (master_ == master) return Arrival::same;
        ++moves_;
        return std::exchange(master_, master) ? Arrival::moved : Arrival::first;
    }

    /// The outcome of a search. Outdated if the service learned of another master since it began: the old one
    /// may have been frozen, and still call itself master.
    Arrival arrive(const ServerAddress& master, const SentinelLookup& search) {
        const bool has_moved = search.moves_before() != moves_ && master_ && *master_ != master;
        return has_moved ? Arrival::outdated : arrive(master);
    }

    /// Nothing before it was found.
    const std::optional<ServerAddress>& master() const noexcept { return master_; }

    /// The new master, where `message` (`service old-host old-port new-host new-port`) is about this
    /// service.
    std::optional<ServerAddress> switched(std::string_view message) const {
        std::array<std::string_view, 5> words;
        for (std::string_view& word : words) {
            word = message.substr(0, message.find(' '));
            message.remove_prefix(std::min(word.size() + 1, message.size()));
        }
        if (words[0] != name_) return std::nullopt;
        return parse_address(words[3], words[4]);
    }

private:
    std::string name_;
    std::size_t sentinels_;
    std::size_t first_ = 0;  // to be asked
    std::optional<ServerAddress> master_;
    std::uint64_t moves_ = 0;  // to another server, and to the first one
};

}  // namespace redlatch::inline v0::detail
