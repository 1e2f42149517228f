// What it costs to hold many Watchdog locks: all of them are renewed every third of the lease.

#include "compare.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <redlatch/redlatch.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::bench {
namespace {

/// User and system time of the server so far.
Seconds server_cpu(test::RawRedis& redis) {
    auto info = redis.info("cpu");
    return Seconds{std::stod(info.at("used_cpu_user")) + std::stod(info.at("used_cpu_sys"))};
}

void renewal(benchmark::State& state, test::RedisServer& server) {
    using Watched = Lock<Watchdog<Simple>>;
    const auto count = static_cast<std::size_t>(state.range(0));
    const std::chrono::milliseconds lease{state.range(1)};
    test::RawRedis redis{server};
    {
        Client client{server.uri()};
        std::vector<std::unique_ptr<Watched>> locks;
        std::vector<Held> holds;
        for (std::size_t i = 0; i < count; ++i) {
            locks.push_back(std::make_unique<Watched>(client, "order:" + std::to_string(i),
                                                      LockOptions{.lease = lease}));
            auto held = locks.back()->acquire({.wait = Wait::none()});
            if (!held) return state.SkipWithError(held.error().describe().c_str());
            holds.push_back(*std::move(held));
        }
        std::this_thread::sleep_for(lease);  // the first renewals bring the scripts

        std::vector<double> rate;
        std::vector<double> our_cpu;
        std::vector<double> redis_cpu;
        for ([[maybe_unused]] auto _ : state) {
            const auto calls = redis.command_calls("evalsha");
            const Seconds redis_start = server_cpu(redis);
            const Seconds our_start = cpu_time();
            const auto start = std::chrono::steady_clock::now();
            std::this_thread::sleep_for(lease);
            const Seconds took = std::chrono::steady_clock::now() - start;
            const Seconds ours = cpu_time() - our_start;
            const Seconds its = server_cpu(redis) - redis_start;
            const auto renewals = static_cast<double>(redis.command_calls("evalsha") - calls);
            rate.push_back(renewals / took.count());
            our_cpu.push_back(ours.count() * 1e6 / renewals);
            redis_cpu.push_back(its.count() * 1e6 / renewals);
            state.SetIterationTime(took.count());
        }
        const auto lost = std::count_if(holds.begin(), holds.end(),
                                        [](const Held& held) { return !held.held(); });
        if (lost > 0) {
            state.SkipWithError((std::to_string(lost) + " of the locks were lost").c_str());
        }
        state.counters["renewals/s"] = median(rate);
        state.counters["our_cpu_us"] = median(our_cpu);
        state.counters["redis_cpu_us"] = median(redis_cpu);
        state.counters["our_cpu_%"] = median(our_cpu) * median(rate) / 1e4;
        state.counters["redis_cpu_%"] = median(redis_cpu) * median(rate) / 1e4;
        // More or less than three renewals for each lease would be a fault.
        state.counters["per_lease"] =
            median(rate) * Seconds{lease}.count() / static_cast<double>(count);
    }
    if (!redis.keys().empty()) state.SkipWithError("keys were left behind");
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch;
    test::RedisServer server;
    benchmark::RegisterBenchmark("renewal", bench::renewal, std::ref(server))
        ->ArgNames({"locks", "lease_ms"})
        ->Args({1'000, 3'000})
        ->Args({10'000, 3'000})
        ->Args({10'000, 1'000})
        ->Iterations(5)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
