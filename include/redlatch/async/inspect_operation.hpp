#pragma once

#include <redlatch/async/operation.hpp>
#include <redlatch/service/shared_client.hpp>
#include <redlatch/steps/ask.hpp>
#include <redlatch/steps/inspect.hpp>

#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

/// Asks the server who holds a lock, without a thread that waits.
class InspectOperation final : public AsyncCallFor<LockInfo>, private Operation {
public:
    explicit InspectOperation(const LockSpec& spec)
        : Operation(spec.client->session()), session_(&spec.client->session()), spec_(spec) {}

    Result<LockInfo> take() noexcept override { return std::move(outcome_); }

private:
    void begin() noexcept override {
        complete_on_default(session_->completions(), session_->completion_threads());
        if (!session_->engine().start()) return not_started();
        happens(started);
    }
    void cancel() noexcept override {}
    std::shared_ptr<const void> keep() const noexcept override { return shared_from_this(); }

    void not_started() noexcept override {
        outcome_ = Unexpected{no_engine(*session_, spec_.key())};
        finish();
    }
    void time_is_over() noexcept override {}

    void happened(unsigned) noexcept override {
        send(
            CommandRank::usual, saturating_add(Clock::now(), session_->command_timeout()), nullptr,
            [spec = spec_](bool) { return inspect_call(*spec.keys, spec.traits); },
            [this](Expected<Reply, Fault> reply, const MasterSets&, TimePoint) {
                auto said = told(*session_, spec_, std::move(reply));
                if (said) {
                    outcome_ = lock_info(said->view());
                } else {
                    outcome_ = Unexpected{std::move(said).error()};
                }
                finish();
            },
            {}, spec_.traits.scripts);
    }

    Session* session_;
    const LockSpec spec_;
    Result<LockInfo> outcome_ = LockInfo{};
};

}  // namespace redlatch::inline v0::detail
