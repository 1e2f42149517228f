#pragma once

#include <redlatch/compilation.hpp>

#include <cstdint>

namespace redlatch::inline v0::detail {

/// How much of a lock with claims an acquisition takes.
struct ClaimTerms {
    static constexpr std::int64_t reader = 1;
    static constexpr std::int64_t writer = 1'000'000'000;

    std::int64_t weight = 0;  ///< 0 for a lock without claims
    std::int64_t limit = 0;   ///< how much there is of all, where nobody has set it
};

}  // namespace redlatch::inline v0::detail
