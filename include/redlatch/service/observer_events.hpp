#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/event_pair.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/error.hpp>
#include <redlatch/observer.hpp>
#include <redlatch/result.hpp>
#include <redlatch/service/notifier.hpp>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Tells the client's observer what happens, on the callback threads. Does nothing without an observer.
/// Thread-safe.
class ObserverEvents {
public:
    /// `observer` may be null.
    ObserverEvents(std::shared_ptr<Observer> observer, Notifier& notifier)
        : observer_(std::move(observer)), notifier_(&notifier) {}

    /// Whether there is an observer.
    bool wanted() const noexcept { return observer_ != nullptr; }

    /// Somebody holds a lock from now on.
    void hold_began(const std::shared_ptr<Hold>& hold) noexcept {
        tell_begin({hold, &hold->events},
                   [hold](Observer& observer) { observer.hold_began({hold->key()}); });
    }

    /// It is over. To be called once for each hold.
    void hold_ended(const std::shared_ptr<Hold>& hold, Clock::duration held_for) {
        tell_end({hold, &hold->events}, [key = hold->key(), held_for](Observer& observer) {
            observer.hold_ended({key, held_for});
        });
    }

    /// Somebody waits for a lock from now on.
    void wait_began(const std::shared_ptr<EventPair>& wait, const std::string& key) {
        tell_begin(wait, [key](Observer& observer) { observer.wait_began({key}); });
    }

    void wait_ended(const std::shared_ptr<EventPair>& wait, const Observer::WaitEnded& event) {
        tell_end(wait, [event](Observer& observer) { observer.wait_ended(event); });
    }

    void acquired(const Observer::Acquired& event) {
        if (!wanted()) return;
        notifier_->post([observer = observer_, event] { observer->acquired(event); });
    }

    void timed_out(const Observer::TimedOut& event) {
        if (!wanted()) return;
        notifier_->post([observer = observer_, event] { observer->timed_out(event); });
    }

    void released(const std::string& key, Clock::duration held_for,
                  const Result<Release>& outcome) {
        if (!wanted()) return;
        notifier_->post([observer = observer_, key, held_for, outcome] {
            observer->released({key, held_for, outcome});
        });
    }

    void lost(const std::string& key, Clock::duration held_for) {
        if (!wanted()) return;
        notifier_->post([observer = observer_, key, held_for] { observer->lost({key, held_for}); });
    }

    void renewed(const Hold& hold) {
        if (!wanted()) return;
        const auto remaining = saturating_sub(hold.valid_until(), Clock::now());
        notifier_->post([observer = observer_, key = hold.key(), remaining] {
            observer->renewed({key, remaining});
        });
    }

    void reconnected(const std::string& node) {
        if (!wanted()) return;
        notifier_->post([observer = observer_, node] { observer->reconnected({node}); });
    }

    void error(const Error& error) {
        if (!wanted()) return;
        notifier_->post([observer = observer_, error] { observer->error(error); });
    }

    void warning(Observer::Warning warning) {
        if (!wanted()) return;
        notifier_->post(
            [observer = observer_, warning = std::move(warning)] { observer->warning(warning); });
    }

private:
    using Tell = std::function<void(Observer&)>;

    /// Without memory for it neither the beginning nor the end is told.
    template <class Begin>
    void tell_begin(const std::shared_ptr<EventPair>& pair, Begin begin) noexcept {
        if (!wanted()) return pair->drop();
        try {
            if (!notifier_->post(task_of(pair, std::move(begin)))) pair->drop();
        } catch (const std::bad_alloc&) {
            pair->drop();
        }
    }

    template <class Begin>
    Notifier::Task task_of(const std::shared_ptr<EventPair>& pair, Begin begin) const {
        return [observer = observer_, pair, begin = std::move(begin)] {
            if (!pair->begins()) return;
            try {
                begin(*observer);
            } catch (...) {
                pair->drop();
                throw;
            }
        };
    }

    /// Not dropped where the beginning is told.
    void tell_end(const std::shared_ptr<EventPair>& pair, Tell end) {
        if (!wanted() || pair->is_dropped()) return;
        notifier_->post_certainly([observer = observer_, pair, end = std::move(end)] {
            if (pair->ends()) end(*observer);
        });
    }

    const std::shared_ptr<Observer> observer_;
    Notifier* const notifier_;
};

}  // namespace redlatch::inline v0::detail
