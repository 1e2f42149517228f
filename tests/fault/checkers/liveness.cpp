#include "liveness.hpp"

#include "../history/holds.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace redlatch::test::fault {
namespace {

const char* name_of(Op op) {
    switch (op) {
        case Op::acquire: return "acquire";
        case Op::nest: return "nested acquire";
        case Op::extend: return "extend";
        case Op::release: return "release";
        case Op::close: return "end of a client, with its use";
        default: return "call";
    }
}

/// When the clients were closed, by process.
std::map<int, Time> closes_of(const History& history) {
    std::map<int, Time> closes;
    for (const Event& event : history) {
        if (event.op == Op::close && event.stage == Stage::ok) closes[event.process] = event.at;
    }
    return closes;
}

/// A wait without limit ends with its client; so does a nested one without limit that took the lock anew, as the
/// outer hold, with which it would have ended, had been lost before.
std::optional<Time> limit_of(const Call& call, const std::map<int, Time>& closed) {
    const Event& invoke = call.invoke;
    const bool anew = call.completion && call.completion->counts.contains("anew");
    const auto limit = anew ? std::nullopt : invoke.limit;
    const bool waits = invoke.op == Op::acquire || invoke.op == Op::nest;
    const auto close = closed.find(invoke.process);
    if (limit || !waits || close == closed.end()) return limit;
    return std::max(close->second, invoke.at);
}

/// What is left of `whole` without `spans`.
std::vector<Span> without(Span whole, const std::vector<Span>& spans) {
    std::vector<Span> result;
    Time begin = whole.begin;
    for (const Span& span : merged(spans)) {
        if (span.begin > begin) result.push_back({begin, std::min(span.begin, whole.end)});
        begin = std::max(begin, span.end);
    }
    result.push_back({begin, whole.end});
    return merged(std::move(result));
}

/// Whether the call may have had the lock for a lease that was over when its answer came, on a busy machine.
bool may_have_been_over(const Call& call) {
    constexpr long long short_lease_ms = 200;
    const long long lease_ms = count_of(call.invoke, "lease_ms");
    const bool is_short = lease_ms > 0 && lease_ms < short_lease_ms;
    return is_short && call.completion && call.completion->outcome == "unavailable";
}

/// From the moment at which somebody takes a lock to the one at which it is certainly free. A hold that
/// is over is no excuse, however late its holder comes to release it; but what a watchdog was told
/// last is not known.
Span occupied(const HoldRecord& hold) {
    const bool freed = hold.release_end && hold.release_end->stage == Stage::ok;
    const Time released = freed ? hold.release_end->at : Time::max();
    const bool renewed_unseen = freed && hold.policy.find("Watchdog") != std::string::npos;
    const Time expired = renewed_unseen ? hold.lost.value_or(Time::max())
                                        : std::max(hold.valid_at_most, hold.acquired);
    return {hold.acquired, std::min(released, expired)};
}

}  // namespace

Violations check_deadlines(const History& history, Time slack) {
    Violations found;
    std::map<int, std::vector<Span>> frozen;
    std::set<int> killed;
    for (const Event& event : history) {
        if (frozen.contains(event.process)) continue;
        frozen[event.process] = frozen_spans(history, event.process);
        if (killed_at(history, event.process)) killed.insert(event.process);
    }
    const std::map<int, Time> closed = closes_of(history);
    for (const Call& call : calls_of(history)) {
        const auto limit = limit_of(call, closed);
        if (!limit) continue;
        const std::string who = std::to_string(call.invoke.process) + "/" +
                                std::to_string(call.invoke.hold) + " " + name_of(call.invoke.op) +
                                " of " + call.invoke.lock;
        if (!call.completion) {
            if (killed.contains(call.invoke.process)) continue;
            found.push_back({"deadline", who + " never came back", call.invoke.at});
            continue;
        }
        const Span whole{call.invoke.at, call.completion->at};
        const Time excused = covered(whole, frozen[call.invoke.process]);
        const Time late = call.completion->at - *limit - excused;
        if (late > slack) {
            found.push_back({"deadline", who + " came back " + in_ms(late) + " late", whole.end});
        }
    }
    return found;
}

Violations check_idle_locks(const History& history, const IdleLimits& limits) {
    if (history.empty()) return {};
    const std::vector<Span> disturbed = disturbances(history, limits.settle);
    std::map<std::string, std::vector<Span>> busy;
    for (const HoldRecord& hold : holds_of(history)) busy[hold.lock].push_back(occupied(hold));
    std::map<std::string, std::vector<Span>> waiting;
    for (const Call& call : calls_of(history)) {
        const Event& invoke = call.invoke;
        if (invoke.op != Op::acquire) continue;
        const Time end = call.completion
                             ? call.completion->at
                             : killed_at(history, invoke.process).value_or(history.back().at);
        if (count_of(invoke, "set") > 0) {
            busy[invoke.lock].push_back({invoke.at, end});
            continue;
        }
        if (may_have_been_over(call)) busy[invoke.lock].push_back({invoke.at, end});
        if (!invoke.limit || *invoke.limit - invoke.at <= limits.longest) continue;
        waiting[invoke.lock].push_back({invoke.at, std::min(end, *invoke.limit)});
    }
    Violations found;
    for (const auto& [lock, waits] : waiting) {
        std::vector<Span> excused = busy[lock];
        excused.insert(excused.end(), disturbed.begin(), disturbed.end());
        for (const Span& wait : merged(waits)) {
            for (const Span& idle : without(wait, excused)) {
                if (idle.length() <= limits.longest) continue;
                found.push_back(
                    {"idle lock",
                     lock + " lay free for " + in_ms(idle.length()) + " while somebody waited",
                     idle.begin});
            }
        }
    }
    return found;
}

}  // namespace redlatch::test::fault
