#pragma once

// What the tests of asynchronous operations have in common.

#include "lock_test.hpp"

#include <poll.h>

#include <atomic>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {

/// A coroutine that begins at once. It ends by itself, or is destroyed with this where it has not.
class Coroutine {
public:
    struct promise_type {
        Coroutine get_return_object() {
            return Coroutine{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        [[noreturn]] void unhandled_exception() { std::terminate(); }
    };

    Coroutine(Coroutine&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
    Coroutine& operator=(Coroutine&&) = delete;
    ~Coroutine() {
        if (handle_) handle_.destroy();
    }

private:
    explicit Coroutine(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

    std::coroutine_handle<promise_type> handle_;
};

/// The same, and nobody destroys it: it ends by itself.
struct Detached {
    struct promise_type {
        Detached get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        [[noreturn]] void unhandled_exception() { std::terminate(); }
    };
};

/// A queue that the test's own thread runs.
class Loop : public CompletionQueue {
public:
    /// Runs completions until `done()`; false where that takes too long.
    template <class Done>
    [[nodiscard]] bool run_until(Done done) {
        return eventually([&] {
            pollfd entry{.fd = descriptor(), .events = POLLIN, .revents = 0};
            ::poll(&entry, 1, 5);
            run_ready();
            return done();
        });
    }
};

/// The outcome of a call that completes by a callback. A test that fails may end before the call does.
template <class T>
class Outcome {
public:
    auto callback() {
        return [state = state_](Result<T> result) {
            state->result.emplace(std::move(result));
            state->thread = std::this_thread::get_id();
            ++state->calls;
        };
    }
    bool is_there() const { return calls() > 0; }
    int calls() const { return state_->calls; }
    std::thread::id thread() const { return state_->thread; }

    /// Waits for it.
    Result<T> get() {
        EXPECT_TRUE(eventually([this] { return is_there(); }));
        return *std::exchange(state_->result, std::nullopt);
    }

private:
    struct State {
        std::atomic<int> calls{0};
        std::thread::id thread{};
        std::optional<Result<T>> result{};
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// The `Held` of an asynchronous acquisition that succeeds.
template <class Policy>
Held take(Lock<Policy>& lock, const AsyncOptions& options = {}) {
    Outcome<Held> outcome;
    lock.async_acquire(options, {}, outcome.callback());
    return std::move(outcome.get()).value();
}

}  // namespace redlatch::test
