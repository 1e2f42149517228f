// As in stop_among_async_options.cpp, for permits.
// expect: no matching .*function for call to .*async_take

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

Task use(redlatch::Semaphore<>& semaphore, std::stop_token stop) {
#ifdef REDLATCH_EXPECT_FAIL
    auto held = co_await semaphore.async_take({.permits = 2, .stop = stop});
#else
    auto held = co_await semaphore.async_take({.permits = 2}, stop);
#endif
    (void)held;
}
