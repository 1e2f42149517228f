#pragma once

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

    const std::string& key() const noexcept { return keys->lock; }
};

}  // namespace redlatch::inline v0::detail
