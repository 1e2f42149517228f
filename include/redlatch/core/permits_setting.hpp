#pragma once

#include <redlatch/core/one_of.hpp>
#include <redlatch/error.hpp>
#include <redlatch/result.hpp>

#include <cstdint>
#include <utility>

namespace redlatch::inline v0::detail {

/// Sets how many permits a semaphore has: event in, action out. The first command asks for the time at which
/// the setting is issued, so that a setting that comes late does not count more than one that was issued
/// after it.
class PermitsSetting {
public:
    /// Then `answered()` or `failed()`.
    struct Send {
        std::int64_t issued;  ///< 0 asks for the time
    };
    struct Done {
        Result<void> outcome;
    };
    using Action = OneOf<Send, Done>;

    static Action begin() { return Send{0}; }

    Action answered(std::int64_t value) {
        if (std::exchange(is_issued_, true)) return Done{};
        return Send{value};
    }

    static Action failed(Error error) { return Done{Unexpected{std::move(error)}}; }

private:
    bool is_issued_ = false;
};

}  // namespace redlatch::inline v0::detail
