// Options have names, not a text.
// expect: char.* to .*LockOptions

#include <redlatch/redlatch.hpp>

void use(redlatch::Client& client) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::Lock<> lock{client, "name", "lease=30s"};
#else
    redlatch::Lock<> lock{client, "name", {.lease = std::chrono::seconds{30}}};
#endif
}
