#pragma once

#include <redlatch/core/command_queue.hpp>
#include <redlatch/core/master_sets.hpp>
#include <redlatch/core/quorum_call.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/core/token_state.hpp>
#include <redlatch/net/node.hpp>

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace redlatch::inline v0::detail {

/// Is told of each master that had not answered when the others had decided: whether its answer came
/// after all. Called on any thread, with no mutex held.
using OnLateReply = std::function<void(bool answered)>;

/// What a caller hears of a command to several masters besides its answer.
struct QuorumProgress {
    OnLateReply on_late_reply{};  ///< given by the caller; may be empty

    /// Given by the caller: whose command it is, where its acquisition or its release; else null.
    const TokenAtMasters* token = nullptr;

    /// Given by the caller: what goes first over a link, and for which token it speaks.
    CommandRank rank = CommandRank::usual;
    std::string_view speaks_for{};

    MasterSets masters{};

    /// A master still owed the token an answer, and it did not go out behind that: it may be carried out first.
    bool may_overtake = false;
};

/// As many masters as `MasterSets` has bits.
inline constexpr std::size_t most_masters = 64;

/// Answers the one question on which deployments of Redis differ: which servers decide about this
/// key? One master, or several independent ones of which a majority has to agree.
class Topology {
public:
    Topology() = default;
    Topology(const Topology&) = delete;
    Topology& operator=(const Topology&) = delete;
    virtual ~Topology() = default;

    /// How many decide about each key.
    virtual std::size_t voters() const noexcept { return 1; }

    /// The master for `key`; one of them, where there are several. It lives as long as the topology.
    virtual Node& master_of(std::string_view key) = 0;

    /// The server that `from` has named; `from` where there is none but it.
    virtual Node& node_of(const Redirection& to, Node& from) {
        static_cast<void>(to);
        return from;
    }

    /// Whether that is the master of anything, as far as is known.
    virtual bool is_master(const Node& node) {
        static_cast<void>(node);
        return true;
    }

    /// Whether a command may be sent on to another server than `master_of` its key, as a Cluster does.
    virtual bool redirects() const noexcept { return false; }

    /// The same as `master_of` for a new command; null where it first has to be asked for, by `refresh`.
    virtual Node* known_master_of(std::string_view key) { return &master_of(key); }

    /// Asks which server is whose master. Blocks.
    virtual void refresh(const Limit& limit) { static_cast<void>(limit); }

    /// The known answer may be wrong: the next command has to ask first. Adds to the error that showed it why
    /// nobody could set it right.
    virtual void suspect_map(Error& after) { static_cast<void>(after); }

    /// All that decide about `key`.
    virtual std::vector<Node*> masters_of(std::string_view key) { return {&master_of(key)}; }

    /// Runs a call where its key is; `again` as with `Node::run`. Where several decide, the answer is
    /// what they have decided.
    virtual Expected<Reply, Fault> run_on_masters(const Call& call, const Call& again,
                                                  const Limit& limit, QuorumProgress& progress) {
        static_cast<void>(progress);
        auto reply = master_of(call.key()).run(call, again, limit);
        if (!reply) explain_cluster(reply.error());
        return reply;
    }

    /// How several decide about a command that has such an answer.
    virtual QuorumRules rules_for(ReplyShape answer) const noexcept {
        static_cast<void>(answer);
        return {};
    }

    /// A connection of the caller's own to one of the masters.
    virtual Expected<Connection, Fault> connect(Node& node, const Limit& limit) {
        return node.connect(limit);
    }

    /// A command that was sent to `node` without `run_on_masters` met a fault: the client's view of the
    /// deployment may be wrong.
    virtual void failed(Node& node, const Fault& fault, const Limit& limit) = 0;

    /// Ends what runs in the background. Nothing is connected any more.
    virtual void close() {}
};

}  // namespace redlatch::inline v0::detail
