#pragma once

#include <redlatch/core/quorum_call.hpp>
#include <redlatch/topology/member.hpp>
#include <redlatch/topology/round.hpp>
#include <redlatch/topology/topology.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Several independent masters, a majority of which decides: Redlock. Thread-safe.
class Quorum final : public Topology {
public:
    /// What the several have in common.
    struct Terms {
        std::chrono::milliseconds node_timeout;
        std::chrono::milliseconds longest_lease;
    };

    /// `on_late` is told of a master that owes an answer which nobody waits for.
    Quorum(std::vector<std::unique_ptr<Dialer>> dialers, const NodeUse& use, Terms terms,
           const std::function<void(const std::string&)>& on_reconnect,
           std::function<void(Node&)> on_late)
        : terms_(terms), on_late_(std::move(on_late)) {
        for (auto& dialer : dialers) {
            members_.push_back(std::make_unique<Member>(std::move(dialer), use, on_reconnect));
        }
    }

    std::size_t voters() const noexcept override { return members_.size(); }

    Node& master_of(std::string_view) override { return members_.front()->node(); }

    std::vector<Node*> masters_of(std::string_view) override {
        std::vector<Node*> nodes;
        for (const auto& member : members_) nodes.push_back(&member->node());
        return nodes;
    }

    Expected<Reply, Fault> run_on_masters(const Call& call, const Call& again, const Limit& limit,
                                          Spread& spread) override {
        Round round{members_, call, again, rules_for(call.answer()), limit};
        auto decision = round.run();
        spread.masters = round.sets();
        if (spread.masters.late != 0) round.leave_late(spread.settled, on_late_);
        return decision;
    }

    /// One that is known to be out of reach is not waited for.
    Expected<Connection, Fault> connect(Node& node, const Limit& limit) override {
        Member& member = member_of(node);
        if (member.is_doubtful()) {
            ConnectStatus status = member.request(-1);
            if (status.kind != ConnectStatus::Kind::coming) {
                return Unexpected{std::move(status.fault)};
            }
        }
        auto connection = node.connect(limit);
        if (!connection) member.failed(connection.error());
        return connection;
    }

    void failed(Node& node, const Fault& fault, const Limit&) override {
        member_of(node).failed(fault);
    }

    void close() override {
        for (const auto& member : members_) member->begin_to_close();
        for (const auto& member : members_) member->close();
    }

private:
    QuorumRules rules_for(Answer answer) const noexcept {
        return {subject_of(answer), terms_.node_timeout, terms_.longest_lease};
    }

    static QuorumSubject subject_of(Answer answer) noexcept {
        switch (answer) {
            case Answer::ok_or_nil:
            case Answer::acquired: return QuorumSubject::taking;
            case Answer::integer:
            case Answer::moved: return QuorumSubject::keeping;
            case Answer::any:
            case Answer::lock_info: break;
        }
        return QuorumSubject::asking;
    }

    Member& member_of(const Node& node) {
        return **std::find_if(members_.begin(), members_.end(),
                              [&node](const auto& member) { return &member->node() == &node; });
    }

    const Terms terms_;
    const std::function<void(Node&)> on_late_;
    Round::Members members_;
};

}  // namespace redlatch::inline v0::detail
