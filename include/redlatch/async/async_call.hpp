#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/net/completion_batch.hpp>
#include <redlatch/net/process_id.hpp>
#include <redlatch/result.hpp>

#include <atomic>
#include <coroutine>
#include <functional>
#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

/// One asynchronous call, between those who made it and what carries it out: completes once, on an executor.
/// It does not live in the caller's coroutine, which may be destroyed while it waits.
class AsyncCall : public Completion, public std::enable_shared_from_this<AsyncCall> {
public:
    /// What is to be done with the outcome, on the executor.
    class Continuation {
    public:
        Continuation() = default;
        Continuation(const Continuation&) = delete;
        Continuation& operator=(const Continuation&) = delete;
        virtual ~Continuation() = default;
        virtual void resume(AsyncCall& call) = 0;
    };

    virtual ~AsyncCall() = default;

    /// As opposed to the process that this was forked from, where it goes on.
    bool is_ours() const noexcept { return process_ == ProcessId::of_this_process(); }

    // By those who made it:

    /// Where it completes. To be called before `await`.
    void complete_on(Executor& executor) noexcept { complete_on(executor.share()); }
    void complete_on(std::shared_ptr<Executor> executor) noexcept {
        executor_ = std::move(executor);
    }

    /// Begins, unless it has begun before. From now on it lives until it has completed. Does nothing in a
    /// forked child.
    void start() noexcept {
        if (!is_ours() || (state_.fetch_or(has_started) & has_started) != 0) return;
        self_ = shared_from_this();
        begin();
    }

    /// Completes by resuming a coroutine, or by a continuation.
    void await(std::coroutine_handle<> waiting) noexcept {
        waiting_ = waiting;
        await();
    }
    void await(std::unique_ptr<Continuation> continuation) noexcept {
        continuation_ = std::move(continuation);
        await();
    }

    /// Nobody waits for it any more. Only on the thread or strand where it would complete. An outcome that lies with
    /// the executor already is given back at once, as the executor may not run for a while.
    void abandon() noexcept {
        if (!is_ours()) return;
        const unsigned before = state_.fetch_or(is_abandoned);
        if ((before & is_done) == 0) {
            if ((before & has_started) != 0) cancel();
        } else if ((before & is_awaited) == 0) {
            end(&AsyncCall::drop_once);
        } else {
            drop_once();
        }
    }

    /// Whether a coroutine need not wait: the outcome is there, and nobody has said where it completes.
    virtual bool is_ready() const noexcept { return false; }

    /// Whether its outcome will be discarded. Where it has begun.
    virtual bool completes_nowhere() const noexcept { return executor_->is_closed(); }

    // By the executor:

    void run() noexcept final {
        if (!is_ours()) return;
        if ((state_ & is_discarded) != 0) return discard();
        end((state_ & is_abandoned) != 0 ? &AsyncCall::drop_once : &AsyncCall::resume);
    }
    void discard() noexcept final {
        if (!is_ours()) return;
        if (continuation_ != nullptr && is_posting) return discard_elsewhere();
        continuation_ = nullptr;
        end(&AsyncCall::drop_once);
    }

protected:
    AsyncCall() = default;

    /// Starts what there is to do. Any thread; does not complete inside this.
    virtual void begin() noexcept = 0;

    /// Nobody waits for it. Any thread.
    virtual void cancel() noexcept = 0;

    /// Nobody gets the outcome. Any thread.
    virtual void drop() noexcept = 0;

    /// Where it completes unless `complete_on` has said that.
    void complete_on_default(const DefaultExecutors& executors) noexcept {
        if (executor_ == nullptr) executor_ = executors.executor;
        threads_ = executors.threads;
    }

    bool completes_on(const std::shared_ptr<Executor>& executor) const noexcept {
        return executor_ == executor;
    }

    /// Whether none of the program's code has a part in posting it.
    bool completes_within_the_library() const noexcept { return executor_->is_of_the_library(); }

    /// The outcome is there. May destroy this.
    void finish() noexcept {
        const unsigned before = state_.fetch_or(is_done);
        if ((before & is_abandoned) != 0) {
            end(&AsyncCall::drop_once);
        } else if ((before & is_awaited) != 0) {
            post();
        }
    }

private:
    enum State : unsigned {
        has_started = 1,
        is_awaited = 2,
        is_done = 4,
        is_abandoned = 8,
        is_discarded = 16,
        is_dropped = 32
    };

    void await() noexcept {
        if (!is_ours()) return;
        if ((state_.fetch_or(is_awaited) & is_done) != 0) post();
    }

    void post() noexcept {
        CompletionBatch* const batch = CompletionBatch::of_this_thread();
        if (batch != nullptr) return batch->add(*this);
        next = nullptr;
        hand_over();
    }

    const Executor* executor() const noexcept final { return executor_.get(); }

    void hand_over() noexcept final {
        const auto executor = executor_;  // this may be gone before that has returned
        const bool outer = std::exchange(is_posting, true);
        executor->post_chain(*this);
        is_posting = outer;
    }

    /// Its executor has shut down, and discards it within `post`. The engine may be posting, or a thread that
    /// releases a lock: so a thread of the client's destroys the callback, whose destructor is the user's
    /// code.
    void discard_elsewhere() noexcept {
        state_ |= is_discarded;
        executor_ = threads_;
        post();
    }

    /// An executor may discard it while it is abandoned on another thread.
    void drop_once() noexcept {
        if ((state_.fetch_or(is_dropped) & is_dropped) == 0) drop();
    }

    void resume() noexcept {
        if (continuation_ != nullptr) {
            const auto continuation = std::move(continuation_);
            continuation->resume(*this);
        } else {
            waiting_.resume();
        }
    }

    /// Does the last thing with it.
    void end(void (AsyncCall::*what)() noexcept) noexcept {
        const auto self = std::move(self_);
        (this->*what)();
    }

    static inline thread_local bool is_posting = false;  // on this thread, by `hand_over`

    const ::pid_t process_ = ProcessId::of_this_process();
    std::atomic<unsigned> state_{0};
    std::shared_ptr<Executor> executor_{};
    std::shared_ptr<Executor> threads_{};
    std::coroutine_handle<> waiting_{};
    std::unique_ptr<Continuation> continuation_{};
    std::shared_ptr<AsyncCall> self_{};
};

/// One with an outcome of this type.
template <class T>
class AsyncCallFor : public AsyncCall {
public:
    /// The outcome, once, on the executor.
    virtual Result<T> take() noexcept = 0;

protected:
    void drop() noexcept override {}
};

/// Calls `done` with the outcome.
template <class T, class Done>
class CallWith final : public AsyncCall::Continuation {
public:
    explicit CallWith(Done done) : done_(std::move(done)) {}
    void resume(AsyncCall& call) override {
        static_cast<void>(
            std::invoke(std::move(done_), static_cast<AsyncCallFor<T>&>(call).take()));
    }

private:
    Done done_;
};

}  // namespace redlatch::inline v0::detail
