#pragma once

#include <redlatch/async/operation.hpp>
#include <redlatch/service/shared_client.hpp>
#include <redlatch/steps/hold_ref.hpp>
#include <redlatch/steps/release_steps.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Ends an acquisition without a thread that waits, as the release machine decides. In this process it has ended when
/// this is made.
class ReleaseOperation final : public AsyncCallFor<Release>,
                               private ReleaseSteps,
                               private Operation {
public:
    ReleaseOperation(std::shared_ptr<SharedClient> client, const HoldRef& ref)
        : ReleaseSteps(client->session()),
          Operation(client->session()),
          client_(std::move(client)),
          ending_(session_->locks().end_acquisition(*ref.hold, ref.id)) {}

    Result<Release> take() noexcept override { return std::move(outcome_); }

private:
    using Next = std::optional<Action>;  // nothing where it has to wait, and at the end

    void begin() noexcept override {
        complete_on_default(session_->default_executors());
        if (ending_.hold == nullptr) return finish();
        // The server hears nothing of that.
        using Kind = LockTable::Ending::Kind;
        const bool is_told_nothing = ending_.kind == Kind::handed || ending_.kind == Kind::left;
        if (is_told_nothing) return happened(started);
        if (!session_->engine().start()) return not_started();
        happens(started);
    }
    void cancel() noexcept override {}
    std::shared_ptr<const void> keep() const noexcept override { return shared_from_this(); }

    void not_started() noexcept override {
        has_engine_ = false;
        happened(started);
    }
    void happened(unsigned) noexcept override {
        drive(ReleaseSteps::begin(ending_, ReleaseMode::confirmed));
    }
    void time_is_over() noexcept override { drive(machine_.pause_over()); }

    void drive(Next action) {
        while (action) {
            action =
                visit([this](const auto& wanted) -> Next { return carry_out(wanted); }, *action);
        }
    }

    using ReleaseSteps::carry_out;

    Next carry_out(const Machine::SendCount& wanted) {
        return ask(
            CommandRank::extension, wanted.answer_by, hold_,
            [wanted](const Hold& hold) { return count_call(hold, wanted); },
            [this](const auto& reply, auto told, TimePoint) {
                return count_answered(reply, told);
            });
    }

    Next carry_out(const Machine::SendMove& wanted) {
        make_token_to_move_to();
        return ask(
            CommandRank::release, wanted.answer_by, hold_,
            [to = to_](const Hold& hold) { return move_to_call(hold, *to); },
            [this](const auto& reply, auto told, TimePoint sent) {
                return move_answered(reply, told, sent);
            });
    }

    Next carry_out(const Machine::SendRelease& wanted) {
        return ask(
            CommandRank::release, wanted.answer_by, of(wanted.token),
            [](const Hold& hold) { return release_call(hold); },
            [this](const auto& reply, auto told, TimePoint) {
                return release_answered(reply, told);
            });
    }

    /// Nothing is only sent here.
    Next carry_out(const Machine::PostRelease&) { return machine_.posted(false); }

    Next carry_out(const Machine::RetryAt& retry) {
        set_timer(retry.time);
        return std::nullopt;
    }

    Next carry_out(Machine::Done) {
        outcome_ = tell_outcome().value_or(Release::not_held);
        finish();
        return std::nullopt;
    }

    template <class Make, class Answered>
    Next ask(CommandRank rank, TimePoint answer_by, const std::shared_ptr<Hold>& hold, Make make,
             Answered answered) {
        if (!has_engine_) {
            const Fault fault{.error = no_engine(*session_, hold_->key()), .transient = false};
            return answered(Expected<Reply, Fault>{Unexpected{fault}}, 0U, TimePoint{});
        }
        // A blocking call may have asked for the lock, over another connection.
        may_overtake_ = may_overtake_ ||
                        (hold_->open_tries.at_masters != nullptr && hold_->unanswered().acquire);
        send(
            rank, answer_by, hold, [make](const Hold& its, bool) { return make(its); },
            [this, answered](const Expected<Reply, Fault>& reply, const MasterSets& masters,
                             TimePoint sent) { drive(answered(reply, masters.heard_of(), sent)); },
            WhetherAnsweredLate{on_silence()});
        return std::nullopt;
    }

    const std::shared_ptr<SharedClient> client_;
    const LockTable::Ending ending_;
    bool has_engine_ = true;
    Result<Release> outcome_ = Release::not_held;
};

/// Ends an acquisition; nobody waits for that.
inline void post_release(const std::shared_ptr<SharedClient>& client, const HoldRef& ref) {
    const auto operation = make_recycled<ReleaseOperation>(client, ref);
    operation->start();
    operation->abandon();
}

}  // namespace redlatch::inline v0::detail
