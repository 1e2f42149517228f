#pragma once

#include <redlatch/net/call.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/inspect.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// Runs a script about the claims of anybody.
inline Expected<Reply, Fault> run_on_claims(Session& session, const LockSpec& spec,
                                            const Script& script,
                                            std::initializer_list<Argument> arguments,
                                            ReplyShape answer, const Limit& limit) {
    const LockKeys& keys = *spec.keys;
    const std::string& last = spec.traits.shared ? keys.fence : keys.permits;
    const Call call{script, {keys.lock, keys.queue, keys.waiters, last}, arguments, answer};
    auto reply =
        session.run(call.with_all_keys(true).for_type(type_of(spec.traits.key_type)), limit);
    if (!reply) {
        reply.error().error.key = spec.key();
        session.events().error(reply.error().error);
    }
    return reply;
}

inline Result<SemaphoreInfo> inspect_permits(Session& session, const LockSpec& spec,
                                             const Limit& limit) {
    auto reply = run_on_claims(session, spec, spec.traits.scripts->inspect, {std::string_view{}},
                               ReplyShape::claims, limit);
    if (!reply) return Unexpected{std::move(reply).error().error};
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

/// Removes the claim of one owner, whatever it weighs. A holder in this process learns of it at once. Where an
/// earlier try got no answer, only a hold that was valid until then tells whether it was that try which removed it.
inline Result<Forced> force_unlock_claim(Session& session, const LockSpec& spec,
                                         std::string_view owner, const Limit& limit) {
    constexpr std::int64_t any_number_of_permits = 0;
    const std::int64_t weight = spec.traits.shared ? ClaimTerms::reader : any_number_of_permits;
    const auto hold = session.holder_of(spec.key(), owner);
    const bool was_held = hold != nullptr && hold->valid(Clock::now());
    auto reply = run_on_claims(session, spec, spec.traits.scripts->force_unlock,
                               {owner, Argument::server(), weight}, ReplyShape::integer, limit);
    if (!reply) return Unexpected{std::move(reply).error().error};
    const bool removed = *reply->view().integer() != 0 || (reply->repeated && was_held);
    if (!removed) return Forced::absent;
    if (const auto now = session.holder_of(spec.key(), owner))
        session.declare_lost(now, ServerKeeps::removed);
    return Forced::removed;
}

/// Removes all who hold it now, one after the other, so that a command that is sent twice removes nobody who
/// comes after them. The server shows two hundred at a time: of more, who has come by the next look is removed too.
inline Result<Forced> force_unlock_claims(Session& session, const LockSpec& spec) {
    const Limit limit = Limit::in(session.command_timeout());
    Forced outcome = Forced::absent;
    for (bool all = false; !all;) {
        auto seen = inspect_lock(session, spec, limit);
        if (!seen) return Unexpected{std::move(seen).error()};
        all = seen->holders.size() >= seen->hold_count;
        for (const Holder& holder : seen->holders) {
            auto one = force_unlock_claim(session, spec, holder.owner, limit);
            if (!one) return one;
            if (*one == Forced::removed) outcome = Forced::removed;
        }
    }
    return outcome;
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

/// Two commands: the first one says with which time the setting is issued, so that one that comes late does not
/// count more than one that was issued after it.
inline Result<void> set_permits(Session& session, const LockSpec& spec, std::int64_t number) {
    const Limit limit = Limit::in(session.command_timeout());
    const Script& script = spec.traits.scripts->set_permits;
    constexpr std::int64_t when = 0;
    auto issued =
        run_on_claims(session, spec, script,
                      {std::string_view{}, Argument::server(), number, when, Argument::not_after()},
                      ReplyShape::integer, limit);
    if (!issued) return Unexpected{std::move(issued).error().error};
    auto set = run_on_claims(session, spec, script,
                             {std::string_view{}, Argument::server(), number,
                              *issued->view().integer(), Argument::not_after()},
                             ReplyShape::integer, limit);
    if (!set) return Unexpected{std::move(set).error().error};
    return {};
}

}  // namespace redlatch::inline v0::detail
