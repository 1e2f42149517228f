#pragma once

#include "plan.hpp"
#include "verb.hpp"
#include <redlatch/core/server_address.hpp>
#include <redlatch/core/slot.hpp>
#include <redlatch/core/slot_map.hpp>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// Where node `node` of a schedule is.
inline detail::ServerAddress address_of(int node) {
    return {"node" + std::to_string(node), static_cast<std::uint16_t>(7000 + node)};
}
inline int node_at(const detail::ServerAddress& address) {
    return address.port - 7000;
}

/// The nodes that one after the other are a master, what each of them is just now, and whom the others take for
/// the master. A schedule without a Cluster or Sentinels has one.
class Nodes {
public:
    Nodes(const Plan& plan, const Timeline& timeline, int number)
        : plan_(&plan.nodes), timeline_(&timeline), name_("server" + std::to_string(number) + ".") {
        for (int i = 0; i < plan_->count; ++i) restart(i);
    }

    /// Which is the master, or was it last.
    int serving() const { return serving_; }
    int count() const { return plan_->count; }

    const std::shared_ptr<const std::string>& id(int node) const { return at(node).id; }
    std::bitset<verb_count>& scripts(int node) { return at(node).scripts; }

    void be_silent_until(Moment until) {
        Moment& silent = at(serving_).silent_until;
        silent = std::max(silent, until);
    }
    /// When it will carry out what arrives now.
    Moment awake_at(int node) const { return std::max(at(node).silent_until, timeline_->now()); }

    /// Its connections are gone, and its scripts.
    void restart(int node) {
        at(node).scripts.reset();
        at(node).id = std::make_shared<const std::string>(name_ + std::to_string(starts_++));
    }

    bool is_there(int node) const { return !at(node).gone; }

    /// Whether there is no master at all.
    bool is_down() const { return down_; }

    /// The master has gone, or is cut off from all but its clients.
    void go_down(bool lingers) {
        down_ = true;
        lingering_ = lingers ? serving_ : nobody;
        if (!lingers) leave(serving_, plan_->outage == 0ns);
    }
    int next_after(int whom) const { return (serving_ + 1 + whom % (count() - 1)) % count(); }
    void serve(int node) {
        down_ = false;
        at(node).gone = false;
        serving_ = node;
        changes_.emplace_back(timeline_->now(), node);
    }
    /// That lasts until a new one has taken over, and somewhat longer.
    bool lingers(int node) const { return node == lingering_; }
    void stop_lingering() {
        constexpr bool in_health = true;
        if (lingering_ != nobody) leave(std::exchange(lingering_, nobody), in_health);
    }

    /// Whom somebody takes for the master who hears of a change so much later.
    int believed_by(Moment lag) const {
        for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
            if (change->first + lag <= timeline_->now()) return change->second;
        }
        return 0;
    }
    int believed_by_node(int node) const {
        if (node == serving_) return serving_;
        return believed_by(plan_->node_lags[static_cast<std::size_t>(node)]);
    }
    int believed_by_sentinel(int sentinel) const {
        return believed_by(plan_->sentinel_lags[static_cast<std::size_t>(sentinel)]);
    }

private:
    struct Node {
        std::shared_ptr<const std::string> id{};
        std::bitset<verb_count> scripts{};
        Moment silent_until{0};
        bool gone = false;
    };
    static constexpr int nobody = -1;

    Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }
    const Node& at(int node) const { return nodes_[static_cast<std::size_t>(node)]; }

    /// In good health, it keeps its connections, and says that it is a replica.
    void leave(int node, bool in_health) {
        at(node).gone = !plan_->back_as_replica;
        if (!in_health || at(node).gone) restart(node);
    }

    const NodesPlan* plan_;
    const Timeline* timeline_;
    std::string name_;
    std::array<Node, most_nodes> nodes_{};
    std::vector<std::pair<Moment, int>> changes_{};
    int serving_ = 0;
    int lingering_ = nobody;
    bool down_ = false;
    int starts_ = 0;
};

/// Where the keys of a Cluster's one slot of interest are while it moves from the master to another node.
class Migration {
public:
    enum class Phase {
        none,
        moving,       ///< the source sends on what it has not got any more
        handing_over  ///< each of both takes the other one for the master
    };

    Phase phase() const { return phase_; }
    int target() const { return target_; }

    void begin(int target) {
        phase_ = Phase::moving;
        target_ = target;
        ++number_;
        moved_.clear();
    }
    /// The how-manieth.
    int number() const { return number_; }
    void hand_over() { phase_ = Phase::handing_over; }
    void end() { phase_ = Phase::none; }

    void move(const std::string& key) { moved_.push_back(key); }
    bool has_moved(std::string_view key) const {
        return std::ranges::find(moved_, key) != moved_.end();
    }

private:
    Phase phase_ = Phase::none;
    int target_ = 0;
    int number_ = 0;
    std::vector<std::string> moved_{};
};

}  // namespace redlatch::test::simulator
