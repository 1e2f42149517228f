#pragma once

#include <redlatch/core/release.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// The pause between two tries of a call that doesn't wait for a lock.
inline constexpr std::chrono::milliseconds retry_pause{20};

/// Ends an acquisition at the server, as the lock table has found it. Takes at most `command_timeout`.
class Releasing {
public:
    explicit Releasing(Session& session) : session_(&session) {}

    Result<Release> end(const LockTable::Ending& ending) {
        return end(ending, Limit::in(session_->command_timeout()));
    }

    /// The same for who does not wait for the outcome. With `ReleaseMode::sent` the release of the
    /// lock is only sent, unless a thread here is to have it next.
    void end(const LockTable::Ending& ending, ReleaseMode mode) {
        const bool waits = mode == ReleaseMode::confirmed || session_->several() ||
                           ending.kind != LockTable::Ending::Kind::last || ending.has_heir;
        const Limit limit = Limit::in(session_->command_timeout());
        if (waits || !send_last(ending.hold, limit)) static_cast<void>(end(ending, limit));
    }

    /// The caller holds nothing: a mistake that the observer hears of.
    Release tell_not_held(const std::string& key) {
        session_->observe([key](Observer& observer) {
            observer.released({key, {}, Release::not_held});
        });
        return Release::not_held;
    }

private:
    Result<Release> end(const LockTable::Ending& ending, const Limit& limit) {
        switch (ending.kind) {
            case LockTable::Ending::Kind::nothing: return Release::not_held;
            case LockTable::Ending::Kind::past: return tell(*ending.hold, Release::expired);
            case LockTable::Ending::Kind::nested: return end_nested(ending, limit);
            case LockTable::Ending::Kind::handed: return end_handed(*ending.hold);
            case LockTable::Ending::Kind::last: return end_last(ending, limit);
        }
        return Release::not_held;
    }

    /// The inner hold has ended whatever the server says; the count there is for people.
    Result<Release> end_nested(const LockTable::Ending& ending, const Limit& limit) {
        Hold& hold = *ending.hold;
        if (ending.watched) session_->renewal().dismiss_one(hold);
        constexpr std::int64_t ttl_as_it_is = 0;
        const Call call = nest_call(hold, ending.count, ttl_as_it_is);
        auto reply = run(hold, call, limit);
        if (reply && reply->view().integer() == 0) {
            session_->declare_lost(ending.hold);
            return tell(hold, Release::expired);
        }
        return tell(hold, Release::still_held);
    }

    /// The next thread here has the lock already.
    Result<Release> end_handed(Hold& hold) {
        session_->dismiss(hold);
        return tell(hold, Release::released);
    }

    Result<Release> end_last(const LockTable::Ending& ending, const Limit& limit) {
        const std::shared_ptr<Hold>& hold = ending.hold;
        session_->dismiss(*hold);
        ReleaseCore core{Clock::now() < hold->valid_until()};
        const bool can_move = ending.has_heir && !session_->several();
        if (can_move && Clock::now() < hold->valid_until()) {
            if (auto outcome = move_on(hold, core, limit)) return tell(*hold, *std::move(outcome));
        }
        Result<Release> outcome = send_until_answered(*hold, core, limit, release_again(hold));
        hold->advance(Phase::releasing, Phase::released);
        session_->locks().released(*hold);
        const bool untold = hold->votes != nullptr && (hold->votes->asked & ~told_) != 0;
        session_->clean_up(hold, after_release({.outcome_known = outcome.has_value(),
                                                .all_told = !untold,
                                                .acquire_unanswered = hold->may_come_to_life()}));
        return tell(*hold, std::move(outcome));
    }

    /// For a master that has not answered when the others have.
    Settled release_again(const std::shared_ptr<Hold>& hold) {
        if (!session_->several()) return {};
        return [session = session_, hold](bool answered) {
            if (!answered) session->clean_up(hold, after_silent_master());
        };
    }

    /// False where it was not sent.
    bool send_last(const std::shared_ptr<Hold>& hold, const Limit& limit) {
        session_->dismiss(*hold);
        auto awaiting = [session = session_, hold,
                         ended = Clock::now()](const Expected<Reply, Fault>& reply) {
            Releasing{*session}.answered(hold, reply, ended);
        };
        if (!session_->collector().post(session_->master_of(hold->key()), release_call(*hold),
                                        std::move(awaiting), limit)) {
            return false;
        }
        hold->advance(Phase::releasing, Phase::released);
        session_->locks().released(*hold);
        return true;
    }

    /// What has become of a release that was only sent. Without an answer it is sent again, and once
    /// more.
    void answered(const std::shared_ptr<Hold>& hold, const Expected<Reply, Fault>& reply,
                  TimePoint ended) {
        if (reply) {
            const auto answer = reply->view().integer();
            session_->clean_up(
                hold, after_sent_release(answer == more_to_serve, hold->may_come_to_life()));
            inform(*hold, answer != 0 ? Release::released : Release::expired, ended);
            return;
        }
        session_->clean_up(hold, after_unanswered_sent_release());
        Error cause = reply.error().error;
        cause.key = hold->key();
        session_->tell_error(cause);
        inform(*hold, Unexpected{Error{Errc::unclear, hold->key(), {}, {}, {std::move(cause)}}},
               ended);
    }

    /// Has the server give the lock to a token that the next thread here goes on with. Nothing where
    /// it didn't answer: whether or not it did so, both tokens have to be released.
    std::optional<Result<Release>> move_on(const std::shared_ptr<Hold>& hold, ReleaseCore& core,
                                           const Limit& limit) {
        const auto next = std::make_shared<Hold>(hold->terms(), session_->new_token(hold->owner()),
                                                 hold->owner());
        const TimePoint sent = Clock::now();
        const Call call = move_call(*hold, next->token(), next->server_ttl(next->terms().lease));
        auto reply = run(*hold, call, limit);
        if (!reply) {
            if (reply.error().maybe_executed) core.unclear_try();
            session_->clean_up(next, after_unanswered_move());
            return std::nullopt;
        }
        const ReplyView answer = reply->view();
        const bool done = answer[0].integer() == 1;
        const bool others_wait = answer[1].integer() > 0;
        const auto fence = static_cast<std::uint64_t>(answer[2].integer().value_or(0));
        next->unclear_try = reply->repeated;
        hold->advance(Phase::releasing, Phase::released);
        session_->clean_up(hold, after_release({.acquire_unanswered = hold->may_come_to_life()}));
        if (done && session_->locks().moved(*hold, {next->token(), sent, next->unclear_try, fence},
                                            others_wait)) {
            return Release::released;
        }
        if (done) next->taken(sent);
        Result<Release> outcome = done ? release_unwanted(next, limit) : Release::expired;
        session_->locks().released(*hold);
        return outcome;
    }

    /// The server gave the lock to `next`, for a thread here that has left meanwhile.
    Result<Release> release_unwanted(const std::shared_ptr<Hold>& next, const Limit& limit) {
        auto outcome = send_until_answered(*next, ReleaseCore{true}, limit);
        session_->clean_up(next,
                           outcome ? after_release({.acquire_unanswered = next->may_come_to_life()})
                                   : after_unanswered_move());
        if (!outcome) return outcome;
        return Release::released;
    }

    Result<Release> send_until_answered(const Hold& hold, ReleaseCore core, const Limit& limit,
                                        const Settled& settled = {}) {
        const Call call = release_call(hold);
        for (;;) {
            auto reply = run(hold, call, limit, settled);
            const TimePoint now = Clock::now();
            const bool valid = now < hold.valid_until();
            if (reply) {
                if (reply->repeated) core.unclear_try();
                const auto answer = reply->view().integer();
                if (answer == more_to_serve) serve_on(hold, limit);
                return core.answered(answer != 0, valid);
            }
            const bool time_left = saturating_add(now, retry_pause) < limit.at;
            if (auto outcome = core.failed(reply.error(), valid, time_left)) {
                if (!*outcome) outcome->error().key = hold.key();
                return *std::move(outcome);
            }
            std::this_thread::sleep_for(retry_pause);
        }
    }

    /// The lock is free. Those who wait for it are served as far as time allows.
    void serve_on(const Hold& hold, const Limit& limit) {
        const Call call = release_call(hold);
        auto reply = run(hold, call, limit);
        while (reply && reply->view().integer() == more_to_serve) reply = run(hold, call, limit);
    }

    Expected<Reply, Fault> run(const Hold& hold, const Call& call, const Limit& limit,
                               const Settled& settled = {}) {
        Spread spread{.settled = settled};
        auto reply = session_->run(hold.key(), call, call, limit, spread);
        told_ |= spread.answered | spread.late;
        if (!reply) {
            reply.error().error.key = hold.key();
            session_->tell_error(reply.error().error);
        }
        return reply;
    }

    Result<Release> tell(const Hold& hold, Result<Release> outcome) {
        inform(hold, outcome, Clock::now());
        return outcome;
    }

    void inform(const Hold& hold, const Result<Release>& outcome, TimePoint ended) {
        if (!session_->observed()) return;
        const auto held_for = ended - hold.taken_at();
        session_->observe([key = hold.key(), held_for, outcome](Observer& observer) {
            observer.released({key, held_for, outcome});
        });
    }

    Session* session_;
    std::uint64_t told_ = 0;  // which of several masters have heard of it, or will
};

}  // namespace redlatch::inline v0::detail
