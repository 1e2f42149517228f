#pragma once

#include <redlatch/core/extension.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/check_lock.hpp>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <variant>

namespace redlatch::inline v0::detail {

/// Sets a hold's lease anew, as the extension machine decides. Takes at most `command_timeout`.
class Extending {
    using Machine = ExtensionMachine;
    using Action = Machine::Action;

public:
    Extending(Session& session, std::shared_ptr<Hold> hold, Lease lease)
        : session_(&session),
          hold_(std::move(hold)),
          machine_({.lease = lease,
                    .last_end = hold_->last_end(),
                    .give_up_at = saturating_add(Clock::now(), session.command_timeout())}) {}

    Result<void> run() {
        Action action = begin();
        while (!std::holds_alternative<Machine::Done>(action)) {
            action = std::visit([this](const auto& wanted) { return carry_out(wanted); }, action);
        }
        Result<void> outcome = std::get<Machine::Done>(std::move(action)).outcome;
        if (!outcome) outcome.error().key = hold_->key();
        return outcome;
    }

private:
    Action begin() {
        const TimePoint now = Clock::now();
        return machine_.begin(now, hold_->valid(now));
    }

    Action carry_out(const Machine::SendExtend& send) {
        auto reply = session_->run(hold_->key(), extend_call(*hold_, send.lease), {send.answer_by});
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
        return machine_.next();
    }

    Action carry_out(const Machine::DeclareLost& lost) {
        session_->declare_lost(hold_, lost.server);
        return machine_.declared_lost(hold_->in(Phase::lost));
    }

    Action carry_out(const Machine::RetryAt& retry) {
        std::this_thread::sleep_for(saturating_sub(retry.time, Clock::now()));
        return begin();
    }

    Action carry_out(const Machine::Done& done) { return done; }

    Action failed(Fault fault) {
        fault.error.key = hold_->key();
        session_->tell_error(fault.error);
        return machine_.failed(std::move(fault), Clock::now());
    }

    Session* session_;
    const std::shared_ptr<Hold> hold_;
    ExtensionMachine machine_;
};

inline Result<void> extend_hold(Session& session, const std::shared_ptr<Hold>& hold, Lease lease) {
    const std::chrono::milliseconds whole{hold->server_ttl(lease)};
    if (auto fits = check_longest(whole, session.longest_lease()); !fits) {
        fits.error().key = hold->key();
        return fits;
    }
    return Extending{session, hold, lease}.run();
}

}  // namespace redlatch::inline v0::detail
