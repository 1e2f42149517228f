#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/service/lock_calls.hpp>

#include <chrono>
#include <cstdint>
#include <initializer_list>

namespace redlatch::inline v0::detail {

// The commands about a hold. They borrow from it, and must not outlive it.

/// For a key of the policy's type.
inline Call of_key_type(const Call& call, const Hold& hold) {
    return call.for_type(type_of(hold.terms().traits.key_type));
}

inline Call call_with_four_keys(const Hold& hold, const Script& script,
                                std::initializer_list<Argument> arguments,
                                ReplyShape shape = ReplyShape::integer) {
    return call_with_four_keys(hold.keys(), hold.terms().traits, script, arguments, shape);
}

/// Asks for the lock, and for a place in the queue: kept for `queue_ttl`, given up where that is negative,
/// left as it is where it is zero. `subscribed`: the client can be told when the lock is its own.
inline Call acquire_call(const Hold& hold, std::chrono::milliseconds queue_ttl, bool subscribed) {
    const bool fenced = hold.terms().traits.fenced;
    if (const auto [weight, limit] = hold.terms().claim; weight != 0) {
        return call_with_four_keys(
            hold, hold.scripts().acquire,
            {hold.token().bytes, hold.server_ttl(hold.terms().lease),
             std::int64_t{queue_ttl.count()}, std::int64_t{subscribed ? 1 : 0}, Argument::server(),
             Argument::server_deadline(), std::int64_t{fenced ? 1 : 0}, weight, limit},
            ReplyShape::acquired);
    }
    const Call call = call_with_four_keys(
        hold, hold.scripts().acquire,
        {hold.token().bytes, hold.server_ttl(hold.terms().lease), std::int64_t{queue_ttl.count()},
         std::int64_t{subscribed ? 1 : 0}, Argument::server(), Argument::server_deadline(),
         std::int64_t{fenced ? 1 : 0}},
        ReplyShape::acquired);
    return call.with_all_keys(fenced);
}

/// A call that concerns no key but the lock's, and, where it has one, that of its fencing tokens.
inline Call own_call(const Hold& hold, const Script& script,
                     std::initializer_list<Argument> arguments) {
    if (!hold.terms().traits.fenced) {
        return of_key_type(Call{script, {hold.key()}, arguments}, hold);
    }
    const Call call{script, {hold.key(), hold.keys().fence}, arguments};
    return of_key_type(call.with_all_keys(true), hold);
}

/// Makes a reader of a writer.
inline Call downgrade_call(const Hold& hold) {
    return call_with_four_keys(hold, hold.scripts().downgrade,
                               {hold.token().bytes, Argument::server()});
}

/// A claim has no hold count: of its nested holds the server is told only when no writing is left.
inline Call nest_call(const Hold& hold, std::uint64_t count, std::int64_t ttl) {
    if (hold.weight() != 0) return downgrade_call(hold);
    return own_call(hold, hold.scripts().nest,
                    {hold.token().bytes, static_cast<std::int64_t>(count), ttl});
}

/// Asks how many wait, and extends the claim where nobody does.
inline Call ask_call(const Hold& hold) {
    constexpr std::int64_t no_fence = 0;
    constexpr std::int64_t asks = 1;
    return call_with_four_keys(
        hold, hold.scripts().extend,
        {hold.token().bytes, hold.server_ttl(hold.terms().lease), no_fence, hold.weight(), asks},
        ReplyShape::acquired);
}

/// With `fence`, no fencing token up to that one is given out any more.
inline Call extend_claim_call(const Hold& hold, Lease lease, std::uint64_t fence) {
    constexpr std::int64_t asks = 0;
    return call_with_four_keys(hold, hold.scripts().extend,
                               {hold.token().bytes, hold.server_ttl(lease),
                                static_cast<std::int64_t>(fence), hold.weight(), asks});
}

/// `lock_alone`: about no key but the lock's. Then no waiter is served, and the lock's other keys keep their
/// leases.
inline Call extend_call(const Hold& hold, Lease lease, bool lock_alone = false) {
    if (lock_alone) {
        constexpr std::int64_t no_fence = 0;
        const Call call{hold.scripts().extend,
                        {hold.key()},
                        {hold.token().bytes, hold.server_ttl(lease), no_fence, hold.weight()}};
        return of_key_type(call, hold);
    }
    if (hold.terms().claim.weight != 0) return extend_claim_call(hold, lease, 0);
    return own_call(hold, hold.scripts().extend, {hold.token().bytes, hold.server_ttl(lease)});
}

/// The same, and no fencing token up to `fence` is given out any more.
inline Call store_fence_call(const Hold& hold, Lease lease, std::uint64_t fence) {
    if (hold.terms().claim.weight != 0) return extend_claim_call(hold, lease, fence);
    return own_call(hold, hold.scripts().extend,
                    {hold.token().bytes, hold.server_ttl(lease), static_cast<std::int64_t>(fence)});
}

/// Gives the lock to the next owner for `ttl`.
inline Call move_call(const Hold& hold, const Token& next, std::int64_t ttl) {
    const LockKeys& keys = hold.keys();
    const bool fenced = hold.terms().traits.fenced;
    if (const std::int64_t weight = hold.weight(); weight != 0) {
        return call_with_four_keys(
            hold, hold.scripts().move,
            {hold.token().bytes, ttl, next.bytes, Argument::server_deadline(),
             std::int64_t{fenced ? 1 : 0}, weight, weight},
            ReplyShape::moved);
    }
    const Call call{hold.scripts().move,
                    {keys.lock, keys.queue, keys.fence},
                    {hold.token().bytes, ttl, next.bytes, Argument::server_deadline(),
                     std::int64_t{fenced ? 1 : 0}},
                    ReplyShape::moved};
    return of_key_type(call.with_all_keys(fenced), hold);
}

/// Ends a hold, or leaves the queue. Sent at `now`.
inline Call release_call(const Hold& hold, TimePoint now) {
    if (const std::int64_t weight = hold.weight(); weight != 0) {
        return call_with_four_keys(hold, hold.scripts().release,
                                   {hold.token().bytes, Argument::server(), weight});
    }
    const auto kept_for = saturating_sub(hold.kept_until(), now);
    if (kept_for <= Clock::duration::zero()) {
        return call_with_four_keys(hold, hold.scripts().release,
                                   {hold.token().bytes, Argument::server()});
    }
    const std::int64_t ttl = std::chrono::ceil<std::chrono::milliseconds>(kept_for).count();
    return call_with_four_keys(hold, hold.scripts().tombstone,
                               {hold.token().bytes, Argument::server(), ttl});
}

/// The same, sent now.
inline Call release_call(const Hold& hold) {
    const bool is_kept = hold.kept_until() != TimePoint::min();
    return release_call(hold, is_kept ? Clock::now() : TimePoint::min());
}

}  // namespace redlatch::inline v0::detail
