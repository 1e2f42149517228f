#pragma once

#include "support/wait.hpp"

#include <gtest/gtest.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace redlatch::test {

/// A thread, and how to know that it waits: the system says that it sleeps, and goes on sleeping.
/// One whose wait was over sooner does not sleep any more.
class WaitingThread {
public:
    explicit WaitingThread(std::function<void()> run)
        : thread_([this, run = std::move(run)] {
              id_ = ::syscall(SYS_gettid);
              run();
              done_ = true;
          }) {}
    WaitingThread(const WaitingThread&) = delete;
    WaitingThread& operator=(const WaitingThread&) = delete;
    ~WaitingThread() {
        if (thread_.joinable()) thread_.join();
    }

    void wait_until_asleep() {
        std::string last;
        int same = 0;
        ASSERT_TRUE(eventually([&] {
            const std::string now = sleep_signature();
            same = !now.empty() && now == last ? same + 1 : 0;
            last = now;
            return same == 5 || done_;
        }));
    }

    void join() { thread_.join(); }
    bool done() const { return done_; }

private:
    /// Which of its sleeps the thread is in; empty where it is awake.
    std::string sleep_signature() const {
        if (id_ == 0) return {};
        std::ifstream status{"/proc/self/task/" + std::to_string(id_) + "/status"};
        std::string signature;
        bool asleep = false;
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("State:")) asleep = line.find('S', 6) != std::string::npos;
            if (line.find("ctxt_switches") != std::string::npos) signature += line;
        }
        return asleep ? signature : std::string{};
    }

    std::atomic<long> id_{0};
    std::atomic<bool> done_{false};
    std::thread thread_;
};

}  // namespace redlatch::test
