#pragma once

#include <redlatch/net/script.hpp>
#include <redlatch/service/hold.hpp>

#include <chrono>
#include <cstdint>

namespace redlatch::inline v0::detail {

/// The commands about a hold. They borrow from it, and must not outlive it.

/// Asks for the lock, and for a place in the queue: kept for `stay`, given up where that is negative,
/// left as it is where it is zero. `hears`: the client can be told when the lock is its own.
inline Call acquire_call(const Hold& hold, std::chrono::milliseconds stay, bool hears) {
    const LockKeys& keys = hold.keys();
    return {hold.scripts().acquire,
            {keys.lock, keys.queue, keys.waiters},
            {hold.token().bytes, hold.server_ttl(hold.terms().lease), std::int64_t{stay.count()},
             std::int64_t{hears ? 1 : 0}, Argument::server(), Argument::not_after()},
            Answer::acquired};
}

inline Call nest_call(const Hold& hold, std::uint64_t count, std::int64_t ttl) {
    return {hold.scripts().nest,
            {hold.key()},
            {hold.token().bytes, static_cast<std::int64_t>(count), ttl}};
}

inline Call extend_call(const Hold& hold, Lease lease) {
    return {hold.scripts().extend, {hold.key()}, {hold.token().bytes, hold.server_ttl(lease)}};
}

/// Gives the lock to the next owner for `ttl`.
inline Call move_call(const Hold& hold, const Token& next, std::int64_t ttl) {
    const LockKeys& keys = hold.keys();
    return {hold.scripts().move,
            {keys.lock, keys.queue},
            {hold.token().bytes, ttl, next.bytes, Argument::not_after()}};
}

/// Ends a hold, or leaves the queue.
inline Call release_call(const Hold& hold) {
    const LockKeys& keys = hold.keys();
    return {hold.scripts().release,
            {keys.lock, keys.queue, keys.waiters},
            {hold.token().bytes, Argument::server()}};
}

}  // namespace redlatch::inline v0::detail
