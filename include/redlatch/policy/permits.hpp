#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/policy/lock_policy.hpp>

#if REDLATCH_DEFINITIONS
#include <redlatch/policy/lua.hpp>
#endif

namespace redlatch::inline v0 {

/// What a `Semaphore` is made of: a sorted set with a claim for each acquisition, which has a lease of its own.
struct Permits {
    /// @{
    /// As `LockPolicy` asks for.
    static constexpr KeyType key_type = KeyType::sorted_set;
    static constexpr bool reentrant = false;
    static constexpr bool watched = false;
    static const LockScripts& scripts();
    /// @}
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE const LockScripts& Permits::scripts() {
    return lua::on_permits();
}

#endif

}  // namespace redlatch::inline v0
