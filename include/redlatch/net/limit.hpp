#pragma once

#include <redlatch/clock.hpp>

#include <algorithm>
#include <stop_token>

namespace redlatch::inline v0::detail {

/// Until when something may block, and what may end it sooner.
struct Limit {
    TimePoint at = TimePoint::max();
    std::stop_token stop{};

    static Limit in(Clock::duration d) { return {saturating_add(Clock::now(), d), {}}; }

    /// The same, but at most `d` from now on.
    Limit within(Clock::duration d) const {
        return {std::min(at, saturating_add(Clock::now(), d)), stop};
    }

    Clock::duration left() const {
        return std::max(saturating_sub(at, Clock::now()), Clock::duration::zero());
    }
    bool over() const { return Clock::now() >= at; }
    bool cancelled() const { return stop.stop_requested(); }
};

}  // namespace redlatch::inline v0::detail
