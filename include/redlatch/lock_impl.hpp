#pragma once

#include <redlatch/client.hpp>
#include <redlatch/compilation.hpp>
#include <redlatch/held.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/steps/read_through.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#if REDLATCH_DEFINITIONS
#include <redlatch/async/inspect_operation.hpp>
#include <redlatch/core/own_claim.hpp>
#include <redlatch/steps/acquire.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/downgrade.hpp>
#include <redlatch/steps/extend.hpp>
#include <redlatch/steps/force_unlock.hpp>
#include <redlatch/steps/inspect.hpp>
#include <redlatch/steps/lost.hpp>
#include <redlatch/steps/reading.hpp>
#include <redlatch/steps/releasing.hpp>
#include <redlatch/steps/thread_serial.hpp>
#include <redlatch/steps/transferring.hpp>
#endif

namespace redlatch::inline v0::detail {

/// What a `Lock` does, whatever its policy. Its members are those of `Lock`, and documented there.
class LockImpl {
public:
    LockImpl(const Client& client, std::string name, const LockOptions& options,
             const PolicyTraits& traits);
    LockImpl(const LockImpl&) = delete;
    LockImpl& operator=(const LockImpl&) = delete;
    ~LockImpl();

    const std::string& name() const noexcept { return spec_.key(); }

    /// Waits for the lock; throws any error.
    void take(const AcquireOptions& options);
    /// The same, but false where the lock was taken until the end of the wait.
    bool try_take(const AcquireOptions& options);
    void unlock() noexcept;

    Result<Held> acquire(const AcquireOptions& options) noexcept;
    Result<Release> release() noexcept;

    void take_shared(const AcquireOptions& options);
    bool try_take_shared(const AcquireOptions& options);
    void unlock_shared() noexcept;
    Result<Held> acquire_shared(const AcquireOptions& options) noexcept;
    Result<Release> release_shared() noexcept;
    Result<void> downgrade() noexcept;

    Result<void> extend(Lease lease) noexcept;

    bool held() const noexcept;
    std::chrono::milliseconds remaining() const noexcept;
    HoldState state() const noexcept;
    std::stop_token lost() const;
    std::uint64_t fence() const noexcept;

    std::shared_ptr<AsyncCallFor<Held>> acquire_call(const AsyncOptions& options,
                                                     std::stop_token stop) const;
    std::shared_ptr<AsyncCallFor<Held>> acquire_shared_call(const AsyncOptions& options,
                                                            std::stop_token stop) const;
    std::shared_ptr<AsyncCallFor<LockInfo>> inspect_call() const;

    Result<LockInfo> inspect() const noexcept;
    Result<Forced> force_unlock() noexcept;
    Result<Forced> force_unlock(std::string_view owner) noexcept;
    Result<Held> adopt(const Ticket& ticket, Owner owner) noexcept;

private:
    Result<HoldRef> acquire_ref(const AcquireOptions& options, const void* through);
    Result<HoldRef> acquire_ref_shared(const AcquireOptions& options, const void* through);
    Result<HoldRef> acquire_ref(const LockSpec& spec, const AcquireOptions& options,
                                const void* through);
    enum class Ended : bool { any, reading };
    std::optional<Result<Release>> end(Ended which, ReleaseMode mode);
    std::shared_ptr<Hold> my_hold() const noexcept;

    const LockSpec spec_;
    ReadThrough read_through_;
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE LockImpl::LockImpl(const Client& client, std::string name,
                                   const LockOptions& options, const PolicyTraits& traits)
    : spec_(check_spec(LockSpec{.client = Access::shared(client),
                                .keys = Access::keys(client, std::move(name)),
                                .traits = traits,
                                .options = options,
                                .claim = writing_claim(traits)})
                .value()) {}

REDLATCH_INLINE LockImpl::~LockImpl() {
    Session* const session = spec_.client->existing_session();
    if (session == nullptr) return;
    const ReleaseMode mode = spec_.options.release_mode;
    const TimePoint by = saturating_add(Clock::now(), session->command_timeout());
    end_all_through(*session, spec_.key(), this, mode, by);
    end_all_read_through(*session, read_through_, this, mode, by);
}

REDLATCH_INLINE void LockImpl::take(const AcquireOptions& options) {
    auto ref = acquire_ref(options, this);
    if (!ref) throw LockError{std::move(ref).error()};
}

REDLATCH_INLINE bool LockImpl::try_take(const AcquireOptions& options) {
    auto ref = acquire_ref(options, this);
    if (!ref && !is_refusal(ref.error(), options.wait)) throw LockError{std::move(ref).error()};
    return ref.has_value();
}

REDLATCH_INLINE void LockImpl::take_shared(const AcquireOptions& options) {
    auto ref = acquire_ref_shared(options, this);
    if (!ref) throw LockError{std::move(ref).error()};
}

REDLATCH_INLINE bool LockImpl::try_take_shared(const AcquireOptions& options) {
    auto ref = acquire_ref_shared(options, this);
    if (!ref && !is_refusal(ref.error(), options.wait)) throw LockError{std::move(ref).error()};
    return ref.has_value();
}

REDLATCH_INLINE Result<Held> LockImpl::acquire_shared(const AcquireOptions& options) noexcept {
    auto ref = acquire_ref_shared(options, nullptr);
    if (!ref) return Unexpected{std::move(ref).error()};
    return Access::held(spec_.client, *std::move(ref), spec_.options.release_mode);
}

REDLATCH_INLINE void LockImpl::unlock_shared() noexcept {
    end(Ended::reading, spec_.options.release_mode);
}

REDLATCH_INLINE Result<Release> LockImpl::release_shared() noexcept {
    return end(Ended::reading, ReleaseMode::confirmed).value_or(Release::not_held);
}

/// Ends the calling thread's innermost acquisition, or the innermost one that reads. Returns nothing where
/// the release was only sent.
REDLATCH_INLINE std::optional<Result<Release>> LockImpl::end(Ended which, ReleaseMode mode) {
    Session& session = spec_.client->session();
    Releasing releasing{session};
    const bool reads = which == Ended::reading;
    const auto ending = reads ? end_reading(session, name(), this_thread())
                              : session.locks().end_innermost(name(), this_thread());
    if (ending.kind == LockTable::Ending::Kind::nothing) return releasing.tell_not_held(name());
    auto outcome = releasing.run(ending, mode);
    if (reads) forget_reading(session, name(), read_through_);
    return outcome;
}

REDLATCH_INLINE Result<void> LockImpl::downgrade() noexcept {
    Session& session = spec_.client->session();
    const auto hold = session.locks().find(spec_.key(), this_thread());
    if (hold == nullptr) return Unexpected{not_held(spec_.key())};
    return downgrade_hold(session, hold);
}

REDLATCH_INLINE void LockImpl::unlock() noexcept {
    end(Ended::any, spec_.options.release_mode);
}

REDLATCH_INLINE Result<Held> LockImpl::acquire(const AcquireOptions& options) noexcept {
    auto ref = acquire_ref(options, nullptr);
    if (!ref) return Unexpected{std::move(ref).error()};
    return Access::held(spec_.client, *std::move(ref), spec_.options.release_mode);
}

REDLATCH_INLINE Result<Release> LockImpl::release() noexcept {
    return end(Ended::any, ReleaseMode::confirmed).value_or(Release::not_held);
}

REDLATCH_INLINE Result<void> LockImpl::extend(Lease lease) noexcept {
    const auto hold = my_hold();
    if (hold == nullptr) {
        return Unexpected{not_held(spec_.key())};
    }
    return extend_hold(spec_.client->session(), hold, lease);
}

REDLATCH_INLINE bool LockImpl::held() const noexcept {
    const auto hold = my_hold();
    return hold != nullptr && hold->is_seen_valid(Clock::now());
}

REDLATCH_INLINE std::chrono::milliseconds LockImpl::remaining() const noexcept {
    const auto hold = my_hold();
    return hold == nullptr ? std::chrono::milliseconds::zero() : hold->remaining(Clock::now());
}

REDLATCH_INLINE HoldState LockImpl::state() const noexcept {
    const auto hold = my_hold();
    return hold == nullptr ? HoldState::none : hold->state(Clock::now());
}

REDLATCH_INLINE std::stop_token LockImpl::lost() const {
    const auto hold = my_hold();
    if (hold == nullptr) return stopped_token();
    return lost_token(spec_.client->session(), hold);
}

REDLATCH_INLINE std::uint64_t LockImpl::fence() const noexcept {
    const auto hold = my_hold();
    return hold == nullptr ? 0 : hold->fence;
}

REDLATCH_INLINE std::shared_ptr<AsyncCallFor<Held>> LockImpl::acquire_call(
    const AsyncOptions& options, std::stop_token stop) const {
    return acquisition_call(spec_, options, std::move(stop));
}

REDLATCH_INLINE std::shared_ptr<AsyncCallFor<Held>> LockImpl::acquire_shared_call(
    const AsyncOptions& options, std::stop_token stop) const {
    return acquisition_call(spec_.reading(), options, std::move(stop));
}

REDLATCH_INLINE std::shared_ptr<AsyncCallFor<LockInfo>> LockImpl::inspect_call() const {
    const auto read = [](const ReplyView& answer, const LockSpec&) { return lock_info(answer); };
    return std::make_shared<InspectOperation<LockInfo>>(spec_, read);
}

REDLATCH_INLINE Result<LockInfo> LockImpl::inspect() const noexcept {
    return inspect_lock(spec_.client->session(), spec_);
}

REDLATCH_INLINE Result<Forced> LockImpl::force_unlock() noexcept {
    return ForceUnlock{spec_.client->session(), spec_, {}}.run();
}

REDLATCH_INLINE Result<Forced> LockImpl::force_unlock(std::string_view owner) noexcept {
    if (owner.empty()) {
        return Unexpected{invalid("no owner is given whose lock is to be removed", spec_.key())};
    }
    return ForceUnlock{spec_.client->session(), spec_, owner}.run();
}

REDLATCH_INLINE Result<Held> LockImpl::adopt(const Ticket& ticket, Owner owner) noexcept {
    auto ref = adopt_ticket(spec_.client->session(), spec_, ticket, owner);
    if (!ref) return Unexpected{std::move(ref).error()};
    return Access::held(spec_.client, *std::move(ref), spec_.options.release_mode);
}

REDLATCH_INLINE Result<HoldRef> LockImpl::acquire_ref(const AcquireOptions& options,
                                                      const void* through) {
    return acquire_ref(spec_, options, through);
}

REDLATCH_INLINE Result<HoldRef> LockImpl::acquire_ref_shared(const AcquireOptions& options,
                                                             const void* through) {
    if (through != nullptr) read_through_.add(reader_entry(spec_.key(), this_thread()));
    auto ref = acquire_ref(spec_.reading(), options, through);
    if (!ref && through != nullptr) {
        forget_reading(spec_.client->session(), spec_.key(), read_through_);
    }
    return ref;
}

REDLATCH_INLINE Result<HoldRef> LockImpl::acquire_ref(const LockSpec& spec,
                                                      const AcquireOptions& options,
                                                      const void* through) {
    auto lease = check_lease(spec, options.lease.value_or(spec.options.lease));
    if (!lease) return Unexpected{std::move(lease).error()};
    return Acquiring{spec.client->session(), spec, *lease, options, through}.run();
}

REDLATCH_INLINE std::shared_ptr<Hold> LockImpl::my_hold() const noexcept {
    Session* const session = spec_.client->existing_session();
    if (session == nullptr) return nullptr;  // a forked child holds nothing before its first call
    const LockOwner me = this_thread();
    auto hold = session->locks().find(spec_.key(), me);
    if (!spec_.traits.shared || (hold != nullptr && hold->valid(Clock::now()))) return hold;
    auto reading = session->locks().find(reader_entry(spec_.key(), me), me);
    return reading != nullptr ? reading : hold;
}

#endif

}  // namespace redlatch::inline v0::detail
