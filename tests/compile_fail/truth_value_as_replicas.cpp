// Whether, or how many? A character is no number either.
// expect: bool.* to .*Replicas
// expect: char.* to .*Replicas

#include <redlatch/redlatch.hpp>

#ifdef REDLATCH_EXPECT_FAIL
redlatch::LockOptions some{.replicas = true};
redlatch::LockOptions two{.replicas = '2'};
#else
redlatch::LockOptions some{.replicas = 1};
redlatch::LockOptions two{.replicas = 2};
#endif
