#pragma once

#include "harness/statistics.hpp"

#include <benchmark/benchmark.h>

#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::bench {

/// CPU time of this process so far, of its threads and its time in the kernel.
inline Seconds cpu_time() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return Seconds{seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

/// What one thread does again and again: false, or an exception, if it did not work.
using Step = std::function<bool()>;

/// What is done again and again, over some time.
struct Sample {
    double per_second = 0;
    double cpu_us = 0;  ///< this process's CPU time for one step
    std::string error;
};

/// From its making on.
class Stretch {
public:
    bool is_over(std::chrono::milliseconds duration) const {
        return std::chrono::steady_clock::now() - start_ >= duration;
    }
    Sample sample(std::size_t steps, std::string error) const {
        const Seconds took = std::chrono::steady_clock::now() - start_;
        const auto count = static_cast<double>(steps);
        return {.per_second = count / took.count(),
                .cpu_us = (cpu_time() - cpu_).count() * 1e6 / count,
                .error = std::move(error)};
    }

private:
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    const Seconds cpu_ = cpu_time();
};

/// Runs each of `steps` on a thread of its own for about `duration`.
inline Sample run_for(const std::vector<Step>& steps, std::chrono::milliseconds duration) {
    std::string first_error;
    std::size_t steps_done = 0;
    std::mutex mutex;
    std::atomic<bool> stop{false};
    std::latch ready{static_cast<std::ptrdiff_t>(steps.size()) + 1};
    std::vector<std::thread> threads;
    for (const Step& step : steps) {
        threads.emplace_back([&, step] {
            std::size_t done = 0;
            std::string error;
            ready.arrive_and_wait();
            try {
                while (error.empty() && !stop.load(std::memory_order_relaxed)) {
                    if (!step()) error = "a lock was not taken or not released";
                    ++done;
                }
            } catch (const std::exception& e) {
                error = e.what();
            }
            const std::lock_guard lock{mutex};
            steps_done += done;
            if (!error.empty()) first_error = error;
        });
    }
    ready.arrive_and_wait();
    const Stretch stretch;
    std::this_thread::sleep_for(duration);
    stop = true;
    for (std::thread& thread : threads) thread.join();
    return stretch.sample(steps_done, std::move(first_error));
}

/// Samples of one side.
struct Side {
    std::vector<double> per_second;
    std::vector<double> cpu_us;

    void add(const Sample& sample) {
        per_second.push_back(sample.per_second);
        cpu_us.push_back(sample.cpu_us);
    }
};

/// How many rounds a comparison has, and how long one side runs in each. Many short ones: what
/// disturbs a machine then hits both sides.
inline constexpr int rounds = 31;
inline constexpr std::chrono::milliseconds slice{60};

/// Does something again and again for about that long.
using Loop = std::function<Sample(std::chrono::milliseconds)>;

inline Loop on_threads(std::vector<Step> steps) {
    return [steps = std::move(steps)](auto duration) { return run_for(steps, duration); };
}

/// Runs both ways by turns, each first in every other round. Reports the medians, their ratio, and
/// `paired`: the median of each round's own ratio, which a machine that changes its pace in the
/// middle of a run disturbs least.
inline void compare(benchmark::State& state, const Loop& ours, const Loop& raw,
                    std::chrono::milliseconds each = slice) {
    Side our_side;
    Side raw_side;
    auto run = [&](Side& side, const Loop& way) {
        const Sample sample = way(each);
        if (!sample.error.empty()) state.SkipWithError(sample.error.c_str());
        side.add(sample);
        return sample.error.empty();
    };
    raw(each);  // connects, loads scripts, fills caches
    ours(each);
    bool ours_first = false;
    for ([[maybe_unused]] auto _ : state) {
        Side& first = ours_first ? our_side : raw_side;
        Side& second = ours_first ? raw_side : our_side;
        if (!run(first, ours_first ? ours : raw) || !run(second, ours_first ? raw : ours)) return;
        ours_first = !ours_first;
        state.SetIterationTime(1 / our_side.per_second.back());
    }
    std::vector<double> paired;
    std::transform(our_side.per_second.begin(), our_side.per_second.end(),
                   raw_side.per_second.begin(), std::back_inserter(paired), std::divides<>{});
    state.counters["ours/s"] = median(our_side.per_second);
    state.counters["raw/s"] = median(raw_side.per_second);
    state.counters["ratio"] = median(our_side.per_second) / median(raw_side.per_second);
    state.counters["paired"] = median(paired);
    state.counters["ours_cpu_us"] = median(our_side.cpu_us);
    state.counters["raw_cpu_us"] = median(raw_side.cpu_us);
}

/// Steps on threads, on both sides.
inline void compare(benchmark::State& state, const std::vector<Step>& ours,
                    const std::vector<Step>& raw) {
    compare(state, on_threads(ours), on_threads(raw));
}

}  // namespace redlatch::bench
