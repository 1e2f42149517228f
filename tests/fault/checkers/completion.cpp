#include "completion.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace redlatch::test::fault {

Violations check_completions(const History& history) {
    Violations found;
    std::set<std::pair<int, std::uint64_t>> completed;
    for (const Event& event : history) {
        if (event.stage != Stage::ok && event.stage != Stage::fail) continue;
        const auto accuse = [&](const char* text) {
            found.push_back({"completion",
                             std::to_string(event.process) + "/" + std::to_string(event.hold) +
                                 " of " + event.lock + " (" + event.policy + ") " + text,
                             event.at});
        };
        if (event.counts.contains("inside")) accuse("completed inside the call that began it");
        if (event.counts.contains("elsewhere")) accuse("completed on another thread");
        if (!completed.insert({event.process, event.call}).second) accuse("completed twice");
    }
    return found;
}

}  // namespace redlatch::test::fault
