#pragma once

#include <redlatch/core/attempts.hpp>
#include <redlatch/core/backoff.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/describe_owner.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/lock_answers.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/validity.hpp>
#include <redlatch/types.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Gives the lock from one process to another, in two moves: `Held::detach` moves it from the hold's token
/// to a ticket's, which nobody holds by, and `Lock::adopt` from there to a token of its own. Event in,
/// action out. Knows no server and reads no clock.
///
/// A move is sent again until it is answered, as it finds what it has done itself. The lock stays at the
/// ticket where an adoption fails before it was sent; in any other failure nobody keeps it.
class TransferMachine {
public:
    enum class Kind { detach, adopt };

    struct Plan {
        Kind kind;
        Lease lease;
        Drift drift{};
        TimePoint give_up_at;
        TimePoint valid_until = TimePoint::max();  ///< of the hold that is detached
        bool unclear_try = false;              ///< a command that asked for its lock got no answer
        Replicas replicas = Replicas::none();  ///< that have to know of an adoption

        static Plan of(Kind kind, const Hold& from, const Hold& to, TimePoint give_up_at) {
            const bool detach = kind == Kind::detach;
            return {.kind = kind,
                    .lease = to.terms().lease,
                    .drift = to.terms().drift,
                    .give_up_at = give_up_at,
                    .valid_until = detach ? from.valid_until() : TimePoint::max(),
                    .unclear_try = from.unanswered().acquire,
                    .replicas = detach ? Replicas::none() : to.terms().replicas};
        }
    };

    /// The server's answer.
    struct Reply {
        bool moved;
        bool repeated = false;  ///< an earlier sending of it may be carried out too
        bool others_wait = false;
        std::uint64_t fence = 0;
        std::int64_t replicas = 0;  ///< how many have it
        std::int64_t replicas_wanted = 0;
        std::string node{};  ///< where not replicated: which master

        bool replicated() const noexcept { return replicas >= replicas_wanted; }
    };

    // The actions.

    /// Then `answered()` or `failed()`.
    struct SendMove {
        TimePoint answer_by;
        Replicas replicas;
    };
    /// Then `pause_over()`.
    struct RetryAt {
        TimePoint time;
    };
    /// The lock has moved. A hold that was detached is over; clean its token up.
    struct Moved {
        TimePoint since;  ///< from when on its validity counts
        std::uint64_t fence;
        bool others_wait;
        bool unclear;  ///< a move to the token may be carried out yet
        CleanUp from;
    };
    /// It has not, or nobody knows. A hold that was detached is over all the same; clean both tokens up.
    struct Failed {
        Error error;
        CleanUp from;
        CleanUp to;
    };
    using Action = OneOf<SendMove, RetryAt, Moved, Failed>;

    explicit TransferMachine(const Plan& plan) : plan_(plan) {}

    /// Why a hold that has left the lock table so is not moved; nothing where it is.
    static std::optional<Errc> not_moved(AcquisitionEnding::Kind left) noexcept {
        using Kind = AcquisitionEnding::Kind;
        if (left == Kind::last) return std::nullopt;
        return left == Kind::nothing ? Errc::not_held : Errc::lost;
    }

    /// What the lock of a hold moves to. Nobody gets it before the hold's `min_hold` is over.
    static std::shared_ptr<Hold> ticket_of(const Hold& hold, std::string token) {
        auto ticket = std::make_shared<Hold>(
            hold.terms(), Token{std::move(token).append(ticket_mark)}, LockOwner{});
        ticket->keep_like(hold);
        return ticket;
    }

    Action begin(TimePoint now) {
        if (now < plan_.valid_until) return send(now);
        return fail(make_error(Errc::lost, "its validity has ended"));
    }

    Action answered(const Reply& reply, TimePoint now) {
        unclear_ = unclear_ || reply.repeated;
        if (!reply.moved) {
            gone_ = true;
            return fail(make_error(Errc::lost, why_gone()));
        }
        moved_ = true;
        if (!reply.replicated()) {
            return fail(too_few_replicas(reply.replicas, reply.replicas_wanted, reply.node));
        }
        if (now >= valid_until(sent_, plan_.lease, plan_.drift)) {
            return fail(late_answer_fault().error);
        }
        return Moved{.since = sent_,
                     .fence = reply.fence,
                     .others_wait = reply.others_wait,
                     .unclear = unclear_,
                     .from = {.once_more = is_detached() && plan_.unclear_try}};
    }

    Action failed(Fault fault, TimePoint now) {
        unclear_ = unclear_ || fault.maybe_executed;
        const TimePoint retry_at = saturating_add(now, retry_pause);
        const bool again =
            fault.transient && retry_at < plan_.give_up_at && retry_at < plan_.valid_until;
        if (again) return RetryAt{retry_at};
        return fail(std::move(fault.error));
    }

    Action pause_over(TimePoint now) { return begin(now); }

    /// It was adopted, and the client was closed meanwhile.
    Failed not_kept() const { return fail(make_error(Errc::cancelled, cancelled_by_close)); }

private:
    bool is_detached() const noexcept { return plan_.kind == Kind::detach; }

    std::string why_gone() const {
        return is_detached() ? "somebody removed it" : "the ticket is over, or was adopted before";
    }

    Action send(TimePoint now) {
        sent_ = now;
        return SendMove{plan_.give_up_at, plan_.replicas};
    }

    /// The token that is moved to is released if the server may have it; the hold's own in any case.
    Failed fail(Error why) const {
        const bool may_have = (unclear_ && !gone_) || moved_;
        Failed failed{.error = std::move(why),
                      .from = {},
                      .to = {.at_once = may_have, .once_more = unclear_}};
        if (is_detached()) {
            failed.from = {.at_once = !gone_ && !moved_,
                           .once_more = unclear_ || plan_.unclear_try};
        }
        return failed;
    }

    Plan plan_;
    TimePoint sent_{};
    bool unclear_ = false;  // a move may be carried out yet
    bool gone_ = false;     // the server has neither token
    bool moved_ = false;
};

}  // namespace redlatch::inline v0::detail
