#include <redlatch/core/silence.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::TimePoint;

/// What a silent connection comes to, with a command timeout of 100 ms.
class SilenceOf : public ::testing::Test {
protected:
    TimePoint now_{1h};
    detail::Silence silence_{100ms};
};

TEST_F(SilenceOf, a_connection_that_owes_nothing_is_no_reason_to_give_it_up) {
    silence_.connected(now_, false);
    EXPECT_EQ(silence_.gone_at(TimePoint::max()), TimePoint::max());
}

TEST_F(SilenceOf, a_connection_counts_from_when_it_was_made) {
    EXPECT_FALSE(silence_.has_answered_since(TimePoint::min()));
    silence_.connected(now_, false);
    EXPECT_TRUE(silence_.has_answered_since(now_ - 1ns));
    EXPECT_FALSE(silence_.has_answered_since(now_));
}

TEST_F(SilenceOf, a_connection_that_was_idle_may_mean_that_it_died_then) {
    silence_.connected(now_, false);
    EXPECT_FALSE(silence_.is_reused());
    silence_.answered(now_, false);
    EXPECT_FALSE(silence_.is_reused()) << "more is to come";
    silence_.answered(now_, true);
    EXPECT_TRUE(silence_.is_reused());
    silence_.disconnected();
    EXPECT_FALSE(silence_.is_reused());
    silence_.connected(now_, true);
    EXPECT_TRUE(silence_.is_reused()) << "nobody wanted it";
}

TEST_F(SilenceOf, a_connection_has_a_new_one_made_once_in_a_command_timeout) {
    silence_.connected(now_, false);
    const TimePoint written = now_ += 1ms;
    silence_.answered(now_ + 10ms, false);
    EXPECT_FALSE(silence_.wants_replacement(written, now_ + 50ms)) << "it has answered since";
    EXPECT_TRUE(silence_.wants_replacement(written + 20ms, now_ + 50ms));
    EXPECT_FALSE(silence_.gives_way(false, true, now_ + 50ms, now_ + 60ms)) << "there is none";
    EXPECT_FALSE(silence_.wants_replacement(written + 20ms, now_ + 159ms));
    EXPECT_TRUE(silence_.wants_replacement(written + 20ms, now_ + 160ms));
}

TEST_F(SilenceOf, a_connection_gives_way_to_a_new_one_only_while_it_owes_an_answer) {
    silence_.connected(now_, false);
    const TimePoint begun = now_ += 50ms;
    now_ += 10ms;
    EXPECT_FALSE(silence_.gives_way(true, false, begun, now_));
    EXPECT_TRUE(silence_.gives_way(true, true, begun, now_));
    silence_.answered(begun + 1ms, false);
    EXPECT_FALSE(silence_.gives_way(true, true, begun, now_)) << "it has answered meanwhile";
}

}  // namespace
