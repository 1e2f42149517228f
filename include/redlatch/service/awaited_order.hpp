#pragma once

#include <redlatch/net/limit.hpp>
#include <redlatch/net/order.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/recycled_memory.hpp>
#include <redlatch/service/engine.hpp>
#include <redlatch/service/parker.hpp>
#include <redlatch/topology/topology.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// What lies on the stack of a thread that waits for an order.
struct OrderWait {
    const Call* call;
    const Call* again;  ///< after a sending that may have been carried out
    QuorumProgress* progress;
    std::optional<Expected<Reply, Fault>> reply{};
    Parker parker{};
};

/// A command of a thread that sleeps until the engine has its answer, or has given it up. Until then it borrows from
/// that thread.
class AwaitedOrder final : public Order, private EngineTask {
public:
    /// Blocks until then; nothing where the engine does not run any more. On any thread but the engine's.
    static std::optional<Expected<Reply, Fault>> run(Engine& engine, const Call& call,
                                                     const Call& again, const Limit& limit,
                                                     QuorumProgress& progress) {
        OrderWait wait{&call, &again, &progress};
        const auto order = make_recycled<AwaitedOrder>(engine, wait, limit.at);
        if (!order->happens(started)) return std::nullopt;
        bool may_stop = limit.stop.stop_possible();
        while (!wait.parker.sleep(may_stop ? Clock::now() + look_for_stop : TimePoint::max())) {
            if (!may_stop || !limit.cancelled()) continue;
            may_stop = false;
            order->happens(stopped);
        }
        return std::move(wait.reply);
    }

    AwaitedOrder(Engine& engine, OrderWait& wait, TimePoint deadline)
        : engine_(&engine), wait_(&wait), on_late_reply_(wait.progress->on_late_reply) {
        rank = wait.progress->rank;
        time = deadline;
    }

    Call call(bool again) const override { return again ? *wait_->again : *wait_->call; }
    std::string_view key() const override { return wait_->call->key(); }
    Replicas acknowledged_by() const override { return wait_->call->replicas(); }
    std::string_view token() const noexcept override { return wait_->progress->speaks_for; }

    void answered(Expected<Reply, Fault>&& reply, const MasterSets& masters,
                  TimePoint) noexcept override {
        OrderWait& wait = *std::exchange(wait_, nullptr);
        wait.reply.emplace(std::move(reply));
        wait.progress->masters = masters;
        wait.parker.unpark()();  // from now on it is not there any more
    }

    void answered_late(const Expected<Reply, Fault>& reply, TimePoint) noexcept override {
        if (on_late_reply_) on_late_reply_(reply.has_value());
    }

private:
    enum Event : unsigned { started = 1, stopped = 2 };

    static constexpr std::chrono::milliseconds look_for_stop{20};

    /// The thread: false where the engine does not hear of it.
    bool happens(Event event) noexcept {
        if (events_.fetch_or(event) != 0) return true;
        kept_ = shared_from_this();
        if (engine_->post(*this)) return true;
        kept_.reset();
        events_ = 0;
        return false;
    }

    void run() noexcept override {
        const auto kept = std::move(kept_);
        const unsigned events = events_.exchange(0);
        if ((events & started) != 0) engine_->submit(kept);
        if ((events & stopped) == 0 || wait_ == nullptr) return;
        Fault fault = cancelled_fault();
        fault.maybe_executed = engine_->abandon(*this);
        answered(Unexpected{std::move(fault)}, {}, {});
    }

    Engine* engine_;
    OrderWait* wait_;  // null once it has the answer
    const OnLateReply on_late_reply_;
    std::atomic<unsigned> events_{0};
    std::shared_ptr<Order> kept_{};
};

}  // namespace redlatch::inline v0::detail
