#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/random.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace redlatch::inline v0::detail {

/// The server tells a waiter in its queue when it has the lock. A waiter also asks now and then, in case
/// the message is lost or a holder dies. Those in front ask more often: they may be the first by now
/// without having heard of it.
inline constexpr std::int64_t places_in_front = 8;
inline constexpr std::chrono::seconds longest_recheck_in_front{2};
inline constexpr std::chrono::seconds longest_recheck{10};

/// How long the server counts a waiter as alive who was not heard of again.
inline constexpr std::chrono::seconds longest_presence_ttl = 3 * longest_recheck;

/// The pause before the next question. `ttl`, where known, is when the lock ends if its holder is
/// dead; `place` is how many wait in front. Random, so that waiters do not all ask at the same time; at a
/// holder's end they come one after the other.
inline std::chrono::nanoseconds recheck_pause(std::optional<std::chrono::milliseconds> ttl,
                                              std::int64_t place, Random& random) noexcept {
    using namespace std::chrono_literals;
    const std::chrono::nanoseconds cap =
        place < places_in_front ? longest_recheck_in_front : longest_recheck;
    const std::chrono::nanoseconds pause{random.between((cap / 2).count(), cap.count())};
    if (!ttl || *ttl < 0ms) return pause;
    const auto end = std::min(saturating_cast<std::chrono::nanoseconds>(*ttl), cap);
    const auto turn = 100ms * std::min<std::int64_t>(place, 100);
    const std::chrono::nanoseconds jitter{
        random.between(0, std::chrono::nanoseconds{10ms}.count())};
    return std::min<std::chrono::nanoseconds>(pause, end + 1ms + turn + jitter);
}

}  // namespace redlatch::inline v0::detail
