#pragma once

#include <redlatch/net/call.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// A script about a lock whose owner is somebody else, or nobody (an empty token).
inline Call anybodys(const LockSpec& spec, const Script& script, std::string_view token,
                     ReplyShape answer) {
    const LockKeys& keys = *spec.keys;
    const Call call{script,
                    {keys.lock, keys.queue, keys.waiters, keys.fence},
                    {token, Argument::server()},
                    answer};
    return call.for_type(type_of(spec.traits.key_type));
}

inline Call inspect_call(const LockSpec& spec) {
    if (spec.traits.shared) {
        return anybodys(spec, spec.traits.scripts->inspect, {}, ReplyShape::claims)
            .with_all_keys(true);
    }
    return anybodys(spec, spec.traits.scripts->inspect, {}, ReplyShape::lock_info);
}

/// The reply, or the error that the observer was told of.
inline Result<Reply> told(Session& session, const LockSpec& spec, Expected<Reply, Fault> reply) {
    if (reply) return *std::move(reply);
    Error error = std::move(reply).error().error;
    error.key = spec.key();
    session.events().error(error);
    return Unexpected{std::move(error)};
}

/// Runs such a script.
inline Result<Reply> run_on_anybodys(Session& session, const LockSpec& spec, const Script& script,
                                     std::string_view token, ReplyShape answer,
                                     const Limit& limit) {
    return told(session, spec, session.run(anybodys(spec, script, token, answer), limit));
}

/// `<weight> <token>`, taken apart.
inline Holder holder_of(std::string_view claim, std::int64_t ttl) {
    const std::size_t space = std::min(claim.find(' '), claim.size());
    Holder holder{.ttl = std::chrono::milliseconds{ttl}};
    for (const char digit : claim.substr(0, space)) {
        holder.weight = holder.weight * 10 + static_cast<std::uint64_t>(digit - '0');
    }
    holder.writes = holder.weight == ClaimTerms::writer;
    holder.owner = claim.substr(std::min(space + 1, claim.size()));
    return holder;
}

inline LockInfo lock_info(const ReplyView& answer) {
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
    if (answer.size() >= 4U) info.waiters = count(3);
    for (std::size_t i = 5; i < *answer.size(); i += 2) {  // of a shared lock
        info.holders.push_back(holder_of(*answer[i].string(), *answer[i + 1].integer()));
    }
    if (!info.holders.empty()) info.owner = info.holders.front().owner;
    return info;
}

inline Result<LockInfo> inspect_lock(Session& session, const LockSpec& spec, const Limit& limit) {
    auto reply = told(session, spec, session.run(inspect_call(spec), limit));
    if (!reply) return Unexpected{std::move(reply).error()};
    return lock_info(reply->view());
}

inline Result<LockInfo> inspect_lock(Session& session, const LockSpec& spec) {
    return inspect_lock(session, spec, Limit::in(session.command_timeout()));
}

/// Deletes a lock whoever holds it: looks who does, and removes that one, so that a command that is
/// sent twice does not remove the next owner too. A holder in this process learns of it at once, also
/// of a lock that turns out to be gone already. Where an earlier try got no answer, only a hold that
/// was valid until then tells whether it was that try which removed the lock.
inline Result<Forced> force_unlock(Session& session, const LockSpec& spec) {
    const Limit limit = Limit::in(session.command_timeout());
    for (;;) {
        const auto hold = session.locks().current(spec.key());
        const bool was_held = hold != nullptr && hold->valid(Clock::now());
        auto seen = inspect_lock(session, spec, limit);
        if (!seen) return Unexpected{std::move(seen).error()};
        if (!seen->locked) {
            if (hold != nullptr) session.declare_lost(hold);
            return Forced::absent;
        }
        auto reply = run_on_anybodys(session, spec, spec.traits.scripts->force_unlock, seen->owner,
                                     ReplyShape::integer, limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        const bool removed = *reply->view().integer() != 0 || (reply->repeated && was_held);
        if (!removed && !reply->repeated && !limit.over()) continue;  // it has gone to the next one
        if (hold != nullptr) session.declare_lost(hold);
        return removed ? Forced::removed : Forced::absent;
    }
}

/// Deletes the lock of that owner, a whole token, and nobody else's. A holder in this process learns of it
/// at once.
inline Result<Forced> force_unlock(Session& session, const LockSpec& spec, std::string_view owner) {
    if (owner.empty()) {
        Error error = invalid("no owner is given whose lock is to be removed");
        error.key = spec.key();
        return Unexpected{std::move(error)};
    }
    const auto hold_of_owner = [&]() -> std::shared_ptr<Hold> {
        auto hold = session.locks().current(spec.key());
        return hold != nullptr && hold->token().bytes == owner ? hold : nullptr;
    };
    const auto before = hold_of_owner();
    const bool was_held = before != nullptr && before->valid(Clock::now());
    auto reply = run_on_anybodys(session, spec, spec.traits.scripts->force_unlock, owner,
                                 ReplyShape::integer, Limit::in(session.command_timeout()));
    if (!reply) return Unexpected{std::move(reply).error()};
    // Meanwhile the token may have passed on to another thread.
    if (const auto hold = hold_of_owner()) session.declare_lost(hold);
    const bool removed = *reply->view().integer() != 0 || (reply->repeated && was_held);
    return removed ? Forced::removed : Forced::absent;
}

}  // namespace redlatch::inline v0::detail
