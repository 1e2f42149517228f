#pragma once

#include <redlatch/compilation.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace redlatch::inline v0::detail {

/// A hash of the end of an owner token, where it has a number of its own. Its highest bits tell tokens apart: the last
/// digit lies in the highest bits of what is multiplied, and a bit of a product depends on lower ones only.
inline std::uint64_t token_hash(std::string_view token) noexcept {
    if (token.empty()) return 0;
    std::array<std::uint64_t, 2> end{};
    const std::size_t size = std::min(token.size(), sizeof end);
    std::memcpy(end.data(), token.data() + (token.size() - size), size);
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15U;
    return (end[0] ^ end[1] * odd) * odd;
}

}  // namespace redlatch::inline v0::detail
