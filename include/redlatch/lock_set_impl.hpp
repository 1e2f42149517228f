#pragma once

#include <redlatch/client.hpp>
#include <redlatch/compilation.hpp>
#include <redlatch/held_set.hpp>
#include <redlatch/steps/hold_ref.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/steps/read_through.hpp>

#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#if REDLATCH_DEFINITIONS
#include <redlatch/async/acquire_set_operation.hpp>
#include <redlatch/async/ready_call.hpp>
#include <redlatch/core/own_claim.hpp>
#include <redlatch/steps/acquire_set.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/reading.hpp>
#include <redlatch/steps/thread_serial.hpp>

#include <algorithm>
#endif

namespace redlatch::inline v0::detail {

class Session;

/// What a `LockSet` does, whatever its policy. Its members are those of `LockSet`, and documented there.
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

#if REDLATCH_DEFINITIONS

/// Delivers the acquired locks as a `HeldSet`.
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
        throw LockError{invalid("the name is there twice in a set of locks", *twice)};
    }
    for (std::string& name : names) {
        specs_.push_back(check_spec(LockSpec{.client = Access::shared(client),
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
        Releasing releasing{session(), end};
        const LockTable::Ending ending = end_of(spec.key());
        if (ending.kind == LockTable::Ending::Kind::nothing) {
            releasing.tell_not_held(spec.key());
        } else {
            releasing.run(ending, spec.options.release_mode);
        }
    });
}

#endif

}  // namespace redlatch::inline v0::detail
