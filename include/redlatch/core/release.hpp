#pragma once

#include <redlatch/core/backoff.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/lock_answers.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/release_answer.hpp>
#include <redlatch/options.hpp>
#include <redlatch/types.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Decides what a release's answers mean. A hold whose validity was over before has expired, though the server may have
/// kept the lock until now. An earlier try without an answer may have freed the lock, so a later "not yours" proves
/// nothing on its own. While the validity was running nobody else could have taken the lock: there it can only have
/// been our own earlier try.
class ReleaseOutcome {
public:
    /// `valid`: whether the hold's validity is running as the first try is sent.
    explicit ReleaseOutcome(bool valid) : valid_at_start_(valid) {}

    /// The server's answer: whether the lock was ours, and is free now. `valid`: whether the hold's
    /// validity was still running when the answer came.
    Result<Release> answered(bool was_ours, bool valid) const {
        if (!valid_at_start_) return Release::expired;
        if (was_ours) return Release::released;
        if (!maybe_executed_) return Release::expired;
        if (valid) return Release::released;
        return Unexpected{unclear()};
    }

    /// An earlier try may have been carried out.
    void unclear_try() { maybe_executed_ = true; }

    /// A try failed; an outcome where another one is of no use. A hold that was over before is not
    /// worth a second try.
    std::optional<Result<Release>> failed(const Fault& fault, bool valid, bool time_left) {
        maybe_executed_ = maybe_executed_ || fault.maybe_executed;
        last_fault_ = following(fault.error, last_fault_);
        if (!valid_at_start_) return Result<Release>{Release::expired};
        if (fault.transient && valid && time_left) return std::nullopt;
        if (maybe_executed_) return Result<Release>{Unexpected{unclear()}};
        return Result<Release>{Unexpected{*last_fault_}};
    }

private:
    Error unclear() const {
        Error error = make_error(Errc::unclear);
        if (last_fault_) error.causes.push_back(*last_fault_);
        return error;
    }

    bool valid_at_start_;
    bool maybe_executed_ = false;
    std::optional<Error> last_fault_;
};

/// What several masters have said so far; nothing where one decides.
struct MastersHeard {
    std::uint64_t told = 0;  ///< those that have answered this command, or will
    /// One owes its answer to the acquisition, or did when this command went out.
    bool acquire_unanswered = false;
};

/// Ends one acquisition at the server: event in, action out. Knows no server and reads no clock.
class ReleaseMachine {
public:
    /// How an acquisition has ended in this process.
    struct Ended {
        using Kind = AcquisitionEnding::Kind;
        Kind kind;
        std::uint64_t count = 0;  ///< where nested: how many are left
        bool watched = false;     ///< where nested: it wanted the hold to be renewed
        bool tells_count = true;  ///< where nested: the server is told what is left
        bool can_hand_off =
            false;  ///< where last: a thread here would like to be next, on equal terms
        bool unclear_try = false;  ///< a command that asked for the lock got no answer
        CleanUp delayed{};         ///< where left or past: of what a `lock_delay` keeps
        TimePoint valid_until{};   ///< the hold's validity
        TimePoint kept_until = TimePoint::min();  ///< nobody is to be next before (`min_hold`)
        std::uint64_t masters = 0;  ///< of several, those that were asked for the lock; 0 for one
        ReleaseMode mode = ReleaseMode::confirmed;
        TimePoint give_up_at = TimePoint::max();

        /// `ending`: of a hold.
        static Ended of(const AcquisitionEnding& ending, ReleaseMode mode,
                        TimePoint give_up_at = TimePoint::max()) {
            const Hold& hold = *ending.hold;
            return {.kind = ending.kind,
                    .count = ending.count,
                    .watched = ending.watched,
                    .tells_count = hold.weight() == 0 || ending.downgrades,
                    .can_hand_off = ending.can_hand_off,
                    .unclear_try = hold.open_tries.unclear,
                    .delayed = ending.clean_up,
                    .valid_until = hold.valid_until(),
                    .kept_until = hold.kept_until(),
                    .masters = hold.open_tries.masters(),
                    .mode = mode,
                    .give_up_at = give_up_at};
        }
    };

    /// The server's answer to a release: see `was_held` and `has_more_to_serve`.
    struct Reply {
        std::int64_t value;
        bool repeated = false;  ///< an earlier sending of it may have been carried out too
        MastersHeard masters{};
    };

    /// The server's answer to a move.
    struct Move {
        bool moved;
        bool repeated = false;
        bool others_wait = false;
        std::uint64_t fence = 0;
        TimePoint sent{};
        TimePoint valid_until{};  ///< the validity of the next token
    };

    /// A hold's own token, or a new one that the lock moves to for the next thread here.
    enum class Which : bool { held, next };

    // The actions. `next()` follows on each that names no other event.

    struct StopRenewal {
        bool whole_hold = true;  ///< else for one acquisition only
    };
    /// Then `count_answered()` or `failed()`.
    struct SendCount {
        std::uint64_t count;
        TimePoint answer_by;
    };
    /// Then `move_answered()` or `failed()`.
    struct SendMove {
        TimePoint answer_by;
    };
    /// Then `release_answered()` or `failed()`.
    struct SendRelease {
        Which token;
        TimePoint answer_by;
    };
    /// Send the release and leave its answer to `SentRelease`. Then `posted()`.
    struct PostRelease {
        TimePoint answer_by;
        bool valid;  ///< whether the hold's validity was running as its end began
    };
    /// Then `pause_over()`.
    struct RetryAt {
        TimePoint time;
    };
    /// The server gave the lock to the next token: the lock table may have a thread for it. Then
    /// `passed_on()`.
    struct PassOn {
        Move move;
    };
    /// The lock table gives the turn to the next thread.
    struct FreeHold {};
    struct DeclareLost {};
    struct CleanUpToken {
        Which token;
        CleanUp what;
    };
    /// The end: `take_outcome()` has what came of it.
    struct Done {};
    using Action = OneOf<StopRenewal, SendCount, SendMove, SendRelease, PostRelease, RetryAt,
                         PassOn, FreeHold, DeclareLost, CleanUpToken, Done>;

    Action begin(const Ended& ended, TimePoint now) {
        ended_ = ended;
        // Until the answer comes the lock table knows the token. A message that comes late would be taken
        // for one to nobody, and answered by a release that forgets the `min_hold`.
        if (now < ended.kept_until) ended_.mode = ReleaseMode::confirmed;
        heard_.acquire_unanswered = ended.unclear_try;
        valid_at_start_ = now < ended.valid_until;
        answers_ = ReleaseOutcome{valid_at_start_};
        switch (ended.kind) {
            case Ended::Kind::nested:
                stage_ = ended.tells_count && valid_at_start_ ? Stage::count : Stage::over;
                outcome_ = valid_at_start_ ? Release::still_held : Release::expired;
                return ended.watched ? StopRenewal{.whole_hold = false} : next();
            case Ended::Kind::last:
                return then(may_move(now) ? Stage::move : Stage::release, StopRenewal{});
            case Ended::Kind::handed:
            case Ended::Kind::left:
            case Ended::Kind::past:
            case Ended::Kind::nothing: break;
        }
        return end_without_server(valid_at_start_);
    }

    /// The same for an acquisition that is given up. The outcome does not depend on the server's answer, so no caller
    /// waits for it. The count of a nest is there for people.
    Action abandon(const Ended& ended, const MastersHeard& masters) {
        ended_ = ended;
        hear(masters);
        switch (ended.kind) {
            case Ended::Kind::nested:
                outcome_ = Release::still_held;
                return ended.watched ? then(Stage::over, StopRenewal{.whole_hold = false}) : next();
            case Ended::Kind::last:
                outcome_ = Release::released;
                return then(Stage::clean_up_abandoned, StopRenewal{});
            case Ended::Kind::handed:
            case Ended::Kind::left:
            case Ended::Kind::past:
            case Ended::Kind::nothing: break;
        }
        return end_without_server(true);
    }

    /// The last action is done.
    Action next() {
        switch (stage_) {
            case Stage::count: return SendCount{ended_.count, ended_.give_up_at};
            case Stage::move: return SendMove{ended_.give_up_at};
            case Stage::release:
                if (is_only_sent()) return PostRelease{ended_.give_up_at, valid_at_start_};
                return send_release();
            case Stage::clean_up_abandoned:
                return clean_up(Which::held, abandoned_leaves(), Stage::free_abandoned);
            case Stage::free_abandoned: return then(Stage::over, FreeHold{});
            case Stage::clean_up_delayed: return clean_up(Which::held, ended_.delayed, Stage::over);
            case Stage::clean_up_held:
                return clean_up(Which::held, held_leaves(), Stage::clean_up_next);
            case Stage::clean_up_next: return clean_up(Which::next, next_leaves(), Stage::over);
            case Stage::over: break;
        }
        return Done{};
    }

    /// The inner hold has ended whatever the server says; the count there is for people. `is_released`: the last one
    /// of the nest has ended meanwhile, and its release may have been carried out first.
    Action count_answered(bool still_ours, bool is_released) {
        const bool was_ours = still_ours || is_released;
        outcome_ = was_ours ? Release::still_held : Release::expired;
        stage_ = Stage::over;
        return was_ours ? next() : DeclareLost{};
    }

    Action move_answered(const Move& move) {
        answered_ = true;
        if (!move.moved) return free_hold(Release::expired);
        moved_ = move;
        return PassOn{move};
    }

    /// Whether a thread here goes on with the next token. Else that one is released instead.
    Action passed_on(bool kept) {
        if (kept) {
            outcome_ = Release::released;
            stage_ = Stage::clean_up_held;
            return next();
        }
        stage_ = Stage::release;
        token_ = Which::next;
        answers_ = ReleaseOutcome{true};
        return send_release();
    }

    /// False where nothing was sent: then it is better to wait for the outcome.
    Action posted(bool sent) { return sent ? then(Stage::over, FreeHold{}) : send_release(); }

    Action release_answered(const Reply& reply, TimePoint now) {
        answered_ = true;
        hear(reply.masters);
        if (!serving_) {
            if (reply.repeated) answers_.unclear_try();
            outcome_ = answers_.answered(was_held(reply.value), is_valid(now));
        }
        // The lock is free. Those who wait for it are served as far as time allows.
        serving_ = has_more_to_serve(reply.value) && now < ended_.give_up_at;
        return serving_ ? send_release() : free_hold(*std::move(outcome_));
    }

    Action failed(const Fault& fault, const MastersHeard& masters, TimePoint now) {
        if (stage_ == Stage::count) return count_answered(true, false);
        if (stage_ == Stage::move) return move_failed(fault);
        client_closed_ = fault.error.code == Errc::cancelled && !fault.maybe_executed;
        hear(masters);
        if (serving_) return free_hold(*std::move(outcome_));
        const TimePoint retry_at = saturating_add(now, retry_pause);
        auto outcome = answers_.failed(fault, is_valid(now), retry_at < ended_.give_up_at);
        return outcome ? free_hold(*std::move(outcome)) : RetryAt{retry_at};
    }

    Action pause_over() { return send_release(); }

    /// What is released in the background where one of several masters has not answered the command that goes out now
    /// when the others have decided. Only for a release: after any other command somebody goes on with the token.
    CleanUp if_silent() const noexcept {
        const bool releases = stage_ == Stage::release;
        return releases && ended_.masters != 0 ? after_silent_master() : CleanUp{};
    }

    /// After `Done`, once: nothing where the release was only sent, or nothing was held.
    std::optional<Result<Release>> take_outcome() { return std::move(outcome_); }

private:
    /// What is under way, or comes next.
    enum class Stage {
        count,
        move,
        release,
        clean_up_abandoned,
        free_abandoned,
        clean_up_delayed,
        clean_up_held,
        clean_up_next,
        over
    };

    /// A lock that is lost moves to nobody; several masters would have to agree on the next token.
    bool may_move(TimePoint now) const noexcept {
        return ended_.can_hand_off && ended_.masters == 0 && now < ended_.valid_until &&
               now >= ended_.kept_until;
    }

    bool is_only_sent() const noexcept {
        return ended_.mode == ReleaseMode::sent && ended_.masters == 0 && !ended_.can_hand_off;
    }

    bool is_valid(TimePoint now) const noexcept {
        return now < (token_ == Which::held ? ended_.valid_until : moved_->valid_until);
    }

    void hear(const MastersHeard& masters) noexcept {
        heard_.told |= masters.told;
        heard_.acquire_unanswered = ended_.unclear_try || masters.acquire_unanswered;
    }

    Action send_release() const { return SendRelease{token_, ended_.give_up_at}; }

    /// Whether the lock has moved or not, the next thread goes without it: both tokens are released.
    Action move_failed(const Fault& fault) {
        stage_ = Stage::release;
        if (!fault.maybe_executed) return send_release();
        answers_.unclear_try();
        return CleanUpToken{Which::next, after_unanswered_move()};
    }

    /// Nothing is sent for it. A lock that a `lock_delay` keeps is released, as its holder is done with it.
    /// `in_time`: where it is left to others, it has not expired.
    Action end_without_server(bool in_time) {
        switch (ended_.kind) {
            case Ended::Kind::handed:
                outcome_ = Release::released;
                return then(Stage::over, StopRenewal{});
            case Ended::Kind::left:
                outcome_ = in_time ? Release::released : Release::expired;
                return then(Stage::clean_up_delayed, StopRenewal{});
            case Ended::Kind::past:
                outcome_ = Release::expired;
                stage_ = Stage::clean_up_delayed;
                return next();
            case Ended::Kind::nested:
            case Ended::Kind::last:
            case Ended::Kind::nothing: break;
        }
        outcome_.reset();
        return Done{};
    }

    Action free_hold(Result<Release> outcome) {
        const bool was_moved = token_ == Which::next && outcome;
        outcome_ = was_moved ? Release::released : std::move(outcome);
        return then(Stage::clean_up_held, FreeHold{});
    }

    Action then(Stage stage, Action action) {
        stage_ = stage;
        return action;
    }

    Action clean_up(Which token, CleanUp what, Stage after) {
        stage_ = after;
        return what.needed() ? CleanUpToken{token, what} : next();
    }

    CleanUp abandoned_leaves() const {
        constexpr bool may_have = true;
        return after_abandoned_try(may_have, heard_.acquire_unanswered);
    }

    CleanUp held_leaves() const {
        if (moved_) return after_release({.acquire_unanswered = heard_.acquire_unanswered});
        // Without an answer only the validity is known to be over. An extension that was under way may have
        // prolonged the lock at the server.
        return after_release({.outcome_known = answered_ && outcome_->has_value(),
                              .client_closed = client_closed_,
                              .all_told = (ended_.masters & ~heard_.told) == 0,
                              .acquire_unanswered = heard_.acquire_unanswered});
    }

    CleanUp next_leaves() const {
        if (token_ == Which::held) return {};
        if (!outcome_->has_value()) return after_unanswered_move();
        return after_release({.acquire_unanswered = moved_->repeated});
    }

    Ended ended_{};
    Stage stage_ = Stage::over;
    Which token_ = Which::held;  // that is released
    bool valid_at_start_ = false;
    bool answered_ = false;
    bool serving_ = false;  // waiters, as the lock is free
    bool client_closed_ = false;
    ReleaseOutcome answers_{false};
    MastersHeard heard_{};
    std::optional<Move> moved_;
    std::optional<Result<Release>> outcome_;
};

/// What has become of a release that was only sent. `valid`: whether the hold's validity was running as its end began;
/// otherwise it has expired, whatever the server says.
struct SentRelease {
    CleanUp clean_up;
    Result<Release> outcome;

    static SentRelease answered(std::int64_t value, bool acquire_unanswered, bool valid) {
        return {after_sent_release(has_more_to_serve(value), acquire_unanswered),
                was_held(value) && valid ? Release::released : Release::expired};
    }

    static SentRelease failed(Error cause, bool valid) {
        if (!valid) return {after_unanswered_sent_release(), Release::expired};
        Error unclear{Errc::unclear, cause.key, {}, {}, {}};
        unclear.causes.push_back(std::move(cause));
        return {after_unanswered_sent_release(), Unexpected{std::move(unclear)}};
    }
};

}  // namespace redlatch::inline v0::detail
