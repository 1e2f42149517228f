#pragma once

#include <redlatch/compilation.hpp>

#include <cstdint>

namespace redlatch::inline v0::detail {

/// The answer to a release that has freed the lock, where more wait than one run of the script serves: it is
/// to be sent again.
inline constexpr std::int64_t more_to_serve = 2;

/// The same of a lock that was not held any more.
inline constexpr std::int64_t more_to_serve_not_held = -1;

/// Whether the lock was held until then, by the answer to a release.
constexpr bool was_held(std::int64_t answer) noexcept {
    return answer > 0;
}

/// Whether the release is to be sent again.
constexpr bool has_more_to_serve(std::int64_t answer) noexcept {
    return answer == more_to_serve || answer == more_to_serve_not_held;
}

}  // namespace redlatch::inline v0::detail
