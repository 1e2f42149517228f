#pragma once

#include <redlatch/core/random.hpp>
#include <redlatch/options.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace redlatch::inline v0::detail {

/// The pause between two tries of a call that doesn't wait for a lock.
inline constexpr std::chrono::milliseconds retry_pause{20};

/// The pauses of one acquisition: decorrelated jitter (M. Brooker, "Exponential Backoff And
/// Jitter", 2015). Each is drawn from `[min, min(max, 3 × the last))`, so a waiter asks often at first and
/// more slowly later, and no two always ask at the same time.
class Pauses {
public:
    Pauses(Backoff limits, std::uint64_t seed) noexcept
        : min_(limits.min), max_(limits.max), last_(limits.min), random_(seed) {}

    /// The next pause. `ttl`, where known, is how long the server will keep the lock at most. A pause that would
    /// end later ends just after it instead, spread over one `min`, and over `widest_spread` at most: the waiters of a
    /// dead holder do not all come at once.
    std::chrono::nanoseconds next(std::optional<std::chrono::milliseconds> ttl) noexcept {
        last_ = draw(min_, std::min(last_ * 3, max_));
        if (!ttl || *ttl < std::chrono::milliseconds::zero()) return last_;
        const auto expiry = std::min(saturating_cast<std::chrono::nanoseconds>(*ttl), max_);
        const auto after_expiry = expiry + draw(one_ms, one_ms + std::min(min_, widest_spread));
        return std::min(last_, after_expiry);
    }

private:
    static constexpr std::chrono::nanoseconds one_ms = std::chrono::milliseconds{1};
    static constexpr std::chrono::nanoseconds widest_spread = std::chrono::milliseconds{100};

    std::chrono::nanoseconds draw(std::chrono::nanoseconds low,
                                  std::chrono::nanoseconds high) noexcept {
        return std::chrono::nanoseconds{random_.between(low.count(), high.count())};
    }

    std::chrono::nanoseconds min_;
    std::chrono::nanoseconds max_;
    std::chrono::nanoseconds last_;
    Random random_;
};

}  // namespace redlatch::inline v0::detail
