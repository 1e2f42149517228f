// The static_asserts are the test: what the types promise holds as soon as this compiles.

#include <redlatch/redlatch.hpp>
#include <redlatch/steps/check_lock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;

// [thread.req.lockable] as concepts; unlock() must not throw.
template <class L>
concept BasicLockable = requires(L& lock) {
    { lock.lock() } -> std::same_as<void>;
    { lock.unlock() }
    noexcept->std::same_as<void>;
};

template <class L>
concept Lockable = BasicLockable<L> && requires(L& lock) {
    { lock.try_lock() } -> std::same_as<bool>;
};

template <class L, class Duration, class TimePoint>
concept TimedLockableWith = Lockable<L> &&
    requires(L& lock, const Duration& d, const TimePoint& t) {
    { lock.try_lock_for(d) } -> std::same_as<bool>;
    { lock.try_lock_until(t) } -> std::same_as<bool>;
};

template <class L>
concept TimedLockable =
    TimedLockableWith<L, std::chrono::nanoseconds, std::chrono::steady_clock::time_point> &&
    TimedLockableWith<L, std::chrono::hours, std::chrono::system_clock::time_point> &&
    TimedLockableWith<L, std::chrono::duration<double>, redlatch::Clock::time_point> &&
    TimedLockableWith<
        L, std::chrono::duration<short, std::ratio<1, 3>>,
        std::chrono::time_point<std::chrono::steady_clock, std::chrono::duration<double>>>;

template <class T>
inline constexpr bool fixed = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                              !std::is_move_constructible_v<T> && !std::is_move_assignable_v<T>;

template <class T>
inline constexpr bool move_only =
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>;

template <class Policy>
constexpr bool lock_keeps_its_contract() {
    using L = Lock<Policy>;
    static_assert(BasicLockable<L>);
    static_assert(Lockable<L>);
    static_assert(TimedLockable<L>);
    static_assert(fixed<L>);
    static_assert(std::is_nothrow_destructible_v<L>);
    static_assert(std::same_as<typename L::policy_type, Policy>);

    static_assert(noexcept(std::declval<L&>().unlock()));
    static_assert(noexcept(std::declval<L&>().release()));
    static_assert(noexcept(std::declval<L&>().extend(std::declval<Lease>())));
    static_assert(noexcept(std::declval<L&>().acquire(std::declval<const AcquireOptions&>())));
    static_assert(noexcept(std::declval<const L&>().held()));
    static_assert(noexcept(std::declval<const L&>().remaining()));
    static_assert(noexcept(std::declval<const L&>().state()));
    static_assert(noexcept(std::declval<const L&>().name()));
    static_assert(!noexcept(std::declval<L&>().lock()));
    static_assert(!noexcept(std::declval<L&>().try_lock()));

    static_assert(std::same_as<decltype(std::declval<L&>().acquire()), Result<Held>>);
    static_assert(std::same_as<decltype(std::declval<L&>().release()), Result<Release>>);
    static_assert(
        std::same_as<decltype(std::declval<L&>().extend(std::declval<Lease>())), Result<void>>);
    static_assert(std::same_as<decltype(std::declval<const L&>().held()), bool>);
    static_assert(
        std::same_as<decltype(std::declval<const L&>().remaining()), std::chrono::milliseconds>);
    static_assert(std::same_as<decltype(std::declval<const L&>().state()), HoldState>);
    static_assert(std::same_as<decltype(std::declval<const L&>().lost()), std::stop_token>);
    static_assert(std::same_as<decltype(std::declval<L&>().inspect()), Result<LockInfo>>);
    static_assert(std::same_as<decltype(std::declval<L&>().force_unlock()), Result<Forced>>);
    static_assert(std::same_as<decltype(std::declval<L&>().force_unlock("owner")), Result<Forced>>);
    static_assert(std::same_as<decltype(std::declval<L&>().try_lock(std::declval<Wait>(),
                                                                    std::declval<Lease>())),
                               bool>);

    static_assert(std::is_constructible_v<L, Client&, std::string>);
    static_assert(std::is_constructible_v<L, Client&, std::string_view>);
    static_assert(!std::is_constructible_v<L, Client&, const char* const(&)[2]>);
    static_assert(std::is_constructible_v<L, Client&, const char*, LockOptions>);
    static_assert(!std::is_constructible_v<L, const Client&, std::string>);
    static_assert(!std::is_constructible_v<L, Client, std::string>, "it would outlive the client");
    static_assert(!std::is_default_constructible_v<L>);

    static_assert(std::is_constructible_v<LockGuard, L&>);
    static_assert(std::is_nothrow_constructible_v<LockGuard, L&, Wait, std::optional<Lease>>);
    static_assert(std::is_constructible_v<LockGuard, L&, Wait, Lease>);
    static_assert(!std::is_constructible_v<LockGuard, const L&>);
    static_assert(!std::is_constructible_v<LockGuard, L>);
    static_assert(!std::is_convertible_v<L&, LockGuard>);
    return true;
}
static_assert(lock_keeps_its_contract<Simple>());
static_assert(lock_keeps_its_contract<Reentrant>());
static_assert(lock_keeps_its_contract<Watchdog<Simple>>());
static_assert(lock_keeps_its_contract<Watchdog<Reentrant>>());
static_assert(lock_keeps_its_contract<Watchdog<Fenced<Reentrant>>>());
static_assert(std::same_as<Lock<>, Lock<Watchdog<Simple>>>);

// The standard library's own scopes take it.
[[maybe_unused]] void standard_scopes(Lock<>& a, Lock<Reentrant>& b) {
    using namespace std::chrono_literals;
    { const std::lock_guard scope{a}; }
    { const std::lock_guard scope{a, std::adopt_lock}; }
    { const std::scoped_lock scope{a, b}; }
    { const std::unique_lock scope{a, 1s}; }
    { const std::unique_lock scope{a, std::chrono::steady_clock::now() + 1s}; }
    { const std::unique_lock scope{b, std::try_to_lock}; }
    { const std::unique_lock scope{b, std::defer_lock}; }
    static_cast<void>(std::try_lock(a, b));
}

// [thread.sharedmutex.requirements] and [thread.sharedtimedmutex.requirements], as concepts
template <class L>
concept SharedTimedLockable = TimedLockable<L> && requires(L& lock) {
    { lock.lock_shared() } -> std::same_as<void>;
    { lock.unlock_shared() }
    noexcept->std::same_as<void>;
    { lock.try_lock_shared() } -> std::same_as<bool>;
    { lock.try_lock_shared_for(std::chrono::nanoseconds{1}) } -> std::same_as<bool>;
    { lock.try_lock_shared_until(std::chrono::system_clock::now()) } -> std::same_as<bool>;
};

template <class Policy>
constexpr bool shared_lock_keeps_its_contract() {
    using L = Lock<Policy>;
    static_assert(lock_keeps_its_contract<Policy>());
    static_assert(SharedTimedLockable<L>);
    static_assert(noexcept(std::declval<L&>().acquire_shared()));
    static_assert(noexcept(std::declval<L&>().downgrade()));
    static_assert(std::same_as<decltype(std::declval<L&>().acquire_shared()), Result<Held>>);
    static_assert(std::same_as<decltype(std::declval<L&>().downgrade()), Result<void>>);
    static_assert(std::is_nothrow_constructible_v<SharedGuard, L&, Wait, std::optional<Lease>>);
    static_assert(std::is_constructible_v<SharedGuard, L&, Wait, Lease>);
    static_assert(!std::is_constructible_v<SharedGuard, const L&>);
    static_assert(!std::is_convertible_v<L&, SharedGuard>);
    return true;
}
static_assert(shared_lock_keeps_its_contract<Shared>());
static_assert(shared_lock_keeps_its_contract<Watchdog<Shared>>());
static_assert(shared_lock_keeps_its_contract<Watchdog<Fenced<Shared>>>());
static_assert(!SharedTimedLockable<Lock<>>);
static_assert(!std::is_constructible_v<SharedGuard, Lock<>&>);
static_assert(std::is_constructible_v<Semaphore<>, Client&, std::string_view, int>);
static_assert(!std::is_constructible_v<Semaphore<>, Client&, const char* const (&)[2], int>);
static_assert(fixed<SharedGuard>);

template <class Policy>
constexpr bool set_keeps_its_contract() {
    using S = LockSet<Policy>;
    static_assert(TimedLockable<S>);
    static_assert(SharedTimedLockable<S> == is_shared<Policy>);
    static_assert(fixed<S>);
    static_assert(std::is_nothrow_destructible_v<S>);
    static_assert(noexcept(std::declval<S&>().acquire()));
    static_assert(std::same_as<decltype(std::declval<S&>().acquire()), Result<HeldSet>>);
    static_assert(std::is_constructible_v<S, Client&, std::vector<std::string>>);
    static_assert(!std::is_constructible_v<S, Client, std::vector<std::string>>);
    static_assert(!std::is_constructible_v<S, const Client&, std::vector<std::string>>);
    static_assert(!std::is_constructible_v<S, Client&, std::vector<int>>);
    return true;
}
static_assert(set_keeps_its_contract<Simple>());
static_assert(set_keeps_its_contract<Watchdog<Reentrant>>());
static_assert(set_keeps_its_contract<Shared>());
static_assert(move_only<HeldSet>);
static_assert(std::is_nothrow_default_constructible_v<HeldSet>);
static_assert(std::is_nothrow_destructible_v<HeldSet>);
static_assert(noexcept(std::declval<HeldSet&>().release()));
static_assert(noexcept(std::declval<HeldSet&>().extend(std::declval<Lease>())));

// [thread.sema.cnt] as a concept; `release()` says what became of it, and must not throw.
template <class S>
concept CountingSemaphore = fixed<S> && requires(S& semaphore) {
    { semaphore.acquire() } -> std::same_as<void>;
    { semaphore.try_acquire() } -> std::same_as<bool>;
    { semaphore.try_acquire_for(std::chrono::nanoseconds{1}) } -> std::same_as<bool>;
    { semaphore.try_acquire_until(std::chrono::system_clock::now()) } -> std::same_as<bool>;
    { semaphore.release() }
    noexcept->std::same_as<Result<Release>>;
    { semaphore.release(std::ptrdiff_t{2}) }
    noexcept->std::same_as<Result<Release>>;
    { S::max() }
    noexcept->std::same_as<std::ptrdiff_t>;
};
static_assert(CountingSemaphore<Semaphore<>> && CountingSemaphore<Semaphore<Permits>>);
static_assert(std::same_as<Semaphore<>, Semaphore<Watchdog<Permits>>>);
static_assert(noexcept(std::declval<Semaphore<>&>().take()));
static_assert(!std::is_constructible_v<Semaphore<>, Client, std::string, int>);
static_assert(!std::is_constructible_v<Semaphore<>, Client&, std::string>, "it says how many");

// Asynchronous forms: what is awaited is moved, and never copied.
static_assert(!std::is_copy_constructible_v<AsyncResult<Held>>);
static_assert(std::is_nothrow_move_constructible_v<AsyncResult<Held>>);
static_assert(std::same_as<decltype(std::declval<Lock<>&>().async_acquire()), AsyncResult<Held>>);
static_assert(std::same_as<decltype(std::declval<Lock<Shared>&>().async_acquire_shared()),
                           AsyncResult<Held>>);
static_assert(std::same_as<decltype(std::declval<Semaphore<>&>().async_take()), AsyncResult<Held>>);
static_assert(
    std::same_as<decltype(std::declval<LockSet<>&>().async_acquire()), AsyncResult<HeldSet>>);
static_assert(std::same_as<decltype(std::declval<Held&>().async_release()), AsyncResult<Release>>);
static_assert(std::has_virtual_destructor_v<Executor>);

// Held, LockGuard, Client
static_assert(move_only<Held>);
static_assert(std::is_nothrow_default_constructible_v<Held>);
static_assert(std::is_nothrow_destructible_v<Held>);
static_assert(noexcept(std::declval<Held&>().release()));
static_assert(noexcept(std::declval<Held&>().extend(std::declval<Lease>())));
static_assert(noexcept(std::declval<const Held&>().held()));
static_assert(noexcept(std::declval<const Held&>().remaining()));
static_assert(noexcept(std::declval<const Held&>().state()));
static_assert(std::same_as<decltype(std::declval<Held&>().release()), Result<Release>>);
static_assert(std::same_as<decltype(std::declval<const Held&>().lost()), std::stop_token>);
static_assert(std::same_as<decltype(std::declval<const Held&>().token()), std::string>);
static_assert(move_only<Result<Held>>);

static_assert(fixed<LockGuard>);
static_assert(std::is_nothrow_destructible_v<LockGuard>);
static_assert(std::is_constructible_v<bool, LockGuard&>);
static_assert(!std::is_convertible_v<LockGuard&, bool>, "not a number by mistake");
static_assert(noexcept(std::declval<const LockGuard&>().error()));

static_assert(fixed<Client>);
static_assert(std::is_nothrow_destructible_v<Client>);
static_assert(std::is_constructible_v<Client, const char*>);
static_assert(std::is_constructible_v<Client, std::string>);
static_assert(std::is_constructible_v<Client, std::string_view>);
static_assert(std::is_constructible_v<Client, ClientOptions>);
static_assert(!std::is_default_constructible_v<Client>);
static_assert(!std::is_convertible_v<const char*, Client>);

static_assert(std::is_convertible_v<const char*, Uri>);
static_assert(std::is_convertible_v<std::string, Uri>);
static_assert(std::is_convertible_v<std::string_view, Uri>);
static_assert(!std::is_constructible_v<Uri, const char*, const char*>);
static_assert(!std::is_default_constructible_v<Uri>);

static_assert(fixed<Observer>);
static_assert(std::has_virtual_destructor_v<Observer>);

// Result has the shape of std::expected.
static_assert(std::same_as<Result<int>, Expected<int, Error>>);
static_assert(std::same_as<Result<int>::value_type, int>);
static_assert(std::same_as<Result<void>::value_type, void>);
static_assert(std::same_as<Result<int>::error_type, Error>);
static_assert(std::is_convertible_v<int, Result<int>>);
static_assert(std::is_convertible_v<Unexpected<Error>, Result<int>>);
static_assert(!std::is_convertible_v<Error, Result<int>>, "an error is always marked as one");
static_assert(!std::is_default_constructible_v<Result<int>>);
static_assert(std::is_default_constructible_v<Result<void>>);
static_assert(std::is_constructible_v<bool, Result<int>>);
static_assert(!std::is_convertible_v<Result<int>, bool>);
static_assert(noexcept(std::declval<const Result<int>&>().has_value()));
static_assert(std::same_as<decltype(*std::declval<Result<int>&>()), int&>);
static_assert(std::same_as<decltype(*std::declval<const Result<int>&>()), const int&>);
static_assert(std::same_as<decltype(*std::declval<Result<int>>()), int&&>);
static_assert(std::same_as<decltype(std::declval<Result<int>&>().value()), int&>);
static_assert(std::same_as<decltype(std::declval<Result<void>&>().value()), void>);
static_assert(std::same_as<decltype(std::declval<const Result<int>&>().error()), const Error&>);
static_assert(std::is_nothrow_move_constructible_v<Result<int>>);

template <class T>
concept Dereferenceable = requires(T& t) {
    *t;
};
static_assert(!Dereferenceable<Result<void>>);

// Errors
static_assert(std::is_error_code_enum_v<Errc>);
static_assert(!std::is_error_condition_enum_v<Errc>);
static_assert(std::is_convertible_v<Errc, std::error_code>);
static_assert(std::derived_from<LockError, std::system_error>);
static_assert(noexcept(std::declval<const LockError&>().what()));
static_assert(noexcept(std::declval<const LockError&>().error()));

// Durations that mean different things do not pass for each other, and numbers are none.
static_assert(std::is_convertible_v<std::chrono::hours, Wait>);
static_assert(std::is_convertible_v<std::chrono::duration<double>, Lease>);
static_assert(!std::is_convertible_v<Wait, Lease> && !std::is_constructible_v<Lease, Wait>);
static_assert(!std::is_convertible_v<Lease, Wait> && !std::is_constructible_v<Wait, Lease>);
static_assert(!std::is_constructible_v<Wait, int> && !std::is_constructible_v<Wait, double>);
static_assert(!std::is_constructible_v<Lease, int> && !std::is_constructible_v<Lease, double>);
static_assert(std::totally_ordered<Wait> && std::totally_ordered<Lease>);
static_assert(std::is_trivially_copyable_v<Wait> && std::is_trivially_copyable_v<Lease>);

// Options are aggregates, and all of them are optional.
static_assert(std::is_aggregate_v<LockOptions> && std::is_default_constructible_v<LockOptions>);
static_assert(std::is_aggregate_v<AcquireOptions>);
static_assert(std::is_aggregate_v<ClientOptions>);

// Policies are plain types without state, and nest.
static_assert(LockPolicy<Simple> && LockPolicy<Reentrant>);
static_assert(LockPolicy<Watchdog<Simple>> && LockPolicy<Watchdog<Fenced<Reentrant>>>);
static_assert(!LockPolicy<int> && !LockPolicy<void> && !LockPolicy<Lock<>>);
static_assert(std::is_empty_v<Simple> && std::is_empty_v<Reentrant>);
static_assert(std::is_empty_v<Watchdog<Simple>> && std::is_empty_v<Watchdog<Fenced<Simple>>>);

template <class P>
constexpr bool watchdog_changes_the_watching_only() {
    using W = Watchdog<P>;
    return W::key_type == P::key_type && W::reentrant == P::reentrant && W::watched &&
           sizeof(W) == sizeof(P) && std::same_as<decltype(&W::scripts), decltype(&P::scripts)>;
}
static_assert(watchdog_changes_the_watching_only<Simple>());
static_assert(watchdog_changes_the_watching_only<Reentrant>());
static_assert(watchdog_changes_the_watching_only<Fenced<Reentrant>>());
static_assert(!Simple::watched && !Reentrant::watched);
static_assert(!Simple::reentrant && Reentrant::reentrant);
static_assert(sizeof(Lock<Simple>) == sizeof(Lock<Watchdog<Simple>>));

// A policy of a user's own
struct Audited : Simple {
    static const LockScripts& scripts() {
        static const LockScripts changed = Simple::scripts();
        return changed;
    }
};
static_assert(LockPolicy<Audited> && LockPolicy<Watchdog<Audited>>);
static_assert(lock_keeps_its_contract<Watchdog<Audited>>());

struct WithoutScripts {
    static constexpr KeyType key_type = KeyType::string;
    static constexpr bool reentrant = false;
    static constexpr bool watched = false;
};
static_assert(!StoresLock<WithoutScripts> && DescribesHolds<WithoutScripts>);
static_assert(!LockPolicy<WithoutScripts>);

// A clock as the standard library knows clocks. libc++ 19 has no `std::chrono::is_clock_v`.
template <class C>
concept StandardClock = requires {
    typename C::rep;
    typename C::period;
    { C::now() } -> std::same_as<typename C::time_point>;
}
&&std::same_as<typename C::time_point, std::chrono::time_point<C, typename C::duration>>;
static_assert(StandardClock<redlatch::Clock>);
static_assert(redlatch::Clock::is_steady);
static_assert(noexcept(redlatch::Clock::now()));

TEST(Contracts, hold_as_this_compiles) {
    SUCCEED();
}

TEST(Contracts, acquire_waits_without_limit_unless_told_otherwise) {
    EXPECT_TRUE(AcquireOptions{}.wait.is_unlimited());
    EXPECT_FALSE(AcquireOptions{}.lease);
    EXPECT_FALSE(AcquireOptions{}.stop.stop_possible());
}

TEST(Contracts, policies_of_a_users_own_use_their_own_scripts) {
    EXPECT_EQ(&Watchdog<Audited>::scripts(), &Audited::scripts());
    EXPECT_NE(&Audited::scripts(), &Simple::scripts());
    EXPECT_FALSE(detail::takes_plain_set(detail::traits_of<Audited>()));
    EXPECT_TRUE(detail::takes_plain_set(detail::traits_of<Watchdog<Simple>>()));
}

TEST(Contracts, policies_nest_in_any_order) {
    for (const auto& traits : {detail::traits_of<Watchdog<Fenced<Reentrant>>>(),
                               detail::traits_of<Fenced<Watchdog<Reentrant>>>()}) {
        EXPECT_TRUE(traits.fenced && traits.watched && traits.reentrant);
        EXPECT_EQ(traits.key_type, KeyType::hash);
    }
    EXPECT_FALSE(detail::takes_plain_set(detail::traits_of<Fenced<Simple>>()))
        << "it has no fencing token";
    EXPECT_FALSE(detail::traits_of<Watchdog<Reentrant>>().fenced);
}

}  // namespace
