#include "reentrant.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace redlatch::test::fault {
namespace {

/// The count of one hold.
class Nest {
public:
    /// `lost`: when `lost()` fired.
    explicit Nest(std::optional<Time> lost) : lost_{lost} {}

    void tell(const Event& event, Violations& found) {
        if (event.valid_until) valid_until_ = std::max(valid_until_, *event.valid_until);
        if (event.stage != Stage::ok && event.stage != Stage::fail) return;
        if (event.op == Op::acquire && event.stage == Stage::ok) count_ = 1;
        if (event.op == Op::nest) nest(event, found);
        if (event.op == Op::release) release(event, found);
    }

private:
    void nest(const Event& event, Violations& found) {
        const bool nests = event.policy.find("Reentrant") != std::string::npos ||
                           event.policy.find("Shared") != std::string::npos;
        if (event.stage == Stage::ok) {
            if (!nests) accuse("was taken twice", event, found);
            ++count_;
            return;
        }
        const bool refused = event.outcome == "timed_out" || event.outcome == "deadlock";
        const bool lost_early = lost_ && *lost_ < valid_until_;
        if (nests && refused && event.at < valid_until_ && !lost_early) {
            accuse("does not nest: " + event.outcome, event, found);
        }
    }

    void release(const Event& event, Violations& found) {
        const std::string& outcome = event.outcome;
        if (count_ > 1 && outcome == "released") accuse("is free too early", event, found);
        if (count_ == 1 && outcome == "still_held") accuse("is still held", event, found);
        if (count_ < 1) accuse("is released too often", event, found);
        if (outcome == "not_held") accuse("is not held at its release", event, found);
        --count_;
    }

    static void accuse(const std::string& text, const Event& event, Violations& found) {
        found.push_back({"reentrant",
                         event.lock + " of " + std::to_string(event.process) + "/" +
                             std::to_string(event.hold) + " (" + event.policy + ") " + text,
                         event.at});
    }

    std::optional<Time> lost_;
    Time valid_until_{};
    int count_ = 0;
};

}  // namespace

Violations check_reentrancy(const History& history) {
    std::map<std::pair<int, std::uint64_t>, std::optional<Time>> losses;
    for (const Event& event : history) {
        if (event.op == Op::lost && event.outcome.empty())
            losses[{event.process, event.hold}] = event.at;
    }
    Violations found;
    std::map<std::pair<int, std::uint64_t>, Nest> nests;
    for (const Event& event : history) {
        if (event.hold == 0 || event.op == Op::write) continue;
        const std::pair hold{event.process, event.hold};
        nests.try_emplace(hold, losses[hold]).first->second.tell(event, found);
    }
    return found;
}

}  // namespace redlatch::test::fault
