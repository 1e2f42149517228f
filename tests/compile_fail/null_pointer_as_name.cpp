// A lock has a name.
// expect: deleted

#include <redlatch/redlatch.hpp>

void use(redlatch::Client& client) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::Lock<> lock{client, nullptr};
#else
    redlatch::Lock<> lock{client, "null"};
#endif
}
