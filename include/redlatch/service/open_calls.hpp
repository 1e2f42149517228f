#pragma once

#include <redlatch/clock.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace redlatch::inline v0::detail {

/// The blocking calls of a client that take or release locks. The end of the client waits for them: each gives back
/// what it was given too late, so that the process may end then. Thread-safe.
class OpenCalls {
public:
    OpenCalls() = default;
    OpenCalls(const OpenCalls&) = delete;
    OpenCalls& operator=(const OpenCalls&) = delete;

    /// One call, as long as it lasts.
    class Call {
    public:
        explicit Call(OpenCalls& calls) noexcept : calls_(&calls) { ++calls_->open_; }
        Call(const Call&) = delete;
        Call& operator=(const Call&) = delete;
        ~Call() { calls_->ended(); }

    private:
        OpenCalls* calls_;
    };

    /// Waits until all have ended, but no longer than `until`.
    void wait_for_end(TimePoint until) {
        is_awaited_ = true;
        std::unique_lock lock{mutex_};
        ended_.wait_for(lock, saturating_sub(until, Clock::now()), [this] { return open_ == 0; });
    }

private:
    void ended() noexcept {
        if (--open_ > 0 || !is_awaited_) return;
        const std::lock_guard lock{mutex_};
        ended_.notify_all();
    }

    std::atomic<std::size_t> open_{0};
    std::atomic<bool> is_awaited_{false};
    std::mutex mutex_;
    std::condition_variable ended_;
};

}  // namespace redlatch::inline v0::detail
