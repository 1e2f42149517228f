#pragma once

#include <redlatch/policy/lock_policy.hpp>

namespace redlatch::inline v0 {

/// A lock that its holder cannot take twice: a string key with the owner's token, taken by
/// `SET NX PX`. Excludes every other client that uses the same well-known form.
struct Simple {
    static constexpr Shape shape = Shape::string;
    static constexpr bool reentrant = false;
    static constexpr bool watched = false;
    static const LockScripts& scripts() { return lua::on_string(); }
};

}  // namespace redlatch::inline v0
