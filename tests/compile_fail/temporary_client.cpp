// The client has to live as long as there is something to hold.
// expect: (rvalue of type .*Client|expects an lvalue for 1st argument)

#include <redlatch/redlatch.hpp>

void use([[maybe_unused]] redlatch::Client& client) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::Lock<> lock{redlatch::Client{"redis://a"}, "name"};
#else
    redlatch::Lock<> lock{client, "name"};
#endif
}
