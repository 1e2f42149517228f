#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/core/schedule.hpp>
#include <redlatch/net/service_thread.hpp>
#include <redlatch/service/callback_threads.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

/// Watches the clock for holds whose loss somebody wants to hear of, and hands users' callbacks to their
/// threads. Its own thread starts at the first use, does no I/O and runs no user code. Losses have threads apart
/// from events. So a loss is told on time even if the server is silent and other callbacks hang, however many.
/// Thread-safe.
class Notifier {
public:
    using Task = CallbackThreads::Task;
    using OnExpiry = std::function<void(const std::shared_ptr<Hold>&)>;

    /// `on_expiry` is called on the notifier's thread for a watched hold whose validity is over.
    explicit Notifier(OnExpiry on_expiry) : on_expiry_(std::move(on_expiry)) {}
    Notifier(const Notifier&) = delete;
    Notifier& operator=(const Notifier&) = delete;
    ~Notifier() { close(Clock::duration::zero()); }

    /// Tells an observer of an event, after those posted before. False where it is dropped.
    bool post(Task task) {
        if (!events_->post(std::move(task))) return false;
        supervise_soon();
        return true;
    }

    /// The same for one that is not dropped, also after `close`.
    void post_certainly(Task task) {
        events_->post(std::move(task), CallbackThreads::Delivery::certain);
        if (!supervise_soon()) CallbackThreads::supervise(events_, Clock::now());
    }

    /// Tells of a loss, whatever other callbacks do; also after `close`.
    void post_loss(Task task) {
        losses_->post(std::move(task));
        CallbackThreads::supervise(losses_, Clock::now());
        supervise_soon();
    }

    /// A loss may have to be told from now on.
    void prepare_for_loss() { CallbackThreads::prepare(losses_); }

    /// Calls `expired` when the hold's validity ends, unless it is unwatched before.
    void watch(std::shared_ptr<Hold> hold) {
        const auto lock = thread_.lock();
        const TimePoint end = hold->valid_until();
        const bool sooner = end < alarms_.next_due() || !thread_.is_running();
        const Hold* const key = hold.get();
        alarms_.put(key, end, std::move(hold));
        if (sooner) wake_up();
    }

    /// The same hold is to be watched once more: tries again to get the thread, where there was none to be had.
    void watch_on() {
        const auto lock = thread_.lock();
        if (!thread_.is_running() && !alarms_.empty()) wake_up();
    }

    void unwatch(const Hold& hold) {
        const auto lock = thread_.lock();
        alarms_.remove(&hold);
    }

    /// Stops watching, then lets the callbacks posted so far be run, for `bound` at most.
    void close(Clock::duration bound) {
        const TimePoint end = saturating_add(Clock::now(), bound);
        thread_.close();
        for (const auto& callbacks : {losses_, events_}) callbacks->begin_to_close();
        for (TimePoint now = Clock::now(); now < end; now = Clock::now()) {
            supervise(now);  // a callback that hangs does not hold up those behind it
            const auto step = std::min<Clock::duration>(end - now, CallbackThreads::patience);
            if (losses_->wait_until_done(step) && events_->wait_until_done(step)) break;
        }
        for (const auto& callbacks : {losses_, events_}) CallbackThreads::abandon(callbacks);
    }

private:
    /// False after the end, when nobody does.
    bool supervise_soon() {
        const auto lock = thread_.lock();
        supervise_ = true;
        wake_up();
        return !thread_.is_closing();
    }

    TimePoint supervise(TimePoint now) {
        return std::min(CallbackThreads::supervise(losses_, now),
                        CallbackThreads::supervise(events_, now));
    }

    /// With the mutex held.
    void wake_up() {
        static_cast<void>(thread_.start());  // or the next call does
        thread_.wake();
    }

    void run() {
        auto lock = thread_.lock();
        TimePoint supervise_at = TimePoint::max();
        while (!thread_.is_closing()) {
            const TimePoint now = Clock::now();
            if (auto hold = alarms_.take_due(now)) {
                lock.unlock();
                check(std::move(*hold), now);
                lock.lock();
                continue;
            }
            if (std::exchange(supervise_, false) || supervise_at <= now) {
                supervise_at = supervise(now);
            }
            sleep_until(lock, std::min(alarms_.next_due(), supervise_at));
        }
    }

    void sleep_until(ServiceThread::Lock& lock, TimePoint until) {
        if (until == TimePoint::max()) {
            thread_.wait(lock, [this] { return supervise_ || !alarms_.empty(); });
            return;
        }
        thread_.nap(lock,
                    std::clamp<Clock::duration>(saturating_sub(until, Clock::now()),
                                                Clock::duration::zero(), longest_service_sleep));
    }

    /// A renewal may have moved the end of validity since.
    void check(std::shared_ptr<Hold> hold, TimePoint now) {
        if (!hold->in(Phase::held)) return;
        if (hold->valid(now)) {
            watch(std::move(hold));
        } else {
            on_expiry_(hold);
        }
    }

    const OnExpiry on_expiry_;
    const std::shared_ptr<CallbackThreads> losses_ =
        std::make_shared<CallbackThreads>(CallbackThreads::Kind::losses);
    const std::shared_ptr<CallbackThreads> events_ =
        std::make_shared<CallbackThreads>(CallbackThreads::Kind::events);
    ServiceThread thread_{"redlatch notify", [this] { run(); }};
    // Guarded by its mutex:
    Schedule<std::shared_ptr<Hold>> alarms_;
    bool supervise_ = false;
};

}  // namespace redlatch::inline v0::detail
