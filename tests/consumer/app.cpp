// The smallest user of redlatch. It connects to nothing: that it compiles, links and starts is the test.
#include <redlatch/version.hpp>

int careless(int);

int main() {
    return careless(REDLATCH_VERSION_MAJOR);
}
