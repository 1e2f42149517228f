#pragma once

#include <redlatch/policy/lock_policy.hpp>

namespace redlatch::inline v0 {

/// A lock that the thread which holds it may take again; it is free when the last of these nested
/// holds has ended. A hash key with the owner's token and its hold count.
struct Reentrant {
    static constexpr Shape shape = Shape::hash;
    static constexpr bool reentrant = true;
    static constexpr bool watched = false;
    static const LockScripts& scripts() { return lua::on_hash(); }
};

}  // namespace redlatch::inline v0
