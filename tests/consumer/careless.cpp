// The second translation unit, so that a function missing its `inline` shows. And code that redlatch's
// own warnings would refuse (unused, shadow, conversion): they must not reach a user.
#include <redlatch/redlatch.hpp>

int careless(int unused) {
    double value = REDLATCH_VERSION_PATCH;
    int result = value;
    {
        int value = 1;
        result += value;
    }
    return result > 0 ? 0 : 1;
}
