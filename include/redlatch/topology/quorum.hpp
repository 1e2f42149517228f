#pragma once

#include <redlatch/core/quorum_call.hpp>
#include <redlatch/topology/master.hpp>
#include <redlatch/topology/quorum_poll.hpp>
#include <redlatch/topology/quorum_reply.hpp>
#include <redlatch/topology/topology.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
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
            masters_.emplace_back(std::move(dialer), use, on_reconnect);
        }
    }

    std::size_t voters() const noexcept override { return masters_.size(); }

    Node& master_of(std::string_view) override { return masters_.front().node(); }

    std::vector<Node*> masters_of(std::string_view) override {
        std::vector<Node*> nodes;
        for (Master& master : masters_) nodes.push_back(&master.node());
        return nodes;
    }

    Expected<Reply, Fault> run_on_masters(const Call& call, const Call& again, const Limit& limit,
                                          QuorumProgress& progress) override {
        QuorumPoll poll{masters_, call, again, rules_for(call.shape()), progress.token, limit};
        auto decision = poll.run(progress);
        if (progress.masters.late != 0) poll.leave_late(progress.on_late_reply, on_late_);
        return decision;
    }

    QuorumRules rules_for(ReplyShape answer) const noexcept override {
        return {subject_of(answer), terms_.node_timeout, terms_.longest_lease};
    }

    /// One that is known to be out of reach is not waited for.
    Expected<Connection, Fault> connect(Node& node, const Limit& limit) override {
        Master& master = master_at(node);
        if (master.is_doubtful()) {
            ConnectStatus status = master.request(nullptr);
            if (status.kind != ConnectStatus::Kind::coming) {
                return Unexpected{std::move(status.fault)};
            }
        }
        auto connection = node.connect(limit);
        if (!connection) master.failed(connection.error());
        return connection;
    }

    void failed(Node& node, const Fault& fault, const Limit&) override {
        master_at(node).failed(fault);
    }

    void close() override {
        for (Master& master : masters_) master.begin_to_close();
        for (Master& master : masters_) master.close();
    }

private:
    Master& master_at(const Node& node) {
        return *std::find_if(masters_.begin(), masters_.end(),
                             [&node](Master& master) { return &master.node() == &node; });
    }

    const Terms terms_;
    const std::function<void(Node&)> on_late_;
    QuorumPoll::Masters masters_;
};

}  // namespace redlatch::inline v0::detail
