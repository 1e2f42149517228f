// The README's first snippet: wait for a lock, work under it, let go.

#include "own_redis.hpp"

// [quickstart]
#include <redlatch/redlatch.hpp>
using namespace std::chrono_literals;
// [quickstart]

#include <cstdio>
#include <mutex>

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        bool paid = false;
        const auto pay = [&] {
            std::puts("paid, and nobody else did at the same time");
            paid = true;
        };

        {
            // [quickstart]
            redlatch::Client redis{"redis://127.0.0.1:6379"};
            // [quickstart]
        }  // nothing is connected before the first use, and this program has a server of its own
        redlatch::Client redis{uri};

        // [quickstart]
        redlatch::Lock<redlatch::Reentrant> lock{redis, "order:pay"};

        if (lock.try_lock(10s, 30s)) {                     // wait up to 10 s, lease 30 s
            std::lock_guard scope{lock, std::adopt_lock};  // released at the end of the scope
            pay();
        }
        // [quickstart]

        example::require(paid, "the lock was free");
        example::require(!lock.inspect().value().locked, "the lock is free again");
    });
}
