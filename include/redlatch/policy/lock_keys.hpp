#pragma once

#include <redlatch/core/key_space.hpp>
#include <redlatch/core/slot.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// The keys of one lock: its own name, and those of its companions, which begin with the key space. In a
/// Redis Cluster they all lie in one slot, which goes by the first `{…}` in a key that is not empty: a name
/// without one becomes the companions' tag, a name with one brings it along. `{` or `:` behind the prefix
/// tells the two apart, so no two names share a companion. The scripts find the key space in the queue's key.
struct LockKeys {
    explicit LockKeys(std::string name, std::string_view key_space = usual_key_space)
        : lock(std::move(name)),
          queue(companion(key_space, "queue:", lock)),
          waiters(companion(key_space, "waiters:", lock)),
          fence(companion(key_space, "fence:", lock)),
          permits(companion(key_space, "permits:", lock)) {}

    /// The companions of all locks, as patterns of an ACL.
    static std::string companion_patterns(std::string_view key_space) {
        std::string patterns;
        for (const char* const kind : {"queue:", "waiters:", "fence:", "permits:"}) {
            patterns.append(patterns.empty() ? "~" : " ~").append(key_space).append(kind) += '*';
        }
        return patterns;
    }

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
    static std::string companion(std::string_view key_space, const char* kind,
                                 const std::string& name) {
        std::string prefix = std::string{key_space} + kind;
        return hash_tag(name).empty() ? std::move(prefix) + "{" + name + "}"
                                      : std::move(prefix) + ":" + name;
    }
};

}  // namespace redlatch::inline v0::detail
