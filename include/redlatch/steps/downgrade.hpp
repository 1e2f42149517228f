#pragma once

#include <redlatch/core/downgrade.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>

#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

/// A writer's hold is a reader's from now on: carries out what `DowngradeEnd` says.
inline Result<void> downgrade_hold(Session& session, const std::shared_ptr<Hold>& hold) {
    const auto ends = [&](DowngradeEnd end) {
        if (end.removed) session.declare_lost(hold, ServerKeeps::removed);
        if (!end.outcome) end.outcome.error().key = hold->key();
        return std::move(end.outcome);
    };
    if (!session.locks().downgrade(*hold)) {
        return ends(DowngradeEnd::not_begun(hold->state(Clock::now())));
    }
    auto reply = session.run(downgrade_call(*hold), Limit::in(session.command_timeout()));
    if (reply) return ends(DowngradeEnd::answered(reply->view().integer().value_or(0)));
    session.events().error(reply.error().error);
    return ends(DowngradeEnd::failed(std::move(reply).error().error));
}

}  // namespace redlatch::inline v0::detail
