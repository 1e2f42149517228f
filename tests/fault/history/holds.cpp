#include "holds.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace redlatch::test::fault {
namespace {

/// What is known of a hold while the history is read.
struct Draft {
    HoldRecord record;
    std::vector<Span> told;  // of the validity
    int acquisitions = 0;
};

void take(Draft& draft, const Event& invoke, const Event& done) {
    HoldRecord& record = draft.record;
    record.process = invoke.process;
    record.number = invoke.hold;
    record.lock = invoke.lock;
    record.policy = invoke.policy;
    record.fence = done.fence;
    record.reads = count_of(invoke, "reads") > 0;
    record.permits = count_of(invoke, "permits");
    record.of = count_of(invoke, "of");
    record.invoked = invoke.at;
    record.acquired = done.at;
}

void note_validity(Draft& draft, const Event& event) {
    if (event.valid_until) {
        draft.told.push_back({event.at, *event.valid_until});
        draft.record.valid_until = std::max(draft.record.valid_until, *event.valid_until);
    }
    if (event.valid_at_most) {
        draft.record.valid_at_most = std::max(draft.record.valid_at_most, *event.valid_at_most);
    }
}

using Drafts = std::map<std::pair<int, std::uint64_t>, Draft>;

/// The end of a client ends what it holds.
void end_all(Drafts& drafts, const Event& close) {
    for (auto& [hold, draft] : drafts) {
        std::optional<Event>& end = draft.record.release_invoke;
        if (hold.first == close.process && !end) end = close;
    }
}

HoldRecord finish(Draft draft) {
    HoldRecord& record = draft.record;
    Time end = Time::max();
    if (record.release_invoke) end = std::min(end, record.release_invoke->at);
    if (record.lost) end = std::min(end, *record.lost);
    for (Span& span : draft.told) span.end = std::min(span.end, end);
    record.relied_on = merged(std::move(draft.told));
    return std::move(record);
}

}  // namespace

bool share(const HoldRecord& one, const HoldRecord& other) {
    return (one.reads && other.reads) || (one.permits > 0 && other.permits > 0);
}

std::vector<HoldRecord> holds_of(const History& history) {
    Drafts drafts;
    std::map<std::pair<int, std::uint64_t>, const Event*> invokes;
    std::vector<std::pair<int, std::uint64_t>> order;
    for (const Event& event : history) {
        if (event.op == Op::close && event.stage == Stage::invoke) end_all(drafts, event);
        if (event.hold == 0 || event.op == Op::write) continue;
        const std::pair call{event.process, event.call};
        const std::pair hold{event.process, event.hold};
        if (event.stage == Stage::invoke) invokes[call] = &event;
        if (event.op == Op::acquire && event.stage == Stage::ok) {
            take(drafts[hold], *invokes.at(call), event);
            order.push_back(hold);
        }
        const auto found = drafts.find(hold);
        if (found == drafts.end()) continue;
        Draft& draft = found->second;
        note_validity(draft, event);
        const bool takes = event.op == Op::acquire || event.op == Op::nest;
        if (takes && event.stage == Stage::ok) ++draft.acquisitions;
        if (event.op == Op::lost && event.outcome == "asked") draft.record.asked = event.at;
        const bool lost = event.op == Op::lost && event.outcome.empty();
        if (lost && !draft.record.lost) draft.record.lost = event.at;
        if (event.op != Op::release) continue;
        if (event.stage == Stage::invoke && --draft.acquisitions == 0 &&
            !draft.record.release_invoke) {
            draft.record.release_invoke = event;
        } else if (draft.record.release_invoke && event.call == draft.record.release_invoke->call) {
            draft.record.release_end = event;
        }
    }
    std::vector<HoldRecord> holds;
    for (const auto& hold : order) holds.push_back(finish(std::move(drafts.at(hold))));
    return holds;
}

std::vector<std::vector<HoldRecord>> holds_by_lock(const History& history) {
    std::map<std::string, std::vector<HoldRecord>> by_lock;
    for (HoldRecord& hold : holds_of(history)) by_lock[hold.lock].push_back(std::move(hold));
    std::vector<std::vector<HoldRecord>> result;
    for (auto& [lock, holds] : by_lock) result.push_back(std::move(holds));
    return result;
}

}  // namespace redlatch::test::fault
