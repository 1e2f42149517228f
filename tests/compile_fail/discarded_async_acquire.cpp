// An acquisition begins when it is awaited.
// expect: async_acquire

#include <redlatch/redlatch.hpp>

void use(redlatch::Lock<>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    lock.async_acquire();
#else
    auto acquiring = lock.async_acquire();
    (void)acquiring;
#endif
}
