#include "exclusion.hpp"

#include "../history/holds.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test::fault {
namespace {

struct Reliance {
    Span span;
    const HoldRecord* hold;
};

std::string among(const HoldRecord& one, const HoldRecord& other) {
    return other.lock + " is held by " + one.name() + " and " + other.name();
}

/// `there`: those that are relied on when the next one begins to be.
void check_next(const std::vector<const Reliance*>& there, const Reliance& next,
                Violations& found) {
    const HoldRecord& hold = *next.hold;
    long long permits = hold.permits;
    for (const Reliance* other : there) {
        if (other->hold == next.hold) continue;
        permits += other->hold->permits;
        if (share(*other->hold, hold)) continue;
        const Time both = std::min(other->span.end, next.span.end) - next.span.begin;
        found.push_back(
            {"exclusion", among(*other->hold, hold) + " for " + in_ms(both), next.span.begin});
    }
    if (permits <= hold.of) return;
    found.push_back({"exclusion",
                     hold.lock + ": " + std::to_string(permits) + " of " + std::to_string(hold.of) +
                         " permits are held, the last by " + hold.name(),
                     next.span.begin});
}

Violations check_lock(const std::vector<HoldRecord>& holds) {
    std::vector<Reliance> all;
    for (const HoldRecord& hold : holds) {
        for (const Span& span : hold.relied_on) all.push_back({span, &hold});
    }
    std::ranges::sort(all, {}, [](const Reliance& reliance) { return reliance.span.begin; });
    Violations found;
    std::vector<const Reliance*> there;
    for (const Reliance& next : all) {
        std::erase_if(
            there, [&](const Reliance* reliance) { return reliance->span.end <= next.span.begin; });
        check_next(there, next, found);
        there.push_back(&next);
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
