#pragma once

#include <redlatch/async/async_call.hpp>
#include <redlatch/core/attempts.hpp>
#include <redlatch/net/order.hpp>
#include <redlatch/policy/lua.hpp>
#include <redlatch/recycled_memory.hpp>
#include <redlatch/service/engine.hpp>
#include <redlatch/service/session.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace redlatch::inline v0::detail {

/// The part of an operation that lives on the engine's thread. The calls there come one after the other.
class Operation : private EngineTask, private EngineTimer {
public:
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

protected:
    enum Event : unsigned { started = 1, woken = 2, stopped = 4 };

    struct NoLateAnswer {
        void operator()(const Hold&, const Expected<Reply, Fault>&, TimePoint) const noexcept {}
    };
    struct WhetherAnsweredLate {
        OnLateReply tell;
        void operator()(const Hold&, const Expected<Reply, Fault>& reply, TimePoint) const {
            if (tell) tell(reply.has_value());
        }
    };

    /// Allocates here what `listen_for(stop)` needs: an exception still reaches the caller.
    explicit Operation(Session& session, const std::stop_token& stop = {})
        : engine_(&session.engine()) {
        if (stop.stop_possible()) on_stop_ = std::make_unique<std::optional<StopCallback>>();
    }
    ~Operation() override = default;

    /// Keeps it alive while one of its members runs.
    virtual std::shared_ptr<const void> keep() const noexcept = 0;

    /// One or more events have happened.
    virtual void happened(unsigned events) noexcept = 0;

    /// The time that was set has come.
    virtual void time_is_over() noexcept = 0;

    /// The engine has ended before it heard of the start. Any thread.
    virtual void not_started() noexcept = 0;

    /// The engine has ended, and does nothing about what has happened. By then it has completed all that it had. Any
    /// thread.
    virtual void engine_has_ended() noexcept {}

    /// Any thread: it happened.
    void happens(Event event) noexcept {
        if (events_.fetch_or(event) != 0) return;
        kept_ = keep();
        if (engine_->post(*this)) return;
        const auto kept = std::move(kept_);
        if ((events_.exchange(0) & started) != 0) return not_started();
        engine_has_ended();
    }

    // On the engine's thread:

    /// Sends what `make(hold, again)` or `make(again)` returns, and calls `then(reply, masters, sent)` on the answer.
    /// `hold`: what the call borrows from; null for nothing. `late(hold, reply, sent)`: for the answer of a master that
    /// answers when the others have decided, or to an order that was given up. `scripts`: of which policy the call is,
    /// where there is no hold.
    template <class Make, class Then, class Late = NoLateAnswer>
    void send(CommandRank rank, OrderTime time, std::shared_ptr<const Hold> hold, Make make,
              Then then, Late late = {}, const LockScripts* scripts = nullptr) {
        if (hold != nullptr) scripts = &hold->scripts();
        auto order = make_recycled<OrderWith<Make, Then, Late>>(
            *this, std::move(hold), std::move(make), std::move(then), std::move(late));
        order->scripts = scripts;
        order->rank = rank;
        order->time = time;
        order_ = order.get();
        engine_->submit(std::move(order));
    }

    bool is_sending() const noexcept { return order_ != nullptr; }

    /// Waits no longer for the answer: goes on as with a fault. Of several masters, each may have been asked.
    void give_order_up(bool several_masters) noexcept {
        const std::shared_ptr<Order> order = order_->shared_from_this();
        if (several_masters) order_->hears_late = false;
        Fault fault = cancelled_fault();
        fault.maybe_executed = engine_->abandon(*order);
        const MasterSets masters{.asked = several_masters ? ~std::uint64_t{0} : 0};
        order->answered(Unexpected{std::move(fault)}, masters, {});
    }

    void set_timer(TimePoint at) noexcept {
        if (at == TimePoint::max()) return clear_timer();
        engine_->set_timer(*this, at);
    }
    void clear_timer() noexcept { engine_->clear_timer(*this); }

    /// From now on a request to stop is an event. Any thread.
    void listen_for(const std::stop_token& stop) noexcept {
        if (on_stop_ != nullptr) on_stop_->emplace(stop, Stop{this});
    }
    void listen_no_more() noexcept { on_stop_ = nullptr; }

private:
    struct Stop {
        Operation* operation;
        void operator()() const noexcept { operation->happens(stopped); }
    };
    using StopCallback = std::stop_callback<Stop>;

    class OperationOrder : public Order {
    public:
        OperationOrder(Operation& operation, std::shared_ptr<const Hold> hold)
            : operation_(&operation), hold_(std::move(hold)) {}

        std::string_view token() const noexcept final {
            return hold_ == nullptr ? std::string_view{} : hold_->token().bytes;
        }
        std::string_view key() const final {
            return hold_ == nullptr ? Order::key() : hold_->key();
        }
        Replicas acknowledged_by() const final {
            const bool none = hold_ != nullptr && hold_->terms().replicas == Replicas::none();
            return none ? Replicas::none() : Order::acknowledged_by();
        }
        void answered(Expected<Reply, Fault>&& reply, const MasterSets& masters,
                      TimePoint sent) noexcept final {
            const auto kept = operation_->keep();
            operation_->order_ = nullptr;
            then(std::move(reply), masters, sent);
        }
        const void* own_link() const noexcept final {
            return scripts == nullptr ? nullptr : lua::users_own(*scripts);
        }
        void answered_late(const Expected<Reply, Fault>& reply, TimePoint sent) noexcept final {
            if (hears_late && hold_ != nullptr) late(reply, sent);
        }

        bool hears_late = true;
        const LockScripts* scripts = nullptr;

    protected:
        const Hold& hold() const noexcept { return *hold_; }

    private:
        virtual void then(Expected<Reply, Fault>&& reply, const MasterSets& masters,
                          TimePoint sent) = 0;
        virtual void late(const Expected<Reply, Fault>& reply, TimePoint sent) = 0;

        Operation* operation_;
        std::shared_ptr<const Hold> hold_;
    };

    template <class Make, class Then, class Late>
    class OrderWith final : public OperationOrder {
    public:
        OrderWith(Operation& operation, std::shared_ptr<const Hold> hold, Make make, Then then,
                  Late late)
            : OperationOrder(operation, std::move(hold)),
              make_(std::move(make)),
              then_(std::move(then)),
              late_(std::move(late)) {}

        Call call(bool again) const override {
            if constexpr (std::is_invocable_v<const Make&, const Hold&, bool>) {
                return make_(hold(), again);
            } else {
                return make_(again);
            }
        }

    private:
        void then(Expected<Reply, Fault>&& reply, const MasterSets& masters,
                  TimePoint sent) override {
            then_(std::move(reply), masters, sent);
        }
        void late(const Expected<Reply, Fault>& reply, TimePoint sent) override {
            late_(hold(), reply, sent);
        }

        Make make_;
        Then then_;
        Late late_;
    };

    void run() noexcept final {
        const auto kept = std::move(kept_);
        happened(events_.exchange(0));
    }
    void expired(TimePoint) noexcept final {
        const auto kept = keep();
        time_is_over();
    }

    Engine* engine_;
    OperationOrder* order_ = nullptr;                         // that waits for its answer
    std::unique_ptr<std::optional<StopCallback>> on_stop_{};  // null where nobody can stop it
    std::atomic<unsigned> events_{0};
    std::shared_ptr<const void> kept_{};
};

/// Why a call is refused as it begins. It must not throw any more: without memory the words are left out.
inline Error refusal(Errc code, const std::string& key, const char* why) noexcept {
    try {
        return {code, key, {}, why, {}};
    } catch (const std::bad_alloc&) {
        return {code, {}, {}, {}, {}};
    }
}

/// Why the engine does not take an operation.
inline Error no_engine(const Session& session, const std::string& key) noexcept {
    if (session.is_closed()) return refusal(Errc::cancelled, key, cancelled_by_close);
    return refusal(Errc::unavailable, key, "the system has no thread or descriptor to give");
}

}  // namespace redlatch::inline v0::detail
