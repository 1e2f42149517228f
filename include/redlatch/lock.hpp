#pragma once

#include <redlatch/async_result.hpp>
#include <redlatch/client.hpp>
#include <redlatch/clock.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/held.hpp>
#include <redlatch/lock_impl.hpp>
#include <redlatch/options.hpp>
#include <redlatch/policy/lock_policy.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/policy/simple.hpp>
#include <redlatch/policy/watchdog.hpp>
#include <redlatch/result.hpp>
#include <redlatch/types.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <mutex>  // std::lock_guard and its like, which a Lock is made for
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0 {

/// A handle on one lock: a name on a server, shared by all processes that use the same name. Handles
/// of one client on one name are the same lock. Models Lockable and TimedLockable, so `std::lock_guard`,
/// `std::unique_lock` and `std::scoped_lock` work on it. All members may be called from any thread.
///
/// | member              | free                | held by this thread            | held by another |
/// |---------------------|---------------------|--------------------------------|-----------------|
/// | `lock()`            | takes it            | nests, or throws `deadlock`    | waits           |
/// | `try_lock…()`       | takes it            | nests, or false after the wait | waits, or false |
/// | `unlock()`          | tells the observer  | ends the innermost hold        | as if free      |
///
/// "Nests" is for reentrant policies. Members speak of the calling thread's hold; a hold that `lock()` or
/// `try_lock()` took ends by the same thread's `unlock()` or `release()`, through any handle. It ends at the
/// latest when the handle that took it is destroyed. Only its `Held` ends a hold that `acquire()` took.
///
/// A lock that is held is not more than a lease: it ends on time even if its holder does not notice.
/// See `held()`, `lost()`, and the README on what no lock with a lease can promise.
///
/// A `std::scoped_lock` of two handles on one name never ends: it asks for the second one again and again.
template <LockPolicy Policy = Watchdog<Simple>>
class Lock {
    static_assert(Policy::key_type != KeyType::sorted_set || is_shared<Policy>,
                  "permits are a Semaphore's");

public:
    /// The policy.
    using policy_type = Policy;

    /// @{
    /// Makes a handle, without I/O. A name is bytes of any kind. Throws `LockError` with
    /// `Errc::invalid_argument` for:
    /// - a name that is empty, longer than 1 KiB, or begins with `redlatch:` or the client's `key_space`;
    /// - in a Cluster, a name with a closing brace and no hash tag;
    /// - an option outside its range, and a lease that is no longer than its `drift`;
    /// - over several masters, `replicas`, and a lease or `min_hold` longer than `longest_lease`.
    Lock(Client& client, std::string name, LockOptions options = {})
        : impl_(client, std::move(name), options, detail::traits_of<Policy>()) {}
    Lock(Client& client, const char* name, LockOptions options = {})
        : Lock(client, detail::string_of(name, "the lock's name"), options) {}
    Lock(Client& client, std::same_as<std::string_view> auto name, LockOptions options = {})
        : Lock(client, std::string{name}, options) {}
    /// @}
    Lock(Client& client, std::nullptr_t name, LockOptions options = {}) = delete;
    /// A lease stands among the options: `{.lease = 10s}`.
    template <class Name, class Count, class Unit>
    Lock(Client& client, const Name& name, std::chrono::duration<Count, Unit> lease) = delete;
    /// A braced list of names is for a `LockSet`. It must not be read as a string between two pointers.
    // NOLINTBEGIN(modernize-avoid-c-arrays): what a braced list of literals is
    template <std::size_t N>
        requires(N > 1)
    Lock(Client& client, const char* const (&names)[N], LockOptions options = {})
    = delete;
    // NOLINTEND(modernize-avoid-c-arrays)
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    /// Ends what `lock()` and `try_lock()` took through this handle and nobody unlocked, as `unlock()`
    /// does. Blocks for at most `command_timeout` in all.
    ~Lock() = default;

    /// The lock's name, which is its key.
    const std::string& name() const noexcept { return impl_.name(); }

    /// Takes the lock. Waits without limit, through faults of the server too; the observer hears of those. Throws
    /// `LockError`:
    /// - `denied`, `wrong_type`, `protocol` or `invalid_argument` where the lock can never be had;
    /// - `deadlock` where this thread holds it and it does not nest, or reads it and asks to write;
    /// - `lost`, once, where this call finds that the outer hold of a nested one is gone; where that is known
    ///   already, it takes the lock anew, and the lost hold is still to be unlocked;
    /// - `unavailable` where the system has no thread or descriptor for the renewal that a watchdog needs;
    /// - `cancelled` where the client is closed.
    void lock() { impl_.take({}); }

    /// The same with this acquisition's lease.
    void lock(Lease lease) { impl_.take({.lease = lease}); }

    /// Tries once. False only where the lock is taken: by somebody else or, if it does not nest, by this
    /// thread. A fault throws `LockError`. Blocks for at most `command_timeout`.
    [[nodiscard]] bool try_lock() { return impl_.try_take({.wait = Wait::none()}); }

    /// Waits for at most `wait`, and 50 ms for the answer to a last try; a `wait` of zero or less is
    /// `try_lock()`. False only where the lock was taken until then. A fault that lasted until then throws
    /// `LockError`. Where the server is silent while another thread of this process asks it, this call
    /// returns false if its wait ends within the first 200 ms of that, and throws if it ends later.
    [[nodiscard]] bool try_lock_for(Wait wait) { return impl_.try_take({.wait = wait}); }

    /// The same until a point in time of any clock. The clock is read once: setting it meanwhile changes
    /// nothing.
    template <class AnyClock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<AnyClock, Duration>& deadline) {
        return impl_.try_take({.wait = detail::time_left(deadline)});
    }

    /// The same as `try_lock_for(wait)` with this acquisition's lease.
    [[nodiscard]] bool try_lock(Wait wait, Lease lease) {
        return impl_.try_take({.wait = wait, .lease = lease});
    }

    /// Ends the calling thread's innermost hold, as `release()` does, and waits as
    /// `LockOptions::release_mode` says: for at most `command_timeout`. The outcome goes to the
    /// observer.
    void unlock() noexcept { impl_.unlock(); }

    /// Takes the lock for reading, which any number may have at the same time; only with a policy that is shared,
    /// such as `Shared`. Waits without limit, and throws as `lock()` does. A thread that has the lock, for reading or
    /// writing, gets one more acquisition of that hold: at once, without a command, and with that hold's validity.
    void lock_shared() requires is_shared<Policy> { impl_.take_shared({}); }
    /// The same with this acquisition's lease.
    void lock_shared(Lease lease) requires is_shared<Policy> {
        impl_.take_shared({.lease = lease});
    }

    /// Tries once to take the lock for reading. False only where somebody writes, or waits in
    /// front; a fault throws `LockError`. Blocks for at most `command_timeout`.
    [[nodiscard]] bool try_lock_shared() requires is_shared<Policy> {
        return impl_.try_take_shared({.wait = Wait::none()});
    }

    /// The same, but waits for at most `wait`, and 50 ms for the answer to a last try.
    [[nodiscard]] bool try_lock_shared_for(Wait wait) requires is_shared<Policy> {
        return impl_.try_take_shared({.wait = wait});
    }

    /// The same until a point in time of any clock. The clock is read once: setting it meanwhile changes
    /// nothing.
    template <class AnyClock, class Duration>
    [[nodiscard]] bool try_lock_shared_until(
        const std::chrono::time_point<AnyClock, Duration>& deadline) requires is_shared<Policy> {
        return impl_.try_take_shared({.wait = detail::time_left(deadline)});
    }

    /// The same as `try_lock_shared_for(wait)` with this acquisition's lease.
    [[nodiscard]] bool try_lock_shared(Wait wait, Lease lease) requires is_shared<Policy> {
        return impl_.try_take_shared({.wait = wait, .lease = lease});
    }

    /// Ends the calling thread's innermost reading, otherwise as `unlock()` does.
    void unlock_shared() noexcept requires is_shared<Policy> { impl_.unlock_shared(); }

    /// The same with its outcome, as `release()` does.
    Result<Release> release_shared() noexcept requires is_shared<Policy> {
        return impl_.release_shared();
    }

    /// Takes the lock for reading, as an object. Never throws; otherwise as `acquire()`.
    [[nodiscard]] Result<Held> acquire_shared(
        const AcquireOptions& options = {}) noexcept requires is_shared<Policy> {
        return impl_.acquire_shared(options);
    }

    /// Turns the calling thread's writing into reading, without a moment in which nobody has the
    /// lock. The reading ends by `unlock_shared()`, or with its `Held`. Readers that wait in front
    /// get in. A thread that ends its writing by `unlock()` and still reads does the same. Blocks
    /// for at most `command_timeout`.
    ///
    /// Errors: `not_held`; `lost`; others where it is not known whether the server has heard of it. Then the hold
    /// counts as reading here, and as writing at the server until its next renewal or its end.
    Result<void> downgrade() noexcept requires is_shared<Policy> { return impl_.downgrade(); }

    /// Takes the lock as an object that owns it. Blocks for `options.wait`, and 50 ms for the answer to a last try; a
    /// single try for at most `command_timeout`. Never throws.
    ///
    /// Errors:
    /// - `timed_out` where the lock was taken until the end of the wait.
    /// - `cancelled` where `options.stop` or the end of the client ended the wait.
    /// - `unavailable`, `no_quorum` or `not_replicated` for a fault that lasted until the end of the wait.
    /// - Those that `lock()` throws.
    [[nodiscard]] Result<Held> acquire(const AcquireOptions& options = {}) noexcept {
        return impl_.acquire(options);
    }

    /// As `acquire()`, without a thread that waits: begins at `co_await`, which gives a `Result<Held>`. The hold is
    /// the `Held`'s own, as with `Owner::hold`: a coroutine is no thread. It waits in one queue with blocking
    /// calls. `stop` ends the wait with `Errc::cancelled`, unless the lock was delivered before. A watchdog
    /// begins to renew it when it is delivered. `Errc::lost` says that its validity had ended by then. This
    /// handle may be destroyed meanwhile.
    [[nodiscard]] AsyncResult<Held> async_acquire(const AsyncOptions& options = {},
                                                  std::stop_token stop = {}) {
        return detail::AsyncAccess::awaitable(impl_.acquire_call(options, std::move(stop)));
    }

    /// The same; begins at once, and calls `done(Result<Held>)` once. `done` runs on `executor`; if that is
    /// null, it runs where an `AsyncResult` would resume a coroutine. It never runs within this call, but on
    /// another thread it may run before this returns. An exception of `done` ends the program.
    template <CompletionOf<Held> Done>
    void async_acquire(const AsyncOptions& options, std::stop_token stop, Done done,
                       Executor* executor = nullptr) {
        detail::AsyncAccess::call_back(impl_.acquire_call(options, std::move(stop)),
                                       std::move(done), executor);
    }

    /// As `acquire_shared()`, without a thread that waits. One thread may have several at a time: each is a hold of its
    /// own. All else is as of `async_acquire()`.
    [[nodiscard]] AsyncResult<Held> async_acquire_shared(
        const AsyncOptions& options = {}, std::stop_token stop = {}) requires is_shared<Policy> {
        return detail::AsyncAccess::awaitable(impl_.acquire_shared_call(options, std::move(stop)));
    }

    /// The same; begins at once, and calls `done(Result<Held>)` on `executor`, where there is one.
    template <CompletionOf<Held> Done>
    void async_acquire_shared(const AsyncOptions& options, std::stop_token stop, Done done,
                              Executor* executor = nullptr) requires is_shared<Policy> {
        detail::AsyncAccess::call_back(impl_.acquire_shared_call(options, std::move(stop)),
                                       std::move(done), executor);
    }

    /// Ends the calling thread's innermost hold made with `lock()` or `try_lock()`. Outcomes, errors
    /// and bounds are those of `Held::release()`.
    Result<Release> release() noexcept { return impl_.release(); }

    /// Makes the calling thread's hold last longer; see `Held::extend()`.
    Result<void> extend(Lease lease) noexcept { return impl_.extend(lease); }

    /// Whether the calling thread holds the lock now, with its validity running. No I/O.
    bool held() const noexcept { return impl_.held(); }

    /// How much of the calling thread's validity is left, rounded down; 0 without a hold. No I/O.
    std::chrono::milliseconds remaining() const noexcept { return impl_.remaining(); }

    /// The state of the calling thread's hold. No I/O.
    HoldState state() const noexcept { return impl_.state(); }

    /// Fires when the calling thread's hold is lost; see `Held::lost()`. Throws `std::bad_alloc` where there
    /// is no memory for it.
    std::stop_token lost() const { return impl_.lost(); }

    /// The fencing token of the calling thread's hold, also after its validity has ended; 0 without a
    /// hold. See `Held::fence()`. Only with a policy that is `Fenced`. No I/O.
    std::uint64_t fence() const noexcept requires is_fenced<Policy> { return impl_.fence(); }

    /// Asks the server who holds the lock. Blocks for at most `command_timeout`.
    ///
    /// Errors: `unavailable`; `no_quorum` over several masters; `denied`; `wrong_type`; `protocol`; `cancelled` where
    /// the client is closed.
    Result<LockInfo> inspect() const noexcept { return impl_.inspect(); }

    /// As `inspect()`, without blocking. Begins when it is awaited.
    [[nodiscard]] AsyncResult<LockInfo> async_inspect() const {
        return detail::AsyncAccess::awaitable(impl_.inspect_call());
    }

    /// The same; begins at once, and calls `done(Result<LockInfo>)` on `executor`, where there is
    /// one.
    template <CompletionOf<LockInfo> Done>
    void async_inspect(Done done, Executor* executor = nullptr) const {
        detail::AsyncAccess::call_back(impl_.inspect_call(), std::move(done), executor);
    }

    /// An operator's tool: deletes the lock, whoever holds it. Blocks for at most
    /// `command_timeout`. A holder elsewhere learns of it at its next renewal or extension, or when
    /// its lease ends: until then two holders may believe that they have the lock. If more than two hundred
    /// hold a shared lock, this also removes holders that come meanwhile. Errors as of `inspect()`.
    Result<Forced> force_unlock() noexcept { return impl_.force_unlock(); }

    /// @{
    /// The same only if `owner` holds the lock: a whole owner token, as `inspect()` shows it. `absent` where
    /// somebody else holds it, or nobody. Removes a holder, never a waiter. Threads of one process that read
    /// share one owner token, and lose the lock together. An empty owner, or a null
    /// pointer, is `invalid_argument` before any I/O.
    Result<Forced> force_unlock(std::string_view owner) noexcept {
        return impl_.force_unlock(owner);
    }
    Result<Forced> force_unlock(const char* owner) noexcept {
        return force_unlock(owner == nullptr ? std::string_view{} : std::string_view{owner});
    }
    /// @}

    /// Goes on with a hold that another process gave away by `Held::detach()`. It has this lock's lease, a new
    /// owner token and, with `Fenced`, a new fencing token; the giver's `min_hold` is over. Waits
    /// for nobody, and blocks for at most `command_timeout`.
    ///
    /// Errors:
    /// - `lost` where the ticket's time is over, or it was adopted before.
    /// - `invalid_argument` for a text that is no ticket, for a policy whose scripts cannot move a lock, and
    ///   where several masters decide.
    /// - Others where the server gave no answer. Then the ticket may be used up; the lock is free at the end of
    ///   its lease at the latest.
    [[nodiscard]] Result<Held> adopt(const Ticket& ticket, Owner owner = Owner::thread) noexcept {
        return impl_.adopt(ticket, owner);
    }

private:
    detail::LockImpl impl_;
};

}  // namespace redlatch::inline v0
