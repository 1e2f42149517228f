// A lock without fencing tokens has none to show.
// expect: fence

#include <redlatch/redlatch.hpp>

#include <cstdint>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Watchdog<redlatch::Reentrant>;
#else
using Policy = redlatch::Watchdog<redlatch::Fenced<redlatch::Reentrant>>;
#endif

std::uint64_t use(const redlatch::Lock<Policy>& lock) {
    return lock.fence();
}
