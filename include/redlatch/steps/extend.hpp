#pragma once

#include <redlatch/core/renew.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/release.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// A hold that was to be extended is over. Another thread may have released it.
inline Unexpected<Error> cannot_extend(const Hold& hold, std::string why) {
    if (hold.in(Phase::lost))
        return Unexpected{Error{Errc::lost, hold.key(), {}, std::move(why), {}}};
    return Unexpected{Error{Errc::not_held, hold.key(), {}, "it was released meanwhile", {}}};
}

/// Sets a hold's lease anew, to `lease` from now on or to what it has left, whichever is longer,
/// but not past `max_hold`.
/// Tries again through faults until `command_timeout` is over or the validity ends; an extension
/// that got no answer changes nothing here.
inline Result<void> extend_hold(Session& session, const std::shared_ptr<Hold>& hold, Lease lease) {
    const auto whole = std::chrono::milliseconds{hold->server_ttl(lease)};
    if (auto fits = check_longest(whole, session.longest_lease()); !fits) {
        fits.error().key = hold->key();
        return fits;
    }
    const Limit limit = Limit::in(session.command_timeout());
    for (;;) {
        const TimePoint sent = Clock::now();
        if (!hold->valid(sent)) {
            session.declare_lost(hold);
            return cannot_extend(*hold, "its validity has ended");
        }
        const Lease wanted = renewal_lease(lease, sent, hold->last_end());
        const Call call = extend_call(*hold, wanted);
        auto reply = session.run(hold->key(), call, limit);
        if (reply && reply->view().integer() == 1) {
            if (hold->confirm_in_time(Clock::now(), sent, wanted)) return {};
            session.declare_lost(hold, ServerKeeps::lock);
            return cannot_extend(*hold, "it ended before the answer");
        }
        if (reply && reply->view().integer() == 0) {
            session.declare_lost(hold);
            return cannot_extend(*hold, "somebody removed it");
        }
        Fault fault = reply ? unexpected_reply() : std::move(reply).error();
        fault.error.key = hold->key();
        if (fault.maybe_executed) hold->may_be_prolonged = true;
        session.tell_error(fault.error);
        if (!fault.transient || saturating_add(Clock::now(), retry_pause) >= limit.at) {
            return Unexpected{std::move(fault.error)};
        }
        std::this_thread::sleep_for(retry_pause);
    }
}

}  // namespace redlatch::inline v0::detail
