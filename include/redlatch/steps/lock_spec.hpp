#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/options.hpp>
#include <redlatch/policy/lock_keys.hpp>
#include <redlatch/policy/lock_policy.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace redlatch::inline v0::detail {

class SharedClient;

/// What a `Lock` was made of, checked.
struct LockSpec {
    std::shared_ptr<SharedClient> client;
    std::shared_ptr<const LockKeys> keys;
    PolicyTraits traits;
    LockOptions options;
    ClaimTerms claim{};

    const std::string& key() const noexcept { return keys->lock; }

    /// The same for reading.
    LockSpec reading() const {
        LockSpec spec = *this;
        spec.claim.weight = ClaimTerms::reader;
        return spec;
    }
};

/// What a writer takes of a shared lock; nothing of another.
inline ClaimTerms writing_claim(const PolicyTraits& traits) noexcept {
    if (!traits.shared) return {};
    return {.weight = ClaimTerms::writer, .limit = ClaimTerms::writer - 1};
}

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
