// Several hold permits at once, and one number does not order them.
// expect: a Semaphore cannot be Fenced

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Watchdog<redlatch::Fenced<redlatch::Permits>>;
#else
using Policy = redlatch::Watchdog<redlatch::Permits>;
#endif

void use(redlatch::Client& client) {
    redlatch::Semaphore<Policy> semaphore{client, "pool", 4};
    semaphore.acquire();
}
