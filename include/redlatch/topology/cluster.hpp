#pragma once

#include <redlatch/core/cluster_redirection.hpp>
#include <redlatch/core/server_address.hpp>
#include <redlatch/core/slot.hpp>
#include <redlatch/core/slot_map.hpp>
#include <redlatch/core/slot_map_refresh.hpp>
#include <redlatch/topology/topology.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// A Redis Cluster: each key has a slot, and each slot its master. Any node tells which one; the map is asked
/// for when a command shows that the known one is wrong. Thread-safe.
class Cluster final : public Topology {
public:
    /// `common`: what there is to know about every node but its address. `on_move` is told that
    /// connections to a node have become useless, `on_left` of each node that serves no slot whenever the
    /// map has arrived.
    Cluster(const std::vector<Endpoint>& seeds, Endpoint common, DialOptions dial, NodeUse use,
            std::function<void(const std::string&)> on_reconnect, std::function<void()> on_move,
            std::function<void(Node&)> on_left)
        : common_(node_of_cluster(std::move(common))),
          dial_(std::move(dial)),
          use_(std::move(use)),
          on_reconnect_(std::move(on_reconnect)),
          on_move_(std::move(on_move)),
          on_left_(std::move(on_left)) {
        for (const Endpoint& seed : seeds) seeds_.push_back({seed.host, seed.port});
        anybody_ = &node_at(seeds_.front());
    }

    /// Where it is not known, any node: that one knows better.
    Node& master_of(std::string_view key) override { return *look_up(key).node; }

    Node& node_of(const Redirection& to, Node& from) override {
        return node_at({to.host.empty() ? host_of(from) : to.host, to.port});
    }

    bool is_master(const Node& node) override {
        const std::lock_guard lock{mutex_};
        const auto found = std::find(masters_.begin(), masters_.end(), &node);
        const auto number = static_cast<std::size_t>(found - masters_.begin());
        return found != masters_.end() && map_.serves(number);
    }

    Expected<Reply, Fault> run_on_masters(const Call& call, const Call& again, const Limit& limit,
                                          QuorumProgress&) override {
        ClusterRedirection redirection{limit.at};
        Master master = look_up(call.key(), Purpose::new_command);
        Node* at = nullptr;
        auto action =
            master.is_certain ? redirection.begin() : redirection.begin_in_doubt(Clock::now());
        for (;;) {
            if (const auto* refreshing = get_if<ClusterRedirection::RefreshMap>(&action)) {
                refresh({refreshing->until, limit.stop});
                master = look_up(call.key());
                action = redirection.map_settled(master.node != at, Clock::now());
            } else if (const auto* pause = get_if<ClusterRedirection::Pause>(&action)) {
                std::this_thread::sleep_for(saturating_sub(pause->until, Clock::now()));
                action = redirection.pause_over(Clock::now());
            } else if (auto* end = get_if<ClusterRedirection::GiveUp>(&action)) {
                if (end->map_in_doubt) suspect_map(end->fault.error);
                return Unexpected{std::move(end->fault)};
            } else {
                const auto* to = get_if<ClusterRedirection::SendTo>(&action);
                const bool first = at == nullptr;
                at = to == nullptr ? master.node : &node_of(to->to, *at);
                auto reply = at->run(first ? call : again, again, limit, to && to->to.once);
                if (reply) {
                    reply->repeated = reply->repeated || redirection.unclear();
                    return reply;
                }
                note_move(reply.error(), *at);
                action = redirection.failed(std::move(reply).error(), Clock::now());
            }
        }
    }

    bool redirects() const noexcept override { return true; }

    Node* known_master_of(std::string_view key) override {
        const Master master = look_up(key, Purpose::new_command);
        return master.is_certain ? master.node : nullptr;
    }

    /// Returns once the map has been asked for, by this thread or another one, or need not be.
    void refresh(const Limit& limit) override {
        using Turn = SlotMapRefresh::Turn;
        std::unique_lock lock{mutex_};
        Turn turn = refreshes_.wanted(Clock::now());
        while (turn == Turn::wait) {
            if (!wait_for_refresh(lock, limit)) return;
            turn = refreshes_.waited(Clock::now());
        }
        if (turn == Turn::skip) return;
        lock.unlock();
        // Whatever ends it: others may be waiting.
        struct End {
            Cluster* its;
            SlotMapRefresh::Outcome outcome = SlotMapRefresh::Outcome::cut_short;
            ~End() {
                {
                    const std::lock_guard lock{its->mutex_};
                    its->refreshes_.ended(outcome, Clock::now());
                }
                its->refreshed_.notify_all();
            }
        } end{this};
        std::vector<ServerAddress> informants = whom_to_ask();
        const ServerAddress first = informants.front();
        end.outcome = ask_for_map({std::move(informants), limit.at}, limit);
        if (end.outcome != SlotMapRefresh::Outcome::cut_short) return;
        const std::lock_guard section{mutex_};
        informant_ = first;
    }

    void suspect_map(Error& after) override {
        const std::lock_guard lock{mutex_};
        add_why_unknown(after);
        refreshes_.suspect();
    }

    void failed(Node& node, const Fault& fault, const Limit& limit) override {
        note_move(fault, node);
        if (!puts_map_in_doubt(fault)) return;
        {
            const std::lock_guard lock{mutex_};
            refreshes_.suspect();
        }
        refresh(limit);
    }

private:
    static Endpoint node_of_cluster(Endpoint endpoint) {
        endpoint.mode = Endpoint::Mode::cluster_node;
        return endpoint;
    }

    /// The node at that address, one for each that was ever heard of, as others refer to it.
    Node& node_at(const ServerAddress& address) {
        const std::lock_guard lock{nodes_mutex_};
        auto found = nodes_.find(address);
        if (found == nodes_.end()) {
            std::unique_ptr<Dialer> dialer{new DirectDialer{common_.at(address), dial_}};
            dialer->on_move(on_move_);
            found = nodes_.try_emplace(address, std::move(dialer), use_, on_reconnect_).first;
        }
        return found->second;
    }

    std::string host_of(const Node& node) {
        const std::lock_guard lock{nodes_mutex_};
        const auto is_that = [&node](const auto& known) { return &known.second == &node; };
        return std::find_if(nodes_.begin(), nodes_.end(), is_that)->first.host;
    }

    struct Master {
        Node* node;
        bool is_certain;  ///< no need to ask for the map first
    };
    enum class Purpose { any, new_command };

    Master look_up(std::string_view key, Purpose purpose = Purpose::any) {
        const unsigned slot = slot_of(key);
        const std::lock_guard lock{mutex_};
        const bool suspect = purpose == Purpose::new_command && refreshes_.take_suspicion();
        const auto number = map_.master_of(slot);
        return number ? Master{masters_[*number], !suspect} : Master{anybody_, false};
    }

    void note_move(const Fault& fault, Node& from) {
        const auto to = redirection_of(fault);
        if (!to || to->once) return;
        const ServerAddress address{to->host.empty() ? host_of(from) : to->host, to->port};
        Node& node = node_at(address);
        const std::lock_guard lock{mutex_};
        masters_.reserve(masters_.size() + 1);  // where that throws, nothing has changed
        if (map_.moved(to->slot, address) == masters_.size()) masters_.push_back(&node);
    }

    std::vector<ServerAddress> whom_to_ask() {
        const std::lock_guard lock{mutex_};
        return map_informants(seeds_, map_.serving(), informant_, refreshes_.was_misled());
    }

    /// False where the caller's time is over, or it is cancelled.
    bool wait_for_refresh(std::unique_lock<std::mutex>& lock, const Limit& limit) {
        while (refreshes_.under_way()) {
            if (limit.over() || limit.cancelled()) return false;
            refreshed_.wait_for(lock, std::min<Clock::duration>(limit.left(), stop_check_interval));
        }
        return true;
    }

    SlotMapRefresh::Outcome ask_for_map(SlotMapInquiry inquiry, const Limit& limit) {
        std::vector<Error> faults;
        while (const auto ask = inquiry.next(Clock::now())) {
            auto learned = learn_from(ask->node, {ask->until, limit.stop});
            if (learned) return SlotMapRefresh::Outcome::learned;
            if (limit.cancelled()) return SlotMapRefresh::Outcome::cut_short;
            faults.push_back(std::move(learned).error().error);
        }
        const std::lock_guard lock{mutex_};
        why_unknown_ = std::move(faults);
        return inquiry.failed(Clock::now());
    }

    /// What the nodes said that were asked for the map, where nobody knew it. With the mutex held.
    void add_why_unknown(Error& error) const {
        constexpr std::size_t most = 8;  // a Cluster may have a thousand
        for (const Error& cause : why_unknown_) {
            const bool is_known = cause.node == error.node && cause.message == error.message;
            if (!is_known && error.causes.size() < most) error.causes.push_back(cause);
        }
    }

    Expected<void, Fault> learn_from(const ServerAddress& informant, const Limit& limit) {
        Endpoint endpoint = common_.at(informant);
        endpoint.any_role = true;
        auto connection = dial_.connect(endpoint, limit);
        if (!connection) return Unexpected{std::move(connection).error()};
        auto reply = connection->call(Call::plain({"CLUSTER", "SLOTS"}).wire(), limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        auto map = read(reply->view(), informant.host);
        if (!map) {
            Fault fault = unexpected_reply();
            fault.error.node = endpoint.name();
            return Unexpected{std::move(fault)};
        }
        learn(*std::move(map), informant);
        return {};
    }

    /// Of each range of slots: first, last, master, replicas; of each node: host, port and more.
    static std::optional<SlotMap> read(const ReplyView& answer, const std::string& host) {
        std::vector<ToldSlots> ranges;
        const std::size_t count = answer.size().value_or(0);
        if (count > slot_count) return std::nullopt;
        for (std::size_t i = 0; i < count; ++i) {
            const ReplyView range = answer[i];
            if (range.size().value_or(0) < 3 || range[2].size().value_or(0) < 2) return {};
            const auto first = range[0].integer();
            const auto last = range[1].integer();
            const auto port = range[2][1].integer();
            if (!first || !last || !port) return std::nullopt;
            ranges.push_back({*first, *last, range[2][0].text(), *port});
        }
        return SlotMap::from(ranges, host);
    }

    void learn(SlotMap map, const ServerAddress& informant) {
        std::vector<Node*> masters;
        for (const ServerAddress& address : map.masters()) masters.push_back(&node_at(address));
        Node& anybody = node_at(informant);
        std::vector<Node*> by_number = masters;  // first: the map and this change together
        std::optional<ServerAddress> teller = informant;
        {
            const std::lock_guard lock{mutex_};
            std::swap(map_, map);
            masters_.swap(by_number);
            informant_.swap(teller);
            why_unknown_.clear();
            anybody_ = &anybody;
        }
        drop_others(masters);
    }

    /// A node that serves no slot is left alone.
    void drop_others(const std::vector<Node*>& masters) {
        std::vector<Node*> others;
        {
            const std::lock_guard lock{nodes_mutex_};
            for (auto& [address, node] : nodes_) {
                const bool serves =
                    std::find(masters.begin(), masters.end(), &node) != masters.end();
                if (!serves) others.push_back(&node);
            }
        }
        for (Node* const node : others) {
            node->drop_idle();
            on_left_(*node);
        }
    }

    std::vector<ServerAddress> seeds_;
    const Endpoint common_;
    const DialOptions dial_;
    const NodeUse use_;
    const std::function<void(const std::string&)> on_reconnect_;
    const std::function<void()> on_move_;
    const std::function<void(Node&)> on_left_;

    std::mutex nodes_mutex_;
    std::map<ServerAddress, Node> nodes_;

    std::mutex mutex_;
    std::condition_variable refreshed_;
    SlotMapRefresh refreshes_;
    SlotMap map_;
    std::vector<Node*> masters_;              // by their numbers in the map
    std::optional<ServerAddress> informant_;  // told the map last
    std::vector<Error> why_unknown_;          // as the nodes said that were asked last
    Node* anybody_;                           // whom to ask where the map has nobody
};

}  // namespace redlatch::inline v0::detail
