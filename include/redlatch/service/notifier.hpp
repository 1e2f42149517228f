#pragma once

#include <redlatch/net/thread.hpp>
#include <redlatch/service/hold.hpp>
#include <redlatch/service/schedule.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// Runs users' callbacks, one after the other, on threads where they are in nobody's way. A
/// callback that takes longer than 10 ms loses its monopoly: another thread goes on with the next
/// ones, up to eight in all. Thread-safe; knows no client, so that a thread stuck in a callback can
/// be left behind.
class CallbackThreads {
public:
    using Task = std::function<void()>;

    /// Whether a task may be dropped where too many are waiting.
    enum class Keep { always, if_there_is_room };

    /// Appends a task. Somebody has to call `supervise` soon.
    void post(Task task, Keep keep) {
        {
            const std::lock_guard lock{mutex_};
            const bool room = tasks_.size() < longest_backlog;
            if (closing_ || (keep == Keep::if_there_is_room && !room)) return;
            tasks_.push_back(std::move(task));
        }
        work_.notify_one();
    }

    /// Sees to it that tasks are taken: call it again at the time it returns.
    static TimePoint supervise(const std::shared_ptr<CallbackThreads>& self, TimePoint now) {
        const std::lock_guard lock{self->mutex_};
        if (self->tasks_.empty() || self->threads_ == most_threads) return TimePoint::max();
        if (self->idle_ > 0) return saturating_add(now, patience);  // it is waking up
        const TimePoint patience_ends = saturating_add(self->last_start_, patience);
        if (self->threads_ > 0 && now < patience_ends) return patience_ends;
        // Out of threads, those there are will get to it, or the next call of this function.
        if (auto thread = start_service_thread([self] { self->run(); }); thread.joinable()) {
            thread.detach();
            ++self->threads_;
            self->last_start_ = now;
        }
        return saturating_add(now, patience);
    }

    /// Lets the tasks so far be run, for `bound` at most. A callback may be what calls this; it is
    /// not waited for.
    static void close(const std::shared_ptr<CallbackThreads>& self, Clock::duration bound) {
        const TimePoint end = saturating_add(Clock::now(), bound);
        const std::size_t caller = running_here() == self.get() ? 1 : 0;
        {
            const std::lock_guard lock{self->mutex_};
            self->closing_ = true;
        }
        self->work_.notify_all();
        for (TimePoint now = Clock::now(); now < end; now = Clock::now()) {
            supervise(self, now);  // a callback that hangs does not hold up those behind it
            std::unique_lock lock{self->mutex_};
            const auto done = [&] { return self->threads_ <= caller && self->tasks_.empty(); };
            if (self->finished_.wait_for(lock, std::min<Clock::duration>(end - now, patience),
                                         done)) {
                break;
            }
        }
        const std::lock_guard lock{self->mutex_};
        self->tasks_.clear();
    }

private:
    static constexpr std::chrono::milliseconds patience{10};
    static constexpr std::size_t most_threads = 8;
    static constexpr std::size_t longest_backlog = 100'000;

    static const CallbackThreads*& running_here() {
        thread_local const CallbackThreads* here = nullptr;
        return here;
    }

    void run() {
        running_here() = this;
        std::unique_lock lock{mutex_};
        for (;;) {
            ++idle_;
            work_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
            --idle_;
            if (tasks_.empty()) break;
            Task task = std::move(tasks_.front());
            tasks_.pop_front();
            last_start_ = Clock::now();
            lock.unlock();
            run_one(task);
            task = nullptr;
            lock.lock();
            if (idle_ > 0 && tasks_.empty()) break;  // another one has taken over
        }
        --threads_;
        finished_.notify_all();
    }

    static void run_one(const Task& task) noexcept {
        try {
            task();
        } catch (...) {  // a user's callback: what it throws concerns nobody here
        }
    }

    std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable finished_;
    std::deque<Task> tasks_;
    std::size_t threads_ = 0;
    std::size_t idle_ = 0;
    TimePoint last_start_{};
    bool closing_ = false;
};

/// Watches the clock for holds whose loss somebody wants to hear of, and hands users' callbacks to
/// their threads. Its own thread starts at the first use, does no I/O and runs no user code, so
/// that a loss is told on time even if the server is silent and another callback hangs.
/// Thread-safe.
class Notifier {
public:
    using Task = CallbackThreads::Task;
    using RunOut = std::function<void(const std::shared_ptr<Hold>&)>;

    /// `run_out` is called on the notifier's thread for a watched hold whose validity is over.
    explicit Notifier(RunOut run_out) : run_out_(std::move(run_out)) {}
    Notifier(const Notifier&) = delete;
    Notifier& operator=(const Notifier&) = delete;
    ~Notifier() { close(Clock::duration::zero()); }

    /// Runs `task` on a callback thread, after those posted before.
    void post(Task task, CallbackThreads::Keep keep) {
        callbacks_->post(std::move(task), keep);
        const std::lock_guard lock{mutex_};
        supervise_ = true;
        wake_up();
    }

    /// Calls `run_out` when the hold's validity ends, unless it is unwatched before.
    void watch(std::shared_ptr<Hold> hold) {
        const std::lock_guard lock{mutex_};
        const TimePoint end = hold->valid_until();
        const bool sooner = end < alarms_.next_due();
        const Hold* const key = hold.get();
        alarms_.put(key, end, std::move(hold));
        if (sooner) wake_up();
    }

    void unwatch(const Hold& hold) {
        const std::lock_guard lock{mutex_};
        alarms_.remove(&hold);
    }

    /// Stops watching, then lets the callbacks posted so far be run, for `bound` at most.
    void close(Clock::duration bound) {
        {
            const std::lock_guard lock{mutex_};
            closing_ = true;
            wake_.notify_one();
        }
        if (thread_.joinable()) thread_.join();
        CallbackThreads::close(callbacks_, bound);
    }

private:
    /// With the mutex held.
    void wake_up() {
        if (!thread_.joinable() && !closing_) {
            thread_ = start_service_thread([this] { run(); });  // or the next call does
        }
        wake_.notify_one();
    }

    void run() {
        std::unique_lock lock{mutex_};
        TimePoint supervise_at = TimePoint::max();
        while (!closing_) {
            const TimePoint now = Clock::now();
            if (auto hold = alarms_.take_due(now)) {
                lock.unlock();
                check(std::move(*hold), now);
                lock.lock();
                continue;
            }
            if (std::exchange(supervise_, false) || supervise_at <= now) {
                supervise_at = CallbackThreads::supervise(callbacks_, now);
            }
            sleep_until(lock, std::min(alarms_.next_due(), supervise_at));
        }
    }

    void sleep_until(std::unique_lock<std::mutex>& lock, TimePoint until) {
        if (until == TimePoint::max()) {
            wake_.wait(lock, [this] { return closing_ || supervise_ || !alarms_.empty(); });
            return;
        }
        wake_.wait_for(lock,
                       std::clamp<Clock::duration>(saturating_sub(until, Clock::now()),
                                                   Clock::duration::zero(), longest_service_sleep));
    }

    /// A renewal may have moved the end of validity since.
    void check(std::shared_ptr<Hold> hold, TimePoint now) {
        if (!hold->in(Phase::held)) return;
        if (hold->valid(now)) {
            watch(std::move(hold));
        } else {
            run_out_(hold);
        }
    }

    const RunOut run_out_;
    const std::shared_ptr<CallbackThreads> callbacks_ = std::make_shared<CallbackThreads>();
    std::mutex mutex_;
    std::condition_variable wake_;
    Schedule<std::shared_ptr<Hold>> alarms_;
    bool supervise_ = false;
    bool closing_ = false;
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
