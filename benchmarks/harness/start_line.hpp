#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

namespace redlatch::bench {

/// One clock for all processes of a machine.
using SteadyClock = std::chrono::steady_clock;
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "shared between processes");

/// In shared memory: where threads of several processes wait for each other, start at one instant
/// and are told to stop. Waiting is polling, as that works between processes; nobody is on the line
/// while something is measured.
class StartLine {
public:
    /// For a contender: is ready.
    void arrive() noexcept { ready_.fetch_add(1); }

    /// The same; returns when all start, or when something went wrong.
    void wait_for_start() noexcept {
        arrive();
        while (start_.load() == 0 && !stopped()) std::this_thread::sleep_for(step);
        std::this_thread::sleep_until(start());
    }

    bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

    /// For the starter: whether all got ready in time.
    bool all_ready(int contenders, std::chrono::milliseconds limit) const {
        const auto end = SteadyClock::now() + limit;
        while (ready_.load() < contenders) {
            if (stopped() || SteadyClock::now() > end) return false;
            std::this_thread::sleep_for(step);
        }
        return !stopped();
    }

    /// Sets the start a moment ahead, so that all are there, and returns at the start.
    void go() {
        const auto begin = SteadyClock::now() + std::chrono::milliseconds{20};
        start_ = begin.time_since_epoch().count();
        std::this_thread::sleep_until(begin);
    }

    void stop() noexcept { stopped_ = true; }

    /// The first thing that went wrong stops everybody.
    void fail(std::string_view why) noexcept {
        if (!failing_.test_and_set()) {
            std::copy_n(why.data(), std::min(why.size(), error_.size() - 1), error_.data());
            failed_ = true;
        }
        stop();
    }
    std::string error() const { return failed_.load() ? error_.data() : std::string{}; }

private:
    static constexpr std::chrono::milliseconds step{1};

    SteadyClock::time_point start() const noexcept {
        return SteadyClock::time_point{SteadyClock::duration{start_.load()}};
    }

    std::atomic<int> ready_{0};
    std::atomic<std::int64_t> start_{0};
    std::atomic<bool> stopped_{false};
    std::atomic_flag failing_;
    std::atomic<bool> failed_{false};
    std::array<char, 200> error_{};
};

}  // namespace redlatch::bench
