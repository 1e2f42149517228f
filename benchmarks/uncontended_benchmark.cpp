// lock() and unlock() that nobody else is in the way of, beside the same commands by hand: each
// thread has a lock of its own.

#include "compare.hpp"
#include "raw_lock.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <redlatch/redlatch.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::bench {
namespace {

constexpr std::chrono::seconds lease{30};

enum class Transport { tcp, unix_socket };

test::RedisServer& server() {
    static test::RedisServer instance{{.tcp = true}};
    return instance;
}

template <class Policy, class Raw>
void uncontended(benchmark::State& state, Transport transport) {
    const std::string uri = transport == Transport::tcp ? server().tcp_uri() : server().uri();
    const auto threads = static_cast<std::size_t>(state.range(0));

    Client client{uri};
    std::vector<std::unique_ptr<Lock<Policy>>> ours;
    std::vector<std::unique_ptr<Raw>> raw;
    std::vector<Step> our_steps;
    std::vector<Step> raw_steps;
    for (std::size_t i = 0; i < threads; ++i) {
        // Names of equal length.
        ours.push_back(std::make_unique<Lock<Policy>>(client, "order:ours:" + std::to_string(i),
                                                      LockOptions{.lease = lease}));
        raw.push_back(std::make_unique<Raw>(
            uri, "order:hand:" + std::to_string(i),
            std::chrono::duration_cast<std::chrono::milliseconds>(lease).count()));
        our_steps.push_back([&lock = *ours.back()] {
            lock.lock();
            const auto outcome = lock.release();
            return outcome && *outcome == Release::released;
        });
        raw_steps.push_back([&lock = *raw.back()] { return lock.try_lock() && lock.unlock(); });
    }

    compare(state, our_steps, raw_steps);

    test::RawRedis redis{server()};
    if (!redis.keys().empty()) state.SkipWithError("keys were left behind");
}

void register_policy(const char* name, void (*run)(benchmark::State&, Transport)) {
    for (const auto& [transport, word] :
         {std::pair{Transport::tcp, "tcp"}, std::pair{Transport::unix_socket, "unix"}}) {
        const std::string full = std::string{"uncontended/"} + name + "/" + word;
        benchmark::RegisterBenchmark(full.c_str(), run, transport)
            ->ArgName("threads")
            ->Arg(1)
            ->Arg(4)
            ->Arg(16)
            ->Iterations(rounds)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
    }
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch;
    bench::register_policy("simple", bench::uncontended<Simple, bench::RawLock>);
    bench::register_policy("watchdog", bench::uncontended<Watchdog<Simple>, bench::RawLock>);
    bench::register_policy("reentrant", bench::uncontended<Reentrant, bench::RawHashLock>);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
