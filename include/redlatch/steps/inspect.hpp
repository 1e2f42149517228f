#pragma once

#include <redlatch/net/reply.hpp>
#include <redlatch/service/lock_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/ask.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

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

inline SemaphoreInfo semaphore_info(const ReplyView& answer, const LockSpec& spec) {
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

inline Result<SemaphoreInfo> inspect_permits(Session& session, const LockSpec& spec) {
    const Limit limit = Limit::in(session.command_timeout());
    auto reply = ask(session, spec, inspect_call(*spec.keys, spec.traits), limit);
    if (!reply) return Unexpected{std::move(reply).error()};
    return semaphore_info(reply->view(), spec);
}

}  // namespace redlatch::inline v0::detail
