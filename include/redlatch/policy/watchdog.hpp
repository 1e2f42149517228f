#pragma once

#include <redlatch/policy/lock_policy.hpp>

namespace redlatch::inline v0 {

/// Any policy, with the lease renewed after each third of it, or sooner where the `drift` takes more
/// than a third. That goes on until the lock is released, the process ends, or
/// `LockOptions::max_hold` is over. The lease is then not how long the work may take but how long
/// others wait for a dead holder.
template <LockPolicy P>
struct Watchdog : P {
    static_assert(!P::watched, "Watchdog<P>: P has a watchdog already");

    /// The lease is renewed.
    static constexpr bool watched = true;
};

}  // namespace redlatch::inline v0
