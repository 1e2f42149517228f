#pragma once

#include <redlatch/core/dial_turns.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/dialer.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/socket.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// Has a server dialled by the threads that `DialTurns` says. Thread-safe.
class DialGate {
public:
    /// A new connection; or the fault of another thread's try that began and ended meanwhile. Blocks until the limit.
    Expected<Connection, Fault> open(Dialer& dialer, const Limit& limit) {
        std::unique_lock lock{mutex_};
        const DialTurns::Turn first = turns_.wanted(Clock::now());
        DialTurns::Turn turn = first;
        while (!turn.dials) {
            if (limit.cancelled()) return Unexpected{cancelled_fault()};
            if (limit.over()) return Unexpected{*turns_.last_fault()};
            wait(lock, turn.until, limit);
            const auto& fault = turns_.last_fault();
            if (fault && turns_.has_failed_since(first)) return Unexpected{*fault};
            turn = turns_.wanted(Clock::now());
        }
        lock.unlock();
        End end{this, turn};
        auto connection = dialer.open(limit);
        end.is_known = connection || !(limit.over() || limit.cancelled());
        if (!connection) end.fault = connection.error();
        return connection;
    }

private:
    /// Of a turn, whatever ends it: others may be waiting.
    struct End {
        DialGate* gate;
        DialTurns::Turn turn;
        bool is_known = false;
        std::optional<Fault> fault{};

        ~End() {
            {
                const std::lock_guard lock{gate->mutex_};
                if (!is_known) {
                    gate->turns_.given_up(Clock::now());
                } else if (fault) {
                    gate->turns_.failed(turn, *std::move(fault), Clock::now());
                } else {
                    gate->turns_.connected();
                }
            }
            gate->ended_.notify_all();
        }
    };

    void wait(std::unique_lock<std::mutex>& lock, TimePoint until, const Limit& limit) {
        const auto slice =
            limit.stop.stop_possible() ? stop_check_interval : std::chrono::milliseconds{1000};
        const Clock::duration left = saturating_sub(std::min(until, limit.at), Clock::now());
        ended_.wait_for(lock, std::min<Clock::duration>(left, slice));
    }

    std::mutex mutex_;
    std::condition_variable ended_;
    DialTurns turns_;
};

}  // namespace redlatch::inline v0::detail
