#pragma once

#include <redlatch/async_result.hpp>
#include <redlatch/client.hpp>
#include <redlatch/clock.hpp>
#include <redlatch/compilation.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/held.hpp>
#include <redlatch/net/per_process.hpp>
#include <redlatch/options.hpp>
#include <redlatch/policy/permits.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/policy/watchdog.hpp>
#include <redlatch/result.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/types.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if REDLATCH_DEFINITIONS
#include <redlatch/async/ready_call.hpp>
#include <redlatch/steps/acquire.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/claims.hpp>
#include <redlatch/steps/force_unlock.hpp>

#include <algorithm>
#include <iterator>
#endif

namespace redlatch::inline v0 {

namespace detail {

/// What a `Semaphore` does, whatever its policy. Its members are those of `Semaphore`, and documented there.
class SemaphoreImpl {
public:
    /// Less than what a writer takes of a lock.
    static constexpr std::ptrdiff_t max = 999'999'998;

    SemaphoreImpl(const Client& client, std::string name, std::ptrdiff_t permits,
                  const LockOptions& options, const PolicyTraits& traits);
    SemaphoreImpl(const SemaphoreImpl&) = delete;
    SemaphoreImpl& operator=(const SemaphoreImpl&) = delete;
    ~SemaphoreImpl();

    const std::string& name() const noexcept { return spec_.key(); }

    Result<Held> take(const TakeOptions& options) const noexcept;
    std::shared_ptr<AsyncCallFor<Held>> take_call(const AsyncTakeOptions& options,
                                                  std::stop_token stop) const;
    void acquire();
    bool try_acquire(Wait wait);
    Result<Release> release(std::ptrdiff_t count) noexcept;
    Result<void> set_permits(std::ptrdiff_t number) const noexcept;
    Result<SemaphoreInfo> inspect() const noexcept;
    Result<Forced> force_release(std::string_view owner) const noexcept;

private:
    Result<void> keep(Result<Held> taken);
    std::vector<Held> take_out(std::ptrdiff_t count);
    Result<LockSpec> taking(std::ptrdiff_t permits) const;
    Error bad(std::string what) const {
        return {Errc::invalid_argument, name(), {}, std::move(what), {}};
    }

    /// By `acquire` and its like, one permit each.
    struct Acquired {
        std::mutex mutex;
        std::vector<Held> permits;
    };

    const LockSpec spec_;
    PerProcess<Acquired> acquired_;
};

}  // namespace detail

/// A number of permits that processes share. Each has a lease: a dead holder's permit comes back when that ends.
/// First come, first served: a caller that wants several permits waits for all of them, and those behind it wait
/// too. All members may be called from any thread.
///
/// It counts what is held, and is no signal: `release()` gives back what this object has acquired, and
/// never makes a permit that nobody had.
///
/// `permits` counts where nobody has called `set_permits()`. Of clients that bring different numbers, each goes by
/// its own: it gets a permit where that makes no more than its number. Several masters cannot share
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

    /// The most permits there can be.
    static constexpr std::ptrdiff_t max() noexcept { return detail::SemaphoreImpl::max; }

    /// @{
    /// Makes a handle, without I/O. `permits` is not negative, and with 0 all wait for
    /// `set_permits()`. Throws `LockError` with `Errc::invalid_argument` for that, a bad name or
    /// bad options as `Lock` does, and for a client with several masters.
    Semaphore(Client& client, std::string name, std::ptrdiff_t permits, LockOptions options = {})
        : impl_(client, std::move(name), permits, options, detail::traits_of<Policy>()) {}
    Semaphore(Client& client, const char* name, std::ptrdiff_t permits, LockOptions options = {})
        : Semaphore(client, detail::string_of(name, "the semaphore's name"), permits, options) {}
    /// @}
    Semaphore(Client& client, std::nullptr_t name, std::ptrdiff_t permits,
              LockOptions options = {}) = delete;
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

    /// The same until a point in time of any clock. That is read once: a clock that is set meanwhile changes nothing.
    template <class AnyClock, class Duration>
    [[nodiscard]] bool try_acquire_until(
        const std::chrono::time_point<AnyClock, Duration>& deadline) {
        return impl_.try_acquire(detail::time_left(deadline));
    }

    /// Gives back so many permits that this object acquired, lost ones first, then the oldest; never those of
    /// a `take()`. Blocks for at most `command_timeout` in all. The worst of their outcomes counts:
    /// an error as of `Held::release()`, `not_held` where it had acquired fewer, `expired`.
    /// `invalid_argument` for a count below 1.
    Result<Release> release(std::ptrdiff_t count = 1) noexcept { return impl_.release(count); }

    /// Takes permits as an object that owns them: all that are asked for, or none. Never throws. Errors as of
    /// `Lock::acquire()`; `invalid_argument` for fewer than 1, and for more than the `permits` of this
    /// object. More than `set_permits()` has left are waited for, without standing in anybody's way.
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
    /// that was issued counts, and is forgotten a day after the last use of the semaphore. Two
    /// commands; blocks for at most `command_timeout`. `invalid_argument` for a negative number,
    /// and for more than `max()`.
    Result<void> set_permits(std::ptrdiff_t number) noexcept { return impl_.set_permits(number); }

    /// Asks the server who has permits, and how many wait. Blocks for at most `command_timeout`.
    Result<SemaphoreInfo> inspect() const noexcept { return impl_.inspect(); }

    /// @{
    /// An operator's tool: takes back the permits of one acquisition, and lets waiters in. `owner` is a whole token
    /// as `inspect()` shows it. A holder in this process finds its permits lost at once, one elsewhere at its next
    /// renewal. `absent` for an owner that has none, `invalid_argument` for no owner. Of owners with more than one
    /// permit, 10,000 are looked at. Blocks for at most `command_timeout`.
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

#if REDLATCH_DEFINITIONS

namespace detail {

REDLATCH_INLINE SemaphoreImpl::SemaphoreImpl(const Client& client, std::string name,
                                             std::ptrdiff_t permits, const LockOptions& options,
                                             const PolicyTraits& traits)
    : spec_(check(LockSpec{.client = Access::shared(client),
                           .keys = Access::keys(client, std::move(name)),
                           .traits = traits,
                           .options = options,
                           .claim = {.weight = 1, .limit = permits}})
                .value()) {
    if (permits < 0 || permits > max) {
        throw LockError{bad("a semaphore has between 0 and 999,999,998 permits")};
    }
    if (spec_.client->has_several_masters()) {
        throw LockError{
            bad("several masters cannot share permits: each of three majorities may "
                "hold one of two")};
    }
}

REDLATCH_INLINE SemaphoreImpl::~SemaphoreImpl() {
    const Session* const session = spec_.client->existing_session();
    Acquired* const acquired = acquired_.existing();
    if (session == nullptr || acquired == nullptr) return;
    const TimePoint by = saturating_add(Clock::now(), session->command_timeout());
    for (Held& held : acquired->permits) Access::end(held, by);
}

/// The lock that so many are taken of, or why it is none.
REDLATCH_INLINE Result<LockSpec> SemaphoreImpl::taking(std::ptrdiff_t permits) const {
    if (permits < 1) return Unexpected{bad("fewer than 1 permit is asked for")};
    if (permits > std::max<std::ptrdiff_t>(spec_.claim.limit, 1)) {
        return Unexpected{
            bad("more permits are asked for than this Semaphore object was made with, " +
                std::to_string(spec_.claim.limit))};
    }
    LockSpec spec = spec_;
    spec.claim.weight = permits;
    return spec;
}

REDLATCH_INLINE Result<Held> SemaphoreImpl::take(const TakeOptions& options) const noexcept {
    const auto spec = taking(options.permits);
    if (!spec) return Unexpected{spec.error()};
    auto lease = check_lease(*spec, options.lease.value_or(spec->options.lease));
    if (!lease) return Unexpected{std::move(lease).error()};
    const AcquireOptions as_hold{.wait = options.wait, .stop = options.stop, .owner = Owner::hold};
    auto ref = Acquiring{spec->client->session(), *spec, *lease, as_hold, nullptr}.run();
    if (!ref) return Unexpected{std::move(ref).error()};
    return Access::held(spec_.client, *std::move(ref), spec_.options.release_mode);
}

REDLATCH_INLINE std::shared_ptr<AsyncCallFor<Held>> SemaphoreImpl::take_call(
    const AsyncTakeOptions& options, std::stop_token stop) const {
    auto spec = taking(options.permits);
    if (!spec) {
        return std::make_shared<ReadyCall<Held>>(spec_.client, Unexpected{std::move(spec).error()});
    }
    return acquisition_call(*spec, {.wait = options.wait, .lease = options.lease}, std::move(stop));
}

REDLATCH_INLINE Result<void> SemaphoreImpl::keep(Result<Held> taken) {
    if (!taken) return Unexpected{std::move(taken).error()};
    Acquired& acquired = acquired_.renew();
    const std::scoped_lock section{acquired.mutex};
    acquired.permits.push_back(*std::move(taken));
    return {};
}

REDLATCH_INLINE void SemaphoreImpl::acquire() {
    auto kept = keep(take({}));
    if (!kept) throw LockError{std::move(kept).error()};
}

REDLATCH_INLINE bool SemaphoreImpl::try_acquire(Wait wait) {
    auto kept = keep(take({.wait = wait}));
    if (!kept && kept.error().code != Errc::timed_out) throw LockError{std::move(kept).error()};
    return kept.has_value();
}

REDLATCH_INLINE std::vector<Held> SemaphoreImpl::take_out(std::ptrdiff_t count) {
    Acquired& acquired = acquired_.renew();
    const std::scoped_lock section{acquired.mutex};
    auto& permits = acquired.permits;
    std::stable_partition(permits.begin(), permits.end(),
                          [](const Held& held) { return !held.held(); });
    const auto end = permits.begin() +
                     std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(permits.size()));
    std::vector<Held> out{std::make_move_iterator(permits.begin()), std::make_move_iterator(end)};
    permits.erase(permits.begin(), end);
    return out;
}

REDLATCH_INLINE Result<Release> SemaphoreImpl::release(std::ptrdiff_t count) noexcept {
    if (count < 1) return Unexpected{bad("fewer than 1 permit is given back")};
    std::vector<Held> out = take_out(count);
    const bool enough = static_cast<std::ptrdiff_t>(out.size()) == count;
    Result<Release> worst = enough ? Release::released : Release::not_held;
    const TimePoint by = saturating_add(Clock::now(), spec_.client->session().command_timeout());
    for (Held& held : out) {
        auto outcome = Access::release(held, by);
        if (!worst) continue;
        if (!outcome || (*outcome == Release::expired && enough)) worst = std::move(outcome);
    }
    return worst;
}

REDLATCH_INLINE Result<void> SemaphoreImpl::set_permits(std::ptrdiff_t number) const noexcept {
    if (number < 0 || number > max) {
        return Unexpected{bad("a semaphore has between 0 and 999,999,998 permits")};
    }
    return detail::set_permits(spec_.client->session(), spec_, number);
}

REDLATCH_INLINE Result<SemaphoreInfo> SemaphoreImpl::inspect() const noexcept {
    Session& session = spec_.client->session();
    return inspect_permits(session, spec_, Limit::in(session.command_timeout()));
}

REDLATCH_INLINE Result<Forced> SemaphoreImpl::force_release(std::string_view owner) const noexcept {
    if (owner.empty()) return Unexpected{bad("no owner is given whose permits are taken back")};
    return ForceUnlock{spec_.client->session(), spec_, owner}.run();
}

}  // namespace detail

#endif

}  // namespace redlatch::inline v0
