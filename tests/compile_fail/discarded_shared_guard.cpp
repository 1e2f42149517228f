// A guard without a name is gone at the end of its line, and reads nothing.
// expect: ignoring.*nodiscard

#include <redlatch/redlatch.hpp>

void work(redlatch::Lock<redlatch::Shared>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::SharedGuard{lock};
#else
    const redlatch::SharedGuard guard{lock};
#endif
}
