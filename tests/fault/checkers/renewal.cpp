#include "renewal.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test::fault {
namespace {

bool ended_unwanted(const Event& event) {
    if (event.op == Op::lost) return event.outcome.empty();
    if (event.op == Op::probe) return event.held == false;
    return event.op == Op::release && event.outcome == "expired";
}

/// One hold, and how many of its acquisitions are watched.
class Watch {
public:
    /// The first sign that it is over while it is watched.
    bool ends_with(const Event& event) {
        if (over_) return false;
        const bool watched = count_of(event, "watched") > 0;
        const bool takes = event.op == Op::acquire || event.op == Op::nest;
        if (takes && event.stage == Stage::ok && watched) ++watched_;
        if (event.op == Op::release && event.stage == Stage::invoke && watched) --watched_;
        if (takes && event.stage == Stage::ok && count_of(event, "ends_itself") > 0) over_ = true;
        if (!ended_unwanted(event)) return false;
        over_ = true;
        return watched_ > 0;
    }

private:
    int watched_ = 0;
    bool over_ = false;
};

/// A call that asks the server about a lock of its own caller.
bool waits_for_nobody(const Call& call) {
    const Op op = call.invoke.op;
    return op == Op::nest || op == Op::extend || op == Op::release;
}

/// By process, while its calls were slow.
std::map<int, std::vector<Span>> slow_spans(const History& history, Time slow) {
    std::map<int, std::vector<Span>> spans;
    for (const Call& call : calls_of(history)) {
        const Time end = call.completion ? call.completion->at : Time::max();
        if (!waits_for_nobody(call) || end - call.invoke.at <= slow) continue;
        spans[call.invoke.process].push_back({call.invoke.at, end});
    }
    return spans;
}

}  // namespace

Violations check_renewal(const History& history, const RenewalLimits& limits) {
    const std::vector<Span> disturbed = disturbances(history, limits.settle);
    std::map<int, std::vector<Span>> slow = slow_spans(history, limits.slow);
    std::map<std::pair<int, std::uint64_t>, Watch> watches;
    Violations found;
    for (const Event& event : history) {
        if (event.hold == 0 || event.op == Op::write) continue;
        if (!watches[{event.process, event.hold}].ends_with(event)) continue;
        const Time lease = std::chrono::milliseconds{count_of(event, "lease_ms")};
        const Span renewable{event.at - lease, event.at};
        if (lease < limits.shortest || covered(renewable, disturbed) > Time{0}) continue;
        if (covered(renewable, slow[event.process]) > Time{0}) continue;
        found.push_back({"renewal",
                         event.lock + " of " + std::to_string(event.process) + "/" +
                             std::to_string(event.hold) + " (" + event.policy +
                             ") was watched and is over, lease " + in_ms(lease),
                         event.at});
    }
    return found;
}

}  // namespace redlatch::test::fault
