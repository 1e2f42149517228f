#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace redlatch::test::fault {

/// A coroutine that begins when it is awaited or started, and is destroyed with this, wherever it is.
class [[nodiscard]] Task {
public:
    struct promise_type {
        struct GoOn {
            [[nodiscard]] bool await_ready() const noexcept { return false; }
            std::coroutine_handle<> await_suspend(
                std::coroutine_handle<promise_type> ended) const noexcept {
                return ended.promise().awaiting;
            }
            void await_resume() const noexcept {}
        };

        Task get_return_object() {
            return Task{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        GoOn final_suspend() noexcept { return {}; }
        void return_void() {}
        [[noreturn]] void unhandled_exception() { std::terminate(); }

        std::coroutine_handle<> awaiting = std::noop_coroutine();
    };

    Task(Task&& other) noexcept : handle_{std::exchange(other.handle_, {})} {}
    Task& operator=(Task&&) = delete;
    ~Task() {
        if (handle_) handle_.destroy();
    }

    void start() { handle_.resume(); }
    [[nodiscard]] bool is_done() const { return handle_.done(); }

    [[nodiscard]] bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
        handle_.promise().awaiting = awaiting;
        return handle_;
    }
    void await_resume() const noexcept {}

private:
    explicit Task(std::coroutine_handle<promise_type> handle) : handle_{handle} {}

    std::coroutine_handle<promise_type> handle_;
};

}  // namespace redlatch::test::fault
