#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace redlatch::bench {

/// In shared memory: proves, or disproves, that a lock excludes. Everybody passes through it with
/// the lock in hand. Two inside at once are seen by a flag, and by a counter that is raised by a
/// plain read and write and falls behind the sections as soon as two of them mix.
class Exclusion {
public:
    void enter() noexcept {
        if (inside_.fetch_add(1) != 0) overlaps_.fetch_add(1);
        seen_ = counter_.load(std::memory_order_relaxed);
    }

    void leave() noexcept {
        counter_.store(seen_ + 1, std::memory_order_relaxed);
        inside_.fetch_sub(1);
    }

    /// What is wrong after so many sections; nothing if all is well.
    std::string fault(std::uint64_t sections) const {
        if (overlaps_ != 0) return std::to_string(overlaps_) + " sections overlapped";
        if (inside_ != 0) return "somebody is still inside";
        if (counter_ != sections) {
            return "the counter is " + std::to_string(counter_) + " after " +
                   std::to_string(sections) + " sections";
        }
        return {};
    }

private:
    std::atomic<int> inside_{0};
    std::atomic<std::uint64_t> overlaps_{0};
    std::atomic<std::uint64_t> counter_{0};
    std::uint64_t seen_ = 0;  ///< whoever is inside read this
};

}  // namespace redlatch::bench
