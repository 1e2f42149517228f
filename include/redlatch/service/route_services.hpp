#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/core/intrusive_list.hpp>
#include <redlatch/core/timer_wheel.hpp>
#include <redlatch/net/link.hpp>
#include <redlatch/net/node.hpp>
#include <redlatch/topology/topology.hpp>

namespace redlatch::inline v0::detail {

/// A deadline on the engine's thread.
class EngineTimer : public TimerWheel::Timer {
public:
    virtual void expired(TimePoint now) noexcept = 0;

protected:
    ~EngineTimer() = default;
};

/// Is told when the engine has asked which server is whose master.
class MapWaiter : public IntrusiveList<MapWaiter>::Hook {
public:
    virtual void map_settled() noexcept = 0;

protected:
    ~MapWaiter() = default;
};

/// What an order's way needs of its engine.
class RouteServices {
public:
    virtual Topology& topology() noexcept = 0;
    virtual TimerWheel& timers() noexcept = 0;
    /// The link whose commands so many replicas have to acknowledge. `own`: as of `Order::own_link`.
    virtual Link& link_to(Node& node, Replicas replicas, const void* own) = 0;

    /// Why an order has no answer whose time is over.
    virtual Fault no_answer() const = 0;

    /// Has the topology refreshed in the background.
    virtual void await_map(MapWaiter& waiter) = 0;
    virtual void forget(MapWaiter& waiter) noexcept = 0;

protected:
    ~RouteServices() = default;
};

}  // namespace redlatch::inline v0::detail
