#include <redlatch/core/timer_wheel.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace std::chrono_literals;

class ATimerWheel : public ::testing::Test {
protected:
    struct Timer final : TimerWheel::Timer {
        char name = '?';
    };

    ATimerWheel() {
        char name = 'a';
        for (Timer& timer : timers_) timer.name = name++;
    }

    std::string expire(std::function<void(Timer&)> act = [](Timer&) {}) {
        std::string names;
        wheel_.expire(now_, most_, [&](TimerWheel::Timer& expired) {
            auto& timer = static_cast<Timer&>(expired);
            EXPECT_FALSE(timer.is_set());
            names += timer.name;
            act(timer);
        });
        return names;
    }

    TimePoint now_{1h + 300us};
    std::size_t most_ = std::numeric_limits<std::size_t>::max();
    TimerWheel wheel_{now_};
    std::array<Timer, 8> timers_;
    Timer& a_ = timers_[0];
    Timer& b_ = timers_[1];
    Timer& c_ = timers_[2];
};

TEST_F(ATimerWheel, tells_of_timers_when_they_are_due_and_not_before) {
    EXPECT_EQ(wheel_.next_due(), TimePoint::max());
    wheel_.set(a_, now_ + 10ms);
    wheel_.set(b_, now_ + 20ms);
    EXPECT_TRUE(a_.is_set());
    EXPECT_GE(wheel_.next_due(), now_ + 10ms);
    EXPECT_LE(wheel_.next_due(), now_ + 11ms);
    now_ += 10ms - 1ns;
    EXPECT_EQ(expire(), "");
    now_ += 1ns;
    EXPECT_EQ(expire(), "a");
    EXPECT_GE(wheel_.next_due(), now_ + 10ms);
    now_ += 1h;
    EXPECT_EQ(expire(), "b");
    EXPECT_EQ(wheel_.next_due(), TimePoint::max());
}

TEST_F(ATimerWheel, forgets_a_timer_that_is_cleared) {
    wheel_.set(a_, now_ + 1ms);
    wheel_.clear(a_);
    wheel_.clear(a_);
    EXPECT_FALSE(a_.is_set());
    EXPECT_EQ(wheel_.next_due(), TimePoint::max());
    now_ += 1h;
    EXPECT_EQ(expire(), "");
}

TEST_F(ATimerWheel, sets_a_timer_anew) {
    wheel_.set(a_, now_ + 10ms);
    wheel_.set(b_, now_ + 10ms);
    wheel_.set(a_, now_ + 50ms);
    now_ += 20ms;
    EXPECT_EQ(expire(), "b");
    wheel_.set(a_, now_ + 5ms);
    now_ += 5ms;
    EXPECT_EQ(expire(), "a");
    EXPECT_EQ(wheel_.next_due(), TimePoint::max());
}

TEST_F(ATimerWheel, has_room_for_any_time) {
    wheel_.set(a_, now_ + 10min);
    wheel_.set(b_, TimePoint::min());
    wheel_.set(c_, TimePoint::max());
    EXPECT_LE(wheel_.next_due(), now_ + 1ms) << "what is over already";
    EXPECT_EQ(expire(), "b");
    for (; now_ < TimePoint{70min} - 100ms; now_ = std::min(wheel_.next_due(), TimePoint{70min})) {
        ASSERT_EQ(expire(), "");
    }
    now_ = TimePoint{70min + 301us};
    EXPECT_EQ(expire(), "a");
    EXPECT_TRUE(c_.is_set());
}

TEST_F(ATimerWheel, tells_of_all_after_a_long_sleep) {
    for (std::size_t i = 0; i < timers_.size(); ++i) {
        wheel_.set(timers_[i], now_ + i * 1700ms);
    }
    now_ += 1h;
    EXPECT_EQ(expire().size(), timers_.size());
    EXPECT_EQ(wheel_.next_due(), TimePoint::max());
}

TEST_F(ATimerWheel, tells_of_no_more_at_a_time_than_are_wanted) {
    for (Timer& timer : timers_) wheel_.set(timer, now_ + 1ms);
    now_ += 1ms;
    most_ = 3;
    EXPECT_EQ(expire(), "abc");
    EXPECT_LE(wheel_.next_due(), now_) << "some are due";
    wheel_.clear(timers_[3]);
    EXPECT_EQ(expire(), "efg");
    EXPECT_EQ(expire(), "h");
    EXPECT_EQ(wheel_.next_due(), TimePoint::max());
}

TEST_F(ATimerWheel, lets_one_that_expires_set_and_clear_others_and_itself) {
    for (Timer& timer : {std::ref(a_), std::ref(b_), std::ref(c_)}) wheel_.set(timer, now_ + 1ms);
    now_ += 1ms;
    EXPECT_EQ(expire([this](Timer& timer) {
                  wheel_.clear(b_);
                  wheel_.set(timer, now_ - 1s);
              }),
              "ac")
        << "and none twice";
    EXPECT_LE(wheel_.next_due(), now_ + 1ms);
    EXPECT_EQ(expire(), "ac");
}

TEST_F(ATimerWheel, is_never_late_by_more_than_a_millisecond) {
    std::mt19937 random{1};
    std::vector<Timer> timers(500);
    std::vector<TimePoint> due(timers.size());
    std::uniform_int_distribution<int> microseconds{0, 12'000'000};
    for (std::size_t i = 0; i < timers.size(); ++i) {
        due[i] = now_ + std::chrono::microseconds{microseconds(random)};
        wheel_.set(timers[i], due[i]);
    }
    std::size_t told = 0;
    while (wheel_.next_due() != TimePoint::max()) {
        now_ = wheel_.next_due();
        wheel_.expire(now_, most_, [&](TimerWheel::Timer& timer) {
            const auto i = static_cast<std::size_t>(static_cast<Timer*>(&timer) - timers.data());
            EXPECT_LE(due[i], now_);
            EXPECT_LE(now_ - due[i], 1ms);
            ++told;
        });
    }
    EXPECT_EQ(told, timers.size());
}

}  // namespace
