#pragma once

#include "harness/process_cpu.hpp"
#include "harness/start_line.hpp"
#include "support/foreign_program.hpp"
#include "support/process.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::bench {

/// One turn of one contender. The other languages have the same clock.
struct Passage {
    std::size_t contender = 0;
    SteadyClock::time_point asked;
    SteadyClock::time_point entered;
    SteadyClock::time_point left;
};

/// How many were inside at the same time, at most.
inline std::ptrdiff_t most_at_once(const std::vector<Passage>& passages) {
    using Change = std::pair<SteadyClock::time_point, std::ptrdiff_t>;
    std::vector<Change> changes;
    for (const Passage& passage : passages) {
        changes.emplace_back(passage.entered, 1);
        changes.emplace_back(passage.left, -1);
    }
    std::sort(changes.begin(), changes.end());  // of one moment, who leaves comes first
    std::ptrdiff_t inside = 0;
    std::ptrdiff_t most = 0;
    for (const auto& [when, change] : changes) most = std::max(most, inside += change);
    return most;
}

/// Processes whose threads, or what the language has instead, take turns. Each writes "warm" when
/// all of its threads have had the lock once, begins at a line, and ends at another: with a line
/// for each turn after the first (the thread's number, and when it asked, entered and left in
/// nanoseconds), and "end". All throws std::runtime_error if a process does not.
class OtherClientCrowd {
public:
    OtherClientCrowd(const test::ForeignProgram& program, int processes, int threads,
                     const std::vector<std::string>& arguments)
        : threads_(static_cast<std::size_t>(threads)) {
        for (int i = 0; i < processes; ++i) processes_.push_back(start(program, arguments));
        for (test::ChildProcess& process : processes_) {
            if (process.read_line(patience) != "warm") throw std::runtime_error{"no first turn"};
        }
    }

    void go() { write_line(); }
    void stop() { write_line(); }

    Seconds cpu() const {
        Seconds sum{0};
        for (const test::ChildProcess& process : processes_) sum += cpu_of_process(process.pid());
        return sum;
    }

    /// What all did, when they have ended.
    std::vector<Passage> end() {
        std::vector<Passage> passages;
        for (std::size_t i = 0; i < processes_.size(); ++i) {
            read_passages(processes_[i], i * threads_, passages);
            const auto status = processes_[i].wait(patience);
            if (!status || !status->success()) throw std::runtime_error{"a process broke down"};
        }
        return passages;
    }

private:
    /// Longer than a lease.
    static constexpr std::chrono::seconds patience{45};

    void write_line() {
        for (test::ChildProcess& process : processes_) process.write_line("now");
    }

    static void read_passages(test::ChildProcess& process, std::size_t first,
                              std::vector<Passage>& passages) {
        while (true) {
            const std::optional<std::string> line = process.read_line(patience);
            if (!line) throw std::runtime_error{"a process was stuck"};
            if (line == "end") return;
            std::istringstream text{*line};
            std::size_t thread = 0;
            SteadyClock::rep asked = 0;
            SteadyClock::rep entered = 0;
            SteadyClock::rep left = 0;
            if (!(text >> thread >> asked >> entered >> left)) throw std::runtime_error{*line};
            passages.push_back({first + thread, time(asked), time(entered), time(left)});
        }
    }

    static SteadyClock::time_point time(SteadyClock::rep nanoseconds) {
        return SteadyClock::time_point{std::chrono::nanoseconds{nanoseconds}};
    }

    std::size_t threads_;
    std::vector<test::ChildProcess> processes_;
};

}  // namespace redlatch::bench
