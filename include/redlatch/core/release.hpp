#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/types.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// The answer to a release that has freed the lock, and has not got past the dead who wait in front:
/// it is to be sent again.
inline constexpr std::int64_t more_to_serve = 2;

/// Decides what a release's answers mean. An earlier try without an answer may have freed the
/// lock, so a later "not yours" proves nothing on its own; while validity was running nobody else
/// could have taken the lock, so there it can only have been our own earlier try.
class ReleaseCore {
public:
    /// `valid`: whether the hold's validity is running as the first try is sent.
    explicit ReleaseCore(bool valid) : valid_at_start_(valid) {}

    /// The server's answer: whether the lock was ours, and is free now. `valid`: whether the hold's
    /// validity was still running when the answer came.
    Result<Release> answered(bool was_ours, bool valid) const {
        if (was_ours) return Release::released;
        if (!maybe_executed_) return Release::expired;
        if (valid) return Release::released;
        return Unexpected{unclear()};
    }

    /// An earlier try may have been carried out.
    void unclear_try() { maybe_executed_ = true; }

    /// A try failed; an outcome where another one is of no use. A hold that was over before is not
    /// worth a second try.
    std::optional<Result<Release>> failed(const Fault& fault, bool valid, bool time_left) {
        maybe_executed_ = maybe_executed_ || fault.maybe_executed;
        last_fault_ = following(fault.error, last_fault_);
        if (!valid_at_start_) return Result<Release>{Release::expired};
        if (fault.transient && valid && time_left) return std::nullopt;
        if (maybe_executed_) return Result<Release>{Unexpected{unclear()}};
        return Result<Release>{Unexpected{*last_fault_}};
    }

private:
    Error unclear() const {
        Error error{Errc::unclear, {}, {}, {}, {}};
        if (last_fault_) error.causes.push_back(*last_fault_);
        return error;
    }

    bool valid_at_start_;
    bool maybe_executed_ = false;
    std::optional<Error> last_fault_;
};

}  // namespace redlatch::inline v0::detail
