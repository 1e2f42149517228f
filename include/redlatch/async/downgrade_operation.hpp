#pragma once

#include <redlatch/async/command_operation.hpp>
#include <redlatch/service/shared_client.hpp>
#include <redlatch/steps/downgrade.hpp>

#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

/// Makes a writer's hold a reader's without a thread that waits.
class DowngradeOperation final : public CommandOperation<void> {
public:
    DowngradeOperation(std::shared_ptr<SharedClient> client, std::shared_ptr<Hold> hold)
        : CommandOperation(client->session(), hold->terms().keys),
          client_(std::move(client)),
          hold_(std::move(hold)) {}

private:
    void happened(unsigned) noexcept override {
        if (auto begun = begin_downgrade(*session_, *hold_); !begun) {
            return complete(std::move(begun));
        }
        send(
            CommandRank::usual, answer_by(), hold_,
            [](const Hold& hold, bool) { return downgrade_call(hold); },
            [this](Expected<Reply, Fault> reply, const MasterSets&, TimePoint) {
                complete(end_downgrade(*session_, hold_, std::move(reply)));
            });
    }

    const std::shared_ptr<SharedClient> client_;
    const std::shared_ptr<Hold> hold_;
};

}  // namespace redlatch::inline v0::detail
