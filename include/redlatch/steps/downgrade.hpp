#pragma once

#include <redlatch/core/downgrade_end.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>

#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

inline Result<void> outcome_of(DowngradeEnd end, const Hold& hold) {
    if (!end.outcome) end.outcome.error().key = hold.key();
    return std::move(end.outcome);
}

/// A writer's hold is a reader's from now on, in this process. Else it says why it is not.
inline Result<void> begin_downgrade(Session& session, Hold& hold) {
    if (session.locks().downgrade(hold)) return {};
    return outcome_of(DowngradeEnd::not_begun(hold.state(Clock::now())), hold);
}

/// Carries out what `DowngradeEnd` says of the server's answer.
inline Result<void> end_downgrade(Session& session, const std::shared_ptr<Hold>& hold,
                                  Expected<Reply, Fault> reply) {
    if (!reply) {
        session.events().error(reply.error().error);
        return outcome_of(DowngradeEnd::failed(std::move(reply).error().error), *hold);
    }
    DowngradeEnd end = DowngradeEnd::answered(reply->view().integer().value_or(0));
    if (end.removed) session.declare_lost(hold, ServerKeeps::removed);
    return outcome_of(std::move(end), *hold);
}

inline Result<void> downgrade_hold(Session& session, const std::shared_ptr<Hold>& hold) {
    if (auto begun = begin_downgrade(session, *hold); !begun) return begun;
    return end_downgrade(session, hold,
                         session.run(downgrade_call(*hold), Limit::in(session.command_timeout())));
}

}  // namespace redlatch::inline v0::detail
