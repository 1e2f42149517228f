#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Decides which threads of a client dial a server: event in, action out. As long as it can be reached, all that want
/// to. Else one after the other, and the rest wait for what it finds. So a server that comes back meets one connection
/// of each client, and not one of each thread.
class DialTurns {
public:
    /// When a thread may dial: `now`, or later. Then it asks again, and sooner where a try has ended.
    TimePoint may_dial_at(TimePoint now) const noexcept {
        return last_fault_ ? std::max(now, next_at_) : now;
    }

    /// A thread dials. Which one of all tries that is.
    std::uint64_t begin(TimePoint now) {
        next_at_ = saturating_add(now, patience);
        return ++dialled_;
    }

    /// How many tries have begun.
    std::uint64_t dialled() const noexcept { return dialled_; }

    /// The server was reached.
    void connected() noexcept { last_fault_.reset(); }

    /// It was not, by that try.
    void failed(std::uint64_t number, Fault fault, TimePoint now) {
        last_fault_ = std::move(fault);
        next_at_ = saturating_add(now, pause);
        last_failed_ = std::max(last_failed_, number);
    }

    /// The thread's own time was over, or it was stopped: that says nothing of the server.
    void given_up(TimePoint now) noexcept { next_at_ = saturating_add(now, pause); }

    /// Whether a try has failed that began when so many had. Who waited then takes its fault. Who came while another one
    /// dialled has a time of its own.
    bool has_failed_since(std::uint64_t dialled) const noexcept {
        return last_fault_ && last_failed_ > dialled;
    }

    /// Why the last try failed; nothing while the server can be reached.
    const std::optional<Fault>& last_fault() const noexcept { return last_fault_; }

private:
    static constexpr std::chrono::milliseconds pause{25};
    /// One that takes longer may be with a frozen master, and Sentinels may know another one meanwhile.
    static constexpr std::chrono::milliseconds patience{100};

    std::optional<Fault> last_fault_;
    TimePoint next_at_ = TimePoint::min();
    std::uint64_t dialled_ = 0;
    std::uint64_t last_failed_ = 0;
};

}  // namespace redlatch::inline v0::detail
