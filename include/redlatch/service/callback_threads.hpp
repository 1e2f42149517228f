#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/net/thread.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

namespace redlatch::inline v0::detail {

/// Runs users' callbacks on threads where they are in nobody's way. Thread-safe; knows no client, so
/// that a thread stuck in a callback can be left behind.
class CallbackThreads {
public:
    using Task = std::function<void()>;

    enum class Kind {
        /// One after the other, in order. One that takes longer than 10 ms no longer runs alone: another
        /// thread goes on with the next ones, up to eight in all. Events that come to a backlog of 100,000 or
        /// after the end are dropped, but for those that are certain.
        events,
        /// Each has to run soon, whatever the others do: while one waits, the threads double every
        /// 10 ms. None is dropped.
        losses,
    };

    /// Whether an event may be dropped.
    enum class Delivery : bool { by_chance, certain };

    explicit CallbackThreads(Kind kind) : kind_(kind) {}

    /// Appends a task; false where it is dropped. Somebody has to call `supervise` soon.
    bool post(Task task, Delivery delivery = Delivery::by_chance) {
        {
            const std::lock_guard lock{mutex_};
            const bool certain = kind_ == Kind::losses || delivery == Delivery::certain;
            if (!certain && (closing_ || tasks_.size() >= longest_backlog)) return false;
            tasks_.push_back({std::move(task), Clock::now(), certain});
        }
        work_.notify_one();
        return true;
    }

    /// Has a thread ready, so that a task finds one even if the system has none to give by then.
    static void prepare(const std::shared_ptr<CallbackThreads>& self) {
        const std::lock_guard lock{self->mutex_};
        if (self->threads_ == 0) start(self, 1);
    }

    /// Sees to it that tasks are taken: call it again at the time it returns. Where the system has no
    /// thread to give, those there are will get to it, or the next call of this function.
    static TimePoint supervise(const std::shared_ptr<CallbackThreads>& self, TimePoint now) {
        const std::lock_guard lock{self->mutex_};
        if (self->tasks_.empty() || self->threads_ >= self->most_threads()) return TimePoint::max();
        if (self->idle_ > 0) return saturating_add(now, patience);  // it is waking up
        const TimePoint patience_ends = self->patience_ends();
        if (self->threads_ > 0 && now < patience_ends) return patience_ends;
        start(self, self->reinforcement());
        self->last_start_ = now;
        return saturating_add(now, patience);
    }

    /// Threads end when nothing is left to do. Only events that are certain are taken any more.
    void begin_to_close() {
        {
            const std::lock_guard lock{mutex_};
            closing_ = true;
        }
        work_.notify_all();
    }

    /// Whether all has run by then. A callback may call this; it is not waited for.
    bool wait_until_done(Clock::duration bound) {
        const std::size_t caller = running_here() == this ? 1 : 0;
        std::unique_lock lock{mutex_};
        return finished_.wait_for(lock, bound,
                                  [&] { return threads_ <= caller && tasks_.empty(); });
    }

    /// Leaves alone what runs. Losses that still wait get a thread each. Events are dropped; those that are
    /// certain follow when the running ones have ended.
    static void abandon(const std::shared_ptr<CallbackThreads>& self) {
        std::deque<Waiting> dropped;  // destroyed without the mutex
        const std::lock_guard lock{self->mutex_};
        if (self->kind_ == Kind::losses) return start(self, self->tasks_.size());
        for (Waiting& waiting : std::exchange(self->tasks_, {})) {
            (waiting.certain ? self->tasks_ : dropped).push_back(std::move(waiting));
        }
        if (!self->tasks_.empty() && self->threads_ == 0) start(self, 1);
    }

    static constexpr std::chrono::milliseconds patience{10};

private:
    struct Waiting {
        Task task;
        TimePoint since;
        bool certain;
    };

    static constexpr std::size_t longest_backlog = 100'000;

    static const CallbackThreads*& running_here() {
        thread_local const CallbackThreads* here = nullptr;
        return here;
    }

    // With the mutex held.

    const char* thread_name() const noexcept {
        return kind_ == Kind::events ? "redlatch events" : "redlatch losses";
    }

    std::size_t most_threads() const noexcept {
        return kind_ == Kind::events ? 8 : std::numeric_limits<std::size_t>::max();
    }

    TimePoint patience_ends() const noexcept {
        if (kind_ == Kind::events) return saturating_add(last_start_, patience);
        if (closing_) return TimePoint::min();
        return saturating_add(std::max(last_start_, tasks_.front().since), patience);
    }

    std::size_t reinforcement() const noexcept {
        if (kind_ == Kind::events) return 1;
        return std::clamp<std::size_t>(threads_, 1, tasks_.size());
    }

    static void start(const std::shared_ptr<CallbackThreads>& self, std::size_t count) {
        for (; count > 0; --count) {
            auto thread = start_service_thread(self->thread_name(), [self] { self->run(); });
            if (!thread.joinable()) return;
            thread.detach();
            ++self->threads_;
        }
    }

    void run() {
        running_here() = this;
        std::unique_lock lock{mutex_};
        while (idle_ == 0 || !tasks_.empty()) {  // one is enough for what may come
            ++idle_;
            work_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
            --idle_;
            if (tasks_.empty()) break;
            Task task = std::move(tasks_.front().task);
            tasks_.pop_front();
            if (kind_ == Kind::events) last_start_ = Clock::now();
            lock.unlock();
            run_one(task);
            task = nullptr;
            lock.lock();
        }
        --threads_;
        finished_.notify_all();
    }

    static void run_one(const Task& task) noexcept {
        try {
            task();
        } catch (...) {  // a user's callback: its exceptions concern nobody here
        }
    }

    const Kind kind_;
    std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable finished_;
    std::deque<Waiting> tasks_;
    std::size_t threads_ = 0;
    std::size_t idle_ = 0;
    TimePoint last_start_{};  // of an event; of further threads for losses
    bool closing_ = false;
};

}  // namespace redlatch::inline v0::detail
