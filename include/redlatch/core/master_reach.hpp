#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/quorum_call.hpp>

#include <chrono>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Whether one of several masters is within reach, as far as the last command or attempt to connect tells,
/// and when one more attempt is made.
class MasterReach {
public:
    /// A connection is wanted. `has_room`: one more may be made.
    ConnectStatus request(bool has_room, TimePoint now) {
        using Kind = ConnectStatus::Kind;
        if (!connects_ && last_fault_ && now < retry_at_) return {Kind::none, *last_fault_};
        if (!connects_ && has_room) {
            connects_ = true;
            wanted_since_ = now;
        }
        if (last_fault_) return {Kind::doubtful, *last_fault_};
        return {Kind::coming, {}, wanted_since_};
    }

    /// Whether its idle connections are to be closed before one is requested. Those that came back after the fault
    /// are of no use either, and would leave no room for the one that ends the doubt.
    bool wants_room(bool has_room) const noexcept { return is_doubtful() && !has_room; }

    /// A connection is to be made, or is being made.
    bool connects() const noexcept { return connects_; }

    /// It was made, or met a fault.
    void connected(std::optional<Fault> fault, TimePoint now) {
        connects_ = false;
        last_fault_ = std::move(fault);
        retry_at_ = saturating_add(now, reconnect_pause);
    }

    /// The last command, or attempt to connect, failed: it has to be reached anew before it is asked again.
    bool is_doubtful() const noexcept { return last_fault_.has_value(); }

    /// A command to it met a fault. True where its idle connections are of no use any more.
    bool failed(const Fault& fault) {
        if (fault.error.code != Errc::unavailable) return false;
        const bool known = is_doubtful();
        last_fault_ = fault;
        last_fault_->maybe_executed = false;
        if (!known) retry_at_ = TimePoint::min();
        return !known;
    }

private:
    /// A server that is not there is asked for no more often than that.
    static constexpr std::chrono::milliseconds reconnect_pause{100};

    std::optional<Fault> last_fault_;
    TimePoint retry_at_ = TimePoint::min();
    TimePoint wanted_since_ = TimePoint::min();
    bool connects_ = false;
};

}  // namespace redlatch::inline v0::detail
