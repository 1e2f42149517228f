#pragma once

#include <redlatch/core/attempts.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/grant.hpp>
#include <redlatch/core/lock_answers.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/token_state.hpp>
#include <redlatch/core/validity.hpp>
#include <redlatch/policy/lock_policy.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// What one acquisition wants, and of which lock.
struct AcquisitionPlan {
    AcquirePlan attempts;
    std::string_view key;  ///< has to outlive the acquisition
    PolicyTraits traits;
    std::chrono::milliseconds lock_delay{0};
    bool plain_set = false;        ///< a plain `SET` takes such a lock
    bool replicated = false;       ///< replicas have to acknowledge it
    bool polls = false;            ///< as opposed to waiting in the server's queue
    bool several_masters = false;  ///< a majority of them decides; needs `polls`
    std::int64_t weight = 0;       ///< of its claim; 0 for a lock without claims
};

/// A place in the server's queue that an earlier waiter of this process has passed on.
struct PassedPlace {
    std::string token;
    PolicyTraits traits;
    bool unclear = false;     ///< a try with that token got no answer
    std::int64_t weight = 0;  ///< of the claim that it asks for
    TriesOfToken tries{};
};

/// The answer to a try, decoded.
struct AcquireAnswer {
    enum class Kind {
        ours,
        not_ours,
        no,              ///< a plain `SET` says no more than that
        not_replicated,  ///< ours, but too few replicas have it
        unusable,        ///< an answer of another shape
    };

    /// Others have the lock, or wait for it.
    bool is_refusal() const noexcept { return kind == Kind::not_ours || kind == Kind::no; }

    Kind kind = Kind::unusable;
    TimePoint sent{};           ///< when the first byte of the try went out
    bool repeated = false;      ///< an earlier sending of the try may be carried out too
    MasterSets masters{};       ///< where several decide
    bool others_wait = false;   ///< where ours: other processes are in the queue
    std::uint64_t fence = 0;    ///< where ours: the fencing token; 0 without one
    std::int64_t replicas = 0;  ///< where not replicated: how many have it
    std::int64_t replicas_wanted = 0;
    std::string node{};  ///< where not replicated: which master

    // Where ours:
    std::chrono::milliseconds ttl{0};  ///< how long the server keeps it; 0 for as long as was asked

    // Where not ours:
    Refusal refusal{};                  ///< its place counts only where `will_be_told`
    bool will_be_told = false;          ///< a message will come as soon as the lock is ours
    std::int64_t place = -1;            ///< how many wait in front; negative without a place
    std::chrono::microseconds time{0};  ///< the server's clock; zero if unknown
    std::shared_ptr<const std::string> server{};  ///< its run id; null if unknown
};

/// Make a hold ready that asks with a new token, or with the one of the passed place. Before that, clean up
/// the token or the passed place that was used until now; where the token is new, withdraw the earlier one
/// from the lock table even before the clean-up.
struct MakeHold {
    bool new_token;
    CleanUp clean_up;
};
/// Ask how many wait at the server for the lock whose claim other readers of this process have, by an extension of
/// that claim. Then `not_joined`, `ask_failed`, or `handed` where we go on with it.
struct AskToJoin {
    TimePoint answer_by;
};
/// Send the plain `SET`; where a connection had died while it lay idle, the script instead.
struct SendSet {
    TimePoint answer_by;
    TimePoint give_up_at;  ///< as of `SendTry`
};
/// Send the script. The server keeps a place for `queue_ttl`; gives it up where that is negative, leaves
/// it as it is where it is zero.
struct SendScript {
    TimePoint answer_by;
    std::chrono::milliseconds queue_ttl;
    bool announce;  ///< first make the token known to the lock table, so that a grant finds it
    TimePoint give_up_at;  ///< as of `SendTry`
};
/// Store the fencing token at a majority of the masters.
struct StoreFence {
    TimePoint answer_by;
    std::uint64_t fence;
};
/// Ask the lock table whether somebody of this process waits behind us.
struct AskForWaiters {};
/// Tell the observer and those who wait behind us of `fault()`. Where it is null, tell only the latter that
/// the server has answered again.
struct TellFault {
    bool to_waiters = true;
};
/// Sleep at the lock table.
struct SleepUntil {
    TimePoint until;
    bool subscribe;         ///< the server may tell us when the lock is ours
    bool announce = false;  ///< as of `SendScript`: a try may be answered yet
};
/// Release the token at all masters, and say how far that got.
struct ReturnVotes {
    TimePoint answer_by;
};
/// Let the next waiter of this process go on with our place.
struct PassPlaceOn {
    bool unclear;
    TriesOfToken tries{};
};
/// The lock is ours: `keep_hold`, and hand the hold to the lock table.
struct KeepHold {
    TimePoint since;  ///< from when on its validity counts
    std::uint64_t fence;
    bool unclear;  ///< a try with the token may be carried out yet
    bool others_wait;
    bool prolonged;  ///< the server keeps it for longer, as an earlier waiter with the token wanted
};
inline void keep_hold(Hold& hold, const KeepHold& keep, const Acquisition& acquisition) {
    if (keep.prolonged) hold.may_be_prolonged = true;
    hold.begin(acquisition, keep.since, keep.fence, keep.unclear);
}
/// It was acquired.
struct AcquisitionDone {
    bool watch_over;  ///< nothing looks after the hold yet
};
/// It was not, for `error()`. Clean the token up.
struct AcquisitionFailed {
    CleanUp clean_up;
};
/// Give up the hold that the lock table has handed to us; then ask the table again, or fail with `error()`.
struct LetGo {
    bool ask_again;
};

using AcquisitionAction =
    OneOf<MakeHold, SendSet, SendScript, StoreFence, AskForWaiters, TellFault, SleepUntil,
          ReturnVotes, PassPlaceOn, KeepHold, AcquisitionDone, AcquisitionFailed, LetGo, AskToJoin>;

/// One acquisition, from the lock table's answer to its end. The driver carries each action out and comes
/// back with the event that it leads to.
class AcquisitionMachine {
public:
    AcquisitionMachine(const AcquisitionPlan& plan, TimePoint now, std::uint64_t seed)
        : plan_(plan), attempts_(plan.attempts, now, seed) {}

    TimePoint deadline() const noexcept { return attempts_.deadline(); }
    unsigned tries() const noexcept { return attempts_.tries(); }
    const std::shared_ptr<const Error>& fault() const noexcept { return fault_; }
    const TokenState& token() const noexcept { return token_; }

    /// Why it failed.
    const Error& error() const noexcept { return error_; }

    /// For an acquisition that turned out to be a nested one.
    Attempts& attempts() noexcept { return attempts_; }

    // ---- The lock table has answered

    /// Neither is it our turn, nor did the lock become ours.
    AcquisitionAction not_admitted(LockOutcome why, const WhyBusy& busy, TimePoint now) {
        using Outcome = LockOutcome;
        switch (why) {
            case Outcome::busy:
                if (busy.fault != nullptr) return fail(*busy.fault);
                if (busy.is_unanswered) return fail(unanswered_fault().error);
                return fail(attempts_.out_of_turn(now, busy.by_caller));
            case Outcome::deadlock:
                return fail(
                    Errc::deadlock,
                    "release it first, as this lock does not nest in what it holds; acquire a "
                    "hold that goes to another thread with Owner::hold");
            case Outcome::cancelled: return fail(Errc::cancelled, cancelled_by_caller);
            case Outcome::closed: return fail(Errc::cancelled, cancelled_by_close);
            case Outcome::wrong_key_type:
                return fail(Errc::wrong_type, "in use here with a policy of another key type");
            case Outcome::queued:
            case Outcome::turn:
            case Outcome::handed:
            case Outcome::nested: break;
        }
        return fail(Errc::protocol, {});
    }

    /// The waiter before us has passed the lock on. `valid`: it still lasts. `unreserved`: why it can't be
    /// renewed.
    AcquisitionAction handed(bool valid, std::optional<Error> unreserved) {
        if (unreserved) {
            error_ = *std::move(unreserved);
            return LetGo{.ask_again = false};
        }
        if (!valid) return LetGo{.ask_again = true};
        return AcquisitionDone{.watch_over = true};
    }

    /// It is our turn to contend at the server. `place`: what the contender before has passed on; null
    /// for nothing. `contended`: others have wanted the lock a moment ago.
    AcquisitionAction admitted(const PassedPlace* place, bool contended) {
        contended_ = contended;
        if (place == nullptr) return MakeHold{.new_token = true, .clean_up = {}};
        token_ = TokenState::with_place(place->token, place->unclear, place->tries);
        // One that polls does not keep a place, and would wait for a message that never comes. A reader's
        // place may have brought a reader's claim by now, of no use to a writer.
        const bool is_of_use = !plan_.polls && place->traits.scripts == plan_.traits.scripts &&
                               place->traits.fenced == plan_.traits.fenced &&
                               place->weight == plan_.weight;
        if (is_of_use) return MakeHold{.new_token = false, .clean_up = {}};
        return make_hold();
    }

    /// It is our turn, and other readers of this process have a claim that we may go on with if nobody waits.
    AcquisitionAction may_join(TimePoint now) {
        const auto answer_by = attempts_.time_to_ask(now);
        return answer_by ? AskToJoin{*answer_by} : make_hold();
    }

    // ---- The server was to be asked whether anybody waits

    /// It says so, or has the claim no more, or there is another reason to contend for one of our own.
    AcquisitionAction not_joined() { return make_hold(); }
    AcquisitionAction ask_failed(Fault fault, TimePoint now) { return met(std::move(fault), now); }

    // ---- A hold was to be made

    AcquisitionAction hold_made(std::string token, TimePoint now) {
        if (token_.token().empty()) token_ = TokenState{std::move(token), plan_.several_masters};
        return sleep_ ? wait() : go_on(attempts_.send_try(now), now);
    }
    AcquisitionAction no_hold(Error why) { return give_up(std::move(why)); }

    // ---- A try was to be sent

    AcquisitionAction answered(AcquireAnswer answer, TimePoint now) {
        using Kind = AcquireAnswer::Kind;
        token_.attempted(answer.masters);
        token_.answered();
        if (answer.repeated) token_.repeated();
        if (answer.kind == Kind::no && is_plain_) {
            attempts_.refused_plainly(now);
            return send_script(now);
        }
        sent_ = answer.sent;
        others_wait_ = answer.others_wait;
        prolonged_ = answer.ttl > ttl();
        switch (answer.kind) {
            case Kind::ours: return ours(answer.fence, now);
            case Kind::not_ours: return not_ours(answer, now);
            case Kind::not_replicated: return not_replicated(answer, now);
            case Kind::no:
            case Kind::unusable: break;
        }
        return failed_try(unexpected_reply(), now);
    }

    AcquisitionAction failed(Fault fault, const MasterSets& masters, TimePoint now) {
        token_.attempted(masters);
        return failed_try(std::move(fault), now);
    }

    /// Whether somebody of this process waits behind us.
    AcquisitionAction waiters(bool any, TimePoint now) { return send_script(any, now); }

    // ---- A fencing token was to be stored

    AcquisitionAction fence_stored(bool stored, TimePoint now) {
        if (stored) return acquired(now);
        return fence_failed(
            {.error = make_error(Errc::unavailable, "some masters have lost it again")}, now);
    }
    AcquisitionAction fence_failed(Fault fault, TimePoint now) {
        return failed_try(std::move(fault), now);
    }

    // ---- A pause has ended

    /// `grant`: the message, or the late answer, that the lock table has for us, where it ended the pause.
    AcquisitionAction woken(Woken why, const std::optional<Grant>& grant, TimePoint now) {
        switch (why) {
            case Woken::cancelled: return cancelled();
            case Woken::closed: return give_up_for(attempts_.cancelled(cancelled_by_close));
            case Woken::granted: return granted(grant, now);
            case Woken::lost:  // of a hold to nest in
            case Woken::in_time:
            case Woken::recheck: break;
        }
        return pause_over(now);
    }

    // ---- At any time before a try is sent

    AcquisitionAction cancelled() { return give_up_for(attempts_.cancelled(cancelled_by_caller)); }

    // ---- What else was to be done

    AcquisitionAction fault_told(TimePoint now) { return go_on(std::move(after_telling_), now); }

    AcquisitionAction votes_returned(const MasterSets& reached) {
        token_.votes_returned(reached);
        return token_given_up();
    }

    /// `passed`: somebody of this process goes on with our place.
    AcquisitionAction place_passed_on(bool passed) {
        if (passed) return AcquisitionFailed{{}};
        return give_token_up();
    }

    /// `kept`: the hold is in the lock table. Else the client was `closed` while the answer was on its way, or there is
    /// no memory for an entry.
    AcquisitionAction kept(bool kept, bool closed) {
        if (kept) return AcquisitionDone{.watch_over = false};
        if (closed) return fail(Errc::cancelled, cancelled_by_close);
        return fail(Errc::unavailable, "there is no memory to keep the lock: it is released");
    }

private:
    AcquisitionAction go_on(AttemptAction next, TimePoint now) {
        if (auto* over = get_if<GiveUp>(&next)) return give_up(std::move(over->error));
        if (const auto* ours = get_if<Acquired>(&next)) return keep(*ours);
        if (const auto* pause = get_if<Pause>(&next)) return this->pause(*pause);
        return send(get<SendTry>(next), now);
    }

    /// How long the server is asked to keep the lock.
    std::chrono::milliseconds ttl() const noexcept {
        return plan_.attempts.lease.duration() + plan_.lock_delay;
    }

    AcquisitionAction keep(const Acquired& ours) const {
        return KeepHold{.since = ours.since,
                        .fence = fence_,
                        .unclear = token_.unclear(),
                        .others_wait = others_wait_,
                        .prolonged = prolonged_};
    }

    /// Without a token, or with a dead one, that is given up before the pause, and a new one made ready.
    AcquisitionAction pause(const Pause& pause) {
        sleep_ = SleepUntil{.until = pause.until, .subscribe = std::exchange(may_be_told_, false)};
        const bool wants_token = token_.dead() || token_.token().empty();
        return wants_token ? give_token_up() : wait();
    }
    AcquisitionAction wait() {
        SleepUntil sleep = *std::exchange(sleep_, std::nullopt);
        const bool may_hear_late = token_.unclear() && !plan_.several_masters;
        sleep.announce = may_hear_late && !std::exchange(announced_, true);
        return sleep;
    }

    // ---- Sending

    /// The first try of a lock in the form that everybody uses is the plain command, the cheapest there is.
    /// Its answer "no" tells neither why nor for how long, so then the script asks at once. Where others
    /// have wanted the lock lately, the script comes first; and where several masters decide, so that a
    /// vote which is of no use is held no longer than one round.
    AcquisitionAction send(const SendTry& next, TimePoint now) {
        answer_by_ = next.answer_by;
        give_up_at_ = next.give_up_at;
        last_ = next.last;
        is_plain_ = tries() == 1 && plan_.plain_set && !plan_.several_masters && !contended_ &&
                    !token_.queued();
        if (!is_plain_) return send_script(now);
        token_.asks(ttl());
        return SendSet{answer_by_, give_up_at_};
    }

    /// At the last try it depends on those behind us what becomes of our place.
    AcquisitionAction send_script(TimePoint now) {
        is_plain_ = false;
        if (last_ && token_.queued()) return AskForWaiters{};
        return send_script(false, now);
    }

    AcquisitionAction send_script(bool has_waiters, TimePoint now) {
        if (!plan_.polls) {
            queue_ttl_ = token_.queue_ttl(last_, has_waiters, attempts_.presence_ttl(now));
        }
        token_.asks(ttl());
        const bool wants_place = queue_ttl_ > std::chrono::milliseconds::zero();
        return SendScript{.answer_by = answer_by_,
                          .queue_ttl = queue_ttl_,
                          .announce = wants_place && !std::exchange(announced_, true),
                          .give_up_at = give_up_at_};
    }

    AcquisitionAction pause_over(TimePoint now) { return go_on(attempts_.send_try(now), now); }

    /// From when on it is ours, by a message or by a late answer. The try may have asked for less than we do.
    std::optional<TimePoint> granted_since(const Grant& grant, TimePoint now) const {
        if (!grant.answers) {
            return token_.granted(grant, now, plan_.attempts.drift.factor);
        }
        if (grant.ttl < ttl()) return std::nullopt;
        return token_.answered_late(grant.token, *grant.answers);
    }

    /// We were told that the lock is ours. Where that cannot be believed on its own, we ask the server.
    AcquisitionAction granted(const std::optional<Grant>& grant, TimePoint now) {
        const Drift& drift = plan_.attempts.drift;
        const auto since = grant ? granted_since(*grant, now) : std::nullopt;
        // Replicas can only be asked on the connection that has written.
        const bool complete =
            !plan_.replicated && (!plan_.traits.fenced || (grant && grant->fence != 0));
        if (!since || !complete || now >= valid_until(*since, plan_.attempts.lease, drift)) {
            return pause_over(now);
        }
        fault_ = nullptr;
        fence_ = grant->fence;
        others_wait_ = true;  // as they did when we began to; the next command will tell
        prolonged_ = grant->ttl > ttl();
        sent_ = *since;
        return acquired(now);
    }

    // ---- What a try has led to

    /// Each of several masters gives a fencing token of its own. The greatest of a majority's is greater
    /// than all before, and stays so for those to come when a majority has stored it.
    AcquisitionAction ours(std::uint64_t fence, TimePoint now) {
        fault_ = nullptr;
        fence_ = fence;
        token_.acquired();
        if (plan_.traits.fenced && fence == 0) return failed_try(unexpected_reply(), now);
        if (plan_.traits.fenced && plan_.several_masters) {
            return StoreFence{.answer_by = answer_by_, .fence = fence};
        }
        return acquired(now);
    }

    AcquisitionAction not_ours(AcquireAnswer& answer, TimePoint now) {
        fault_ = nullptr;
        if (answer.place < 0) {
            token_.refused(answer.place);
        } else {
            may_be_told_ = true;
            token_.refused(answer.place, {.sent = sent_,
                                          .time = answer.time,
                                          .ttl = ttl(),
                                          .server = std::move(answer.server)});
            if (answer.will_be_told) answer.refusal.place = answer.place;
        }
        AttemptAction next = attempts_.refused(now, answer.refusal);
        if (holds_alternative<GiveUp>(next)) return tell(std::move(next));
        return after_try(std::move(next), now);
    }

    AcquisitionAction acquired(TimePoint now) {
        token_.acquired();
        AttemptAction next = attempts_.taken(sent_, now);
        if (!holds_alternative<Acquired>(next)) {
            token_.die();
            note(late_answer_fault());
        }
        return after_try(std::move(next), now);
    }

    /// The lock is ours, and would be lost with this server: it stays so while there is time to ask
    /// the replicas again, and is given back at the end of that.
    AcquisitionAction not_replicated(AcquireAnswer& answer, TimePoint now) {
        token_.acquired();
        token_.repeated();
        return met({.error = too_few_replicas(answer.replicas, answer.replicas_wanted,
                                              std::move(answer.node))},
                   now);
    }

    AcquisitionAction failed_try(Fault fault, TimePoint now) {
        token_.failed(queue_ttl_, fault.maybe_executed);
        return met(std::move(fault), now);
    }

    AcquisitionAction met(Fault fault, TimePoint now) {
        fault.error.key = plan_.key;
        if (fault.error.code != Errc::cancelled) note(fault);
        is_cut_short_ = attempts_.was_cut_short(now);  // others may wait for the answer longer
        return after_try(attempts_.fault(now, std::move(fault)), now);
    }

    /// For those who wait behind us.
    void note(Fault fault) {
        fault.error.key = plan_.key;
        fault_ = std::make_shared<const Error>(std::move(fault.error));
    }

    AcquisitionAction after_try(AttemptAction next, TimePoint now) {
        return fault_ == told_fault_ ? go_on(std::move(next), now) : tell(std::move(next));
    }

    /// Others of this process may wait for the answer to this try.
    AcquisitionAction tell(AttemptAction next) {
        told_fault_ = fault_;
        after_telling_ = std::move(next);
        return TellFault{.to_waiters = !std::exchange(is_cut_short_, false)};
    }

    // ---- Giving up

    AcquisitionAction give_up_for(AttemptAction over) {
        return give_up(std::move(get<GiveUp>(over).error));
    }

    /// The waiter behind us in this process goes on with our place.
    AcquisitionAction give_up(Error why) {
        error_ = std::move(why);
        sleep_.reset();
        if (token_.can_pass_place_on()) return PassPlaceOn{token_.unclear(), token_.tries()};
        return give_token_up();
    }

    AcquisitionAction give_token_up() {
        if (!token_.has_votes_to_return()) return token_given_up();
        // The last try, which may take longer than the deadline, comes after the pause.
        return ReturnVotes{sleep_ ? std::min(answer_by_, attempts_.deadline()) : answer_by_};
    }

    /// Before a pause comes the next token.
    AcquisitionAction token_given_up() {
        if (sleep_) return make_hold();
        return AcquisitionFailed{token_.clean_up()};
    }

    AcquisitionAction make_hold() {
        const CleanUp clean_up = token_.clean_up();
        token_ = TokenState{{}};
        announced_ = false;
        return MakeHold{.new_token = true, .clean_up = clean_up};
    }

    AcquisitionAction fail(Error why) {
        error_ = std::move(why);
        return AcquisitionFailed{token_.clean_up()};
    }
    AcquisitionAction fail(Errc code, std::string why) {
        return fail(make_error(code, std::move(why)));
    }

    AcquisitionPlan plan_;
    Attempts attempts_;
    TokenState token_{{}};  // of the token that we ask with
    bool contended_ = false;
    bool announced_ = false;     // the lock table knows the token
    bool is_cut_short_ = false;  // the try, by the end of our own wait
    bool may_be_told_ = false;   // there is a place to be told of

    // The try that is under way, or was the last one.
    bool is_plain_ = false;
    bool last_ = false;
    TimePoint answer_by_{};
    TimePoint give_up_at_{};
    TimePoint sent_{};
    std::chrono::milliseconds queue_ttl_{0};
    std::uint64_t fence_ = 0;   // of the lock that was taken; 0 without one
    bool others_wait_ = false;  // other processes, as the server said last
    bool prolonged_ = false;    // it is kept for longer than we asked

    std::shared_ptr<const Error> fault_{};       // of the last try
    std::shared_ptr<const Error> told_fault_{};  // what was told of that
    AttemptAction after_telling_{SendTry{}};
    std::optional<SleepUntil> sleep_{};  // to come when a new token is ready
    Error error_{};
};

}  // namespace redlatch::inline v0::detail
