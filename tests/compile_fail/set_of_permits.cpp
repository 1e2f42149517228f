// A set has one policy, and none that is a semaphore's.
// expect: permits are a Semaphore's

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Permits;
#else
using Policy = redlatch::Shared;
#endif

void use(redlatch::Client& client) {
    redlatch::LockSet<Policy> set{client, {"a", "b"}};
    set.lock();
}
