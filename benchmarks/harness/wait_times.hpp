#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace redlatch::bench {

/// How long one thread waited each time, in memory of a fixed size: 32 classes for each power of
/// two of nanoseconds, so that a quantile is right within 3 %. The longest is exact.
class WaitTimes {
public:
    void add(std::chrono::nanoseconds wait) noexcept {
        const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(wait.count(), 0));
        ++counts_[class_of(ns)];
        ++total_;
        longest_ = std::max(longest_, ns);
    }

    void add(const WaitTimes& other) noexcept {
        for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
        total_ += other.total_;
        longest_ = std::max(longest_, other.longest_);
    }

    double quantile_ms(double part) const noexcept {
        const auto rank = static_cast<std::uint64_t>(part * static_cast<double>(total_));
        std::uint64_t passed = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            passed += counts_[i];
            if (passed > rank) return ms(std::min(middle_of(i), longest_));
        }
        return longest_ms();
    }
    double longest_ms() const noexcept { return ms(longest_); }

private:
    static constexpr std::size_t fine_bits = 5;
    static constexpr std::uint64_t fine = 1U << fine_bits;

    static double ms(std::uint64_t ns) noexcept { return static_cast<double>(ns) * 1e-6; }

    // Below 32 ns each value is its own class; above, the first bit and the five after it are one.
    static std::size_t class_of(std::uint64_t ns) noexcept {
        if (ns < fine) return static_cast<std::size_t>(ns);
        const auto shift = static_cast<std::size_t>(std::bit_width(ns)) - 1 - fine_bits;
        return (shift << fine_bits) + static_cast<std::size_t>(ns >> shift);
    }
    static std::uint64_t middle_of(std::size_t index) noexcept {
        if (index < fine) return index;
        const auto shift = (index >> fine_bits) - 1;
        return ((fine + index % fine) << shift) + ((std::uint64_t{1} << shift) >> 1U);
    }

    std::array<std::uint32_t, (64 - fine_bits + 1) * fine> counts_{};
    std::uint64_t total_ = 0;
    std::uint64_t longest_ = 0;
};

}  // namespace redlatch::bench
