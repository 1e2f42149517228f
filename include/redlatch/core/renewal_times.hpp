#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/validity.hpp>
#include <redlatch/types.hpp>

#include <algorithm>
#include <chrono>

namespace redlatch::inline v0::detail {

/// A third of the whole lease, whatever the drift takes.
inline Clock::duration third_of(Lease lease) noexcept {
    return saturating_cast<Clock::duration>(lease.duration()) / 3;
}

/// After a third of the lease: two more tries fit in before it runs out. Where the drift takes more than a third, after
/// half of what it leaves.
inline Clock::duration renewal_interval(Lease lease, const Drift& drift) noexcept {
    return std::min(third_of(lease), usable_part(lease, drift) / 2);
}
inline TimePoint renewal_due(TimePoint sent, Lease lease, const Drift& drift) noexcept {
    return saturating_add(sent, renewal_interval(lease, drift));
}

/// How much sooner than due a renewal may go out, with others that are due: a fraction of the interval, so
/// that a short lease is not renewed again at once.
inline constexpr std::chrono::milliseconds widest_renewal_window{10};
inline Clock::duration renewal_window(Lease lease, const Drift& drift) noexcept {
    return std::min<Clock::duration>(widest_renewal_window, renewal_interval(lease, drift) / 4);
}

/// The next try after an unknown answer: soon, but not in a hot loop.
inline TimePoint renewal_retry_due(TimePoint now, Lease lease, const Drift& drift) noexcept {
    using namespace std::chrono_literals;
    const Clock::duration pause = renewal_interval(lease, drift) / 4;
    return saturating_add(now, std::clamp<Clock::duration>(pause, 5ms, 500ms));
}

/// How long one renewal may wait for its answer, so that another try still fits in, with the pause before it:
/// a third of the lease, or five eighths of what the drift has left by then.
inline Clock::duration renewal_patience(Lease lease, const Drift& drift,
                                        std::chrono::milliseconds command_timeout) noexcept {
    const Clock::duration left = usable_part(lease, drift) - renewal_interval(lease, drift);
    return std::min({Clock::duration{command_timeout}, third_of(lease), left / 8 * 5});
}

/// The lease to ask for when the hold has to end at `end`, whatever happens: no longer than that.
inline Lease renewal_lease(Lease lease, TimePoint now, TimePoint end) noexcept {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(saturating_sub(end, now));
    return std::min(lease, Lease{left});
}

}  // namespace redlatch::inline v0::detail
