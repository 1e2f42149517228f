// What happens to the locks of a client: counted by the ready Metrics, or told to an observer of
// your own.

#include "own_redis.hpp"
#include <redlatch/metrics.hpp>
#include <redlatch/redlatch.hpp>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>

using namespace std::chrono_literals;

namespace {

std::atomic<int> alarms{0};

void ring_the_alarm(const std::string& key) {
    std::printf("lost: %s\n", key.c_str());
    ++alarms;
}

// [observer]
struct Alarm : redlatch::Observer {
    void lost(const Lost& event) override { ring_the_alarm(event.key); }
};
// [observer]

void count_with_metrics(const std::string& uri) {
    // [metrics]
    auto metrics = std::make_shared<redlatch::Metrics>();
    redlatch::Client redis{{.uris = {uri}, .observer = metrics}};
    // [metrics]
    redlatch::Lock<> lock{redis, "stock:7"};
    for (int i = 0; i < 3; ++i) {
        std::lock_guard scope{lock};
    }

    // Observers are told on a thread of their own: the last call may come a moment later.
    const std::string three_released = "redlatch_releases_total{outcome=\"released\"} 3\n";
    const auto end = redlatch::Clock::now() + 5s;
    std::string text = metrics->prometheus();
    while (text.find(three_released) == std::string::npos && redlatch::Clock::now() < end) {
        std::this_thread::sleep_for(1ms);
        text = metrics->prometheus();
    }
    std::fputs(text.c_str(), stdout);
    example::require(text.find(three_released) != std::string::npos, "three releases are counted");
}

void tell_an_observer(const std::string& uri) {
    redlatch::Client redis{{.uris = {uri}, .observer = std::make_shared<Alarm>()}};
    redlatch::Lock<redlatch::Simple> lock{redis, "stock:7", {.lease = 100ms}};
    lock.lock();  // and never unlocked: the lease runs out
    const auto end = redlatch::Clock::now() + 5s;
    while (alarms == 0 && redlatch::Clock::now() < end) std::this_thread::sleep_for(1ms);
    example::require(alarms == 1, "the observer hears of the loss, once");
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        count_with_metrics(uri);
        tell_an_observer(uri);
    });
}
