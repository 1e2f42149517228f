#pragma once

#include <redlatch/client.hpp>
#include <redlatch/compilation.hpp>
#include <redlatch/held.hpp>
#include <redlatch/net/per_process.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if REDLATCH_DEFINITIONS
#include <redlatch/async/inspect_operation.hpp>
#include <redlatch/async/ready_call.hpp>
#include <redlatch/steps/acquire.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/force_unlock.hpp>
#include <redlatch/steps/inspect.hpp>
#include <redlatch/steps/set_permits.hpp>

#include <algorithm>
#include <iterator>
#endif

namespace redlatch::inline v0::detail {

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
    std::shared_ptr<AsyncCallFor<SemaphoreInfo>> inspect_call() const;
    Result<Forced> force_release(std::string_view owner) const noexcept;

private:
    static LockSpec checked(LockSpec spec);
    Result<void> keep(Result<Held> taken);
    std::vector<Held> take_out(std::ptrdiff_t count);
    Result<LockSpec> taking(std::ptrdiff_t permits) const;
    Error bad(std::string what) const { return invalid(std::move(what), name()); }

    /// What `acquire()` and its like took through this object, one permit each.
    struct Acquired {
        std::mutex mutex;
        std::vector<Held> permits;
    };

    const LockSpec spec_;
    PerProcess<Acquired> acquired_;
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE SemaphoreImpl::SemaphoreImpl(const Client& client, std::string name,
                                             std::ptrdiff_t permits, const LockOptions& options,
                                             const PolicyTraits& traits)
    : spec_(checked({.client = Access::shared(client),
                     .keys = Access::keys(client, std::move(name)),
                     .traits = traits,
                     .options = options,
                     .claim = {.weight = 1, .limit = permits}})) {}

/// Refuses first what no lease or option makes possible.
REDLATCH_INLINE LockSpec SemaphoreImpl::checked(LockSpec spec) {
    if (spec.claim.limit < 0 || spec.claim.limit > max) {
        throw LockError{invalid("a semaphore has between 0 and 999,999,998 permits", spec.key())};
    }
    if (spec.client->has_several_masters()) {
        throw LockError{
            invalid("several masters cannot share permits: each of three majorities may "
                    "hold one of two",
                    spec.key())};
    }
    return check_spec(std::move(spec)).value();
}

REDLATCH_INLINE SemaphoreImpl::~SemaphoreImpl() {
    const Session* const session = spec_.client->existing_session();
    Acquired* const acquired = acquired_.existing();
    if (session == nullptr || acquired == nullptr) return;
    const TimePoint by = saturating_add(Clock::now(), session->command_timeout());
    for (Held& held : acquired->permits) Access::end(held, by);
}

/// The terms of taking so many permits, or why they cannot be taken.
REDLATCH_INLINE Result<LockSpec> SemaphoreImpl::taking(std::ptrdiff_t permits) const {
    if (permits < 1) return Unexpected{bad("fewer than 1 permit is asked for")};
    if (permits > std::max<std::int64_t>(spec_.claim.limit, 1)) {
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
    // Lost ones first, then the oldest. std::stable_partition uses something that is deprecated for some
    // compilers.
    std::vector<Held> out;
    std::vector<Held> held;
    for (Held& each : acquired.permits) (each.held() ? held : out).push_back(std::move(each));
    out.insert(out.end(), std::make_move_iterator(held.begin()),
               std::make_move_iterator(held.end()));
    const auto end = out.begin() + std::min(count, std::ssize(out));
    acquired.permits.assign(std::make_move_iterator(end), std::make_move_iterator(out.end()));
    out.erase(end, out.end());
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
    return inspect_permits(spec_.client->session(), spec_);
}

REDLATCH_INLINE std::shared_ptr<AsyncCallFor<SemaphoreInfo>> SemaphoreImpl::inspect_call() const {
    return std::make_shared<InspectOperation<SemaphoreInfo>>(spec_, semaphore_info);
}

REDLATCH_INLINE Result<Forced> SemaphoreImpl::force_release(std::string_view owner) const noexcept {
    if (owner.empty()) return Unexpected{bad("no owner is given whose permits are taken back")};
    return ForceUnlock{spec_.client->session(), spec_, owner}.run();
}

#endif

}  // namespace redlatch::inline v0::detail
