#pragma once

#include <redlatch/async_result.hpp>
#include <redlatch/client.hpp>
#include <redlatch/clock.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/held_set.hpp>
#include <redlatch/lock_set_impl.hpp>
#include <redlatch/options.hpp>
#include <redlatch/policy/lock_policy.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/policy/simple.hpp>
#include <redlatch/policy/watchdog.hpp>
#include <redlatch/result.hpp>
#include <redlatch/types.hpp>

#include <chrono>
#include <concepts>
#include <initializer_list>
#include <iterator>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0 {

/// The name of a lock in a `LockSet`: bytes of any kind.
class LockName {
public:
    /// @{
    /// A name as it stands. Throws `LockError` with `Errc::invalid_argument` for a null pointer.
    LockName(const char* text) : text_(detail::string_of(text, "the lock's name")) {}
    LockName(std::string text) : text_(std::move(text)) {}
    LockName(std::string_view text) : text_(text) {}
    /// @}

    /// The name's bytes.
    const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
};

namespace detail {

// A constant container, array or list. Not std::ranges::input_range: <ranges> is large, and would be read for
// this alone.
template <class Names>
concept RangeOfNames = requires(const Names& names) {
    { std::begin(names) } -> std::input_iterator;
    std::end(names);
    requires std::constructible_from<LockName, decltype(*std::begin(names))>;
};

}  // namespace detail

/// Several locks of one policy, taken as one: all or none. They are taken one after the other in the order of
/// their names' bytes, so sets never wait for each other in a circle, whatever the order in which they name
/// their locks. (A set and single locks that are taken in another order may.) While the set waits for a later
/// lock, it renews those before; if one is lost meanwhile, it gives all back, and begins anew within its
/// wait. In the end all have their whole lease, where the server answers in time; `HeldSet::remaining()` says
/// how much is left.
///
/// Models Lockable and TimedLockable, so the standard guards work on it, and `std::shared_lock` where its policy is
/// shared: then all are read, or none. The holds that `lock()` and `try_lock()` took belong to the calling
/// thread. They end by its `unlock()`, or when the set is destroyed. All members may be called from any
/// thread.
template <LockPolicy Policy = Watchdog<Simple>>
class LockSet {
    static_assert(Policy::key_type != KeyType::sorted_set || is_shared<Policy>,
                  "permits are a Semaphore's");

public:
    /// The policy of all its locks.
    using policy_type = Policy;

    /// Makes a handle, without I/O. Throws `LockError` with `Errc::invalid_argument` for no name, for a name
    /// that is there twice, and for what a `Lock` refuses.
    LockSet(Client& client, std::initializer_list<LockName> names, LockOptions options = {})
        : LockSet(client, texts_of(names), options, detail::traits_of<Policy>()) {}

    /// The same for a range of strings.
    template <detail::RangeOfNames Names>
    LockSet(Client& client, const Names& names, LockOptions options = {})
        : LockSet(client, texts_of(names), options, detail::traits_of<Policy>()) {}

    LockSet(const LockSet&) = delete;
    LockSet& operator=(const LockSet&) = delete;
    /// Ends what `lock()` and `try_lock()` took and nobody unlocked, as `unlock()` does. Blocks for at most
    /// `command_timeout` in all.
    ~LockSet() = default;

    /// Waits without limit for all; throws as `Lock::lock()` does.
    void lock() { impl_.take({}); }

    /// The same with this acquisition's lease.
    void lock(Lease lease) { impl_.take({.lease = lease}); }

    /// Tries each once, for at most `command_timeout` in all. May fail beside another set although all become free
    /// together. Where it fails it has given back what it took, if the server answered in time.
    [[nodiscard]] bool try_lock() { return impl_.try_take({.wait = Wait::none()}); }

    /// Waits for all together for at most `wait`, and 50 ms for the answer to a last try. Where that time is over, it
    /// gives back what it took in the background: a single try right behind it may find that still taken. Throws as
    /// `Lock::try_lock_for()` does.
    [[nodiscard]] bool try_lock_for(Wait wait) { return impl_.try_take({.wait = wait}); }

    /// The same with this acquisition's lease.
    [[nodiscard]] bool try_lock(Wait wait, Lease lease) {
        return impl_.try_take({.wait = wait, .lease = lease});
    }

    /// The same until a point in time of any clock. The clock is read once: setting it meanwhile changes
    /// nothing.
    template <class AnyClock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<AnyClock, Duration>& deadline) {
        return impl_.try_take({.wait = detail::time_left(deadline)});
    }

    /// Ends the calling thread's innermost hold of each. Waits as `LockOptions::release_mode` says, for at most
    /// `command_timeout` in all. The outcomes go to the observer.
    void unlock() noexcept { impl_.unlock(); }

    /// Takes all for reading, in the same order and with the same rules; only with a policy that is shared, such as
    /// `Shared`. Waits without limit, and throws as `lock()` does. The calling thread at once gets one more
    /// hold of each lock that it has already.
    void lock_shared() requires is_shared<Policy> { impl_.take_shared({}); }

    /// The same with this acquisition's lease.
    void lock_shared(Lease lease) requires is_shared<Policy> {
        impl_.take_shared({.lease = lease});
    }

    /// Tries each once, as `try_lock()` does. False only where somebody writes one of them, or waits in front.
    [[nodiscard]] bool try_lock_shared() requires is_shared<Policy> {
        return impl_.try_take_shared({.wait = Wait::none()});
    }

    /// The same, but waits for all together for at most `wait`, and 50 ms for the answer to a last try.
    [[nodiscard]] bool try_lock_shared_for(Wait wait) requires is_shared<Policy> {
        return impl_.try_take_shared({.wait = wait});
    }

    /// The same with this acquisition's lease.
    [[nodiscard]] bool try_lock_shared(Wait wait, Lease lease) requires is_shared<Policy> {
        return impl_.try_take_shared({.wait = wait, .lease = lease});
    }

    /// The same until a point in time of any clock. The clock is read once: setting it meanwhile changes
    /// nothing.
    template <class AnyClock, class Duration>
    [[nodiscard]] bool try_lock_shared_until(
        const std::chrono::time_point<AnyClock, Duration>& deadline) requires is_shared<Policy> {
        return impl_.try_take_shared({.wait = detail::time_left(deadline)});
    }

    /// Ends the calling thread's innermost reading of each, otherwise as `unlock()` does.
    void unlock_shared() noexcept requires is_shared<Policy> { impl_.unlock_shared(); }

    /// Takes all for reading, as one object. Never throws; otherwise as `acquire()`.
    [[nodiscard]] Result<HeldSet> acquire_shared(
        const AcquireOptions& options = {}) noexcept requires is_shared<Policy> {
        return impl_.acquire_shared(options);
    }

    /// Takes all as one object. Blocks for `options.wait`, and 50 ms for the answer to a last try; a single
    /// try for at most `command_timeout` in all. Never throws. Errors: those of `Lock::acquire()`.
    [[nodiscard]] Result<HeldSet> acquire(const AcquireOptions& options = {}) noexcept {
        return impl_.acquire(options);
    }

    /// As `acquire()` without a thread that waits, for `co_await`: gives a `Result<HeldSet>`. One wait counts
    /// for all, and the call waits for one lock after the other, as `acquire()` does; all else is as of
    /// `Lock::async_acquire()`.
    [[nodiscard]] AsyncResult<HeldSet> async_acquire(const AsyncOptions& options = {},
                                                     std::stop_token stop = {}) {
        return detail::AsyncAccess::awaitable(impl_.acquire_call(options, std::move(stop)));
    }

    /// The same; begins at once, and calls `done(Result<HeldSet>)` on `executor`, where there is
    /// one.
    template <CompletionOf<HeldSet> Done>
    void async_acquire(const AsyncOptions& options, std::stop_token stop, Done done,
                       Executor* executor = nullptr) {
        detail::AsyncAccess::call_back(impl_.acquire_call(options, std::move(stop)),
                                       std::move(done), executor);
    }

    /// As `acquire_shared()`, without a thread that waits; all else is as of `async_acquire()`.
    [[nodiscard]] AsyncResult<HeldSet> async_acquire_shared(
        const AsyncOptions& options = {}, std::stop_token stop = {}) requires is_shared<Policy> {
        return detail::AsyncAccess::awaitable(impl_.acquire_shared_call(options, std::move(stop)));
    }

    /// The same; begins at once, and calls `done(Result<HeldSet>)` on `executor`, where there is
    /// one.
    template <CompletionOf<HeldSet> Done>
    void async_acquire_shared(const AsyncOptions& options, std::stop_token stop, Done done,
                              Executor* executor = nullptr) requires is_shared<Policy> {
        detail::AsyncAccess::call_back(impl_.acquire_shared_call(options, std::move(stop)),
                                       std::move(done), executor);
    }

private:
    LockSet(Client& client, std::vector<std::string> names, const LockOptions& options,
            const detail::PolicyTraits& traits)
        : impl_(client, std::move(names), options, traits) {}

    template <class Names>
    static std::vector<std::string> texts_of(const Names& names) {
        std::vector<std::string> texts;
        for (const auto& name : names) texts.push_back(LockName{name}.text());
        return texts;
    }

    detail::LockSetImpl impl_;
};

}  // namespace redlatch::inline v0
