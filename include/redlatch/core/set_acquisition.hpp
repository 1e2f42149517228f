#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/attempts.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/handoff.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/types.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

namespace redlatch::inline v0::detail {

/// Takes several locks, one after the other in one order for all, within one wait: event in, action out.
/// Knows no server and reads no clock.
class SetAcquisition {
public:
    // The actions.

    /// Take this one, and have those before renewed meanwhile. A loss of one of those ends the wait. Then
    /// `taken()` or `refused()`.
    struct Take {
        std::size_t member;
        Wait wait;
        TimePoint answer_by;
    };
    /// Give a full lease to those that got theirs before `since`. Then `refreshed()`.
    struct Refresh {
        TimePoint since;
        TimePoint answer_by;
    };
    /// Give back all that were taken. `given_back()` follows when the server has answered, or at `answer_by`.
    /// A time that is over: nobody waits.
    struct GiveBack {
        TimePoint answer_by;
    };
    /// All are held.
    struct Done {};
    /// None is, for that error.
    struct Failed {
        Error error;
    };
    using Action = OneOf<Take, Refresh, GiveBack, Done, Failed>;

    struct Plan {
        std::size_t members;
        Wait wait;
        Lease lease;
        std::chrono::milliseconds command_timeout;
    };

    SetAcquisition(const Plan& plan, TimePoint now)
        : plan_(plan),
          deadline_(Attempts::deadline(plan.wait, now)),
          answer_by_(saturating_add(deadline_, plan.wait.is_none()
                                                   ? Clock::duration{plan.command_timeout}
                                                   : last_answer_slack)) {}

    Action begin(TimePoint now) { return take(now); }

    /// `all_held`: those that were taken before are not lost. `oldest`: when the first of them got its lease.
    Action taken(bool all_held, TimePoint oldest, TimePoint now) {
        ++taken_;
        if (!all_held) return lost(now);
        if (taken_ < plan_.members) return take(now);
        const auto longest = std::min<Clock::duration>(longest_unrefreshed,
                                                       Clock::duration{plan_.lease.duration()} / 3);
        const TimePoint since = saturating_add(now, -longest);
        if (oldest >= since) return Done{};
        return Refresh{since, answer_by_};
    }

    /// `all_held`: as in `taken`; `stopped`: nobody wants the set any more.
    Action refused(Error why, bool all_held, bool stopped, TimePoint now) {
        const bool cut_short_by_loss = why.code == Errc::cancelled && !all_held && !stopped;
        if (cut_short_by_loss) return lost(now);
        return give_up(std::move(why), !stopped, now);
    }

    /// As `refused`.
    Action refreshed(bool all_held, bool stopped, TimePoint now) {
        if (stopped) return give_up(make_error(Errc::cancelled, cancelled_by_caller), false, now);
        if (all_held) return Done{};
        return lost(now);
    }

    Action given_back(TimePoint now) {
        taken_ = 0;
        if (over_) return Failed{std::move(error_)};
        return take(now);
    }

private:
    bool is_over(TimePoint now) const noexcept { return now >= deadline_; }

    Action take(TimePoint now) {
        // Behind the deadline one is tried once: its answer tells whether somebody has it, or the server was slow.
        const auto left = std::max(saturating_sub(deadline_, now), Clock::duration::zero());
        return Take{taken_, left, answer_by_};
    }

    Action lost(TimePoint now) {
        constexpr bool waits = false;  // a set that begins anew still hears a stop
        if (!is_over(now)) return give_back(waits);
        return give_up(make_error(Errc::timed_out, "one was lost while others were waited for"),
                       true, now);
    }

    /// `somebody_waits`: else it was stopped.
    Action give_up(Error why, bool somebody_waits, TimePoint now) {
        over_ = true;
        error_ = std::move(why);
        // A deadline that is over leaves next to no time for releases.
        const bool has_time = plan_.wait.is_none() || !is_over(now);
        return give_back(somebody_waits && has_time);
    }

    GiveBack give_back(bool waits) const noexcept {
        return {waits ? answer_by_ : TimePoint::min()};
    }

    Plan plan_;
    TimePoint deadline_;
    TimePoint answer_by_;
    std::size_t taken_ = 0;
    bool over_ = false;
    Error error_{};
};

}  // namespace redlatch::inline v0::detail
