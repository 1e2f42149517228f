#pragma once

#include <redlatch/net/thread.hpp>
#include <redlatch/net/wake_descriptor.hpp>

#include <atomic>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// Runs something that blocks on a thread of its own, so that it does not hold up a thread that has others
/// to serve. One thread uses it.
template <class Outcome>
class BackgroundCall {
public:
    BackgroundCall() = default;
    BackgroundCall(const BackgroundCall&) = delete;
    BackgroundCall& operator=(const BackgroundCall&) = delete;

    /// Ends a call that is under way.
    ~BackgroundCall() {
        stop_.request_stop();
        if (thread_.joinable()) thread_.join();
    }

    bool under_way() const noexcept { return under_way_; }

    /// Begins; none may be under way. Rings when `take` has something to give. `call` gets a token that
    /// tells it to stop, and returns an `Outcome`. Borrows the reference.
    template <class Call>
    void begin(Call call, const WakeDescriptor& wake) {
        under_way_ = true;
        const auto work = [this, call = std::move(call), &wake] {
            outcome_.emplace(call(stop_.get_token()));
            done_.store(true, std::memory_order_release);
            wake.ring();
        };
        thread_ = start_service_thread("redlatch conn", work);
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
    std::stop_source stop_;
    std::optional<Outcome> outcome_;  // of the thread until it is done
    std::atomic<bool> done_{false};
    bool under_way_ = false;
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
