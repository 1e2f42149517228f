#include "exclusion.hpp"

#include "../history/holds.hpp"

#include <algorithm>

namespace redlatch::test::fault {
namespace {

struct Reliance {
    Span span;
    const HoldRecord* hold;
};

Violations check_lock(const std::vector<HoldRecord>& holds) {
    std::vector<Reliance> all;
    for (const HoldRecord& hold : holds) {
        for (const Span& span : hold.relied_on) all.push_back({span, &hold});
    }
    std::ranges::sort(all, {}, [](const Reliance& reliance) { return reliance.span.begin; });
    Violations found;
    const Reliance* latest = nullptr;  // the one that lasts longest of those seen
    for (const Reliance& next : all) {
        if (latest != nullptr && next.span.begin < latest->span.end && next.hold != latest->hold) {
            const Time both = std::min(latest->span.end, next.span.end) - next.span.begin;
            found.push_back({"exclusion",
                             next.hold->lock + " is held by " + latest->hold->name() + " and " +
                                 next.hold->name() + " for " + in_ms(both),
                             next.span.begin});
        }
        if (latest == nullptr || next.span.end > latest->span.end) latest = &next;
    }
    return found;
}

}  // namespace

Violations check_exclusion(const History& history) {
    Violations found;
    for (const std::vector<HoldRecord>& holds : holds_by_lock(history)) {
        for (Violation& violation : check_lock(holds)) found.push_back(std::move(violation));
    }
    return found;
}

}  // namespace redlatch::test::fault
