// Taking a lock changes it.
// expect: no matching (function|constructor).*LockGuard

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
bool enter(const redlatch::Lock<>& lock) {
#else
bool enter(redlatch::Lock<>& lock) {
#endif
    const redlatch::LockGuard guard{lock};
    return static_cast<bool>(guard);
}
