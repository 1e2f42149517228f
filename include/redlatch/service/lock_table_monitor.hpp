#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/lock_table.hpp>
#include <redlatch/core/reader_claim.hpp>
#include <redlatch/service/parker.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// The lock table with a mutex around it and a clock. A thread that has to wait is parked. An operation that has to
/// wait is told by its `wake()`: then it asks again, or goes on with the lock that it was handed. Decides nothing.
class LockTableMonitor {
public:
    /// Who waits.
    class Waiter : public LockTable::Waiter {
    public:
        /// Wakes it, and returns what is left to do of that. Called with the mutex held.
        [[nodiscard]] virtual Parker::Wake wake() noexcept = 0;

        /// Whether one that the lock was handed to goes on with it on the calling thread, instead of being woken. Then
        /// `go_on_here` is called when the mutex is free. Called with the mutex held.
        [[nodiscard]] virtual bool goes_on_here() noexcept { return false; }
        virtual void go_on_here() noexcept {}

    protected:
        ~Waiter() = default;
    };

private:
    /// A thread that waits.
    class ParkedWaiter final : public Waiter {
    public:
        /// Allocates here what a stop needs: the lock table does not refer to this yet.
        explicit ParkedWaiter(const std::stop_token& stop) {
            if (stop.stop_possible()) on_stop_ = std::make_unique<OnStop>(stop, Unpark{&parker_});
        }

        /// Sleeps until it is woken, `until` has come or a stop is requested; maybe less.
        void park(TimePoint until) noexcept { parker_.park(until); }

        /// Whether it has the lock. It needs no mutex to see that: the table has forgotten about it.
        bool was_handed() const noexcept { return handed_.load(std::memory_order_acquire); }

        /// Wakes it. It may see at once what it was handed, and be gone after this.
        Parker::Wake wake() noexcept override {
            const Parker::Wake wake = parker_.unpark();
            if (is_handed()) handed_.store(true, std::memory_order_release);
            return wake;
        }

    private:
        struct Unpark {
            Parker* parker;
            void operator()() const noexcept { parker->unpark()(); }
        };
        using OnStop = std::stop_callback<Unpark>;

        Parker parker_;
        std::atomic<bool> handed_{false};
        std::unique_ptr<OnStop> on_stop_;  // g++ 12 warns of an optional one, for no reason
    };

    /// The mutex, held. A waiter that the table wakes meanwhile is woken when the mutex is free again: a
    /// thread that runs at once would only wait here.
    class Section {
    public:
        explicit Section(LockTableMonitor& monitor) : monitor_(&monitor) { lock(); }
        Section(const Section&) = delete;
        Section& operator=(const Section&) = delete;
        ~Section() {
            if (held_) unlock();
        }

        void lock() {
            monitor_->mutex_.lock();
            held_ = true;
        }
        void unlock() {
            Parker::Wake wake;
            Waiter* handed = nullptr;
            while (LockTable::Waiter* const woken = monitor_->table_.take_woken()) {
                auto& waiter = static_cast<Waiter&>(*woken);
                if (handed == nullptr && waiter.is_handed() && waiter.goes_on_here()) {
                    handed = &waiter;
                    continue;
                }
                wake();  // seldom are there two
                wake = waiter.wake();
            }
            held_ = false;
            monitor_->mutex_.unlock();
            wake();
            if (handed != nullptr) handed->go_on_here();
        }
        LockTable* operator->() const noexcept { return &monitor_->table_; }

    private:
        LockTableMonitor* monitor_;
        bool held_ = false;
    };

public:
    /// The calling thread's turn to contend for a lock at the server. At its end the next one has
    /// it, unless it was turned into a hold.
    class Turn {
    public:
        Turn(LockTableMonitor& monitor, LockTable::Turn turn) : monitor_(&monitor), turn_(turn) {}
        Turn(Turn&& other) noexcept
            : monitor_(std::exchange(other.monitor_, nullptr)), turn_(other.turn_) {}
        Turn& operator=(Turn&&) = delete;
        ~Turn() {
            if (monitor_ != nullptr) monitor_->section()->end_turn(turn_);
        }

        /// Sleeps until `until`, or until there is something to do.
        LockTable::Woken pause(TimePoint until, const std::stop_token& stop) {
            return monitor_->sleep(stop, [&](Section& table, ParkedWaiter& self) {
                return table->pause(turn_, self, until, Clock::now(), stop.stop_requested());
            });
        }

        /// The same for an operation: the pause has ended, or it asks again when it was woken or that long has
        /// passed.
        LockTable::Pause pause(Waiter& waiter, TimePoint until, bool stop_requested) {
            return monitor_->section()->pause(turn_, waiter, until, Clock::now(), stop_requested);
        }

        /// See `LockTable`.
        std::optional<QueuePlace> place() const { return monitor_->section()->place(turn_); }
        void announce(const Hold& hold) { monitor_->section()->announce(turn_, hold); }
        void withdraw() { monitor_->section()->withdraw(turn_); }
        std::optional<Grant> take_grant() { return monitor_->section()->take_grant(turn_); }
        bool has_waiters() const { return monitor_->section()->has_waiters(turn_); }
        void set_fault(std::shared_ptr<const Error> fault) {
            monitor_->section()->set_fault(turn_, std::move(fault));
        }
        bool pass_place_on(bool unclear_try, const TriesOfToken& tries = {}) {
            return std::exchange(monitor_, nullptr)
                ->section()
                ->pass_place_on(turn_, unclear_try, tries);
        }
        LockTable::Joining join(const AcquireRequest& request) {
            const Section table{*monitor_};
            return joined(table->join(turn_, request, Clock::now()));
        }
        LockTable::Joining join_asked(const AcquireRequest& request,
                                      const std::shared_ptr<ReaderClaim>& claim,
                                      const LockTable::ClaimNews& news, TimePoint sent) {
            const Section table{*monitor_};
            return joined(table->join_asked(turn_, request, claim, news, sent, Clock::now()));
        }
        LockTable::Finished finish(std::shared_ptr<Hold> hold, bool others_wait = false) {
            Section table{*std::exchange(monitor_, nullptr)};
            return table->finish(turn_, std::move(hold), others_wait, Clock::now());
        }

    private:
        /// One that has joined has ended its turn.
        LockTable::Joining joined(LockTable::Joining joining) noexcept {
            if (joining.hold != nullptr) monitor_ = nullptr;
            return joining;
        }

        LockTableMonitor* monitor_;
        LockTable::Turn turn_;
    };

    /// As the table's, after the wait.
    struct Admission {
        LockTable::Outcome outcome;
        std::optional<Turn> turn{};
        std::shared_ptr<Hold> hold{};
        std::uint64_t count = 0;
        std::shared_ptr<Hold> expired{};
        WhyBusy busy{};
    };

    LockTableMonitor() = default;
    LockTableMonitor(const LockTableMonitor&) = delete;
    LockTableMonitor& operator=(const LockTableMonitor&) = delete;

    /// Asks for a lock. Waits in the queue as long as somebody else of this process is before us; `waits` is
    /// called, without the mutex, before each sleep.
    template <class Waits>
    Admission enter(const AcquireRequest& request, const std::stop_token& stop, Waits waits) {
        Section table{*this};
        if (const LockTable::Turn turn = table->enter_if_free(request)) {
            return {.outcome = LockTable::Outcome::turn, .turn = Turn{*this, turn}};
        }
        LockTable::Admission said = wait_for_outcome(table, request, stop, std::move(waits));
        Admission admission{.outcome = said.outcome,
                            .hold = std::move(said.hold),
                            .count = said.count,
                            .expired = std::move(said.expired),
                            .busy = std::move(said.busy)};
        if (said.turn) admission.turn.emplace(*this, said.turn);
        return admission;
    }
    Admission enter(const AcquireRequest& request, const std::stop_token& stop = {}) {
        return enter(request, stop, [] {});
    }

    /// The same for an operation, which `resume`s where it is queued. Both are the table's own.
    LockTable::Admission enter(const AcquireRequest& request, Waiter& waiter, bool stop_requested) {
        Section table{*this};
        if (const LockTable::Turn turn = table->enter_if_free(request)) {
            return {.outcome = LockTable::Outcome::turn, .turn = turn};
        }
        return table->enter(request, waiter, Clock::now(), stop_requested);
    }
    LockTable::Admission resume(Waiter& waiter, bool stop_requested) {
        return section()->resume(waiter, Clock::now(), stop_requested);
    }

    /// Sleeps as a thread that is about to nest in `hold`, which it has: until `until`, or until
    /// there is something to do.
    LockTable::Woken pause(const Hold& hold, TimePoint until, const std::stop_token& stop) {
        return sleep(stop, [&](Section& table, ParkedWaiter& self) {
            return table->pause(hold, self, until, Clock::now(), stop.stop_requested());
        });
    }

    /// The same for an operation; see `Turn`.
    LockTable::Pause pause(const Hold& hold, Waiter& waiter, TimePoint until, bool stop_requested) {
        return section()->pause(hold, waiter, until, Clock::now(), stop_requested);
    }

    /// See `LockTable`.
    std::optional<std::uint64_t> nest(Hold& hold, Nest&& acquisition) {
        const Section table{*this};
        return table->nest(hold, std::move(acquisition), Clock::now());
    }
    bool is_outermost(const Hold& hold, std::uint64_t id) {
        const Section table{*this};
        return hold.is_outermost(id);
    }
    void watch(Hold& hold, std::uint64_t id) {
        const Section table{*this};
        hold.watch(id);
    }
    LockTable::Ending end_innermost(const std::string& key, LockOwner owner, bool reads = false) {
        Section table{*this};
        return concluded(table, table->end_innermost(key, owner, reads));
    }
    LockTable::Ending end_acquisition(const Hold& hold, std::uint64_t id) {
        Section table{*this};
        return concluded(table, table->end_acquisition(hold, id));
    }
    std::optional<LockTable::Ending> end_only(const Hold& hold, std::uint64_t id) {
        Section table{*this};
        auto ending = table->end_only(hold, id);
        if (ending) table->conclude(*ending, Clock::now());
        return ending;
    }
    LockTable::Ending end_one_through(const std::string& key, const void* through) {
        Section table{*this};
        return concluded(table, table->end_one_through(key, through));
    }
    bool downgrade(Hold& hold) {
        const Section table{*this};
        return table->downgrade(hold, Clock::now());
    }
    void released(const Hold& hold) { section()->released(hold); }
    bool moved(const Hold& hold, HandOff handed, bool others_wait) {
        const Section table{*this};
        return table->moved(hold, std::move(handed), others_wait, Clock::now());
    }
    LockTable::Adopted adopt(std::shared_ptr<Hold> hold, bool others_wait) {
        const Section table{*this};
        return table->adopt(std::move(hold), others_wait, Clock::now());
    }
    LockTable::Joining join_unanswered(ReaderClaim& claim, bool maybe_executed) {
        const Section table{*this};
        return LockTable::join_unanswered(claim, maybe_executed, Clock::now());
    }
    std::vector<std::shared_ptr<Hold>> close_claim_of(const Hold& hold) {
        const Section table{*this};
        return detail::close_claim_of(hold);
    }
    void leave_claim(Hold& hold) { section()->leave_claim(hold); }
    bool may_clean_up(const Hold& hold) {
        const Section table{*this};
        return detail::may_clean_up(hold);
    }
    void lost(const std::shared_ptr<Hold>& hold) { section()->lost(hold); }
    std::shared_ptr<Hold> find(const std::string& key, LockOwner owner) {
        return section()->find(key, owner);
    }
    std::shared_ptr<Hold> current(const std::string& key) { return section()->current(key); }
    std::shared_ptr<Hold> with_token(std::string_view key, std::string_view token) {
        return section()->with_token(key, token);
    }
    std::shared_ptr<Hold> removed(std::string_view key, std::string_view token) {
        return section()->removed(key, token);
    }
    bool deliver(const Grant& grant, bool is_hint = false) {
        return section()->deliver(grant, is_hint);
    }
    void recheck_all() { section()->recheck_all(Clock::now()); }
    LockTable::Remains close() { return section()->close(); }
    std::size_t size() { return section()->size(); }

private:
    /// The mutex, held until the end of the expression.
    Section section() { return Section{*this}; }

    template <class Waits>
    static LockTable::Admission wait_for_outcome(Section& table, const AcquireRequest& request,
                                                 const std::stop_token& stop, Waits waits) {
        ParkedWaiter self{stop};
        auto said = table->enter(request, self, Clock::now(), stop.stop_requested());
        while (said.outcome == LockTable::Outcome::queued) {
            table.unlock();
            waits();
            self.park(said.wake_at);
            if (self.was_handed()) return LockTable::take_handed(self);
            table.lock();
            said = table->resume(self, Clock::now(), stop.stop_requested());
        }
        return said;
    }

    static LockTable::Ending concluded(Section& table, LockTable::Ending ending) {
        table->conclude(ending, Clock::now());
        return ending;
    }

    template <class Ask>
    LockTable::Woken sleep(const std::stop_token& stop, Ask ask) {
        ParkedWaiter self{stop};
        Section table{*this};
        for (;;) {
            const LockTable::Pause pause = ask(table, self);
            if (pause.ended) return *pause.ended;
            table.unlock();
            self.park(pause.wake_at);
            table.lock();
        }
    }

    std::mutex mutex_;
    LockTable table_{static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())};
};

}  // namespace redlatch::inline v0::detail
