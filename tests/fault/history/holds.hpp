#pragma once

#include "history.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace redlatch::test::fault {

/// A lock in one client's hands, from its outermost acquisition to the release of the last one.
struct HoldRecord {
    int process = 0;
    std::uint64_t number = 0;
    std::string lock;
    std::string policy;
    std::uint64_t fence = 0;
    bool reads = false;     ///< of a lock that many may read
    long long permits = 0;  ///< of a semaphore: so many,
    long long of = 0;       ///< of so many in all
    Time invoked{};         ///< the call that took it
    Time acquired{};        ///< when that was back

    /// When the client could rely on the lock: what it was told of its validity, up to the moment at
    /// which it began to release the lock, or was told that it is lost.
    std::vector<Span> relied_on;

    /// By all that the client was told, the validity ends between these two.
    Time valid_until{};
    Time valid_at_most{};

    std::optional<Event> release_invoke;  ///< of the last release
    std::optional<Event> release_end;
    std::optional<Time> lost;   ///< when `lost()` fired
    std::optional<Time> asked;  ///< since when somebody looks whether it does

    [[nodiscard]] std::string name() const {
        return std::to_string(process) + "/" + std::to_string(number) + " (" + policy + ")";
    }
};

/// Whether the two may be there at the same time, as readers are; holders of permits, as far as those suffice.
[[nodiscard]] bool share(const HoldRecord& one, const HoldRecord& other);

/// All holds of a history, in the order of their beginning.
[[nodiscard]] std::vector<HoldRecord> holds_of(const History& history);

/// The same, lock by lock.
[[nodiscard]] std::vector<std::vector<HoldRecord>> holds_by_lock(const History& history);

}  // namespace redlatch::test::fault
