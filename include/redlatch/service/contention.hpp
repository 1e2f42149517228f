#pragma once

#include <redlatch/clock.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string_view>

namespace redlatch::inline v0::detail {

/// Remembers which locks others wanted a moment ago: there the cheapest command, which cannot wait,
/// would be one too many. Forgets by itself and takes no memory for a name; two names that share a
/// place are taken for one, at the price of a command that costs a little more. Thread-safe.
class Contention {
public:
    void note(std::string_view key, TimePoint now) noexcept {
        place_of(key).store(now.time_since_epoch().count(), std::memory_order_relaxed);
    }

    bool lately(std::string_view key, TimePoint now) const noexcept {
        const Clock::duration seen{place_of(key).load(std::memory_order_relaxed)};
        return seen != never && now.time_since_epoch() - seen < memory;
    }

private:
    static constexpr std::chrono::seconds memory{10};
    static constexpr Clock::duration never{0};

    std::atomic<Clock::rep>& place_of(std::string_view key) noexcept {
        return seen_[std::hash<std::string_view>{}(key) % seen_.size()];
    }
    const std::atomic<Clock::rep>& place_of(std::string_view key) const noexcept {
        return seen_[std::hash<std::string_view>{}(key) % seen_.size()];
    }

    std::array<std::atomic<Clock::rep>, 1024> seen_{};
};

}  // namespace redlatch::inline v0::detail
