#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/server_address.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Decides when the slot map of a Cluster is asked for: by one caller at a time, not while it is brand
/// new, and before the next command where the last one showed that it may be wrong.
class SlotMapRefresh {
public:
    /// What somebody who wants the map refreshed has to do.
    enum class Turn {
        ask,   ///< ask for it, and say how that `ended`
        wait,  ///< wait for somebody else, who is asking
        skip,  ///< nothing: it is brand new
    };

    /// How asking for the map went.
    enum class Outcome {
        learned,
        nobody_knows,
        cut_short,  ///< the caller's time was over, or it was cancelled
    };

    Turn wanted(TimePoint now) {
        if (under_way_) return Turn::wait;
        const bool brand_new = ended_at_ && now < saturating_add(*ended_at_, least_age);
        if (brand_new) return Turn::skip;
        under_way_ = true;
        return Turn::ask;
    }

    void ended(Outcome outcome, TimePoint now) {
        under_way_ = false;
        misled_ = outcome != Outcome::learned && (misled_ || outcome == Outcome::cut_short);
        outcome_ = outcome;
        if (outcome != Outcome::cut_short) ended_at_ = now;
    }

    bool under_way() const noexcept { return under_way_; }

    /// What somebody who has waited has to do.
    Turn waited(TimePoint now) {
        return under_way_ || outcome_ == Outcome::cut_short ? wanted(now) : Turn::skip;
    }

    /// A command has met a fault that it could not follow up.
    void suspect() noexcept { suspect_ = misled_ = true; }

    /// Whether the map that was learned last has led to such a fault, or the node that was asked first for it
    /// gave no answer: then another node may know better.
    bool was_misled() const noexcept { return misled_; }

    /// Whether the map is to be asked for before a command. Says so to one caller only.
    bool take_suspicion() noexcept { return std::exchange(suspect_, false); }

private:
    static constexpr std::chrono::milliseconds least_age{100};

    bool suspect_ = true;  // nothing is known at first
    bool misled_ = false;
    bool under_way_ = false;
    Outcome outcome_ = Outcome::learned;
    std::optional<TimePoint> ended_at_;
};

/// Whom to ask for the map, each once: the addresses of the URI, then all masters, but first of all the
/// one that knew it `last`. Where that one has `misled`, it may be cut off from the others and know no better for long:
/// then those behind it come first.
inline std::vector<ServerAddress> map_informants(std::vector<ServerAddress> seeds,
                                                 const std::vector<ServerAddress>& masters,
                                                 const std::optional<ServerAddress>& last,
                                                 bool misled = false) {
    std::vector<ServerAddress> all = std::move(seeds);
    for (const ServerAddress& master : masters) {
        if (std::find(all.begin(), all.end(), master) == all.end()) all.push_back(master);
    }
    const auto found = last ? std::find(all.begin(), all.end(), *last) : all.end();
    if (found == all.end()) return all;
    if (misled) {
        std::rotate(all.begin(), found + 1, all.end());
    } else {
        std::rotate(all.begin(), found, found + 1);
    }
    return all;
}

/// Asks one node after the other for the map until one knows it. Each gets half of the time that is left: in
/// equal parts, one of many that are far away would have too little. The time that the last one leaves is for
/// the command that needs the map.
class SlotMapInquiry {
public:
    struct Ask {
        ServerAddress node;
        TimePoint until;
    };

    SlotMapInquiry(std::vector<ServerAddress> informants, TimePoint deadline)
        : informants_(std::move(informants)), deadline_(deadline) {}

    /// Whom to ask next; nothing where all have been asked, or the time is over.
    std::optional<Ask> next(TimePoint now) {
        if (asked_ == informants_.size() || now >= deadline_) return std::nullopt;
        return Ask{informants_[asked_++], saturating_add(now, saturating_sub(deadline_, now) / 2)};
    }

    /// What it means that nobody knew the map.
    SlotMapRefresh::Outcome failed(TimePoint now) const noexcept {
        const bool asked_all = asked_ == informants_.size() && now < deadline_;
        return asked_all ? SlotMapRefresh::Outcome::nobody_knows
                         : SlotMapRefresh::Outcome::cut_short;
    }

private:
    const std::vector<ServerAddress> informants_;
    const TimePoint deadline_;
    std::size_t asked_ = 0;
};

}  // namespace redlatch::inline v0::detail
