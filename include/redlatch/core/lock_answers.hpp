#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/token_state.hpp>
#include <redlatch/error.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace redlatch::inline v0::detail {

// What the lock table answers, and what it passes on.

/// What becomes of a request for a lock.
enum class LockOutcome {
    queued,          ///< wait
    turn,            ///< contend for it at the server
    handed,          ///< the holder before us has passed it on
    nested,          ///< its owner holds it already, and may hold it again
    deadlock,        ///< the caller holds it already, may not again, and would wait for ever
    busy,            ///< the wait ended first
    cancelled,       ///< a stop was requested during the wait
    closed,          ///< the client has been closed
    wrong_key_type,  ///< it is in use with a policy of another key type
};

/// Why a wait has ended without a turn, where it was busy.
struct WhyBusy {
    std::shared_ptr<const Error> fault{};  ///< what the one before met, if not a holder
    bool is_unanswered = false;            ///< the one before has heard nothing from the server
    bool by_caller = false;                ///< the caller holds it already
};

/// Why a pause has ended.
enum class Woken {
    in_time,    ///< it was over
    granted,    ///< a message says that the lock is ours
    recheck,    ///< a message may have been missed
    lost,       ///< the end of the hold that is to be nested in
    cancelled,  ///< a stop was requested
    closed,     ///< the end of the client
};

/// A pause has ended, or lasts until then if nothing wakes the waiter.
struct LockPause {
    std::optional<Woken> ended{};
    TimePoint wake_at{};
};

/// A process's place in the server's queue. It belongs to no thread: a contender that gives up
/// passes it on to the next one.
struct QueuePlace {
    Token token;
    HoldTerms terms;
    bool unclear_try = false;  ///< a try with that token got no answer
    TriesOfToken tries{};
};

/// A lock that passes from one owner in this process to the next.
struct HandOff {
    Token token;
    TimePoint refreshed;  ///< when the last command went out that gave it its lease
    OpenTries open_tries{};
    std::uint64_t fence = 0;
};

/// What a reader does, whose turn it is, about a claim that other readers of this process have.
struct Joining {
    std::shared_ptr<Hold> hold{};   ///< it goes on with that: the turn is over
    std::shared_ptr<Hold> first{};  ///< the hold of the one that is, or was, alone with the claim
    std::shared_ptr<ReaderClaim> to_ask{};  ///< first it asks the server whether anybody waits

    // Where it has asked:
    std::vector<std::shared_ptr<Hold>> lost{};  ///< these, as the server has the claim no more
    CleanUp clean_up{};   ///< of the claim's token: nobody goes on with what is prolonged
    bool failed = false;  ///< there was no answer, and that ends this attempt
};
/// What the server says to the question.
struct ClaimNews {
    bool is_there = false;
    bool others_wait = false;
};

/// How a turn has ended that the server gave the lock to.
struct FinishedTurn {
    /// Else the client was closed meanwhile, or there is no memory for it, and the caller has to release it.
    bool kept = false;
    /// Other readers here have been let in with its claim.
    bool is_shared = false;
    /// This process has removed its token at the server meanwhile: the hold has been lost.
    bool is_removed = false;
    explicit operator bool() const noexcept { return kept; }
};

/// What has become of a lock that another process has given to this one.
struct AdoptedHold {
    bool kept = false;        ///< else the client was closed meanwhile, and nothing is held here
    bool is_removed = false;  ///< as in `FinishedTurn`
    std::optional<QueuePlace> place{};  ///< that nobody here goes on with: to be released
    explicit operator bool() const noexcept { return kept; }
};

/// What the lock table leaves behind at the end of the client: the caller has to release it.
struct LockTableRemains {
    std::vector<std::shared_ptr<Hold>> holds{};
    /// Left behind for somebody here who does not get to use it.
    std::vector<QueuePlace> places{};
};

/// What a hold loses when one of its acquisitions ends.
struct AcquisitionEnding {
    enum class Kind {
        nothing,  ///< there was no such acquisition
        nested,   ///< others of the hold go on
        last,     ///< the hold has to be released at the server
        handed,   ///< the hold has passed on to the next owner here (`LockTable::hand_off`)
        left,     ///< other readers here go on with its claim, or have lost it and may be at work
        past,     ///< the hold was lost before
    };
    Kind kind = Kind::nothing;
    std::shared_ptr<Hold> hold{};
    std::uint64_t count = 0;    ///< where nested or past: how many are left
    std::uint64_t id = 0;       ///< where nested: of the acquisition that ended
    bool watched = false;       ///< where nested: the acquisition that ended was
    bool downgrades = false;    ///< where nested: only reading is left of what was writing
    bool can_hand_off = false;  ///< where last: a waiter here would be next on equal terms
    CleanUp clean_up{};         ///< where left or past: of what a `lock_delay` keeps
};

}  // namespace redlatch::inline v0::detail
