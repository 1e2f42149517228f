// g++ 12 destroys what is written in braces inside a co_await twice: the stop token is a parameter of its own.
// expect: no matching .*function for call to .*async_acquire

#include <redlatch/redlatch.hpp>

struct Task {
    struct promise_type {
        Task get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() {}
    };
};

Task use(redlatch::Lock<>& lock, std::stop_token stop) {
    using namespace std::chrono_literals;
#ifdef REDLATCH_EXPECT_FAIL
    auto held = co_await lock.async_acquire({.wait = 5s, .stop = stop});
#else
    auto held = co_await lock.async_acquire({.wait = 5s}, stop);
#endif
    (void)held;
}
