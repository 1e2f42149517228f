// Coroutines that take and give back locks over one connection, beside the same commands written in bulk by hand, and
// beside coroutines on hiredis's own asynchronous interface, and beside blocking threads.

#include "compare.hpp"
#include "coroutines.hpp"
#include "harness/far_network.hpp"
#include "raw_coroutines.hpp"
#include "raw_pipeline.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <redlatch/redlatch.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::bench {
namespace {

constexpr std::chrono::seconds lease{30};

test::RedisServer& server() {
    static test::RedisServer instance{{.tcp = true}};
    return instance;
}

/// The same server, 20 ms away. Made before this process has a thread.
const FarNetwork& far_network() {
    static const FarNetwork instance{server().uri(), std::chrono::milliseconds{20}};
    return instance;
}

enum class Names { own, one };

std::vector<std::string> names(std::size_t count, Names which, const std::string& whose) {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < count; ++i) {
        result.push_back(which == Names::own ? "order:" + whose + ":" + std::to_string(i)
                                             : "order:" + whose);
    }
    return result;
}

/// Who takes locks beside the coroutines.
struct Rival {
    enum class Kind { bulk, coroutines, threads };
    const char* name;
    Kind kind;
    std::size_t threads = 0;  ///< that block
};

/// Threads that block, with a client of their own.
template <class Policy>
class Threads {
public:
    Threads(const std::string& uri, const std::vector<std::string>& names,
            Connections connections = Connections::pooled)
        : client_({.uris = {uri}, .connections = connections}) {
        for (const std::string& name : names) {
            locks_.push_back(
                std::make_unique<Lock<Policy>>(client_, name, LockOptions{.lease = lease}));
        }
    }

    std::vector<Step> steps() const {
        std::vector<Step> result;
        for (const auto& lock : locks_) {
            result.push_back([&lock = *lock] {
                lock.lock();
                const auto outcome = lock.release();
                return outcome && *outcome == Release::released;
            });
        }
        return result;
    }

private:
    Client client_;
    std::vector<std::unique_ptr<Lock<Policy>>> locks_;
};

struct Row {
    Names names;
    Rival rival;
    Completions completions = Completions::event_loop;
    std::chrono::milliseconds slice = bench::slice;
};

template <class Policy>
void beside(benchmark::State& state, const std::string& uri, const Row& row) {
    const auto count = static_cast<std::size_t>(state.range(0));
    {
        Coroutines<Policy> coroutines{
            uri, names(count, row.names, "ours"), {.lease = lease}, row.completions};
        const Loop ours = [&](auto duration) { return coroutines.run_for(duration); };
        if (row.rival.kind == Rival::Kind::bulk) {
            RawPipeline pipeline{uri, names(count, row.names, "hand"), lease};
            compare(
                state, ours, [&](auto duration) { return pipeline.run_for(duration); }, row.slice);
        } else if (row.rival.kind == Rival::Kind::coroutines) {
            RawCoroutines by_hand{uri, names(count, row.names, "hand"), lease};
            compare(
                state, ours, [&](auto duration) { return by_hand.run_for(duration); }, row.slice);
        } else {
            const Threads<Policy> threads{uri, names(row.rival.threads, row.names, "hand")};
            compare(state, ours, on_threads(threads.steps()), row.slice);
        }
    }
    test::RawRedis redis{server()};
    if (!redis.keys().empty()) state.SkipWithError("keys were left behind");
}

/// Threads that share one connection, beside as many with connections of the pool.
template <class Policy>
void shared(benchmark::State& state, const std::string& uri, const Row& row) {
    const auto count = static_cast<std::size_t>(state.range(0));
    {
        const Threads<Policy> ours{uri, names(count, row.names, "ours"), Connections::shared};
        const Threads<Policy> pooled{uri, names(count, row.names, "hand")};
        compare(state, on_threads(ours.steps()), on_threads(pooled.steps()), row.slice);
    }
    test::RawRedis redis{server()};
    if (!redis.keys().empty()) state.SkipWithError("keys were left behind");
}

using Run = void (*)(benchmark::State&, const std::string&, const Row&);

void add(const std::string& name, const std::string& uri, Run run, const Row& row,
         std::initializer_list<int> coroutines, int iterations = rounds) {
    const std::string full = "async/" + name + "/" + row.rival.name;
    auto* const added = benchmark::RegisterBenchmark(
        full.c_str(), [run, row, uri](benchmark::State& state) { run(state, uri, row); });
    for (const int count : coroutines) added->Arg(count);
    added->ArgName("coroutines")
        ->Iterations(iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
}

void add(const std::string& name, Run run, const Row& row, std::initializer_list<int> coroutines) {
    add(name + "/tcp", server().tcp_uri(), run, row, coroutines);
    add(name + "/unix", server().uri(), run, row, coroutines);
}

/// Behind the slow network a turn takes two round trips at least, so few rounds are long ones.
void add_far(const std::string& name, Run run, Row row, std::initializer_list<int> coroutines) {
    constexpr int rounds = 9;
    row.slice = std::chrono::milliseconds{500};
    add(name + "/20ms", far_network().uri(0), run, row, coroutines, rounds);
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch::bench;
    using redlatch::Simple;
    using redlatch::Watchdog;
    const Rival bulk{"bulk", Rival::Kind::bulk};
    const Rival raw{"raw_coroutines", Rival::Kind::coroutines};
    const Rival thread{"1_thread", Rival::Kind::threads, 1};
    const Rival threads{"16_threads", Rival::Kind::threads, 16};
    const Run simple = beside<Simple>;
    add("own_names", simple, {Names::own, bulk}, {1, 16, 64, 256, 1024});
    add("own_names", simple, {Names::own, raw}, {1, 16, 64, 256, 1024});
    add("own_names", simple, {Names::own, threads}, {16, 64, 256, 1024});
    add_far("own_names", simple, {Names::own, bulk}, {1, 16, 64, 256, 1024});
    add_far("own_names", simple, {Names::own, raw}, {1, 16, 64, 256, 1024});
    add_far("own_names", simple, {Names::own, threads}, {16, 64, 256, 1024});
    add("own_names", simple, {Names::own, thread}, {1});
    add("watchdog", beside<Watchdog<Simple>>, {Names::own, bulk}, {64, 256});
    add("no_loop", simple, {Names::own, bulk, Completions::threads}, {1, 64, 256});
    add("one_name", simple, {Names::one, threads}, {16, 1000});
    const Rival pooled{"pooled", Rival::Kind::threads};
    add("threads", shared<Simple>, {Names::own, pooled}, {1, 4, 16, 64});
    add_far("threads", shared<Simple>, {Names::own, pooled}, {1, 16, 64});
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
