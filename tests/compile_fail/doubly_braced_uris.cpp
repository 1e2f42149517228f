// A pair of literals in two pairs of braces must not become one string from two pointers.
// expect: no matching (function|constructor).*Client

#include <redlatch/redlatch.hpp>

void connect() {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::Client client{{"redis://a", "redis://b"}};
#else
    redlatch::Client client{{"redis://a"}};
#endif
}
