#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/redirection.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Whether a fault may come of a map that is wrong by now: the node is out of reach, or serves no slots
/// (CLUSTERDOWN), or its address is another server's by now, which lets nobody in or speaks another protocol.
inline bool puts_map_in_doubt(const Fault& fault) {
    const Errc code = fault.error.code;
    if (fault.refuses_client || code == Errc::protocol) return true;
    return code == Errc::unavailable && !is_between_servers(fault);
}

/// Decides to which servers of a Cluster one command goes: event in, action out. It follows MOVED and
/// ASK. Where a node is out of reach it has the map asked for, and sends the command to the slot's master
/// if that is another node. A command whose keys are in two places is left to its caller, who tries again.
class ClusterRedirection {
public:
    /// Send the command to the master that the map has for its slot.
    struct SendToMaster {};
    /// Send it to this node; behind ASKING where that is for once.
    struct SendTo {
        Redirection to;
    };
    struct RefreshMap {
        TimePoint until;
    };
    struct Pause {
        TimePoint until;
    };
    struct GiveUp {
        Fault fault;
        bool map_in_doubt;  ///< the next command has to ask for it first
    };
    using Action = OneOf<SendToMaster, SendTo, RefreshMap, Pause, GiveUp>;

    explicit ClusterRedirection(TimePoint deadline) : deadline_(deadline) {}

    /// The command has more time than was thought.
    void has_until(TimePoint deadline) noexcept { deadline_ = deadline; }

    /// The map is as good as is known.
    Action begin() { return SendToMaster{}; }

    /// The slot's master is not known, or the map may be wrong: half of the time is for asking.
    Action begin_in_doubt(TimePoint now) {
        return RefreshMap{saturating_add(now, saturating_sub(deadline_, now) / 2)};
    }

    /// The map has arrived, or nobody has told it. `elsewhere`: the slot's master is another node than the
    /// one that was asked last.
    Action map_settled(bool elsewhere, TimePoint now) {
        if (!fault_) return SendToMaster{};
        if (now >= deadline_) return give_up();
        if (to_) return follow(now);
        if (!elsewhere || fault_->maybe_executed) return give_up();
        return SendToMaster{};
    }

    /// The command met a fault where it was sent.
    Action failed(Fault fault, TimePoint now) {
        unclear_ = unclear_ || fault.maybe_executed;
        fault.maybe_executed = unclear_;
        fault_ = std::move(fault);
        to_ = redirection_of(*fault_);
        const bool may_go_on = to_ || puts_map_in_doubt(*fault_);
        if (!may_go_on || sent_again_ == most_hops || now >= deadline_) return give_up();
        ++sent_again_;
        if (to_ && to_->once) return follow(now);
        return RefreshMap{deadline_};
    }

    Action pause_over(TimePoint now) {
        if (now >= deadline_) return give_up();
        return SendTo{*to_};
    }

    /// A sending that got no answer may have been executed, where the key was before.
    bool unclear() const noexcept { return unclear_; }

private:
    static constexpr int most_hops = 8;
    /// A map that is out of date costs one hop, a slot that is just moving two.
    static constexpr int hops_at_once = 3;
    static constexpr std::chrono::milliseconds first_pause{5};
    static constexpr std::chrono::milliseconds longest_pause{20};

    /// Servers that send a command round in circles do not agree yet.
    Action follow(TimePoint now) {
        if (sent_again_ <= hops_at_once) return SendTo{*to_};
        const auto pause =
            std::min(first_pause * (1 << (sent_again_ - hops_at_once - 1)), longest_pause);
        return Pause{std::min(saturating_add(now, pause), deadline_)};
    }

    Action give_up() {
        Fault fault = *std::move(fault_);
        const bool in_doubt = to_ || puts_map_in_doubt(fault);
        if (to_) disagree(fault);  // the time is over, or the map never settles
        return GiveUp{std::move(fault), in_doubt};
    }

    TimePoint deadline_;
    int sent_again_ = 0;
    bool unclear_ = false;
    std::optional<Fault> fault_;     // the last one
    std::optional<Redirection> to_;  // what it says
};

}  // namespace redlatch::inline v0::detail
