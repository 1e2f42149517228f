#pragma once

#include <redlatch/core/random.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/thread.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// A thread that listens on one connection, and makes a new one wherever that ended. Thread-safe.
class Listener {
public:
    /// How listening went.
    enum class Outcome {
        failed,   ///< it never began
        ended,    ///< it worked until the connection broke
        refused,  ///< it cannot work here, as far as one can see
    };

    /// What the thread does; called with no mutex held.
    struct Work {
        std::function<Expected<Connection, Fault>()> connect;
        std::function<Outcome(Connection&)> listen;
        /// Told after each end, before the pause.
        std::function<void(Outcome)> ended;
    };

    explicit Listener(Work work) : work_(std::move(work)) {}
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() { close(); }

    /// Begins to listen, at the first call. Returns at once; false without a thread to be had.
    bool start() noexcept {
        const std::lock_guard lock{mutex_};
        if (closing_ || thread_.joinable()) return true;
        thread_ = start_service_thread([this] { run(); });
        return thread_.joinable();
    }

    /// The connection has become useless: a new one is made.
    void reconnect() {
        const std::lock_guard lock{mutex_};
        if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);
    }

    /// Tells the thread to end, which takes at most the time for one command. Returns at once.
    void begin_to_close() {
        {
            const std::lock_guard lock{mutex_};
            closing_ = true;
            if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);
        }
        wake_.notify_one();
    }

    /// Ends the thread.
    void close() {
        begin_to_close();
        if (thread_.joinable()) thread_.join();
    }

    bool closing() {
        const std::lock_guard lock{mutex_};
        return closing_;
    }

    static Outcome what_of(const Fault& fault) {
        return fault.transient ? Outcome::failed : Outcome::refused;
    }

private:
    static constexpr std::chrono::milliseconds first_pause{50};
    static constexpr std::chrono::milliseconds longest_pause{2000};
    static constexpr std::chrono::seconds pause_if_refused{60};

    void run() {
        std::chrono::milliseconds pause = first_pause;
        while (!closing()) {
            const Outcome outcome = listen();
            work_.ended(outcome);
            if (outcome == Outcome::ended) pause = first_pause;
            sleep(outcome == Outcome::refused ? pause_if_refused : pause);
            pause = std::min(2 * pause, longest_pause);
        }
    }

    Outcome listen() {
        auto connection = work_.connect();
        if (!connection) return what_of(connection.error());
        if (!expose(*connection)) return Outcome::failed;
        const Outcome outcome = work_.listen(*connection);
        hide();
        return outcome;
    }

    /// Lets `reconnect` and `close` reach the connection.
    bool expose(const Connection& connection) {
        const std::lock_guard lock{mutex_};
        if (closing_) return false;
        socket_ = connection.duplicate();
        return socket_.valid();
    }

    void hide() {
        const std::lock_guard lock{mutex_};
        socket_ = Descriptor{};
    }

    void sleep(Clock::duration longest) {
        const auto half = longest / 2;
        const Clock::duration nap{random_.between(half.count(), longest.count())};
        std::unique_lock lock{mutex_};
        wake_.wait_for(lock, nap, [this] { return closing_; });
    }

    const Work work_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool closing_ = false;
    Descriptor socket_;  // while there is a connection
    Random random_{static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())};
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
