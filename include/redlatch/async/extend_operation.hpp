#pragma once

#include <redlatch/async/operation.hpp>
#include <redlatch/service/shared_client.hpp>
#include <redlatch/steps/extend.hpp>

#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

namespace redlatch::inline v0::detail {

/// Sets a hold's lease anew without a thread that waits, as the extension machine decides.
class ExtendOperation final : public AsyncCallFor<void>, private ExtensionSteps, private Operation {
public:
    ExtendOperation(std::shared_ptr<SharedClient> client, std::shared_ptr<Hold> hold, Lease lease,
                    const Limit& limit = {})
        : ExtensionSteps(client->session(), std::move(hold), lease, limit.at),
          Operation(*session_, limit.stop),
          client_(std::move(client)),
          stop_(limit.stop) {}

    Result<void> take() noexcept override { return std::move(outcome_); }

private:
    using Next = std::optional<Action>;  // nothing where it has to wait, and at the end

    void begin() noexcept override {
        complete_on_default(session_->default_executors());
        if (!session_->engine().start()) return not_started();
        restart_clock();
        listen_for(stop_);
        happens(started);
    }
    void cancel() noexcept override {}
    std::shared_ptr<const void> keep() const noexcept override { return shared_from_this(); }

    void not_started() noexcept override {
        complete(Unexpected{no_engine(*session_, hold_->key())});
    }
    void happened(unsigned events) noexcept override {
        if ((events & stopped) != 0) is_stopped_ = true;
        if ((events & started) != 0) is_running_ = true;
        if (!is_running_) return;
        if (is_sending()) return give_order_up(session_->has_several_masters());
        clear_timer();
        drive(ExtensionSteps::begin());
    }
    void time_is_over() noexcept override { drive(ExtensionSteps::begin()); }

    void drive(Next action) {
        while (action) {
            action =
                visit([this](const auto& wanted) -> Next { return carry_out(wanted); }, *action);
        }
    }

    using ExtensionSteps::carry_out;

    Next carry_out(const Machine::SendExtend& wanted) {
        if (is_stopped_) return failed(cancelled_fault());
        send(
            CommandRank::extension, wanted.answer_by, hold_,
            [wanted](const Hold& hold, bool) {
                return extend_call(hold, wanted.lease, wanted.lock_alone);
            },
            [this](Expected<Reply, Fault> reply, const MasterSets&, TimePoint) {
                drive(answered(std::move(reply)));
            });
        return std::nullopt;
    }

    Next carry_out(const Machine::RetryAt& retry) {
        set_timer(retry.time);
        return std::nullopt;
    }

    Next carry_out(const Machine::Done& done) {
        complete(outcome(done));
        return std::nullopt;
    }

    void complete(Result<void> outcome) noexcept {
        outcome_ = std::move(outcome);
        is_running_ = false;
        listen_no_more();
        finish();
    }

    const std::shared_ptr<SharedClient> client_;
    const std::stop_token stop_;
    bool is_stopped_ = false;
    bool is_running_ = false;
    Result<void> outcome_{};
};

}  // namespace redlatch::inline v0::detail
