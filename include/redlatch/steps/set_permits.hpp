#pragma once

#include <redlatch/core/permits_setting.hpp>
#include <redlatch/service/lock_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/ask.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <cstdint>
#include <utility>

namespace redlatch::inline v0::detail {

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
