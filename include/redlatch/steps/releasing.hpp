#pragma once

#include <redlatch/core/release.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

namespace redlatch::inline v0::detail {

/// Ends an acquisition at the server, as the release machine decides. Takes at most `command_timeout`.
class Releasing {
    using Machine = ReleaseMachine;
    using Action = Machine::Action;

public:
    explicit Releasing(Session& session) : session_(&session) {}

    Result<Release> end(const LockTable::Ending& ending) {
        return run(ending, ReleaseMode::confirmed).value_or(Release::not_held);
    }

    /// The same for a caller who does not wait for the outcome.
    void end(const LockTable::Ending& ending, ReleaseMode mode) {
        static_cast<void>(run(ending, mode));
    }

    /// The same for an acquisition that nobody gets, without waiting for the server.
    void abandon(const LockTable::Ending& ending) {
        if (ending.hold == nullptr) return;
        hold_ = ending.hold;
        static_cast<void>(
            carry_on(machine_.abandon(how(ending, ReleaseMode::sent, TimePoint::max()), heard())));
    }

    /// The caller holds nothing: a mistake that the observer hears of.
    Release tell_not_held(const std::string& key) {
        session_->observe([key](Observer& observer) {
            observer.released({key, {}, Release::not_held});
        });
        return Release::not_held;
    }

private:
    std::optional<Result<Release>> run(const LockTable::Ending& ending, ReleaseMode mode) {
        if (ending.hold == nullptr) return std::nullopt;
        hold_ = ending.hold;
        const TimePoint now = Clock::now();
        const TimePoint give_up_at = saturating_add(now, session_->command_timeout());
        auto outcome = carry_on(machine_.begin(how(ending, mode, give_up_at), now));
        if (outcome && !*outcome) outcome->error().key = hold_->key();
        if (outcome) inform(*session_, *hold_, *outcome, Clock::now());
        return outcome;
    }

    Machine::Ended how(const LockTable::Ending& ending, ReleaseMode mode,
                       TimePoint give_up_at) const {
        return {.kind = ending.kind,
                .count = ending.count,
                .watched = ending.watched,
                .has_heir = ending.can_hand_off,
                .unclear_try = hold_->open_tries.unclear,
                .valid_until = hold_->valid_until(),
                .kept_until = hold_->kept_until(),
                .masters = hold_->open_tries.masters(),
                .mode = mode,
                .give_up_at = give_up_at};
    }

    std::optional<Result<Release>> carry_on(Action action) {
        while (!std::holds_alternative<Machine::Done>(action)) {
            action = std::visit([this](const auto& wanted) { return carry_out(wanted); }, action);
        }
        return std::get<Machine::Done>(std::move(action)).outcome;
    }

    Action carry_out(const Machine::StopRenewal& stop) {
        if (stop.whole_hold) {
            session_->dismiss(*hold_);
        } else {
            session_->renewal().dismiss_one(*hold_);
        }
        return machine_.next();
    }

    Action carry_out(const Machine::SendCount& send) {
        constexpr std::int64_t ttl_as_it_is = 0;
        const auto reply = ask(nest_call(*hold_, send.count, ttl_as_it_is), send.answer_by);
        if (!reply) return failed(reply.error());
        return machine_.count_answered(reply->view().integer() != 0);
    }

    Action carry_out(const Machine::SendMove& send) {
        next_ = std::make_shared<Hold>(hold_->terms(), session_->new_token(hold_->owner()),
                                       hold_->owner());
        const TimePoint sent = Clock::now();
        const std::int64_t ttl = next_->server_ttl(next_->terms().lease);
        const auto reply = ask(move_call(*hold_, next_->token(), ttl), send.answer_by);
        if (!reply) return failed(reply.error());
        const ReplyView answer = reply->view();
        next_->taken(sent);
        return machine_.move_answered(
            {.moved = answer[0].integer() == 1,
             .repeated = reply->repeated,
             .others_wait = answer[1].integer() > 0,
             .fence = static_cast<std::uint64_t>(answer[2].integer().value_or(0)),
             .sent = sent,
             .valid_until = next_->valid_until()});
    }

    Action carry_out(const Machine::SendRelease& send) {
        const auto reply =
            ask(release_call(*of(send.token), Clock::now()), send.answer_by, on_silence());
        if (!reply) return failed(reply.error());
        return machine_.release_answered({.value = reply->view().integer().value_or(0),
                                          .repeated = reply->repeated,
                                          .masters = heard()},
                                         Clock::now());
    }

    Action carry_out(const Machine::PostRelease& post) {
        auto awaiting = [session = session_, hold = hold_,
                         ended = Clock::now()](const Expected<Reply, Fault>& reply) {
            sent_release_ended(*session, hold, reply, ended);
        };
        return machine_.posted(session_->reply_drainer().post(
            session_->master_of(hold_->key()), release_call(*hold_, Clock::now()),
            std::move(awaiting), {post.answer_by}));
    }

    Action carry_out(const Machine::RetryAt& retry) {
        std::this_thread::sleep_for(saturating_sub(retry.time, Clock::now()));
        return machine_.pause_over();
    }

    Action carry_out(const Machine::HandOver& over) {
        hold_->advance(Phase::releasing, Phase::released);
        const auto& [moved, repeated, others_wait, fence, sent, valid_until] = over.move;
        return machine_.handed_over(session_->locks().moved(
            *hold_, {next_->token(), sent, {.unclear = repeated}, fence}, others_wait));
    }

    Action carry_out(const Machine::FreeHold&) {
        hold_->advance(Phase::releasing, Phase::released);
        session_->locks().released(*hold_);
        return machine_.next();
    }

    Action carry_out(const Machine::DeclareLost&) {
        session_->declare_lost(hold_);
        return machine_.next();
    }

    Action carry_out(const Machine::CleanUpToken& clean_up) {
        session_->clean_up(of(clean_up.token), clean_up.what);
        return machine_.next();
    }

    Action carry_out(const Machine::Done& done) { return done; }

    const std::shared_ptr<Hold>& of(Machine::Which token) const {
        return token == Machine::Which::held ? hold_ : next_;
    }

    Action failed(const Fault& fault) { return machine_.failed(fault, heard(), Clock::now()); }

    MastersHeard heard() const { return {told_, hold_->unanswered().acquire}; }

    /// For a master that has not answered when the others have.
    OnLateReply on_silence() const {
        if (hold_->open_tries.at_masters == nullptr) return {};
        return [session = session_, hold = hold_](bool answered) {
            if (!answered) session->clean_up(hold, after_silent_master());
        };
    }

    Expected<Reply, Fault> ask(const Call& call, TimePoint answer_by,
                               OnLateReply on_late_reply = {}) {
        QuorumProgress progress{.on_late_reply = std::move(on_late_reply)};
        auto reply = session_->run(hold_->key(), call, call, {answer_by}, progress);
        told_ = progress.masters.heard_of();
        if (!reply) {
            reply.error().error.key = hold_->key();
            session_->tell_error(reply.error().error);
        }
        return reply;
    }

    /// The answer to a release that was only sent has come, or never will.
    static void sent_release_ended(Session& session, const std::shared_ptr<Hold>& hold,
                                   const Expected<Reply, Fault>& reply, TimePoint ended) {
        if (reply) {
            const auto value = reply->view().integer().value_or(0);
            conclude(session, hold, SentRelease::answered(value, hold->unanswered().acquire),
                     ended);
            return;
        }
        Error cause = reply.error().error;
        cause.key = hold->key();
        session.tell_error(cause);
        conclude(session, hold, SentRelease::failed(std::move(cause)), ended);
    }

    static void conclude(Session& session, const std::shared_ptr<Hold>& hold,
                         const SentRelease& sent, TimePoint ended) {
        session.clean_up(hold, sent.clean_up);
        inform(session, *hold, sent.outcome, ended);
    }

    static void inform(Session& session, const Hold& hold, const Result<Release>& outcome,
                       TimePoint ended) {
        if (!session.observed()) return;
        const auto held_for = ended - hold.taken_at();
        session.observe([key = hold.key(), held_for, outcome](Observer& observer) {
            observer.released({key, held_for, outcome});
        });
    }

    Session* session_;
    ReleaseMachine machine_{};
    std::shared_ptr<Hold> hold_{};
    std::shared_ptr<Hold> next_{};  // to whose token the lock moves
    std::uint64_t told_ = 0;  // of several masters, those that have heard the last command, or will
};

}  // namespace redlatch::inline v0::detail
