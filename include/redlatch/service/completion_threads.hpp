#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/net/thread.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

namespace redlatch::inline v0::detail {

/// Where operations complete that nobody wants to have elsewhere: on threads of the client's, one after the
/// other, in order. One that takes longer than 10 ms no longer runs alone: another thread goes on with the
/// next ones, up to eight in all. Thread-safe; knows no client, and its threads are left behind at the end of
/// that.
class CompletionThreads final : public Executor,
                                public std::enable_shared_from_this<CompletionThreads> {
public:
    static constexpr std::chrono::milliseconds patience{10};
    static constexpr std::size_t most_threads = 8;

    /// Where the system has no thread to give, those there are will get to it, or the next call.
    void post(Task& task) noexcept override {
        task.next = nullptr;
        post_chain(task);
    }

    void post_chain(Task& first) noexcept override {
        const std::lock_guard lock{mutex_};
        tasks_.push_chain(first);
        reinforce();
        // A standby that looks every few ms need not be told of each task.
        if (idle_ > 0 && (leader_ == nullptr || !is_watched_)) work_.notify_one();
    }

    /// Threads end when nothing is left to do.
    void close() noexcept {
        const std::lock_guard lock{mutex_};
        closing_ = true;
        if (!tasks_.empty()) reinforce();
        work_.notify_all();
    }

private:
    bool is_of_the_library() const noexcept override { return true; }

    struct Worker {};

    static constexpr std::chrono::seconds watch_for{1};

    // All with the mutex held.

    /// Somebody is there to run what waits, and somebody to take over where that one takes too long.
    void reinforce() noexcept {
        if (idle_ > 0 || threads_ == most_threads) return;
        auto thread =
            start_service_thread("redlatch resume", [self = shared_from_this()] { self->run(); });
        if (!thread.joinable()) return;
        thread.detach();
        ++threads_;
        ++idle_;  // from now on, so that the next post starts no other
    }

    void run() noexcept {
        Worker me;
        std::unique_lock lock{mutex_};
        for (;;) {
            const TimePoint now = Clock::now();
            const TimePoint patience_ends = saturating_add(led_since_, patience);
            const bool may_lead = leader_ == nullptr || now >= patience_ends;
            if (!tasks_.empty() && may_lead) {
                --idle_;
                const bool was_taken_over = !lead(me, lock);
                if (was_taken_over && idle_ > 0) break;
                ++idle_;
            } else if (closing_ && tasks_.empty()) {
                --idle_;
                break;
            } else if (leader_ != nullptr && now < saturating_add(led_since_, watch_for)) {
                is_watched_ = true;
                work_.wait_for(lock, now < patience_ends ? patience_ends - now : patience);
                is_watched_ = false;
            } else {
                work_.wait(lock);
            }
        }
        --threads_;
    }

    /// False where another one has taken over.
    bool lead(const Worker& me, std::unique_lock<std::mutex>& lock) noexcept {
        leader_ = &me;
        while (leader_ == &me) {
            Task* const task = tasks_.pop();
            if (task == nullptr) break;
            led_since_ = Clock::now();
            if (!tasks_.empty()) reinforce();
            lock.unlock();
            task->run();
            lock.lock();
        }
        if (leader_ != &me) return false;
        leader_ = nullptr;
        return true;
    }

    std::mutex mutex_{};
    std::condition_variable work_{};
    TaskList tasks_{};
    const Worker* leader_ = nullptr;  // who runs tasks, one after the other
    TimePoint led_since_{};           // the task that it runs just now
    std::size_t threads_ = 0;
    std::size_t idle_ = 0;
    bool is_watched_ = false;  // a standby sleeps for a few ms at most
    bool closing_ = false;
};

}  // namespace redlatch::inline v0::detail
