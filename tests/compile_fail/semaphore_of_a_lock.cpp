// A semaphore's policy is about permits, and a lock's is not.
// expect: a Semaphore's policy is Permits

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Simple;
#else
using Policy = redlatch::Permits;
#endif

void use(redlatch::Client& client) {
    redlatch::Semaphore<Policy> semaphore{client, "pool", 4};
    semaphore.acquire();
}
