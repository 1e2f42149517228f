#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/event_pair.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/error.hpp>
#include <redlatch/observer.hpp>
#include <redlatch/result.hpp>
#include <redlatch/service/notifier.hpp>

#include <memory>
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

    /// Calls `tell(observer)`. False without an observer, and where a backlog makes it be dropped.
    template <class Tell>
    bool tell(Tell tell) {
        return wanted() &&
               notifier_->post([observer = observer_, tell = std::move(tell)] { tell(*observer); });
    }

    /// The same for the beginning of something.
    template <class Tell>
    void tell_begin(const std::shared_ptr<EventPair>& pair, Tell begin) {
        const bool posted = tell([pair, begin = std::move(begin)](Observer& observer) {
            if (!pair->begins()) return;
            try {
                begin(observer);
            } catch (...) {
                pair->drop();
                throw;
            }
        });
        if (!posted) pair->drop();
    }

    /// The same for its end, which is not dropped where the beginning is told.
    template <class Tell>
    void tell_end(const std::shared_ptr<EventPair>& pair, Tell end) {
        if (pair->is_dropped()) return;
        notifier_->post_certainly([observer = observer_, pair, end = std::move(end)] {
            if (pair->ends()) end(*observer);
        });
    }

    /// Somebody holds a lock from now on.
    void hold_began(const std::shared_ptr<Hold>& hold) {
        tell_begin({hold, &hold->events},
                   [key = hold->key()](Observer& observer) { observer.hold_began({key}); });
    }

    /// It is over. To be called once for each hold.
    void hold_ended(const std::shared_ptr<Hold>& hold, Clock::duration held_for) {
        if (!wanted()) return;
        tell_end({hold, &hold->events}, [key = hold->key(), held_for](Observer& observer) {
            observer.hold_ended({key, held_for});
        });
    }

    void released(const std::string& key, Clock::duration held_for,
                  const Result<Release>& outcome) {
        tell([key, held_for, outcome](Observer& observer) {
            observer.released({key, held_for, outcome});
        });
    }

    void lost(const std::string& key, Clock::duration held_for) {
        tell([key, held_for](Observer& observer) { observer.lost({key, held_for}); });
    }

    void renewed(const Hold& hold) {
        if (!wanted()) return;
        const auto remaining = saturating_sub(hold.valid_until(), Clock::now());
        tell([key = hold.key(), remaining](Observer& observer) {
            observer.renewed({key, remaining});
        });
    }

    void reconnected(const std::string& node) {
        tell([node](Observer& observer) { observer.reconnected({node}); });
    }

    void error(const Error& error) {
        tell([error](Observer& observer) { observer.error(error); });
    }

    void warning(Observer::Warning warning) {
        tell([warning = std::move(warning)](Observer& observer) { observer.warning(warning); });
    }

private:
    const std::shared_ptr<Observer> observer_;
    Notifier* const notifier_;
};

}  // namespace redlatch::inline v0::detail
