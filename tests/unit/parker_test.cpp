#include <redlatch/clock.hpp>
#include <redlatch/service/parker.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace {

using namespace std::chrono_literals;
using redlatch::Clock;
using redlatch::detail::Parker;
using redlatch::detail::TimePoint;

/// How many sleeps it took until then, with nobody who wakes it.
int sleeps(Parker& parker, TimePoint until) {
    int count = 0;
    while (Clock::now() < until) {
        EXPECT_FALSE(parker.sleep(until));
        ++count;
    }
    return count;
}

// A signal may end a sleep. Where the system reads another time than it is given, there are thousands.
constexpr int few = 20;

TEST(Parker, sleeps_until_its_time_has_come) {
    Parker parker;
    EXPECT_LE(sleeps(parker, Clock::now() + 300ms), few) << "less than a second";
    EXPECT_LE(sleeps(parker, Clock::now() + 1200ms), few) << "more than a second";
}

TEST(Parker, is_woken_before) {
    Parker parker;
    std::jthread waker{[&] { parker.unpark()(); }};
    while (!parker.sleep(Clock::now() + 60s)) {
    }
}

TEST(Parker, does_not_sleep_where_it_was_woken_already) {
    Parker parker;
    parker.unpark()();
    EXPECT_TRUE(parker.park(TimePoint::max()));
    EXPECT_FALSE(parker.park(Clock::now())) << "that is over";
}

}  // namespace
