#pragma once

#include <redlatch/async_result.hpp>
#include <redlatch/client.hpp>
#include <redlatch/clock.hpp>
#include <redlatch/compilation.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/options.hpp>
#include <redlatch/recycled_memory.hpp>
#include <redlatch/result.hpp>
#include <redlatch/steps/hold_ref.hpp>
#include <redlatch/types.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#if REDLATCH_DEFINITIONS
#include <redlatch/async/acquire_operation.hpp>
#include <redlatch/async/downgrade_operation.hpp>
#include <redlatch/async/extend_operation.hpp>
#include <redlatch/async/ready_call.hpp>
#include <redlatch/async/release_operation.hpp>
#include <redlatch/steps/acquire.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/downgrade.hpp>
#include <redlatch/steps/extend.hpp>
#include <redlatch/steps/lost.hpp>
#include <redlatch/steps/releasing.hpp>
#include <redlatch/steps/transferring.hpp>
#endif

namespace redlatch::inline v0 {

/// One acquisition of a lock, released at the end of its life. It belongs to nobody but its owner: it can be
/// moved to any thread, which may release it, and it outlives the `Lock` that it came from. The acquisitions
/// of one nest may end in any order; the lock is free when the last has ended.
///
/// By default the hold counts as the acquiring thread's even when the `Held` has gone to another thread: the
/// acquiring thread's next acquisition nests in it, or is `Errc::deadlock`. A `Held` that is to go to another
/// thread is acquired with `Owner::hold`.
///
/// One thread at a time may use it. Only `held()`, `remaining()`, `state()`, `lost()`, `fence()` and
/// `token()` may run beside each other and beside `extend()`, not beside a call that ends or moves the
/// object. A thread may ask the token of `lost()` at any time. In a forked child, an inherited `Held` holds
/// nothing and does nothing.
class [[nodiscard]] Held {
public:
    /// Holds nothing.
    Held() = default;
    /// Takes the acquisition over; `other` holds nothing then.
    Held(Held&& other) noexcept
        : client_(std::move(other.client_)),
          ref_(std::exchange(other.ref_, {})),
          release_mode_(other.release_mode_),
          posts_release_(other.posts_release_) {}
    /// The same, and ends what this held before, as the destructor does.
    Held& operator=(Held&& other) noexcept {
        if (this != &other) {
            end();
            client_ = std::move(other.client_);
            ref_ = std::exchange(other.ref_, {});
            release_mode_ = other.release_mode_;
            posts_release_ = other.posts_release_;
        }
        return *this;
    }
    /// Releases, as `release()` does, and waits as `LockOptions::release_mode` says. A `Held` that was
    /// acquired asynchronously waits for nothing, as with `async_release()`. The outcome goes to the
    /// observer.
    ~Held() { end(); }

    /// Ends this acquisition; the lock is free if it was the last one of its hold. Blocks for at
    /// most `command_timeout`. Whatever the outcome, nothing is held afterwards.
    ///
    /// Errors: `unclear`, when the server's answer was lost and the client cannot tell whether the lock was
    /// freed then or ran out; `unavailable`, `no_quorum` or `denied`, when it was certainly not
    /// freed: then it is free when its lease ends.
    Result<Release> release() noexcept;

    /// Makes the lock last `lease` from now on, or as long as it would have anyway if that is longer. A
    /// watched lock lasts no longer than `max_hold`: that is no error, and `remaining()` tells how long.
    /// Blocks for at most `command_timeout`.
    ///
    /// Errors: `lost`, and then the hold stays lost; `not_held`; `invalid_argument`; others leave the
    /// validity as it was.
    Result<void> extend(Lease lease) noexcept;

    /// Takes a reentrant lock once more, as one more hold of the same nest: the lock is free when all of them
    /// have ended. It waits for nobody, and blocks for at most `command_timeout`. If the first
    /// acquisition has a watchdog, that renews the lock. Otherwise the lock is renewed while an acquisition with a
    /// watchdog lasts.
    ///
    /// Errors: `not_held`, also where the lock was lost before; `lost`, where the server says so now;
    /// `invalid_argument` for a policy that is not reentrant; others leave this hold as it was.
    Result<Held> nest() noexcept;

    /// Gives the lock away, with a full lease from now on, to another process: the one that adopts the ticket
    /// by `Lock::adopt()`. Nobody holds it until then, and if nobody adopts it in time, the end of the lease
    /// and of `lock_delay` frees it. Its renewal ends, and this holds nothing any more, except where
    /// `invalid_argument` says that it goes on. Blocks for at most `command_timeout`.
    ///
    /// Errors:
    /// - `invalid_argument` where the hold is nested, is one of a shared lock or of permits, the policy's scripts
    ///   cannot move a lock, or several masters decide. This hold goes on.
    /// - `not_held`; `lost`.
    /// - Others where it is not known that the lock was given away. Then nobody gets the ticket, and the lock is
    ///   released in the background, with its `min_hold`.
    Result<Ticket> detach() noexcept;

    /// Ends this acquisition, as `release()` does, without blocking. In this process it has ended when this returns.
    /// The release is on its way whether its outcome is awaited or not, and cannot be cancelled. Where the client is
    /// just ending, the outcome may be `cancelled`; the lock is released all the same if the server answers in time.
    /// Only in that case this may block, for at most `command_timeout`.
    AsyncResult<Release> async_release() noexcept;

    /// The same; calls `done(Result<Release>)` on `executor`, where there is one. See `AsyncResult`.
    template <CompletionOf<Release> Done>
    void async_release(Done done, Executor* executor = nullptr) noexcept {
        detail::AsyncAccess::call_back(release_call(), std::move(done), executor);
    }

    /// As `extend()`, without blocking. Begins when it is awaited. This `Held` may be moved meanwhile.
    [[nodiscard]] AsyncResult<void> async_extend(Lease lease);

    /// The same; begins at once, and calls `done(Result<void>)` on `executor`, where there is one.
    template <CompletionOf<void> Done>
    void async_extend(Lease lease, Done done, Executor* executor = nullptr) {
        detail::AsyncAccess::call_back(extend_call(lease), std::move(done), executor);
    }

    /// As `nest()`, without blocking. Begins when it is awaited. This `Held` may be moved meanwhile.
    [[nodiscard]] AsyncResult<Held> async_nest();

    /// The same; begins at once, and calls `done(Result<Held>)` on `executor`, where there is one.
    template <CompletionOf<Held> Done>
    void async_nest(Done done, Executor* executor = nullptr) {
        detail::AsyncAccess::call_back(nest_call(), std::move(done), executor);
    }

    /// Turns writing of a shared lock into reading, for all holds of the nest; see `Lock::downgrade()`.
    /// `invalid_argument` for other locks.
    Result<void> downgrade() noexcept;

    /// As `downgrade()`, without blocking. Begins when it is awaited. This `Held` may be moved meanwhile.
    [[nodiscard]] AsyncResult<void> async_downgrade();

    /// The same; begins at once, and calls `done(Result<void>)` on `executor`, where there is one.
    template <CompletionOf<void> Done>
    void async_downgrade(Done done, Executor* executor = nullptr) {
        detail::AsyncAccess::call_back(downgrade_call(), std::move(done), executor);
    }

    /// Whether the validity is running now. No I/O: compares clocks.
    bool held() const noexcept;

    /// How much of the validity is left, rounded down; 0 where nothing is held. No I/O.
    std::chrono::milliseconds remaining() const noexcept;

    /// What the holder may rely on now. No I/O.
    HoldState state() const noexcept;

    /// Fires when the lock is known, or must be presumed, to be lost: at the latest when its validity ends.
    /// It does not fire at a release, not even at one that finds the lock gone. Without a hold it has fired
    /// already. Callbacks run on a thread of the client's. Throws `std::bad_alloc` where there is no memory
    /// for it.
    std::stop_token lost() const;

    /// The fencing token, also after the validity has ended. It is greater than that of every earlier holder
    /// of the lock. A reader has that of the last writer (over several masters, one between those of the last
    /// writer and of the next). 0 where nothing is held, and for a lock whose policy is not `Fenced`. No I/O.
    std::uint64_t fence() const noexcept;

    /// The owner token that the server stores; empty where nothing is held. No I/O.
    std::string token() const;

private:
    friend struct detail::Access;

    Held(std::shared_ptr<detail::SharedClient> client, detail::HoldRef ref,
         ReleaseMode release_mode)
        : client_(std::move(client)), ref_(std::move(ref)), release_mode_(release_mode) {}

    /// Ends at `by` at the latest, where several holds end within one `command_timeout`.
    Result<Release> release(detail::TimePoint by) noexcept;
    void end(detail::TimePoint by = detail::TimePoint::max()) noexcept;

    std::shared_ptr<detail::AsyncCallFor<Release>> release_call();
    std::shared_ptr<detail::AsyncCallFor<void>> extend_call(Lease lease);
    std::shared_ptr<detail::AsyncCallFor<Held>> nest_call();
    Result<void> check_downgrade() const;
    std::shared_ptr<detail::AsyncCallFor<void>> downgrade_call();

    std::shared_ptr<detail::SharedClient> client_{};
    detail::HoldRef ref_{};
    ReleaseMode release_mode_ = ReleaseMode::confirmed;
    bool posts_release_ = false;
};

namespace detail {

struct LockKeys;

/// Lets the public classes use each other's private members.
struct Access {
    static const std::shared_ptr<SharedClient>& shared(const Client& client) {
        return client.shared_;
    }
    static std::shared_ptr<const LockKeys> keys(const Client& client, std::string name);
    static Held held(std::shared_ptr<SharedClient> client, HoldRef ref, ReleaseMode release_mode) {
        return Held{std::move(client), std::move(ref), release_mode};
    }
    /// A `Held` whose destructor waits for nothing.
    static Held async_held(std::shared_ptr<SharedClient> client, HoldRef ref) {
        Held held{std::move(client), std::move(ref), ReleaseMode::confirmed};
        held.posts_release_ = true;
        return held;
    }
    static Result<Release> release(Held& held, TimePoint by) { return held.release(by); }
    static void end(Held& held, TimePoint by) { held.end(by); }
};

}  // namespace detail

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE std::shared_ptr<const detail::LockKeys> detail::Access::keys(const Client& client,
                                                                             std::string name) {
    return std::make_shared<const LockKeys>(std::move(name), client.shared_->key_space());
}

REDLATCH_INLINE Result<Release> Held::release() noexcept {
    return release(detail::TimePoint::max());
}

REDLATCH_INLINE Result<Release> Held::release(detail::TimePoint by) noexcept {
    const detail::HoldRef ref = std::exchange(ref_, {});
    if (!ref.is_ours()) return Release::not_held;
    detail::Session& session = client_->session();
    return detail::Releasing{session, by}.end(session.locks().end_acquisition(*ref.hold, ref.id));
}

REDLATCH_INLINE Result<void> Held::extend(Lease lease) noexcept {
    if (!ref_.is_ours()) {
        return Unexpected{detail::not_held()};
    }
    return detail::extend_hold(client_->session(), ref_.hold, lease);
}

namespace detail {

/// The terms of one more acquisition of a hold, or why there can be none.
inline Result<LockSpec> nesting_spec(const std::shared_ptr<SharedClient>& client,
                                     const HoldRef& ref) {
    if (!ref.is_ours()) return Unexpected{detail::not_held()};
    const HoldTerms& terms = ref.hold->terms();
    if (!terms.traits.reentrant) {
        return Unexpected{detail::invalid("only a reentrant lock can nest", ref.hold->key())};
    }
    return LockSpec{.client = client,
                    .keys = terms.keys,
                    .traits = terms.traits,
                    .options = {.lease = terms.lease,
                                .max_hold = terms.max_hold,
                                .lock_delay = terms.lock_delay,
                                .drift = terms.drift},
                    .claim = {.weight = ref.hold->weight(), .limit = terms.claim.limit}};
}

/// Delivers the acquired lock as a `Held`.
class HeldOperation : public AcquireOperation {
public:
    using AcquireOperation::AcquireOperation;

    Result<Held> take() noexcept override {
        auto ref = deliver();
        if (!ref) return Unexpected{std::move(ref).error()};
        return Access::async_held(lock.client, *std::move(ref));
    }
};

/// The call that acquires what `spec` says.
inline std::shared_ptr<AsyncCallFor<Held>> acquisition_call(const LockSpec& spec,
                                                            const AsyncOptions& options,
                                                            std::stop_token stop) {
    auto lease = check_lease(spec, options.lease.value_or(spec.options.lease));
    if (!lease) {
        return std::make_shared<ReadyCall<Held>>(spec.client, Unexpected{std::move(lease).error()});
    }
    return make_recycled<HeldOperation>(spec, *lease, options.wait, std::move(stop));
}

}  // namespace detail

REDLATCH_INLINE Result<Held> Held::nest() noexcept {
    const auto spec = detail::nesting_spec(client_, ref_);
    if (!spec) return Unexpected{spec.error()};
    const AcquireOptions options{.wait = Wait::none()};
    auto ref =
        detail::Acquiring{client_->session(), *spec, spec->options.lease, options, nullptr}.nest_in(
            ref_.hold);
    if (!ref) return Unexpected{std::move(ref).error()};
    Held inner{client_, *std::move(ref), release_mode_};
    inner.posts_release_ = posts_release_;
    return inner;
}

REDLATCH_INLINE AsyncResult<Release> Held::async_release() noexcept {
    auto call = release_call();
    call->start();
    return detail::AsyncAccess::awaitable(std::move(call));
}

REDLATCH_INLINE AsyncResult<void> Held::async_extend(Lease lease) {
    return detail::AsyncAccess::awaitable(extend_call(lease));
}

REDLATCH_INLINE AsyncResult<Held> Held::async_nest() {
    return detail::AsyncAccess::awaitable(nest_call());
}

REDLATCH_INLINE std::shared_ptr<detail::AsyncCallFor<Release>> Held::release_call() {
    const detail::HoldRef ref = std::exchange(ref_, {});
    if (!ref.is_ours()) {
        return std::make_shared<detail::ReadyCall<Release>>(client_, Release::not_held);
    }
    return detail::make_recycled<detail::ReleaseOperation>(client_, ref);
}

REDLATCH_INLINE std::shared_ptr<detail::AsyncCallFor<void>> Held::extend_call(Lease lease) {
    using Ready = detail::ReadyCall<void>;
    if (!ref_.is_ours()) {
        return std::make_shared<Ready>(client_, Unexpected{detail::not_held()});
    }
    auto fits = detail::check_extension(client_->session(), *ref_.hold, lease);
    if (!fits) return std::make_shared<Ready>(client_, std::move(fits));
    return std::make_shared<detail::ExtendOperation>(client_, ref_.hold, lease);
}

REDLATCH_INLINE std::shared_ptr<detail::AsyncCallFor<Held>> Held::nest_call() {
    auto spec = detail::nesting_spec(client_, ref_);
    if (!spec) {
        return std::make_shared<detail::ReadyCall<Held>>(client_,
                                                         Unexpected{std::move(spec).error()});
    }
    return detail::make_recycled<detail::HeldOperation>(*spec, spec->options.lease, Wait::none(),
                                                        std::stop_token{}, ref_.hold);
}

REDLATCH_INLINE Result<Ticket> Held::detach() noexcept {
    if (!ref_.is_ours()) return Unexpected{detail::not_held()};
    auto ticket = detail::detach_hold(client_->session(), ref_);
    if (ticket || ticket.error().code != Errc::invalid_argument) ref_ = {};
    return ticket;
}

REDLATCH_INLINE Result<void> Held::downgrade() noexcept {
    if (auto can = check_downgrade(); !can) return can;
    return detail::downgrade_hold(client_->session(), ref_.hold);
}

REDLATCH_INLINE AsyncResult<void> Held::async_downgrade() {
    return detail::AsyncAccess::awaitable(downgrade_call());
}

REDLATCH_INLINE Result<void> Held::check_downgrade() const {
    if (!ref_.is_ours()) return Unexpected{detail::not_held()};
    if (ref_.hold->terms().traits.shared) return {};
    return Unexpected{detail::invalid("only a shared lock can be read", ref_.hold->key())};
}

REDLATCH_INLINE std::shared_ptr<detail::AsyncCallFor<void>> Held::downgrade_call() {
    if (auto can = check_downgrade(); !can) {
        return std::make_shared<detail::ReadyCall<void>>(client_, std::move(can));
    }
    return std::make_shared<detail::DowngradeOperation>(client_, ref_.hold);
}

REDLATCH_INLINE bool Held::held() const noexcept {
    return ref_.is_ours() && ref_.hold->is_seen_valid(Clock::now());
}

REDLATCH_INLINE std::chrono::milliseconds Held::remaining() const noexcept {
    if (!ref_.is_ours()) return std::chrono::milliseconds::zero();
    return ref_.hold->remaining(Clock::now());
}

REDLATCH_INLINE HoldState Held::state() const noexcept {
    return ref_.is_ours() ? ref_.hold->state(Clock::now()) : HoldState::none;
}

REDLATCH_INLINE std::stop_token Held::lost() const {
    if (!ref_.is_ours()) return detail::stopped_token();
    return detail::lost_token(client_->session(), ref_.hold);
}

REDLATCH_INLINE std::uint64_t Held::fence() const noexcept {
    return ref_.is_ours() ? ref_.hold->fence : 0;
}

REDLATCH_INLINE std::string Held::token() const {
    return ref_.is_ours() ? ref_.hold->token().bytes : std::string{};
}

REDLATCH_INLINE void Held::end(detail::TimePoint by) noexcept {
    const detail::HoldRef ref = std::exchange(ref_, {});
    if (!ref.is_ours()) return;
    if (posts_release_) return detail::post_release(client_, ref);
    detail::Session& session = client_->session();
    detail::Releasing{session, by}.run(session.locks().end_acquisition(*ref.hold, ref.id),
                                       release_mode_);
}

#endif

}  // namespace redlatch::inline v0
