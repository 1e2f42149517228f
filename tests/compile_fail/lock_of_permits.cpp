// Permits have a semaphore, which knows how many there are.
// expect: permits are a Semaphore's

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Permits;
#else
using Policy = redlatch::Shared;
#endif

void use(redlatch::Client& client) {
    redlatch::Lock<Policy> lock{client, "job"};
    lock.lock();
}
