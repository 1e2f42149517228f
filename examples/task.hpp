#pragma once

#include <coroutine>
#include <exception>

/// A program's own kind of coroutine, any will do: this one begins at once, and nobody waits for its end.
struct Task {
    struct promise_type {
        Task get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};
