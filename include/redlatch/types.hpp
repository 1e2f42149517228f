#pragma once

#include <redlatch/clock.hpp>

#include <chrono>
#include <compare>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0 {

/// How long a call may wait for a lock, made from any duration. Zero or less: exactly one try.
/// `Wait::unlimited()`, and any duration too large to count in nanoseconds: without limit.
class Wait {
public:
    /// As long as `d`.
    template <class Rep, class Period>
    constexpr Wait(std::chrono::duration<Rep, Period> d) noexcept
        : value_(detail::saturating_cast<std::chrono::nanoseconds>(d)) {}

    /// Until the lock is there.
    static constexpr Wait unlimited() noexcept { return std::chrono::nanoseconds::max(); }
    /// One try.
    static constexpr Wait none() noexcept { return std::chrono::nanoseconds::zero(); }

    /// The duration; for `unlimited()` the longest that there is.
    constexpr std::chrono::nanoseconds duration() const noexcept { return value_; }
    /// Whether it has no end.
    constexpr bool is_unlimited() const noexcept { return *this == unlimited(); }
    /// Whether it allows one try only.
    constexpr bool is_none() const noexcept { return value_ <= std::chrono::nanoseconds::zero(); }

    /// Compares their durations.
    friend constexpr auto operator<=>(Wait, Wait) = default;

private:
    std::chrono::nanoseconds value_;
};

/// How long the server keeps a lock for a holder that it hears nothing of, made from any duration
/// and counted in whole milliseconds, rounded down. Every call that takes a lease refuses one
/// outside `[min(), max()]` with `Errc::invalid_argument`.
class Lease {
public:
    /// As long as `d`.
    template <class Rep, class Period>
    constexpr Lease(std::chrono::duration<Rep, Period> d) noexcept
        : value_(detail::saturating_cast<std::chrono::milliseconds>(d)) {}

    /// The shortest: 10 ms.
    static constexpr Lease min() noexcept { return std::chrono::milliseconds{10}; }
    /// The longest: 24 days.
    static constexpr Lease max() noexcept { return std::chrono::days{24}; }

    /// The duration.
    constexpr std::chrono::milliseconds duration() const noexcept { return value_; }

    /// Compares their durations.
    friend constexpr auto operator<=>(Lease, Lease) = default;

private:
    std::chrono::milliseconds value_;
};

/// What became of a release.
enum class Release {
    /// This hold is over: its lock is free, goes to the next waiter, is kept for `min_hold`, or other readers
    /// still have it.
    released,
    still_held,  ///< a nested hold ended, the outer one goes on
    expired,     ///< it was gone, or known to be lost: its lease ran out, or somebody removed it
    not_held,    ///< the caller held nothing; nothing was done
};

/// What became of a forced unlock.
enum class Forced {
    removed,  ///< somebody's lock was deleted
    absent,   ///< there was none
};

/// What the holder may rely on, by its own clock.
enum class HoldState {
    none,       ///< nothing is held
    held,       ///< validity is running
    uncertain,  ///< a renewal got no answer; validity is still running
    lost,       ///< validity has ended, or the lock is known to be gone
};

/// A lock on its way from one process to another: what `Held::detach()` returns, and `Lock::adopt()` takes.
/// Plain text without spaces, for a message, an argument or a file. Any process that has it can take the
/// lock, once.
class Ticket {
public:
    /// @{
    /// From the text of another one. A null pointer is an empty text, which no lock adopts.
    explicit Ticket(std::string text) : text_(std::move(text)) {}
    explicit Ticket(const char* text) : text_(text == nullptr ? "" : text) {}
    explicit Ticket(std::same_as<std::string_view> auto text) : text_(text) {}
    /// @}

    /// The text that has to get to the other process.
    const std::string& text() const noexcept { return text_; }

    /// Whether they have the same text.
    friend bool operator==(const Ticket&, const Ticket&) = default;

private:
    std::string text_;
};

/// One holder of a shared lock, or of a semaphore's permits.
struct Holder {
    std::string owner{};               ///< the owner's token
    std::uint64_t weight = 0;          ///< how many permits
    bool writes = false;               ///< has a shared lock alone
    std::chrono::milliseconds ttl{0};  ///< the rest of the lease
};

/// What Redis says about a lock at one moment.
struct LockInfo {
    /// Somebody holds it, or it is kept for a ticket (`:ticket` ends the owner) or a `min_hold` (`:min_hold`).
    bool locked = false;
    std::string owner;  ///< the owner's token; a foreign client's own value
    /// 1 for a lock that doesn't nest. Counts of threads that nest at the same moment may arrive in another
    /// order; the next one, or the release, sets it right.
    std::uint64_t hold_count = 0;
    /// Time until the key expires; without a value where it never does or nobody holds it.
    std::optional<std::chrono::milliseconds> ttl;
    /// Places in the server's queue: one for each process; of a shared lock one for all of a process that write, one
    /// for its threads that read, and one for each that reads with `Owner::hold`. A waiter that polls is not
    /// counted. A dead one is counted until releases have passed it over for five seconds, or the queue has
    /// expired.
    std::uint64_t waiters = 0;
    /// The holders of a shared lock, two hundred at most, the next to end first. `hold_count` is the number
    /// of all holders, `owner` the first of them.
    std::vector<Holder> holders{};
};

/// What Redis says about a semaphore at one moment.
struct SemaphoreInfo {
    std::uint64_t permits = 0;      ///< as `set_permits()` has set it, else as this object believes
    std::uint64_t taken = 0;        ///< may be more than `permits`, if that was reduced
    std::uint64_t waiters = 0;      ///< places in the server's queue, one for each that waits
    std::vector<Holder> holders{};  ///< two hundred at most, the next to end first
};

}  // namespace redlatch::inline v0
