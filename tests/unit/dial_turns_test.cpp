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

TEST_F(DialTurns, are_one_at_a_time_while_it_is_not) {
    fail();
    ASSERT_TRUE(turns_.last_fault());
    EXPECT_EQ(turns_.last_fault()->error.message, "refused");
    now_ += 1s;
    const Turn first = turns_.wanted(now_);
    EXPECT_TRUE(first.dials);
    const Turn second = turns_.wanted(now_ + 1h);
    EXPECT_FALSE(second.dials);
    EXPECT_EQ(second.until, TimePoint::max()) << "until that one has ended";
    turns_.connected(first);
    EXPECT_FALSE(turns_.last_fault());
    EXPECT_TRUE(turns_.wanted(now_).dials);
    EXPECT_TRUE(turns_.wanted(now_).dials);
}

TEST_F(DialTurns, have_a_pause_between_them) {
    fail();
    const Turn next = turns_.wanted(now_);
    EXPECT_FALSE(next.dials);
    EXPECT_GT(next.until, now_);
    EXPECT_LE(next.until, now_ + 50ms) << "nobody is to notice";
    EXPECT_FALSE(turns_.wanted(next.until - 1us).dials);
    EXPECT_TRUE(turns_.wanted(next.until).dials);
}

TEST_F(DialTurns, count_what_failed_for_those_who_wait) {
    fail();
    const auto before = turns_.failures();
    now_ += 1s;
    const Turn turn = turns_.wanted(now_);
    EXPECT_EQ(turns_.failures(), before);
    turns_.failed(turn, refused(), now_);
    EXPECT_EQ(turns_.failures(), before + 1);
}

TEST_F(DialTurns, that_a_thread_gave_up_go_to_the_next_one) {
    fail();
    const auto before = turns_.failures();
    now_ += 1s;
    turns_.ended(turns_.wanted(now_));
    EXPECT_EQ(turns_.failures(), before) << "that says nothing of the server";
    EXPECT_TRUE(turns_.last_fault());
    const Turn next = turns_.wanted(now_);
    EXPECT_TRUE(next.dials);
    EXPECT_TRUE(next.is_alone);
}

// Many began while the server was there, and end one by one.
TEST_F(DialTurns, are_kept_by_one_that_others_end_beside) {
    const Turn early = turns_.wanted(now_);
    const Turn late = turns_.wanted(now_);
    turns_.failed(early, refused(), now_);
    now_ += 1s;
    EXPECT_TRUE(turns_.wanted(now_).dials);
    turns_.failed(late, refused(), now_);
    EXPECT_FALSE(turns_.wanted(now_ + 1s).dials) << "the one that dials alone still does";
}

}  // namespace
