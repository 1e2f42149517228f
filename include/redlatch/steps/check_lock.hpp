#pragma once

#include <redlatch/core/validity.hpp>
#include <redlatch/error.hpp>
#include <redlatch/policy/lua.hpp>
#include <redlatch/service/shared_client.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

inline constexpr std::size_t longest_name = 1024;
inline constexpr std::string_view reserved_prefix = "redlatch:";
inline constexpr std::chrono::milliseconds longest_min_hold =
    std::chrono::ceil<std::chrono::milliseconds>(std::chrono::years{10});

/// Whether an uncontended acquire may be sent as the plain command `SET NX PX`.
inline bool takes_plain_set(const PolicyTraits& traits) {
    return !traits.fenced && traits.key_type == KeyType::string &&
           traits.scripts == &lua::on_string();
}

/// Whether any lock may have that lease.
inline Result<void> check_range(Lease lease) {
    if (lease >= Lease::min() && lease <= Lease::max()) return {};
    return Unexpected{invalid("the lease is not between 10 ms and 24 days")};
}

/// Whether it may be used with that drift.
inline Result<void> check_lease(Lease lease, const Drift& drift) {
    if (auto fits = check_range(lease); !fits) return fits;
    if (usable_part(lease, drift) <= Clock::duration::zero()) {
        return Unexpected{invalid("the lease is no longer than its drift")};
    }
    return {};
}

/// Whether a lease is no longer than the time for which a restarted one of several masters has no vote.
inline Result<void> check_longest(std::chrono::milliseconds whole_lease,
                                  std::chrono::milliseconds longest) {
    if (whole_lease <= longest) return {};
    return Unexpected{
        invalid("the lease, with its lock_delay, is longer than longest_lease, after "
                "which a restarted master has a vote again")};
}

/// The lease to acquire with, of a watched lock no longer than its `max_hold`; or why it is refused.
inline Result<Lease> check_lease(const LockSpec& spec, Lease lease) {
    auto fits = check_range(lease);
    if (spec.traits.watched) lease = std::min(lease, Lease{spec.options.max_hold});
    if (fits) fits = check_lease(lease, spec.options.drift);
    if (fits && spec.client != nullptr) {
        fits =
            check_longest(lease.duration() + spec.options.lock_delay, spec.client->longest_lease());
    }
    if (!fits) {
        fits.error().key = spec.key();
        return Unexpected{std::move(fits).error()};
    }
    return lease;
}

inline Result<void> check_name(std::string_view name, std::string_view key_space) {
    if (name.empty()) return Unexpected{invalid("the name is empty")};
    if (name.size() > longest_name) return Unexpected{invalid("the name exceeds 1 KiB")};
    if (name.starts_with(reserved_prefix)) {
        return Unexpected{invalid("names that begin with redlatch: are reserved")};
    }
    if (name.starts_with(key_space)) {
        return Unexpected{invalid("names that begin with the client's key_space, '" +
                                  printable(key_space) + "', are reserved")};
    }
    return {};
}

/// Whether a policy has the scripts for what it says it can do.
inline Result<void> check_policy(const PolicyTraits& traits) {
    const LockScripts& scripts = *traits.scripts;
    if (traits.reentrant && !traits.shared && scripts.nest.source().empty()) {
        return Unexpected{
            invalid("the policy is reentrant, and its scripts have no `nest`, which writes the "
                    "hold count")};
    }
    if (traits.shared && scripts.downgrade.source().empty()) {
        return Unexpected{invalid("the policy is shared, and its scripts have no `downgrade`")};
    }
    return {};
}

/// Why a lock of that kind keeps nobody out after its release.
inline const char* why_no_min_hold(const PolicyTraits& traits) {
    if (traits.shared) return "a shared lock has no min_hold";
    if (traits.has_claims()) return "a semaphore has no min_hold";
    return "min_hold needs the script `tombstone`, and this policy has none";
}

inline Result<void> check_options(const LockSpec& spec) {
    using std::chrono::milliseconds;
    const LockOptions& options = spec.options;
    if (options.backoff.min <= milliseconds::zero() || options.backoff.max <= options.backoff.min ||
        options.backoff.max > Lease::max().duration()) {
        return Unexpected{invalid("backoff needs 0 < min < max <= 24 days")};
    }
    const bool factor_fits = options.drift.factor >= 0 && options.drift.factor < 1;  // not for NaN
    if (!factor_fits || options.drift.floor < milliseconds::zero() ||
        options.drift.floor > Lease::max().duration()) {
        return Unexpected{invalid("drift needs 0 <= factor < 1 and 0 <= floor <= 24 days")};
    }
    if (options.lock_delay < milliseconds::zero() || options.lock_delay > Lease::max().duration()) {
        return Unexpected{invalid("lock_delay is not between 0 and 24 days")};
    }
    if (options.min_hold < milliseconds::zero() || options.min_hold > longest_min_hold) {
        return Unexpected{invalid("min_hold is not between 0 and ten years")};
    }
    if (options.min_hold > milliseconds::zero() && !spec.traits.can_keep) {
        return Unexpected{invalid(why_no_min_hold(spec.traits))};
    }
    if (options.wait_strategy != WaitStrategy::queued &&
        options.wait_strategy != WaitStrategy::polling) {
        return Unexpected{invalid("wait_strategy is none of its enumerators")};
    }
    if (options.release_mode != ReleaseMode::confirmed &&
        options.release_mode != ReleaseMode::sent) {
        return Unexpected{invalid("release_mode is none of its enumerators")};
    }
    if (options.replicas != Replicas::all() &&
        options.replicas.count() > Replicas::most().count()) {
        return Unexpected{invalid("replicas is no number from 0 to 1024")};
    }
    if (!spec.traits.watched && options.max_hold != milliseconds::max()) {
        return Unexpected{invalid(
            "max_hold is the end of a watchdog, and this policy has none: take Watchdog<…>, "
            "or set the lease")};
    }
    if (options.max_hold < Lease::min().duration()) {
        return Unexpected{invalid("max_hold is shorter than 10 ms")};
    }
    auto lease = check_lease(spec, options.lease);
    if (!lease) return Unexpected{std::move(lease).error()};
    return {};
}

/// What only a single master can do.
inline Result<void> check_for_several(const LockSpec& spec) {
    if (spec.client == nullptr || !spec.client->has_several_masters()) return {};
    if (spec.options.replicas != Replicas::none()) {
        return Unexpected{invalid("replicas are asked of a single master, and here are several")};
    }
    if (spec.options.min_hold > spec.client->longest_lease()) {
        return Unexpected{
            invalid("min_hold is longer than longest_lease, after which a restarted master has a "
                    "vote again")};
    }
    return {};
}

inline Result<LockSpec> check_spec(LockSpec spec) {
    const std::string_view key_space =
        spec.client != nullptr ? std::string_view{spec.client->key_space()} : usual_key_space;
    if (auto name = check_name(spec.key(), key_space); !name) {
        name.error().key = spec.key().substr(0, 100);
        return Unexpected{std::move(name).error()};
    }
    if (spec.client != nullptr && spec.client->has_slots() && !spec.keys->in_one_slot()) {
        Error error = invalid(
            "in a Cluster a name with a closing brace needs a hash tag: something between "
            "its first { and the next }");
        error.key = spec.key();
        return Unexpected{std::move(error)};
    }
    auto options = check_policy(spec.traits);
    if (options) options = check_options(spec);
    if (options) options = check_for_several(spec);
    if (!options) {
        options.error().key = spec.key();
        return Unexpected{std::move(options).error()};
    }
    return spec;
}

}  // namespace redlatch::inline v0::detail
