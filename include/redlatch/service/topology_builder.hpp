#pragma once

#include <redlatch/net/dialer.hpp>
#include <redlatch/net/node.hpp>
#include <redlatch/net/own_dialer.hpp>
#include <redlatch/service/client_setup.hpp>
#include <redlatch/topology/cluster.hpp>
#include <redlatch/topology/quorum.hpp>
#include <redlatch/topology/sentinel.hpp>
#include <redlatch/topology/single_master.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What a topology tells the rest of the client. Called on any thread.
struct TopologyEvents {
    std::function<void(const std::string& node)> reconnected;
    std::function<void(const std::string& node)> keys_denied;  ///< all but the first, by its ACL
    std::function<void()> master_moved;                        ///< connections have become useless
    std::function<void(Node&)> node_left;                      ///< it serves no slot of the Cluster
    std::function<void(Node&)> owes_answer;                    ///< which nobody waits for
    std::function<void()> sentinels_found;
};

/// Makes the topology that a client's options describe. Connects to nothing.
class TopologyBuilder {
public:
    using TopologyPtr = std::unique_ptr<Topology>;
    using DialerPtr = std::unique_ptr<Dialer>;

    /// Borrows the setup. `dial`: how each server is connected to.
    TopologyBuilder(const ClientSetup& setup, DialOptions dial, TopologyEvents events)
        : setup_(&setup), dial_(std::move(dial)), events_(std::move(events)) {}

    /// Once.
    TopologyPtr build() {
        if (setup_->is(UriParts::Kind::cluster)) {
            const UriParts& uri = setup_->uris.front();
            return TopologyPtr{new Cluster{uri.hosts, uri, dial_, node_use(), events_.reconnected,
                                           events_.master_moved, events_.node_left}};
        }
        auto dialers = make_dialers();
        if (dialers.size() > 1) {
            const ClientOptions& options = setup_->options;
            const Quorum::Terms terms{std::min(options.node_timeout, options.command_timeout),
                                      options.longest_lease};
            return TopologyPtr{new Quorum{std::move(dialers), node_use(), terms,
                                          events_.reconnected, events_.owes_answer}};
        }
        auto dialer = std::move(dialers.front());
        dialer->on_move(events_.master_moved);
        return TopologyPtr{new SingleMaster{std::move(dialer), node_use(), events_.reconnected}};
    }

    /// Of what was built, which owns it; null where there are none.
    SentinelDialer* sentinels() const noexcept { return sentinels_; }

private:
    NodeUse node_use() const {
        const ClientOptions& options = setup_->options;
        NodeUse use{options.command_timeout, options.max_connections, options.busy_wait};
        if (setup_->masters() == 1)
            use.on_keys_denied = events_.keys_denied;  // several know no order
        return use;
    }

    std::vector<DialerPtr> make_dialers() {
        std::vector<DialerPtr> dialers;
        for (const UriParts& uri : setup_->uris) dialers.push_back(make_dialer(uri));
        for (const ConnectionFactory& factory : setup_->options.factories) {
            dialers.push_back(
                DialerPtr{new OwnDialer{factory, dial_.connect_timeout, dial_.examine}});
        }
        return dialers;
    }

    DialerPtr make_dialer(const UriParts& uri) {
        if (uri.kind != UriParts::Kind::sentinel) return DialerPtr{new DirectDialer{uri, dial_}};
        sentinels_ = new SentinelDialer{uri.hosts, uri.service, uri, dial_};
        DialerPtr dialer{sentinels_};
        sentinels_->on_found(events_.sentinels_found);
        return dialer;
    }

    const ClientSetup* setup_;
    const DialOptions dial_;
    const TopologyEvents events_;
    SentinelDialer* sentinels_ = nullptr;
};

}  // namespace redlatch::inline v0::detail
