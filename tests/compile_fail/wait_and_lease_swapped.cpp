// Once they have a name, wait and lease cannot change places.
// expect: Lease.* to .*Wait

#include <redlatch/redlatch.hpp>

bool enter(redlatch::Lock<>& lock, redlatch::Wait wait, redlatch::Lease lease) {
#ifdef REDLATCH_EXPECT_FAIL
    return lock.try_lock(lease, wait);
#else
    return lock.try_lock(wait, lease);
#endif
}
