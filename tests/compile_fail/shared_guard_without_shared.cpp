// A guard of readers needs a lock that has readers.
// expect: is_shared

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Watchdog<redlatch::Reentrant>;
#else
using Policy = redlatch::Watchdog<redlatch::Shared>;
#endif

bool use(redlatch::Lock<Policy>& lock) {
    const redlatch::SharedGuard guard{lock};
    return static_cast<bool>(guard);
}
