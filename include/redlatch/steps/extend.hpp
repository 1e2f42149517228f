#pragma once

#include <redlatch/core/extension.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/check_lock.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// What is the same for a thread and for an operation that set a hold's lease anew: all that waits for
/// nothing.
class ExtensionSteps {
public:
    ExtensionSteps(const ExtensionSteps&) = delete;
    ExtensionSteps& operator=(const ExtensionSteps&) = delete;

protected:
    using Machine = ExtensionMachine;
    using Action = Machine::Action;

    ExtensionSteps(Session& session, std::shared_ptr<Hold> hold, Lease lease,
                   TimePoint give_up_at = TimePoint::max())
        : session_(&session),
          hold_(std::move(hold)),
          lease_(lease),
          give_up_at_(give_up_at),
          machine_(new_machine()) {}

    ~ExtensionSteps() = default;

    /// Its time begins only now.
    void restart_clock() { machine_ = new_machine(); }

    Result<void> outcome(Machine::Done done) const {
        if (!done.outcome) done.outcome.error().key = hold_->key();
        return std::move(done.outcome);
    }

    Action begin() {
        const TimePoint now = Clock::now();
        return machine_.begin(now, hold_->begin_extension(now));
    }

    Action answered(Expected<Reply, Fault> reply) {
        if (!reply) return failed(std::move(reply).error());
        const auto done = reply->view().integer();
        if (done != 0 && done != 1) return failed(unexpected_reply());
        return machine_.answered(done == 1);
    }

    Action carry_out(const Machine::Confirm& confirm) {
        return machine_.confirmed(
            hold_->confirm_in_time(Clock::now(), confirm.sent, confirm.lease));
    }

    Action carry_out(const Machine::NoteProlonged&) {
        hold_->may_be_prolonged = true;
        return machine_.noted(hold_->in(Phase::lost));
    }

    Action carry_out(const Machine::DeclareLost& lost) {
        session_->declare_lost(hold_, lost.server);
        return machine_.declared_lost(hold_->in(Phase::lost));
    }

    Action failed(Fault fault) {
        fault.error.key = hold_->key();
        if (fault.error.code != Errc::cancelled) session_->events().error(fault.error);
        return machine_.failed(std::move(fault), Clock::now(), hold_->is_given_up());
    }

private:
    Machine new_machine() const {
        const TimePoint by = saturating_add(Clock::now(), session_->command_timeout());
        return Machine{{.lease = lease_,
                        .last_end = hold_->last_end(),
                        .give_up_at = std::min(give_up_at_, by)}};
    }

protected:
    Session* session_;
    const std::shared_ptr<Hold> hold_;
    const Lease lease_;
    const TimePoint give_up_at_;
    ExtensionMachine machine_;
};

/// Sets a hold's lease anew on the calling thread, as the extension machine decides. Takes at most
/// `command_timeout`, and ends soon after a stop.
class Extending : private ExtensionSteps {
public:
    Extending(Session& session, std::shared_ptr<Hold> hold, Lease lease, const Limit& limit)
        : ExtensionSteps(session, std::move(hold), lease, limit.at), stop_(limit.stop) {}

    Result<void> run() {
        Action action = begin();
        while (!holds_alternative<Machine::Done>(action)) {
            action = visit([this](const auto& wanted) { return carry_out(wanted); }, action);
        }
        return outcome(get<Machine::Done>(std::move(action)));
    }

private:
    using ExtensionSteps::carry_out;

    Action carry_out(const Machine::SendExtend& send) {
        const Call call = extend_call(*hold_, send.lease, send.lock_alone);
        QuorumProgress progress{.rank = CommandRank::extension, .speaks_for = hold_->token().bytes};
        return answered(session_->run(call, call, {send.answer_by, stop_}, progress));
    }

    Action carry_out(const Machine::RetryAt& retry) {
        std::this_thread::sleep_for(saturating_sub(retry.time, Clock::now()));
        return begin();
    }

    Action carry_out(const Machine::Done& done) { return done; }

    const std::stop_token stop_;
};

/// Whether a hold may get that lease.
inline Result<void> check_extension(const Session& session, const Hold& hold, Lease lease) {
    auto fits = check_lease(lease, hold.terms().drift);
    const std::chrono::milliseconds whole{hold.server_ttl(lease)};
    if (fits) fits = check_longest(whole, session.longest_lease());
    if (!fits) fits.error().key = hold.key();
    return fits;
}

inline Result<void> extend_hold(Session& session, const std::shared_ptr<Hold>& hold, Lease lease,
                                const Limit& limit = {}) {
    if (auto fits = check_extension(session, *hold, lease); !fits) return fits;
    return Extending{session, hold, lease, limit}.run();
}

}  // namespace redlatch::inline v0::detail
