#pragma once

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
    auto reply = told(session, spec, session.run(inspect_call(*spec.keys, spec.traits), limit));
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

/// A writer's hold is a reader's from now on, whether the server's answer comes or not: until its next renewal
/// or release the server may have it as a writer's.
inline Result<void> downgrade_hold(Session& session, const std::shared_ptr<Hold>& hold) {
    const auto failed = [&hold](Error error) {
        error.key = hold->key();
        return Unexpected{std::move(error)};
    };
    if (!session.locks().downgrade(*hold)) {
        const bool lost = hold->state(Clock::now()) == HoldState::lost;
        return failed({lost ? Errc::lost : Errc::not_held, {}, {}, {}, {}});
    }
    auto reply = session.run(downgrade_call(*hold), Limit::in(session.command_timeout()));
    if (!reply) {
        session.events().error(reply.error().error);
        return failed(std::move(reply).error().error);
    }
    if (reply->view().integer() == 1) return {};
    session.declare_lost(hold, ServerKeeps::removed);
    return failed({Errc::lost, {}, {}, "somebody removed it", {}});
}

/// Carries out a `PermitsSetting`.
inline Result<void> set_permits(Session& session, const LockSpec& spec, std::int64_t number) {
    const Limit limit = Limit::in(session.command_timeout());
    PermitsSetting machine;
    auto action = machine.begin();
    while (const auto* const send = get_if<PermitsSetting::Send>(&action)) {
        const Call call = set_permits_call(*spec.keys, spec.traits, number, send->issued);
        auto reply = told(session, spec, session.run(call, limit));
        action = reply ? machine.answered(*reply->view().integer())
                       : PermitsSetting::failed(std::move(reply).error());
    }
    return get<PermitsSetting::Done>(std::move(action)).outcome;
}

}  // namespace redlatch::inline v0::detail
