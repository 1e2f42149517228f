#pragma once

#include <redlatch/core/dial_turns.hpp>
#include <redlatch/core/intrusive_list.hpp>
#include <redlatch/net/dialer.hpp>
#include <redlatch/net/limit.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// The connections to one server: as many as there are commands under way, up to a limit. The one
/// used last is used next, so that no more stay warm than are needed. `DialTurns` says who dials a server
/// that is away. Thread-safe; connecting happens outside its mutex.
class Pool {
public:
    /// A connection on loan. Gives it back at the end, or its place where it broke.
    class Loan {
    public:
        Loan(Pool& pool, Connection connection, bool reused)
            : pool_(&pool), connection_(std::move(connection)), reused_(reused) {}
        Loan(Loan&& other) noexcept
            : pool_(std::exchange(other.pool_, nullptr)),
              connection_(std::move(other.connection_)),
              reused_(other.reused_) {}
        Loan& operator=(Loan&&) = delete;
        ~Loan() {
            if (pool_ != nullptr) pool_->give_back(std::move(connection_));
        }

        Connection& operator*() noexcept { return connection_; }
        Connection* operator->() noexcept { return &connection_; }

        /// Whether it lay idle before, and so may have died unnoticed.
        bool reused() const noexcept { return reused_; }

    private:
        Pool* pool_;
        Connection connection_;
        bool reused_;
    };

    /// `busy_wait`: for answers to commands.
    Pool(std::unique_ptr<Dialer> dialer, std::size_t max_connections,
         std::chrono::microseconds busy_wait)
        : dialer_(std::move(dialer)), max_connections_(max_connections), busy_wait_(busy_wait) {}

    Dialer& dialer() noexcept { return *dialer_; }
    const Dialer& dialer() const noexcept { return *dialer_; }

    /// A connection, idle or new. Waits while all are in use.
    Expected<Loan, Fault> borrow(const Limit& limit) {
        for (;;) {
            auto loan = borrow_any(limit);
            if (!loan || !loan->reused() || (*loan)->is_in_step()) return loan;
            (*loan)->discard();
        }
    }

    /// A connection that was not there before. The caller has given its own loan back.
    Expected<Loan, Fault> borrow_new(const Limit& limit) {
        for (;;) {
            drop_idle();
            auto loan = borrow_any(limit);
            if (!loan || !loan->reused()) return loan;
            (*loan)->discard();  // somebody gave it back meanwhile, and it may be as dead
        }
    }

    /// An idle connection on which no answer is pending any more; nothing where there is none. Does not
    /// block.
    std::optional<Loan> borrow_idle() {
        std::vector<Loan> pending;  // given back at the end
        for (;;) {
            auto loan = borrow_any_idle();
            if (!loan) return std::nullopt;
            auto drained = (*loan)->drain_available();
            if (drained && *drained) {
                if ((*loan)->is_in_step()) return loan;
                (*loan)->discard();
            } else if (drained) {
                pending.push_back(*std::move(loan));
            }
        }
    }

    /// Whether there may be one connection more.
    bool has_room() {
        const std::lock_guard lock{mutex_};
        return idle_.size() + in_use_ < max_connections_;
    }

    /// Adds an idle one.
    void admit(Connection connection) {
        connection.busy_wait(busy_wait_);
        std::unique_lock lock{mutex_};
        idle_.reserve(idle_.size() + in_use_ + 1);
        idle_.push_back(std::move(connection));
        wake_one(std::move(lock));
    }

    /// Closes what is not in use.
    void drop_idle() {
        std::vector<Connection> dropped;  // closed outside the mutex
        const std::lock_guard lock{mutex_};
        drop_idle(dropped);
    }

    /// An idle connection on which an answer is pending since `since` or longer; nothing where there is
    /// none.
    std::optional<Loan> borrow_pending(TimePoint since) {
        const std::lock_guard lock{mutex_};
        const auto found = std::find_if(idle_.begin(), idle_.end(), [since](const Connection& c) {
            return c.has_pending_replies() && c.pending_since() <= since;
        });
        if (found == idle_.end()) return std::nullopt;
        return take(found);
    }

    /// An idle connection on which answers are pending, the oldest since after `since`. A command that is
    /// sent there is carried out behind those. `about`: one of them is about that; null for any.
    /// Nothing where there is none.
    std::optional<Loan> borrow_behind(TimePoint since, const void* about) {
        std::vector<Connection> dropped;  // closed outside the mutex
        const std::lock_guard lock{mutex_};
        drop_outdated(dropped);
        const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const Connection& c) {
            return c.has_pending_replies() && c.pending_since() > since &&
                   (about == nullptr || c.pending_about(about) > 0);
        });
        if (found == idle_.end()) return std::nullopt;
        return take(found);
    }

    /// Whether an answer is pending on an idle connection.
    bool has_pending_replies() {
        const std::lock_guard lock{mutex_};
        return std::any_of(idle_.begin(), idle_.end(),
                           [](const auto& c) { return c.has_pending_replies(); });
    }

private:
    /// Takes the idle connections away if the next one leads to a server that is the master no more.
    /// With the mutex held.
    void drop_outdated(std::vector<Connection>& dropped) {
        if (!idle_.empty() && !dialer_->is_current(idle_.back())) drop_idle(dropped);
    }

    /// The same, and closes them: it lets go of the mutex meanwhile.
    void drop_outdated(std::unique_lock<std::mutex>& lock) {
        std::vector<Connection> dropped;
        drop_outdated(dropped);
        if (dropped.empty()) return;
        lock.unlock();
        dropped.clear();
        lock.lock();
    }

    /// Takes them all away; there is still room for those in use. With the mutex held.
    void drop_idle(std::vector<Connection>& dropped) {
        dropped.reserve(idle_.capacity());
        dropped.swap(idle_);
    }

    /// With the mutex held.
    std::optional<Loan> take(std::vector<Connection>::iterator idle) {
        std::optional<Loan> loan{std::in_place, *this, std::move(*idle), true};
        idle_.erase(idle);
        ++in_use_;
        return loan;
    }

    /// As `borrow`, in step or not.
    Expected<Loan, Fault> borrow_any(const Limit& limit) {
        std::unique_lock lock{mutex_};
        drop_outdated(lock);
        if (idle_.empty()) {
            auto waited = wait_for_turn(lock, limit);
            if (!waited) return Unexpected{std::move(waited).error()};
        }
        if (idle_.empty()) return open_new(lock, limit);
        return *take(std::prev(idle_.end()));
    }

    std::optional<Loan> borrow_any_idle() {
        std::vector<Connection> dropped;  // closed outside the mutex
        const std::lock_guard lock{mutex_};
        drop_outdated(dropped);
        if (idle_.empty()) return std::nullopt;
        return take(std::prev(idle_.end()));
    }

    /// A place of a thread that dials, and what it finds. Others may be waiting for either.
    struct Dialling {
        Pool* pool;
        std::uint64_t number;
        bool has_connected = false;
        std::optional<Fault> fault{};  // where it says something of the server

        ~Dialling() {
            const bool is_news = has_connected || fault;
            const TimePoint now = Clock::now();
            std::unique_lock lock{pool->mutex_};
            if (has_connected) {
                pool->turns_.connected(number);
            } else {
                --pool->in_use_;
                fault ? pool->turns_.failed(number, *std::move(fault), now)
                      : pool->turns_.given_up(number, now);
            }
            is_news ? pool->wake_all() : pool->wake_one(std::move(lock));
        }
    };

    /// With the mutex held, which it releases.
    Expected<Loan, Fault> open_new(std::unique_lock<std::mutex>& lock, const Limit& limit) {
        idle_.reserve(idle_.size() + in_use_ + 1);  // to give it back takes no memory
        const TimePoint begun = Clock::now();
        Dialling dialling{this, turns_.begin(begun)};
        ++in_use_;
        lock.unlock();
        auto connection = dialer_->open(limit);
        if (!connection) {
            const bool had_time = !limit.over() || Clock::now() - begun >= DialTurns::patience;
            if (had_time && !limit.cancelled()) dialling.fault = connection.error();
            return Unexpected{std::move(connection).error()};
        }
        connection->busy_wait(busy_wait_);
        dialling.has_connected = true;
        return Loan{*this, *std::move(connection), false};
    }

    /// A thread that waits. Where the server is away, it is woken by name: only the first one may dial, and the others
    /// would be woken whenever one of them leaves. Else any one may have what comes back. Begins and ends with the mutex
    /// held, also where the thread is cancelled.
    class Waiting : public IntrusiveList<Waiting>::Hook {
    public:
        explicit Waiting(Pool& pool) : pool_(&pool) { pool_->waiting_.push_back(*this); }
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;
        ~Waiting() {
            const bool was_first = is_first();
            pool_->waiting_.remove(*this);
            if (pool_->is_away()) {
                if (was_first) pool_->wake_first();
            } else if (!is_served_) {
                pool_->returned_.notify_one();  // the wake-up of this one may be for another
            }
        }

        bool is_first() const noexcept { return pool_->waiting_.front() == this; }
        void served() noexcept { is_served_ = true; }

        void sleep(std::unique_lock<std::mutex>& lock, Clock::duration time) {
            (pool_->is_away() ? woken_ : pool_->returned_).wait_for(lock, time);
        }
        void wake() noexcept { woken_.notify_one(); }

    private:
        Pool* pool_;
        std::condition_variable woken_;
        bool is_served_ = false;
    };

    /// With the mutex held.
    bool is_away() const noexcept { return turns_.last_fault().has_value(); }

    /// With the mutex held.
    void wake_first() noexcept {
        if (!waiting_.empty()) waiting_.front()->wake();
    }

    /// For news of the server, which may change where they wait. With the mutex held.
    void wake_all() noexcept {
        returned_.notify_all();
        waiting_.for_each([](Waiting& one) { one.wake(); });
    }

    /// For a connection or a place that has come back. With the mutex held, which it releases.
    void wake_one(std::unique_lock<std::mutex> lock) noexcept {
        if (is_away()) return wake_first();
        lock.unlock();
        returned_.notify_one();
    }

    /// Until there is an idle connection, or the caller may dial. With the mutex held.
    Expected<void, Fault> wait_for_turn(std::unique_lock<std::mutex>& lock, const Limit& limit) {
        Waiting waiting{*this};
        const std::uint64_t dialled = turns_.dialled();
        while (idle_.empty()) {
            const TimePoint now = Clock::now();
            const bool has_place = in_use_ < max_connections_;
            const TimePoint turn =
                has_place ? turns_.may_dial_at(now, waiting.is_first()) : TimePoint::max();
            const bool is_in_vain = is_away() && (limit.over() || limit.cancelled());
            if (turn <= now && !is_in_vain) break;
            if (auto why = why_not_to_wait(dialled, limit)) return Unexpected{*std::move(why)};
            const auto slice =
                limit.stop.stop_possible() ? stop_check_interval : std::chrono::milliseconds{1000};
            waiting.sleep(lock, std::min<Clock::duration>(
                                    saturating_sub(std::min(turn, limit.at), now), slice));
        }
        waiting.served();
        return {};
    }

    /// `dialled`: how many had when the caller came. With the mutex held.
    std::optional<Fault> why_not_to_wait(std::uint64_t dialled, const Limit& limit) const {
        if (limit.cancelled()) return cancelled_fault();
        if (turns_.has_failed_since(dialled) && !has_connection_in_use())
            return turns_.last_fault();
        if (limit.over()) return out_of_time();
        return std::nullopt;
    }

    /// Whether one may come back. With the mutex held.
    bool has_connection_in_use() const noexcept { return in_use_ > turns_.under_way(); }

    Fault out_of_time() const {
        if (is_away()) return *turns_.last_fault();
        Fault fault =
            io_fault(has_connection_in_use() ? "all " + std::to_string(max_connections_) +
                                                   " connections are in use (max_connections)"
                                             : "no connection had been made by then");
        fault.error.node = dialer_->name();
        fault.in_client = true;
        return fault;
    }

    void give_back(Connection connection) {
        std::optional<Connection> broken;  // closed outside the mutex
        std::unique_lock lock{mutex_};
        --in_use_;
        if (connection.idle() && dialer_->is_current(connection)) {
            idle_.push_back(std::move(connection));
        } else {
            broken = std::move(connection);
        }
        wake_one(std::move(lock));
    }

    const std::unique_ptr<Dialer> dialer_;
    const std::size_t max_connections_;
    const std::chrono::microseconds busy_wait_;
    std::mutex mutex_;
    std::condition_variable returned_;  // a connection, or its place
    std::vector<Connection> idle_;
    std::size_t in_use_ = 0;
    DialTurns turns_;
    IntrusiveList<Waiting> waiting_;
};

}  // namespace redlatch::inline v0::detail
