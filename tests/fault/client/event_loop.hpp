#pragma once

#include "../history/event.hpp"
#include <redlatch/redlatch.hpp>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace redlatch::test::fault {

/// A thread for coroutines: runs what completes on its queue, and what is to be done at a time.
class EventLoop {
public:
    /// `laziness`: for how long it lets completions lie; a seeded bug.
    explicit EventLoop(Time laziness = Time{0})
        : laziness_{laziness}, thread_{[this](const std::stop_token& stop) { run(stop); }} {}

    [[nodiscard]] Executor& executor() { return queue_; }

    /// Whether the calling thread is the loop's.
    [[nodiscard]] bool is_here() const { return std::this_thread::get_id() == id_; }

    /// Any thread.
    void call_at(Time when, std::function<void()> what) {
        const std::lock_guard lock{mutex_};
        timers_.emplace(when, std::move(what));
    }

    class Pause {
    public:
        Pause(EventLoop& loop, Time until) : loop_{&loop}, until_{until} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<> waiting) const {
            loop_->call_at(until_, [waiting] { waiting.resume(); });
        }
        void await_resume() const noexcept {}

    private:
        EventLoop* loop_;
        Time until_;
    };

    /// For `co_await`, which then goes on here.
    [[nodiscard]] Pause pause(Time time) { return Pause{*this, now() + time}; }

private:
    void run(const std::stop_token& stop) {
        id_ = std::this_thread::get_id();
        Time looked = now();
        while (!stop.stop_requested()) {
            pollfd entry{.fd = queue_.descriptor(), .events = POLLIN, .revents = 0};
            const bool looks = now() - looked >= laziness_;
            ::poll(&entry, looks ? 1 : 0, patience());
            if (looks && queue_.run_ready() > 0) looked = now();
            run_due();
        }
    }

    /// Until the next timer. Those that come from elsewhere meanwhile need not be told.
    int patience() {
        constexpr Time most = std::chrono::milliseconds{5};
        const std::lock_guard lock{mutex_};
        if (timers_.empty()) return 5;
        const Time left = std::clamp(timers_.begin()->first - now(), Time{0}, most);
        return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
    }

    void run_due() {
        std::unique_lock lock{mutex_};
        const auto end = timers_.upper_bound(now());
        std::multimap<Time, std::function<void()>> due;
        while (timers_.begin() != end) due.insert(timers_.extract(timers_.begin()));
        lock.unlock();
        for (const auto& timer : due) timer.second();
    }

    CompletionQueue queue_;
    Time laziness_;
    std::mutex mutex_;
    std::multimap<Time, std::function<void()>> timers_;
    std::atomic<std::thread::id> id_{};
    std::jthread thread_;
};

}  // namespace redlatch::test::fault
