#pragma once

#include <redlatch/core/backoff.hpp>
#include <redlatch/net/background_call.hpp>
#include <redlatch/topology/topology.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>

namespace redlatch::inline v0::detail {

/// Connects to one master in the background. One thread uses it.
class BackgroundConnect {
public:
    using Outcome = Expected<Connection, Fault>;

    bool under_way() const noexcept { return call_.under_way(); }
    TimePoint begun() const noexcept { return begun_; }

    /// Not to be begun before then: there is a pause after an attempt that failed. So a thousand commands for a server
    /// that is down try no more often than one does.
    TimePoint next_at() const noexcept { return next_at_; }

    /// Begins; none may be under way. `before`: a fault that the topology has to hear of first. Rings
    /// when `take` has something to give. Borrows the references.
    void begin(Topology& topology, Node& node, std::optional<Fault> before,
               const WakeDescriptor& wake) {
        begun_ = Clock::now();
        const TimePoint until = saturating_add(begun_, node.command_timeout());
        const auto connect = [&topology, &node, before = std::move(before),
                              until](const std::stop_token& stop) {
            const Limit limit{until, stop};
            if (before) topology.failed(node, *before, limit.within(time_to_look_around));
            Outcome outcome = topology.connect(node, limit);
            // In time of its own: a server that is silent has taken all that there was.
            if (!outcome && !limit.cancelled()) {
                const Limit look_around{saturating_add(Clock::now(), time_to_look_around), stop};
                topology.failed(node, outcome.error(), look_around);
            }
            return outcome;
        };
        call_.begin(connect, wake);
    }

    /// What came of it; nothing while it is under way, or where there was none.
    std::optional<Outcome> take() {
        auto outcome = call_.take();
        if (outcome && *outcome) {
            pauses_.reset();
            next_at_ = TimePoint::min();
        } else if (outcome) {
            const TimePoint now = Clock::now();
            if (!pauses_) pauses_.emplace(between_attempts, seed_at(now));
            next_at_ = saturating_add(now, pauses_->next(std::nullopt));
        }
        return outcome;
    }

private:
    static constexpr std::chrono::milliseconds time_to_look_around{200};
    static constexpr Backoff between_attempts{.min = std::chrono::milliseconds{1},
                                              .max = std::chrono::milliseconds{100}};

    std::uint64_t seed_at(TimePoint now) const noexcept {
        return static_cast<std::uint64_t>(now.time_since_epoch().count()) ^
               reinterpret_cast<std::uintptr_t>(this);
    }

    BackgroundCall<Outcome> call_;
    TimePoint begun_{};
    TimePoint next_at_ = TimePoint::min();
    std::optional<Pauses> pauses_{};  // since the last one that succeeded
};

}  // namespace redlatch::inline v0::detail
