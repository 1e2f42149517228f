#pragma once

#include <redlatch/service/subscription.hpp>

#include <functional>
#include <map>
#include <memory>
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
        std::unique_ptr<Subscription>& subscription = all_[&node];
        if (subscription == nullptr) {
            subscription = std::make_unique<Subscription>(
                node, channel_,
                Subscription::Events{
                    .granted = [this, &node](const Grant& grant) { events_.granted(node, grant); },
                    .listening = events_.listening,
                    .needed = [this, &node] { return events_.is_master(node); }});
            if (closing_) subscription->begin_to_close();
        }
        return *subscription;
    }

    /// A master is another server than it was: listens anew.
    void reconnect() {
        const std::lock_guard lock{mutex_};
        for (auto& [node, subscription] : all_) subscription->reconnect();
    }

    /// The same for one master, which may be none any more.
    void reconnect(Node& node) {
        const std::lock_guard lock{mutex_};
        const auto found = all_.find(&node);
        if (found != all_.end()) found->second->reconnect();
    }

    /// Tells the threads to end, which takes at most the time for one command. Returns at once.
    void begin_to_close() {
        const std::lock_guard lock{mutex_};
        closing_ = true;
        for (auto& [node, subscription] : all_) subscription->begin_to_close();
    }

    /// Ends the threads.
    void close() {
        begin_to_close();
        std::vector<Subscription*> all;  // those that come later get no thread
        {
            const std::lock_guard lock{mutex_};
            for (auto& [node, subscription] : all_) all.push_back(subscription.get());
        }
        for (Subscription* const subscription : all) subscription->close();
    }

private:
    const std::string channel_;
    const Events events_;
    std::mutex mutex_;
    std::map<Node*, std::unique_ptr<Subscription>> all_;
    bool closing_ = false;
};

}  // namespace redlatch::inline v0::detail
