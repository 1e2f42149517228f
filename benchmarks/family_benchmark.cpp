// Shared locks, semaphores and sets of locks, beside what a program would use without them. Threads of
// several processes do the same thing again and again.

#include "harness/arguments.hpp"
#include "harness/command_meter.hpp"
#include "harness/crowd.hpp"
#include "harness/leftovers.hpp"
#include "harness/other_client_crowd.hpp"
#include "harness/report.hpp"
#include "harness/shared_memory.hpp"
#include "harness/start_line.hpp"
#include "harness/statistics.hpp"
#include "harness/wait_times.hpp"
#include "raw_lock.hpp"
#include "strategies/other_clients.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace redlatch::bench {
namespace {

using namespace std::chrono_literals;

constexpr int most_threads = 16;
constexpr int permits = 4;

struct Shape {
    const char* name;
    int processes;
    int threads;  ///< of each process
    constexpr int all() const { return processes * threads; }
};
constexpr Shape alone{"1x1", 1, 1};
constexpr Shape one_process{"1x16", 1, 16};
constexpr Shape three_processes{"3x4", 3, 4};

/// One thread's figures, apart from the others' in the cache.
struct alignas(64) Score {
    std::atomic<std::uint64_t> sections{0};
    WaitTimes waits;
};

/// What all processes of a row share.
struct Field {
    StartLine line;
    std::atomic<int> readers{0};
    std::atomic<int> writers{0};
    std::atomic<std::uint64_t> acquired{0};  ///< locks, by the library's word
    std::array<Score, most_threads> scores;
};

/// How much of what is locked a section takes.
enum class Use { reads, writes, permit };

/// What a thread does in a section, and what must not be seen there.
class Section {
public:
    Section(Field& field, std::chrono::milliseconds time) : field_(&field), time_(time) {}

    void run(Use use) const {
        std::atomic<int>& mine = use == Use::writes ? field_->writers : field_->readers;
        ++mine;
        look(use);
        if (time_ > 0ms) std::this_thread::sleep_for(time_);
        look(use);
        --mine;
    }

private:
    void look(Use use) const {
        const int writers = field_->writers;
        const int readers = field_->readers;
        if (use == Use::reads && writers > 0) field_->line.fail("a writer beside a reader");
        if (use == Use::writes && (writers > 1 || readers > 0)) {
            field_->line.fail("somebody beside a writer");
        }
        if (use == Use::permit && readers > permits) field_->line.fail("more than the permits");
    }

    Field* field_;
    std::chrono::milliseconds time_;
};

/// Locks, calls `inside` with how it locked, and unlocks.
using Turn = std::function<void(const std::function<void(Use)>& inside)>;

/// What the threads of one process share, and the turn of each of them.
class Party {
public:
    Party() = default;
    Party(const Party&) = delete;
    Party& operator=(const Party&) = delete;
    virtual ~Party() = default;
    virtual Turn turn(int thread) = 0;
};

struct Row {
    std::string name;
    Shape shape;
    std::chrono::milliseconds section;
    std::function<std::unique_ptr<Party>(const std::string& uri, Field&)> party{};
    std::optional<test::ForeignProgram> program{};  ///< in place of a party: of one permit each
    int timed = most_threads;            ///< the waits of the first so many threads are measured
    std::chrono::milliseconds pause{0};  ///< of those between two turns
    int locks = 0;                       ///< that a section needs, where they are counted
};

/// Every `cycle`-th turn writes, the others read; 0: all read.
template <class Mutex, bool reads_share>
class ReadersAndWriters final : public Party {
public:
    ReadersAndWriters(const std::string& uri, int cycle) : client_(uri), cycle_(cycle) {}

    Turn turn(int thread) override {
        return [this, at = thread](const auto& inside) mutable {
            const bool writes = cycle_ != 0 && ++at % cycle_ == 0;
            if constexpr (reads_share) {
                if (!writes) {
                    const std::shared_lock scope{mutex_};
                    return inside(Use::reads);
                }
            }
            const std::lock_guard scope{mutex_};
            inside(Use::writes);
        };
    }

private:
    Client client_;
    Mutex mutex_{client_, "family:shared"};
    int cycle_;
};

/// One writer among readers.
class OneWriter final : public Party {
public:
    explicit OneWriter(const std::string& uri) : client_(uri) {}

    Turn turn(int thread) override {
        return [this, writes = thread == 0](const auto& inside) {
            if (writes) {
                const std::lock_guard scope{mutex_};
                return inside(Use::writes);
            }
            const std::shared_lock scope{mutex_};
            inside(Use::reads);
        };
    }

private:
    Client client_;
    Lock<Shared> mutex_{client_, "family:shared"};
};

class OnePermit final : public Party {
public:
    explicit OnePermit(const std::string& uri) : client_(uri) {}

    Turn turn(int) override {
        return [this](const auto& inside) {
            semaphore_.acquire();
            inside(Use::permit);
            static_cast<void>(semaphore_.release());
        };
    }

private:
    Client client_;
    Semaphore<> semaphore_{client_, "family:permits", permits};
};

/// As many mutexes as there are permits, the threads dealt out to them.
class OneOfFour final : public Party {
public:
    explicit OneOfFour(const std::string& uri) : client_(uri) {
        for (int i = 0; i < permits; ++i) {
            mutexes_.push_back(
                std::make_unique<Lock<>>(client_, "family:permit:" + std::to_string(i)));
        }
    }

    Turn turn(int thread) override {
        return [mutex = mutexes_[static_cast<std::size_t>(thread % permits)].get()](
                   const auto& inside) {
            const std::lock_guard scope{*mutex};
            inside(Use::permit);
        };
    }

private:
    Client client_;
    std::vector<std::unique_ptr<Lock<>>> mutexes_;
};

/// Each thread by the same commands, without a library and without a queue.
template <class Raw>
class ByHand final : public Party {
public:
    ByHand(const std::string& uri, Use use) : uri_(uri), use_(use) {}

    Turn turn(int) override {
        constexpr std::int64_t lease_ms = 30'000;
        return [use = use_, lock = std::make_shared<Raw>(uri_, "family:by_hand", lease_ms)](
                   const auto& inside) {
            if (!lock->try_lock()) throw std::runtime_error{"by hand: somebody has it"};
            inside(use);
            if (!lock->unlock()) throw std::runtime_error{"by hand: it was not released"};
        };
    }

private:
    std::string uri_;
    Use use_;
};

const std::array<std::string, 2> accounts{"family:account:1", "family:account:2"};

/// Counts the locks that were acquired.
class Acquisitions final : public Observer {
public:
    explicit Acquisitions(Field& field) : field_(&field) {}
    void acquired(const Acquired&) override {
        field_->acquired.fetch_add(1, std::memory_order_relaxed);
    }

private:
    Field* field_;
};

ClientOptions observed(const std::string& uri, Field& field) {
    ClientOptions options{.uris = {uri}};
    options.observer = std::make_shared<Acquisitions>(field);
    return options;
}

class Set final : public Party {
public:
    Set(const std::string& uri, Field& field) : client_(observed(uri, field)) {}

    Turn turn(int thread) override {
        return [both = std::shared_ptr{make(thread % 2 == 0)}](const auto& inside) {
            const std::lock_guard scope{*both};
            inside(Use::writes);
        };
    }

private:
    std::unique_ptr<LockSet<>> make(bool straight) {
        const std::size_t first = straight ? 0 : 1;
        return std::make_unique<LockSet<>>(
            client_, std::vector<std::string>{accounts[first], accounts[1 - first]});
    }

    Client client_;
};

/// Half of the threads name the second account first.
class ScopedLock final : public Party {
public:
    ScopedLock(const std::string& uri, Field& field) : client_(observed(uri, field)) {}

    Turn turn(int thread) override {
        return [this, straight = thread % 2 == 0](const auto& inside) {
            const std::scoped_lock scope{straight ? first_ : second_, straight ? second_ : first_};
            inside(Use::writes);
        };
    }

private:
    Client client_;
    Lock<> first_{client_, accounts[0]};
    Lock<> second_{client_, accounts[1]};
};

void take_turns(const Turn& turn, const Row& row, Field& field, int number) {
    Score& score = field.scores[static_cast<std::size_t>(number)];
    const Section section{field, row.section};
    turn([&](Use use) { section.run(use); });  // connects, and brings the scripts to the server
    field.line.wait_for_start();
    while (!field.line.stopped()) {
        const auto asked = SteadyClock::now();
        turn([&](Use use) {
            if (number < row.timed) score.waits.add(SteadyClock::now() - asked);
            section.run(use);
        });
        score.sections.fetch_add(1, std::memory_order_relaxed);
        if (number < row.timed && row.pause > 0ms) std::this_thread::sleep_for(row.pause);
    }
}

const std::vector<Column> columns{{"sections_per_second", "sections/s", 0},
                                  {"commands_per_section", "commands", 2},
                                  {"script_calls_per_section", "in scripts", 2},
                                  {"client_cpu_us_per_section", "client us", 1},
                                  {"server_cpu_us_per_section", "server us", 1},
                                  {"acquired_for_each_needed", "acquired", 3},
                                  {"threads_starved", "starved", 0},
                                  {"wait_p50_ms", "p50 ms", 2},
                                  {"wait_p99_ms", "p99 ms", 2},
                                  {"wait_max_ms", "max ms", 1}};
using Figures = std::vector<double>;

struct Sample {
    Figures figures;
    std::string error;
};

struct Window {
    Seconds time{0};
    Seconds client_cpu{0};
    std::vector<std::uint64_t> sections;
    std::uint64_t acquired = 0;
};

constexpr std::chrono::seconds patience{45};

Window watch(const Crowd& crowd, const Shape& shape, Field& field, CommandMeter& meter,
             Seconds time) {
    Window window;
    if (!field.line.all_ready(shape.all(), patience)) {
        field.line.fail("not all were ready in time");
        return window;
    }
    meter.start();
    const Seconds cpu = crowd.cpu();
    const std::uint64_t acquired = field.acquired;
    field.line.go();
    const auto start = SteadyClock::now();
    std::this_thread::sleep_for(time);
    window.time = SteadyClock::now() - start;
    for (int i = 0; i < shape.all(); ++i) {
        window.sections.push_back(field.scores[static_cast<std::size_t>(i)].sections);
    }
    window.acquired = field.acquired - acquired;
    window.client_cpu = crowd.cpu() - cpu;
    meter.stop();
    meter.learn_origins(100ms);
    return window;
}

Figures figures(const Row& row, const Window& window, const CommandMeter& meter,
                const WaitTimes& waits) {
    double done = 0;
    for (const std::uint64_t sections : window.sections) done += static_cast<double>(sections);
    const auto starved = std::count(window.sections.begin(), window.sections.end(), 0U);
    const Commands commands = meter.commands();
    return {done / window.time.count(),
            commands.sent / done,
            commands.in_scripts / done,
            window.client_cpu.count() * 1e6 / done,
            meter.cpu().count() * 1e6 / done,
            row.locks == 0 ? std::nan("") : static_cast<double>(window.acquired) / done / row.locks,
            static_cast<double>(starved),
            waits.quantile_ms(0.5),
            waits.quantile_ms(0.99),
            waits.longest_ms()};
}

Sample measure(const Row& row, test::RedisServer& server, Seconds time) {
    test::RawRedis redis{server};
    const SharedMemory<Field> field;
    CommandMeter meter{server};
    Crowd crowd{row.shape.processes, field->line, [&](int process) {
                    const auto party = row.party(server.tcp_uri(), *field);
                    run_threads(row.shape.threads, field->line, [&](int thread) {
                        const int number = process * row.shape.threads + thread;
                        take_turns(party->turn(number), row, *field, number);
                    });
                }};
    const Window window = watch(crowd, row.shape, *field, meter, time);
    field->line.stop();
    Sample sample{.figures = {}, .error = crowd.end(patience)};
    const std::string of_keys = leftovers(redis, "family:shared");
    if (sample.error.empty()) sample.error = of_keys;
    WaitTimes waits;
    for (const Score& score : field->scores) waits.add(score.waits);
    if (sample.error.empty()) sample.figures = figures(row, window, meter, waits);
    return sample;
}

/// Tasks of other programs, each of which takes one permit.
Sample measure_foreign(const Row& row, test::RedisServer& server, Seconds time) {
    CommandMeter meter{server};
    OtherClientCrowd crowd{
        *row.program,
        row.shape.processes,
        row.shape.threads,
        {std::to_string(server.port()), "family:permits", std::to_string(row.shape.threads),
         std::to_string(row.section.count()), "30000", std::to_string(permits)}};
    meter.start();
    const Seconds cpu = crowd.cpu();
    const auto start = SteadyClock::now();
    crowd.go();
    std::this_thread::sleep_for(time);
    const auto stop = SteadyClock::now();
    Window window{.time = stop - start, .client_cpu = crowd.cpu() - cpu, .sections = {}};
    meter.stop();
    meter.learn_origins(100ms);
    crowd.stop();
    const std::vector<Passage> passages = crowd.end();
    if (most_at_once(passages) > permits) return {.figures = {}, .error = "more than the permits"};
    window.sections.resize(static_cast<std::size_t>(row.shape.all()));
    WaitTimes waits;
    for (const Passage& passage : passages) {
        if (passage.left <= stop) ++window.sections.at(passage.contender);
        waits.add(passage.entered - passage.asked);
    }
    return {.figures = figures(row, window, meter, waits), .error = {}};
}

template <class Mutex, bool reads_share>
auto mix(int cycle) {
    return [cycle](const std::string& uri, Field&) {
        return std::make_unique<ReadersAndWriters<Mutex, reads_share>>(uri, cycle);
    };
}

template <class Raw>
auto by_hand(Use use) {
    return
        [use](const std::string& uri, Field&) { return std::make_unique<ByHand<Raw>>(uri, use); };
}

template <class OneParty>
std::unique_ptr<Party> make(const std::string& uri, Field& field) {
    if constexpr (std::is_constructible_v<OneParty, const std::string&, Field&>) {
        return std::make_unique<OneParty>(uri, field);
    } else {
        return std::make_unique<OneParty>(uri);
    }
}

std::string in(const Shape& shape, std::chrono::milliseconds section) {
    return std::string{shape.name} + (section > 0ms ? "/1ms/" : "/empty/");
}

std::vector<Row> all_rows(const std::vector<OtherClient>& semaphores) {
    std::vector<Row> rows;
    const auto beside_a_mutex = [&](const std::string& name, const Shape& shape,
                                    std::chrono::milliseconds section, int cycle) {
        const std::string full = name + "/" + in(shape, section);
        rows.push_back({full + "redlatch", shape, section, mix<Lock<Shared>, true>(cycle)});
        rows.push_back({full + "mutex", shape, section, mix<Lock<>, false>(cycle)});
    };
    beside_a_mutex("readers", alone, 0ms, 0);
    beside_a_mutex("readers", one_process, 1ms, 0);
    beside_a_mutex("readers", three_processes, 1ms, 0);
    for (const Shape& shape : {alone, one_process, three_processes}) {
        const auto section = shape.all() == 1 ? 0ms : 1ms;
        rows.push_back({"readers/" + in(shape, section) + "by_hand", shape, section,
                        by_hand<RawReader>(Use::reads)});
    }
    beside_a_mutex("mostly_readers", three_processes, 1ms, 10);
    beside_a_mutex("writers", alone, 0ms, 1);
    rows.push_back(
        {"writers/" + in(alone, 0ms) + "by_hand", alone, 0ms, by_hand<RawLock>(Use::writes)});
    beside_a_mutex("writers", three_processes, 0ms, 1);
    for (const Shape& shape : {one_process, three_processes}) {
        rows.push_back({.name = "writer_among_readers/" + in(shape, 1ms) + "redlatch",
                        .shape = shape,
                        .section = 1ms,
                        .party = make<OneWriter>,
                        .timed = 1,
                        .pause = 20ms});
    }
    const std::string of_four = "permits/" + in(three_processes, 1ms);
    rows.push_back({of_four + "redlatch", three_processes, 1ms, make<OnePermit>});
    rows.push_back({of_four + "four_mutexes", three_processes, 1ms, make<OneOfFour>});
    for (const auto& [name, program] : semaphores) {
        rows.push_back(
            {.name = of_four + name, .shape = three_processes, .section = 1ms, .program = program});
    }
    const std::string two_names = "two_names/" + in(three_processes, 0ms);
    rows.push_back({.name = two_names + "redlatch",
                    .shape = three_processes,
                    .section = 0ms,
                    .party = make<Set>,
                    .locks = 2});
    rows.push_back({.name = two_names + "scoped_lock",
                    .shape = three_processes,
                    .section = 0ms,
                    .party = make<ScopedLock>,
                    .locks = 2});
    return rows;
}

int run(const Arguments& arguments) {
    test::RedisServer server{{.tcp = true}};
    check_command_meter(server);
    Report report{"family_benchmark", columns, arguments.json};
    for (const Row& row : all_rows(present_clients(other_semaphores(), server))) {
        if (!arguments.wants(row.name)) continue;
        std::vector<std::vector<double>> rounds(columns.size());
        std::string error;
        for (int round = 0; round < arguments.rounds && error.empty(); ++round) {
            const Sample sample = row.program ? measure_foreign(row, server, arguments.seconds)
                                              : measure(row, server, arguments.seconds);
            error = sample.error;
            for (std::size_t c = 0; c < sample.figures.size(); ++c) {
                rounds[c].push_back(sample.figures[c]);
            }
        }
        if (!error.empty()) {
            report.failed(row.name, error);
            continue;
        }
        Figures middle;
        for (std::vector<double>& values : rounds) middle.push_back(median(std::move(values)));
        report.row(row.name, middle);
    }
    return report.finish();
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch::bench;
    return run_program(run, argc, argv);
}
