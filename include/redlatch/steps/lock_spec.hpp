#pragma once

#include <redlatch/core/claim_terms.hpp>
#include <redlatch/options.hpp>
#include <redlatch/policy/lock_keys.hpp>
#include <redlatch/policy/lock_policy.hpp>

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

}  // namespace redlatch::inline v0::detail
