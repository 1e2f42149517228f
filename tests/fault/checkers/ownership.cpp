#include "ownership.hpp"

#include "../history/holds.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace redlatch::test::fault {
namespace {

std::vector<Span> losses_of(const History& history, const std::vector<std::string>& names) {
    std::vector<Span> losses;
    for (const Call& call : calls_of(history)) {
        const std::string& name = call.invoke.outcome;
        if (call.invoke.op != Op::fault || std::ranges::find(names, name) == names.end()) continue;
        losses.push_back({call.invoke.at, call.completion ? call.completion->at : Time::max()});
    }
    return losses;
}

/// Whether the lock was this hold's all the time, at the server too.
bool is_witness(const HoldRecord& hold, Span time, const std::vector<Span>& losses) {
    const bool relied = std::ranges::any_of(hold.relied_on, [time](const Span& span) {
        return span.begin <= time.begin && time.end <= span.end;
    });
    return relied && std::ranges::none_of(losses, [&](const Span& loss) {
               return loss.begin <= time.end && hold.invoked <= loss.end;
           });
}

/// Whether it is no matter that both have the lock.
bool may_share(const Event& done, const HoldRecord& other) {
    return (count_of(done, "reads") > 0 && other.reads) || other.permits > 0;
}

bool made_it_last(const Call& call) {
    const Op op = call.invoke.op;
    return (op == Op::extend || op == Op::nest) && call.completion &&
           call.completion->stage == Stage::ok;
}

}  // namespace

Violations check_ownership(const History& history, const std::vector<std::string>& key_losses) {
    const std::vector<Span> losses = losses_of(history, key_losses);
    std::map<std::string, std::vector<HoldRecord>> by_lock;
    for (HoldRecord& hold : holds_of(history)) by_lock[hold.lock].push_back(std::move(hold));
    Violations found;
    for (const Call& call : calls_of(history)) {
        if (!made_it_last(call)) continue;
        const Event& done = *call.completion;
        const Span time{call.invoke.at, done.at};
        for (const HoldRecord& other : by_lock[done.lock]) {
            const bool own = other.process == done.process && other.number == done.hold;
            if (own || may_share(done, other) || !is_witness(other, time, losses)) continue;
            const char* const did = done.op == Op::extend ? " extended " : " nested in ";
            found.push_back({"ownership",
                             std::to_string(done.process) + "/" + std::to_string(done.hold) + " (" +
                                 done.policy + ")" + did + done.lock + ", which was " +
                                 other.name() + "'s",
                             done.at});
        }
    }
    return found;
}

}  // namespace redlatch::test::fault
