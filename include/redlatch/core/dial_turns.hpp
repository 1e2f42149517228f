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
    /// What a thread that wants a connection has to do.
    struct Turn {
        bool dials;             ///< dial now, and say how that ended
        TimePoint until;        ///< else ask again then, and when another one's turn has ended
        std::uint64_t dialled;  ///< how many have dialled so far
    };

    Turn wanted(TimePoint now) {
        if (last_fault_ && now < next_at_) {
            return {.dials = false, .until = next_at_, .dialled = dialled_};
        }
        next_at_ = saturating_add(now, patience);
        return {.dials = true, .until = now, .dialled = ++dialled_};
    }

    /// The server was reached.
    void connected() noexcept { last_fault_.reset(); }

    /// It was not.
    void failed(const Turn& turn, Fault fault, TimePoint now) {
        last_fault_ = std::move(fault);
        next_at_ = saturating_add(now, pause);
        last_failed_ = std::max(last_failed_, turn.dialled);
    }

    /// The thread's own time was over, or it was stopped: that says nothing of the server.
    void given_up(TimePoint now) noexcept { next_at_ = now; }

    /// Whether one that began after `first` was wanted has failed: that counts as the same thread's own. Who comes while
    /// another one dials has a time of its own.
    bool has_failed_since(const Turn& first) const noexcept { return last_failed_ > first.dialled; }

    /// Why the last one did; nothing while the server can be reached.
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
