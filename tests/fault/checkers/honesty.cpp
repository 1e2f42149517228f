#include "honesty.hpp"

#include "../history/holds.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace redlatch::test::fault {
namespace {

/// One hold's story so far.
class Story {
public:
    void tell(const Event& event, Violations& found) {
        if (event.op == Op::acquire && event.stage == Stage::ok) acquired_ = true;
        if (!acquired_) return;
        if (event.op == Op::lost && event.outcome == "not fired") {
            accuse("lost() has not fired for who asked after the end", event, found);
        } else if (event.op == Op::lost && event.outcome.empty() && !lost_) {
            lost_ = event.at;
        }
        if (event.op == Op::probe) probe(event, found);
        const bool renews = event.op == Op::extend || event.op == Op::nest;
        if (renews && event.stage == Stage::invoke) renewal_began_ = event.at;
        if (renews && event.stage == Stage::ok && over_before(renewal_began_)) {
            accuse("a lock that is over was extended or nested", event, found);
        }
        if (event.valid_at_most) at_most_ = std::max(at_most_, *event.valid_at_most);
    }

private:
    void probe(const Event& event, Violations& found) {
        if (event.held == true) {
            if (over_before(event.at)) accuse("held() is true again", event, found);
            const bool renewed_unseen = event.policy.find("Watchdog") != std::string::npos;
            if (!renewed_unseen && event.at > at_most_) {
                accuse("held() is true after the validity", event, found);
            }
        }
        if (event.held == false) {
            if (event.valid_until && *event.valid_until > event.at) {
                accuse("remaining() is positive, and held() was false", event, found);
            }
            if (event.outcome == "held" || event.outcome == "uncertain") {
                accuse("state() says held, and held() was false", event, found);
            }
            if (!seen_over_) seen_over_ = event.at;
        }
    }

    /// Looks that began before the end was told may have seen it otherwise.
    bool over_before(Time moment) const {
        return (lost_ && *lost_ < moment) || (seen_over_ && *seen_over_ < moment);
    }

    static void accuse(const char* text, const Event& event, Violations& found) {
        found.push_back({"honesty",
                         event.lock + ", " + std::to_string(event.process) + "/" +
                             std::to_string(event.hold) + " (" + event.policy + "): " + text,
                         event.at});
    }

    bool acquired_ = false;
    std::optional<Time> lost_;
    std::optional<Time> seen_over_;
    Time renewal_began_{};
    Time at_most_{};
};

/// When a client first saw that its validity had ended, and did not release before.
std::map<std::pair<int, std::uint64_t>, Time> seen_ends(const History& history) {
    std::map<std::pair<int, std::uint64_t>, Time> ends;
    for (const Event& event : history) {
        if (event.op == Op::probe && event.held == false) {
            ends.try_emplace({event.process, event.hold}, event.at);
        }
    }
    return ends;
}

void check_notices(const History& history, Time slack, Violations& found) {
    const auto ends = seen_ends(history);
    for (const HoldRecord& hold : holds_of(history)) {
        const auto end = ends.find({hold.process, hold.number});
        if (end == ends.end() || !hold.asked) continue;
        const Time until = hold.release_invoke ? hold.release_invoke->at : history.back().at;
        const Time heard = hold.lost.value_or(until);
        if (hold.lost && *hold.lost <= end->second) continue;
        const Span silence{end->second, std::max(heard, end->second)};
        if (silence.length() <= slack) continue;
        const Time excused = covered(silence, frozen_spans(history, hold.process));
        if (killed_at(history, hold.process) || silence.length() - excused <= slack) continue;
        found.push_back({"honesty",
                         hold.lock + ", " + hold.name() + ": lost() did not fire for " +
                             in_ms(silence.length() - excused),
                         silence.end});
    }
}

/// Somebody looks at `lost()` while the holder may be busy: without a watchdog the end is known.
void check_asked(const History& history, Time slack, Violations& found) {
    for (const HoldRecord& hold : holds_of(history)) {
        if (!hold.asked || hold.policy.find("Watchdog") != std::string::npos) continue;
        const Time end = std::max(hold.valid_at_most, *hold.asked);
        const Time until = hold.release_invoke ? hold.release_invoke->at : history.back().at;
        const Span silence{end, std::min(hold.lost.value_or(until), until)};
        if (silence.length() <= slack) continue;
        const Time excused = covered(silence, frozen_spans(history, hold.process));
        if (killed_at(history, hold.process) || silence.length() - excused <= slack) continue;
        found.push_back({"honesty",
                         hold.lock + ", " + hold.name() + ": lost() had not fired " +
                             in_ms(silence.length() - excused) + " after the validity",
                         silence.end});
    }
}

/// A hold that was released in time was not lost, whoever did it.
void check_told_lost(const History& history, Violations& found) {
    std::map<std::pair<int, std::uint64_t>, HoldRecord> holds;
    for (HoldRecord& hold : holds_of(history)) {
        holds[{hold.process, hold.number}] = std::move(hold);
    }
    for (const Event& event : history) {
        if (event.op != Op::extend || event.outcome != "lost") continue;
        const auto hold = holds.find({event.process, event.hold});
        if (hold == holds.end() || !hold->second.release_end || hold->second.lost) continue;
        const Event& released = *hold->second.release_end;
        if (released.outcome != "released" || hold->second.release_invoke->at > event.at) continue;
        if (hold->second.valid_until <= event.at) continue;
        found.push_back(
            {"honesty",
             event.lock + ", " + hold->second.name() + ": extend() says lost, and it was released",
             event.at});
    }
}

void check_early_end(const HoldRecord& hold, Violations& found) {
    const std::string who = hold.lock + ", " + hold.name();
    const bool released_before =
        hold.lost && hold.release_invoke && hold.release_invoke->at < *hold.lost;
    if (hold.lost && *hold.lost < hold.valid_until && !released_before) {
        found.push_back(
            {"honest end",
             who + ": lost " + in_ms(hold.valid_until - *hold.lost) + " before its validity ended",
             *hold.lost});
    }
    const bool expired = hold.release_end && hold.release_end->outcome == "expired";
    if (expired && hold.release_end->at < hold.valid_until) {
        found.push_back(
            {"honest end", who + ": expired within its validity", hold.release_end->at});
    }
}

}  // namespace

Violations check_honesty(const History& history, Time slack) {
    Violations found;
    std::map<std::pair<int, std::uint64_t>, Story> stories;
    for (const Event& event : history) {
        if (event.hold == 0 || event.op == Op::write) continue;
        stories[{event.process, event.hold}].tell(event, found);
    }
    check_notices(history, slack, found);
    check_asked(history, slack, found);
    check_told_lost(history, found);
    return found;
}

Violations check_honest_ends(const History& history) {
    Violations found;
    for (const std::vector<HoldRecord>& holds : holds_by_lock(history)) {
        for (const HoldRecord& hold : holds) {
            check_early_end(hold, found);
            if (!hold.release_end || hold.release_end->outcome != "released") continue;
            const auto other = std::ranges::find_if(holds, [&](const HoldRecord& next) {
                // Who stood still for long may get a hold that is over already.
                return !next.relied_on.empty() && !share(hold, next) &&
                       next.acquired > hold.acquired && next.acquired < hold.release_invoke->at;
            });
            if (other == holds.end()) continue;
            found.push_back({"honest end",
                             hold.lock + ", " + hold.name() + ": released, and " + other->name() +
                                 " had it before",
                             hold.release_end->at});
        }
    }
    return found;
}

}  // namespace redlatch::test::fault
