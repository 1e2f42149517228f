// One watchdog is enough.
// expect: Watchdog<P>: P has a watchdog already

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Watchdog<redlatch::Fenced<redlatch::Watchdog<redlatch::Simple>>>;
#else
using Policy = redlatch::Watchdog<redlatch::Fenced<redlatch::Simple>>;
#endif

void use(redlatch::Lock<Policy>& lock) {
    lock.lock();
}
