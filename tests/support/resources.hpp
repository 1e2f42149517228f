#pragma once

#include <cstddef>
#include <filesystem>

// What a process has, for tests of what stays behind.

namespace redlatch::test {

inline std::size_t entries_of(const char* folder) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator{folder}) ++count;
    return count;
}

/// How many descriptors this process has open (and one for looking).
inline std::size_t open_descriptors() {
    return entries_of("/proc/self/fd");
}

inline std::size_t running_threads() {
    return entries_of("/proc/self/task");
}

}  // namespace redlatch::test
