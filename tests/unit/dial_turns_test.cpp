#include <redlatch/core/dial_turns.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::Fault;
using detail::TimePoint;
using Turn = detail::DialTurns::Turn;

class DialTurns : public ::testing::Test {
protected:
    static Fault refused() { return {.error = {Errc::unavailable, {}, {}, "refused", {}}}; }
    void fail() { turns_.failed(turns_.wanted(now_), refused(), now_); }

    TimePoint now_{1h};
    detail::DialTurns turns_;
};

TEST_F(DialTurns, are_for_everybody_while_the_server_is_there) {
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(turns_.wanted(now_).dials);
    }
    EXPECT_FALSE(turns_.last_fault());
}

TEST_F(DialTurns, have_a_pause_between_them_while_it_is_not) {
    fail();
    ASSERT_TRUE(turns_.last_fault());
    EXPECT_EQ(turns_.last_fault()->error.message, "refused");
    const Turn next = turns_.wanted(now_);
    EXPECT_FALSE(next.dials);
    EXPECT_GT(next.until, now_);
    EXPECT_LE(next.until, now_ + 50ms) << "nobody is to notice";
    EXPECT_FALSE(turns_.wanted(next.until - 1us).dials);
    EXPECT_TRUE(turns_.wanted(next.until).dials);
}

TEST_F(DialTurns, are_one_thread_s_for_as_long_as_a_server_that_is_there_takes) {
    fail();
    now_ += 1s;
    EXPECT_TRUE(turns_.wanted(now_).dials);
    const Turn second = turns_.wanted(now_);
    EXPECT_FALSE(second.dials);
    EXPECT_FALSE(turns_.wanted(second.until - 1us).dials);
    EXPECT_GE(second.until, now_ + 50ms);
    EXPECT_LE(second.until, now_ + 200ms) << "the first one may be with a frozen server";
    EXPECT_TRUE(turns_.wanted(second.until).dials);
}

TEST_F(DialTurns, are_for_everybody_again_once_one_has_reached_it) {
    fail();
    now_ += 1s;
    EXPECT_TRUE(turns_.wanted(now_).dials);
    turns_.connected();
    EXPECT_FALSE(turns_.last_fault());
    EXPECT_TRUE(turns_.wanted(now_).dials);
    EXPECT_TRUE(turns_.wanted(now_).dials);
}

TEST_F(DialTurns, that_failed_count_for_those_who_came_before_they_began) {
    fail();
    const Turn early = turns_.wanted(now_);
    ASSERT_FALSE(early.dials);
    EXPECT_FALSE(turns_.has_failed_since(early));
    const Turn dialling = turns_.wanted(now_ += 1s);
    ASSERT_TRUE(dialling.dials);
    const Turn late = turns_.wanted(now_);
    turns_.failed(dialling, refused(), now_);
    EXPECT_TRUE(turns_.has_failed_since(early));
    EXPECT_FALSE(turns_.has_failed_since(late)) << "it has a time of its own";
    turns_.failed(turns_.wanted(now_ += 1s), refused(), now_);
    EXPECT_TRUE(turns_.has_failed_since(late));
}

TEST_F(DialTurns, that_a_thread_gave_up_go_to_the_next_one) {
    fail();
    const Turn first = turns_.wanted(now_);
    now_ += 1s;
    EXPECT_TRUE(turns_.wanted(now_).dials);
    turns_.given_up(now_);
    EXPECT_FALSE(turns_.has_failed_since(first)) << "that says nothing of the server";
    EXPECT_TRUE(turns_.last_fault());
    EXPECT_TRUE(turns_.wanted(now_).dials);
}

}  // namespace
