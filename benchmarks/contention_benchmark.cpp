// Many threads of one or more processes want one lock. Each row is a shape of the crowd, a length of
// the section and a strategy to take turns.

#include "harness/arguments.hpp"
#include "harness/command_meter.hpp"
#include "harness/crowd.hpp"
#include "harness/exclusion.hpp"
#include "harness/far_network.hpp"
#include "harness/leftovers.hpp"
#include "harness/other_client_crowd.hpp"
#include "harness/report.hpp"
#include "harness/shared_memory.hpp"
#include "harness/start_line.hpp"
#include "harness/statistics.hpp"
#include "harness/wait_times.hpp"
#include "strategies/all.hpp"
#include "strategies/other_clients.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::bench {
namespace {

constexpr const char* key = "order:contended";
constexpr int most_threads = 16;

struct Shape {
    const char* name;
    int processes;
    int threads;  ///< of each process
    constexpr int all() const { return processes * threads; }
};
constexpr std::array shapes{Shape{"1x16", 1, 16}, Shape{"3x4", 3, 4}, Shape{"2x1", 2, 1},
                            Shape{"8x1", 8, 1}};
static_assert(std::all_of(shapes.begin(), shapes.end(),
                          [](const Shape& shape) { return shape.all() <= most_threads; }));

struct Section {
    const char* name;
    std::chrono::milliseconds time;
};
constexpr std::array sections{Section{"empty", std::chrono::milliseconds{0}},
                              Section{"1ms", std::chrono::milliseconds{1}}};

/// One thread's figures, apart from the others' in the cache.
struct alignas(64) Score {
    std::atomic<std::uint64_t> sections{0};  ///< with the one that warms up
    WaitTimes waits;
};

/// What all processes of a row share.
struct Field {
    StartLine line;
    Exclusion exclusion;
    std::array<Score, most_threads> scores;
};

void pass(Field& field, Score& score, const Section& section) {
    field.exclusion.enter();
    if (section.time.count() > 0) std::this_thread::sleep_for(section.time);
    field.exclusion.leave();
    score.sections.fetch_add(1, std::memory_order_relaxed);
}

/// The first section connects and brings the scripts to the server: it is not measured. A wait that
/// is under way when all stop ends as the others leave, and counts.
void contend(Contender& lock, Field& field, Score& score, const Section& section) {
    lock.lock();
    pass(field, score, section);
    lock.unlock();
    field.line.wait_for_start();
    while (!field.line.stopped()) {
        const auto asked = SteadyClock::now();
        lock.lock();
        score.waits.add(SteadyClock::now() - asked);
        pass(field, score, section);
        lock.unlock();
    }
}

using Counts = std::vector<std::uint64_t>;

Counts count_sections(const Field& field, const Shape& shape) {
    Counts counts;
    for (int i = 0; i < shape.all(); ++i) {
        counts.push_back(field.scores[static_cast<std::size_t>(i)].sections.load());
    }
    return counts;
}

std::uint64_t sum(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

const std::vector<Column> columns{{"sections_per_second", "sections/s", 0},
                                  {"commands_per_section", "commands", 2},
                                  {"script_calls_per_section", "in scripts", 2},
                                  {"client_cpu_us_per_section", "client us", 1},
                                  {"server_cpu_us_per_section", "server us", 1},
                                  {"sections_of_a_thread_min", "min/thr", 0},
                                  {"sections_of_a_thread_max", "max/thr", 0},
                                  {"threads_starved", "starved", 0},
                                  {"wait_p50_ms", "p50 ms", 2},
                                  {"wait_p99_ms", "p99 ms", 2},
                                  {"wait_max_ms", "max ms", 1}};
using Figures = std::vector<double>;

/// What happened between the start and the stop.
struct Window {
    Seconds time{0};
    Seconds client_cpu{0};
    Counts sections;
};

Figures figures(const Window& window, const CommandMeter& meter, const WaitTimes& waits) {
    const auto done = static_cast<double>(sum(window.sections));
    const Commands commands = meter.commands();
    const auto [least, most] = std::minmax_element(window.sections.begin(), window.sections.end());
    const auto starved = std::count(window.sections.begin(), window.sections.end(), 0U);
    return {done / window.time.count(),
            commands.sent / done,
            commands.in_scripts / done,
            window.client_cpu.count() * 1e6 / done,
            meter.cpu().count() * 1e6 / done,
            static_cast<double>(*least),
            static_cast<double>(*most),
            static_cast<double>(starved),
            waits.quantile_ms(0.5),
            waits.quantile_ms(0.99),
            waits.longest_ms()};
}

struct Sample {
    Figures figures;
    std::string error;
};

struct Row {
    std::string name;
    std::function<Sample(test::RedisServer& server, Seconds time)> measure;
};

std::string row_name(const Shape& shape, const Section& section, const std::string& strategy) {
    return std::string{"contention/"} + shape.name + "/" + section.name + "/" + strategy;
}

/// Threads of this program.
class OwnCrowd {
public:
    /// `uri`: how the strategy reaches the server.
    OwnCrowd(const Shape& shape, const Section& section, Strategy strategy, std::string uri)
        : shape_(shape), section_(section), strategy_(std::move(strategy)), uri_(std::move(uri)) {}

    Sample operator()(test::RedisServer& server, Seconds time) const {
        test::RawRedis redis{server};
        const SharedMemory<Field> field;
        strategy_.set_up(redis, key);
        CommandMeter meter{server};
        Crowd crowd{shape_.processes, field->line,
                    [&](int process) { run_process(process, *field); }};
        const Window window = watch(crowd, *field, meter, time);
        Sample sample{.figures = {}, .error = end(crowd, *field, redis)};
        if (!sample.error.empty()) return sample;
        WaitTimes waits;
        for (const Score& score : field->scores) waits.add(score.waits);
        sample.figures = figures(window, meter, waits);
        return sample;
    }

private:
    void run_process(int process, Field& field) const {
        const auto side = strategy_.side({.uri = uri_, .key = key});
        run_threads(shape_.threads, field.line, [&](int thread) {
            const int number = process * shape_.threads + thread;
            const auto lock = side->contender(static_cast<unsigned>(number) + 1);
            contend(*lock, field, field.scores[static_cast<std::size_t>(number)], section_);
        });
    }

    Window watch(const Crowd& crowd, Field& field, CommandMeter& meter, Seconds time) const {
        Window window;
        if (!field.line.all_ready(shape_.all(), patience)) {
            field.line.fail("not all were ready in time");
            return window;
        }
        const Counts warm = count_sections(field, shape_);
        meter.start();
        const Seconds cpu = crowd.cpu();
        field.line.go();
        const auto start = SteadyClock::now();
        std::this_thread::sleep_for(time);
        window.time = SteadyClock::now() - start;
        window.sections = count_sections(field, shape_);
        window.client_cpu = crowd.cpu() - cpu;
        meter.stop();
        std::transform(window.sections.begin(), window.sections.end(), warm.begin(),
                       window.sections.begin(), std::minus<>{});
        meter.learn_origins(std::chrono::milliseconds{100});
        return window;
    }

    /// Stops everybody, and says what was wrong.
    std::string end(Crowd& crowd, Field& field, test::RawRedis& redis) const {
        field.line.stop();
        std::string fault = crowd.end(patience);
        const std::string of_strategy = strategy_.take_down(redis, key);
        const std::string of_keys = leftovers(redis, key);
        if (fault.empty()) fault = of_strategy;
        if (fault.empty()) fault = field.exclusion.fault(sum(count_sections(field, shape_)));
        if (fault.empty()) fault = of_keys;
        return fault;
    }

    /// Longer than a lease: a strategy that lost a lock goes on after it, and what it did shows.
    static constexpr std::chrono::seconds patience{45};

    Shape shape_;
    Section section_;
    Strategy strategy_;
    std::string uri_;
};

/// Threads of other programs.
class ForeignCrowd {
public:
    ForeignCrowd(const Shape& shape, const Section& section, test::ForeignProgram program)
        : shape_(shape), section_(section), program_(std::move(program)) {}

    Sample operator()(test::RedisServer& server, Seconds time) const {
        test::RawRedis redis{server};
        Sample sample;
        try {
            sample = measure(server, time);
        } catch (const std::runtime_error& e) {
            sample.error = e.what();
        }
        const std::string of_keys = leftovers(redis, key);
        if (sample.error.empty()) sample.error = of_keys;
        return sample;
    }

private:
    Sample measure(test::RedisServer& server, Seconds time) const {
        CommandMeter meter{server};
        OtherClientCrowd crowd{
            program_,
            shape_.processes,
            shape_.threads,
            {std::to_string(server.port()), key, std::to_string(shape_.threads),
             std::to_string(section_.time.count()), std::to_string(raw_lease_ms)}};
        meter.start();
        const Seconds cpu = crowd.cpu();
        const auto start = SteadyClock::now();
        crowd.go();
        std::this_thread::sleep_for(time);
        const auto stop = SteadyClock::now();
        Window window{.time = stop - start, .client_cpu = crowd.cpu() - cpu, .sections = {}};
        meter.stop();
        meter.learn_origins(std::chrono::milliseconds{100});
        crowd.stop();
        const std::vector<Passage> passages = crowd.end();
        if (most_at_once(passages) > 1) return {.figures = {}, .error = "sections overlapped"};
        window.sections = count(passages, stop);
        WaitTimes waits;
        for (const Passage& passage : passages) waits.add(passage.entered - passage.asked);
        return {.figures = figures(window, meter, waits), .error = {}};
    }

    Counts count(const std::vector<Passage>& passages, SteadyClock::time_point end) const {
        Counts counts(static_cast<std::size_t>(shape_.all()));
        for (const Passage& passage : passages) {
            if (passage.left <= end) ++counts.at(passage.contender);
        }
        return counts;
    }

    Shape shape_;
    Section section_;
    test::ForeignProgram program_;
};

/// The worst of all rounds for what is about the worst, the middle for the rest.
double over_rounds(const Column& column, const std::vector<Figures>& rounds, std::size_t index) {
    std::vector<double> values(rounds.size());
    std::transform(rounds.begin(), rounds.end(), values.begin(),
                   [&](const Figures& figures) { return figures[index]; });
    const bool worst = column.key == "wait_max_ms" || column.key == "threads_starved";
    return worst ? *std::max_element(values.begin(), values.end()) : median(values);
}

/// Rows of one shape and section, by turns in each round.
void compare(const std::vector<Row>& rows, const Arguments& arguments, test::RedisServer& server,
             Report& report) {
    std::vector<std::vector<Figures>> good(rows.size());
    std::vector<std::string> errors(rows.size());
    for (int round = 0; round < arguments.rounds; ++round) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::size_t turn = (i + static_cast<std::size_t>(round)) % rows.size();
            Sample sample = rows[turn].measure(server, arguments.seconds);
            if (!sample.error.empty()) errors[turn] = sample.error;
            good[turn].push_back(std::move(sample.figures));
        }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!errors[i].empty()) {
            report.failed(rows[i].name, errors[i]);
            continue;
        }
        Figures middle;
        for (std::size_t c = 0; c < columns.size(); ++c) {
            middle.push_back(over_rounds(columns[c], good[i], c));
        }
        report.row(rows[i].name, middle);
    }
}

std::vector<Row> all_rows(const Shape& shape, const Section& section, const std::string& uri,
                          const std::vector<OtherClient>& clients) {
    std::vector<Row> rows;
    for (const Strategy& strategy : all_strategies()) {
        rows.push_back(
            {row_name(shape, section, strategy.name), OwnCrowd{shape, section, strategy, uri}});
    }
    for (const auto& [name, program] : clients) {
        rows.push_back({row_name(shape, section, name), ForeignCrowd{shape, section, program}});
    }
    return rows;
}

int run(const Arguments& arguments) {
    test::RedisServer server{{.tcp = true}};
    check_command_meter(server);
    std::optional<FarNetwork> network;
    if (arguments.round_trip.count() > 0) network.emplace(server.tcp_uri(), arguments.round_trip);
    const std::string uri = network ? network->uri(0) : server.tcp_uri();
    // Programs of their own take a port.
    const auto clients =
        network ? std::vector<OtherClient>{} : present_clients(other_locks(), server);
    Report report{"contention_benchmark", columns, arguments.json};
    for (const Shape& shape : shapes) {
        for (const Section& section : sections) {
            std::vector<Row> rows = all_rows(shape, section, uri, clients);
            std::erase_if(rows, [&](const Row& row) { return !arguments.wants(row.name); });
            compare(rows, arguments, server, report);
        }
    }
    return report.finish();
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch::bench;
    return run_program(run, argc, argv);
}
