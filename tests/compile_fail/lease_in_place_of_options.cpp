// A lease is one of several options, and is named.
// expect: deleted.*Lock

#include <redlatch/redlatch.hpp>

void use(redlatch::Client& client) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::Lock<> lock{client, "name", std::chrono::seconds{30}};
#else
    redlatch::Lock<> lock{client, "name", {.lease = std::chrono::seconds{30}}};
#endif
}
