// A user's file, compiled with -O2 behind the library: g++ finds some of its warnings only then. Nobody runs it.

#include <redlatch/log_observer.hpp>
#include <redlatch/metrics.hpp>
#include <redlatch/redlatch.hpp>
#include <redlatch/testing.hpp>

#if defined(REDLATCH_TEST_ASIO)
#include <redlatch/asio.hpp>

#include <asio/awaitable.hpp>
#include <asio/bind_executor.hpp>
#include <asio/io_context.hpp>
#include <asio/use_awaitable.hpp>
#endif

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

namespace redlatch::test {

using namespace std::chrono_literals;

struct ResumesAtOnce {
    struct promise_type {
        ResumesAtOnce get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept {}
    };
};

template <class Policy>
ResumesAtOnce wait_for(Lock<Policy>& lock) {
    auto held = co_await lock.async_acquire({.wait = 1s});
    if (!held) co_return;
    (void)co_await held->async_extend(1s);
    (void)co_await held->async_downgrade();
    (void)co_await held->async_release();
}

template <class Policy>
void use_lock(Client& client) {
    Lock<Policy> lock{client, "name"};
    { const std::scoped_lock scope{lock}; }
    if (const LockGuard guard{lock, 1s}; !guard) std::puts(guard.error().describe().c_str());
    Result<Held> held = lock.acquire({.wait = 1s});
    if (!held) throw LockError{std::move(held).error()};
    Held moved = std::move(*held);
    if (moved.extend(1s) && moved.remaining() > 0ms) std::puts("held");
    const Result<Release> release = moved.release();
    if (!release) std::puts(release.error().describe().c_str());
    if (release && *release == Release::expired) std::puts("expired");
    if (const Result<LockInfo> info = lock.inspect(); info && info->locked) std::puts("busy");
    (void)lock.force_unlock();
    wait_for(lock);
}

void use_all(Client& client) {
    use_lock<Simple>(client);
    use_lock<Reentrant>(client);
    use_lock<RedissonReentrant>(client);
    use_lock<Shared>(client);
    use_lock<Watchdog<Fenced<Reentrant>>>(client);

    LockSet<> set{client, {"one", "two"}};
    if (Result<HeldSet> both = set.acquire({.wait = 1s})) (void)both->release();
    Semaphore<> permits{client, "permits", 2};
    if (Result<Held> permit = permits.take({.wait = 1s})) (void)permit->release();
}

#if defined(REDLATCH_TEST_ASIO)
asio::awaitable<void> use_asio(Lock<>& lock) {
    auto held = co_await redlatch::async_acquire(lock, {.wait = 1s}, asio::use_awaitable);
    if (held) (void)co_await redlatch::async_release(*held, asio::use_awaitable);
}

void use_asio_by_callback(Lock<>& lock, bool on_context) {
    asio::io_context io;
    std::atomic<int> state{0};
    const auto done = [&](const Result<Held>& held) { state = held ? 1 : 2; };
    if (on_context) {
        redlatch::async_acquire(lock, {.wait = 5s}, asio::bind_executor(io, done));
    } else {
        redlatch::async_acquire(lock, {.wait = 5s}, done);
    }
    io.run();
}
#endif

}  // namespace redlatch::test
