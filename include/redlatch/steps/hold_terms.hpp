#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/core/lock_owner.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/types.hpp>

#include <cstdint>
#include <string>

namespace redlatch::inline v0::detail {

/// Where the lock table has a claim that excludes nobody here, under a number of its own. Begins as no lock's name may.
inline std::string claim_entry(const char* kind, std::uint64_t number, const std::string& key) {
    return kind + std::to_string(number) + ':' + key;
}

/// The same for what a thread reads.
inline std::string reader_entry(const std::string& key, LockOwner thread) {
    const auto serial = static_cast<std::uint64_t>(thread.thread().value_or(ThreadSerial{}));
    return claim_entry("redlatch:thread:", serial, key);
}

/// What a hold of that lock has to know.
inline HoldTerms terms_of(const LockSpec& spec, Lease lease) {
    return {.keys = spec.keys,
            .traits = spec.traits,
            .lease = lease,
            .drift = spec.options.drift,
            .lock_delay = spec.options.lock_delay,
            .max_hold = spec.options.max_hold,
            .replicas = spec.options.replicas,
            .min_hold = spec.options.min_hold,
            .claim = spec.claim};
}

}  // namespace redlatch::inline v0::detail
