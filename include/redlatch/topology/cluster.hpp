#pragma once

#include <redlatch/core/redirection.hpp>
#include <redlatch/core/slot.hpp>
#include <redlatch/topology/topology.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// A Redis Cluster: each key has a slot, and each slot its master. Which one, any node tells; the map
/// is asked for when a command shows that what is known of it is wrong. Thread-safe.
class Cluster final : public Topology {
public:
    /// `common`: what there is to know about every node but its address. `on_move` is told that
    /// connections to a node have become useless.
    Cluster(std::vector<Endpoint> seeds, Endpoint common, DialOptions dial, NodeUse use,
            std::function<void(const std::string&)> on_reconnect, std::function<void()> on_move)
        : seeds_(std::move(seeds)),
          common_(std::move(common)),
          dial_(std::move(dial)),
          use_(std::move(use)),
          on_reconnect_(std::move(on_reconnect)),
          on_move_(std::move(on_move)) {}

    /// Where it is not known, any node: that one knows better.
    Node& master_of(std::string_view key) override {
        const std::lock_guard lock{mutex_};
        if (Node* const node = owners_[slot_of(key)]) return *node;
        return node_at(seeds_.front().host, seeds_.front().port);
    }

    /// Follows `MOVED` and `ASK`; where a node is out of reach, asks for the map and goes where the
    /// key is then.
    Expected<Reply, Fault> run_on_masters(const Call& call, const Call& again, const Limit& limit,
                                          Spread&) override {
        if (suspect_.exchange(false)) refresh(limit.within(limit.left() / 2));
        Node* at = &master_of(call.key());
        auto reply = at->run(call, again, limit);
        for (int hop = 0; hop < most_hops && !reply && !limit.over(); ++hop) {
            const Fault fault = reply.error();
            const auto to = redirection_of(fault);
            if (to) {
                at = to->once ? &node_of(*to, *at) : &note(*to, *at);
                if (!to->once) refresh(limit);
            } else if (fault.error.code == Errc::unavailable && !is_between_servers(fault)) {
                refresh(limit);
                Node* const next = &master_of(call.key());
                if (next == at || fault.maybe_executed) break;
                at = next;
            } else {
                break;
            }
            reply = at->run(again, again, limit, to && to->once);
        }
        if (!reply &&
            redirection_of(reply.error())) {  // the time is over, or the map never settles
            reply.error().error.code = Errc::unavailable;
            reply.error().transient = true;
        }
        // Where no time is left to find out more, the next command does so first.
        if (!reply && reply.error().error.code == Errc::unavailable) suspect_ = true;
        return reply;
    }

    void failed(Node& node, const Fault& fault, const Limit& limit) override {
        if (const auto to = redirection_of(fault)) {
            if (!to->once) static_cast<void>(note(*to, node));
        } else if (fault.error.code == Errc::unavailable) {
            refresh(limit);
        }
    }

private:
    static constexpr int most_hops = 8;
    static constexpr std::chrono::milliseconds least_age{100};

    /// With the mutex held.
    Node& node_at(const std::string& host, std::uint16_t port) {
        Endpoint endpoint = common_;
        endpoint.host = host;
        endpoint.port = port;
        std::unique_ptr<Node>& node = nodes_[endpoint.name()];
        if (node == nullptr) {
            auto dialer = std::make_unique<DirectDialer>(endpoint, dial_);
            dialer->on_move(on_move_);
            node = std::make_unique<Node>(std::move(dialer), use_, on_reconnect_);
            endpoints_[node.get()] = endpoint;
        }
        return *node;
    }

    Node& node_of(const Redirection& to, const Node& from) {
        const std::lock_guard lock{mutex_};
        return node_at(to.host.empty() ? endpoints_.at(&from).host : to.host, to.port);
    }

    /// A slot has moved.
    Node& note(const Redirection& to, const Node& from) {
        Node& node = node_of(to, from);
        const std::lock_guard lock{mutex_};
        if (to.slot < slot_count) owners_[to.slot] = &node;
        return node;
    }

    /// Asks for the map, if nobody else is doing that and what is known is not brand new.
    void refresh(const Limit& limit) {
        std::vector<Endpoint> nodes;
        {
            const std::lock_guard lock{mutex_};
            const TimePoint now = Clock::now();
            if (refreshing_ || (refreshed_ && now - *refreshed_ < least_age)) return;
            refreshing_ = true;
            nodes = informants();
        }
        auto remaining = static_cast<int>(nodes.size());
        for (const Endpoint& node : nodes) {
            if (limit.over() || limit.cancelled()) break;
            if (ask(node, limit.within(limit.left() / (remaining + 1)))) break;
            --remaining;
        }
        const std::lock_guard lock{mutex_};
        refreshing_ = false;
        refreshed_ = Clock::now();
    }

    /// Whom to ask, each once, the one that answered last first. With the mutex held.
    std::vector<Endpoint> informants() const {
        std::vector<Endpoint> all = seeds_;
        for (const auto& known : endpoints_) {
            if (!has_slots(*known.first)) continue;
            const std::string name = known.second.name();
            const bool is_seed = std::any_of(seeds_.begin(), seeds_.end(),
                                             [&](const auto& seed) { return seed.name() == name; });
            if (!is_seed) all.push_back(known.second);
        }
        const auto last = std::find_if(all.begin(), all.end(), [this](const Endpoint& endpoint) {
            return endpoint.name() == informant_;
        });
        if (last != all.end()) std::rotate(all.begin(), last, last + 1);
        return all;
    }

    /// Whether a node is the master of anything. With the mutex held.
    bool has_slots(const Node& node) const {
        return std::find(owners_.begin(), owners_.end(), &node) != owners_.end();
    }

    bool ask(Endpoint node, const Limit& limit) {
        node.user = common_.user;
        node.password = common_.password;
        node.any_role = true;
        auto connection = dial_.connect(node, limit);
        if (!connection) return false;
        auto reply = connection->call(Call::plain({"CLUSTER", "SLOTS"}).wire(), limit);
        return reply && learn(reply->view(), node);
    }

    /// Of each range of slots: first, last, master, replicas; of each node: host, port and more.
    bool learn(const ReplyView& ranges, const Endpoint& from) {
        if (ranges.size().value_or(0) == 0) return false;
        const std::lock_guard lock{mutex_};
        for (std::size_t i = 0; i < *ranges.size(); ++i) learn_range(ranges[i], from);
        for (const auto& [name, node] : nodes_) {
            if (!has_slots(*node)) node->drop_idle();
        }
        informant_ = from.name();
        return true;
    }

    /// With the mutex held.
    void learn_range(const ReplyView& range, const Endpoint& from) {
        if (range.size().value_or(0) < 3 || range[2].size().value_or(0) < 2) return;
        const auto first = range[0].integer();
        const auto last = range[1].integer();
        const auto port = range[2][1].integer();
        if (!first || !last || !port || *first < 0 || *last >= slot_count || *port <= 0 ||
            *port > 0xffff) {
            return;
        }
        const std::string_view host = range[2][0].text();
        const bool known = !host.empty() && host != "?";
        if (known && !may_be_host(host)) return;
        Node& node =
            node_at(known ? std::string{host} : from.host, static_cast<std::uint16_t>(*port));
        for (std::int64_t slot = *first; slot <= *last; ++slot) {
            owners_[static_cast<std::size_t>(slot)] = &node;
        }
    }

    const std::vector<Endpoint> seeds_;
    const Endpoint common_;
    const DialOptions dial_;
    const NodeUse use_;
    const std::function<void(const std::string&)> on_reconnect_;
    const std::function<void()> on_move_;
    std::mutex mutex_;
    // Every one that was ever heard of, as others refer to it: one without slots is left alone.
    std::map<std::string, std::unique_ptr<Node>> nodes_;
    std::map<const Node*, Endpoint> endpoints_;
    std::array<Node*, slot_count> owners_{};  // null where not known
    std::string informant_;                   // told the map last
    std::atomic<bool> suspect_{true};         // the map: to be asked for before the next command
    bool refreshing_ = false;
    std::optional<TimePoint> refreshed_;
};

}  // namespace redlatch::inline v0::detail
