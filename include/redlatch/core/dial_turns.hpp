#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Decides which threads of a client dial a server: event in, action out. As long as it can be reached, all that want
/// to. Else one at a time, with a pause between two tries; the others wait for what it finds. So a server that comes back
/// meets one connection of each client, and not one of each thread.
class DialTurns {
public:
    /// What a thread that wants a connection has to do.
    struct Turn {
        bool dials;       ///< dial now, and say how that ended
        bool is_alone;    ///< nobody else does meanwhile
        TimePoint until;  ///< else ask again by then, and when another one's turn has ended
    };

    Turn wanted(TimePoint now) {
        if (!last_fault_) return {.dials = true, .is_alone = false, .until = now};
        if (under_way_) return {.dials = false, .is_alone = false, .until = TimePoint::max()};
        if (now < retry_at_) return {.dials = false, .is_alone = false, .until = retry_at_};
        under_way_ = true;
        return {.dials = true, .is_alone = true, .until = now};
    }

    /// The server was reached.
    void connected(const Turn& turn) noexcept {
        ended(turn);
        last_fault_.reset();
    }

    /// It was not.
    void failed(const Turn& turn, Fault fault, TimePoint now) {
        ended(turn);
        last_fault_ = std::move(fault);
        retry_at_ = saturating_add(now, pause);
        ++failures_;
    }

    /// The thread's own time was over, or it was stopped: that says nothing of the server.
    void ended(const Turn& turn) noexcept {
        if (turn.is_alone) under_way_ = false;
    }

    /// How many tries have failed so far: one that failed since a thread asked first counts as that thread's.
    std::uint64_t failures() const noexcept { return failures_; }

    /// Why the last one did; nothing while the server can be reached.
    const std::optional<Fault>& last_fault() const noexcept { return last_fault_; }

private:
    static constexpr std::chrono::milliseconds pause{25};

    std::optional<Fault> last_fault_;
    TimePoint retry_at_ = TimePoint::min();
    std::uint64_t failures_ = 0;
    bool under_way_ = false;
};

}  // namespace redlatch::inline v0::detail
