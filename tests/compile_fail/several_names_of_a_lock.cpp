// A pair of names must not become one string from two pointers: it is a LockSet's.
// expect: deleted

#include <redlatch/redlatch.hpp>

void use(redlatch::Client& client) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::Lock<> lock{client, {"order:1", "order:2"}};
#else
    redlatch::LockSet<> locks{client, {"order:1", "order:2"}};
#endif
}
