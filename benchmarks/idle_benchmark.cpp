// What it costs to wait: 1,000 threads want a lock that somebody keeps. Then it is given back, and
// each of them has it once.

#include "harness/arguments.hpp"
#include "harness/command_meter.hpp"
#include "harness/crowd.hpp"
#include "harness/exclusion.hpp"
#include "harness/leftovers.hpp"
#include "harness/report.hpp"
#include "harness/shared_memory.hpp"
#include "harness/signal.hpp"
#include "harness/start_line.hpp"
#include "strategies/all.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::bench {
namespace {

using namespace std::chrono_literals;

constexpr const char* key = "order:kept";

struct Shape {
    const char* name;
    int processes;
    int clients;  ///< of each process
    int threads;  ///< of each client
    int of_process() const { return clients * threads; }
    int all() const { return processes * of_process(); }
};
constexpr std::array shapes{Shape{"10x100", 10, 1, 100}, Shape{"1000x1", 1, 1000, 1}};

struct Field {
    StartLine holding;
    Signal give_back;
    StartLine asking;
    Exclusion exclusion;
};

void pass(Contender& lock, Field& field) {
    lock.lock();
    field.exclusion.enter();
    field.exclusion.leave();
    lock.unlock();
}

/// A connection for each of 1,000 clients needs more descriptors than a process has at first.
void raise_descriptor_limit() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

class Row {
public:
    /// `holder` is the strategy of the one that all wait for: it keeps what it has longer than a lease.
    Row(const Shape& shape, Strategy strategy, Strategy holder)
        : shape_(shape), strategy_(std::move(strategy)), holder_(std::move(holder)) {}

    std::string name() const { return std::string{"idle/"} + shape_.name + "/" + strategy_.name; }

    /// Prints the row.
    void measure(test::RedisServer& server, Seconds time, Report& report) const {
        test::RawRedis redis{server};
        const SharedMemory<Field> field;
        const Place place{.uri = server.tcp_uri(), .key = key};
        strategy_.set_up(redis, key);
        CommandMeter meter{server};
        Crowd holder{1, field->holding, [&](int) { hold(place, *field); }};
        if (!field->holding.all_ready(1, 10s)) field->asking.fail("nobody held the lock");
        Crowd waiters{shape_.processes, field->asking,
                      [&](int process) { wait_in_process(process, place, *field); }};
        const Seconds cpu = watch(waiters, *field, meter, time);
        const auto given_back = SteadyClock::now();
        field->give_back.send();
        std::string fault = waiters.end(60s);
        const Seconds all_through = SteadyClock::now() - given_back;
        const std::array<std::string, 4> faults_of_end{
            holder.end(10s), strategy_.take_down(redis, key),
            field->exclusion.fault(static_cast<std::uint64_t>(shape_.all()) + 1),
            leftovers(redis, key)};
        for (const std::string& other : faults_of_end) {
            if (fault.empty()) fault = other;
        }
        if (!fault.empty()) return report.failed(name(), fault);
        const Commands commands = meter.commands();
        report.row(name(), {static_cast<double>(shape_.all()), commands.sent / time.count(),
                            commands.in_scripts / time.count(), 100 * cpu.count() / time.count(),
                            100 * meter.cpu().count() / time.count(), all_through.count()});
    }

private:
    void hold(const Place& place, Field& field) const {
        const auto side = holder_.side(place);
        const auto lock = side->contender(0);
        lock->lock();
        field.exclusion.enter();
        field.holding.arrive();
        field.give_back.wait();
        field.exclusion.leave();
        lock->unlock();
    }

    void wait_in_process(int process, const Place& place, Field& field) const {
        raise_descriptor_limit();
        std::vector<std::unique_ptr<Side>> sides;
        sides.reserve(static_cast<std::size_t>(shape_.clients));
        for (int i = 0; i < shape_.clients; ++i) sides.push_back(strategy_.side(place));
        run_threads(shape_.of_process(), field.asking, [&](int thread) {
            const int number = process * shape_.of_process() + thread;
            Side& side = *sides[static_cast<std::size_t>(thread / shape_.threads)];
            const auto lock = side.contender(static_cast<unsigned>(number) + 1);
            field.asking.arrive();
            pass(*lock, field);
        });
    }

    /// The waiters' CPU time while nothing happens. They get some time before, as pauses between
    /// tries grow.
    Seconds watch(const Crowd& waiters, Field& field, CommandMeter& meter, Seconds time) const {
        if (!field.asking.all_ready(shape_.all(), 30s)) {
            field.asking.fail("not all were ready in time");
            return Seconds{0};
        }
        std::this_thread::sleep_for(2s);
        meter.start();
        const Seconds cpu = waiters.cpu();
        std::this_thread::sleep_for(time);
        const Seconds used = waiters.cpu() - cpu;
        meter.stop();
        meter.learn_origins(100ms);
        return used;
    }

    Shape shape_;
    Strategy strategy_;
    Strategy holder_;
};

std::vector<Row> rows() {
    const std::vector<Strategy> strategies = all_strategies();
    const auto strategy = [&](const std::string& name) {
        return *std::find_if(strategies.begin(), strategies.end(),
                             [&](const Strategy& each) { return each.name == name; });
    };
    std::vector<Row> result;
    for (const Shape& shape : shapes) {
        // With a watchdog, as no lease is as long as the row; all of these keep the same string.
        result.emplace_back(shape, strategy("redlatch"), strategy("redlatch_watchdog"));
        result.emplace_back(shape, strategy("polling"), strategy("redlatch_watchdog"));
        result.emplace_back(shape, strategy("blpop"), strategy("blpop"));
    }
    return result;
}

int run(const Arguments& arguments) {
    raise_descriptor_limit();  // the server inherits it
    test::RedisServer server{{.tcp = true}};
    check_command_meter(server);
    Report report{"idle_benchmark",
                  {{"waiters", "waiters", 0},
                   {"commands_per_second", "commands/s", 1},
                   {"script_calls_per_second", "in scripts/s", 1},
                   {"client_cpu_percent", "client CPU %", 1},
                   {"server_cpu_percent", "server CPU %", 1},
                   {"all_through_seconds", "then all in s", 2}},
                  arguments.json};
    for (const Row& row : rows()) {
        if (arguments.wants(row.name())) row.measure(server, arguments.seconds, report);
    }
    return report.finish();
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch::bench;
    return run_program(run, argc, argv, {.seconds = Seconds{30}});
}
