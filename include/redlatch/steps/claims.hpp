#pragma once

#include <redlatch/core/downgrade.hpp>
#include <redlatch/core/permits_setting.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/lock_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/inspect.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

inline Result<SemaphoreInfo> inspect_permits(Session& session, const LockSpec& spec,
                                             const Limit& limit) {
    auto reply = ask(session, spec, inspect_call(*spec.keys, spec.traits), limit);
    if (!reply) return Unexpected{std::move(reply).error()};
    const ReplyView answer = reply->view();
    SemaphoreInfo info;
    info.taken = static_cast<std::uint64_t>(*answer[1].integer());
    const std::int64_t set = *answer[4].integer();
    info.permits = static_cast<std::uint64_t>(set < 0 ? spec.claim.limit : set);
    info.waiters = static_cast<std::uint64_t>(*answer[3].integer());
    for (std::size_t i = 5; i < *answer.size(); i += 2) {
        info.holders.push_back(holder_of(*answer[i].string(), *answer[i + 1].integer()));
    }
    return info;
}

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

/// Carries out a `PermitsSetting`.
inline Result<void> set_permits(Session& session, const LockSpec& spec, std::int64_t number) {
    const Limit limit = Limit::in(session.command_timeout());
    PermitsSetting machine;
    auto action = machine.begin();
    while (const auto* const send = get_if<PermitsSetting::Send>(&action)) {
        const Call call = set_permits_call(*spec.keys, spec.traits, number, send->issued);
        auto reply = ask(session, spec, call, limit);
        action = reply ? machine.answered(*reply->view().integer())
                       : PermitsSetting::failed(std::move(reply).error());
    }
    return get<PermitsSetting::Done>(std::move(action)).outcome;
}

}  // namespace redlatch::inline v0::detail
