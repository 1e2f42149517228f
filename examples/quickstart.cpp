// The README's first program: wait for a lock, work under it, let go.

// [quickstart]
#include <redlatch/redlatch.hpp>

#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

void pay() {
    std::puts("paid, and nobody else did at the same time");
}

int main(int argc, char** argv) {
    redlatch::Client redis{argc > 1 ? argv[1] : "redis://127.0.0.1:6379"};
    redlatch::Lock<redlatch::Reentrant> lock{redis, "order:pay"};

    if (lock.try_lock(10s, 30s)) {                     // wait up to 10 s, lease 30 s
        std::lock_guard scope{lock, std::adopt_lock};  // released at the end of the scope
        pay();
    }
}
// [quickstart]
