#pragma once

#include <redlatch/core/forced_release.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/service/lock_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// The reply, or the error that the observer was told of.
inline Result<Reply> told(Session& session, const LockSpec& spec, Expected<Reply, Fault> reply) {
    if (reply) return *std::move(reply);
    Error error = std::move(reply).error().error;
    error.key = spec.key();
    session.events().error(error);
    return Unexpected{std::move(error)};
}

/// Runs a command about a lock, and about no hold: the reply, or the error that the observer was told of. A client that
/// was closed sends nothing.
inline Result<Reply> ask(Session& session, const LockSpec& spec, const Call& call,
                         const Limit& limit) {
    if (session.is_closed()) {
        return Unexpected{Error{Errc::cancelled, spec.key(), {}, cancelled_by_close, {}}};
    }
    return told(session, spec, session.run(call, limit));
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
    auto reply = ask(session, spec, inspect_call(*spec.keys, spec.traits), limit);
    if (!reply) return Unexpected{std::move(reply).error()};
    return lock_info(reply->view());
}

inline Result<LockInfo> inspect_lock(Session& session, const LockSpec& spec) {
    return inspect_lock(session, spec, Limit::in(session.command_timeout()));
}

/// Who has it, as far as the server shows them.
inline ForcedRelease::Seen owners_of(const LockInfo& info) {
    if (info.holders.empty()) {
        ForcedRelease::Seen seen{};
        if (info.locked) seen.owners.push_back(info.owner);
        return seen;
    }
    ForcedRelease::Seen seen{.owners = {}, .all = info.holders.size() >= info.hold_count};
    for (const Holder& holder : info.holders) seen.owners.push_back(holder.owner);
    return seen;
}

}  // namespace redlatch::inline v0::detail
