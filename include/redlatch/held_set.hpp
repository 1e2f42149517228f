#pragma once

#include <redlatch/async_result.hpp>
#include <redlatch/clock.hpp>
#include <redlatch/compilation.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/options.hpp>
#include <redlatch/result.hpp>
#include <redlatch/types.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string_view>
#include <utility>

#if REDLATCH_DEFINITIONS
#include <redlatch/async/extend_operation.hpp>
#include <redlatch/async/joint_call.hpp>
#include <redlatch/async/ready_call.hpp>
#include <redlatch/async/release_operation.hpp>
#include <redlatch/steps/any_stop.hpp>
#include <redlatch/steps/extend.hpp>
#include <redlatch/steps/hold_ref.hpp>
#include <redlatch/steps/lost.hpp>
#include <redlatch/steps/releasing.hpp>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>
#endif

namespace redlatch::inline v0 {

namespace detail {
class HeldSetOperation;
class HoldsOfSet;
class LockSetImpl;
}  // namespace detail

/// All locks of a `LockSet`, held as one, and released together at the end of its life. It is held as long as
/// all of them are. Like a `Held` it belongs to its acquisition: any thread may release it, it outlives its
/// `LockSet`, and in a forked child it holds nothing.
///
/// One thread at a time may use it. Only `held()`, `remaining()`, `state()`, `lost()` and `fence()` may run
/// beside each other and beside `extend()`, not beside a call that ends or moves the object.
///
/// `release()` and `extend()` take a round trip for each lock, one after the other, and `command_timeout` for all of
/// them. Where that is too little for so many locks, `release()` leaves the rest to the background, and `extend()`
/// fails. A higher `command_timeout`, or the asynchronous calls, which ask for all at once, do better.
class [[nodiscard]] HeldSet {
public:
    /// Holds nothing.
    HeldSet() = default;
    /// Takes the acquisition over; the object that was moved from holds nothing then.
    HeldSet(HeldSet&&) = default;
    /// The same, and ends what this held before, as the destructor does.
    HeldSet& operator=(HeldSet&& other) noexcept {
        if (this != &other) {
            end();
            holds_ = std::move(other.holds_);
        }
        return *this;
    }
    /// Releases all, as `release()` does, and waits as `LockOptions::release_mode` says. Locks that were
    /// acquired asynchronously are released as by `async_release()`, without waiting.
    ~HeldSet() { end(); }

    /// Releases all. Blocks for at most `command_timeout` in all. Whatever the outcome, nothing is held
    /// afterwards. `expired` where one was gone before, `still_held` where one was nested.
    ///
    /// Errors: that of the first lock that has one, as of `Held::release()`.
    Result<Release> release() noexcept;

    /// Makes all last `lease` from now on, one after the other; the validity is the least of theirs. Blocks for
    /// at most `command_timeout` in all.
    ///
    /// Errors: those of `Held::extend()`. The first error ends the call, so that other locks may last longer.
    Result<void> extend(Lease lease) noexcept;

    /// Releases all, and blocks for nothing; as `Held::async_release()`, with the outcomes of `release()`.
    AsyncResult<Release> async_release() noexcept;

    /// The same; calls `done(Result<Release>)` on `executor`, where there is one. See
    /// `AsyncResult`.
    template <CompletionOf<Release> Done>
    void async_release(Done done, Executor* executor = nullptr) noexcept {
        detail::AsyncAccess::call_back(release_call(), std::move(done), executor);
    }

    /// As `extend()`, without blocking, and all at once: an extension that fails ends none of the others.
    /// Begins when it is awaited. This `HeldSet` may be moved meanwhile.
    [[nodiscard]] AsyncResult<void> async_extend(Lease lease);

    /// The same; begins at once, and calls `done(Result<void>)` on `executor`, where there is one.
    template <CompletionOf<void> Done>
    void async_extend(Lease lease, Done done, Executor* executor = nullptr) {
        detail::AsyncAccess::call_back(extend_call(lease), std::move(done), executor);
    }

    /// Whether the validity of all is running now. No I/O.
    bool held() const noexcept;

    /// How much is left of the validity that ends first, rounded down. No I/O.
    std::chrono::milliseconds remaining() const noexcept;

    /// The worst state of its locks. No I/O.
    HoldState state() const noexcept;

    /// Fires with the first lock that is lost; see `Held::lost()`. Throws `std::bad_alloc` where there is no
    /// memory for it.
    std::stop_token lost() const;

    /// The fencing token of the lock with that name; 0 for a name that is not there, and where the policy is
    /// not `Fenced`. No I/O.
    std::uint64_t fence(std::string_view name) const noexcept;

private:
    friend class detail::LockSetImpl;
    friend class detail::HeldSetOperation;

    explicit HeldSet(std::shared_ptr<detail::HoldsOfSet> holds) : holds_(std::move(holds)) {}

    bool is_ours() const noexcept;
    void end() noexcept;

    std::shared_ptr<detail::AsyncCallFor<Release>> release_call();
    std::shared_ptr<detail::AsyncCallFor<void>> extend_call(Lease lease);

    std::shared_ptr<detail::HoldsOfSet> holds_{};
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
        // In a forked child, a callback that was running at the fork never ends: so all callbacks stay as
        // they are.
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

    /// Takes the holds out, in the order in which they are to end. From then on nobody is told of a loss.
    std::vector<HoldRef> take() {
        if (!are_ours()) return {};
        if (loss_ != nullptr) session().destroy_later(std::move(loss_));
        std::ranges::reverse(refs_);
        return std::exchange(refs_, {});
    }

    std::stop_token lost() {
        const std::lock_guard lock{mutex_};
        if (loss_ == nullptr) {
            auto any = std::make_shared<AnyStop>();
            for (const HoldRef& ref : refs_) any->add(lost_token(session(), ref.hold));
            loss_ = std::move(any);  // not before it has all of them
        }
        return loss_->token();
    }

private:
    std::shared_ptr<SharedClient> client_;
    std::vector<HoldRef> refs_;
    ReleaseMode release_mode_;
    bool posts_release_;
    std::mutex mutex_;
    std::shared_ptr<AnyStop> loss_;  // made at the first call of `lost()`
};

}  // namespace detail

/// Whether there are locks in it, which this process has acquired.
REDLATCH_INLINE bool HeldSet::is_ours() const noexcept {
    return holds_ != nullptr && holds_->are_ours();
}

REDLATCH_INLINE Result<Release> HeldSet::release() noexcept {
    if (!is_ours()) return Release::not_held;
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
        return std::make_shared<Ready>(client, Unexpected{detail::not_held()});
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
    if (!is_ours()) return Unexpected{detail::not_held()};
    detail::Session& session = holds_->session();
    const auto end = detail::saturating_add(Clock::now(), session.command_timeout());
    for (const auto& ref : holds_->refs()) {
        auto done = detail::extend_hold(session, ref.hold, lease, {end});
        if (!done) return done;
    }
    return {};
}

REDLATCH_INLINE bool HeldSet::held() const noexcept {
    if (!is_ours()) return false;
    return std::ranges::all_of(holds_->refs(), [now = Clock::now()](const auto& ref) {
        return ref.hold->is_seen_valid(now);
    });
}

REDLATCH_INLINE std::chrono::milliseconds HeldSet::remaining() const noexcept {
    if (!is_ours()) return std::chrono::milliseconds::zero();
    auto least = std::chrono::milliseconds::max();
    for (const auto& ref : holds_->refs()) {
        least = std::min(least, ref.hold->remaining(Clock::now()));
    }
    return least;
}

REDLATCH_INLINE HoldState HeldSet::state() const noexcept {
    if (!is_ours()) return HoldState::none;
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
    if (!is_ours()) return detail::stopped_token();
    return holds_->lost();
}

REDLATCH_INLINE std::uint64_t HeldSet::fence(std::string_view name) const noexcept {
    if (!is_ours()) return 0;
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
            detail::Releasing{session, end}.run(session.locks().end_acquisition(*ref.hold, ref.id),
                                                holds->release_mode());
        }
    }
}

#endif

}  // namespace redlatch::inline v0
