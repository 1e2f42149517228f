// Servers of every kind: behind Sentinel, in a Cluster, several masters, and over a connection of your own.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>
#include <redlatch/testing.hpp>

#include <hiredis/hiredis.h>

#include <sys/time.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

using namespace std::chrono_literals;

namespace {

int done = 0;

void work() {
    ++done;
}

// A client connects at the first use, so these two need no servers.

void behind_sentinel() {
    // [sentinel]
    redlatch::Client redis{
        {.uris = {"redis+sentinel://:secret@sentinel-1,sentinel-2,sentinel-3/orders"},
         .sentinel_password = "another secret"}};
    redlatch::Lock<> lock{redis, "order:pay", {.replicas = 1}};  // one replica has it, too
    // [sentinel]
}

void in_a_cluster() {
    // [cluster]
    redlatch::Client redis{"redis+cluster://node-1,node-2,node-3"};
    redlatch::Lock<> lock{redis, "pay:{order:4711}"};  // in one slot with the order's own keys
    // [cluster]
}

void on_several_masters() {
    const redlatch::TestServer first;
    const redlatch::TestServer second;
    const redlatch::TestServer third;
    const std::string a = first.uri();
    const std::string b = second.uri();
    const std::string c = third.uri();
    // [masters]
    redlatch::Client redis{{.uris = {a, b, c}, .longest_lease = 2s}};  // the same in all clients
    redlatch::Lock<> lock{redis, "order:pay", {.lease = 2s}};          // a longer one is refused
    if (auto held = lock.acquire({.wait = 1min})) work();  // not before the masters are 2 s old
    // [masters]
}

void over_a_connection_of_ones_own() {
    const redlatch::TestServer server;
    const std::string path = server.socket();
    // [factory]
    redlatch::ConnectionFactory tunnel{
        .connect =
            [path](std::chrono::milliseconds timeout) {
                const auto seconds = std::chrono::floor<std::chrono::seconds>(timeout);
                const std::chrono::microseconds rest = timeout - seconds;
                return ::redisConnectUnixWithTimeout(
                    path.c_str(), {.tv_sec = static_cast<time_t>(seconds.count()),
                                   .tv_usec = static_cast<suseconds_t>(rest.count())});
            },
        .name = "tunnel"};
    redlatch::Client redis{tunnel};
    // [factory]
    redlatch::Lock<> lock{redis, "order:pay"};
    if (auto held = lock.acquire({.wait = 1min})) work();
}

}  // namespace

int main() {
    try {
        behind_sentinel();
        in_a_cluster();
        on_several_masters();
        over_a_connection_of_ones_own();
        example::require(done == 2, "the work is done on several masters and over the tunnel");
        std::puts("locked on three masters, and through a tunnel");
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "FAILED: %s\n", error.what());
        return 1;
    }
}
