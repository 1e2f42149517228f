// All locks of a set have one owner.
// expect: HeldSet.*deleted|deleted.*HeldSet

#include <redlatch/redlatch.hpp>

#include <utility>

redlatch::HeldSet keep(redlatch::HeldSet& held) {
#ifdef REDLATCH_EXPECT_FAIL
    redlatch::HeldSet mine{held};
#else
    redlatch::HeldSet mine{std::move(held)};
#endif
    return mine;
}
