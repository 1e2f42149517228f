#pragma once

#include <redlatch/redlatch.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace redlatch::test::fault {

/// Takes its time for each event, and now and then hangs for long.
class SlowObserver : public Observer {
public:
    void acquired(const Acquired&) override { rest(); }
    void timed_out(const TimedOut&) override { rest(); }
    void released(const Released&) override { rest(); }
    void renewed(const Renewed&) override { rest(); }
    void lost(const Lost&) override { rest(); }
    void error(const Error&) override { rest(); }
    void reconnected(const Reconnected&) override { rest(); }

private:
    void rest() {
        constexpr int seldom = 12;
        const bool hangs = ++events_ % seldom == 0;
        std::this_thread::sleep_for(std::chrono::milliseconds{hangs ? 4000 : 2});
    }

    std::atomic<int> events_{0};
};

}  // namespace redlatch::test::fault
