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

    /// The server was reached, by that try.
    void connected(std::uint64_t number) noexcept {
        last_connected_ = std::max(last_connected_, number);
        last_fault_.reset();
    }

    /// It was not. A later try may have reached it meanwhile.
    void failed(std::uint64_t number, Fault fault, TimePoint now) {
        if (number < last_connected_) return;
        last_fault_ = std::move(fault);
        next_at_ = saturating_add(now, pause);
        last_failed_ = std::max(last_failed_, number);
    }

    /// The thread was stopped, or had too little time: that says nothing of the server.
    void given_up(TimePoint now) noexcept { next_at_ = saturating_add(now, pause); }

    /// Whether a try has failed that began behind so many. Who waited by then takes its fault. Who came while
    /// another one dialled has a time of its own.
    bool has_failed_since(std::uint64_t dialled) const noexcept {
        return last_fault_ && last_failed_ > dialled;
    }

    /// Why the last try failed; nothing while the server can be reached.
    const std::optional<Fault>& last_fault() const noexcept { return last_fault_; }

    /// What a server that is there needs at most. A try that takes longer may be with a frozen master, and
    /// Sentinels may know another one meanwhile.
    static constexpr std::chrono::milliseconds patience{100};

private:
    static constexpr std::chrono::milliseconds pause{25};

    std::optional<Fault> last_fault_;
    TimePoint next_at_ = TimePoint::min();
    std::uint64_t dialled_ = 0;
    std::uint64_t last_failed_ = 0;
    std::uint64_t last_connected_ = 0;
};

}  // namespace redlatch::inline v0::detail
