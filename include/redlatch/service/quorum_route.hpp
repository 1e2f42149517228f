#pragma once

#include <redlatch/core/quorum_call.hpp>
#include <redlatch/service/order_route.hpp>
#include <redlatch/topology/quorum_reply.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// The way of an order to several independent masters, a majority of which decides: one `QuorumCall`
/// over a link to each.
class QuorumRoute final : public Order::Route, public EngineTimer {
public:
    QuorumRoute(RouteServices& services, std::shared_ptr<Order> order)
        : services_(&services), order_(std::move(order)), shape_(order_->call(false).shape()) {}

    void begin() override {
        const auto masters = services_->topology().masters_of(order_->key());
        machine_.emplace(masters.size(), services_->topology().rules_for(shape_),
                         order_->time.answer_by);
        for (std::size_t i = 0; i < masters.size(); ++i) {
            Link& link = services_->link_to(*masters[i], Replicas::none(), order_->own_link());
            Leg& leg = legs_.emplace_back(*this, i, link);
            leg.link->add(leg, order_->rank, order_->token());
            if (!leg.link->is_connected()) machine_->not_connected(i, leg.link->status());
        }
        wait(Clock::now());
    }

    bool abandon() noexcept override {
        services_->timers().clear(*this);
        if (leave() != 0) return true;
        end(order_);
        return false;
    }

    void expired(TimePoint now) noexcept override {
        const auto behind_others = std::find_if(legs_.begin(), legs_.end(), [now](const Leg& leg) {
            return leg.is_open && leg.link->is_behind_others(leg, now);
        });
        const bool is_over = now >= order_->time.answer_by;
        if (is_over && behind_others != legs_.end()) begin_anew(*behind_others, now);
        machine_->pass_time(now);
        settle(now);
    }

private:
    /// The order at one master.
    struct Leg final : LinkCommand {
        Leg(QuorumRoute& its, std::size_t master, Link& to)
            : route(&its), index(master), link(&to) {}

        Call call(bool again) const override { return route->order_->call(again); }
        TimePoint answer_by() const noexcept override { return until; }

        /// Where most of the order's time has gone by before it is written here, that begins anew.
        bool admit(const Connection& connection, TimePoint now) override {
            if (!route->machine_->admit(index, connection.started_by(), now)) {
                is_open = false;
                route->services_->timers().set(*route, now);
                return false;
            }
            const bool is_new = sent() == TimePoint::min();
            const auto left = saturating_sub(route->order_->time.answer_by, now);
            if (is_new && left < link->node().command_timeout() / 2) route->begin_anew(*this, now);
            until = route->machine_->send(index, now);
            return true;
        }

        void ended(Expected<Reply, Fault>&& answer, CommandStep::Next) noexcept override {
            is_open = false;
            if (is_abandoned()) return route->take_late(*this, answer);
            route->take(*this, std::move(answer));
        }

        QuorumRoute* route;
        std::size_t index;
        Link* link;
        TimePoint until = TimePoint::max();
        std::optional<Reply> reply{};
        bool is_open = true;  // the link has it
    };

    void begin_anew(const Leg& leg, TimePoint now) noexcept {
        OrderTime& time = order_->time;
        if (!time.begin_anew(now, leg.link->node().command_timeout())) return;
        machine_->has_until(time.answer_by);
    }

    void take(Leg& leg, Expected<Reply, Fault>&& answer) {
        if (answer) {
            machine_->answered(leg.index, master_answer(*answer, shape_));
            leg.reply.emplace(*std::move(answer));
        } else {
            machine_->failed(leg.index, std::move(answer).error());
        }
        settle(Clock::now());
    }

    /// Only a timer passes the time: by now, answers of other masters may have come that are not read yet.
    void settle(TimePoint now) {
        if (machine_->is_over(now)) {
            conclude();
        } else {
            wait(now);
        }
    }

    void wait(TimePoint now) { services_->timers().set(*this, machine_->next_due(now)); }

    /// May destroy this.
    void conclude() {
        services_->timers().clear(*this);
        const Verdict verdict = machine_->end();
        Expected<Reply, Fault> decision = decide(verdict);
        const MasterSets masters = machine_->sets();
        const TimePoint first_sent = sent();
        const std::shared_ptr<Order> order = leave() == 0 ? end(order_) : order_;
        order->answered(std::move(decision), masters, first_sent);
    }

    Expected<Reply, Fault> decide(Verdict verdict) {
        if (verdict == Verdict::yes || verdict == Verdict::no) {
            Reply decision = *std::move(legs_[machine_->deciding_master()].reply);
            decision.repeated = machine_->is_repeated();
            return decision;
        }
        for (const Leg& leg : legs_) {
            Fault* const fault = machine_->fault(leg.index);
            if (fault != nullptr && fault->error.node.empty()) {
                fault->error.node = leg.link->node().name();
            }
        }
        Fault fault = machine_->no_quorum();
        fault.maybe_executed = machine_->maybe_executed();
        return Unexpected{std::move(fault)};
    }

    /// When the first of the masters was sent it.
    TimePoint sent() const noexcept {
        TimePoint first = TimePoint::max();
        for (const Leg& leg : legs_) {
            if (leg.sent() != TimePoint::min()) first = std::min(first, leg.sent());
        }
        return first == TimePoint::max() ? TimePoint::min() : first;
    }

    /// Nobody waits for the answers to come any more. How many there may be.
    std::size_t leave() noexcept {
        std::size_t late = 0;
        for (Leg& leg : legs_) {
            leg.is_open = leg.is_open && leg.link->abandon(leg);
            if (leg.is_open) ++late;
        }
        return late;
    }

    void take_late(const Leg& leg, const Expected<Reply, Fault>& answer) {
        const TimePoint leg_sent = leg.sent();
        const bool last = std::none_of(legs_.begin(), legs_.end(),
                                       [](const Leg& other) { return other.is_open; });
        const std::shared_ptr<Order> order = last ? end(order_) : order_;
        order->answered_late(answer, leg_sent);
    }

    RouteServices* services_;
    std::shared_ptr<Order> order_;
    const ReplyShape shape_;
    std::optional<QuorumCall> machine_;
    std::deque<Leg> legs_;
};

}  // namespace redlatch::inline v0::detail
