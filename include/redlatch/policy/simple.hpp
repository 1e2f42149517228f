#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/policy/lock_policy.hpp>

#if REDLATCH_DEFINITIONS
#include <redlatch/policy/lua.hpp>
#endif

namespace redlatch::inline v0 {

/// A lock that its holder cannot take twice: a string key with the owner's token, taken by
/// `SET NX PX`. Excludes every other client that uses the same well-known form.
struct Simple {
    /// @{
    /// As `LockPolicy` asks for.
    static constexpr KeyType key_type = KeyType::string;
    static constexpr bool reentrant = false;
    static constexpr bool watched = false;
    static const LockScripts& scripts();
    /// @}
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE const LockScripts& Simple::scripts() {
    return lua::on_string();
}

#endif

}  // namespace redlatch::inline v0
