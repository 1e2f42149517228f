#pragma once

#include <redlatch/types.hpp>

#include <algorithm>
#include <chrono>

namespace redlatch::inline v0::detail {

/// What an answer to a renewal, or its absence, says.
enum class RenewalAnswer {
    renewed,  ///< validity counts anew from the send
    lost,     ///< the lock is not ours any more
    unknown,  ///< nothing is known: validity stays as it was, another try may tell
};

/// Two more tries fit in before the lease runs out.
inline TimePoint renewal_due(TimePoint sent, Lease lease) noexcept {
    return saturating_add(sent, saturating_cast<Clock::duration>(lease.duration()) / 3);
}

/// How much sooner than due a renewal may go out, with others that are due: a fraction of the lease, so
/// that a short one is not renewed again at once.
inline constexpr std::chrono::milliseconds widest_renewal_window{10};
inline Clock::duration renewal_window(Lease lease) noexcept {
    return std::min<Clock::duration>(widest_renewal_window,
                                     saturating_cast<Clock::duration>(lease.duration()) / 12);
}

/// The next try after an unknown answer: soon, but not in a hot loop.
inline TimePoint renewal_retry_due(TimePoint now, Lease lease) noexcept {
    using namespace std::chrono_literals;
    const Clock::duration pause = saturating_cast<Clock::duration>(lease.duration()) / 12;
    return saturating_add(now, std::clamp<Clock::duration>(pause, 5ms, 500ms));
}

/// How long one renewal may wait for its answer, so that another try still fits in.
inline Clock::duration renewal_patience(Lease lease,
                                        std::chrono::milliseconds command_timeout) noexcept {
    return std::min<Clock::duration>(command_timeout,
                                     saturating_cast<Clock::duration>(lease.duration()) / 3);
}

/// The lease to ask for when the hold has to end at `end`, whatever happens: no longer than that.
inline Lease renewal_lease(Lease lease, TimePoint now, TimePoint end) noexcept {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(saturating_sub(end, now));
    return std::min(lease, Lease{left});
}

}  // namespace redlatch::inline v0::detail
