// A job that is to run once per tick, on one of three nodes whose clocks differ by 20 ms. A lock that ends
// with the job lets it run three times: by the time that the next node's clock says so, the job is done and
// the lock is free. With `min_hold` the release keeps it from everybody for a while.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <array>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

int reports = 0;

void send_report() {
    ++reports;
    std::this_thread::sleep_for(2ms);
}

using Nodes = std::array<redlatch::Client, 3>;

/// What the crontab of a node starts: the lock ends with the job.
void on_tick_plainly(redlatch::Client& redis) {
    redlatch::Lock<> lock{redis, "cron:plain"};
    if (lock.try_lock()) {
        std::lock_guard scope{lock, std::adopt_lock};
        send_report();
    }
}

void on_tick(redlatch::Client& redis) {
    // [min_hold]
    redlatch::Lock<> lock{redis, "cron:report", {.min_hold = 2s}};  // ticks are farther apart
    if (lock.try_lock()) {
        std::lock_guard scope{lock, std::adopt_lock};
        send_report();
    }
    // [min_hold]
}

/// How often the job runs when the clock of one node after the other says that it is time.
template <class OnTick>
int runs_of_a_tick(Nodes& nodes, OnTick on_tick) {
    const int before = reports;
    for (redlatch::Client& node : nodes) {
        on_tick(node);
        std::this_thread::sleep_for(20ms);
    }
    return reports - before;
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        Nodes nodes{redlatch::Client{example::options_for(uri)},
                    redlatch::Client{example::options_for(uri)},
                    redlatch::Client{example::options_for(uri)}};
        const int plain = runs_of_a_tick(nodes, on_tick_plainly);
        std::printf("plain lock: the job ran %d times\n", plain);
        example::require(plain == 3, "each node finds the plain lock free");

        for (int tick = 1; tick <= 2; ++tick) {
            const int kept = runs_of_a_tick(nodes, on_tick);
            std::printf("min_hold, tick %d: the job ran %d time\n", tick, kept);
            example::require(kept == 1, "one node has the job");
            // The next tick comes when the lock is to be had again.
            const redlatch::Lock<> lock{nodes[0], "cron:report"};
            while (lock.inspect().value().locked) std::this_thread::sleep_for(50ms);
        }
    });
}
