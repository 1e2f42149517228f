#pragma once

#include "compare.hpp"
#include <redlatch/redlatch.hpp>

#include <poll.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace redlatch::bench {

/// A coroutine that nobody waits for.
struct Task {
    struct promise_type {
        Task get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

/// Where coroutines go on.
enum class Completions {
    event_loop,  ///< on one thread: a CompletionQueue
    threads,     ///< on threads of the client's, where nobody says another place
};

/// Coroutines that take a lock and give it back, again and again: one for each of the names, which may be the same.
template <class Policy>
class Coroutines {
public:
    Coroutines(const std::string& uri, const std::vector<std::string>& names,
               const LockOptions& options, Completions completions)
        : uses_queue_(completions == Completions::event_loop),
          client_({.uris = {uri}, .completions = uses_queue_ ? &queue_ : nullptr}) {
        for (const std::string& name : names) {
            locks_.push_back(std::make_unique<Lock<Policy>>(client_, name, options));
        }
    }

    Sample run_for(std::chrono::milliseconds duration) {
        done_ = 0;
        stop_ = false;
        left_ = locks_.size();
        const Stretch stretch;
        for (const auto& lock : locks_) take_and_give_back(*lock);
        while (left_ != 0) {
            if (stretch.is_over(duration)) stop_ = true;
            pollfd ready{.fd = queue_.descriptor(), .events = POLLIN, .revents = 0};
            ::poll(&ready, 1, uses_queue_ ? 100 : 1);
            queue_.run_ready();
        }
        const std::lock_guard lock{mutex_};
        return stretch.sample(done_, error_);
    }

private:
    Task take_and_give_back(Lock<Policy>& lock) {
        while (!stop_) {
            Result<Held> held = co_await lock.async_acquire();
            if (!held) {
                fail(held.error().describe());
                break;
            }
            const Result<Release> released = co_await held->async_release();
            if (!released || *released != Release::released) {
                fail("a lock was not released");
                break;
            }
            done_.fetch_add(1, std::memory_order_relaxed);
        }
        --left_;
    }

    void fail(const std::string& error) {
        const std::lock_guard lock{mutex_};
        error_ = error;
        stop_ = true;
    }

    const bool uses_queue_;
    CompletionQueue queue_;
    Client client_;
    std::vector<std::unique_ptr<Lock<Policy>>> locks_;
    std::atomic<std::size_t> done_{0};
    std::atomic<std::size_t> left_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::string error_;
};

}  // namespace redlatch::bench
