// A hold that nobody keeps is released at once.
// expect: ignoring.*nodiscard

#include <redlatch/redlatch.hpp>

bool enter(redlatch::Lock<>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    lock.acquire();
    return true;
#else
    return lock.acquire().has_value();
#endif
}
