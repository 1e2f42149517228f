#pragma once

#include <redlatch/core/attempts.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/lock_answers.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/renewal_times.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// The hold that an acquisition nests in.
struct OuterHold {
    std::string_view key;  ///< has to outlive the nesting
    TimePoint last_end;    ///< no validity goes beyond (`max_hold`)
};

/// What the server says to a nested acquisition.
enum class NestAnswer {
    done,
    gone,      ///< the lock is not ours any more
    unusable,  ///< an answer of another shape
};

/// Tell the server the new hold count, and to keep the lock for `lease` at least.
struct SendNest {
    TimePoint answer_by;
    Lease lease;
};
/// A try has met `fault()`.
struct NoteNestFault {
    bool tell;  ///< the observer
    bool
        prolonged;  ///< note on the hold that the server may keep the lock for longer than it is valid
};
/// Sleep at the lock table, as one that is about to nest.
struct NestSleep {
    TimePoint until;
};
/// Let the outer hold last as long as the answer allows, where it is not over by now.
struct ConfirmOuter {
    TimePoint sent;
    Lease lease;
};
/// It was acquired.
struct NestDone {
    TimePoint sent;
};
/// It was not, for `error()`.
struct NestFailed {
    bool outer_lost;  ///< declare the outer hold lost; the server may still have it
};

using NestAction = OneOf<SendNest, NoteNestFault, NestSleep, ConfirmOuter, NestDone, NestFailed>;

/// Another acquisition of a hold that the caller has: nobody is waited for, only the server. Each event comes
/// with the end of the outer hold's validity as of now. `closed`: the client was closed. That has ended the outer
/// hold, so the acquisition is cancelled, and nothing is lost.
class Nesting {
public:
    /// Borrows the attempts of the acquisition that turned out to be a nested one.
    Nesting(Attempts& attempts, const OuterHold& outer, Lease lease)
        : attempts_(&attempts), outer_(outer), lease_(lease) {}

    const Error& fault() const noexcept { return fault_; }
    const Error& error() const noexcept { return error_; }

    NestAction begin(TimePoint now, TimePoint valid_until) {
        return go_on(attempts_->send_try(now), now, valid_until);
    }
    /// The outer hold can't be renewed, which this acquisition wants.
    NestAction unreserved(Error why) { return fail(std::move(why)); }

    /// Begins where the server counts no nested holds, as of a claim: nothing is sent. `valid`: whether the outer hold
    /// is. `refreshed`: when the command went out that it lasts by.
    NestAction begin_unsent(bool valid, bool closed, TimePoint refreshed) {
        if (!valid) return outer_is_gone(closed);
        return NestDone{refreshed};
    }

    NestAction answered(NestAnswer answer, bool closed, TimePoint sent, TimePoint now) {
        switch (answer) {
            case NestAnswer::done: return done(sent, now);
            case NestAnswer::gone: return outer_is_gone(closed);
            case NestAnswer::unusable: break;
        }
        return failed(unexpected_reply(), now);
    }

    NestAction failed(Fault fault, TimePoint now) {
        fault.error.key = outer_.key;
        fault_ = fault.error;
        const bool prolonged = fault.maybe_executed;
        const bool tell = fault_.code != Errc::cancelled;
        after_fault_ = attempts_->fault(now, std::move(fault));
        return NoteNestFault{.tell = tell, .prolonged = prolonged};
    }
    NestAction fault_noted(TimePoint now, TimePoint valid_until) {
        return go_on(std::move(after_fault_), now, valid_until);
    }

    /// A pause has ended.
    NestAction woken(Woken why, TimePoint now, TimePoint valid_until) {
        switch (why) {
            case Woken::cancelled: return fail_for(attempts_->cancelled(cancelled_by_caller));
            case Woken::closed: return fail_for(attempts_->cancelled(cancelled_by_close));
            case Woken::lost: return outer_is_gone(false);
            case Woken::granted:
            case Woken::in_time:
            case Woken::recheck: break;
        }
        return go_on(attempts_->send_try(now), now, valid_until);
    }

    /// `in_time`: the outer hold was not over before. A hold that was over once stays over.
    NestAction confirmed(bool in_time, bool closed) {
        if (!in_time) return outer_is_gone(closed);
        return NestDone{sent_};
    }

private:
    NestAction outer_is_gone(bool closed) {
        if (closed) return fail_for(attempts_->cancelled(cancelled_by_close));
        return fail(make_error(Errc::lost, "the outer hold is gone"));
    }

    NestAction go_on(AttemptAction next, TimePoint now, TimePoint valid_until) {
        if (const auto* over = get_if<GiveUp>(&next)) return fail(over->error);
        if (const auto* ours = get_if<Acquired>(&next)) {
            return ConfirmOuter{.sent = ours->since, .lease = lease_from(ours->since)};
        }
        if (const auto* pause = get_if<Pause>(&next)) return NestSleep{pause->until};
        const TimePoint answer_by = std::min(get<SendTry>(next).answer_by, valid_until);
        return SendNest{.answer_by = answer_by, .lease = lease_from(now)};
    }

    NestAction done(TimePoint sent, TimePoint now) {
        sent_ = sent;
        return go_on(attempts_->taken(sent, now), now, TimePoint::max());
    }

    /// What a try asks for: the end of the outer hold is not passed.
    Lease lease_from(TimePoint sent) const noexcept {
        return renewal_lease(lease_, sent, outer_.last_end);
    }

    NestAction fail(Error why) {
        error_ = std::move(why);
        return NestFailed{error_.code == Errc::lost};
    }
    NestAction fail_for(AttemptAction over) { return fail(std::move(get<GiveUp>(over).error)); }

    Attempts* attempts_;
    OuterHold outer_;
    Lease lease_;
    TimePoint sent_{};
    AttemptAction after_fault_{SendTry{}};
    Error fault_{};
    Error error_{};
};

}  // namespace redlatch::inline v0::detail
