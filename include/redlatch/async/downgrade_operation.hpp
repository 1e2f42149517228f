#pragma once

#include <redlatch/async/operation.hpp>
#include <redlatch/service/shared_client.hpp>
#include <redlatch/steps/downgrade.hpp>

#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

/// Makes a writer's hold a reader's without a thread that waits.
class DowngradeOperation final : public AsyncCallFor<void>, private Operation {
public:
    DowngradeOperation(std::shared_ptr<SharedClient> client, std::shared_ptr<Hold> hold)
        : Operation(client->session()),
          client_(std::move(client)),
          session_(&client_->session()),
          hold_(std::move(hold)) {}

    Result<void> take() noexcept override { return std::move(outcome_); }

private:
    void begin() noexcept override {
        complete_on_default(session_->default_executors());
        if (!session_->engine().start()) return not_started();
        happens(started);
    }
    void cancel() noexcept override {}
    std::shared_ptr<const void> keep() const noexcept override { return shared_from_this(); }

    void not_started() noexcept override {
        complete(Unexpected{no_engine(*session_, hold_->key())});
    }
    void time_is_over() noexcept override {}

    void happened(unsigned) noexcept override {
        if (auto begun = begin_downgrade(*session_, *hold_); !begun) {
            return complete(std::move(begun));
        }
        send(
            CommandRank::usual, saturating_add(Clock::now(), session_->command_timeout()), hold_,
            [](const Hold& hold, bool) { return downgrade_call(hold); },
            [this](Expected<Reply, Fault> reply, const MasterSets&, TimePoint) {
                complete(end_downgrade(*session_, hold_, std::move(reply)));
            });
    }

    void complete(Result<void> outcome) noexcept {
        outcome_ = std::move(outcome);
        finish();
    }

    const std::shared_ptr<SharedClient> client_;
    Session* session_;
    const std::shared_ptr<Hold> hold_;
    Result<void> outcome_{};
};

}  // namespace redlatch::inline v0::detail
