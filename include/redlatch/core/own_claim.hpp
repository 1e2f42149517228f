#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/core/lock_owner.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace redlatch::inline v0::detail {

/// Where the lock table has a claim that excludes nobody here, under a number of its own. Begins as no
/// lock's name may.
inline std::string claim_entry(const char* kind, std::uint64_t number, const std::string& key) {
    return kind + std::to_string(number) + ':' + key;
}

/// The same for what a thread reads.
inline std::string reader_entry(const std::string& key, LockOwner thread) {
    const auto serial = static_cast<std::uint64_t>(thread.thread().value_or(ThreadSerial{}));
    return claim_entry("redlatch:thread:", serial, key);
}

/// Who asks for a claim.
struct Claimant {
    std::uint64_t acquisition;
    LockOwner caller;
    bool owns_itself;  ///< its hold is no thread's
    bool writes_here;  ///< the caller has the lock for writing
    bool others_poll;  ///< the server does not know who waits
};

/// Gives an acquisition of permits, or one that reads, an entry of its own in the lock table. It excludes nobody here:
/// - Each acquisition of permits has one, and each that reads and owns itself.
/// - A thread has one for all that it reads of a lock. Its reading while it writes belongs to the hold that
///   writes.
///
/// Threads that read may share one claim (`joins`). They do not where the server does not know who waits, as they would
/// pass those; with replicas, which each acquisition has to ask; and with a `min_hold`.
inline void set_own_entry(HoldTerms& terms, const Claimant& who) {
    const bool shared = terms.traits.shared;
    if (!terms.traits.has_claims()) return;
    if (shared && (terms.claim.weight != ClaimTerms::reader || who.writes_here)) return;
    const std::string& key = terms.keys->lock;
    const bool of_thread = shared && !who.owns_itself;
    terms.own_entry = of_thread ? reader_entry(key, who.caller)
                                : claim_entry("redlatch:claim:", who.acquisition, key);
    terms.joins = of_thread && terms.replicas == Replicas::none() &&
                  terms.min_hold == std::chrono::milliseconds::zero() && !who.others_poll;
}

}  // namespace redlatch::inline v0::detail
