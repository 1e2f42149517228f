#pragma once

#include "plan.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>

namespace redlatch::test::fault {

/// All that is left to chance, from one seed.
class Dice {
public:
    explicit Dice(std::uint64_t seed) : random_{seed} {}

    [[nodiscard]] long long between(long long least, long long most) {
        return std::uniform_int_distribution<long long>{least, most}(random_);
    }
    [[nodiscard]] std::size_t below(std::size_t limit) {
        return static_cast<std::size_t>(between(0, static_cast<long long>(limit) - 1));
    }
    [[nodiscard]] bool percent(int chance) { return between(0, 99) < chance; }
    [[nodiscard]] std::chrono::milliseconds in(const Range& range) {
        return std::chrono::milliseconds{between(range.least.count(), range.most.count())};
    }

private:
    std::mt19937_64 random_;
};

}  // namespace redlatch::test::fault
