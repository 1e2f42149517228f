#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/executor.hpp>

#include <cstddef>
#include <memory>

#if REDLATCH_DEFINITIONS
#include <redlatch/net/process_id.hpp>
#include <redlatch/net/wake_descriptor.hpp>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <system_error>
#endif

namespace redlatch::inline v0 {

namespace detail {
class CompletionQueueState;
}  // namespace detail

/// Completions for an event loop of any kind: the loop watches `descriptor()`, and calls `run_ready()` when
/// it is readable. Any thread may post. The queue may be destroyed while operations are under way, which are
/// then discarded. An operation that waits at the server then gives up its place within some ten seconds. One
/// that waits behind others of its client gives up at its turn. In a forked child, an inherited queue is
/// empty, and discards what is posted.
class CompletionQueue : public Executor {
public:
    /// An empty queue. Throws `std::system_error` where the system has no descriptor to give.
    CompletionQueue();
    // Virtual functions are inline: otherwise each file that includes this gets the vtable, and with it all
    // asynchronous code.
    /// Discards what is pending. Not to be called while `run_ready()` runs.
    REDLATCH_INLINE ~CompletionQueue() override;

    /// Readable (`POLLIN`) as long as something has completed that `run_ready()` has not run. For `poll`, `epoll` and
    /// the like only; the queue owns it.
    int descriptor() const noexcept;

    /// Runs what has completed, on the calling thread, and returns the number of completions. It does not
    /// block, but a completion may. It leaves those that come meanwhile for the next call. One thread at a
    /// time calls it.
    std::size_t run_ready() noexcept;

    REDLATCH_INLINE void post(Task& task) noexcept override;
    REDLATCH_INLINE void post_chain(Task& first) noexcept override;
    REDLATCH_INLINE std::shared_ptr<Executor> share() noexcept override;

private:
    std::shared_ptr<detail::CompletionQueueState> state_;
};

#if REDLATCH_DEFINITIONS

namespace detail {

/// What operations share with their queue, and keep when it is gone.
class CompletionQueueState final : public Executor {
public:
    CompletionQueueState() {
        if (!ready_.open()) throw std::system_error{errno, std::system_category(), "eventfd"};
    }

    /// Whether this process has made it. In a forked child the mutex may be locked for ever.
    bool is_ours() const noexcept { return process_ == ProcessId::of_this_process(); }

    int descriptor() const noexcept { return ready_.entry().fd; }

    void post(Task& task) noexcept override {
        task.next = nullptr;
        post_chain(task);
    }

    void post_chain(Task& first) noexcept override {
        TaskList tasks;
        tasks.push_chain(first);
        if (is_ours()) {
            const std::lock_guard lock{mutex_};
            if (!closed_) {
                // Under the mutex, so that no call of `take` comes in between.
                if (tasks_.empty()) ready_.ring();
                return tasks_.append(tasks);
            }
        }
        while (Task* const task = tasks.pop()) task->discard();
    }

    void take(TaskList& tasks) noexcept {
        const std::lock_guard lock{mutex_};
        if (tasks_.empty()) return;
        ready_.reset();
        tasks.append(tasks_);
    }

    void close(TaskList& tasks) noexcept {
        const std::lock_guard lock{mutex_};
        closed_ = true;
        ready_.close();
        tasks.append(tasks_);
    }

private:
    bool is_of_the_library() const noexcept override { return true; }
    bool is_closed() const noexcept override { return closed_; }

    const ::pid_t process_ = ProcessId::of_this_process();
    WakeDescriptor ready_{};
    std::mutex mutex_{};
    TaskList tasks_{};
    std::atomic<bool> closed_{false};  // written with the mutex held
};

}  // namespace detail

REDLATCH_INLINE CompletionQueue::CompletionQueue()
    : state_(std::make_shared<detail::CompletionQueueState>()) {}

REDLATCH_INLINE CompletionQueue::~CompletionQueue() {
    if (!state_->is_ours()) return;
    detail::TaskList tasks;
    state_->close(tasks);
    while (Task* const task = tasks.pop()) task->discard();
}

REDLATCH_INLINE int CompletionQueue::descriptor() const noexcept {
    return state_->descriptor();
}

REDLATCH_INLINE std::size_t CompletionQueue::run_ready() noexcept {
    if (!state_->is_ours()) return 0;
    detail::TaskList tasks;
    state_->take(tasks);
    std::size_t count = 0;
    for (; Task* const task = tasks.pop(); ++count) task->run();
    return count;
}

REDLATCH_INLINE void CompletionQueue::post(Task& task) noexcept {
    state_->post(task);
}

REDLATCH_INLINE void CompletionQueue::post_chain(Task& first) noexcept {
    state_->post_chain(first);
}

REDLATCH_INLINE std::shared_ptr<Executor> CompletionQueue::share() noexcept {
    return state_;
}

#endif

}  // namespace redlatch::inline v0
