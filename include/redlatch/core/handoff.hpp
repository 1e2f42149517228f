#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/types.hpp>

#include <algorithm>
#include <chrono>

namespace redlatch::inline v0::detail {

/// How long after a lock got its lease it may pass from thread to thread without a command: the next
/// holder starts with so much less.
inline constexpr std::chrono::milliseconds longest_unrefreshed{50};

/// How long the lock may pass on without asking whether other processes have begun to wait. It costs
/// 200 commands a second at most, and one that comes along is noticed as soon.
inline constexpr std::chrono::milliseconds longest_without_news{5};

/// Whether the lock may pass on at `now` without a command. `refreshed` is when the last command went
/// out that gave it its lease, `news` when the last one did that told of waiters; renewals and nested
/// holds tell nothing of them.
inline bool may_pass_silently(TimePoint refreshed, TimePoint news, TimePoint now,
                              Lease lease) noexcept {
    const auto longest =
        std::min<Clock::duration>(longest_unrefreshed, Clock::duration{lease.duration()} / 3);
    return saturating_sub(now, refreshed) < longest &&
           saturating_sub(now, news) < longest_without_news;
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
    /// A command that went out at `sent` says whether others wait.
    void others_wait(bool they_do, TimePoint sent) noexcept {
        if (!they_do) while_others_wait_ = 0;
        others_wait_ = they_do;
        news_ = sent;
    }

    /// The server gave the lock to this process, and says so.
    void begin(bool they_wait, TimePoint sent) noexcept {
        *this = {};
        others_wait(they_wait, sent);
    }

    /// When the last command went out that told of waiters.
    TimePoint news() const noexcept { return news_; }

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
    TimePoint news_ = TimePoint::min();
};

}  // namespace redlatch::inline v0::detail
