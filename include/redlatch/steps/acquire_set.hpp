#pragma once

#include <redlatch/core/set_acquisition.hpp>
#include <redlatch/steps/acquire.hpp>
#include <redlatch/steps/any_stop.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/extend.hpp>
#include <redlatch/steps/lost.hpp>
#include <redlatch/steps/releasing.hpp>

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What is the same for a thread and for an operation that take the locks of a set: all that waits for nothing.
class SetSteps {
public:
    SetSteps(const SetSteps&) = delete;
    SetSteps& operator=(const SetSteps&) = delete;

protected:
    using Next = std::optional<SetAcquisition::Action>;  // nothing where it waits, and at the end

    SetSteps(Session& session, const std::vector<LockSpec>& specs, Wait wait,
             std::optional<Lease> lease)
        : session_(&session), specs_(&specs), wait_(wait), lease_(lease), machine_(new_machine()) {
        refs_.reserve(specs.size());  // what was taken is in it, come what may
    }
    ~SetSteps() = default;

    /// The wait begins only now.
    void restart_clock() { machine_ = new_machine(); }

    Lease lease_of(const LockSpec& spec) const { return lease_.value_or(spec.options.lease); }

    /// One was taken, or not. `stop`: the caller's.
    SetAcquisition::Action ended(Result<HoldRef> ref, const std::stop_token& stop) {
        const TimePoint now = Clock::now();
        if (!ref) {
            return machine_.refused(std::move(ref).error(), all_held(now), is_stopped(stop), now);
        }
        refs_.push_back(*std::move(ref));
        return machine_.taken(all_held(now), oldest(), now);
    }

    SetAcquisition::Action refreshed(const std::stop_token& stop) {
        const TimePoint now = Clock::now();
        return machine_.refreshed(all_held(now), is_stopped(stop), now);
    }

    /// The caller's, or the loss of one that was taken. Those are renewed from now on.
    std::stop_token stop_of_wait(const std::stop_token& stop) {
        if (!any_stop_) {
            any_stop_.emplace();
            any_stop_->add(stop);
        }
        for (; watched_ < refs_.size(); ++watched_) {
            const HoldRef& ref = refs_[watched_];
            any_stop_->add(lost_token(*session_, ref.hold));
            if (reserve_renewal(ref)) session_->renewal().arm(ref.hold, ref.hold->refreshed_at());
        }
        return any_stop_->token();
    }

    Next carry_out(const SetAcquisition::Done&) {
        end_watch();
        return std::nullopt;
    }

    /// From now on somebody has them.
    void deliver_all() {
        for (const HoldRef& ref : refs_) {
            ref.hold->delivered();
            if (!ref.hold->terms().traits.watched) continue;
            session_->renewal().arm(ref.hold, ref.hold->refreshed_at());
        }
    }

    bool is_stopped(const std::stop_token& stop) const {
        return stop.stop_requested() || session_->is_closed();
    }

    void end_watch() {
        for (const HoldRef& ref : std::exchange(enlisted_, {})) {
            session_->renewal().dismiss_one(*ref.hold, ref.id);
        }
        watched_ = 0;
        any_stop_.reset();
    }

private:
    SetAcquisition new_machine() const {
        return SetAcquisition{{.members = specs_->size(),
                               .wait = wait_,
                               .lease = lease_of(specs_->front()),
                               .command_timeout = session_->command_timeout()},
                              Clock::now()};
    }

    /// For the time of the wait. Not for a hold that one nests in: its lease is an end that somebody relies on.
    bool reserve_renewal(const HoldRef& ref) {
        if (ref.hold->terms().traits.watched || specs_->front().traits.watched) return true;
        if (!session_->locks().is_outermost(*ref.hold, ref.id)) return false;
        enlisted_.push_back(ref);
        ref.hold->renewed_by_watchdog = true;
        // Without a thread to be had it is not renewed, and its validity ends.
        return session_->renewal().enlist(*ref.hold).has_value();
    }

    bool all_held(TimePoint now) const {
        return std::ranges::all_of(refs_, [now](const auto& ref) { return ref.hold->valid(now); });
    }

    TimePoint oldest() const {
        TimePoint first = TimePoint::max();
        for (const HoldRef& ref : refs_) first = std::min(first, ref.hold->refreshed_at());
        return first;
    }

protected:
    Session* session_;
    const std::vector<LockSpec>* specs_;

private:
    const Wait wait_;
    const std::optional<Lease> lease_;
    std::optional<AnyStop> any_stop_{};
    std::size_t watched_ = 0;          // of those that were taken, for whose loss the wait ends
    std::vector<HoldRef> enlisted_{};  // that nobody else wants to be renewed

protected:
    SetAcquisition machine_;
    std::vector<HoldRef> refs_{};  // that were taken
};

/// Takes the locks of a set on the calling thread: carries out what the machine says.
class AcquiringSet : private SetSteps {
public:
    /// `through`: as for `Acquiring`.
    AcquiringSet(Session& session, const std::vector<LockSpec>& specs,
                 const AcquireOptions& options, const void* through)
        : SetSteps(session, specs, options.wait, options.lease),
          options_(&options),
          through_(through) {}
    AcquiringSet(const AcquiringSet&) = delete;
    AcquiringSet& operator=(const AcquiringSet&) = delete;

    /// Gives back what was taken where an exception ends the acquisition. Without memory for that, nothing renews it.
    ~AcquiringSet() {
        try {
            give_back(TimePoint::min());
        } catch (const std::bad_alloc&) {
            for (const HoldRef& ref : refs_) session_->renewal().dismiss_one(*ref.hold, ref.id);
        }
    }

    Result<std::vector<HoldRef>> run() {
        SetAcquisition::Action action = machine_.begin(Clock::now());
        while (const auto next =
                   visit([this](auto& wanted) { return this->carry_out(wanted); }, action)) {
            action = *next;
        }
        if (auto* failed = get_if<SetAcquisition::Failed>(&action)) {
            return Unexpected{std::move(failed->error)};
        }
        deliver_all();
        return std::move(refs_);
    }

private:
    using SetSteps::carry_out;

    Next carry_out(const SetAcquisition::Take& take) {
        const LockSpec& spec = (*specs_)[take.member];
        AcquireOptions options = *options_;
        options.wait = take.wait;
        if (take.member > 0) options.stop = stop_of_wait(options_->stop);
        return ended(acquire(spec, options, take.answer_by), options_->stop);
    }

    Result<HoldRef> acquire(const LockSpec& spec, const AcquireOptions& options,
                            TimePoint answer_by) {
        auto lease = check_lease(spec, lease_of(spec));
        if (!lease) return Unexpected{std::move(lease).error()};
        return Acquiring{*session_, spec, *lease, options, through_, answer_by}.run();
    }

    Next carry_out(const SetAcquisition::Refresh& refresh) {
        const Limit limit =
            Limit{refresh.answer_by, options_->stop}.within(session_->command_timeout());
        for (const HoldRef& ref : refs_) {
            if (ref.hold->refreshed_at() >= refresh.since) continue;
            // Where the server does not answer, the rest of the validity counts.
            static_cast<void>(extend_hold(*session_, ref.hold, ref.hold->terms().lease, limit));
        }
        return refreshed(options_->stop);
    }

    /// In the reverse order. All together take no longer than one of them may.
    Next carry_out(const SetAcquisition::GiveBack& back) {
        give_back(
            std::min(back.answer_by, saturating_add(Clock::now(), session_->command_timeout())));
        return machine_.given_back(Clock::now());
    }

    void give_back(TimePoint answer_by) {
        end_watch();
        for (; !refs_.empty(); refs_.pop_back()) {
            const auto& [hold, id, process] = refs_.back();
            Releasing releasing{*session_, answer_by};
            const auto ending = session_->locks().end_acquisition(*hold, id);
            if (Clock::now() < answer_by && !is_stopped(options_->stop)) {
                releasing.run(ending, ReleaseMode::confirmed);
            } else {
                releasing.give_back(ending);
            }
        }
    }

    static Next carry_out(const SetAcquisition::Failed&) { return std::nullopt; }

    const AcquireOptions* options_;
    const void* through_;
};

}  // namespace redlatch::inline v0::detail
