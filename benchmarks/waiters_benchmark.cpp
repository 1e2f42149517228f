// 100,000 coroutines of one thread wait for ten locks that somebody keeps: what they take of memory, threads and the
// server. Then the locks are given back, and each of them has one once.

#include "coroutines.hpp"
#include "harness/arguments.hpp"
#include "harness/command_meter.hpp"
#include "harness/report.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include <redlatch/redlatch.hpp>

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t names = 10;

/// What the kernel says of this process, in its own unit.
double process_status(const std::string& field) {
    std::ifstream status{"/proc/self/status"};
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1));
    }
    throw std::runtime_error{"no " + field};
}

/// Locks that are kept until this ends, by a client of its own.
class Holder {
public:
    explicit Holder(const std::string& uri) : client_(uri) {
        for (std::size_t i = 0; i < names; ++i) {
            holds_.push_back(Lock<>{client_, "order:" + std::to_string(i)}.acquire().value());
        }
    }

private:
    Client client_;
    std::vector<Held> holds_;
};

class Waiters {
public:
    Waiters(const std::string& uri, std::size_t count)
        : client_({.uris = {uri}, .completions = &queue_}), left_(count) {
        for (std::size_t i = 0; i < names; ++i) {
            locks_.push_back(std::make_unique<Lock<>>(client_, "order:" + std::to_string(i)));
        }
    }

    void start() {
        for (std::size_t i = 0; i < left_; ++i) pass(*locks_[i % names]);
    }

    void run_until_all_have_had_it(std::chrono::seconds patience) {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (left_ != 0) {
            pollfd ready{.fd = queue_.descriptor(), .events = POLLIN, .revents = 0};
            ::poll(&ready, 1, 100);
            queue_.run_ready();
            if (std::chrono::steady_clock::now() > end) {
                throw std::runtime_error{std::to_string(left_) + " never had it"};
            }
        }
        if (failures_ != 0) throw std::runtime_error{std::to_string(failures_) + " failed"};
    }

private:
    Task pass(Lock<>& lock) {
        {
            Result<Held> held = co_await lock.async_acquire();
            if (held) {
                const Result<Release> released = co_await held->async_release();
                if (!released || *released != Release::released) ++failures_;
            } else {
                ++failures_;
            }
        }
        --left_;
    }

    CompletionQueue queue_;
    Client client_;
    std::vector<std::unique_ptr<Lock<>>> locks_;
    std::size_t left_;
    std::size_t failures_ = 0;
};

void measure(test::RedisServer& server, std::size_t count, Seconds time, Report& report) {
    auto holder = std::make_unique<Holder>(server.uri());
    Waiters waiters{server.uri(), count};
    const double memory = process_status("VmRSS");
    const double threads = process_status("Threads");
    waiters.start();
    std::this_thread::sleep_for(2s);
    CommandMeter meter{server};
    meter.start();
    const Seconds cpu = cpu_time();
    std::this_thread::sleep_for(time);
    const Seconds used = cpu_time() - cpu;
    meter.stop();
    meter.learn_origins(100ms);
    const double more_memory = process_status("VmRSS") - memory;
    const double more_threads = process_status("Threads") - threads;
    const auto given_back = std::chrono::steady_clock::now();
    holder.reset();
    waiters.run_until_all_have_had_it(60s);
    const Seconds all_through = std::chrono::steady_clock::now() - given_back;
    if (!test::RawRedis{server}.keys().empty()) throw std::runtime_error{"keys were left behind"};
    report.row("waiters/" + std::to_string(count),
               {more_memory / 1024, more_memory * 1024 / static_cast<double>(count), more_threads,
                meter.commands().sent / time.count(), 100 * used.count() / time.count(),
                all_through.count()});
}

int run(const Arguments& arguments) {
    test::RedisServer server;
    check_command_meter(server);
    Report report{"waiters_benchmark",
                  {{"memory_mib", "MiB", 0},
                   {"bytes_per_waiter", "bytes each", 0},
                   {"threads", "threads", 0},
                   {"commands_per_second", "commands/s", 1},
                   {"client_cpu_percent", "client CPU %", 1},
                   {"all_through_seconds", "then all in s", 2}},
                  arguments.json};
    for (const std::size_t count : {1'000, 100'000}) {
        if (arguments.wants("waiters/" + std::to_string(count))) {
            measure(server, count, arguments.seconds, report);
        }
    }
    return report.finish();
}

}  // namespace
}  // namespace redlatch::bench

int main(int argc, char** argv) {
    using namespace redlatch::bench;
    return run_program(run, argc, argv, {.seconds = Seconds{10}});
}
