#pragma once

#include <redlatch/topology/topology.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// One server, which is the master of everything.
class Standalone final : public Topology {
public:
    Standalone(Dial dial, std::chrono::milliseconds command_timeout, std::size_t max_connections,
               std::function<void(const std::string&)> on_reconnect)
        : node_(std::move(dial), command_timeout, max_connections, std::move(on_reconnect)) {}

    Node& master_of(std::string_view) override { return node_; }

private:
    Node node_;
};

}  // namespace redlatch::inline v0::detail
