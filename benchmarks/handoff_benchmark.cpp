// Two processes take turns: the time from the call that releases in one to the return of the call
// that acquires in the other, which has been waiting for a while.

#include "harness/arguments.hpp"
#include "harness/crowd.hpp"
#include "harness/exclusion.hpp"
#include "harness/far_network.hpp"
#include "harness/leftovers.hpp"
#include "harness/report.hpp"
#include "harness/shared_memory.hpp"
#include "harness/signal.hpp"
#include "harness/start_line.hpp"
#include "harness/statistics.hpp"
#include "strategies/all.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::bench {
namespace {

constexpr const char* key = "order:handed";

/// What the two processes share. Roles change with every hand-off, so one signal of each kind does.
struct Table {
    StartLine line;
    Exclusion exclusion;
    Signal asking;  ///< the one who waits is about to call
    Signal taken;   ///< and has the lock now
    std::atomic<std::int64_t> released{0};
    std::atomic<bool> last{false};
    std::atomic<std::size_t> turns{0};
    std::array<std::int64_t, 20'000> nanoseconds{};  ///< of each hand-off
};

/// The first hand-offs connect and bring the scripts to the server.
constexpr std::uint64_t warm_up = 6;

std::int64_t now() {
    return std::chrono::nanoseconds{SteadyClock::now().time_since_epoch()}.count();
}

class Player {
public:
    Player(Contender& lock, Table& table, unsigned seed)
        : lock_(lock), table_(table), random_(seed) {}

    /// One of the two holds the lock before the other one asks for it.
    void play(bool holds_first) {
        if (holds_first) {
            lock_.lock();
            table_.exclusion.enter();
        }
        table_.line.wait_for_start();
        if (holds_first) release();
        while (!table_.last) {
            acquire();
            if (table_.last) break;
            release();
        }
    }

private:
    /// As the holder: lets the other one wait for a while that is longer than the pauses of who
    /// polls, so that the release comes at any moment of a pause.
    void release() {
        table_.asking.wait();
        std::this_thread::sleep_for(hold_(random_) * std::chrono::microseconds{1});
        table_.last = table_.line.stopped() || table_.turns + 1 == table_.nanoseconds.size();
        table_.exclusion.leave();
        table_.released = now();
        lock_.unlock();
        table_.taken.wait();  // else a lock that is not fair would come straight back
    }

    void acquire() {
        table_.asking.send();
        lock_.lock();
        const std::int64_t took = now() - table_.released;
        table_.exclusion.enter();
        table_.nanoseconds[table_.turns++] = took;
        table_.taken.send();
        if (!table_.last) return;
        table_.exclusion.leave();
        lock_.unlock();
    }

    Contender& lock_;
    Table& table_;
    std::minstd_rand random_;
    std::uniform_int_distribution<int> hold_{5'000, 65'000};
};

struct Sample {
    std::vector<double> ms;
    std::string error;
};

/// `uri`: how the strategy reaches the server.
Sample measure(const Strategy& strategy, test::RedisServer& server, const std::string& uri,
               Seconds time, unsigned seed) {
    test::RawRedis redis{server};
    const SharedMemory<Table> table;
    strategy.set_up(redis, key);
    Crowd crowd{2, table->line, [&](int process) {
                    const auto side = strategy.side({.uri = uri, .key = key});
                    const auto number = static_cast<unsigned>(process);
                    const auto lock = side->contender(seed + number);
                    Player{*lock, *table, seed + number}.play(process == 0);
                }};
    if (table->line.all_ready(2, std::chrono::seconds{10})) {
        table->line.go();
        std::this_thread::sleep_for(time);
    }
    table->line.stop();
    Sample sample{.ms = {}, .error = crowd.end(std::chrono::seconds{45})};
    const std::string of_strategy = strategy.take_down(redis, key);
    const std::string of_keys = leftovers(redis, key);
    if (sample.error.empty()) sample.error = of_strategy;
    if (sample.error.empty()) sample.error = table->exclusion.fault(table->turns + 1);
    if (sample.error.empty()) sample.error = of_keys;
    for (std::size_t i = warm_up; i < table->turns; ++i) {
        sample.ms.push_back(static_cast<double>(table->nanoseconds[i]) * 1e-6);
    }
    if (sample.error.empty() && sample.ms.empty()) sample.error = "too short for a hand-off";
    return sample;
}

struct Series {
    Strategy strategy;
    std::vector<double> ms;        ///< of all rounds
    std::vector<double> of_round;  ///< each round's median
    std::string error;

    std::string name() const { return "handoff/" + strategy.name; }
};

/// Those that are asked for, and the base of the ratios. A queue in the process has no part in this.
std::vector<Series> wanted_series(const Arguments& arguments) {
    std::vector<Series> result;
    for (Strategy& strategy : all_strategies()) {
        if (strategy.name == "local_queue") continue;
        Series series{.strategy = std::move(strategy), .ms = {}, .of_round = {}, .error = {}};
        const bool base = series.strategy.name == "blpop";
        if (base || arguments.wants(series.name())) result.push_back(std::move(series));
    }
    const bool any = std::any_of(result.begin(), result.end(), [&](const Series& series) {
        return arguments.wants(series.name());
    });
    return any ? std::move(result) : std::vector<Series>{};
}

void print(const Series& series, const Series& base, Report& report) {
    if (!series.error.empty()) return report.failed(series.name(), series.error);
    std::vector<double> paired;
    for (std::size_t i = 0; base.error.empty() && i < series.of_round.size(); ++i) {
        paired.push_back(series.of_round[i] / base.of_round[i]);
    }
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    const double p99 = quantile(series.ms, 0.99);
    report.row(series.name(), {static_cast<double>(series.ms.size()), quantile(series.ms, 0.5), p99,
                               *std::max_element(series.ms.begin(), series.ms.end()),
                               base.error.empty() ? median(paired) : nothing,
                               base.error.empty() ? p99 / quantile(base.ms, 0.99) : nothing});
}

int run(const Arguments& arguments) {
    test::RedisServer server{{.tcp = true}};
    std::optional<FarNetwork> network;
    if (arguments.round_trip.count() > 0) network.emplace(server.tcp_uri(), arguments.round_trip);
    const std::string uri = network ? network->uri(0) : server.tcp_uri();
    std::vector<Series> all = wanted_series(arguments);
    for (int round = 0; round < arguments.rounds; ++round) {
        for (Series& series : all) {
            const auto seed = static_cast<unsigned>(2 * round) + 1;
            Sample sample = measure(series.strategy, server, uri, arguments.seconds, seed);
            if (!sample.error.empty()) series.error = sample.error;
            series.of_round.push_back(median(sample.ms));
            series.ms.insert(series.ms.end(), sample.ms.begin(), sample.ms.end());
        }
    }
    Report report{"handoff_benchmark",
                  {{"handoffs", "hand-offs", 0},
                   {"p50_ms", "p50 ms", 3},
                   {"p99_ms", "p99 ms", 3},
                   {"max_ms", "max ms", 3},
                   {"p50_to_blpop", "p50 / blpop", 2},
                   {"p99_to_blpop", "p99 / blpop", 2}},
                  arguments.json};
    const auto base = std::find_if(all.begin(), all.end(), [](const Series& series) {
        return series.strategy.name == "blpop";
    });
    for (const Series& series : all) print(series, *base, report);
    return report.finish();
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch::bench;
    return run_program(run, argc, argv, {.seconds = Seconds{2}, .rounds = 5});
}
