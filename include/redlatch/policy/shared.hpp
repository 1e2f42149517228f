#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/policy/lock_policy.hpp>

#if REDLATCH_DEFINITIONS
#include <redlatch/policy/lua.hpp>
#endif

namespace redlatch::inline v0 {

/// A lock that many may hold for reading, or one alone for writing: a sorted set with a claim for each, which
/// has a lease of its own. First come, first served: a reader that comes behind a waiting writer
/// waits, and readers in a row get in together.
///
/// Threads of one process that read at the same time share one claim. One that comes may join without a command for
/// 5 ms after the server has said that nobody waits. Each has its own lease, and the last one ends the claim.
///
/// The thread that writes may read too, and goes on reading when it ends the writing; see
/// `Lock::downgrade()`. The thread that reads cannot write: that is `Errc::deadlock`. With `Fenced` a
/// writer gets a new fencing token, and a reader that of the last writer; over several masters, one between those of
/// the last writer and of the next.
struct Shared {
    /// @{
    /// As `LockPolicy` asks for.
    static constexpr KeyType key_type = KeyType::sorted_set;
    static constexpr bool reentrant = true;
    static constexpr bool watched = false;
    static constexpr bool shared = true;
    static const LockScripts& scripts();
    /// @}
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE const LockScripts& Shared::scripts() {
    return lua::on_shared_claims();
}

#endif

}  // namespace redlatch::inline v0
