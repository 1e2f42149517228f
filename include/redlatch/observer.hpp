#pragma once

#include <redlatch/error.hpp>
#include <redlatch/result.hpp>
#include <redlatch/types.hpp>

#include <chrono>
#include <string>

namespace redlatch::inline v0 {

/// Is told what happens to the locks of a client (`ClientOptions::observer`); override what you
/// want to know. Threads of the client's own call it, as a rule one call after the other in the order of the
/// events. A call that takes longer than 10 ms does not hold up the next ones, which
/// then run at the same time on another thread. At most eight run at once; while 100,000 events wait
/// behind them, further ones are dropped, but for the ends of waits and holds whose beginning was told.
/// Exceptions of a call are dropped. A call may use any lock. Where no observer is set, none of this costs
/// anything.
class Observer {
public:
    /// How long something took.
    using Duration = std::chrono::nanoseconds;

    /// A lock was acquired.
    struct Acquired {
        std::string key;  ///< the lock's name
        Duration waited;  ///< from the call to the hold
        unsigned tries;   ///< how often the server was asked
    };
    /// A wait ended because its time was over, without the lock.
    struct TimedOut {
        std::string key;  ///< the lock's name
        Duration waited;  ///< from the call to its end
        unsigned tries;   ///< how often the server was asked
    };
    /// A lock was given back, or somebody tried to.
    struct Released {
        std::string key;          ///< the lock's name
        Duration held_for;        ///< 0 where nothing was held
        Result<Release> outcome;  ///< `not_held`, too: the caller has not got what it releases
    };
    /// A watchdog renewed a lease.
    struct Renewed {
        std::string key;     ///< the lock's name
        Duration remaining;  ///< validity from now on
    };
    /// A delivered hold ended without a release.
    struct Lost {
        std::string key;    ///< the lock's name
        Duration held_for;  ///< from the lock to the loss
    };
    /// A call waits.
    struct WaitBegan {
        std::string key;  ///< the lock's name
    };
    /// It waits no more.
    struct WaitEnded {
        std::string key;       ///< the lock's name
        Duration waited;       ///< from the call on
        Result<void> outcome;  ///< an error where the lock was not acquired
        unsigned tries = 0;    ///< how often the server was asked
    };
    /// Something is held.
    struct HoldBegan {
        std::string key;  ///< the lock's name
    };
    /// It is held no more.
    struct HoldEnded {
        std::string key;    ///< the lock's name
        Duration held_for;  ///< from the lock to the end of the hold
    };
    /// A server answers again.
    struct Reconnected {
        std::string node;  ///< the server
    };
    /// A server, or another client, is set up in a way that is bad for locks.
    struct Warning {
        std::string node;     ///< the server; empty with several masters where it is about a client
        std::string message;  ///< what is wrong
    };

    Observer() = default;
    Observer(const Observer&) = delete;
    Observer& operator=(const Observer&) = delete;
    virtual ~Observer() = default;

    /// A lock was acquired: by a command, from the queue, or from another thread.
    virtual void acquired(const Acquired&) {}

    /// A wait ended without the lock.
    virtual void timed_out(const TimedOut&) {}

    /// A hold ended by a release, or there was none to end. The observer hears nothing of a hold that expired
    /// before anybody had it: one that was not delivered in time, or that a set has lost while it waited for
    /// its other locks.
    virtual void released(const Released&) {}

    /// A watchdog renewed a lease.
    virtual void renewed(const Renewed&) {}

    /// A delivered hold ended without a release: its validity is over, or the server says that it is gone.
    virtual void lost(const Lost&) {}

    /// A call waits: it did not get the lock at its first try, or others of its process are before it. A call
    /// that is to try only once tells of no wait.
    ///
    /// This and `wait_ended` come in pairs, and so do `hold_began` and `hold_ended`: an observer can count
    /// how many there are now. Each beginning that is told has one end that is told, whatever happens, unless
    /// there is no memory to tell it with. An end is not dropped, and may come after that of the client.
    /// Where a beginning is dropped, for a backlog or the client's end, or its call throws, its end is not
    /// told either. Where calls run beside each other, an end may be told while the call for its beginning
    /// still runs. It is then told even if that call throws. In a forked child, waits and holds that began
    /// before have no end.
    virtual void wait_began(const WaitBegan&) {}

    /// A call that waited has got the lock, or gives up. `acquired` or `timed_out` follow, where that is the outcome.
    virtual void wait_ended(const WaitEnded&) {}

    /// A lock, the reading of a shared lock, or one or more permits are held from now on. Nested acquisitions belong to
    /// the same hold. `acquired` follows.
    virtual void hold_began(const HoldBegan&) {}

    /// A hold is over: released, whatever the outcome, lost, detached, or given back by a set that did not get
    /// all of its locks. `released` or `lost` follow, unless it was gone before anybody had it.
    virtual void hold_ended(const HoldEnded&) {}

    /// A command failed, whether or not it is tried again.
    virtual void error(const Error&) {}

    /// A server answers again after a failure.
    virtual void reconnected(const Reconnected&) {}

    /// A server, or another client, is set up in a way that may cost a lock or the order of waiters:
    ///
    /// - It evicts keys when its memory is full. Each client tells it once for each start of the server; none
    ///   does where an ACL forbids INFO, nor while the server has no `maxmemory`. Where that changes, a new
    ///   connection sees it, at most once a minute.
    /// - Its ACL forbids the keys of the queue, so that waiters poll. Each client tells it once.
    /// - A client with another `ClientOptions::key_space` has the lock, so that waiters poll. Each client
    ///   tells it once.
    virtual void warning(const Warning&) {}
};

}  // namespace redlatch::inline v0
