#pragma once

#include <redlatch/core/backoff.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/validity.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace redlatch::inline v0::detail {

/// How far past its deadline a waiting call may go: the time for the answer to its last try.
inline constexpr std::chrono::milliseconds last_answer_slack{50};

/// What one acquisition wants.
struct AcquirePlan {
    Wait wait;
    Lease lease;
    Drift drift;
    Backoff backoff;
    std::chrono::milliseconds command_timeout;
};

/// What to do next.
struct SendTry {
    TimePoint answer_by;
};
struct Pause {
    TimePoint until;
};
struct Granted {
    TimePoint valid_until;
};
struct GiveUp {
    Error error;
};
using AcquireAction = std::variant<SendTry, Pause, Granted, GiveUp>;

/// Decides how an acquisition goes on: event in, action out. Knows no server and reads no clock.
class AcquireCore {
public:
    AcquireCore(const AcquirePlan& plan, TimePoint now, std::uint64_t seed)
        : plan_(plan),
          deadline_(saturating_add(now, std::max(plan.wait.duration(), Clock::duration::zero()))),
          pauses_(plan.backoff, seed) {}

    TimePoint deadline() const noexcept { return deadline_; }
    unsigned tries() const noexcept { return tries_; }

    /// The acquisition may talk to the server from now on.
    AcquireAction begin(TimePoint now) { return send_try(now); }

    AcquireAction pause_over(TimePoint now) { return send_try(now); }

    /// The server answered that somebody else holds the lock, for `ttl` at most where it said so.
    AcquireAction held_by_other(TimePoint now, std::optional<std::chrono::milliseconds> ttl) {
        if (is_over(now)) return GiveUp{out_of_time()};
        return pause(now, ttl);
    }

    /// The server answered that the lock is ours; that try went out after `sent`. A lock whose
    /// validity ended on the way is none: the caller has to release it.
    AcquireAction taken(TimePoint sent, TimePoint now) {
        const TimePoint end = valid_until(sent, plan_.lease, plan_.drift);
        if (now < end) return Granted{end};
        return fault(
            now,
            Fault{
                .error = {Errc::unavailable, {}, {}, "the answer took longer than the lease", {}}});
    }

    AcquireAction fault(TimePoint now, Fault fault) {
        last_fault_ = std::move(fault.error);
        if (!fault.transient || is_over(now)) return GiveUp{*last_fault_};
        return pause(now, std::nullopt);
    }

    AcquireAction cancelled(std::string why) {
        return GiveUp{with_cause({Errc::cancelled, {}, {}, std::move(why), {}})};
    }

    /// The wait ended before the acquisition's turn to talk to the server came.
    Error out_of_time() const { return with_cause({Errc::timed_out, {}, {}, {}, {}}); }

private:
    AcquireAction send_try(TimePoint now) {
        ++tries_;
        last_try_ = plan_.wait.is_none() || now >= deadline_;
        const TimePoint patient = saturating_add(now, plan_.command_timeout);
        if (plan_.wait.is_none()) return SendTry{patient};
        const TimePoint strict = saturating_add(std::max(deadline_, now), last_answer_slack);
        return SendTry{std::min(patient, strict)};
    }

    AcquireAction pause(TimePoint now, std::optional<std::chrono::milliseconds> ttl) {
        return Pause{std::min(saturating_add(now, pauses_.next(ttl)), deadline_)};
    }

    bool is_over(TimePoint now) const noexcept { return last_try_ || now >= deadline_; }

    /// Contention is what ended the wait, yet a fault on the way there is worth telling.
    Error with_cause(Error error) const {
        if (last_fault_) error.causes.push_back(*last_fault_);
        return error;
    }

    AcquirePlan plan_;
    TimePoint deadline_;
    Pauses pauses_;
    unsigned tries_ = 0;
    bool last_try_ = false;
    std::optional<Error> last_fault_;
};

}  // namespace redlatch::inline v0::detail
