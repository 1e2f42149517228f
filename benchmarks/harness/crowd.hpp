#pragma once

#include "harness/process_cpu.hpp"
#include "harness/start_line.hpp"
#include "support/process.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::bench {

/// Runs `body(0)` to `body(threads - 1)` on threads of their own. What one of them throws stops all
/// who look at the line.
inline void run_threads(int threads, StartLine& line, const std::function<void(int)>& body) {
    std::vector<std::thread> running;
    running.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) {
        running.emplace_back([&line, &body, i] {
            try {
                body(i);
            } catch (const std::exception& e) {
                line.fail(e.what());
            }
        });
    }
    for (std::thread& thread : running) thread.join();
}

/// Processes that do the same. Make it while this process has one thread.
class Crowd {
public:
    /// Runs `body(0)` to `body(processes - 1)` in processes of their own. `body` makes everything
    /// that has threads or connections itself.
    Crowd(int processes, StartLine& line, const std::function<void(int)>& body) : line_(line) {
        for (int i = 0; i < processes; ++i) {
            children_.emplace_back([&line, &body, i](test::LineChannel&) {
                try {
                    body(i);
                } catch (const std::exception& e) {
                    line.fail(e.what());
                }
                return 0;
            });
        }
    }

    Seconds cpu() const {
        Seconds sum{0};
        for (const test::ChildProcess& child : children_) sum += cpu_of_process(child.pid());
        return sum;
    }

    bool running() {
        bool any = false;
        for (test::ChildProcess& child : children_) any = child.running() || any;
        return any;
    }

    /// What went wrong, or nothing, when all have ended. Those who don't end in time are killed.
    std::string end(std::chrono::seconds limit) {
        const auto deadline = SteadyClock::now() + limit;
        for (test::ChildProcess& child : children_) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
            const auto status = child.wait(left);
            if (!status) line_.fail("a process was stuck");
            if (status && !status->success()) line_.fail("a process broke down");
        }
        children_.clear();
        return line_.error();
    }

private:
    StartLine& line_;
    std::deque<test::ChildProcess> children_;
};

}  // namespace redlatch::bench
