#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/core/limit.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/script.hpp>
#include <redlatch/observer.hpp>

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Asks each server, once for each of its starts, whether it evicts keys when its memory is full: a lock
/// has an expiry, and such keys go first. A server that keeps its run id to itself is not asked.
/// Thread-safe.
class EvictionCheck {
public:
    using Tell = std::function<void(Observer::Warning)>;

    explicit EvictionCheck(Tell tell) : tell_(std::move(tell)) {}

    /// One round trip on a connection to a server that is new to it, else none. A fault means that the
    /// connection broke; a server that does not answer the question is left in peace.
    Expected<void, Fault> look_at(Connection& connection, const Limit& limit) {
        if (connection.server() == nullptr || !note(*connection.server())) return {};
        auto reply = connection.call(Call::plain({"INFO", "memory"}).wire(), limit);
        if (reply) {
            judge(connection.node(), reply->view());
        } else if (!connection.alive()) {
            forget(*connection.server());
            return Unexpected{std::move(reply).error()};
        }
        return {};
    }

private:
    void judge(const std::string& node, ReplyView info) const {
        const std::string policy{info.line("maxmemory_policy:")};
        if (policy.empty() || policy == "noeviction" || info.line("maxmemory:") == "0") return;
        tell_({.node = node,
               .message = "a lock may be dropped while it is held: maxmemory-policy is " + policy +
                          ", not noeviction"});
    }

    /// Whether it is new.
    bool note(const std::string& server) {
        const std::lock_guard lock{mutex_};
        return servers_.insert(server).second;
    }

    void forget(const std::string& server) {
        const std::lock_guard lock{mutex_};
        servers_.erase(server);
    }

    const Tell tell_;
    std::mutex mutex_;
    std::set<std::string> servers_;  // by their run ids
};

}  // namespace redlatch::inline v0::detail
