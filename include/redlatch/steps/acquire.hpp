#pragma once

#include <redlatch/core/acquire.hpp>
#include <redlatch/core/renew.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/steps/release.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>

namespace redlatch::inline v0::detail {

/// One acquisition that succeeded: the hold it belongs to, and its own number there.
struct Grip {
    std::shared_ptr<Hold> hold;
    std::uint64_t id = 0;
};

/// Takes a lock, once: asks the gate, then does at the server what the core decides.
class Acquiring {
public:
    /// `through`: the `Lock` that a thread-owned acquisition is made with; null for a `Held`.
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

    Result<Grip> run() {
        Result<Grip> grip = enter();
        if (grip) {
            tell_acquired();
        } else {
            grip.error().key = spec_->key;
            if (grip.error().code == Errc::timed_out) tell_timed_out();
        }
        return grip;
    }

private:
    AcquirePlan plan() const {
        return {.wait = options_->wait,
                .lease = lease_,
                .drift = spec_->options.drift,
                .backoff = spec_->options.backoff,
                .command_timeout = session_->command_timeout()};
    }

    Result<Grip> enter() {
        auto admission = session_->gate().enter({.key = spec_->key,
                                                 .traits = spec_->traits,
                                                 .thread = thread_,
                                                 .wait = options_->wait,
                                                 .deadline = core_.deadline(),
                                                 .stop = options_->stop,
                                                 .acquisition = acquisition_});
        for (const auto& hold : admission.run_out) session_->declare_lost(hold);
        switch (admission.answer) {
            case Gate::Answer::turn: return contend(*std::move(admission.turn));
            case Gate::Answer::nested: return nest(admission.hold, admission.count);
            case Gate::Answer::busy:
                return Unexpected{admission.fault ? *admission.fault : core_.out_of_time()};
            case Gate::Answer::deadlock: return failed(Errc::deadlock, {});
            case Gate::Answer::cancelled: return failed(Errc::cancelled, by_caller);
            case Gate::Answer::closed: return failed(Errc::cancelled, by_close);
            case Gate::Answer::wrong_shape:
                return failed(Errc::wrong_type, "in use here with a policy of another shape");
        }
        return failed(Errc::protocol, {});
    }

    /// Asks the server until the core is content or gives up.
    Result<Grip> contend(Gate::Turn turn) {
        auto hold = new_hold();
        if (!hold) return Unexpected{std::move(hold).error()};
        AcquireAction action = core_.begin(Clock::now());
        for (;;) {
            if (const auto* give_up = std::get_if<GiveUp>(&action)) {
                abandon(*hold);
                return Unexpected{give_up->error};
            }
            if (std::holds_alternative<Granted>(action)) {
                return keep(std::move(turn), *std::move(hold));
            }
            if (const auto* pause = std::get_if<Pause>(&action)) {
                const bool undisturbed = turn.pause(pause->until, options_->stop);
                action = undisturbed ? core_.pause_over(Clock::now()) : core_.cancelled(why());
                continue;
            }
            if (options_->stop.stop_requested()) {
                action = core_.cancelled(by_caller);
                continue;
            }
            if (token_is_dead_) {
                abandon(*hold);
                hold = new_hold();
                if (!hold) return Unexpected{std::move(hold).error()};
            }
            action = send_try(**hold, {std::get<SendTry>(action).answer_by, options_->stop});
            if (fault_ != std::exchange(told_fault_, fault_)) turn.met(fault_);
        }
    }

    Result<std::shared_ptr<Hold>> new_hold() {
        auto hold = std::make_shared<Hold>(HoldTerms{.key = spec_->key,
                                                     .traits = spec_->traits,
                                                     .lease = lease_,
                                                     .drift = spec_->options.drift,
                                                     .lock_delay = spec_->options.lock_delay,
                                                     .max_hold = spec_->options.max_hold},
                                           session_->new_token(thread_), thread_);
        token_is_dead_ = false;
        if (spec_->traits.watched) {
            if (auto enlisted = enlist(*hold); !enlisted) {
                return Unexpected{std::move(enlisted).error()};
            }
        }
        return hold;
    }

    Result<void> enlist(Hold& hold) {
        hold.renewed_by_watchdog = true;
        return session_->renewal().enlist(hold);
    }

    /// The lock was not had, as far as anybody knows.
    void abandon(const std::shared_ptr<Hold>& hold) {
        session_->dismiss(*hold);
        if (!hold->unclear_try) return;
        session_->renewal().bury(
            hold, {Clock::duration::zero(), Clock::duration{session_->command_timeout()}});
    }

    Result<Grip> keep(Gate::Turn turn, std::shared_ptr<Hold> hold) {
        hold->taken(sent_);
        hold->nest.push_back(acquisition_);
        if (hold->renewed_by_watchdog) session_->renewal().arm(hold, sent_);
        if (session_->observed()) session_->watch_clock(hold);
        if (turn.finish(hold)) return Grip{std::move(hold), acquisition_.id};

        // The client was closed while the answer was on its way.
        session_->dismiss(*hold);
        const Call release{hold->scripts().release, {hold->key()}, {hold->token().bytes}};
        static_cast<void>(
            session_->master_of(hold->key()).run(release, Limit::in(session_->command_timeout())));
        hold->advance(Phase::held, Phase::released);
        return failed(Errc::cancelled, by_close);
    }

    /// One try, with what the server says about it as the core understands it. The first one of a
    /// lock in the shape that everybody uses is the plain command, the cheapest there is. Its
    /// answer "no" tells neither why nor for how long, so then the script asks at once.
    AcquireAction send_try(Hold& hold, const Limit& limit) {
        const std::string_view key = hold.key();
        const std::string_view token = hold.token().bytes;
        const std::int64_t ttl = hold.server_ttl(lease_);
        const Call script{hold.scripts().acquire, {key}, {token, ttl}, Answer::pair};
        const bool first = core_.tries() == 1;
        if (first && spec_->traits.plain_set) {
            const Call plain = Call::plain({"SET", key, token, "NX", "PX", ttl}, Answer::ok_or_nil);
            auto reply = send(hold, plain, script, limit);
            if (!reply || !reply->view().is_nil()) return read(hold, reply);
        }
        return read(hold, send(hold, script, script, limit));
    }

    Expected<Reply, Fault> send(const Hold& hold, const Call& call, const Call& again,
                                const Limit& limit) {
        sent_ = Clock::now();
        return session_->master_of(hold.key()).run(call, again, limit);
    }

    AcquireAction read(Hold& hold, const Expected<Reply, Fault>& reply) {
        const TimePoint now = Clock::now();
        if (!reply) return failed_try(hold, now, reply.error());
        fault_ = nullptr;
        if (reply->repeated) hold.unclear_try = true;
        const ReplyView answer = reply->view();
        if (answer.is_status("OK")) return taken(hold, now);
        if (answer.fits(Answer::pair)) {
            const std::chrono::milliseconds ttl{*answer[1].integer()};
            if (answer[0].integer() == 1) return taken(hold, now);
            if (answer[0].integer() == 0) return core_.held_by_other(now, ttl);
        }
        return failed_try(hold, now, unexpected_reply());
    }

    AcquireAction taken(Hold& hold, TimePoint now) {
        AcquireAction action = core_.taken(sent_, now);
        if (!std::holds_alternative<Granted>(action)) {
            hold.unclear_try = true;  // it is at the server, and no use to anybody
            token_is_dead_ = true;
        }
        return action;
    }

    AcquireAction failed_try(Hold& hold, TimePoint now, Fault fault) {
        fault.error.key = hold.key();
        if (fault.maybe_executed) hold.unclear_try = true;
        if (fault.error.code != Errc::cancelled) {
            session_->tell_error(fault.error);
            fault_ = std::make_shared<const Error>(fault.error);
        }
        return core_.fault(now, std::move(fault));
    }

    /// Another acquisition of a hold that the thread has: nobody is waited for, only the server.
    Result<Grip> nest(const std::shared_ptr<Hold>& hold, std::uint64_t count) {
        const bool watch = acquisition_.watched;
        if (watch) {
            if (auto enlisted = enlist(*hold); !enlisted) {
                return undo_nest(hold, std::move(enlisted).error());
            }
        }
        AcquireAction action = core_.begin(Clock::now());
        for (;;) {
            if (const auto* give_up = std::get_if<GiveUp>(&action)) {
                return undo_nest(hold, give_up->error);
            }
            if (std::holds_alternative<Granted>(action)) {
                hold->confirm(sent_, nested_lease(*hold));
                if (!hold->in(Phase::held)) {
                    session_->renewal().bury(hold, {Clock::duration::zero()});
                    return undo_nest(hold, outer_is_gone());
                }
                if (watch) session_->renewal().arm(hold, sent_);
                return Grip{hold, acquisition_.id};
            }
            if (const auto* pause = std::get_if<Pause>(&action)) {
                const bool undisturbed = doze(pause->until);
                action = undisturbed ? core_.pause_over(Clock::now()) : core_.cancelled(why());
                continue;
            }
            action = send_nest(hold, count, {std::get<SendTry>(action).answer_by, options_->stop});
        }
    }

    AcquireAction send_nest(const std::shared_ptr<Hold>& hold, std::uint64_t count,
                            const Limit& limit) {
        sent_ = Clock::now();
        const Call call{hold->scripts().nest,
                        {hold->key()},
                        {hold->token().bytes, static_cast<std::int64_t>(count),
                         hold->server_ttl(nested_lease(*hold))}};
        const auto reply = session_->master_of(hold->key()).run(call, limit);
        const TimePoint now = Clock::now();
        if (!reply) return failed_try(*hold, now, reply.error());
        const auto done = reply->view().integer();
        if (done == 1) return core_.taken(sent_, now);
        if (done != 0) return failed_try(*hold, now, unexpected_reply());
        session_->declare_lost(hold);
        return GiveUp{outer_is_gone()};
    }

    static Error outer_is_gone() { return {Errc::lost, {}, {}, "the outer hold is gone", {}}; }

    /// What a nested try asks for: the outer hold's `max_hold` is not passed.
    Lease nested_lease(const Hold& hold) const {
        return renewal_lease(lease_, sent_, hold.last_end());
    }

    Result<Grip> undo_nest(const std::shared_ptr<Hold>& hold, Error error) {
        const auto ending = session_->gate().end_acquisition(*hold, acquisition_.id);
        static_cast<void>(Releasing{*session_}.end(ending));
        return Unexpected{std::move(error)};
    }

    /// Sleeps until `until`; false where the caller's stop token cut it short.
    bool doze(TimePoint until) const {
        std::mutex mutex;
        std::unique_lock lock{mutex};
        std::condition_variable_any never;
        while (!options_->stop.stop_requested() && Clock::now() < until) {
            never.wait_until(lock, options_->stop, on_steady_clock(until), [] { return false; });
        }
        return !options_->stop.stop_requested();
    }

    static constexpr const char* by_caller = "cancelled by the caller";
    static constexpr const char* by_close = "the client was closed";

    const char* why() const { return options_->stop.stop_requested() ? by_caller : by_close; }

    static Result<Grip> failed(Errc code, std::string message) {
        return Unexpected{Error{code, {}, {}, std::move(message), {}}};
    }

    void tell_acquired() {
        if (!session_->observed()) return;
        const Observer::Acquired event{spec_->key, Clock::now() - started_, core_.tries()};
        session_->observe([event](Observer& observer) { observer.acquired(event); });
    }

    void tell_timed_out() {
        if (!session_->observed()) return;
        const Observer::TimedOut event{spec_->key, Clock::now() - started_, core_.tries()};
        session_->observe([event](Observer& observer) { observer.timed_out(event); });
    }

    Session* session_;
    const LockSpec* spec_;
    const Lease lease_;
    const AcquireOptions* options_;
    const TimePoint started_ = Clock::now();
    const ThreadSerial thread_ = this_thread_serial();
    const Acquisition acquisition_;
    AcquireCore core_;
    TimePoint sent_{};                         // just before the try that is under way
    std::shared_ptr<const Error> fault_;       // of the last try
    std::shared_ptr<const Error> told_fault_;  // what the gate knows of that
    bool token_is_dead_ = false;               // a release of it has been, or will be, sent
};

}  // namespace redlatch::inline v0::detail
