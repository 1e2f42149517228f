#pragma once

#include <redlatch/lock.hpp>

#include <optional>
#include <utility>

namespace redlatch::inline v0 {

/// A scope that holds a lock, or says why not:
///
///     if (redlatch::LockGuard guard{lock, 2s}) { … } else { log(guard.error()); }
///
/// The constructor blocks as `Lock::acquire()` does, by default without limit, and does not throw. The destructor
/// releases as that of `Held` does.
class [[nodiscard]] LockGuard {
public:
    /// Acquires `lock`. The default of `lease` is that of the lock's options.
    template <LockPolicy Policy>
    [[nodiscard]] explicit LockGuard(Lock<Policy>& lock, Wait wait = Wait::unlimited(),
                                     std::optional<Lease> lease = std::nullopt) noexcept
        : LockGuard(lock.acquire({.wait = wait, .lease = lease})) {}
    LockGuard(const LockGuard&) = delete;
    LockGuard& operator=(const LockGuard&) = delete;

    /// Whether the lock was acquired; `hold().held()` tells whether it still is.
    explicit operator bool() const noexcept { return held_.has_value(); }

    /// Why the lock was not acquired. To be called only where it was not.
    const Error& error() const noexcept { return held_.error(); }

    /// @{
    /// The acquisition: to ask it, extend it or release it early. To be called only where there is one.
    Held& hold() noexcept { return *held_; }
    const Held& hold() const noexcept { return *held_; }
    /// @}

protected:
    /// Guards what was acquired, for guards of other kinds.
    explicit LockGuard(Result<Held> held) noexcept : held_(std::move(held)) {}

private:
    Result<Held> held_;
};

/// The same for reading a shared lock.
class [[nodiscard]] SharedGuard : public LockGuard {
public:
    /// Acquires `lock` for reading. The default of `lease` is that of the lock's options.
    template <LockPolicy Policy>
        requires is_shared<Policy>
    [[nodiscard]] explicit SharedGuard(Lock<Policy>& lock, Wait wait = Wait::unlimited(),
                                       std::optional<Lease> lease = std::nullopt) noexcept
        : LockGuard(lock.acquire_shared({.wait = wait, .lease = lease})) {}
};

}  // namespace redlatch::inline v0
