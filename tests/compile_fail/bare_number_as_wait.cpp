// Five what?
// expect: int.* to .*Wait

#include <redlatch/redlatch.hpp>

bool enter(redlatch::Lock<>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    return lock.try_lock_for(5);
#else
    return lock.try_lock_for(std::chrono::seconds{5});
#endif
}
