#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/lock_table.hpp>
#include <redlatch/core/own_claim.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/steps/read_through.hpp>
#include <redlatch/steps/releasing.hpp>
#include <redlatch/steps/thread_serial.hpp>

#include <array>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Ends the innermost acquisition that a thread made for reading, or while it writes: one that it has now,
/// before one that it has lost.
inline LockTable::Ending end_reading(Session& session, const std::string& key, LockOwner thread) {
    const auto main = session.locks().find(key, thread);
    std::array entries{reader_entry(key, thread), key};
    if (main != nullptr && main->valid(Clock::now())) std::swap(entries[0], entries[1]);
    constexpr bool reads = true;
    auto ending = session.locks().end_innermost(entries[0], thread, reads);
    if (ending.kind != LockTable::Ending::Kind::nothing) return ending;
    return session.locks().end_innermost(entries[1], thread, reads);
}

/// Where the calling thread reads no more, the end of the handle has nothing of it to end: that entry is forgotten.
inline void forget_reading(Session& session, const std::string& key, ReadThrough& through) {
    const LockOwner me = this_thread();
    const std::string entry = reader_entry(key, me);
    if (session.locks().find(entry, me) == nullptr) through.remove(entry);
}

/// Ends what threads have read through a handle and not ended.
inline void end_all_read_through(Session& session, ReadThrough& read, const void* through,
                                 ReleaseMode mode, TimePoint give_up_at) {
    for (const std::string& entry : read.take()) {
        end_all_through(session, entry, through, mode, give_up_at);
    }
}

}  // namespace redlatch::inline v0::detail
