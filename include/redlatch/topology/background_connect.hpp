#pragma once

#include <redlatch/net/thread.hpp>
#include <redlatch/net/wake_descriptor.hpp>
#include <redlatch/topology/topology.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// Connects to one master on a thread of its own, so that a master that is hard to reach does not
/// hold up a thread that has others to serve. One thread uses it.
class BackgroundConnect {
public:
    using Outcome = Expected<Connection, Fault>;

    BackgroundConnect() = default;
    BackgroundConnect(const BackgroundConnect&) = delete;
    BackgroundConnect& operator=(const BackgroundConnect&) = delete;

    /// Ends an attempt that is under way.
    ~BackgroundConnect() {
        stop_.request_stop();
        if (thread_.joinable()) thread_.join();
    }

    bool under_way() const noexcept { return under_way_; }
    TimePoint begun() const noexcept { return begun_; }

    /// Begins; none may be under way. `before`: a fault that the topology has to hear of first. Rings
    /// when `take` has something to give. Borrows the references.
    void begin(Topology& topology, Node& node, std::optional<Fault> before,
               const WakeDescriptor& wake) {
        under_way_ = true;
        begun_ = Clock::now();
        const Limit limit{saturating_add(begun_, node.command_timeout()), stop_.get_token()};
        const auto work = [this, &topology, &node, &wake, before = std::move(before), limit] {
            if (before) topology.failed(node, *before, limit.within(time_to_look_around));
            outcome_.emplace(topology.connect(node, limit));
            if (!*outcome_ && !limit.cancelled()) {
                topology.failed(node, outcome_->error(), limit.within(time_to_look_around));
            }
            done_.store(true, std::memory_order_release);
            wake.ring();
        };
        thread_ = start_service_thread(work);
        if (!thread_.joinable()) work();  // slower, and no less right
    }

    /// What came of it; nothing while it is under way, or where there was none.
    std::optional<Outcome> take() {
        if (!under_way_ || !done_.load(std::memory_order_acquire)) return std::nullopt;
        if (thread_.joinable()) thread_.join();
        under_way_ = false;
        done_ = false;
        return std::exchange(outcome_, std::nullopt);
    }

private:
    static constexpr std::chrono::milliseconds time_to_look_around{200};

    std::stop_source stop_;
    std::optional<Outcome> outcome_;  // of the thread until it is done
    std::atomic<bool> done_{false};
    bool under_way_ = false;
    TimePoint begun_{};
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
