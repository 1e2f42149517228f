#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/command_queue.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/master_sets.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/reply.hpp>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// For how long the answer to an order is waited for.
struct OrderTime {
    OrderTime(TimePoint by, TimePoint give_up = TimePoint::min()) noexcept
        : answer_by(by), give_up_at(give_up) {}

    /// Then its owner hears that there is no answer; it is abandoned.
    TimePoint answer_by;

    /// An order that waits behind others to be written may have longer: its own `command_timeout` from then
    /// on, but no longer than until this.
    TimePoint give_up_at;

    /// It begins once more: the time that an order has waited for its turn to be written was not the server's
    /// silence. False where it may have no more.
    bool begin_anew(TimePoint now, Clock::duration command_timeout) noexcept {
        const TimePoint by = std::min<TimePoint>(saturating_add(now, command_timeout), give_up_at);
        if (by <= answer_by) return false;
        answer_by = by;
        return true;
    }
};

/// A command that is to be carried out where its key is, without a thread that waits for the answer. All
/// members are used, and called, on the engine's thread. It is submitted once, and lives until its
/// last answer has come.
class Order : public std::enable_shared_from_this<Order> {
public:
    /// On its way to the servers, and what comes back.
    class Route {
    public:
        Route() = default;
        Route(const Route&) = delete;
        Route& operator=(const Route&) = delete;
        virtual ~Route() = default;

        virtual void begin() = 0;

        /// As `Engine::abandon`.
        virtual bool abandon() noexcept = 0;

    protected:
        /// The way is over: destroys this.
        static std::shared_ptr<Order> end(std::shared_ptr<Order>& its) noexcept {
            std::shared_ptr<Order> order = std::move(its);
            order->route_.reset();
            return order;
        }
    };

    Order() = default;
    Order(const Order&) = delete;
    Order& operator=(const Order&) = delete;
    virtual ~Order() = default;

    CommandRank rank = CommandRank::usual;

    OrderTime time{TimePoint::max()};

    /// What is sent. `again`: an earlier sending may have been carried out, so this one has to be right
    /// after that one, too. Borrows what the order owns.
    virtual Call call(bool again) const = 0;

    /// By which it finds its server.
    virtual std::string_view key() const { return call(false).key(); }

    /// How many replicas have to acknowledge it.
    virtual Replicas acknowledged_by() const { return call(false).replicas(); }

    /// Orders that say the same share a link. Null for the link that all others share.
    virtual const void* own_link() const noexcept { return nullptr; }

    /// For which token it speaks. A release takes out what is not written yet of its token: that fails with
    /// `Errc::cancelled`.
    virtual std::string_view token() const noexcept = 0;

    /// Once, unless it was abandoned before: the answer, or why there is none. `sent`: when it was
    /// written first; for ever in the past where it never was.
    virtual void answered(Expected<Reply, Fault>&& reply, const MasterSets& masters,
                          TimePoint sent) noexcept = 0;

    /// After it was abandoned, or its time was over, where it may be carried out all the same: its answer, or
    /// that none will ever come. Once for each of several masters.
    virtual void answered_late(const Expected<Reply, Fault>& reply, TimePoint sent) noexcept = 0;

private:
    friend class Engine;
    std::unique_ptr<Route> route_;
};

}  // namespace redlatch::inline v0::detail
