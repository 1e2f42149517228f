#include "completion.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace redlatch::test::fault {

namespace {

bool stood_still(const History& history, const Event& event) {
    constexpr Time near = std::chrono::milliseconds{500};
    return covered({event.at - near, event.at + near}, frozen_spans(history, event.process)) >
           Time{0};
}

}  // namespace

Violations check_completions(const History& history) {
    constexpr std::size_t by_chance = 2;
    Violations found;
    Violations over;
    std::set<std::pair<int, std::uint64_t>> completed;
    for (const Event& event : history) {
        if (event.stage != Stage::ok && event.stage != Stage::fail) continue;
        const auto accuse_in = [&event](Violations& list, const char* text) {
            list.push_back({"completion",
                            std::to_string(event.process) + "/" + std::to_string(event.hold) +
                                " of " + event.lock + " (" + event.policy + ") " + text,
                            event.at});
        };
        const auto accuse = [&](const char* text) { accuse_in(found, text); };
        if (event.counts.contains("inside")) accuse("completed inside the call that began it");
        if (event.counts.contains("elsewhere")) accuse("completed on another thread");
        if (event.counts.contains("over") && !stood_still(history, event)) {
            accuse_in(over, "was over when it was delivered");
        }
        if (!completed.insert({event.process, event.call}).second) accuse("completed twice");
    }
    if (over.size() > by_chance) found.insert(found.end(), over.begin(), over.end());
    return found;
}

}  // namespace redlatch::test::fault
