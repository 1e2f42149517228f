#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/types.hpp>

namespace redlatch::inline v0::detail {

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
