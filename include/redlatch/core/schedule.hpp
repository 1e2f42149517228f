#pragma once

#include <redlatch/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

class Hold;

/// Things to do about holds, ordered by due time, and those of one time as they came; at most one for each
/// hold. Not thread-safe.
template <class Item>
class Schedule {
public:
    /// Adds or moves.
    void put(const Hold* hold, TimePoint due, Item item) {
        remove(hold);
        const Place place{due, ++count_};
        places_.emplace(hold, place);  // first: without memory, no item is left that nobody finds
        items_.emplace(place, Entry{hold, std::move(item)});
    }

    void remove(const Hold* hold) {
        const auto found = places_.find(hold);
        if (found == places_.end()) return;
        items_.erase(found->second);
        places_.erase(found);
    }

    bool empty() const noexcept { return items_.empty(); }

    /// When the first item is due; for ever where there is none.
    TimePoint next_due() const {
        return items_.empty() ? TimePoint::max() : items_.begin()->first.first;
    }

    /// Takes the first item out if it is due at `now`.
    std::optional<Item> take_due(TimePoint now) {
        if (items_.empty() || next_due() > now) return std::nullopt;
        return take(items_.begin());
    }

    /// Takes out, in order, what is due at `now` or as much later as `early` says of the item: up to
    /// `furthest` later, and `most` items.
    template <class Early>
    std::vector<Item> take_early(TimePoint now, Clock::duration furthest, std::size_t most,
                                 Early early) {
        std::vector<Item> taken;
        const TimePoint end = saturating_add(now, furthest);
        for (auto at = items_.begin(); at != items_.end() && taken.size() < most;) {
            const auto here = at++;
            const TimePoint due = here->first.first;
            if (due > end) break;
            if (due > saturating_add(now, early(std::as_const(here->second.item)))) continue;
            taken.push_back(take(here));
        }
        return taken;
    }

private:
    using Place = std::pair<TimePoint, std::uint64_t>;
    struct Entry {
        const Hold* hold;
        Item item;
    };
    using Items = std::map<Place, Entry>;

    Item take(typename Items::iterator at) {
        auto node = items_.extract(at);
        places_.erase(node.mapped().hold);
        return std::move(node.mapped().item);
    }

    Items items_;
    std::unordered_map<const Hold*, Place> places_;
    std::uint64_t count_ = 0;
};

}  // namespace redlatch::inline v0::detail
