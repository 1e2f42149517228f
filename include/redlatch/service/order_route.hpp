#pragma once

#include <redlatch/core/cluster_redirection.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/net/link.hpp>
#include <redlatch/net/order.hpp>
#include <redlatch/service/route_services.hpp>
#include <redlatch/topology/topology.hpp>

#include <memory>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// The way of an order to the one master of its key.
class SingleRoute : public Order::Route, public LinkCommand, public EngineTimer {
public:
    SingleRoute(RouteServices& services, std::shared_ptr<Order> order)
        : services_(&services), order_(std::move(order)) {}

    void begin() final {
        if (order_->time.answer_by != TimePoint::max()) {
            services_->timers().set(*this, order_->time.answer_by);
        }
        replicas_ = order_->acknowledged_by();
        start(order_->key());
    }

    bool abandon() noexcept final {
        const bool maybe_executed = leave();
        if (!maybe_executed) end(order_);
        return maybe_executed;
    }

    Call call(bool again) const final { return order_->call(again); }
    TimePoint answer_by() const noexcept final { return order_->time.answer_by; }

    /// Where most of its time has gone by before it is written, that begins anew.
    bool admit(const Connection&, TimePoint now) final {
        const bool is_new = sent() == TimePoint::min();
        const auto left = saturating_sub(order_->time.answer_by, now);
        if (is_new && left < link_->node().command_timeout() / 2) begin_anew(now);
        return true;
    }

    void ended(Expected<Reply, Fault>&& reply, CommandStep::Next) noexcept final {
        if (is_abandoned()) {
            const TimePoint first_sent = sent();
            end(order_)->answered_late(reply, first_sent);
        } else if (reply) {
            tell(std::move(reply));
        } else {
            failed(std::move(reply).error());
        }
    }

    void expired(TimePoint now) noexcept final {
        const bool behind_others = link_ != nullptr && link_->is_behind_others(*this, now);
        if (behind_others && begin_anew(now)) return;
        if (link_ != nullptr && link_->end_unacknowledged(*this)) return;
        Fault fault = services_->no_answer();
        if (link_ != nullptr) fault.error.node = link_->node().name();
        fault.maybe_executed = leave();
        if (!fault.maybe_executed) return tell(Unexpected{std::move(fault)});
        order_->answered(Unexpected{std::move(fault)}, {}, sent());
    }

protected:
    virtual void start(std::string_view key) { send_to(topology().master_of(key)); }

    /// It has met that at the server where it was sent.
    virtual void failed(Fault fault) {
        explain_cluster(fault);
        tell(Unexpected{std::move(fault)});
    }

    /// Its time has begun anew, and ends then.
    virtual void has_until(TimePoint by) noexcept { static_cast<void>(by); }

    /// It is not waiting for anything but an answer any more.
    virtual void stop_waiting() noexcept {}

    void send_to(Node& node, bool once = false) {
        asking = once;
        link_ = &services_->link_to(node, replicas_, order_->own_link());
        link_->add(*this, order_->rank, order_->token());
    }

    /// Destroys this.
    void tell(Expected<Reply, Fault>&& reply) {
        services_->timers().clear(*this);
        const TimePoint first_sent = sent();
        end(order_)->answered(std::move(reply), {}, first_sent);
    }

    Topology& topology() const noexcept { return services_->topology(); }
    RouteServices& services() const noexcept { return *services_; }
    const Order& order() const noexcept { return *order_; }
    const Link* link() const noexcept { return link_; }

private:
    /// As `OrderTime::begin_anew`.
    bool begin_anew(TimePoint now) noexcept {
        OrderTime& time = order_->time;
        if (!time.begin_anew(now, link_->node().command_timeout())) return false;
        has_until(time.answer_by);
        services_->timers().set(*this, time.answer_by);
        return true;
    }

    /// Nobody waits for the answer any more. Whether it may be carried out.
    bool leave() noexcept {
        services_->timers().clear(*this);
        stop_waiting();
        if (link_ == nullptr) return false;
        // An order that is unclear has to be told late, also where it was about to be sent on.
        if (!is_queued() && command.unclear()) link_->add(*this, order_->rank, order_->token());
        return link_->abandon(*this);
    }

    RouteServices* services_;
    std::shared_ptr<Order> order_;
    Replicas replicas_ = Replicas::none();
    Link* link_ = nullptr;
};

/// The same in a Cluster, whose servers may send it on.
class ClusterRoute final : public SingleRoute, private MapWaiter {
public:
    using SingleRoute::SingleRoute;

private:
    using Redirecting = ClusterRedirection;

    struct Pause final : EngineTimer {
        explicit Pause(ClusterRoute& its) : route(&its) {}
        void expired(TimePoint now) noexcept override {
            route->act(route->machine_.pause_over(now));
        }
        ClusterRoute* route;
    };

    void start(std::string_view key) override {
        const bool known = topology().known_master_of(key) != nullptr;
        act(known ? machine_.begin() : machine_.begin_in_doubt(Clock::now()));
    }

    void failed(Fault fault) override {
        const auto to = redirection_of(fault);
        if (to && !to->once) topology().failed(link()->node(), fault, Limit{TimePoint::min()});
        act(machine_.failed(std::move(fault), Clock::now()));
    }

    void has_until(TimePoint by) noexcept override { machine_.has_until(by); }

    void map_settled() noexcept override {
        waits_for_map_ = false;
        const bool elsewhere = link() == nullptr || &master() != &link()->node();
        act(machine_.map_settled(elsewhere, Clock::now()));
    }

    void stop_waiting() noexcept override {
        services().timers().clear(pause_);
        if (std::exchange(waits_for_map_, false)) services().forget(*this);
    }

    void act(Redirecting::Action action) {
        visit([this](auto& what) { perform(what); }, action);
    }

    void perform(Redirecting::SendToMaster&) { send_to(master()); }
    void perform(Redirecting::SendTo& send) {
        send_to(topology().node_of(send.to, link()->node()), send.to.once);
    }
    void perform(Redirecting::RefreshMap&) {
        waits_for_map_ = true;
        services().await_map(*this);
    }
    void perform(Redirecting::Pause& pause) { services().timers().set(pause_, pause.until); }
    void perform(Redirecting::GiveUp& end) {
        if (end.map_in_doubt) topology().suspect_map(end.fault.error);
        tell(Unexpected{std::move(end.fault)});
    }

    Node& master() const { return topology().master_of(order().key()); }

    Redirecting machine_{order().time.answer_by};
    Pause pause_{*this};
    bool waits_for_map_ = false;
};

}  // namespace redlatch::inline v0::detail
