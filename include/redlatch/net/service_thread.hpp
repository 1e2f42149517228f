#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/net/thread.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// How long a service sleeps at most while it has something to do: its sleep stops with the machine,
/// its due times don't.
inline constexpr std::chrono::milliseconds longest_service_sleep{500};

/// The thread of a service, and the mutex that guards what the two share. The thread starts at the
/// first use; where the system has none to give, the next use tries again. The service joins it, by
/// `close`, before what it shares with the thread is destroyed.
class ServiceThread {
public:
    using Lock = std::unique_lock<std::mutex>;

    /// `name`: as `start_service_thread()` takes it. Borrowed. `run`: what the thread does.
    ServiceThread(const char* name, std::function<void()> run) noexcept
        : name_(name), run_(std::move(run)) {}
    ServiceThread(const ServiceThread&) = delete;
    ServiceThread& operator=(const ServiceThread&) = delete;

    [[nodiscard]] Lock lock() { return Lock{mutex_}; }

    // With the mutex held:

    /// Whether it runs. Starts it where it does not, unless the service closes.
    bool start() {
        if (!running_ && !closing_) {
            if (thread_.joinable()) thread_.join();  // it has said `end`
            thread_ = start_service_thread(name_, run_);
            running_ = thread_.joinable();
        }
        return running_;
    }

    bool is_running() const noexcept { return running_; }
    bool is_closing() const noexcept { return closing_; }

    void wake() { wake_.notify_one(); }

    /// What the thread calls: blocks until the service closes, or it is `ready`, of which `wake` has
    /// told.
    template <class Ready>
    void wait(Lock& lock, Ready ready) {
        wake_.wait(lock, [&] { return closing_ || ready(); });
    }

    /// The same, also while the service closes: until it is `ready`.
    template <class Ready>
    void wait_until(Lock& lock, Ready ready) {
        wake_.wait(lock, ready);
    }

    /// For `longest` at most, or until the service closes, or `wake`.
    void nap(Lock& lock, Clock::duration longest) {
        if (!closing_) wake_.wait_for(lock, longest);
    }

    /// Until the service closes, for `longest` at most.
    void pause(Lock& lock, Clock::duration longest) {
        wake_.wait_for(lock, longest, [this] { return closing_; });
    }

    /// What the thread says when it takes nothing more. It does not take the mutex again.
    void end() noexcept { running_ = false; }

    // With the mutex free:

    void begin_to_close() {
        {
            const Lock lock{mutex_};
            closing_ = true;
        }
        wake_.notify_one();
    }

    void close() {
        begin_to_close();
        if (thread_.joinable()) thread_.join();
    }

private:
    const char* const name_;
    const std::function<void()> run_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool running_ = false;
    bool closing_ = false;
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
