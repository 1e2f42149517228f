// A program whose own files are built with -fno-exceptions: what would throw is asked for as a `Result`.
#include <redlatch/metrics.hpp>
#include <redlatch/redlatch.hpp>

#include <chrono>
#include <cstdio>
#include <memory>

int main() {
    using namespace std::chrono_literals;
    const auto metrics = std::make_shared<redlatch::Metrics>();
    redlatch::Client client{{.uris = {"unix:///nowhere/redis.sock"}, .observer = metrics}};
    redlatch::Lock<redlatch::Watchdog<redlatch::Fenced<redlatch::Reentrant>>> lock{client, "name"};
    const redlatch::LockGuard guard{lock, 1ms};
    const redlatch::Result<redlatch::Held> held = lock.acquire({.wait = 1ms});
    lock.unlock();
    std::puts(held ? "held" : held.error().describe().c_str());
    const bool as_expected = !guard && guard.error().code == redlatch::Errc::unavailable && !held;
    return as_expected ? 0 : 1;
}
