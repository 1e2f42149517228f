#pragma once

#include <redlatch/steps/acquisition_steps.hpp>
#include <redlatch/steps/thread_serial.hpp>

#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

namespace redlatch::inline v0::detail {

/// Takes a lock, once, on the calling thread: carries out what the machines say.
class Acquiring : private AcquisitionSteps {
public:
    /// `through`: the `LockImpl` that a thread-owned acquisition is made with; null for a `Held`.
    Acquiring(Session& session, const LockSpec& spec, Lease lease, const AcquireOptions& options,
              const void* through)
        : Acquiring(session, spec, lease, options.stop, own_request(options, through)) {}

    /// For a set, which delivers it with others.
    Acquiring(Session& session, const LockSpec& spec, Lease lease, const AcquireOptions& options,
              const void* through, TimePoint answer_by)
        : Acquiring(session, spec, lease, options.stop,
                    set_request(own_request(options, through), answer_by)) {
        restart_clock();
    }

    Result<HoldRef> run() {
        const OpenCalls::Call call{session_->open_calls()};
        if (would_wait_for_its_reading()) {
            return told(Unexpected{Error{
                Errc::deadlock, {}, {}, "it reads, and has to end that before it writes", {}}});
        }
        try {
            while (!result_) enter();
        } catch (...) {
            abandon_counted();
            throw;
        }
        return told(*std::exchange(result_, std::nullopt));
    }

    /// One more acquisition of `hold`, whoever owns it.
    Result<HoldRef> nest_in(std::shared_ptr<Hold> hold) {
        const auto count = session_->locks().nest(*hold, Nest{acquisition_});
        if (!count) return told(Unexpected{not_held()});
        drive(begin_nesting(std::move(hold), *count));
        return told(*std::exchange(result_, std::nullopt));
    }

private:
    Acquiring(Session& session, const LockSpec& spec, Lease lease, const std::stop_token& stop,
              const Request& request)
        : AcquisitionSteps(session, spec, lease, request), stop_(&stop) {}

    static Request own_request(const AcquireOptions& options, const void* through) {
        return {.wait = options.wait,
                .caller = this_thread(),
                .owner = options.owner,
                .through = through};
    }
    static Request set_request(Request request, TimePoint answer_by) {
        request.delivered_later = true;
        request.answer_by = answer_by;
        return request;
    }

    /// Asks the lock table, and goes on to the end. Leaves no result where the hold that was handed over had ended by
    /// then: it is to be called again.
    void enter() {
        auto admission = session_->locks().enter(ask(), *stop_, [this] { begin_to_wait(); });
        if (admission.expired != nullptr) session_->declare_lost(admission.expired);
        switch (admission.outcome) {
            case LockTable::Outcome::turn: return drive(contend(*std::move(admission.turn)));
            case LockTable::Outcome::handed: return drive(take_over(std::move(admission.hold)));
            case LockTable::Outcome::nested:
                return drive(begin_nesting(std::move(admission.hold), admission.count));
            default: break;
        }
        return drive(machine().not_admitted(admission.outcome, admission.busy, Clock::now()));
    }

    template <class Action>
    void drive(Action first) {
        std::optional<Action> next{std::move(first)};
        while (next) {
            next = visit([this](const auto& action) { return this->carry_out(action); }, *next);
        }
    }

    using AcquisitionSteps::carry_out;

    Next carry_out(const SendSet& send) {
        return try_once(plain_set(*hold_), script(*session_, *hold_, {}), send.answer_by);
    }

    Next carry_out(const SendScript& send) {
        if (send.announce) turn_->announce(*hold_);
        const Call call = script(*session_, *hold_, send.queue_ttl);
        return try_once(call, call, send.answer_by);
    }

    Next try_once(const Call& call, const Call& again, TimePoint answer_by) {
        if (stop_->stop_requested()) return machine().cancelled();
        const TimePoint sent = Clock::now();
        QuorumProgress progress{.on_late_reply = late_answer(),
                                .token = machine().token().at_masters().get(),
                                .speaks_for = hold_->token().bytes};
        const auto reply = session_->run(call, again, {answer_by, *stop_}, progress);
        return try_answered(reply, progress.masters, sent);
    }

    Next carry_out(const StoreFence& store) {
        const Call call = store_fence_call(*hold_, lease_, store.fence);
        return fence_answered(session_->run(call, {store.answer_by, *stop_}));
    }

    Next carry_out(const SleepUntil& sleep) {
        begin_to_wait();
        if (sleep.announce) turn_->announce(*hold_);
        if (sleep.subscribe) session_->subscription(hold_->key()).start();
        return pause_ended(turn_->pause(sleep.until, *stop_));
    }

    Next carry_out(const ReturnVotes& votes) {
        session_->dismiss(*hold_);
        QuorumProgress progress{.on_late_reply = clean_up_if_silent(),
                                .token = machine().token().at_masters().get(),
                                .rank = CommandRank::release,
                                .speaks_for = hold_->token().bytes};
        const Call release = release_call(*hold_);
        const Limit limit{votes.answer_by, *stop_};
        static_cast<void>(session_->run(release, release, limit, progress));
        return machine().votes_returned(progress.masters);
    }

    Next carry_out(const AskToJoin& question) {
        if (stop_->stop_requested()) return machine().cancelled();
        const auto with = hold_to_ask_with();
        const TimePoint sent = Clock::now();
        return join_asked(with, session_->run(ask_call(*with), {question.answer_by, *stop_}), sent);
    }

    Next carry_out(const LetGo& let_go) {
        this->let_go();
        if (!let_go.ask_again) result_.emplace(Unexpected{machine().error()});
        return std::nullopt;
    }

    NextNest carry_out(const SendNest& send) {
        if (stop_->stop_requested()) {
            return nesting_->woken(Woken::cancelled, Clock::now(), hold_->valid_until());
        }
        const TimePoint sent = Clock::now();
        const Call call = nest_call(*hold_, count_, hold_->server_ttl(send.lease));
        QuorumProgress progress{.rank = CommandRank::extension};
        return nest_answered(session_->run(call, call, {send.answer_by, *stop_}, progress), sent);
    }

    NextNest carry_out(const NestSleep& sleep) {
        begin_to_wait();
        const auto woken = session_->locks().pause(*hold_, sleep.until, *stop_);
        return nesting_->woken(woken, Clock::now(), hold_->valid_until());
    }

    const std::stop_token* stop_;
};

/// Whether a try with that wait answers "no" for the error: somebody has the lock, the caller too, who reads.
inline bool is_refusal(const Error& error, Wait wait) noexcept {
    const bool upgrades = error.code == Errc::deadlock && !wait.is_unlimited();
    return upgrades || error.code == Errc::timed_out;
}

}  // namespace redlatch::inline v0::detail
