#pragma once

#include <redlatch/async/acquire_operation.hpp>
#include <redlatch/async/extend_operation.hpp>
#include <redlatch/async/in_place.hpp>
#include <redlatch/async/joint_call.hpp>
#include <redlatch/held.hpp>
#include <redlatch/steps/acquire_set.hpp>
#include <redlatch/steps/any_stop.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace redlatch::inline v0 {
class HeldSet;
}

namespace redlatch::inline v0::detail {

/// Takes one lock of a set, which delivers it with the others.
class MemberOperation final : public HeldOperation {
public:
    MemberOperation(const AsyncCall& set, const LockSpec& spec, Lease lease, std::stop_token stop)
        : HeldOperation(spec, lease, Wait::none(), std::move(stop)), set_(&set) {}

    using HeldOperation::wait_for;

    Result<HoldRef> take_ref() { return outcome(); }

    bool completes_nowhere() const noexcept override { return set_->completes_nowhere(); }

private:
    const AsyncCall* set_;
};

/// The locks that an operation is about, whatever becomes of the `LockSet` that it was made with.
struct OwnLockSpecs {
    const std::vector<LockSpec> locks;
};

/// Takes the locks of a set without a thread that waits: carries out what the machine says, one operation after the
/// other. A class that knows `HeldSet` says how they are given out.
class AcquireSetOperation : public AsyncCallFor<HeldSet>, protected OwnLockSpecs, private SetSteps {
public:
    AcquireSetOperation(const std::vector<LockSpec>& specs, const AsyncOptions& options,
                        std::stop_token stop)
        : OwnLockSpecs{specs},
          SetSteps(specs.front().client->session(), locks, options.wait, options.lease) {
        stop_.add(std::move(stop));
        first_ = member(0);
        complete_on_default(session_->default_executors());
    }

    ~AcquireSetOperation() override { drop(); }

protected:
    /// As of one lock: each may have ended before, and renewal begins only now.
    Result<std::vector<HoldRef>> deliver() {
        if (failed_) return Unexpected{*std::exchange(failed_, std::nullopt)};
        const TimePoint now = Clock::now();
        std::optional<Error> error;
        for (const HoldRef& ref : refs_) {
            if (ref.hold->valid(now)) continue;
            session_->declare_lost(ref.hold);
            if (!error) error = not_delivered(*session_, ref.hold->key());
        }
        if (error) {
            drop();
            return Unexpected{*std::move(error)};
        }
        deliver_all();
        return std::exchange(refs_, {});
    }

private:
    // Each may run on another thread than the one before, and none beside another: code that starts an
    // operation inside does nothing after that.

    void begin() noexcept override {
        restart_clock();
        drive(machine_.begin(Clock::now()));
    }
    void cancel() noexcept override { stop_.request_stop(); }
    void drop() noexcept override {
        for (const HoldRef& ref : std::exchange(refs_, {})) {
            if (ref.is_ours()) post_release(locks.front().client, ref);
        }
    }

    void drive(Next action) {
        while (action) {
            action = visit([this](auto& wanted) -> Next { return carry_out(wanted); }, *action);
        }
    }

    /// Takes that one, once its wait is known and it is started. Its lease is one that its lock may have.
    std::shared_ptr<MemberOperation> member(std::size_t number) {
        const LockSpec& spec = locks[number];
        auto made = std::make_shared<MemberOperation>(
            *this, spec, check_lease(spec, lease_of(spec)).value(),
            number > 0 ? stop_of_wait(stop_.token()) : stop_.token());
        await_inside(*made, [this](AsyncCall& call) {
            drive(ended(static_cast<MemberOperation&>(call).take_ref(), stop_.token()));
        });
        return made;
    }

    using SetSteps::carry_out;

    Next carry_out(const SetAcquisition::Take& take) {
        const auto taking = first_ != nullptr ? std::move(first_) : member(take.member);
        taking->wait_for(take.wait, take.answer_by);
        taking->start();
        return std::nullopt;
    }

    Next carry_out(const SetAcquisition::Refresh& refresh) {
        JointCall<void>::Parts parts;
        for (const HoldRef& ref : refs_) {
            if (ref.hold->refreshed_at() >= refresh.since) continue;
            parts.push_back(std::make_shared<ExtendOperation>(
                locks.front().client, ref.hold, ref.hold->terms().lease,
                Limit{refresh.answer_by, stop_.token()}));
        }
        if (parts.empty()) return refreshed(stop_.token());
        const auto all = std::make_shared<JointCall<void>>(*session_, std::move(parts));
        await_inside(*all, [this](AsyncCall&) { drive(refreshed(stop_.token())); });
        all->start();
        return std::nullopt;
    }

    /// Their releases need nobody who waits: a try of this process that comes behind them waits for them.
    Next carry_out(const SetAcquisition::GiveBack&) {
        end_watch();
        for (; !refs_.empty(); refs_.pop_back()) post_release(locks.front().client, refs_.back());
        return machine_.given_back(Clock::now());
    }

    /// From now on nothing is renewed until it is delivered.
    Next carry_out(const SetAcquisition::Done& done) {
        SetSteps::carry_out(done);
        for (const auto& [hold, id, process] : refs_) {
            if (hold->terms().traits.watched) session_->renewal().disarm(*hold);
        }
        finish();
        return std::nullopt;
    }

    Next carry_out(SetAcquisition::Failed& failed) {
        failed_ = std::move(failed.error);
        finish();
        return std::nullopt;
    }

    AnyStop stop_{};                            // the caller's, or nobody waits any more
    std::shared_ptr<MemberOperation> first_{};  // until it has begun: made with this
    std::optional<Error> failed_{};
};

}  // namespace redlatch::inline v0::detail
