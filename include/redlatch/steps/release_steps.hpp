#pragma once

#include <redlatch/core/release.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// What is the same for a thread and for an operation that end an acquisition: all that waits for nothing.
class ReleaseSteps {
public:
    ReleaseSteps(const ReleaseSteps&) = delete;
    ReleaseSteps& operator=(const ReleaseSteps&) = delete;

protected:
    using Machine = ReleaseMachine;
    using Action = Machine::Action;

    /// `give_up_at`: where several are to end within one `command_timeout`.
    explicit ReleaseSteps(Session& session, TimePoint give_up_at = TimePoint::max())
        : session_(&session), give_up_at_(give_up_at) {}
    ~ReleaseSteps() = default;

    Action begin(const LockTable::Ending& ending, ReleaseMode mode) {
        look_at(ending);
        const TimePoint now = Clock::now();
        const TimePoint give_up_at =
            std::min(give_up_at_, saturating_add(now, session_->command_timeout()));
        return machine_.begin(Machine::Ended::of(ending, mode, give_up_at), now);
    }

    void look_at(const LockTable::Ending& ending) {
        using Kind = LockTable::Ending::Kind;
        hold_ = ending.hold;
        ended_ = ending.id;
        ends_hold_ =
            ending.kind == Kind::last || ending.kind == Kind::handed || ending.kind == Kind::left;
    }

    /// The outcome. Tells the observer of it.
    std::optional<Result<Release>> tell_outcome() {
        std::optional<Result<Release>> outcome = machine_.take_outcome();
        if (outcome && !*outcome) outcome->error().key = hold_->key();
        if (outcome && session_->events().wanted()) {
            inform(*session_, hold_, *outcome, Clock::now(), ends_hold_);
        }
        return outcome;
    }

    Action carry_out(const Machine::StopRenewal& stop) {
        if (stop.whole_hold) {
            session_->dismiss(*hold_);
        } else {
            session_->renewal().dismiss_one(*hold_, ended_);
        }
        return machine_.next();
    }

    Action carry_out(const Machine::PassOn& over) {
        hold_->advance(Phase::releasing, Phase::released);
        const Machine::Move& move = over.move;
        return machine_.passed_on(session_->locks().moved(
            *hold_, {to_->token(), move.sent, {.unclear = move.repeated}, move.fence},
            move.others_wait));
    }

    Action carry_out(const Machine::FreeHold&) {
        free_hold();
        return machine_.next();
    }

    void free_hold() {
        hold_->advance(Phase::releasing, Phase::released);
        session_->locks().released(*hold_);
    }

    Action carry_out(const Machine::DeclareLost&) {
        session_->declare_lost(hold_);
        return machine_.next();
    }

    Action carry_out(const Machine::CleanUpToken& clean_up) {
        session_->clean_up(of(clean_up.token), clean_up.what);
        return machine_.next();
    }

    // ---- Its calls, and what becomes of them

    static Call count_call(const Hold& hold, const Machine::SendCount& send) {
        constexpr std::int64_t ttl_as_it_is = 0;
        return nest_call(hold, send.count, ttl_as_it_is);
    }

    /// Makes the token that the lock is to move to.
    void make_token_to_move_to() {
        to_ = std::make_shared<Hold>(hold_->terms(), session_->tokens().next(hold_->owner()),
                                     hold_->owner());
    }
    static Call move_to_call(const Hold& hold, const Hold& next) {
        return move_call(hold, next.token(), next.server_ttl(next.terms().lease));
    }

    /// `told`: of several masters, those that have heard of the command, or will.
    Action count_answered(const Expected<Reply, Fault>& reply, std::uint64_t told) {
        if (!reply) return failed(reply.error(), told);
        return machine_.count_answered(reply->view().integer() != 0, hold_->is_given_up());
    }

    Action move_answered(const Expected<Reply, Fault>& reply, std::uint64_t told, TimePoint sent) {
        if (!reply) return failed(reply.error(), told);
        const ReplyView answer = reply->view();
        to_->taken(sent);
        return machine_.move_answered(
            {.moved = answer[0].integer() == 1,
             .repeated = reply->repeated,
             .others_wait = answer[1].integer() > 0,
             .fence = static_cast<std::uint64_t>(answer[2].integer().value_or(0)),
             .sent = sent,
             .valid_until = to_->valid_until()});
    }

    Action release_answered(const Expected<Reply, Fault>& reply, std::uint64_t told) {
        if (!reply) return failed(reply.error(), told);
        return machine_.release_answered({.value = reply->view().integer().value_or(0),
                                          .repeated = reply->repeated,
                                          .masters = heard(told)},
                                         Clock::now());
    }

    /// Where the client has closed, its closing releases the token: that is no error of a server's.
    Action failed(const Fault& fault, std::uint64_t told) {
        Error error = fault.error;
        error.key = hold_->key();
        if (error.code != Errc::cancelled) session_->events().error(error);
        Fault of_key = fault;
        of_key.error = std::move(error);
        return machine_.failed(of_key, heard(told), Clock::now());
    }

    const std::shared_ptr<Hold>& of(Machine::Which token) const {
        return token == Machine::Which::held ? hold_ : to_;
    }

    MastersHeard heard(std::uint64_t told) const {
        return {told, may_overtake_ || hold_->unanswered().acquire};
    }

    /// For a master that has not answered the command when the others have.
    OnLateReply on_silence() const {
        const CleanUp what = machine_.if_silent();
        if (!what.needed()) return {};
        return [session = session_, hold = hold_, what](bool answered) {
            if (!answered) session->clean_up(hold, what);
        };
    }

    static void inform(Session& session, const std::shared_ptr<Hold>& hold,
                       const Result<Release>& outcome, TimePoint ended, bool ends_hold) {
        if (!session.events().wanted()) return;
        const auto held_for = ended - hold->taken_at();
        if (ends_hold) session.events().hold_ended(hold, held_for);
        // As its loss: nobody has worked under what was never delivered.
        if (!hold->is_delivered() && outcome && *outcome == Release::expired) return;
        session.events().released(hold->key(), held_for, outcome);
    }

    Session* session_;
    TimePoint give_up_at_;
    ReleaseMachine machine_{};
    std::shared_ptr<Hold> hold_{};
    std::uint64_t ended_ = 0;     // of its acquisitions, where others go on
    std::shared_ptr<Hold> to_{};  // to whose token the lock moves
    bool may_overtake_ = false;   // a release may be carried out before the acquisition, somewhere
    bool ends_hold_ = false;      // as opposed to a nested acquisition, or one that was lost before
};

}  // namespace redlatch::inline v0::detail
