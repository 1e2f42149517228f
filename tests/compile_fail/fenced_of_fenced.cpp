// One number for each acquisition is enough.
// expect: Fenced<P>: P has fencing tokens already

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Fenced<redlatch::Watchdog<redlatch::Fenced<redlatch::Simple>>>;
#else
using Policy = redlatch::Fenced<redlatch::Watchdog<redlatch::Simple>>;
#endif

void use(redlatch::Lock<Policy>& lock) {
    lock.lock();
}
