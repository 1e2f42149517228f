#pragma once

#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/hold.hpp>

#include <cstdint>
#include <memory>

namespace redlatch::inline v0::detail {

// The answers of the lock table that other machines go on with.

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
