#pragma once

#include <redlatch/core/slot.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// The keys of one lock: its own name, and those of its companions. In a Redis Cluster they all lie
/// in one slot, which goes by the first `{…}` in a key that is not empty: a name without one becomes
/// the companions' tag, a name with one brings it along. `{` or `:` behind the prefix tells the two
/// apart, so no two names share a companion.
struct LockKeys {
    explicit LockKeys(std::string name)
        : lock(std::move(name)),
          queue(companion("redlatch:queue:", lock)),
          waiters(companion("redlatch:waiters:", lock)),
          fence(companion("redlatch:fence:", lock)),
          permits(companion("redlatch:permits:", lock)) {}

    /// The companions of all locks, as patterns of an ACL.
    static constexpr std::string_view companion_patterns =
        "~redlatch:queue:* ~redlatch:waiters:* ~redlatch:fence:*";

    std::string lock;
    std::string queue;    ///< who waits, in order
    std::string waiters;  ///< what they wait for
    std::string fence;    ///< the last fencing token
    std::string permits;  ///< of a semaphore: how many permits there are, where that was set

    /// Whether a Cluster keeps them together. Not for names with a brace that begins no tag, such as
    /// `a}b` or `{}c`.
    bool in_one_slot() const noexcept {
        const unsigned slot = slot_of(lock);
        return slot_of(queue) == slot && slot_of(waiters) == slot && slot_of(fence) == slot;
    }

private:
    static bool has_hash_tag(std::string_view name) {
        const std::size_t open = name.find('{');
        if (open == std::string_view::npos) return false;
        const std::size_t close = name.find('}', open + 1);
        return close != std::string_view::npos && close > open + 1;
    }

    static std::string companion(std::string prefix, const std::string& name) {
        return has_hash_tag(name) ? std::move(prefix) + ":" + name
                                  : std::move(prefix) + "{" + name + "}";
    }
};

}  // namespace redlatch::inline v0::detail
