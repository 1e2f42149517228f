#pragma once

#include <redlatch/net/node.hpp>

#include <string_view>

namespace redlatch::inline v0::detail {

/// Answers the one question on which deployments of Redis differ: which server is the master for
/// this key?
class Topology {
public:
    Topology() = default;
    Topology(const Topology&) = delete;
    Topology& operator=(const Topology&) = delete;
    virtual ~Topology() = default;

    /// The master for `key`. It lives as long as the topology.
    virtual Node& master_of(std::string_view key) = 0;

    /// A command that was sent to `node` by its own ways, without `Node::run`, met a fault: what is
    /// known of the deployment may be wrong.
    virtual void failed(Node& node, const Fault& fault, const Limit& limit) = 0;
};

}  // namespace redlatch::inline v0::detail
