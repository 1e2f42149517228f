#pragma once

#include <redlatch/async_result.hpp>
#include <redlatch/client.hpp>
#include <redlatch/clock.hpp>
#include <redlatch/compilation.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/held.hpp>
#include <redlatch/options.hpp>
#include <redlatch/policy/lock_policy.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/policy/simple.hpp>
#include <redlatch/policy/watchdog.hpp>
#include <redlatch/result.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/steps/read_through.hpp>
#include <redlatch/types.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if REDLATCH_DEFINITIONS
#include <redlatch/async/acquire_set_operation.hpp>
#include <redlatch/async/extend_operation.hpp>
#include <redlatch/async/joint_call.hpp>
#include <redlatch/async/ready_call.hpp>
#include <redlatch/async/release_operation.hpp>
#include <redlatch/steps/acquire_set.hpp>
#include <redlatch/steps/hold_terms.hpp>
#include <redlatch/steps/reading.hpp>
#include <redlatch/steps/thread_serial.hpp>

#include <algorithm>
#endif

namespace redlatch::inline v0 {

namespace detail {
class HeldSetOperation;
class LockSetImpl;
class HoldsOfSet;
class Session;
}  // namespace detail

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

/// All locks of a `LockSet`, held as one, and released together at the end of its life. It is held as long as
/// all of them are. As a `Held` it belongs to its acquisition: any thread may release it, it outlives its
/// `LockSet`, and in a forked child it holds nothing.
///
/// Not for use by two threads at once, but for `held()`, `remaining()`, `state()`, `lost()` and `fence()`: those
/// may run beside each other, and beside `extend()`, not beside what ends or moves the object.
///
/// `release()` and `extend()` take a round trip for each lock, one after the other, and `command_timeout` for all of
/// them. Where that is too little for so many locks, `release()` leaves the rest to the background, and `extend()`
/// fails. A higher `command_timeout`, or the asynchronous calls, which ask for all at once, do better.
class [[nodiscard]] HeldSet {
public:
    /// Holds nothing.
    HeldSet() = default;
    /// Takes the acquisition over; what was moved from holds nothing then.
    HeldSet(HeldSet&&) = default;
    /// The same, and ends what this held before, as the destructor does.
    HeldSet& operator=(HeldSet&& other) noexcept {
        if (this != &other) {
            end();
            holds_ = std::move(other.holds_);
        }
        return *this;
    }
    /// Releases all, as `release()` does, and waits as `LockOptions::release_mode` says; those that were acquired
    /// asynchronously as `async_release()` does, without waiting.
    ~HeldSet() { end(); }

    /// Releases all. Blocks for at most `command_timeout` in all. Whatever the outcome, nothing is held
    /// afterwards. `expired` where one was gone before, `still_held` where one was nested.
    ///
    /// Errors: those of `Held::release()`, of the first that has one.
    Result<Release> release() noexcept;

    /// Makes all last `lease` from now on, one after the other; the validity is the least of theirs. Blocks for
    /// at most `command_timeout` in all.
    ///
    /// Errors: those of `Held::extend()`. The first ends it, so that others may last longer.
    Result<void> extend(Lease lease) noexcept;

    /// Releases all, and blocks for nothing; as `Held::async_release()`, with the outcomes of `release()`.
    AsyncResult<Release> async_release() noexcept;

    /// The same; calls `done(Result<Release>)` on `executor`, where there is one. See
    /// `AsyncResult`.
    template <CompletionOf<Release> Done>
    void async_release(Done done, Executor* executor = nullptr) noexcept {
        detail::AsyncAccess::call_back(release_call(), std::move(done), executor);
    }

    /// As `extend()`, without blocking, and all at once: one that fails ends none of the others. Begins when it is
    /// awaited. This `HeldSet` may be moved meanwhile.
    [[nodiscard]] AsyncResult<void> async_extend(Lease lease);

    /// The same; begins at once, and calls `done(Result<void>)` on `executor`, where there is one.
    template <CompletionOf<void> Done>
    void async_extend(Lease lease, Done done, Executor* executor = nullptr) {
        detail::AsyncAccess::call_back(extend_call(lease), std::move(done), executor);
    }

    /// Whether the validity of all is running now. No I/O.
    bool held() const noexcept;

    /// How much is left of the one that ends first, rounded down. No I/O.
    std::chrono::milliseconds remaining() const noexcept;

    /// The worst of theirs. No I/O.
    HoldState state() const noexcept;

    /// Fires with the first that is lost; see `Held::lost()`.
    std::stop_token lost() const;

    /// The fencing token of one of them; 0 for a name that is not there, and where the policy is not `Fenced`.
    std::uint64_t fence(std::string_view name) const noexcept;

private:
    friend class detail::LockSetImpl;
    friend class detail::HeldSetOperation;

    explicit HeldSet(std::shared_ptr<detail::HoldsOfSet> holds) : holds_(std::move(holds)) {}

    void end() noexcept;

    std::shared_ptr<detail::AsyncCallFor<Release>> release_call();
    std::shared_ptr<detail::AsyncCallFor<void>> extend_call(Lease lease);

    std::shared_ptr<detail::HoldsOfSet> holds_;
};

namespace detail {

/// What a `LockSet` does, whatever its policy.
class LockSetImpl {
public:
    LockSetImpl(const Client& client, std::vector<std::string> names, const LockOptions& options,
                const PolicyTraits& traits);
    LockSetImpl(const LockSetImpl&) = delete;
    LockSetImpl& operator=(const LockSetImpl&) = delete;
    ~LockSetImpl();

    void take(const AcquireOptions& options);
    bool try_take(const AcquireOptions& options);
    void unlock() noexcept;
    Result<HeldSet> acquire(const AcquireOptions& options) noexcept;
    std::shared_ptr<AsyncCallFor<HeldSet>> acquire_call(const AsyncOptions& options,
                                                        std::stop_token stop) const;

    void take_shared(const AcquireOptions& options);
    bool try_take_shared(const AcquireOptions& options);
    void unlock_shared() noexcept;
    Result<HeldSet> acquire_shared(const AcquireOptions& options) noexcept;
    std::shared_ptr<AsyncCallFor<HeldSet>> acquire_shared_call(const AsyncOptions& options,
                                                               std::stop_token stop) const;

private:
    using Specs = std::vector<LockSpec>;

    static Specs reading(Specs specs);
    static std::shared_ptr<AsyncCallFor<HeldSet>> acquire_call(const Specs& specs,
                                                               const AsyncOptions& options,
                                                               std::stop_token stop);
    Result<std::vector<HoldRef>> take(const Specs& specs, const AcquireOptions& options,
                                      const void* through);
    Result<std::vector<HoldRef>> take_to_read(const AcquireOptions& options);
    Result<HeldSet> acquire(const Specs& specs, const AcquireOptions& options);
    template <class EndOf>
    void end_each(EndOf end_of) noexcept;
    void forget_reading();
    Session& session() const;

    Specs specs_;  // in the order of their names' bytes
    ReadThrough read_through_;
};

}  // namespace detail

/// Several locks of one policy, taken as one: all or none. They are taken one after the other in the order of
/// their names' bytes, so sets never wait for each other in a circle, whatever the order in which they name
/// their locks. (A set and single locks that are taken in another order may.) While a later one is waited
/// for, those before are renewed; if one is lost meanwhile, all are given back, and the set begins anew within
/// its wait. In the end all have their whole lease, where the server answers in time; `HeldSet::remaining()` says
/// how much is left.
///
/// Models Lockable and TimedLockable, so the standard guards work on it, and `std::shared_lock` where its policy is
/// shared: then all are read, or none. What `lock()` and `try_lock()` took belongs to the calling thread, and
/// is ended by its `unlock()`, or when the set is destroyed. All members may be called from any thread.
template <LockPolicy Policy = Watchdog<Simple>>
class LockSet {
    static_assert(Policy::key_type != KeyType::sorted_set || is_shared<Policy>,
                  "permits are a Semaphore's");

public:
    /// The policy of all its locks.
    using policy_type = Policy;

    /// Makes a handle, without I/O. Throws `LockError` with `Errc::invalid_argument` for no name,
    /// one that is there twice, and what a `Lock` refuses.
    LockSet(Client& client, std::initializer_list<LockName> names, LockOptions options = {})
        : LockSet(client, texts_of(names), options, detail::traits_of<Policy>()) {}

    /// The same for a range of strings.
    template <detail::RangeOfNames Names>
    LockSet(Client& client, const Names& names, LockOptions options = {})
        : LockSet(client, texts_of(names), options, detail::traits_of<Policy>()) {}

    LockSet(const LockSet&) = delete;
    LockSet& operator=(const LockSet&) = delete;
    /// Ends what `lock()` and `try_lock()` took and nobody unlocked, as `unlock()` does.
    ~LockSet() = default;

    /// Waits without limit for all; throws as `Lock::lock()` does.
    void lock() { impl_.take({}); }

    /// The same with this acquisition's lease.
    void lock(Lease lease) { impl_.take({.lease = lease}); }

    /// Tries each once, for at most `command_timeout` in all. May fail beside another set although all become free
    /// together.
    [[nodiscard]] bool try_lock() { return impl_.try_take({.wait = Wait::none()}); }

    /// Waits for all together for at most `wait`, and 50 ms for the answer to a last try. Throws as
    /// `Lock::try_lock_for()` does.
    [[nodiscard]] bool try_lock_for(Wait wait) { return impl_.try_take({.wait = wait}); }

    /// The same with this acquisition's lease.
    [[nodiscard]] bool try_lock(Wait wait, Lease lease) {
        return impl_.try_take({.wait = wait, .lease = lease});
    }

    /// The same until a point in time of any clock. That is read once: a clock that is set meanwhile changes nothing.
    template <class AnyClock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<AnyClock, Duration>& deadline) {
        return impl_.try_take({.wait = detail::time_left(deadline)});
    }

    /// Ends the calling thread's innermost hold of each. Waits as `LockOptions::release_mode` says, for at most
    /// `command_timeout` in all. The outcomes go to the observer.
    void unlock() noexcept { impl_.unlock(); }

    /// Takes all for reading, in the same order and with the same rules; only with a policy that is shared, such as
    /// `Shared`. Waits without limit, and throws as `lock()` does. Of those that the calling thread holds, it gets one
    /// more hold at once.
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

    /// The same until a point in time of any clock. That is read once: a clock that is set meanwhile changes nothing.
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

    /// Takes all as one object. Never throws.
    [[nodiscard]] Result<HeldSet> acquire(const AcquireOptions& options = {}) noexcept {
        return impl_.acquire(options);
    }

    /// As `acquire()` without a thread that waits, for `co_await`: gives a `Result<HeldSet>`. One
    /// wait counts for all, and one is waited for after the other, as of `acquire()`; all else as
    /// of `Lock::async_acquire()`.
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

#if REDLATCH_DEFINITIONS

namespace detail {

/// The holds of one acquisition of a set.
class HoldsOfSet {
public:
    HoldsOfSet(std::shared_ptr<SharedClient> client, std::vector<HoldRef> refs,
               ReleaseMode release_mode, bool posts_release)
        : client_(std::move(client)),
          refs_(std::move(refs)),
          release_mode_(release_mode),
          posts_release_(posts_release) {}
    HoldsOfSet(const HoldsOfSet&) = delete;
    HoldsOfSet& operator=(const HoldsOfSet&) = delete;
    ~HoldsOfSet() {
        // In a forked child one that was running at the fork never ends: they stay as they are.
        if (!refs_.empty() && !are_ours()) {
            static_cast<void>(new (std::nothrow) std::shared_ptr<AnyStop>{std::move(loss_)});
        }
    }

    bool are_ours() const noexcept { return !refs_.empty() && refs_.front().is_ours(); }
    const std::vector<HoldRef>& refs() const noexcept { return refs_; }
    const std::shared_ptr<SharedClient>& client() const noexcept { return client_; }
    Session& session() const { return client_->session(); }
    ReleaseMode release_mode() const noexcept { return release_mode_; }
    bool posts_release() const noexcept { return posts_release_; }

    /// They are about to end: nobody is told of a loss any more. In the order of their ends.
    std::vector<HoldRef> take() {
        if (!are_ours()) return {};
        if (loss_ != nullptr) session().destroy_later(std::move(loss_));
        std::ranges::reverse(refs_);
        return std::exchange(refs_, {});
    }

    std::stop_token lost() {
        const std::lock_guard lock{mutex_};
        if (loss_ == nullptr) {
            loss_ = std::make_shared<AnyStop>();
            for (const HoldRef& ref : refs_) loss_->add(lost_token(session(), ref.hold));
        }
        return loss_->token();
    }

private:
    std::shared_ptr<SharedClient> client_;
    std::vector<HoldRef> refs_;
    ReleaseMode release_mode_;
    bool posts_release_;
    std::mutex mutex_;
    std::shared_ptr<AnyStop> loss_;  // made for the first who asks
};

/// Gives out the locks that it takes as a `HeldSet`.
class HeldSetOperation final : public AcquireSetOperation {
public:
    using AcquireSetOperation::AcquireSetOperation;

    Result<HeldSet> take() noexcept override {
        auto refs = deliver();
        if (!refs) return Unexpected{std::move(refs).error()};
        constexpr bool posts_release = true;
        return HeldSet{std::make_shared<HoldsOfSet>(locks.front().client, *std::move(refs),
                                                    ReleaseMode::confirmed, posts_release)};
    }
};

REDLATCH_INLINE LockSetImpl::LockSetImpl(const Client& client, std::vector<std::string> names,
                                         const LockOptions& options, const PolicyTraits& traits) {
    if (names.empty()) throw LockError{invalid("a set of locks needs a name")};
    std::ranges::sort(names);
    if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
        Error error = invalid("the name is there twice in a set of locks");
        error.key = *twice;
        throw LockError{std::move(error)};
    }
    for (std::string& name : names) {
        specs_.push_back(check(LockSpec{.client = Access::shared(client),
                                        .keys = Access::keys(client, std::move(name)),
                                        .traits = traits,
                                        .options = options,
                                        .claim = writing_claim(traits)})
                             .value());
    }
}

REDLATCH_INLINE LockSetImpl::~LockSetImpl() {
    if (specs_.empty()) return;
    Session* const session = specs_.front().client->existing_session();
    if (session == nullptr) return;
    const TimePoint end = saturating_add(Clock::now(), session->command_timeout());
    const ReleaseMode mode = specs_.front().options.release_mode;
    std::for_each(specs_.rbegin(), specs_.rend(), [&](const LockSpec& spec) {
        end_all_through(*session, spec.key(), this, mode, end);
    });
    end_all_read_through(*session, read_through_, this, mode, end);
}

REDLATCH_INLINE void LockSetImpl::take(const AcquireOptions& options) {
    auto refs = take(specs_, options, this);
    if (!refs) throw LockError{std::move(refs).error()};
}

REDLATCH_INLINE bool LockSetImpl::try_take(const AcquireOptions& options) {
    auto refs = take(specs_, options, this);
    if (!refs && !is_refusal(refs.error(), options.wait)) throw LockError{std::move(refs).error()};
    return refs.has_value();
}

REDLATCH_INLINE void LockSetImpl::take_shared(const AcquireOptions& options) {
    auto refs = take_to_read(options);
    if (!refs) throw LockError{std::move(refs).error()};
}

REDLATCH_INLINE bool LockSetImpl::try_take_shared(const AcquireOptions& options) {
    auto refs = take_to_read(options);
    if (!refs && !is_refusal(refs.error(), options.wait)) throw LockError{std::move(refs).error()};
    return refs.has_value();
}

REDLATCH_INLINE void LockSetImpl::unlock() noexcept {
    end_each([&locks = session().locks()](const std::string& key) {
        return locks.end_innermost(key, this_thread());
    });
}

REDLATCH_INLINE void LockSetImpl::unlock_shared() noexcept {
    end_each([&session = session()](const std::string& key) {
        return end_reading(session, key, this_thread());
    });
    forget_reading();
}

REDLATCH_INLINE Result<HeldSet> LockSetImpl::acquire(const AcquireOptions& options) noexcept {
    return acquire(specs_, options);
}

REDLATCH_INLINE Result<HeldSet> LockSetImpl::acquire_shared(
    const AcquireOptions& options) noexcept {
    return acquire(reading(specs_), options);
}

REDLATCH_INLINE std::shared_ptr<AsyncCallFor<HeldSet>> LockSetImpl::acquire_call(
    const AsyncOptions& options, std::stop_token stop) const {
    return acquire_call(specs_, options, std::move(stop));
}

REDLATCH_INLINE std::shared_ptr<AsyncCallFor<HeldSet>> LockSetImpl::acquire_shared_call(
    const AsyncOptions& options, std::stop_token stop) const {
    return acquire_call(reading(specs_), options, std::move(stop));
}

REDLATCH_INLINE std::shared_ptr<AsyncCallFor<HeldSet>> LockSetImpl::acquire_call(
    const Specs& specs, const AsyncOptions& options, std::stop_token stop) {
    const LockSpec& first = specs.front();
    auto lease = check_lease(first, options.lease.value_or(first.options.lease));
    if (!lease) {
        return std::make_shared<ReadyCall<HeldSet>>(first.client,
                                                    Unexpected{std::move(lease).error()});
    }
    return std::make_shared<HeldSetOperation>(specs, options, std::move(stop));
}

REDLATCH_INLINE Session& LockSetImpl::session() const {
    return specs_.front().client->session();
}

REDLATCH_INLINE LockSetImpl::Specs LockSetImpl::reading(Specs specs) {
    for (LockSpec& spec : specs) spec = spec.reading();
    return specs;
}

REDLATCH_INLINE Result<std::vector<HoldRef>> LockSetImpl::take(const Specs& specs,
                                                               const AcquireOptions& options,
                                                               const void* through) {
    return AcquiringSet{session(), specs, options, through}.run();
}

REDLATCH_INLINE Result<std::vector<HoldRef>> LockSetImpl::take_to_read(
    const AcquireOptions& options) {
    for (const LockSpec& spec : specs_) {
        read_through_.add(reader_entry(spec.key(), this_thread()));
    }
    auto refs = take(reading(specs_), options, this);
    if (!refs) forget_reading();
    return refs;
}

REDLATCH_INLINE void LockSetImpl::forget_reading() {
    for (const LockSpec& spec : specs_) {
        detail::forget_reading(session(), spec.key(), read_through_);
    }
}

REDLATCH_INLINE Result<HeldSet> LockSetImpl::acquire(const Specs& specs,
                                                     const AcquireOptions& options) {
    auto refs = take(specs, options, nullptr);
    if (!refs) return Unexpected{std::move(refs).error()};
    const LockSpec& first = specs_.front();
    constexpr bool posts_release = false;
    return HeldSet{std::make_shared<HoldsOfSet>(first.client, *std::move(refs),
                                                first.options.release_mode, posts_release)};
}

/// `end_of`: takes the calling thread's innermost hold of that name out of the lock table.
template <class EndOf>
void LockSetImpl::end_each(EndOf end_of) noexcept {
    const TimePoint end = saturating_add(Clock::now(), session().command_timeout());
    std::for_each(specs_.rbegin(), specs_.rend(), [&](const LockSpec& spec) {
        const LockTable::Ending ending = end_of(spec.key());
        if (ending.kind == LockTable::Ending::Kind::nothing) {
            Releasing{session()}.tell_not_held(spec.key());
        } else {
            Releasing{session(), end}.end(ending, spec.options.release_mode);
        }
    });
}

}  // namespace detail

REDLATCH_INLINE Result<Release> HeldSet::release() noexcept {
    if (holds_ == nullptr || !holds_->are_ours()) return Release::not_held;
    detail::Session& session = holds_->session();
    const auto end = detail::saturating_add(Clock::now(), session.command_timeout());
    Result<Release> outcome = Release::released;
    for (const auto& ref : holds_->take()) {
        outcome = detail::worse(std::move(outcome),
                                detail::Releasing{session, end}.end(
                                    session.locks().end_acquisition(*ref.hold, ref.id)));
    }
    return outcome;
}

REDLATCH_INLINE AsyncResult<Release> HeldSet::async_release() noexcept {
    auto call = release_call();
    call->start();
    return detail::AsyncAccess::awaitable(std::move(call));
}

REDLATCH_INLINE std::shared_ptr<detail::AsyncCallFor<Release>> HeldSet::release_call() {
    using Joint = detail::JointCall<Release>;
    const auto client = holds_ == nullptr ? nullptr : holds_->client();
    Joint::Parts parts;
    if (holds_ != nullptr) {
        for (const auto& ref : holds_->take()) {
            parts.push_back(detail::make_recycled<detail::ReleaseOperation>(client, ref));
        }
    }
    if (parts.empty()) {
        return std::make_shared<detail::ReadyCall<Release>>(client, Release::not_held);
    }
    return std::make_shared<Joint>(client->session(), std::move(parts));
}

REDLATCH_INLINE AsyncResult<void> HeldSet::async_extend(Lease lease) {
    return detail::AsyncAccess::awaitable(extend_call(lease));
}

REDLATCH_INLINE std::shared_ptr<detail::AsyncCallFor<void>> HeldSet::extend_call(Lease lease) {
    using Ready = detail::ReadyCall<void>;
    using Joint = detail::JointCall<void>;
    const auto client = holds_ == nullptr ? nullptr : holds_->client();
    if (client == nullptr || !holds_->are_ours()) {
        return std::make_shared<Ready>(client, Unexpected{Error{Errc::not_held, {}, {}, {}, {}}});
    }
    Joint::Parts parts;
    for (const auto& ref : holds_->refs()) {
        auto fits = detail::check_extension(client->session(), *ref.hold, lease);
        if (!fits) return std::make_shared<Ready>(client, std::move(fits));
        parts.push_back(std::make_shared<detail::ExtendOperation>(client, ref.hold, lease));
    }
    return std::make_shared<Joint>(client->session(), std::move(parts));
}

REDLATCH_INLINE Result<void> HeldSet::extend(Lease lease) noexcept {
    if (holds_ == nullptr || !holds_->are_ours()) {
        return Unexpected{Error{Errc::not_held, {}, {}, {}, {}}};
    }
    detail::Session& session = holds_->session();
    const auto end = detail::saturating_add(Clock::now(), session.command_timeout());
    for (const auto& ref : holds_->refs()) {
        auto done = detail::extend_hold(session, ref.hold, lease, {end});
        if (!done) return done;
    }
    return {};
}

REDLATCH_INLINE bool HeldSet::held() const noexcept {
    if (holds_ == nullptr || !holds_->are_ours()) return false;
    return std::ranges::all_of(holds_->refs(), [now = Clock::now()](const auto& ref) {
        return ref.hold->is_seen_valid(now);
    });
}

REDLATCH_INLINE std::chrono::milliseconds HeldSet::remaining() const noexcept {
    if (holds_ == nullptr || !holds_->are_ours()) return std::chrono::milliseconds::zero();
    auto least = std::chrono::milliseconds::max();
    for (const auto& ref : holds_->refs()) {
        least = std::min(least, ref.hold->remaining(Clock::now()));
    }
    return least;
}

REDLATCH_INLINE HoldState HeldSet::state() const noexcept {
    if (holds_ == nullptr || !holds_->are_ours()) return HoldState::none;
    const auto now = Clock::now();
    HoldState worst = HoldState::held;
    for (const auto& ref : holds_->refs()) {
        const HoldState state = ref.hold->state(now);
        if (state == HoldState::lost || state == HoldState::none) return HoldState::lost;
        if (state == HoldState::uncertain) worst = state;
    }
    return worst;
}

REDLATCH_INLINE std::stop_token HeldSet::lost() const {
    if (holds_ == nullptr || !holds_->are_ours()) return detail::stopped_token();
    return holds_->lost();
}

REDLATCH_INLINE std::uint64_t HeldSet::fence(std::string_view name) const noexcept {
    if (holds_ == nullptr || !holds_->are_ours()) return 0;
    for (const auto& ref : holds_->refs()) {
        if (ref.hold->key() == name) return ref.hold->fence;
    }
    return 0;
}

REDLATCH_INLINE void HeldSet::end() noexcept {
    const auto holds = std::move(holds_);
    if (holds == nullptr || !holds->are_ours()) return;
    detail::Session& session = holds->session();
    const auto end = detail::saturating_add(Clock::now(), session.command_timeout());
    for (const auto& ref : holds->take()) {
        if (holds->posts_release()) {
            detail::post_release(holds->client(), ref);
        } else {
            detail::Releasing{session, end}.end(session.locks().end_acquisition(*ref.hold, ref.id),
                                                holds->release_mode());
        }
    }
}

#endif

}  // namespace redlatch::inline v0
