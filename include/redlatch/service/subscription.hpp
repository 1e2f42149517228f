#pragma once

#include <redlatch/core/grant.hpp>
#include <redlatch/core/random.hpp>
#include <redlatch/net/node.hpp>
#include <redlatch/service/thread.hpp>

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// Hears what a server tells this client: one connection and one thread, from the first contention
/// on. Before it counts as listening it has heard a message of its own, so that an ACL or a proxy
/// that swallows messages is found out. Thread-safe.
class Subscription {
public:
    /// What the thread tells; called with no mutex held.
    struct Events {
        std::function<void(const Grant&)> granted;
        /// Messages come through from now on; some may have been missed.
        std::function<void()> listening;
    };

    Subscription(Node& node, std::string channel, Events events)
        : node_(&node), channel_(std::move(channel)), events_(std::move(events)) {}
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;
    ~Subscription() { close(); }

    /// Begins to listen. Returns at once; without a thread to be had, nothing is ever heard.
    void start() noexcept {
        if (started_.load(std::memory_order_relaxed)) return;
        const std::lock_guard lock{mutex_};
        if (closing_ || started_.exchange(true)) return;
        try {
            thread_ = start_service_thread([this] { run(); });
        } catch (const std::system_error&) {
            allowed_ = false;
        }
    }

    /// Messages come through, as far as is known.
    bool is_listening() const noexcept { return listening_.load(std::memory_order_relaxed); }

    /// They do, or may do in a moment.
    bool is_possible() const noexcept { return allowed_.load(std::memory_order_relaxed); }

    /// The connection has become useless, as the master is another server: a new one is made.
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

private:
    /// Answers to the question whether it works here.
    enum class Outcome { broken, forbidden };

    static constexpr std::chrono::milliseconds first_pause{50};
    static constexpr std::chrono::milliseconds longest_pause{2000};
    static constexpr std::chrono::seconds pause_if_forbidden{60};
    static constexpr std::string_view probe = "?";

    void run() {
        std::chrono::milliseconds pause = first_pause;
        while (!closing()) {
            const Outcome outcome = listen();
            const bool worked = listening_.exchange(false);
            allowed_ = outcome != Outcome::forbidden;
            if (worked) pause = first_pause;
            sleep(allowed_ ? pause : pause_if_forbidden);
            pause = std::min(2 * pause, longest_pause);
        }
    }

    bool closing() {
        const std::lock_guard lock{mutex_};
        return closing_;
    }

    void sleep(Clock::duration longest) {
        const auto half = longest / 2;
        const Clock::duration nap{random_.between(half.count(), longest.count())};
        std::unique_lock lock{mutex_};
        wake_.wait_for(lock, nap, [this] { return closing_; });
    }

    Outcome listen() {
        auto connection = node_->connect(Limit::in(node_->command_timeout()));
        if (!connection) return what_of(connection.error());
        if (!expose(*connection)) return Outcome::broken;
        const Outcome outcome = listen_on(*connection);
        hide();
        return outcome;
    }

    /// Lets `close` reach the connection.
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

    Outcome listen_on(Connection& connection) {
        const Limit limit = Limit::in(node_->command_timeout());
        const Call subscribe = Call::plain({"SUBSCRIBE", channel_});
        if (auto done = connection.call(subscribe.wire(), limit); !done) {
            return what_of(done.error());
        }
        const Call publish = Call::plain({"PUBLISH", channel_, probe}, Answer::integer);
        if (auto done = node_->run(publish, limit); !done) return what_of(done.error());
        for (;;) {
            const bool probing = !is_listening();
            auto message = connection.receive(probing ? limit : Limit{});
            if (!message)
                return probing && !closing() && limit.over() ? Outcome::forbidden : Outcome::broken;
            hear(message->view());
        }
    }

    void hear(const ReplyView& message) {
        if (message.size() != 3 || message[0].text() != "message") return;
        const std::string_view text = message[2].text();
        if (text == probe) {
            listening_ = true;
            events_.listening();
        } else if (const auto grant = parse_grant(text)) {
            events_.granted(*grant);
        }
    }

    static Outcome what_of(const Fault& fault) {
        return fault.transient ? Outcome::broken : Outcome::forbidden;
    }

    Node* node_;
    const std::string channel_;
    const Events events_;
    std::atomic<bool> started_{false};
    std::atomic<bool> listening_{false};
    std::atomic<bool> allowed_{true};
    std::mutex mutex_;
    std::condition_variable wake_;
    bool closing_ = false;
    Descriptor socket_;  // while there is a connection
    Random random_{static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())};
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
