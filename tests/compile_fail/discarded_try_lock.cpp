// A try whose answer nobody reads would run the critical section without the lock.
// expect: ignoring return value.*nodiscard

#include <redlatch/redlatch.hpp>

bool enter(redlatch::Lock<>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    lock.try_lock();
    return true;
#else
    return lock.try_lock();
#endif
}
