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
#include <optional>
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

/// What makes round trips faster.
struct Speed {
    ReleaseMode release_mode = ReleaseMode::confirmed;
    std::chrono::microseconds busy_wait{0};
};

constexpr std::chrono::microseconds busy_wait{100};

template <class Policy>
bool lock_and_unlock(Lock<Policy>& lock, ReleaseMode mode) {
    lock.lock();
    if (mode == ReleaseMode::confirmed) {
        const auto outcome = lock.release();
        return outcome && *outcome == Release::released;
    }
    lock.unlock();
    return true;
}

template <class Policy, class Raw>
void uncontended(benchmark::State& state, Transport transport, Speed speed) {
    const std::string uri = transport == Transport::tcp ? server().tcp_uri() : server().uri();
    const auto threads = static_cast<std::size_t>(state.range(0));

    std::optional<Client> client{std::in_place,
                                 ClientOptions{.uris = {uri}, .busy_wait = speed.busy_wait}};
    std::vector<std::unique_ptr<Lock<Policy>>> ours;
    std::vector<std::unique_ptr<Raw>> raw;
    std::vector<Step> our_steps;
    std::vector<Step> raw_steps;
    for (std::size_t i = 0; i < threads; ++i) {
        // Names of equal length.
        ours.push_back(std::make_unique<Lock<Policy>>(
            *client, "order:ours:" + std::to_string(i),
            LockOptions{.lease = lease, .release_mode = speed.release_mode}));
        raw.push_back(std::make_unique<Raw>(
            uri, "order:hand:" + std::to_string(i),
            std::chrono::duration_cast<std::chrono::milliseconds>(lease).count()));
        our_steps.push_back([&lock = *ours.back(), mode = speed.release_mode] {
            return lock_and_unlock(lock, mode);
        });
        raw_steps.push_back([&lock = *raw.back()] { return lock.try_lock() && lock.unlock(); });
    }

    compare(state, our_steps, raw_steps);

    client.reset();  // what was only sent has been answered now
    test::RawRedis redis{server()};
    if (!redis.keys().empty()) state.SkipWithError("keys were left behind");
}

void register_policy(const char* name, void (*run)(benchmark::State&, Transport, Speed),
                     Speed speed = {}) {
    for (const auto& [transport, word] :
         {std::pair{Transport::tcp, "tcp"}, std::pair{Transport::unix_socket, "unix"}}) {
        const std::string full = std::string{"uncontended/"} + name + "/" + word;
        benchmark::RegisterBenchmark(full.c_str(), run, transport, speed)
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
    const auto simple = bench::uncontended<Simple, bench::RawLock>;
    bench::register_policy("simple", simple);
    bench::register_policy("watchdog", bench::uncontended<Watchdog<Simple>, bench::RawLock>);
    bench::register_policy("reentrant", bench::uncontended<Reentrant, bench::RawHashLock>);
    bench::register_policy("sent", simple, {.release_mode = ReleaseMode::sent});
    bench::register_policy("busy", simple, {.busy_wait = bench::busy_wait});
    bench::register_policy("sent_busy", simple,
                           {.release_mode = ReleaseMode::sent, .busy_wait = bench::busy_wait});
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
