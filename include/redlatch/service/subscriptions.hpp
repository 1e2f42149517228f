#pragma once

#include <redlatch/service/subscription.hpp>

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What each master tells this client: one subscription for each that was ever asked. Thread-safe.
class Subscriptions {
public:
    struct Events {
        std::function<void(Node&, const Grant&)> granted;
        std::function<void()> listening;
        std::function<bool(Node&)> is_master;  ///< of anything
    };

    Subscriptions(std::string channel, Events events)
        : channel_(std::move(channel)), events_(std::move(events)) {}

    Subscription& of(Node& node) {
        const std::lock_guard lock{mutex_};
        if (Subscription* const known = find(node)) return *known;
        Subscription& made = all_.emplace_back(
            node, channel_,
            Subscription::Events{
                .granted = [this, &node](const Grant& grant) { events_.granted(node, grant); },
                .listening = events_.listening,
                .needed = [this, &node] { return events_.is_master(node); }});
        if (closing_) made.begin_to_close();
        return made;
    }

    /// A master is another server than it was: listens anew.
    void reconnect() {
        const std::lock_guard lock{mutex_};
        for (Subscription& subscription : all_) subscription.reconnect();
    }

    /// The same for one master, which may be none any more.
    void reconnect(Node& node) {
        const std::lock_guard lock{mutex_};
        if (Subscription* const known = find(node)) known->reconnect();
    }

    /// Tells the threads to end, which takes at most the time for one command. Returns at once. Those that listen go on
    /// until `close`.
    void begin_to_close() {
        const std::lock_guard lock{mutex_};
        closing_ = true;
        for (Subscription& subscription : all_) subscription.begin_to_close();
    }

    /// Ends the threads.
    void close() {
        begin_to_close();
        std::vector<Subscription*> all;  // those that come later get no thread
        {
            const std::lock_guard lock{mutex_};
            for (Subscription& subscription : all_) all.push_back(&subscription);
        }
        for (Subscription* const subscription : all) subscription->close();
    }

private:
    /// With the mutex held; null where there is none.
    Subscription* find(const Node& node) noexcept {
        for (Subscription& subscription : all_) {
            if (&subscription.node() == &node) return &subscription;
        }
        return nullptr;
    }

    const std::string channel_;
    const Events events_;
    std::mutex mutex_;
    std::list<Subscription> all_;
    bool closing_ = false;
};

}  // namespace redlatch::inline v0::detail
