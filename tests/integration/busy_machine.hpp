#pragma once

// What tests need to tell a busy machine from a fault.

#include "lock_test.hpp"

#include <algorithm>

namespace redlatch::test {

template <class T>
Errc code_of_try(const Result<T>& result) {
    return code_of(result);
}
inline Errc code_of_try(bool had) {
    return had ? Errc{} : Errc::timed_out;
}

/// Whether a try ends because somebody else has the lock. A timed one waits for its last answer until 50 ms
/// past its deadline; where a busy machine needs longer, it says `unavailable`, as it should, and is made again.
template <class Try>
[[nodiscard]] bool times_out(Try attempt) {
    Errc code{};
    return eventually([&] {
               try {
                   code = code_of_try(attempt());
               } catch (const LockError& error) {
                   code = error.error().code;
               }
               return code != Errc::unavailable;
           }) &&
           code == Errc::timed_out;
}

/// Whether a timed wait has ended without the lock, where it can't be made again: without its last answer, too.
template <class T>
[[nodiscard]] testing::AssertionResult was_in_vain(const Result<T>& wait) {
    const Errc code = code_of(wait);
    if (code == Errc::timed_out || code == Errc::unavailable) return testing::AssertionSuccess();
    if (wait) return testing::AssertionFailure() << "it succeeded";
    return testing::AssertionFailure() << wait.error().describe();
}

/// Whether a watchdog renews it: there is more left of its validity than there was. Waits for that; a lease
/// should be long enough for a renewal that comes some seconds late.
template <class Hold>
[[nodiscard]] bool is_renewed(const Hold& hold) {
    auto least = hold.remaining();
    return eventually([&] {
        const auto remaining = hold.remaining();
        if (remaining > least) return true;
        least = remaining;
        return false;
    });
}

}  // namespace redlatch::test
