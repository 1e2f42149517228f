#include "fence_order.hpp"

#include "../history/holds.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace redlatch::test::fault {
namespace {

Violations check_lock(const std::vector<HoldRecord>& holds) {
    struct Moment {
        Time at;
        bool begins;  // of an acquisition; otherwise it is back
        const HoldRecord* hold;
    };
    Violations found;
    std::set<std::uint64_t> seen;
    std::vector<Moment> moments;
    for (const HoldRecord& hold : holds) {
        if (hold.fence == 0) continue;
        if (!hold.reads && !seen.insert(hold.fence).second) {
            found.push_back({"fence order", hold.name() + " has another's fence", hold.acquired});
        }
        moments.push_back({hold.invoked, true, &hold});
        moments.push_back({hold.acquired, false, &hold});
    }
    std::ranges::stable_sort(moments, {}, &Moment::at);
    std::uint64_t highest = 0;
    std::map<const HoldRecord*, std::uint64_t> highest_before;
    for (const Moment& moment : moments) {
        const HoldRecord& hold = *moment.hold;
        if (moment.begins) {
            highest_before[&hold] = highest;
        } else {
            if (hold.fence < highest_before[&hold]) {
                found.push_back({"fence order",
                                 hold.lock + ": " + hold.name() + " has " +
                                     std::to_string(hold.fence) + " after one had " +
                                     std::to_string(highest_before[&hold]),
                                 hold.acquired});
            }
            highest = std::max(highest, hold.fence);
        }
    }
    return found;
}

void check_nested(const History& history, Violations& found) {
    std::map<std::pair<int, std::uint64_t>, std::uint64_t> fences;
    for (const Event& event : history) {
        if (event.stage != Stage::ok) continue;
        const std::pair hold{event.process, event.hold};
        if (event.op == Op::acquire) fences[hold] = event.fence;
        if (event.op == Op::nest && fences.contains(hold) && fences[hold] != event.fence) {
            found.push_back({"fence order", "a nested acquisition has another fence", event.at});
        }
    }
}

}  // namespace

Violations check_fence_order(const History& history) {
    Violations found;
    for (const std::vector<HoldRecord>& holds : holds_by_lock(history)) {
        for (Violation& violation : check_lock(holds)) found.push_back(std::move(violation));
    }
    check_nested(history, found);
    return found;
}

}  // namespace redlatch::test::fault
