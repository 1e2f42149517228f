#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace redlatch::inline v0::detail {

/// How long after its sender has stopped waiting for it a command may still be carried out: for
/// clocks that are not quite where they were last seen.
inline constexpr std::chrono::milliseconds late_margin{50};

/// What a server says that its clock shows, if that can be: later than 1970, and earlier than 2255, where
/// neither the numbers of its scripts nor sums of times are exact any more.
constexpr std::optional<std::chrono::microseconds> server_time(std::int64_t microseconds) noexcept {
    constexpr std::int64_t end = std::int64_t{1} << 53U;
    if (microseconds <= 0 || microseconds >= end) return std::nullopt;
    return std::chrono::microseconds{microseconds};
}

/// Where a server's clock stands, seen from ours. Kept to what its answers allow, so that it follows
/// a step of that clock as well as a different rate; never ahead of it, but for what it has lost
/// since the last answer.
class ServerClock {
public:
    /// The server's clock has shown `time`, a `server_time`, between `sent` and `received`.
    void answered(TimePoint sent, std::chrono::microseconds time, TimePoint received) noexcept {
        const Clock::duration least = time - received.time_since_epoch();
        const Clock::duration most = time - sent.time_since_epoch();
        ahead_ = ahead_ ? std::clamp(*ahead_, least, most) : least;
    }

    /// The server's time, in microseconds, after which a command that is sent at `now` must change
    /// nothing, as nobody waits for its answer longer than `patience`; 0 if that is not known.
    std::int64_t server_deadline(TimePoint now, Clock::duration patience) const noexcept {
        if (!ahead_) return 0;
        constexpr Clock::duration longest = std::chrono::days{30};
        const Clock::duration end = now.time_since_epoch() + *ahead_ +
                                    std::clamp(patience, Clock::duration::zero(), longest) +
                                    late_margin;
        return std::chrono::ceil<std::chrono::microseconds>(end).count();
    }

private:
    std::optional<Clock::duration> ahead_;
};

/// The server's time, from the error of a script that found itself late.
inline std::optional<std::chrono::microseconds> late_reply_time(const Fault& fault) noexcept {
    constexpr std::string_view word = "LATE ";
    std::string_view text = fault.error.message;
    if (!text.starts_with(word)) return std::nullopt;
    text.remove_prefix(word.size());
    std::int64_t time = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time);
    return error == std::errc{} ? server_time(time) : std::nullopt;
}

}  // namespace redlatch::inline v0::detail
