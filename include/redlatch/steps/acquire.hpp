#pragma once

#include <redlatch/core/acquire.hpp>
#include <redlatch/core/grant.hpp>
#include <redlatch/core/renew.hpp>
#include <redlatch/core/standing.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/hold_ref.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/steps/releasing.hpp>
#include <redlatch/steps/thread_serial.hpp>

#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace redlatch::inline v0::detail {

/// Takes a lock, once: asks the lock table, then does at the server what the core decides.
class Acquiring {
public:
    /// `through`: the `LockImpl` that a thread-owned acquisition is made with; null for a `Held`.
    Acquiring(Session& session, const LockSpec& spec, Lease lease, const AcquireOptions& options,
              const void* through)
        : session_(&session),
          spec_(&spec),
          lease_(lease),
          options_(&options),
          acquisition_{session.new_acquisition_id(), through, spec.traits.watched},
          core_(plan(), started_,
                acquisition_.id * 0x9e3779b97f4a7c15U +
                    static_cast<std::uint64_t>(started_.time_since_epoch().count())) {}

    Result<HoldRef> run() {
        Result<HoldRef> ref = enter();
        if (ref) {
            tell_acquired();
        } else {
            ref.error().key = spec_->key();
            if (ref.error().code == Errc::timed_out) tell_timed_out();
        }
        return ref;
    }

private:
    AcquirePlan plan() const {
        return {.wait = options_->wait,
                .lease = lease_,
                .drift = spec_->options.drift,
                .backoff = spec_->options.backoff,
                .command_timeout = session_->command_timeout()};
    }

    HandoffLimit handoff_limit() const {
        return {.in_row = spec_->options.local_handoffs,
                .others_poll = polls() || !session_->master_of(spec_->key()).allows_all_keys()};
    }

    bool polls() const {
        return spec_->options.wait_strategy == WaitStrategy::polling || session_->several();
    }

    Result<HoldRef> enter() {
        auto admission = session_->locks().enter({.terms = terms_,
                                                  .owner = owner_,
                                                  .caller = caller_,
                                                  .wait = options_->wait,
                                                  .deadline = core_.deadline(),
                                                  .stop = options_->stop,
                                                  .acquisition = acquisition_,
                                                  .handoffs = handoff_limit()});
        for (const auto& hold : admission.expired) session_->declare_lost(hold);
        switch (admission.answer) {
            case LockTable::Answer::turn: return contend(*std::move(admission.turn));
            case LockTable::Answer::handed: return follow(std::move(admission.hold));
            case LockTable::Answer::nested: return nest(admission.hold, admission.count);
            case LockTable::Answer::busy:
                return Unexpected{admission.fault ? *admission.fault
                                                  : core_.out_of_turn(Clock::now())};
            case LockTable::Answer::deadlock: return failed(Errc::deadlock, {});
            case LockTable::Answer::cancelled: return failed(Errc::cancelled, by_caller);
            case LockTable::Answer::closed: return failed(Errc::cancelled, by_close);
            case LockTable::Answer::wrong_key_type:
                return failed(Errc::wrong_type, "in use here with a policy of another key type");
        }
        return failed(Errc::protocol, {});
    }

    /// The thread before us has passed the lock on. If that took longer than it lasts, it is worth
    /// nothing.
    Result<HoldRef> follow(std::shared_ptr<Hold> hold) {
        if (auto enlisted = enlist(*hold); !enlisted) {
            let_go(*hold);
            return Unexpected{std::move(enlisted).error()};
        }
        if (!hold->valid(Clock::now())) {
            session_->dismiss(*hold);
            let_go(*hold);
            return enter();
        }
        watch_over(hold, hold->refreshed_at());
        return HoldRef{std::move(hold), acquisition_.id};
    }

    /// Ends an acquisition that nobody gets, without waiting for the server. Its count of a nest is
    /// there for people.
    void let_go(const Hold& hold) {
        const auto ending = session_->locks().end_acquisition(hold, acquisition_.id);
        if (ending.watched) session_->renewal().dismiss_one(*ending.hold);
        if (ending.kind != LockTable::Ending::Kind::last) return;
        session_->dismiss(*ending.hold);
        constexpr bool may_have = true;
        session_->clean_up(ending.hold,
                           after_abandoned_try(may_have, ending.hold->may_come_to_life()));
        ending.hold->advance(Phase::releasing, Phase::released);
        session_->locks().released(*ending.hold);
    }

    /// Asks the server until the core is content or gives up.
    Result<HoldRef> contend(LockTable::Turn turn) {
        standing_ = first_standing(turn);
        auto hold = new_hold();
        if (auto enlisted = enlist(*hold); !enlisted) {
            return give_up(std::move(turn), hold, std::move(enlisted).error());
        }
        AcquireAction action = core_.begin(Clock::now());
        for (;;) {
            if (auto* over = std::get_if<GiveUp>(&action)) {
                return give_up(std::move(turn), hold, std::move(over->error));
            }
            if (std::holds_alternative<Granted>(action)) {
                return keep(std::move(turn), std::move(hold));
            }
            if (const auto* pause = std::get_if<Pause>(&action)) {
                const LockTable::Woken woken = turn.pause(pause->until, options_->stop);
                action = woken == LockTable::Woken::granted
                             ? granted(turn.take_grant(), Clock::now())
                             : wake(woken);
                continue;
            }
            if (options_->stop.stop_requested()) {
                action = core_.cancelled(by_caller);
                continue;
            }
            const auto& next = std::get<SendTry>(action);
            answer_by_ = next.answer_by;
            action = send_try(turn, *hold, next.last, {next.answer_by, options_->stop});
            if (fault_ != std::exchange(told_fault_, fault_)) turn.met(fault_);
            if (standing_.dead() && std::holds_alternative<Pause>(action)) {
                abandon(hold);
                standing_ = Standing{session_->new_token(owner_).bytes};
                hold = new_hold();
                if (auto enlisted = enlist(*hold); !enlisted) {
                    return give_up(std::move(turn), hold, std::move(enlisted).error());
                }
            }
        }
    }

    /// What ended a pause, as the core understands it.
    AcquireAction wake(LockTable::Woken woken) {
        const TimePoint now = Clock::now();
        switch (woken) {
            case LockTable::Woken::cancelled: return core_.cancelled(by_caller);
            case LockTable::Woken::closed: return core_.cancelled(by_close);
            case LockTable::Woken::lost: return GiveUp{outer_is_gone()};
            case LockTable::Woken::granted:
            case LockTable::Woken::in_time:
            case LockTable::Woken::recheck: break;
        }
        return core_.pause_over(now);
    }

    /// A message says that the lock is ours. What cannot be believed on its own, the server is asked.
    AcquireAction granted(const std::optional<Grant>& grant, TimePoint now) {
        const Drift& drift = terms_.drift;
        const auto since = grant ? standing_.granted(*grant, now, drift.factor) : std::nullopt;
        // Replicas can only be asked on the connection that has written.
        const bool complete = terms_.replicas == Replicas::none() &&
                              (!terms_.traits.fenced || (grant && grant->fence != 0));
        if (!since || !complete || now >= valid_until(*since, lease_, drift)) {
            return core_.pause_over(now);
        }
        fault_ = nullptr;
        fence_ = grant->fence;
        others_wait_ = true;  // as they did when we began to; the next command will tell
        sent_ = *since;
        return core_.taken(sent_, now);
    }

    /// A new token, or the one that the thread before us has left with a place in the queue. A place
    /// that was taken for a lock with or without a fencing token is of no use for the other kind.
    Standing first_standing(const LockTable::Turn& turn) {
        if (auto queue_place = turn.inherited()) {
            Standing place =
                Standing::inherited(queue_place->token.bytes, queue_place->unclear_try);
            const PolicyTraits& traits = queue_place->terms.traits;
            if (traits.scripts == spec_->traits.scripts && traits.fenced == spec_->traits.fenced) {
                return place;
            }
            session_->clean_up(*std::move(queue_place));
        }
        return Standing{session_->new_token(owner_).bytes};
    }

    std::shared_ptr<Hold> new_hold() {
        announced_ = false;
        unsure_ = false;
        auto hold = std::make_shared<Hold>(terms_, Token{standing_.token()}, owner_);
        if (session_->several()) hold->votes = std::make_shared<Votes>();
        return hold;
    }

    /// Where the hold will be renewed, that is made ready before it is asked for.
    Result<void> enlist(Hold& hold) {
        if (!acquisition_.watched) return {};
        hold.renewed_by_watchdog = true;
        return session_->renewal().enlist(hold);
    }

    /// The lock was not had. Whoever waits behind us in this process goes on with our place.
    Result<HoldRef> give_up(LockTable::Turn turn, const std::shared_ptr<Hold>& hold, Error error) {
        if (standing_.can_be_bequeathed() && turn.bequeath(standing_.unclear())) {
            session_->dismiss(*hold);
        } else {
            abandon(hold);
        }
        return Unexpected{std::move(error)};
    }

    /// Nobody uses the token any more: what it may have at the server, or get there late, is undone.
    void abandon(const std::shared_ptr<Hold>& hold) {
        session_->dismiss(*hold);
        if (!standing_.must_be_released() || give_votes_back(hold)) return;
        session_->clean_up(hold,
                           after_abandoned_try(standing_.must_be_released(), standing_.unclear()));
    }

    /// Of several masters, those that have given us their votes are needed by others, and by our own next
    /// try. Whether they all have them back for certain.
    bool give_votes_back(const std::shared_ptr<Hold>& hold) {
        if (hold->votes == nullptr) return false;
        Spread spread{.settled = [session = session_, hold](bool answered) {
            if (!answered) session->clean_up(hold, after_silent_master());
        }};
        const Call release = release_call(*hold);
        const Limit limit{answer_by_, options_->stop};
        static_cast<void>(session_->run(hold->key(), release, release, limit, spread));
        const std::uint64_t told = spread.answered | spread.late;
        return !unsure_ && (hold->votes->asked & ~told) == 0;
    }

    Result<HoldRef> keep(LockTable::Turn turn, std::shared_ptr<Hold> hold) {
        hold->unclear_try = standing_.unclear();
        hold->nest.push_back(acquisition_);
        hold->fence = fence_;
        hold->taken(sent_);
        watch_over(hold, sent_);
        if (turn.finish(hold, others_wait_)) return HoldRef{std::move(hold), acquisition_.id};
        return closed_meanwhile(*hold);
    }

    /// The services that are wanted look after the hold from now on.
    void watch_over(const std::shared_ptr<Hold>& hold, TimePoint refreshed) {
        if (hold->renewed_by_watchdog) session_->renewal().arm(hold, refreshed);
        if (session_->observed()) session_->watch_clock(hold);
    }

    /// The client was closed while the answer was on its way.
    Result<HoldRef> closed_meanwhile(Hold& hold) {
        session_->dismiss(hold);
        session_->release_now(hold);
        hold.advance(Phase::held, Phase::released);
        return failed(Errc::cancelled, by_close);
    }

    /// One try, with what the server says about it as the core understands it. The first one of a
    /// lock in the form that everybody uses is the plain command, the cheapest there is. Its
    /// answer "no" tells neither why nor for how long, so then the script asks at once. Where others
    /// have wanted the lock lately, the script comes first; and where several masters decide, so that
    /// a vote which is of no use is held no longer than one round.
    AcquireAction send_try(LockTable::Turn& turn, const Hold& hold, bool last, const Limit& limit) {
        Contention& contention = session_->contention();
        const bool first = core_.tries() == 1 && !standing_.queued() && !session_->several();
        if (first && takes_plain_set(spec_->traits) &&
            !contention.lately(hold.key(), Clock::now())) {
            const std::int64_t ttl = hold.server_ttl(lease_);
            const Call plain = Call::plain({"SET", hold.key(), hold.token().bytes, "NX", "PX", ttl},
                                           Answer::ok_or_nil);
            auto reply = send(hold, plain, acquire_call(hold, {}, false), limit);
            if (!reply || !reply->view().is_nil()) return read(hold, {}, reply);
            contention.note(hold.key(), sent_);
        }
        const auto stay = time_to_stay(turn, last);
        if (stay > stay.zero() && !std::exchange(announced_, true)) turn.announce(hold);
        const bool hears = stay > stay.zero() && session_->subscription(hold.key()).is_possible();
        const Call script = acquire_call(hold, stay, hears);
        return read(hold, stay, send(hold, script, script, limit));
    }

    std::chrono::milliseconds time_to_stay(const LockTable::Turn& turn, bool last) const {
        if (polls()) return {};
        return standing_.stay(last, last && turn.has_heirs(), core_.silence(Clock::now()));
    }

    Expected<Reply, Fault> send(const Hold& hold, const Call& call, const Call& again,
                                const Limit& limit) {
        sent_ = Clock::now();
        const Replicas replicas = terms_.replicas;
        Spread spread{.settled = count_down(hold)};
        auto reply = session_->run(hold.key(), call.for_replicas(replicas),
                                   again.for_replicas(replicas), limit, spread);
        if (hold.votes != nullptr) {
            hold.votes->asked |= spread.asked;
            hold.votes->unsettled += std::popcount(spread.late);
        }
        const std::uint64_t unanswered = spread.asked & ~spread.answered;
        unsure_ = unsure_ || unanswered != 0;
        has_votes_ = (unanswered | spread.agreed) != 0;
        return reply;
    }

    /// For masters that answer when the others have decided already.
    static Settled count_down(const Hold& hold) {
        if (hold.votes == nullptr) return {};
        return [votes = hold.votes](bool answered) {
            if (answered) --votes->unsettled;
        };
    }

    AcquireAction read(const Hold& hold, std::chrono::milliseconds stay,
                       const Expected<Reply, Fault>& reply) {
        const TimePoint now = Clock::now();
        if (!reply) return failed_try(hold, stay, now, reply.error());
        fault_ = nullptr;
        if (reply->repeated) standing_.repeated();
        const ReplyView answer = reply->view();
        others_wait_ = false;
        if (reply->replicas < reply->replicas_wanted) return not_replicated(hold, *reply, now);
        if (answer.is_status("OK")) return taken(now);
        if (answer.fits(Answer::acquired)) {
            if (answer[0].integer() == 1 && is_complete(answer)) {
                others_wait_ = answer.size() > 2U && answer[2].integer() > 0;
                return settle_fence(hold, stay);
            }
            if (has_votes_) standing_.die();  // somebody else may need them
            if (answer[0].integer() == 0) return core_.refused(now, refusal(hold, *reply, now));
        }
        return failed_try(hold, stay, now, unexpected_reply());
    }

    /// Each of several masters gives a fencing token of its own. The greatest of a majority's is greater
    /// than all before, and stays so for those to come when a majority has stored it.
    AcquireAction settle_fence(const Hold& hold, std::chrono::milliseconds stay) {
        if (!terms_.traits.fenced || !session_->several()) return taken(Clock::now());
        const Limit limit{answer_by_, options_->stop};
        const Call store = store_fence_call(hold, lease_, fence_);
        auto stored = session_->run(hold.key(), store, limit);
        const TimePoint now = Clock::now();
        if (stored && stored->view().integer() == 1) return taken(now);
        Fault fault =
            stored ? io_fault("some masters have lost it again") : std::move(stored).error();
        fault.maybe_executed = true;
        return failed_try(hold, stay, now, std::move(fault));
    }

    /// Whether an answer "yours" brings the fencing token along, if one is wanted.
    bool is_complete(const ReplyView& answer) {
        const bool has_fence = answer.size() == 5U && answer[4].integer() > 0;
        fence_ = has_fence ? static_cast<std::uint64_t>(*answer[4].integer()) : 0;
        return has_fence || !terms_.traits.fenced;
    }

    /// What an answer "not yours" says.
    Refusal refusal(const Hold& hold, const Reply& reply, TimePoint now) {
        session_->contention().note(hold.key(), now);
        const ReplyView answer = reply.view();
        const auto number = [&answer](std::size_t i) { return *answer[i].integer(); };
        Refusal refusal{.ttl = std::chrono::milliseconds{number(1)}};
        if (answer.size() == 6U) refusal.owner = *answer[5].string();
        const std::int64_t place = answer.size() >= 5U ? number(2) : -1;
        if (place < 0) {
            standing_.refused(place);
            return refusal;
        }
        Subscription& subscription = session_->subscription(hold.key());
        subscription.start();
        standing_.refused(
            place,
            {.sent = sent_,
             .time = answer.time(Answer::acquired).value_or(std::chrono::microseconds::zero()),
             .ttl = std::chrono::milliseconds{hold.server_ttl(lease_)},
             .server = reply.server});
        const bool will_be_told = subscription.is_listening() && number(4) == 1;
        if (will_be_told) refusal.place = place;
        return refusal;
    }

    AcquireAction taken(TimePoint now) {
        standing_.taken();
        AcquireAction action = core_.taken(sent_, now);
        if (!std::holds_alternative<Granted>(action)) standing_.die();
        return action;
    }

    /// The lock is ours, and would be lost with this server: it stays so while there is time to ask
    /// the replicas again, and is given back at the end of that.
    AcquireAction not_replicated(const Hold& hold, const Reply& reply, TimePoint now) {
        standing_.taken();
        standing_.repeated();
        Fault fault{.error = {Errc::not_replicated,
                              {},
                              session_->master_of(hold.key()).name(),
                              std::to_string(reply.replicas) + " of " +
                                  std::to_string(reply.replicas_wanted) + " replicas have it",
                              {}}};
        return core_.fault(now, told(hold, std::move(fault)));
    }

    AcquireAction failed_try(const Hold& hold, std::chrono::milliseconds stay, TimePoint now,
                             Fault fault) {
        standing_.failed(stay, fault.maybe_executed);
        if (has_votes_) standing_.die();
        return core_.fault(now, told(hold, std::move(fault)));
    }

    /// The fault, after those who wait behind us and the observer were told of it.
    Fault told(const Hold& hold, Fault fault) {
        fault.error.key = hold.key();
        if (fault.error.code != Errc::cancelled) {
            session_->tell_error(fault.error);
            fault_ = std::make_shared<const Error>(fault.error);
        }
        return fault;
    }

    /// Another acquisition of a hold that the thread has: nobody is waited for, only the server.
    Result<HoldRef> nest(const std::shared_ptr<Hold>& hold, std::uint64_t count) {
        const bool watch = acquisition_.watched;
        if (auto enlisted = enlist(*hold); !enlisted) {
            return undo_nest(hold, std::move(enlisted).error());
        }
        AcquireAction action = core_.begin(Clock::now());
        for (;;) {
            if (const auto* give_up = std::get_if<GiveUp>(&action)) {
                return undo_nest(hold, give_up->error);
            }
            if (std::holds_alternative<Granted>(action)) {
                if (!hold->confirm_in_time(Clock::now(), sent_, nested_lease(*hold))) {
                    return undo_nest(hold, outer_is_gone());
                }
                if (watch) session_->renewal().arm(hold, sent_);
                return HoldRef{hold, acquisition_.id};
            }
            if (const auto* pause = std::get_if<Pause>(&action)) {
                action = wake(session_->locks().pause(*hold, pause->until, options_->stop));
                continue;
            }
            const TimePoint answer_by = std::get<SendTry>(action).answer_by;
            action =
                send_nest(hold, count, {std::min(answer_by, hold->valid_until()), options_->stop});
        }
    }

    AcquireAction send_nest(const std::shared_ptr<Hold>& hold, std::uint64_t count,
                            const Limit& limit) {
        sent_ = Clock::now();
        const Call call = nest_call(*hold, count, hold->server_ttl(nested_lease(*hold)));
        const auto reply = session_->run(hold->key(), call, limit);
        const TimePoint now = Clock::now();
        if (!reply) {
            if (reply.error().maybe_executed) hold->may_be_prolonged = true;
            return core_.fault(now, told(*hold, reply.error()));
        }
        const auto done = reply->view().integer();
        if (done == 1) return core_.taken(sent_, now);
        if (done != 0) return core_.fault(now, told(*hold, unexpected_reply()));
        session_->declare_lost(hold);
        return GiveUp{outer_is_gone()};
    }

    static Error outer_is_gone() { return {Errc::lost, {}, {}, "the outer hold is gone", {}}; }

    /// What a nested try asks for: the outer hold's `max_hold` is not passed.
    Lease nested_lease(const Hold& hold) const {
        return renewal_lease(lease_, sent_, hold.last_end());
    }

    /// A try without an answer may yet have prolonged a hold that is lost.
    Result<HoldRef> undo_nest(const std::shared_ptr<Hold>& hold, Error error) {
        if (error.code == Errc::lost) session_->declare_lost(hold, ServerKeeps::lock);
        let_go(*hold);
        return Unexpected{std::move(error)};
    }

    static constexpr const char* by_caller = "cancelled by the caller";
    static constexpr const char* by_close = "the client was closed";

    static Result<HoldRef> failed(Errc code, std::string message) {
        return Unexpected{Error{code, {}, {}, std::move(message), {}}};
    }

    void tell_acquired() {
        if (!session_->observed()) return;
        const Observer::Acquired event{spec_->key(), Clock::now() - started_, core_.tries()};
        session_->observe([event](Observer& observer) { observer.acquired(event); });
    }

    void tell_timed_out() {
        if (!session_->observed()) return;
        const Observer::TimedOut event{spec_->key(), Clock::now() - started_, core_.tries()};
        session_->observe([event](Observer& observer) { observer.timed_out(event); });
    }

    Session* session_;
    const LockSpec* spec_;
    const Lease lease_;
    const AcquireOptions* options_;
    const HoldTerms terms_{.keys = spec_->keys,
                           .traits = spec_->traits,
                           .lease = lease_,
                           .drift = spec_->options.drift,
                           .lock_delay = spec_->options.lock_delay,
                           .max_hold = spec_->options.max_hold,
                           .replicas = spec_->options.replicas};
    const TimePoint started_ = Clock::now();
    const LockOwner caller_ = this_thread();
    const Acquisition acquisition_;
    const LockOwner owner_ =
        options_->owner == Owner::hold ? LockOwner::acquisition(acquisition_.id) : caller_;
    AcquireCore core_;
    TimePoint sent_{};        // just before the try that is under way
    TimePoint answer_by_{};   // the end of that try
    bool has_votes_ = false;  // some of several masters have, or may have, done it
    bool unsure_ = false;     // one of them has been asked with this token and not answered
    std::shared_ptr<const Error> fault_;       // of the last try
    std::shared_ptr<const Error> told_fault_;  // what the lock table knows of that
    Standing standing_{{}};                    // of the token that we ask with
    bool announced_ = false;                   // the lock table knows that token
    std::uint64_t fence_ = 0;                  // of the lock that was taken; 0 without one
    bool others_wait_ = false;                 // other processes, as the server said last
};

}  // namespace redlatch::inline v0::detail
