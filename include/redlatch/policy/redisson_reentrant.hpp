#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/policy/reentrant.hpp>

#if REDLATCH_DEFINITIONS
#include <redlatch/policy/lua.hpp>
#endif

namespace redlatch::inline v0 {

/// A `Reentrant` lock whose release also wakes those who wait for it with Redisson's `RLock`: it
/// publishes Redisson's unlock message when the lock has become free. `Reentrant` excludes them just
/// as well, but leaves them asleep until the time to live that they saw is over.
///
/// Where a `LockOptions::min_hold` still keeps the lock, they are told of the release too, ask again, and
/// sleep for the rest of it.
///
/// Nothing is published where the lock goes on to a waiter of ours, nor at the end of a lease. Where
/// an ACL forbids the channel `redisson_lock__channel:…`, the lock is released all the same.
struct RedissonReentrant : Reentrant {
    /// As `LockPolicy` asks for.
    static const LockScripts& scripts();
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE const LockScripts& RedissonReentrant::scripts() {
    return lua::on_hash_for_redisson();
}

#endif

}  // namespace redlatch::inline v0
