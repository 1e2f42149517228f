#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Decides which threads of a client dial a server: event in, action out. As long as it can be reached, all
/// dial that want to. Else they dial one after the other, in the order in which they came, and the rest wait
/// for the outcome. So a server that comes back meets one connection of each client, and not one of each
/// thread. A thread with much time has its turn even where many with too little come and go.
class DialTurns {
public:
    /// When a thread may dial: `now`, or later. Then it asks again, and sooner where a try has begun or ended, or
    /// where it has become the first. `is_first`: of those who wait.
    TimePoint may_dial_at(TimePoint now, bool is_first) const noexcept {
        if (!last_fault_) return now;
        return is_first ? std::max(now, next_at_) : TimePoint::max();
    }

    /// A thread dials. Returns which one of all tries that is.
    std::uint64_t begin(TimePoint now) {
        next_at_ = saturating_add(now, patience);
        ++under_way_;
        return ++dialled_;
    }

    /// How many tries have begun.
    std::uint64_t dialled() const noexcept { return dialled_; }

    /// How many of them have not ended.
    std::size_t under_way() const noexcept { return under_way_; }

    /// The server was reached, by that try.
    void connected(std::uint64_t number) noexcept {
        --under_way_;
        last_connected_ = std::max(last_connected_, number);
        last_fault_.reset();
    }

    /// It was not. A later try may have reached it meanwhile.
    void failed(std::uint64_t number, Fault fault, TimePoint now) {
        given_up(number, now);
        if (number < last_connected_) return;
        last_fault_ = std::move(fault);
        last_failed_ = std::max(last_failed_, number);
    }

    /// The thread was stopped, or had too little time: that says nothing of the server.
    void given_up(std::uint64_t number, TimePoint now) noexcept {
        --under_way_;
        if (number == dialled_) next_at_ = saturating_add(now, pause);
    }

    /// Whether a try has failed that began behind so many. A thread that waited by then takes its fault. A
    /// thread that came while another one dialled has a time of its own.
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
    std::size_t under_way_ = 0;
    std::uint64_t dialled_ = 0;
    std::uint64_t last_failed_ = 0;
    std::uint64_t last_connected_ = 0;
};

}  // namespace redlatch::inline v0::detail
