#pragma once

#include <redlatch/net/background_call.hpp>
#include <redlatch/topology/topology.hpp>

#include <chrono>
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
            if (!outcome && !limit.cancelled()) {
                topology.failed(node, outcome.error(), limit.within(time_to_look_around));
            }
            return outcome;
        };
        call_.begin(connect, wake);
    }

    /// What came of it; nothing while it is under way, or where there was none.
    std::optional<Outcome> take() { return call_.take(); }

private:
    static constexpr std::chrono::milliseconds time_to_look_around{200};

    BackgroundCall<Outcome> call_;
    TimePoint begun_{};
};

}  // namespace redlatch::inline v0::detail
