// A test of one's own program with a redis-server of its own: what happens when the server is frozen?

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>
#include <redlatch/testing.hpp>

#include <chrono>
#include <cstdio>
#include <exception>

using namespace std::chrono_literals;

int main() {
    const auto expect = [](bool condition) {
        example::require(condition, "the orders are handled");
    };
    try {
        // [testing]
        const redlatch::TestServer server;
        redlatch::Client redis{server.uri()};
        redlatch::Lock<> lock{redis, "order:pay"};
        expect(lock.try_lock());
        lock.unlock();

        server.freeze();
        const auto held = lock.acquire({.wait = 100ms});
        expect(!held && held.error().code == redlatch::Errc::unavailable);
        server.thaw();
        // [testing]
        std::puts("the order waited for a server that answers");
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "FAILED: %s\n", error.what());
        return 1;
    }
}
