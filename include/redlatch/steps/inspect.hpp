#pragma once

#include <redlatch/steps/lock_spec.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Runs one of the two scripts that don't care who holds the lock.
inline Result<Reply> run_ownerless(Session& session, const LockSpec& spec, const Script& script,
                                   Answer answer) {
    const LockKeys& keys = *spec.keys;
    const Call call{
        script, {keys.lock, keys.queue, keys.waiters}, {"", Argument::server()}, answer};
    auto reply = session.master_of(spec.key()).run(call, Limit::in(session.command_timeout()));
    if (reply) return *std::move(reply);
    Error error = std::move(reply).error().error;
    error.key = spec.key();
    session.tell_error(error);
    return Unexpected{std::move(error)};
}

inline Result<LockInfo> inspect_lock(Session& session, const LockSpec& spec) {
    auto reply = run_ownerless(session, spec, spec.traits.scripts->inspect, Answer::lock_info);
    if (!reply) return Unexpected{std::move(reply).error()};
    const ReplyView answer = reply->view();
    LockInfo info;
    const auto count = [&answer](std::size_t i) {
        return static_cast<std::uint64_t>(std::max<std::int64_t>(0, *answer[i].integer()));
    };
    info.hold_count = count(1);
    info.owner = *answer[0].string();
    constexpr std::int64_t no_key = -2;
    const std::int64_t ttl = *answer[2].integer();
    info.locked = ttl != no_key;
    if (ttl >= 0) info.ttl = std::chrono::milliseconds{ttl};
    if (answer.size() == 4) info.waiters = count(3);
    return info;
}

/// Deletes a lock whoever holds it. A holder in this process learns of it at once, also of a lock
/// that turns out to be gone already. Where an earlier try got no answer, only a hold that was valid
/// until then tells whether it was that try which removed the lock.
inline Result<Forced> force_unlock(Session& session, const LockSpec& spec) {
    const auto hold = session.gate().current(spec.key());
    auto reply = run_ownerless(session, spec, spec.traits.scripts->force, Answer::integer);
    if (!reply) return Unexpected{std::move(reply).error()};
    const bool removed = *reply->view().integer() != 0;
    const bool was_held = hold != nullptr && hold->valid(Clock::now());
    if (hold != nullptr) session.declare_lost(hold);
    const bool by_first_try = reply->repeated && was_held;
    return removed || by_first_try ? Forced::removed : Forced::absent;
}

}  // namespace redlatch::inline v0::detail
