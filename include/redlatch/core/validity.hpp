#pragma once

#include <redlatch/options.hpp>

#include <chrono>

namespace redlatch::inline v0::detail {

/// The part of a lease that its holder relies on: `lease × (1 − factor) − floor`. Zero or less
/// for a lease too short for its drift.
inline Clock::duration usable_part(Lease lease, const Drift& drift) noexcept {
    const Clock::duration whole = lease.duration();
    const std::chrono::duration<double, Clock::period> share{static_cast<double>(whole.count()) *
                                                             drift.factor};
    return whole - saturating_cast<Clock::duration>(share) - Clock::duration{drift.floor};
}

/// When a hold ends that was taken or renewed by a command whose first byte went out after `sent`.
/// The server counts its lease from a later moment, so its key outlives this.
inline TimePoint valid_until(TimePoint sent, Lease lease, const Drift& drift) noexcept {
    return saturating_add(sent, usable_part(lease, drift));
}

}  // namespace redlatch::inline v0::detail
