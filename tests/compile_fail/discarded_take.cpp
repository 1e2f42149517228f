// Permits that nobody keeps are given back at once.
// expect: ignoring.*nodiscard

#include <redlatch/redlatch.hpp>

void work(redlatch::Semaphore<>& semaphore) {
#ifdef REDLATCH_EXPECT_FAIL
    semaphore.take({.permits = 2});
#else
    const redlatch::Result<redlatch::Held> held = semaphore.take({.permits = 2});
#endif
}
