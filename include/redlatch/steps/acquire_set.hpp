#pragma once

#include <redlatch/core/set_acquisition.hpp>
#include <redlatch/steps/acquire.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/extend.hpp>
#include <redlatch/steps/lost.hpp>
#include <redlatch/steps/releasing.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <variant>
#include <vector>

namespace redlatch::inline v0::detail {

/// Asks a source to stop: as a callback on another token.
struct RequestStop {
    std::stop_source source;
    void operator()() const noexcept { static_cast<void>(std::stop_source{source}.request_stop()); }
};

/// Stops when one of several tokens does.
class AnyStop {
public:
    void add(std::stop_token token) {
        if (!token.stop_possible()) return;
        callbacks_.push_back(std::make_unique<Callback>(std::move(token), RequestStop{source_}));
    }
    std::stop_token token() const { return source_.get_token(); }

private:
    using Callback = std::stop_callback<RequestStop>;

    std::stop_source source_;
    std::vector<std::unique_ptr<Callback>> callbacks_;
};

/// Takes the locks of a set on the calling thread: carries out what the machine says.
class AcquiringSet {
public:
    /// `through`: as for `Acquiring`.
    AcquiringSet(Session& session, const std::vector<LockSpec>& specs,
                 const AcquireOptions& options, const void* through)
        : session_(&session),
          specs_(&specs),
          options_(&options),
          through_(through),
          machine_(specs.size(), options.wait, lease_of(specs.front()), started_) {}

    Result<std::vector<HoldRef>> run() {
        SetAcquisition::Action action = machine_.begin(Clock::now());
        while (const auto next =
                   std::visit([this](auto& wanted) { return this->carry_out(wanted); }, action)) {
            action = *next;
        }
        if (auto* failed = std::get_if<SetAcquisition::Failed>(&action)) {
            return Unexpected{std::move(failed->error)};
        }
        return std::move(refs_);
    }

private:
    using Next = std::optional<SetAcquisition::Action>;

    Lease lease_of(const LockSpec& spec) const {
        return options_->lease.value_or(spec.options.lease);
    }

    Next carry_out(const SetAcquisition::Take& take) {
        const LockSpec& spec = (*specs_)[take.member];
        AcquireOptions options = *options_;
        options.wait = take.wait;
        if (take.member > 0) options.stop = stop_of_wait();
        auto ref = acquire(spec, options);
        const TimePoint now = Clock::now();
        if (!ref) {
            const bool by_loss = ref.error().code == Errc::cancelled && !all_held(now) &&
                                 !options_->stop.stop_requested();
            return machine_.refused(std::move(ref).error(), by_loss, now);
        }
        refs_.push_back(*std::move(ref));
        return machine_.taken(all_held(now), oldest(), now);
    }

    Result<HoldRef> acquire(const LockSpec& spec, const AcquireOptions& options) {
        auto lease = check_lease(spec, lease_of(spec));
        if (!lease) return Unexpected{std::move(lease).error()};
        return Acquiring{*session_, spec, *lease, options, through_}.run();
    }

    /// The caller's, or the loss of one that was taken. It is renewed from now on.
    std::stop_token stop_of_wait() {
        if (!any_stop_) {
            any_stop_.emplace();
            any_stop_->add(options_->stop);
        }
        for (; watched_ < refs_.size(); ++watched_) {
            const auto& hold = refs_[watched_].hold;
            any_stop_->add(lost_token(*session_, hold));
            if (hold->terms().traits.watched) continue;
            hold->renewed_by_watchdog = true;
            // Without a thread to be had it is not renewed, and its validity ends.
            if (session_->renewal().enlist(*hold)) {
                session_->renewal().arm(hold, hold->refreshed_at());
            }
        }
        return any_stop_->token();
    }

    void end_watch() {
        for (std::size_t i = 0; i < watched_; ++i) {
            const auto& hold = refs_[i].hold;
            if (!hold->terms().traits.watched) session_->renewal().dismiss_one(*hold);
        }
        watched_ = 0;
        any_stop_.reset();
    }

    Next carry_out(const SetAcquisition::Refresh& refresh) {
        const TimePoint patient = saturating_add(Clock::now(), session_->command_timeout());
        for (const HoldRef& ref : refs_) {
            if (ref.hold->refreshed_at() >= refresh.since) continue;
            // Where the server does not answer, what is left of the validity counts.
            static_cast<void>(extend_hold(*session_, ref.hold, ref.hold->terms().lease,
                                          std::min(patient, refresh.answer_by)));
        }
        const TimePoint now = Clock::now();
        return machine_.refreshed(all_held(now), now);
    }

    Next carry_out(const SetAcquisition::GiveBack&) {
        end_watch();
        for (; !refs_.empty(); refs_.pop_back()) {
            const auto& [hold, id, process] = refs_.back();
            // One that began here was never had by anybody; others of its nest go on.
            if (hold->taken_at() >= started_) hold->drop_min_hold();
            Releasing{*session_}.abandon(session_->locks().end_acquisition(*hold, id));
        }
        return machine_.given_back(Clock::now());
    }

    Next carry_out(const SetAcquisition::Done&) {
        end_watch();
        return std::nullopt;
    }
    static Next carry_out(const SetAcquisition::Failed&) { return std::nullopt; }

    bool all_held(TimePoint now) const {
        return std::ranges::all_of(refs_, [now](const auto& ref) { return ref.hold->valid(now); });
    }

    TimePoint oldest() const {
        TimePoint first = TimePoint::max();
        for (const HoldRef& ref : refs_) first = std::min(first, ref.hold->refreshed_at());
        return first;
    }

    Session* session_;
    const std::vector<LockSpec>* specs_;
    const AcquireOptions* options_;
    const void* through_;
    const TimePoint started_ = Clock::now();
    SetAcquisition machine_;
    std::vector<HoldRef> refs_;  // that were taken
    std::optional<AnyStop> any_stop_;
    std::size_t watched_ = 0;  // of those, for whose loss the wait ends
};

}  // namespace redlatch::inline v0::detail
