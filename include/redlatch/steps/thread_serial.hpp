#pragma once

#include <redlatch/core/lock_owner.hpp>

#include <atomic>
#include <cstdint>

namespace redlatch::inline v0::detail {

inline ThreadSerial this_thread_serial() noexcept {
    static std::atomic<std::uint64_t> last{0};
    thread_local const ThreadSerial mine{last.fetch_add(1, std::memory_order_relaxed) + 1};
    return mine;
}

/// The calling thread as an owner.
inline LockOwner this_thread() noexcept {
    return LockOwner::thread(this_thread_serial());
}

}  // namespace redlatch::inline v0::detail
