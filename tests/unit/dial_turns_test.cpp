#include <redlatch/core/dial_turns.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::Fault;
using detail::TimePoint;

class DialTurns : public ::testing::Test {
protected:
    static Fault refused() { return {.error = {Errc::unavailable, {}, {}, "refused", {}}}; }
    void fail() { turns_.failed(turns_.begin(now_), refused(), now_); }
    [[nodiscard]] TimePoint turn() const { return turns_.may_dial_at(now_, true); }
    [[nodiscard]] bool may_dial() const { return turn() == now_; }

    TimePoint now_{1h};
    detail::DialTurns turns_;
};

TEST_F(DialTurns, are_for_everybody_while_the_server_is_there) {
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(may_dial());
        turns_.begin(now_);
    }
    EXPECT_FALSE(turns_.last_fault());
}

TEST_F(DialTurns, have_a_pause_between_them_while_it_is_not) {
    fail();
    ASSERT_TRUE(turns_.last_fault());
    EXPECT_EQ(turns_.last_fault()->error.message, "refused");
    const TimePoint next = turn();
    EXPECT_GT(next, now_);
    EXPECT_LE(next, now_ + 50ms) << "nobody is to notice";
    now_ = next;
    EXPECT_TRUE(may_dial());
}

TEST_F(DialTurns, are_one_thread_s_for_as_long_as_a_server_that_is_there_takes) {
    fail();
    now_ += 1s;
    turns_.begin(now_);
    const TimePoint next = turn();
    EXPECT_GE(next, now_ + 50ms);
    EXPECT_LE(next, now_ + 200ms) << "the first one may be with a frozen server";
    now_ = next;
    EXPECT_TRUE(may_dial());
}

TEST_F(DialTurns, are_for_everybody_again_once_one_has_reached_it) {
    fail();
    now_ += 1s;
    const auto number = turns_.begin(now_);
    EXPECT_FALSE(may_dial());
    turns_.connected(number);
    EXPECT_FALSE(turns_.last_fault());
    EXPECT_TRUE(may_dial());
}

TEST_F(DialTurns, that_failed_count_for_those_who_came_before_they_began) {
    fail();
    const auto early = turns_.dialled();
    EXPECT_FALSE(turns_.has_failed_since(early));
    const auto number = turns_.begin(now_ += 1s);
    const auto late = turns_.dialled();
    turns_.failed(number, refused(), now_);
    EXPECT_TRUE(turns_.has_failed_since(early));
    EXPECT_FALSE(turns_.has_failed_since(late)) << "it has a time of its own";
    turns_.failed(turns_.begin(now_ += 1s), refused(), now_);
    EXPECT_TRUE(turns_.has_failed_since(late));
    turns_.connected(turns_.begin(now_));
    EXPECT_FALSE(turns_.has_failed_since(late));
}

TEST_F(DialTurns, that_a_thread_gave_up_go_to_the_next_one) {
    fail();
    const auto before = turns_.dialled();
    const auto number = turns_.begin(now_ += 1s);
    EXPECT_FALSE(may_dial());
    turns_.given_up(number, now_);
    EXPECT_FALSE(turns_.has_failed_since(before)) << "that says nothing of the server";
    EXPECT_TRUE(turns_.last_fault());
    EXPECT_FALSE(may_dial()) << "many may have no more than a millisecond";
    EXPECT_LE(turn(), now_ + 50ms);
}

// Many with too little time to connect would take each turn from one that has enough.
TEST_F(DialTurns, are_the_first_thread_s_while_it_is_not) {
    EXPECT_EQ(turns_.may_dial_at(now_, false), now_) << "the server is there";
    fail();
    now_ += 1s;
    EXPECT_EQ(turns_.may_dial_at(now_, true), now_);
    EXPECT_EQ(turns_.may_dial_at(now_, false), TimePoint::max());
}

TEST_F(DialTurns, that_last_are_left_in_peace_by_the_end_of_older_ones) {
    for (const bool gives_up : {true, false}) {
        fail();
        const auto older = turns_.begin(now_ += 1s);
        const auto younger = turns_.begin(now_ += 1s);
        const TimePoint next = turn();
        gives_up ? turns_.given_up(older, now_) : turns_.failed(older, refused(), now_);
        EXPECT_EQ(turn(), next);
        turns_.failed(younger, refused(), now_);
        EXPECT_LT(turn(), next);
    }
}

TEST_F(DialTurns, are_under_way_until_they_end_in_either_way) {
    const auto connects = turns_.begin(now_);
    const auto fails = turns_.begin(now_);
    const auto gives_up = turns_.begin(now_);
    EXPECT_EQ(turns_.under_way(), 3U);
    turns_.connected(connects);
    turns_.failed(fails, refused(), now_);
    turns_.given_up(gives_up, now_);
    EXPECT_EQ(turns_.under_way(), 0U);
}

TEST_F(DialTurns, that_fail_late_say_nothing_of_a_server_that_was_reached_meanwhile) {
    const auto early = turns_.begin(now_);
    turns_.connected(turns_.begin(now_));
    turns_.failed(early, refused(), now_);
    EXPECT_FALSE(turns_.last_fault());
    EXPECT_TRUE(may_dial());
}

}  // namespace
