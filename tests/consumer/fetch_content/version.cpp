// Includes redlatch and is compiled in no time.

#include <redlatch/version.hpp>

int main() {
    static_assert(REDLATCH_VERSION_MAJOR >= 0);
}
