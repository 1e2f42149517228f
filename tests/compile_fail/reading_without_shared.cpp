// Nobody reads with a lock that one holder has for itself.
// expect: is_shared

#include <redlatch/redlatch.hpp>

#include <shared_mutex>

#ifdef REDLATCH_EXPECT_FAIL
using Policy = redlatch::Watchdog<redlatch::Simple>;
#else
using Policy = redlatch::Watchdog<redlatch::Shared>;
#endif

void use(redlatch::Lock<Policy>& lock) {
    lock.lock_shared();
    lock.unlock_shared();
}
