#pragma once

#include <redlatch/clock.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

class Hold;

/// Things to do about holds, ordered by due time; at most one for each hold. Not thread-safe.
template <class Item>
class Schedule {
public:
    /// Adds or moves.
    void put(const Hold* hold, TimePoint due, Item item) {
        remove(hold);
        items_.emplace(Key{due, hold}, std::move(item));
        due_.emplace(hold, due);
    }

    void remove(const Hold* hold) {
        const auto found = due_.find(hold);
        if (found == due_.end()) return;
        items_.erase(Key{found->second, hold});
        due_.erase(found);
    }

    bool empty() const noexcept { return items_.empty(); }

    /// When the first item is due; for ever where there is none.
    TimePoint next_due() const {
        return items_.empty() ? TimePoint::max() : items_.begin()->first.first;
    }

    /// Takes the first item out if it is due at `now`.
    std::optional<Item> take_due(TimePoint now) {
        if (items_.empty() || next_due() > now) return std::nullopt;
        auto node = items_.extract(items_.begin());
        due_.erase(node.key().second);
        return std::move(node.mapped());
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
            if (due > saturating_add(now, early(std::as_const(here->second)))) continue;
            due_.erase(here->first.second);
            taken.push_back(std::move(items_.extract(here).mapped()));
        }
        return taken;
    }

private:
    using Key = std::pair<TimePoint, const Hold*>;

    std::map<Key, Item> items_;
    std::unordered_map<const Hold*, TimePoint> due_;
};

}  // namespace redlatch::inline v0::detail
