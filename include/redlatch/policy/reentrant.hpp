#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/policy/lock_policy.hpp>

#if REDLATCH_DEFINITIONS
#include <redlatch/policy/lua.hpp>
#endif

namespace redlatch::inline v0 {

/// A lock that the thread which holds it may take again; it is free when the last of these nested
/// holds has ended. A hash key with the owner's token and its hold count.
struct Reentrant {
    /// @{
    /// As `LockPolicy` asks for.
    static constexpr KeyType key_type = KeyType::hash;
    static constexpr bool reentrant = true;
    static constexpr bool watched = false;
    static const LockScripts& scripts();
    /// @}
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE const LockScripts& Reentrant::scripts() {
    return lua::on_hash();
}

#endif

}  // namespace redlatch::inline v0
