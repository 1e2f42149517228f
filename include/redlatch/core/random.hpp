#pragma once

#include <redlatch/compilation.hpp>

#include <cstdint>

namespace redlatch::inline v0::detail {

/// SplitMix64 (Steele, Lea, Flood 2014): spreads waiters in time. Never used for secrets or tokens.
class Random {
public:
    explicit constexpr Random(std::uint64_t seed) noexcept : state_(seed) {}

    constexpr std::uint64_t next() noexcept {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }

    /// A number in `[low, high)`, or `low` where that is empty. The bias of `%` is below 2^-20 for
    /// any span of time that a back-off knows.
    constexpr std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
        if (high <= low) return low;
        const auto span = static_cast<std::uint64_t>(high - low);
        return low + static_cast<std::int64_t>(next() % span);
    }

private:
    std::uint64_t state_;
};

}  // namespace redlatch::inline v0::detail
