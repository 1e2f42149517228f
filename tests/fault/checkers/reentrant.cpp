#include "reentrant.hpp"

#include <map>
#include <string>
#include <utility>

namespace redlatch::test::fault {
namespace {

/// The count of one hold.
class Nest {
public:
    void tell(const Event& event, Violations& found) {
        if (event.stage != Stage::ok && event.stage != Stage::fail) return;
        if (event.op == Op::acquire && event.stage == Stage::ok) count_ = 1;
        if (event.op == Op::nest) nest(event, found);
        if (event.op == Op::release) release(event, found);
    }

private:
    void nest(const Event& event, Violations& found) {
        const bool nests = event.policy.find("Reentrant") != std::string::npos;
        if (event.stage == Stage::ok) {
            if (!nests) accuse("was taken twice", event, found);
            ++count_;
        } else if (nests && (event.outcome == "timed_out" || event.outcome == "deadlock")) {
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

    int count_ = 0;
};

}  // namespace

Violations check_reentrancy(const History& history) {
    Violations found;
    std::map<std::pair<int, std::uint64_t>, Nest> nests;
    for (const Event& event : history) {
        if (event.hold == 0 || event.op == Op::write) continue;
        nests[{event.process, event.hold}].tell(event, found);
    }
    return found;
}

}  // namespace redlatch::test::fault
