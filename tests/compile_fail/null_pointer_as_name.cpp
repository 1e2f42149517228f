// A lock has a name.
// expect: nullptr_t

#include <redlatch/redlatch.hpp>

void use(redlatch::Client& client) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::Lock<> lock{client, nullptr};
#else
    redlatch::Lock<> lock{client, "null"};
#endif
}
