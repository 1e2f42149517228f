#pragma once

#include <redlatch/core/backoff.hpp>
#include <redlatch/core/describe_owner.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/recheck.hpp>
#include <redlatch/core/validity.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// How far past its deadline a waiting call may go: the time for the answer to its last try.
inline constexpr std::chrono::milliseconds last_answer_slack{50};

/// The time to live of a key without one, as PTTL says it.
inline constexpr std::chrono::milliseconds no_end{-1};

/// What one acquisition wants.
struct AcquirePlan {
    Wait wait;
    Lease lease;
    Drift drift;
    Backoff backoff;
    std::chrono::milliseconds command_timeout;
    TimePoint answer_by = TimePoint::max();  ///< no try waits for its answer any longer
    bool of_permits = false;                 ///< several may have some at a time
};

/// What the server says about a lock that it refuses.
struct Refusal {
    /// How long it will keep the lock for its holder at most, where it said so.
    std::optional<std::chrono::milliseconds> ttl{};
    /// How many wait in front, of a waiter who will be told when the lock is his; nothing for one
    /// who has to ask.
    std::optional<std::int64_t> place{};
    /// The token of who has it, where it said so.
    std::string owner{};
};

/// What to do next.
struct SendTry {
    TimePoint answer_by;
    bool last;
    /// It waits no longer than that where others of its client are sent before it.
    TimePoint give_up_at{};
};
struct Pause {
    TimePoint until;
};
struct Acquired {
    TimePoint since;  ///< from when on its validity counts
};
struct GiveUp {
    Error error;
};
using AttemptAction = OneOf<SendTry, Pause, Acquired, GiveUp>;

/// Decides when an acquisition asks the server, when it pauses and when it gives up, and says why it did.
class Attempts {
public:
    Attempts(const AcquirePlan& plan, TimePoint now, std::uint64_t seed)
        : plan_(plan),
          started_(now),
          deadline_(deadline(plan.wait, now)),
          pauses_(plan.backoff, seed),
          random_(~seed) {}

    /// Of a wait that begins then.
    static TimePoint deadline(Wait wait, TimePoint begin) noexcept {
        return saturating_add(begin, std::max(wait.duration(), Clock::duration::zero()));
    }

    TimePoint deadline() const noexcept { return deadline_; }
    unsigned tries() const noexcept { return tries_; }

    /// Until when a command may be waited for that is no try, and leaves time for one. Nothing where it is too late.
    std::optional<TimePoint> time_to_ask(TimePoint now) const noexcept {
        const TimePoint end = saturating_add(now, plan_.command_timeout);
        if (end >= deadline_) return std::nullopt;
        return std::min(end, plan_.answer_by);
    }

    /// The acquisition may talk to the server from now on, or its pause is over.
    AttemptAction send_try(TimePoint now) {
        ++tries_;
        sent_ = now;
        answer_by_ = std::min(saturating_add(now, plan_.command_timeout), plan_.answer_by);
        if (plan_.wait.is_none()) return SendTry{answer_by_, true, answer_by_};
        const TimePoint strict = saturating_add(std::max(deadline_, now), last_answer_slack);
        answer_by_ = std::min(answer_by_, strict);
        return SendTry{answer_by_, is_over(now), std::min(strict, plan_.answer_by)};
    }

    /// The server answered that somebody else holds the lock.
    AttemptAction refused(TimePoint now, const Refusal& refusal) {
        refused_ = Refused{saturating_sub(now, sent_), refusal.owner, refusal.ttl == no_end};
        if (is_over(now)) return GiveUp{out_of_time(now, *refused_)};
        if (!refusal.place) return pause(now, pauses_.next(refusal.ttl));
        return pause(now, recheck_pause(refusal.ttl, *refusal.place, random_));
    }

    /// It answered so to the plain command, which tells no more. The same try goes on, and asks who it is.
    void refused_plainly(TimePoint now) {
        refused_ = Refused{saturating_sub(now, sent_), {}, false, true};
    }

    /// How long the server may take a waiter for alive that it does not hear of, as of now: no longer
    /// than it waits.
    std::chrono::milliseconds presence_ttl(TimePoint now) const {
        const std::chrono::milliseconds longest =
            std::max<std::chrono::milliseconds>(longest_presence_ttl, 3 * plan_.backoff.max);
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            std::min<Clock::duration>(saturating_sub(deadline_, now), longest));
        return std::min(
            longest, std::max(left, std::chrono::milliseconds::zero()) + std::chrono::seconds{1});
    }

    /// The server answered that the lock is ours; that try went out after `sent`. A lock whose
    /// validity ended on the way is none: the caller has to release it.
    AttemptAction taken(TimePoint sent, TimePoint now) {
        if (now < valid_until(sent, plan_.lease, plan_.drift)) return Acquired{sent};
        refused_.reset();
        return fault(now, late_answer_fault());
    }

    /// The last try may have too little time for an answer. If the answer before took longer than that, it
    /// counts: the lock was taken. An earlier answer to the same try counts too.
    AttemptAction fault(TimePoint now, Fault fault) {
        const auto refused = std::exchange(refused_, std::nullopt);
        const bool says_nothing = refused && is_over(now) && fault.transient &&
                                  (refused->in_this_try || had_less_time(*refused, fault));
        last_fault_ = following(std::move(fault.error), last_fault_);
        if (says_nothing) return GiveUp{out_of_time(now, *refused)};
        if (!fault.transient || is_over(now)) return GiveUp{*last_fault_};
        return pause(now, pauses_.next(std::nullopt));
    }

    /// Whether the last try ended with its caller's wait, before its `command_timeout` was over.
    bool was_cut_short(TimePoint now) const noexcept {
        return now >= answer_by_ && answer_by_ < saturating_add(sent_, plan_.command_timeout);
    }

    AttemptAction cancelled(std::string why) {
        return GiveUp{with_cause(make_error(Errc::cancelled, std::move(why)))};
    }

    /// The wait ended before the acquisition's turn to talk to the server came. `by_caller`: the caller holds
    /// the lock.
    Error out_of_turn(TimePoint now, bool by_caller) const {
        const std::string who = by_caller ? "held by the calling thread itself"
                                          : "held, or waited for, in this process";
        const std::string why = by_caller ? "; this lock does not nest" : "";
        return with_cause(make_error(Errc::timed_out, who + effort(now) + why));
    }

private:
    AttemptAction pause(TimePoint now, Clock::duration length) const {
        return Pause{std::min(saturating_add(now, length), deadline_)};
    }

    bool is_over(TimePoint now) const noexcept { return now >= deadline_; }

    /// An answer that somebody else has the lock.
    struct Refused {
        Clock::duration answered_in;
        std::string owner;  // one of those who have it; empty where nobody knows one
        bool is_endless;    // its key, which no client of this library makes
        bool in_this_try = false;
    };

    /// The command that has failed had less time than the answer before took.
    bool had_less_time(const Refused& before, const Fault& fault) const noexcept {
        return !fault.disconnected && before.answered_in >= saturating_sub(answer_by_, sent_);
    }

    Error out_of_time(TimePoint now, const Refused& refused) const {
        const std::string held =
            refused.owner.empty() ? "" : "held by " + describe_owner(refused.owner);
        std::string why;
        if (plan_.of_permits) {
            why = "too few permits are free, or others wait in front" + effort(now);
            if (!held.empty()) why += "; some are " + held;
        } else {
            why = (held.empty() ? "held, or waited for, by others" : held) + effort(now);
            if (refused.is_endless) {
                why += "; its key has no end, and stays until somebody deletes it";
            }
        }
        return with_cause(make_error(Errc::timed_out, std::move(why)));
    }

    /// How long the acquisition has waited, and how often it has asked.
    std::string effort(TimePoint now) const {
        if (plan_.wait.is_none()) return {};
        const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
        std::string text = " after " + describe_time(waited);
        if (tries_ == 1) return text + " and 1 try";
        return tries_ == 0 ? text : text + " and " + std::to_string(tries_) + " tries";
    }

    static std::string describe_time(std::chrono::milliseconds time) {
        const auto ms = time.count();
        if (ms < 1000) return std::to_string(ms) + " ms";
        return std::to_string(ms / 1000) + "." + std::to_string(ms / 100 % 10) + " s";
    }

    /// Contention ended the wait, yet a fault on the way there is worth telling.
    Error with_cause(Error error) const {
        if (last_fault_) error.causes.push_back(*last_fault_);
        return error;
    }

    AcquirePlan plan_;
    TimePoint started_;
    TimePoint deadline_;
    Pauses pauses_;
    Random random_;
    unsigned tries_ = 0;
    TimePoint sent_{};
    TimePoint answer_by_{};
    std::optional<Refused> refused_{};  // by the answer to the command before
    std::optional<Error> last_fault_;
};

}  // namespace redlatch::inline v0::detail
