#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/types.hpp>

#include <algorithm>
#include <chrono>

namespace redlatch::inline v0::detail {

/// How long after the server's last word a lock may pass from thread to thread without asking it.
/// The next holder starts with so much less than its lease, and so late may this process learn that
/// others have begun to wait. A tenth of what would still be safe: it costs 200 commands a second
/// at most, and a process that comes along waits no longer for being noticed than for its turn.
inline constexpr std::chrono::milliseconds longest_silent_handoff{5};

/// Whether the lock may pass on at `now` without a command, last refreshed by one sent at `refreshed`.
inline bool may_pass_silently(TimePoint refreshed, TimePoint now, Lease lease) noexcept {
    const auto longest =
        std::min<Clock::duration>(longest_silent_handoff, Clock::duration{lease.duration()} / 3);
    return saturating_sub(now, refreshed) < longest;
}

/// How often a lock may pass on inside a process in a row.
struct HandoffLimit {
    unsigned in_row;
    /// Other processes poll, so that the server knows nothing of them: the limit always holds, and
    /// not only while others wait in the queue.
    bool others_poll;
};

/// Keeps a process from passing a lock on among its own threads while others wait.
class Handoffs {
public:
    /// The server says whether others wait.
    void others_wait(bool they_do) noexcept {
        if (!they_do) while_others_wait_ = 0;
        others_wait_ = they_do;
    }

    /// The server gave the lock to this process.
    void begin(bool they_wait) noexcept {
        *this = {};
        others_wait_ = they_wait;
    }

    bool allowed(const HandoffLimit& limit) const noexcept {
        if (limit.others_poll) return in_row_ < limit.in_row;
        return !others_wait_ || while_others_wait_ < limit.in_row;
    }

    void count() noexcept {
        ++in_row_;
        while_others_wait_ += others_wait_ ? 1U : 0U;
    }

private:
    unsigned in_row_ = 0;
    unsigned while_others_wait_ = 0;
    bool others_wait_ = false;
};

}  // namespace redlatch::inline v0::detail
