// Two handles with the same acquisitions behind them would unlock twice.
// expect: deleted (function|constructor).*Lock

#include <redlatch/redlatch.hpp>

void use(redlatch::Lock<>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::Lock<> copy = lock;
#else
    redlatch::Lock<>& copy = lock;
#endif
    copy.unlock();
}
