#pragma once

#include <redlatch/steps/release_steps.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// Ends an acquisition at the server, as the release machine decides. Takes at most `command_timeout`. It is
/// made before the acquisition is taken out of the lock table: from then on the end of the client waits for
/// it.
class Releasing : private ReleaseSteps {
public:
    explicit Releasing(Session& session, TimePoint give_up_at = TimePoint::max())
        : ReleaseSteps(session, give_up_at), call_(session.open_calls()) {}

    Result<Release> end(const LockTable::Ending& ending) {
        return run(ending, ReleaseMode::confirmed).value_or(Release::not_held);
    }

    /// The same, as `mode` says. Nothing where the release was only sent, or nothing was held.
    std::optional<Result<Release>> run(const LockTable::Ending& ending, ReleaseMode mode) {
        if (ending.hold == nullptr) return std::nullopt;
        carry_on(begin(ending, mode));
        return tell_outcome();
    }

    /// The same for an acquisition that nobody gets, without waiting for the server.
    void abandon(const LockTable::Ending& ending) {
        if (!give_up(ending) || !ends_hold_ || !session_->events().wanted()) return;
        // Of a hold that somebody has had.
        session_->events().hold_ended(hold_, Clock::now() - hold_->taken_at());
    }

    /// The same for one that the observer was told of.
    void give_back(const LockTable::Ending& ending) {
        const auto outcome = give_up(ending);
        if (outcome) inform(*session_, hold_, *outcome, Clock::now(), ends_hold_);
    }

    /// The caller holds nothing: a mistake that the observer hears of.
    Release tell_not_held(const std::string& key) {
        session_->events().released(key, {}, Release::not_held);
        return Release::not_held;
    }

private:
    std::optional<Result<Release>> give_up(const LockTable::Ending& ending) {
        if (ending.hold == nullptr) return std::nullopt;
        look_at(ending);
        try {
            carry_on(machine_.abandon(Machine::Ended::of(ending, ReleaseMode::sent), heard(0)));
        } catch (...) {
            // No memory to release the token: it lasts for its lease, and the next one here asks the server.
            if (ending.kind == LockTable::Ending::Kind::last) free_hold();
            throw;
        }
        return machine_.take_outcome();
    }

    void carry_on(Action action) {
        while (!holds_alternative<Machine::Done>(action)) {
            action = visit([this](const auto& wanted) { return carry_out(wanted); }, action);
        }
    }

    using ReleaseSteps::carry_out;

    Action carry_out(const Machine::SendCount& send) {
        const auto reply =
            ask(CommandRank::extension, *hold_, count_call(*hold_, send), send.answer_by);
        return count_answered(reply, told_);
    }

    Action carry_out(const Machine::SendMove& send) {
        make_token_to_move_to();
        const TimePoint sent = Clock::now();
        const auto reply =
            ask(CommandRank::release, *hold_, move_to_call(*hold_, *to_), send.answer_by);
        return move_answered(reply, told_, sent);
    }

    Action carry_out(const Machine::SendRelease& send) {
        const Hold& hold = *of(send.token);
        const auto reply = ask(CommandRank::release, hold, release_call(hold), send.answer_by);
        return release_answered(reply, told_);
    }

    Action carry_out(const Machine::PostRelease& post) {
        if (session_->shares_links()) return machine_.posted(false);
        Node& node = session_->master_of(hold_->key());
        auto awaiting = [session = session_, node = &node, hold = hold_, valid = post.valid,
                         ended = Clock::now()](const Expected<Reply, Fault>& reply) {
            if (reply) return sent_release_answered(*session, hold, *reply, valid, ended);
            Fault fault = reply.error();
            session->note_redirection(*node, fault);
            sent_release_failed(*session, hold, std::move(fault).error, valid, ended);
        };
        return machine_.posted(session_->reply_drainer().post(
            node, release_call(*hold_), std::move(awaiting), {post.answer_by}));
    }

    Action carry_out(const Machine::RetryAt& retry) {
        std::this_thread::sleep_for(saturating_sub(retry.time, Clock::now()));
        return machine_.pause_over();
    }

    Action carry_out(Machine::Done done) { return done; }

    Expected<Reply, Fault> ask(CommandRank rank, const Hold& whose, const Call& call,
                               TimePoint answer_by) {
        QuorumProgress progress{.on_late_reply = on_silence(),
                                .token = hold_->open_tries.at_masters.get(),
                                .rank = rank,
                                .speaks_for = whose.token().bytes};
        auto reply = session_->run(call, call, {answer_by}, progress);
        told_ = progress.masters.heard_of();
        may_overtake_ = may_overtake_ || progress.may_overtake;
        return reply;
    }

    /// The answer to a release that was only sent has come.
    static void sent_release_answered(Session& session, const std::shared_ptr<Hold>& hold,
                                      const Reply& reply, bool valid, TimePoint ended) {
        const auto value = reply.view().integer().value_or(0);
        conclude(session, hold, SentRelease::answered(value, hold->unanswered().acquire, valid),
                 ended);
    }

    /// It was an error, or will never come.
    static void sent_release_failed(Session& session, const std::shared_ptr<Hold>& hold,
                                    Error cause, bool valid, TimePoint ended) {
        cause.key = hold->key();
        session.events().error(cause);
        conclude(session, hold, SentRelease::failed(std::move(cause), valid), ended);
    }

    static void conclude(Session& session, const std::shared_ptr<Hold>& hold,
                         const SentRelease& sent, TimePoint ended) {
        session.clean_up(hold, sent.clean_up);
        constexpr bool ends_hold = true;  // nothing else is only sent
        inform(session, hold, sent.outcome, ended, ends_hold);
    }

    const OpenCalls::Call call_;
    std::uint64_t told_ = 0;  // of several masters, those that have heard the last command, or will
};

/// Ends all that was taken through one handle and not returned.
inline void end_all_through(Session& session, const std::string& key, const void* through,
                            ReleaseMode mode, TimePoint give_up_at = TimePoint::max()) {
    const OpenCalls::Call call{session.open_calls()};
    // Nested holds end with one command, the last one's: it says how many are left.
    LockTable::Ending last;
    for (;;) {
        auto ending = session.locks().end_one_through(key, through);
        if (ending.hold != last.hold) {
            Releasing{session, give_up_at}.run(last, mode);
        } else if (last.watched) {
            session.renewal().dismiss_one(*last.hold, last.id);
        }
        if (ending.kind == LockTable::Ending::Kind::nothing) return;
        last = std::move(ending);
    }
}

}  // namespace redlatch::inline v0::detail
