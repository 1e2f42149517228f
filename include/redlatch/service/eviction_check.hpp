#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/observer.hpp>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Asks each server whether it evicts keys when its memory is full: a lock has an expiry, and such keys go first. Asks
/// again once in a while, as that may change, until it has warned of that start of the server. A server that keeps its
/// run id to itself is not asked. Thread-safe.
class EvictionCheck {
public:
    using Tell = std::function<void(Observer::Warning)>;

    explicit EvictionCheck(Tell tell, Clock::duration again_after = std::chrono::minutes{1})
        : tell_(std::move(tell)), again_after_(again_after) {}

    /// One round trip on a new connection to a server that is to be asked, else none. A fault means that the
    /// connection broke; the next one to that server is not asked on, as nobody should lose it for a
    /// warning.
    Expected<void, Fault> look_at(Connection& connection, const Limit& limit) {
        if (connection.server() == nullptr) return {};
        const std::string& server = *connection.server();
        if (!is_due(server)) return {};
        auto reply = connection.call(Call::plain({"INFO", "memory"}).wire(), limit);
        if (reply) {
            if (judge(connection.node(), reply->view())) ask_at(server, TimePoint::max());
            return {};
        }
        const bool may_answer_next = connection.alive() && reply.error().transient;
        ask_at(server, may_answer_next ? TimePoint::min() : TimePoint::max());
        if (connection.alive()) return {};
        return Unexpected{std::move(reply).error()};
    }

private:
    struct Server {
        std::string run_id;
        TimePoint ask_at;
    };

    /// Whether it has warned.
    bool judge(const std::string& node, ReplyView info) const {
        const std::string_view policy = info.line("maxmemory_policy:");
        const bool keeps_keys =
            policy.empty() || policy == "noeviction" || info.line("maxmemory:") == "0";
        if (keeps_keys) return false;
        tell_({.node = node,
               .message = "a lock may be dropped while it is held: maxmemory-policy is " +
                          printable(policy) + "; set it to noeviction"});
        return true;
    }

    /// Whether that server is to be asked now. If so, nobody else asks it for a while.
    bool is_due(const std::string& run_id) {
        const std::lock_guard lock{mutex_};
        Server& server = find(run_id);
        if (Clock::now() < server.ask_at) return false;
        server.ask_at = saturating_add(Clock::now(), again_after_);
        return true;
    }

    void ask_at(const std::string& run_id, TimePoint time) {
        const std::lock_guard lock{mutex_};
        find(run_id).ask_at = time;
    }

    /// With the mutex held.
    Server& find(const std::string& run_id) {
        for (Server& server : servers_) {
            if (server.run_id == run_id) return server;
        }
        return servers_.emplace_back(Server{run_id, TimePoint::min()});
    }

    const Tell tell_;
    const Clock::duration again_after_;
    std::mutex mutex_;
    std::vector<Server> servers_;
};

}  // namespace redlatch::inline v0::detail
