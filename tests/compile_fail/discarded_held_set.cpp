// Whoever calls this has to keep what it returns.
// expect: ignoring.*nodiscard

#include <redlatch/redlatch.hpp>

redlatch::HeldSet enter(redlatch::LockSet<>& set) {
    return set.acquire().value();
}

void work(redlatch::LockSet<>& set) {
#ifdef REDLATCH_EXPECT_FAIL
    enter(set);
#else
    const redlatch::HeldSet held = enter(set);
#endif
}
