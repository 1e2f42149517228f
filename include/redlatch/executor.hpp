#pragma once

#include <redlatch/compilation.hpp>

#include <memory>
#include <utility>

namespace redlatch::inline v0 {

namespace detail {
class AsyncCall;
}  // namespace detail

/// Where asynchronous operations complete: an event loop, a thread pool, a queue of the program's own. Derive
/// from it, or use `CompletionQueue`.
class Executor {
public:
    /// A posted task. The executor runs it once or discards it once; it may be gone after either.
    class Task {
    public:
        Task() = default;
        Task(const Task&) = delete;
        Task& operator=(const Task&) = delete;

        /// Completes the operation: resumes a coroutine, or calls a callback. An exception of these ends the
        /// program.
        virtual void run() noexcept = 0;

        /// For an executor that shuts down: nobody hears of the operation any more. The callback is destroyed, a
        /// coroutine stays suspended, a lock that it was about to get is released.
        virtual void discard() noexcept = 0;

        /// For the executor, to link tasks with, so that it need not allocate. Null when the task comes to
        /// `post`.
        Task* next = nullptr;

    protected:
        ~Task() = default;
    };

    Executor() = default;
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;
    virtual ~Executor() = default;

    /// Takes a task. The executor runs its tasks soon, in the order in which they came, and not inside this
    /// call. Any thread calls this, also the client's engine thread, so it must not block.
    virtual void post(Task& task) noexcept = 0;

    /// Takes tasks that completed at the same time: `first` and those linked behind it by `next`, the last of
    /// which has null there. By default it posts one after the other. An executor that wakes a thread may
    /// override it, to do that once.
    virtual void post_chain(Task& first) noexcept {
        for (Task* task = &first; task != nullptr;) {
            Task& one = *std::exchange(task, task->next);
            one.next = nullptr;
            post(one);  // it may be gone after that
        }
    }

    /// The executor that an operation posts to, and keeps until it has completed. By default the pointer does
    /// not keep this object alive: then the executor has to outlive all operations that complete on it. A
    /// thread of the client's may drop the last share: a destructor that then runs must not wait for the
    /// client.
    virtual std::shared_ptr<Executor> share() noexcept { return {std::shared_ptr<void>{}, this}; }

private:
    friend class detail::AsyncCall;

    /// Whether it is one of the library's, whose `post` needs nothing that the program may have locked. Then
    /// a thread that releases a lock may call `post` inside the release.
    virtual bool is_of_the_library() const noexcept { return false; }

    /// Whether it discards all that is posted from now on.
    virtual bool is_closed() const noexcept { return false; }
};

namespace detail {

/// Tasks in the order of their coming.
class TaskList {
public:
    bool empty() const noexcept { return first_ == nullptr; }

    /// Null where there is none.
    Executor::Task* front() const noexcept { return first_; }

    void push(Executor::Task& task) noexcept {
        task.next = nullptr;
        *end_ = &task;
        end_ = &task.next;
    }

    /// Null where there is none.
    Executor::Task* pop() noexcept {
        Executor::Task* const task = first_;
        if (task == nullptr) return nullptr;
        first_ = task->next;
        if (first_ == nullptr) end_ = &first_;
        return task;
    }

    /// Takes `first` and all that is linked behind it.
    void push_chain(Executor::Task& first) noexcept {
        *end_ = &first;
        Executor::Task* last = &first;
        while (last->next != nullptr) last = last->next;
        end_ = &last->next;
    }

    /// Takes over all that `other` has, behind its own.
    void append(TaskList& other) noexcept {
        if (other.empty()) return;
        *end_ = other.first_;
        end_ = other.end_;
        other.first_ = nullptr;
        other.end_ = &other.first_;
    }

    TaskList() = default;
    TaskList(const TaskList&) = delete;
    TaskList& operator=(const TaskList&) = delete;

private:
    Executor::Task* first_ = nullptr;
    Executor::Task** end_ = &first_;
};

}  // namespace detail

}  // namespace redlatch::inline v0
