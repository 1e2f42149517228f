// One acquisition has one owner.
// expect: deleted (function|copy constructor).*Held

#include <redlatch/redlatch.hpp>

#include <utility>

redlatch::Held pass_on(redlatch::Held& held) {
#ifdef REDLATCH_EXPECT_FAIL
    return held;
#else
    return std::move(held);
#endif
}
