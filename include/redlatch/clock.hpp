#pragma once

#include <redlatch/compilation.hpp>

#include <time.h>

#include <chrono>
#include <ratio>

namespace redlatch::inline v0 {

/// The clock of every lease and deadline: never set back, and it goes on while the machine is
/// suspended, as the server's clock does. `std::chrono::steady_clock` stops there on Linux, so a
/// lease measured with it would seem to last through a closed lid.
struct Clock {
    /// @{
    /// What the standard requires of a clock.
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock>;
    static constexpr bool is_steady = true;
    /// @}

    /// The time since the machine was started.
    static time_point now() noexcept {
#if defined(CLOCK_BOOTTIME)
        constexpr clockid_t id = CLOCK_BOOTTIME;
#else
        constexpr clockid_t id = CLOCK_MONOTONIC;
#endif
        timespec now{};
        // A sandbox may not know that clock. A clock that stands still would let no lease end.
        if (::clock_gettime(id, &now) != 0) ::clock_gettime(CLOCK_MONOTONIC, &now);
        return time_point{std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec}};
    }
};

namespace detail {

using TimePoint = Clock::time_point;

/// `d` in units of `To`, truncated; a value that does not fit becomes the nearest end of `To`'s range, and
/// NaN becomes zero.
template <class To, class Rep, class Period>
constexpr To saturating_cast(std::chrono::duration<Rep, Period> d) noexcept {
    using Wide = std::chrono::duration<long double, typename To::period>;
    const Wide wide{d};
    if (wide >= Wide{To::max()}) return To::max();
    if (wide <= Wide{To::min()}) return To::min();
    if (wide != wide) return To::zero();
    // Not duration_cast: with odd periods it overflows on the way to a result that fits.
    return To{static_cast<typename To::rep>(wide.count())};
}

/// `at + d`; a sum beyond the clock's range becomes the end of the range, so that "for ever" stays for ever.
constexpr TimePoint saturating_add(TimePoint at, Clock::duration d) noexcept {
    const auto since = at.time_since_epoch();
    if (d > Clock::duration::zero() && since > Clock::duration::max() - d) return TimePoint::max();
    if (d < Clock::duration::zero() && since < Clock::duration::min() - d) return TimePoint::min();
    return at + d;
}

/// `to - from`, saturated likewise; a deadline of "for ever" stays for ever away.
constexpr Clock::duration saturating_sub(TimePoint to, TimePoint from) noexcept {
    if (to == TimePoint::max()) return Clock::duration::max();
    const auto a = to.time_since_epoch();
    const auto b = from.time_since_epoch();
    if (b < Clock::duration::zero() && a > Clock::duration::max() + b)
        return Clock::duration::max();
    if (b > Clock::duration::zero() && a < Clock::duration::min() + b)
        return Clock::duration::min();
    return a - b;
}

/// The time from now until a point of any clock, as wide as `Wait` needs it. The last point of the clock
/// means without limit.
template <class AnyClock, class Duration>
auto time_left(const std::chrono::time_point<AnyClock, Duration>& deadline) {
    using Wide = std::chrono::duration<long double, std::nano>;
    if (deadline == deadline.max()) return Wide::max();
    return Wide{deadline.time_since_epoch()} - Wide{AnyClock::now().time_since_epoch()};
}

}  // namespace detail
}  // namespace redlatch::inline v0
