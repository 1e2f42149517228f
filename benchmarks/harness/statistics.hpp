#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace redlatch::bench {

using Seconds = std::chrono::duration<double>;

inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    if (values.empty()) return 0;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// The smallest value that at least the given part of all values does not exceed; 0 without any.
inline double quantile(std::vector<double> values, double part) {
    std::sort(values.begin(), values.end());
    if (values.empty()) return 0;
    const auto rank = static_cast<std::size_t>(part * static_cast<double>(values.size()));
    return values[std::min(rank, values.size() - 1)];
}

}  // namespace redlatch::bench
