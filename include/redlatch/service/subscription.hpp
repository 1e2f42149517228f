#pragma once

#include <redlatch/core/grant.hpp>
#include <redlatch/net/node.hpp>
#include <redlatch/service/listener.hpp>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
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
        /// Asked whether the server is the master of anything. Empty: it always is.
        std::function<bool()> needed{};
    };

    Subscription(Node& node, std::string channel, Events events)
        : node_(&node), channel_(std::move(channel)), events_(std::move(events)) {}
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;

    const Node& node() const noexcept { return *node_; }

    /// Begins to listen, as long as it is needed. Returns at once. Where the system has no thread to give,
    /// nothing is heard until a later call gets one.
    void start() noexcept {
        if (!listener_.is_running()) refused_ = !listener_.start();
    }

    /// Messages come through, as far as is known.
    bool is_listening() const noexcept { return listening_.load(std::memory_order_relaxed); }

    /// They do, or may do in a moment.
    bool is_possible() const noexcept {
        return allowed_.load(std::memory_order_relaxed) &&
               !refused_.load(std::memory_order_relaxed);
    }

    /// The master is another server, or may be: listens there.
    void reconnect() { listener_.reconnect(); }

    /// Tells the thread to end, which takes at most the time for one command. Returns at once. One that listens goes on
    /// until `close`: while this client's places in queues are released, the server has to find it subscribed.
    /// Otherwise each release would pass by all its other waiters.
    void begin_to_close() {
        if (is_listening()) {
            listener_.end_with_connection();
        } else {
            listener_.begin_to_close();
        }
    }

    /// Ends the thread.
    void close() { listener_.close(); }

private:
    using Outcome = Listener::Outcome;

    static constexpr std::string_view probe = "?";

    Outcome listen_on(Connection& connection) {
        const Limit limit = Limit::in(node_->command_timeout());
        const Call subscribe = Call::plain({"SUBSCRIBE", channel_});
        if (auto done = connection.call(subscribe.wire(), limit); !done) {
            return what_of(done.error());
        }
        // Where nobody may count subscribers, each dead waiter would be given the lock.
        const Call count = Call::plain({"PUBSUB", "NUMSUB", channel_});
        if (auto done = node_->run(count, limit); !done) return what_of(done.error());
        const Call publish = Call::plain({"PUBLISH", channel_, probe}, ReplyShape::integer);
        if (auto done = node_->run(publish, limit); !done) return what_of(done.error());
        for (;;) {
            const bool probing = !is_listening();
            auto message = connection.receive(probing ? limit : Limit{});
            if (message) {
                hear(message->view());
            } else if (!probing) {
                return Outcome::ended;
            } else {
                return limit.over() && !listener_.closing() ? Outcome::refused : Outcome::failed;
            }
        }
    }

    static Outcome what_of(const Fault& fault) {
        return fault.transient ? Outcome::failed : Outcome::refused;
    }

    void hear(const ReplyView& message) {
        if (message.size() != 3 || message[0].text() != "message") return;
        const std::string_view text = message[2].text();
        if (text == probe) {
            allowed_ = true;
            listening_ = true;
            events_.listening();
        } else if (const auto grant = parse_grant(text)) {
            events_.granted(*grant);
        }
    }

    void ended(Outcome outcome) {
        listening_ = false;
        allowed_ = outcome != Outcome::refused;
    }

    Node* node_;
    const std::string channel_;
    const Events events_;
    std::atomic<bool> refused_{false};  // the system gave no thread
    std::atomic<bool> listening_{false};
    std::atomic<bool> allowed_{true};
    Listener listener_{
        {.connect = [this] { return node_->connect(Limit::in(node_->command_timeout())); },
         .listen = [this](Connection& connection) { return listen_on(connection); },
         .ended = [this](Outcome outcome) { ended(outcome); },
         .needed = events_.needed}};
};

}  // namespace redlatch::inline v0::detail
