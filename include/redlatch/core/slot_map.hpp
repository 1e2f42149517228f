#pragma once

#include <redlatch/core/server_address.hpp>
#include <redlatch/core/slot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// One range of slots in an answer to CLUSTER SLOTS, as it came.
struct ToldSlots {
    std::int64_t first = 0;
    std::int64_t last = 0;
    std::string_view host{};  ///< of the master; empty or `?`: the host that was asked
    std::int64_t port = 0;    ///< 0: the master has none for connections of this kind
};

/// Which master serves which slot of a Cluster. Masters are numbered from 0 on.
class SlotMap {
public:
    /// Knows no slot.
    SlotMap() : owners_(slot_count, nobody) {}

    /// What a node on `host` has told. Nothing where it contradicts itself, or speaks of slots, hosts or
    /// ports that cannot be.
    static std::optional<SlotMap> from(const std::vector<ToldSlots>& ranges,
                                       const std::string& host) {
        if (ranges.empty()) return std::nullopt;
        SlotMap map;
        std::map<ServerAddress, Master> numbers;
        for (const ToldSlots& range : ranges) {
            const auto master = map.number_of(range, host, numbers);
            if (!master || !map.give(range, *master)) return std::nullopt;
        }
        std::replace(map.owners_.begin(), map.owners_.end(), unreachable, nobody);
        return map;
    }

    /// All masters by their numbers. One whose slots have moved away keeps its number.
    const std::vector<ServerAddress>& masters() const noexcept { return masters_; }

    /// The number of the master that serves a slot; nothing where it is not known.
    std::optional<std::size_t> master_of(unsigned slot) const noexcept {
        const Master owner = owners_[slot];
        if (owner == nobody) return std::nullopt;
        return owner;
    }

    /// A slot has moved to the master at that address. Returns that one's number.
    std::size_t moved(unsigned slot, const ServerAddress& to) {
        const auto found = std::find(masters_.begin(), masters_.end(), to);
        const auto number = static_cast<std::size_t>(found - masters_.begin());
        if (found == masters_.end()) masters_.push_back(to);
        owners_[slot] = static_cast<Master>(number);
        return number;
    }

    bool serves(std::size_t master) const noexcept {
        return std::find(owners_.begin(), owners_.end(), master) != owners_.end();
    }

    /// Those that serve a slot.
    std::vector<ServerAddress> serving() const {
        std::vector<std::uint32_t> served(masters_.size());  // how many slots by each
        for (const Master owner : owners_) {
            if (owner != nobody) ++served[owner];
        }
        std::vector<ServerAddress> some;
        for (std::size_t i = 0; i < masters_.size(); ++i) {
            if (served[i] > 0) some.push_back(masters_[i]);
        }
        return some;
    }

private:
    using Master = std::uint32_t;
    static constexpr Master nobody = std::numeric_limits<Master>::max();
    static constexpr Master unreachable = nobody - 1;

    std::optional<Master> number_of(const ToldSlots& range, const std::string& teller,
                                    std::map<ServerAddress, Master>& numbers) {
        constexpr std::int64_t largest_port = 0xffff;
        if (range.port < 0 || range.port > largest_port) return std::nullopt;
        const bool is_named = !range.host.empty() && range.host != "?";
        if (is_named && !may_be_host(range.host)) return std::nullopt;
        if (range.port == 0) return unreachable;
        ServerAddress address{is_named ? std::string{range.host} : teller,
                              static_cast<std::uint16_t>(range.port)};
        const auto [at, is_new] =
            numbers.try_emplace(std::move(address), static_cast<Master>(masters_.size()));
        if (is_new) masters_.push_back(at->first);
        return at->second;
    }

    /// False where there are no such slots, or one of them has been given away.
    bool give(const ToldSlots& range, Master master) {
        if (range.first < 0 || range.last < range.first || range.last >= slot_count) return false;
        const auto begin = owners_.begin() + static_cast<std::ptrdiff_t>(range.first);
        const auto end = owners_.begin() + static_cast<std::ptrdiff_t>(range.last) + 1;
        if (std::any_of(begin, end, [](Master owner) { return owner != nobody; })) return false;
        std::fill(begin, end, master);
        return true;
    }

    std::vector<Master> owners_;  // by slot
    std::vector<ServerAddress> masters_;
};

}  // namespace redlatch::inline v0::detail
