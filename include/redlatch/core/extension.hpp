#pragma once

#include <redlatch/core/backoff.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/core/renewal_times.hpp>
#include <redlatch/types.hpp>

#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Sets a hold's lease anew: event in, action out. Tries again through faults until the time is over
/// or the validity ends; an extension that got no answer changes nothing here. Knows no server and
/// reads no clock.
class ExtensionMachine {
public:
    struct Plan {
        Lease lease;
        TimePoint last_end;  ///< the end by `max_hold`: no lease passes it
        TimePoint give_up_at;
    };

    // The actions.

    /// Then `answered()` or `failed()`.
    struct SendExtend {
        Lease lease;
        TimePoint answer_by;
        bool lock_alone = false;  ///< about no key but the lock's: they are in two places
    };
    /// The hold has this lease, unless its validity ended on the way. Then `confirmed()`.
    struct Confirm {
        TimePoint sent;
        Lease lease;
    };
    /// The server may keep the lock for longer than the validity tells. Then `noted()`.
    struct NoteProlonged {};
    /// Then `declared_lost()`.
    struct DeclareLost {
        ServerKeeps server;
    };
    /// Then `begin()`.
    struct RetryAt {
        TimePoint time;
    };
    struct Done {
        Result<void> outcome;
    };
    using Action = OneOf<SendExtend, Confirm, NoteProlonged, DeclareLost, RetryAt, Done>;

    explicit ExtensionMachine(const Plan& plan) : plan_(plan) {}

    /// A try. `valid`: whether the hold is held, and its validity runs.
    Action begin(TimePoint now, bool valid) {
        if (!valid) return lost("it had ended before this call", ServerKeeps::nothing);
        sent_ = now;
        wanted_ = renewal_lease(plan_.lease, now, plan_.last_end);
        return SendExtend{wanted_, plan_.give_up_at, keys_are_apart_};
    }

    Action answered(bool still_ours) {
        if (still_ours) return Confirm{sent_, wanted_};
        return lost("somebody removed it", ServerKeeps::removed);
    }

    /// `in_time`: the hold had not ended when the answer came.
    Action confirmed(bool in_time) {
        if (in_time) return Done{};
        return lost("it ended before the answer", ServerKeeps::longer);
    }

    /// `is_released`: the holder has ended the hold meanwhile. Its release takes out an extension that is not
    /// written.
    Action failed(Fault fault, TimePoint now, bool is_released) {
        is_released_ = is_released;
        const TimePoint retry_at = saturating_add(now, retry_pause);
        const bool over = !fault.transient || retry_at >= plan_.give_up_at;
        keys_are_apart_ = keys_are_apart_ || is_between_servers(fault);
        retry_at_ = over ? std::nullopt : std::optional{retry_at};
        fault_ = following(std::move(fault.error), fault_);
        return fault.maybe_executed ? NoteProlonged{} : next();
    }

    /// `is_lost`: the hold was lost before anybody knew what the server may keep.
    Action noted(bool is_lost) {
        if (is_lost) return lost("it ended before the answer", ServerKeeps::longer);
        return next();
    }

    /// `lost`: as opposed to a hold that another thread has released meanwhile.
    Action declared_lost(bool lost) const {
        if (lost) return Done{Unexpected{make_error(Errc::lost, why_)}};
        return released();
    }

private:
    static Done released() {
        return {Unexpected{make_error(Errc::not_held, "it was released meanwhile")}};
    }

    Action next() {
        if (retry_at_) return RetryAt{*retry_at_};
        if (is_released_) return released();
        return Done{Unexpected{*std::move(fault_)}};
    }

    Action lost(const char* why, ServerKeeps server) {
        why_ = why;
        return DeclareLost{server};
    }

    Plan plan_;
    TimePoint sent_{};
    Lease wanted_ = plan_.lease;
    bool keys_are_apart_ = false;
    bool is_released_ = false;
    std::optional<TimePoint> retry_at_{};
    std::optional<Error> fault_{};
    const char* why_ = "";
};

}  // namespace redlatch::inline v0::detail
