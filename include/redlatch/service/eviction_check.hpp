#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/observer.hpp>

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
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
    /// connection broke; the next one to that server is not asked on, as nobody should lose it for a
    /// warning.
    Expected<void, Fault> look_at(Connection& connection, const Limit& limit) {
        if (connection.server() == nullptr || !note(*connection.server())) return {};
        auto reply = connection.call(Call::plain({"INFO", "memory"}).wire(), limit);
        if (reply) {
            judge(connection.node(), reply->view());
        } else if (!connection.alive()) {
            return Unexpected{std::move(reply).error()};
        } else if (reply.error().transient) {
            forget(*connection.server());
        }
        return {};
    }

private:
    void judge(const std::string& node, ReplyView info) const {
        const std::string_view policy = info.line("maxmemory_policy:");
        if (policy.empty() || policy == "noeviction" || info.line("maxmemory:") == "0") return;
        tell_({.node = node,
               .message = "a lock may be dropped while it is held: maxmemory-policy is " +
                          printable(policy) + "; set it to noeviction"});
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
