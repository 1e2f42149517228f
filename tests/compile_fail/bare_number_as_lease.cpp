// Thirty what?
// expect: int.* to .*Lease

#include <redlatch/redlatch.hpp>

bool enter(redlatch::Lock<>& lock) {
    using namespace std::chrono_literals;
#ifdef REDLATCH_EXPECT_FAIL
    return lock.try_lock(10s, 30);
#else
    return lock.try_lock(10s, 30s);
#endif
}
