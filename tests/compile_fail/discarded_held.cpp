// Whoever calls this has to keep what it returns.
// expect: ignoring.*nodiscard

#include <redlatch/redlatch.hpp>

redlatch::Held enter(redlatch::Lock<>& lock) {
    return lock.acquire().value();
}

void work(redlatch::Lock<>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    enter(lock);
#else
    const redlatch::Held held = enter(lock);
#endif
}
