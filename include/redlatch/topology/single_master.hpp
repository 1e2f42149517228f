#pragma once

#include <redlatch/topology/topology.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// One server at a time, which is the master of everything. The dialer knows which one.
class SingleMaster final : public Topology {
public:
    SingleMaster(std::unique_ptr<Dialer> dialer, const NodeUse& use,
                 std::function<void(const std::string&)> on_reconnect)
        : node_(std::move(dialer), use, std::move(on_reconnect)) {}

    Node& master_of(std::string_view) override { return node_; }
    void failed(Node&, const Fault&, const Limit&) override {}  // the dialer finds that out

private:
    Node node_;
};

}  // namespace redlatch::inline v0::detail
