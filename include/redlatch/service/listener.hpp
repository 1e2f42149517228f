#pragma once

#include <redlatch/core/random.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/service_thread.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
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
        /// Asked before each connection: where it says no, the thread ends. Empty: always needed.
        std::function<bool()> needed{};
    };

    explicit Listener(Work work) : work_(std::move(work)) {}
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() { close(); }

    /// Begins to listen, at the first call and at the first one after it was not needed any more. Returns
    /// at once; false without a thread to be had.
    bool start() noexcept {
        const auto lock = thread_.lock();
        running_ = thread_.start();
        return running_ || thread_.is_closing();
    }

    bool is_running() const noexcept { return running_.load(std::memory_order_relaxed); }

    /// The connection has become useless: a new one is made.
    void reconnect() {
        const auto lock = thread_.lock();
        if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);
    }

    /// Tells the thread to end, which takes at most the time for one command. Returns at once.
    void begin_to_close() {
        end_with_connection();
        reconnect();
    }

    /// Makes no new connection. The thread ends with the one that it has, if it has one.
    void end_with_connection() { thread_.begin_to_close(); }

    /// Ends the thread.
    void close() {
        begin_to_close();
        thread_.close();
    }

    bool closing() {
        const auto lock = thread_.lock();
        return thread_.is_closing();
    }

private:
    static constexpr std::chrono::milliseconds first_pause{50};
    static constexpr std::chrono::milliseconds longest_pause{2000};
    static constexpr std::chrono::milliseconds longest_pause_if_refused{60'000};

    void run() {
        std::chrono::milliseconds pause = first_pause;
        while (goes_on()) {
            const Outcome outcome = listen();
            work_.ended(outcome);
            if (outcome == Outcome::ended) pause = first_pause;
            const bool refused = outcome == Outcome::refused;
            pause = std::min(pause, refused ? longest_pause_if_refused : longest_pause);
            sleep(pause);
            pause *= 2;
        }
    }

    bool goes_on() {
        const bool needed = !work_.needed || work_.needed();
        const auto lock = thread_.lock();
        if (!needed) {
            thread_.end();
            running_ = false;
        }
        return needed && !thread_.is_closing();
    }

    /// A client that was not let in may be let in a moment later: a password that is being changed is wrong
    /// at one end for a while.
    Outcome listen() {
        auto connection = work_.connect();
        if (!connection) return Outcome::failed;
        if (!expose(*connection)) return Outcome::failed;
        const Outcome outcome = work_.listen(*connection);
        hide();
        return outcome;
    }

    /// Lets `reconnect` and `close` reach the connection.
    bool expose(const Connection& connection) {
        const auto lock = thread_.lock();
        if (thread_.is_closing()) return false;
        socket_ = connection.duplicate();
        return socket_.valid();
    }

    void hide() {
        const auto lock = thread_.lock();
        socket_ = Descriptor{};
    }

    void sleep(Clock::duration longest) {
        const auto half = longest / 2;
        const Clock::duration nap{random_.between(half.count(), longest.count())};
        auto lock = thread_.lock();
        thread_.pause(lock, nap);
    }

    const Work work_;
    ServiceThread thread_{"redlatch listen", [this] { run(); }};
    std::atomic<bool> running_{false};  // written with its mutex held
    Descriptor socket_;  // while there is a connection; guarded by the thread's mutex
    Random random_{static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())};
};

}  // namespace redlatch::inline v0::detail
