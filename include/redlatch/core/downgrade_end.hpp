#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/result.hpp>
#include <redlatch/types.hpp>

#include <cstdint>
#include <utility>

namespace redlatch::inline v0::detail {

/// The end of a downgrade. The hold is a reader's from now on, whether the server's answer comes or not.
/// Until its next renewal or release the server may have it as a writer's.
struct DowngradeEnd {
    Result<void> outcome{};
    bool removed = false;  ///< the server does not have it any more: declare it lost

    /// The lock table has no such hold any more.
    static DowngradeEnd not_begun(HoldState state) {
        const bool lost = state == HoldState::lost;
        return {Unexpected{make_error(lost ? Errc::lost : Errc::not_held)}};
    }
    static DowngradeEnd answered(std::int64_t value) {
        if (value == 1) return {};
        return {Unexpected{make_error(Errc::lost, "somebody removed it")}, true};
    }
    static DowngradeEnd failed(Error why) { return {Unexpected{std::move(why)}}; }
};

}  // namespace redlatch::inline v0::detail
