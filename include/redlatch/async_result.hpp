#pragma once

#include <redlatch/async/async_call.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/result.hpp>

#include <concepts>
#include <coroutine>
#include <memory>
#include <utility>

namespace redlatch::inline v0 {

namespace detail {
struct AsyncAccess;
}  // namespace detail

/// What an asynchronous call returns: `co_await` on it gives a `Result<T>`. The call begins at `co_await`;
/// `async_release()` has begun before. A program awaits each at most once. The call resumes the coroutine on
/// the executor given by `via()`, else on `ClientOptions::completions`, else on a thread of the client's, and
/// never inside `co_await` itself. A `Held` that was made by its default constructor or moved from has no
/// client: then the coroutine goes on at once.
///
/// A coroutine may be destroyed while it waits, on the thread or strand where it would be resumed; a lock that
/// was on its way is then released in the background.
template <class T>
class AsyncResult {
public:
    /// Takes the call over. An object that was moved from can only be destroyed.
    AsyncResult(AsyncResult&&) noexcept = default;
    AsyncResult& operator=(AsyncResult&&) = delete;
    /// Gives the call up where it has not completed. A release goes on all the same.
    ~AsyncResult() {
        if (call_ != nullptr) call_->abandon();
    }

    /// The same, completed on `executor`.
    [[nodiscard]] AsyncResult via(Executor& executor) && {
        call_->complete_on(executor);
        return std::move(*this);
    }

    /// @{
    /// What `co_await` calls.
    bool await_ready() const noexcept { return call_->is_ready(); }
    void await_suspend(std::coroutine_handle<> waiting) {
        // The coroutine may have gone on elsewhere, and this be destroyed, before `start` returns.
        const auto call = call_;
        call->await(waiting);
        call->start();
    }
    Result<T> await_resume() noexcept {
        const auto call = std::exchange(call_, nullptr);
        Result<T> outcome = call->take();
        if (call->is_ready()) call->abandon();  // nobody has completed it
        return outcome;
    }
    /// @}

private:
    friend struct detail::AsyncAccess;

    explicit AsyncResult(std::shared_ptr<detail::AsyncCallFor<T>> call) : call_(std::move(call)) {}

    std::shared_ptr<detail::AsyncCallFor<T>> call_;
};

namespace detail {

struct AsyncAccess {
    template <class T>
    static AsyncResult<T> awaitable(std::shared_ptr<AsyncCallFor<T>> call) {
        return AsyncResult<T>{std::move(call)};
    }

    /// The call of `awaitable`, which keeps it.
    template <class T>
    static AsyncCallFor<T>& call_in(const AsyncResult<T>& awaitable) noexcept {
        return *awaitable.call_;
    }

    /// Takes the call out, for a caller who completes it in another way.
    template <class T>
    static std::shared_ptr<AsyncCallFor<T>> call_of(AsyncResult<T> awaitable) {
        return std::exchange(awaitable.call_, nullptr);
    }

    /// Starts the call, which then calls `done` with the outcome.
    template <class T, class Done>
    static void call_back(const std::shared_ptr<AsyncCallFor<T>>& call, Done done,
                          Executor* executor) {
        if (executor != nullptr) call->complete_on(*executor);
        call->await(std::make_unique<CallWith<T, Done>>(std::move(done)));
        call->start();
    }
};

}  // namespace detail

/// Whether `done` can be called with a `Result<T>`, once.
template <class Done, class T>
concept CompletionOf = std::move_constructible<Done> && std::invocable<Done, Result<T>>;

}  // namespace redlatch::inline v0
