// What happens to the locks of a client: counted by the ready Metrics, written to a log, or told to an observer of
// your own.

#include "own_redis.hpp"
#include <redlatch/log_observer.hpp>
#include <redlatch/metrics.hpp>
#include <redlatch/redlatch.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

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

// [telemetry]
/// Hands on what the instruments of a meter record.
struct Telemetry : redlatch::Observer {
    using Record = std::function<void(double seconds, const std::string& lock)>;
    using Change = std::function<void(int by, const std::string& lock)>;
    Record wait, hold;
    Change waiting, held;

    static double seconds(Duration time) { return std::chrono::duration<double>{time}.count(); }

    void acquired(const Acquired& event) override { wait(seconds(event.waited), event.key); }
    void wait_began(const WaitBegan& event) override { waiting(1, event.key); }
    void wait_ended(const WaitEnded& event) override { waiting(-1, event.key); }
    void hold_began(const HoldBegan& event) override { held(1, event.key); }
    void hold_ended(const HoldEnded& event) override {
        held(-1, event.key);
        hold(seconds(event.held_for), event.key);
    }
};
// [telemetry]

/// Gives events some time: observers are told on a thread of their own.
template <class Condition>
bool comes_true(Condition condition) {
    const auto end = redlatch::Clock::now() + 20s;
    while (!condition() && redlatch::Clock::now() < end) std::this_thread::sleep_for(1ms);
    return condition();
}

void count_with_metrics(const std::string& uri) {
    // [metrics]
    auto metrics = std::make_shared<redlatch::Metrics>();
    redlatch::Client redis{{.uris = {uri}, .observer = metrics}};
    // [metrics]
    redlatch::Lock<> lock{redis, "stock:7"};
    for (int i = 0; i < 3; ++i) {
        std::lock_guard scope{lock};
    }

    const auto says = [&](std::string_view line) {
        return metrics->prometheus().find(line) != std::string::npos;
    };
    example::require(
        comes_true([&] { return says("redlatch_releases_total{outcome=\"released\"} 3\n"); }),
        "three releases are counted");
    example::require(comes_true([&] { return says("redlatch_held 0\n"); }), "nothing is held");
    std::fputs(metrics->prometheus().c_str(), stdout);
}

void count_by_label(const std::string& uri) {
    // [metrics_label]
    auto metrics = std::make_shared<redlatch::Metrics>(
        redlatch::MetricsOptions{.label = [](std::string_view lock) {
            return std::string{lock.substr(0, lock.find(':'))};
        }});
    // [metrics_label]
    redlatch::Client redis{{.uris = {uri}, .observer = metrics}};
    redlatch::Lock<> stock{redis, "stock:7"};
    redlatch::Lock<> order{redis, "order:1"};
    const std::scoped_lock both{stock, order};
    for (const char* const line :
         {"redlatch_held{lock=\"stock\"} 1", "redlatch_held{lock=\"order\"} 1"}) {
        example::require(
            comes_true([&] { return metrics->prometheus().find(line) != std::string::npos; }),
            line);
    }
}

void write_a_log(const std::string& uri) {
    // [log]
    auto log = std::make_shared<redlatch::LogObserver>(
        [](std::string_view line) { std::clog << std::string{line} + "\n"; });
    // [log]
    redlatch::Client redis{{.uris = {uri}, .observer = log}};
    redlatch::Lock<> lock{redis, "stock:7"};
    const std::lock_guard scope{lock};
}

void forward_telemetry(const std::string& uri) {
    std::atomic<int> waits{0};
    std::atomic<int> holds{0};
    std::atomic<int> waiting{0};
    std::atomic<int> held{0};
    auto telemetry = std::make_shared<Telemetry>();
    telemetry->wait = [&](double, const std::string&) { ++waits; };
    telemetry->hold = [&](double, const std::string&) { ++holds; };
    telemetry->waiting = [&](int by, const std::string&) { waiting += by; };
    telemetry->held = [&](int by, const std::string&) { held += by; };
    {
        redlatch::Client redis{{.uris = {uri}, .observer = std::move(telemetry)}};
        redlatch::Lock<> lock{redis, "stock:7"};
        const std::lock_guard scope{lock};
        example::require(comes_true([&] { return held == 1; }), "one holder");
    }
    example::require(waits == 1 && holds == 1 && waiting == 0 && held == 0, "all is forwarded");
}

void tell_an_observer(const std::string& uri) {
    redlatch::Client redis{{.uris = {uri}, .observer = std::make_shared<Alarm>()}};
    redlatch::Lock<redlatch::Simple> lock{redis, "stock:7", {.lease = 100ms}};
    lock.lock();  // and never unlocked: the lease runs out
    example::require(comes_true([] { return alarms == 1; }),
                     "the observer hears of the loss, once");
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        count_with_metrics(uri);
        count_by_label(uri);
        write_a_log(uri);
        forward_telemetry(uri);
        tell_an_observer(uri);
    });
}
