#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace redlatch::test::fault {

/// From one to the other, drawn at random.
struct Range {
    std::chrono::milliseconds least{0};
    std::chrono::milliseconds most{0};

    friend bool operator==(const Range&, const Range&) = default;
};

/// What the threads of a client process do all day: they take a lock, work with it, and give it back.
/// Chances are in percent.
struct Habits {
    Range lease{std::chrono::milliseconds{100}, std::chrono::milliseconds{600}};
    Range wait{std::chrono::milliseconds{50}, std::chrono::milliseconds{4000}};
    Range work{std::chrono::milliseconds{0}, std::chrono::milliseconds{15}};
    int no_wait = 15;     ///< tries once
    int polls = 30;       ///< waits by asking again and again
    int nests = 30;       ///< takes the lock again, if it nests and if it doesn't
    int extends = 20;     ///< sets the lease anew
    int at_the_end = 20;  ///< of those: when it is nearly over
    int listens = 70;     ///< asks to be told by `lost()`
    int lingers = 4;      ///< works on until the lease is over
    int hangs = 2;        ///< sleeps until long after that
    int shares = 5;       ///< gives a `Held` to another thread, and extends meanwhile
    int mixes = 0;        ///< nests with and without a watchdog
    int endless = 0;      ///< waits without limit
    Range brief{std::chrono::milliseconds{10}, std::chrono::milliseconds{90}};
    int briefly = 0;  ///< has one of these leases
    Range lasting{std::chrono::milliseconds{2000}, std::chrono::milliseconds{2500}};
    int lastingly = 0;    ///< or one of these
    int reads = 60;       ///< takes a lock that can be shared for reading
    int downgrades = 25;  ///< goes on reading where it has written
    int cancels = 10;     ///< asks an asynchronous call that waits to end
    int abandons = 5;     ///< is a coroutine that is destroyed while it waits
    int stalls = 1;       ///< keeps the loop that its completions run on

    [[nodiscard]] std::chrono::milliseconds longest_lease() const {
        const bool lasts = lastingly > 0 || mixes > 0;
        return lasts ? std::max(lease.most, lasting.most) : lease.most;
    }

    friend bool operator==(const Habits&, const Habits&) = default;
};

/// Some locks are kept so much longer for a dead holder.
inline constexpr std::chrono::milliseconds longest_lock_delay{100};

/// What one client process is told, in one line of JSON.
struct ClientPlan {
    std::vector<std::string> servers;  ///< where the locks are: its links
    std::string store;                 ///< where the resource is that they protect
    std::string history;               ///< the file to write
    std::uint64_t seed = 0;
    std::string subject;  ///< which locks: "library", or the name of a seeded bug
    int threads = 3;
    int coroutines = 2;  ///< beside them, on one loop
    int names = 2;       ///< locks per key type
    Range command_timeout{std::chrono::milliseconds{150}, std::chrono::milliseconds{900}};
    bool only_fences = false;  ///< the store does not refuse writes that are late, only stale ones
    bool trusts_masters = false;  ///< several of them, when they restart: a seeded bug
    bool slow_observer = false;   ///< it sleeps at each event, and hangs at some
    bool closes = false;  ///< ends its client while threads of its own use it, and not after them
    Habits habits{};

    /// How long a master that has restarted may have forgotten a lock for.
    [[nodiscard]] std::chrono::milliseconds longest_lease() const {
        if (trusts_masters) return std::chrono::milliseconds{0};
        return habits.longest_lease() + longest_lock_delay;
    }

    friend bool operator==(const ClientPlan&, const ClientPlan&) = default;
};

[[nodiscard]] std::string to_text(const ClientPlan& plan);
[[nodiscard]] ClientPlan plan_from_text(const std::string& text);

}  // namespace redlatch::test::fault
