#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/handoff.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/lock_owner.hpp>

#include <string>

namespace redlatch::inline v0::detail {

/// A wish for a lock, and how long it lasts. Has to stay until the lock table has answered.
struct AcquireRequest {
    const HoldTerms& terms;
    LockOwner owner;   ///< of the hold that is asked for
    LockOwner caller;  ///< who waits: the calling thread; without one, the owner itself
    Wait wait;
    TimePoint deadline;
    Acquisition acquisition;
    HandoffLimit handoffs;
    bool delivered_later = false;  ///< as `Hold::deliver_later()`
    /// A single try waits for so long for the answer to a release or to another try that is under way here.
    TimePoint try_by = TimePoint::min();
    TimePoint asked_at{};  ///< when it was made

    const std::string& entry() const noexcept { return terms.entry(); }
};

}  // namespace redlatch::inline v0::detail
