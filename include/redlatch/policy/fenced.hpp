#pragma once

#include <redlatch/policy/lock_policy.hpp>

namespace redlatch::inline v0 {

/// Any policy, with a fencing token for each new acquisition: a number greater than that of every
/// holder before, also of those whose lease ran out. A resource that remembers the greatest number
/// it has seen, and refuses smaller ones, is safe from a holder that was stopped and does not know
/// yet that its lock has gone to somebody else. See `Lock::fence()` and `Held::fence()`.
///
/// Numbers come from a counter at the server that follows its clock, in microseconds. They rise as
/// long as the counter is kept; where it is lost (a failover, a restart without data), as long as the
/// server's clock is not further behind than the time that has passed since. A nested hold has the
/// number of the outermost, and a renewal changes nothing. The work of holders without `Fenced` under the
/// same name has no number.
///
/// A lock with a fencing token passes from thread to thread of a process by a command, never in
/// memory alone.
template <LockPolicy P>
struct Fenced : P {
    static_assert(!is_fenced<P>, "Fenced<P>: P has fencing tokens already");

    /// Each new acquisition gets a number.
    static constexpr bool fenced = true;
};

}  // namespace redlatch::inline v0
