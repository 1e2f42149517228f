// What is called at the end takes the outcome.
// expect: CompletionOf

#include <redlatch/redlatch.hpp>

void use(redlatch::Lock<>& lock) {
#ifdef REDLATCH_EXPECT_FAIL
    lock.async_acquire({}, {}, [](bool) {});
#else
    lock.async_acquire({}, {}, [](redlatch::Result<redlatch::Held>) {});
#endif
}
