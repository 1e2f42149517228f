#pragma once

#include <redlatch/options.hpp>

#include <chrono>

namespace redlatch::inline v0::detail {

/// How far the clocks of client and server may be apart at the end of such a time: `time × factor + floor`.
inline Clock::duration drift_over(Clock::duration time, const Drift& drift) noexcept {
    const std::chrono::duration<double, Clock::period> share{static_cast<double>(time.count()) *
                                                             drift.factor};
    return saturating_cast<Clock::duration>(share) + Clock::duration{drift.floor};
}

/// The part of a lease that its holder relies on: `lease × (1 − factor) − floor`. Zero or less
/// for a lease too short for its drift.
inline Clock::duration usable_part(Lease lease, const Drift& drift) noexcept {
    const auto whole = saturating_cast<Clock::duration>(lease.duration());
    return whole - drift_over(whole, drift);
}

/// When a hold ends that was taken or renewed by a command whose first byte went out after `sent`.
/// The server counts its lease from a later moment, so its key outlives this.
inline TimePoint valid_until(TimePoint sent, Lease lease, const Drift& drift) noexcept {
    return saturating_add(sent, usable_part(lease, drift));
}

/// When a `lock_delay` that begins at `end` is over for the server too, whose clock may be slower.
inline TimePoint delay_over(TimePoint end, std::chrono::milliseconds delay,
                            const Drift& drift) noexcept {
    const auto whole = saturating_cast<Clock::duration>(delay);
    return saturating_add(saturating_add(end, whole), drift_over(whole, drift));
}

}  // namespace redlatch::inline v0::detail
