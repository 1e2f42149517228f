// The smallest user of redlatch. It connects to nothing: that it compiles, links and starts is the test.
#include <redlatch/redlatch.hpp>

#include <mutex>

int careless(int);

namespace {

void pay(redlatch::Client& redis) {
    redlatch::Lock<> lock{redis, "order:pay"};
    std::scoped_lock scope{lock};
}

}  // namespace

int main(int argc, char**) {
    redlatch::Client redis{"redis://127.0.0.1:6379"};
    if (argc > 1) pay(redis);
    return careless(0);
}
