#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/policy/scripts.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

// The commands about a lock, whoever holds it. They borrow keys and owner, and must not outlive them.

/// With the lock's four keys; the scripts of one with claims need them all.
inline Call call_with_four_keys(const LockKeys& keys, const PolicyTraits& traits,
                                const Script& script, std::initializer_list<Argument> arguments,
                                ReplyShape shape = ReplyShape::integer) {
    const bool counts = traits.has_claims();
    const std::string& last = counts && !traits.shared ? keys.permits : keys.fence;
    const Call call{script, {keys.lock, keys.queue, keys.waiters, last}, arguments, shape};
    return call.with_all_keys(counts).for_type(type_of(traits.key_type));
}

/// Asks who has it, how many wait, and how many permits there are.
inline Call inspect_call(const LockKeys& keys, const PolicyTraits& traits) {
    return call_with_four_keys(keys, traits, traits.scripts->inspect,
                               {std::string_view{}, Argument::server()},
                               traits.has_claims() ? ReplyShape::claims : ReplyShape::lock_info);
}

/// Takes it away from that owner, however many permits that has.
inline Call force_unlock_call(const LockKeys& keys, const PolicyTraits& traits,
                              std::string_view owner) {
    const Script& script = traits.scripts->force_unlock;
    if (!traits.has_claims()) {
        return call_with_four_keys(keys, traits, script, {owner, Argument::server()});
    }
    constexpr std::int64_t any_number_of_permits = 0;
    const std::int64_t weight = traits.shared ? ClaimTerms::reader : any_number_of_permits;
    return call_with_four_keys(keys, traits, script, {owner, Argument::server(), weight});
}

/// Sets the number of permits as of `issued`, by the server's clock; with 0 it only asks for the time.
inline Call set_permits_call(const LockKeys& keys, const PolicyTraits& traits, std::int64_t number,
                             std::int64_t issued) {
    return call_with_four_keys(
        keys, traits, traits.scripts->set_permits,
        {std::string_view{}, Argument::server(), number, issued, Argument::server_deadline()});
}

}  // namespace redlatch::inline v0::detail
