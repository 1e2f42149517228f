// A hot spot far away: three processes with four threads each take a lock 100 times by every thread,
// with a wait of 3 s and a lease of 10 s, to read and write a counter on another server. A round trip
// takes 35 ms. The threads of a process begin each turn together.

#include "harness/arguments.hpp"
#include "harness/command_meter.hpp"
#include "harness/crowd.hpp"
#include "harness/exclusion.hpp"
#include "harness/far_network.hpp"
#include "harness/leftovers.hpp"
#include "harness/report.hpp"
#include "harness/shared_memory.hpp"
#include "harness/start_line.hpp"
#include "harness/statistics.hpp"
#include "harness/wait_times.hpp"
#include "raw_connection.hpp"
#include "raw_lock.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <redlatch/redlatch.hpp>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::bench {
namespace {

using namespace std::chrono_literals;

constexpr int processes = 3;
constexpr int threads = 4;
constexpr auto wait = 3s;
constexpr auto lease = 10s;
constexpr auto there = 18ms;
constexpr auto back = 17ms;
constexpr const char* key = "lock_key";

struct Field {
    StartLine line;
    Exclusion exclusion;
    std::atomic<std::uint64_t> successes{0};
    std::atomic<std::uint64_t> failures{0};
    std::array<WaitTimes, std::size_t{processes} * threads> waits;
};

/// A lock with a bounded wait, as one thread sees it.
class Taker {
public:
    Taker() = default;
    Taker(const Taker&) = delete;
    Taker& operator=(const Taker&) = delete;
    virtual ~Taker() = default;
    virtual bool take() = 0;
    virtual void give_back() = 0;
};

/// A lock as one process sees it: makes a Taker for a thread with this seed.
using Process = std::function<std::unique_ptr<Taker>(unsigned seed)>;

class LibraryTaker final : public Taker {
public:
    explicit LibraryTaker(Client& client) : lock_(client, key) {}
    bool take() override { return lock_.try_lock(wait, lease); }
    void give_back() override {
        const auto outcome = lock_.release();
        if (!outcome || *outcome != Release::released) throw std::runtime_error{"not released"};
    }

private:
    Lock<Reentrant> lock_;
};

/// Every thread for itself: after each refusal a pause of 10 to 20 ms, and a look at the clock only
/// before a try.
class SpinningTaker final : public Taker {
public:
    SpinningTaker(const std::string& uri, unsigned seed)
        : lock_(uri, key, std::chrono::milliseconds{lease}.count()), random_(seed) {}

    bool take() override {
        const auto end = SteadyClock::now() + wait;
        while (SteadyClock::now() < end) {
            if (lock_.try_lock()) return true;
            std::this_thread::sleep_for(pause_(random_) * 1ms);
        }
        return false;
    }

    void give_back() override {
        if (!lock_.unlock()) throw std::runtime_error{"not released"};
    }

private:
    RawLock lock_;
    std::minstd_rand random_;
    std::uniform_int_distribution<int> pause_{10, 19};
};

struct Strategy {
    std::string name;
    std::function<Process(const std::string& uri)> in_process;
};

std::vector<Strategy> strategies() {
    auto library = [](const std::string& uri) -> Process {
        return [client = std::make_shared<Client>(uri)](unsigned) {
            return std::make_unique<LibraryTaker>(*client);
        };
    };
    auto spin = [](const std::string& uri) -> Process {
        return [uri](unsigned seed) { return std::make_unique<SpinningTaker>(uri, seed); };
    };
    return {{"hotspot/redlatch", library}, {"hotspot/spin", spin}};
}

/// The section: a counter on another server, raised by a read and a write.
class Counter {
public:
    explicit Counter(const std::string& uri) : connection_(uri) {}
    void raise() {
        const auto value = connection_.command<2>({"GET", "counter"});
        const int next = value.is_nil() ? 1 : std::stoi(value.text()) + 1;
        connection_.command<3>({"SET", "counter", std::to_string(next)});
    }

private:
    RawConnection connection_;
};

class Run {
public:
    Run(Strategy strategy, int attempts) : strategy_(std::move(strategy)), attempts_(attempts) {}

    /// Prints the row.
    void measure(Report& report) {
        test::RedisServer locks;
        test::RedisServer counters;
        const FarNetwork network{{locks.uri(), counters.uri()}, there, back};
        test::RawRedis redis{locks};
        round_trip_ = network.round_trip(0);
        CommandMonitor monitor{locks.uri()};
        Crowd crowd{processes, field_->line, [&](int process) { work(process, network); }};
        const Seconds time = follow(crowd, monitor);
        std::string fault = crowd.end(5s);
        if (fault.empty()) fault = check(counters);
        const std::string of_keys = leftovers(redis, key);
        if (fault.empty()) fault = of_keys;
        if (fault.empty()) {
            report.row(strategy_.name, figures(monitor, time));
        } else {
            report.failed(strategy_.name, fault);
        }
    }

private:
    void work(int process, const FarNetwork& network) const {
        std::barrier together{threads};
        const Process takers = strategy_.in_process(network.uri(0));
        run_threads(threads, field_->line, [&](int thread) {
            const auto number = static_cast<unsigned>(process * threads + thread);
            Counter counter{network.uri(1)};
            const auto taker = takers(number + 1);
            field_->line.wait_for_start();
            for (int i = 0; i < attempts_ && !field_->line.stopped(); ++i) {
                try {
                    attempt(*taker, counter, field_->waits[number]);
                } catch (...) {
                    together.arrive_and_drop();
                    throw;
                }
                together.arrive_and_wait();
            }
        });
    }

    void attempt(Taker& taker, Counter& counter, WaitTimes& waits) const {
        const auto asked = SteadyClock::now();
        const bool taken = taker.take();
        waits.add(SteadyClock::now() - asked);
        if (!taken) {
            ++field_->failures;
            return;
        }
        field_->exclusion.enter();
        counter.raise();
        field_->exclusion.leave();
        ++field_->successes;
        taker.give_back();
    }

    /// A few hundred commands a second: here MONITOR may listen all the time.
    Seconds follow(Crowd& crowd, CommandMonitor& monitor) const {
        if (!field_->line.all_ready(processes * threads, 10s)) {
            field_->line.fail("not all were ready in time");
        }
        field_->line.go();
        const auto start = SteadyClock::now();
        auto end = start;
        while (crowd.running()) {
            monitor.listen(100ms);
            end = SteadyClock::now();
        }
        return end - start;
    }

    std::string check(test::RedisServer& counters) const {
        const std::uint64_t successes = field_->successes;
        const auto counter = test::RawRedis{counters}.get("counter");
        const std::uint64_t value = counter ? std::stoull(*counter) : 0;
        if (value != successes) {
            return "the counter is " + std::to_string(value) + " after " +
                   std::to_string(successes) + " sections";
        }
        return field_->exclusion.fault(successes);
    }

    /// To acquire is all that a client sends but its releases, one for each success, and what
    /// prepares a connection: so a subscription or a refused EVALSHA counts too.
    std::vector<double> figures(const CommandMonitor& monitor, Seconds time) const {
        Commands all;
        for (const auto& [name, commands] : monitor.by_name()) {
            if (name == "client" || name == "script" || name == "ping") continue;
            all.sent += commands.sent;
            all.in_scripts += commands.in_scripts;
        }
        const auto successes = static_cast<double>(field_->successes);
        WaitTimes waits;
        for (const WaitTimes& own : field_->waits) waits.add(own);
        return {all.sent - successes,
                all.sent,
                all.in_scripts,
                successes,
                static_cast<double>(field_->failures),
                waits.quantile_ms(0.5),
                waits.longest_ms(),
                time.count(),
                round_trip_.count() * 1e3};
    }

    Strategy strategy_;
    int attempts_;
    SharedMemory<Field> field_;
    Seconds round_trip_{0};
};

int run(const Arguments& arguments) {
    {
        test::RedisServer server;
        check_command_meter(server);
    }
    Report report{"hotspot_benchmark",
                  {{"acquire_commands", "to acquire", 0},
                   {"commands", "commands", 0},
                   {"script_calls", "in scripts", 0},
                   {"successes", "taken", 0},
                   {"failures", "failed", 0},
                   {"wait_p50_ms", "p50 ms", 0},
                   {"wait_max_ms", "max ms", 0},
                   {"seconds", "run s", 1},
                   {"round_trip_ms", "RTT ms", 1}},
                  arguments.json};
    for (const Strategy& strategy : strategies()) {
        if (arguments.wants(strategy.name)) Run{strategy, arguments.attempts}.measure(report);
    }
    return report.finish();
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch::bench;
    return run_program(run, argc, argv);
}
