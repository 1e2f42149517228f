// A nested lock() and unlock() inside a hold, beside the same two scripts by hand.

#include "compare.hpp"
#include "raw_lock.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <redlatch/redlatch.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <string>

namespace redlatch::bench {
namespace {

constexpr std::chrono::milliseconds lease{30'000};

void reentry(benchmark::State& state, const std::string& uri, test::RawRedis& redis) {
    Client client{uri};
    Lock<Reentrant> lock{client, "order:ours", {.lease = lease}};
    const Step ours = [&] {
        // Holds belong to the thread that took them: each slice's thread takes its own outer one.
        struct Outer {
            explicit Outer(Lock<Reentrant>& l) : lock(&l) { lock->lock(); }
            ~Outer() { lock->unlock(); }
            Outer(const Outer&) = delete;
            Outer& operator=(const Outer&) = delete;
            Lock<Reentrant>* lock;
        };
        thread_local const Outer outer{lock};
        lock.lock();
        const auto ended = lock.release();
        return ended && *ended == Release::still_held && lock.held();
    };
    {
        RawNesting nesting{uri, "order:hand", lease.count()};
        const Step raw = [&] { return nesting.lock() && nesting.unlock(); };
        compare(state, {ours}, {raw});
        const auto counts = redis.hgetall("order:hand");
        if (counts.size() != 1 || counts.begin()->second != "1") {
            state.SkipWithError("the hold count is not exact");
        }
    }
    if (!redis.keys().empty()) state.SkipWithError("keys were left behind");
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch;
    test::RedisServer server{{.tcp = true}};
    test::RawRedis redis{server};
    auto add = [&redis](const char* name, const std::string& uri) {
        benchmark::RegisterBenchmark(
            name, [&redis, uri](benchmark::State& state) { bench::reentry(state, uri, redis); })
            ->Iterations(bench::rounds)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
    };
    add("reentry/tcp", server.tcp_uri());
    add("reentry/unix", server.uri());
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
