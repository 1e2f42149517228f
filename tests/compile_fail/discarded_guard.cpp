// A guard without a name ends where it begins.
// expect: ignoring.*nodiscard

#include <redlatch/redlatch.hpp>

void work(redlatch::Lock<>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::LockGuard{lock};
#else
    const redlatch::LockGuard guard{lock};
#endif
}
