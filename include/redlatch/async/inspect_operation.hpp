#pragma once

#include <redlatch/async/operation.hpp>
#include <redlatch/service/shared_client.hpp>
#include <redlatch/steps/ask.hpp>
#include <redlatch/steps/inspect.hpp>

#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

/// Asks the server who holds a lock, or permits, without a thread that waits.
template <class Info>
class InspectOperation final : public AsyncCallFor<Info>, private Operation {
public:
    using Read = Info (*)(const ReplyView& answer, const LockSpec& spec);

    InspectOperation(const LockSpec& spec, Read read)
        : Operation(spec.client->session()),
          session_(&spec.client->session()),
          spec_(spec),
          read_(read) {}

    Result<Info> take() noexcept override { return std::move(outcome_); }

private:
    void begin() noexcept override {
        this->complete_on_default(session_->default_executors());
        if (!session_->engine().start()) return not_started();
        happens(started);
    }
    void cancel() noexcept override {}
    std::shared_ptr<const void> keep() const noexcept override { return this->shared_from_this(); }

    void not_started() noexcept override {
        complete(Unexpected{no_engine(*session_, spec_.key())});
    }
    void time_is_over() noexcept override {}

    void happened(unsigned) noexcept override {
        send(
            CommandRank::usual, saturating_add(Clock::now(), session_->command_timeout()), nullptr,
            [spec = spec_](bool) { return inspect_call(*spec.keys, spec.traits); },
            [this](Expected<Reply, Fault> reply, const MasterSets&, TimePoint) {
                auto said = told(*session_, spec_, std::move(reply));
                if (!said) return complete(Unexpected{std::move(said).error()});
                complete(read_(said->view(), spec_));
            },
            {}, spec_.traits.scripts);
    }

    void complete(Result<Info> outcome) noexcept {
        outcome_ = std::move(outcome);
        this->finish();
    }

    Session* session_;
    const LockSpec spec_;
    const Read read_;
    Result<Info> outcome_ = Info{};
};

}  // namespace redlatch::inline v0::detail
