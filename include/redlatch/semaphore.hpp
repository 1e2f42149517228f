#pragma once

#include <redlatch/async_result.hpp>
#include <redlatch/client.hpp>
#include <redlatch/clock.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/held.hpp>
#include <redlatch/options.hpp>
#include <redlatch/policy/permits.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/policy/watchdog.hpp>
#include <redlatch/result.hpp>
#include <redlatch/semaphore_impl.hpp>
#include <redlatch/types.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0 {

/// A number of permits that processes share. Each has a lease: a dead holder's permit comes back when that ends.
/// First come, first served: a caller that wants several permits waits for all of them, and those behind it wait
/// too. All members may be called from any thread.
///
/// It counts what is held, and is no signal: `release()` gives back what this object has acquired, and
/// never makes a permit that nobody had.
///
/// `permits` counts where nobody has called `set_permits()`. If clients bring different numbers, each goes by
/// its own: it gets a permit if then no more than its number are taken. Several masters cannot share
/// permits, as three majorities may hold two of them; nor is there a fencing token, as no number puts
/// several holders into an order.
template <LockPolicy Policy = Watchdog<Permits>>
class Semaphore {
    static_assert(Policy::key_type == KeyType::sorted_set && !is_shared<Policy>,
                  "a Semaphore's policy is Permits, or Watchdog<Permits>");
    static_assert(!is_fenced<Policy>,
                  "a Semaphore cannot be Fenced: one number cannot order several holders; a "
                  "semaphore of one permit is a Lock<Fenced<…>>");

public:
    /// The policy.
    using policy_type = Policy;

    /// The most permits there can be: 999,999,998.
    static constexpr std::ptrdiff_t max() noexcept { return detail::SemaphoreImpl::max; }

    /// @{
    /// Makes a handle, without I/O. `permits` is from 0 to `max()`, and with 0 all wait for
    /// `set_permits()`. Throws `LockError` with `Errc::invalid_argument` for another number, a bad name or
    /// bad options as `Lock` does, and for a client with several masters.
    Semaphore(Client& client, std::string name, std::ptrdiff_t permits, LockOptions options = {})
        : impl_(client, std::move(name), permits, options, detail::traits_of<Policy>()) {}
    Semaphore(Client& client, const char* name, std::ptrdiff_t permits, LockOptions options = {})
        : Semaphore(client, detail::string_of(name, "the semaphore's name"), permits, options) {}
    Semaphore(Client& client, std::same_as<std::string_view> auto name, std::ptrdiff_t permits,
              LockOptions options = {})
        : Semaphore(client, std::string{name}, permits, options) {}
    /// @}
    Semaphore(Client& client, std::nullptr_t name, std::ptrdiff_t permits,
              LockOptions options = {}) = delete;
    /// A semaphore has one name. A braced list must not be read as a string between two pointers.
    // NOLINTBEGIN(modernize-avoid-c-arrays): what a braced list of literals is
    template <std::size_t N>
        requires(N > 1)
    Semaphore(Client& client, const char* const (&names)[N], std::ptrdiff_t permits,
              LockOptions options = {})
    = delete;
    // NOLINTEND(modernize-avoid-c-arrays)
    Semaphore(const Semaphore&) = delete;
    Semaphore& operator=(const Semaphore&) = delete;
    /// Gives back what `acquire()` and `try_acquire…()` took and nobody gave back. Blocks for at most
    /// `command_timeout` in all.
    ~Semaphore() = default;

    /// The semaphore's name, which is its key.
    const std::string& name() const noexcept { return impl_.name(); }

    /// Takes a permit; it belongs to this object, and any thread may give it back. Waits without limit, and
    /// throws as `Lock::lock()` does.
    void acquire() { impl_.acquire(); }

    /// Tries once. False only where there is no permit, or somebody waits for some; a fault throws `LockError`.
    /// Blocks for at most `command_timeout`.
    [[nodiscard]] bool try_acquire() { return impl_.try_acquire(Wait::none()); }

    /// The same, and waits for at most `wait`, and 50 ms for the answer to a last try.
    [[nodiscard]] bool try_acquire_for(Wait wait) { return impl_.try_acquire(wait); }

    /// The same until a point in time of any clock. The clock is read once: setting it meanwhile changes
    /// nothing.
    template <class AnyClock, class Duration>
    [[nodiscard]] bool try_acquire_until(
        const std::chrono::time_point<AnyClock, Duration>& deadline) {
        return impl_.try_acquire(detail::time_left(deadline));
    }

    /// Gives back `count` permits that this object acquired, lost ones first, then the oldest; never those of
    /// a `take()`. Blocks for at most `command_timeout` in all. The worst of their outcomes counts:
    /// an error as of `Held::release()`, `not_held`, `expired`. An object that has acquired fewer gives those
    /// back and answers `not_held`. `invalid_argument` for a count below 1.
    Result<Release> release(std::ptrdiff_t count = 1) noexcept { return impl_.release(count); }

    /// Takes permits as an object that owns them: all that are asked for, or none. Blocks as `Lock::acquire()` does.
    /// Never throws. Errors as of `Lock::acquire()`; `invalid_argument` for fewer than 1, and for more than the
    /// `permits` of this object, or than 1 where it was made with 0. Where that 0 or `set_permits()` makes
    /// the permits fewer, the call waits until there are enough. Callers behind it in the queue are served
    /// meanwhile.
    [[nodiscard]] Result<Held> take(const TakeOptions& options = {}) noexcept {
        return impl_.take(options);
    }

    /// As `take()` without a thread that waits, for `co_await`: gives a `Result<Held>`. Errors and
    /// order are those of `take()`; all else is as of `Lock::async_acquire()`.
    [[nodiscard]] AsyncResult<Held> async_take(const AsyncTakeOptions& options = {},
                                               std::stop_token stop = {}) {
        return detail::AsyncAccess::awaitable(impl_.take_call(options, std::move(stop)));
    }

    /// The same; begins at once, and calls `done(Result<Held>)` on `executor`, where there is one.
    template <CompletionOf<Held> Done>
    void async_take(const AsyncTakeOptions& options, std::stop_token stop, Done done,
                    Executor* executor = nullptr) {
        detail::AsyncAccess::call_back(impl_.take_call(options, std::move(stop)), std::move(done),
                                       executor);
    }

    /// Says how many permits there are from now on, for all clients; 0 lets nobody in. Where more
    /// are taken, nobody loses one, and nobody gets one until enough came back. The last setting
    /// that was issued counts, and is forgotten a day after the last use of the semaphore. It takes two
    /// commands, and blocks for at most `command_timeout`.
    ///
    /// Errors: `invalid_argument` for a negative number, and for more than `max()`; those of `inspect()`.
    Result<void> set_permits(std::ptrdiff_t number) noexcept { return impl_.set_permits(number); }

    /// Asks the server who has permits, and how many wait. Blocks for at most `command_timeout`.
    ///
    /// Errors: `unavailable`; `denied`; `wrong_type`; `protocol`; `cancelled` where the client is closed.
    Result<SemaphoreInfo> inspect() const noexcept { return impl_.inspect(); }

    /// As `inspect()`, without blocking. Begins when it is awaited.
    [[nodiscard]] AsyncResult<SemaphoreInfo> async_inspect() const {
        return detail::AsyncAccess::awaitable(impl_.inspect_call());
    }

    /// The same; begins at once, and calls `done(Result<SemaphoreInfo>)` on `executor`, where there is one.
    template <CompletionOf<SemaphoreInfo> Done>
    void async_inspect(Done done, Executor* executor = nullptr) const {
        detail::AsyncAccess::call_back(impl_.inspect_call(), std::move(done), executor);
    }

    /// @{
    /// An operator's tool: takes back the permits of one acquisition, and lets waiters in. `owner` is a whole token
    /// as `inspect()` shows it. A holder in this process finds its permits lost at once, one elsewhere at its next
    /// renewal. `absent` for an owner that has none, `invalid_argument` for no owner. It looks at 10,000 of
    /// the owners with more than one permit. Blocks for at most `command_timeout`. Other errors as of
    /// `inspect()`.
    Result<Forced> force_release(std::string_view owner) noexcept {
        return impl_.force_release(owner);
    }
    Result<Forced> force_release(const char* owner) noexcept {
        return force_release(owner == nullptr ? std::string_view{} : std::string_view{owner});
    }
    /// @}

private:
    detail::SemaphoreImpl impl_;
};

}  // namespace redlatch::inline v0
