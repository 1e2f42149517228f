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
    [[nodiscard]] bool may_dial() const { return turns_.may_dial_at(now_) == now_; }

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
    const TimePoint next = turns_.may_dial_at(now_);
    EXPECT_GT(next, now_);
    EXPECT_LE(next, now_ + 50ms) << "nobody is to notice";
    now_ = next;
    EXPECT_TRUE(may_dial());
}

TEST_F(DialTurns, are_one_thread_s_for_as_long_as_a_server_that_is_there_takes) {
    fail();
    now_ += 1s;
    turns_.begin(now_);
    const TimePoint next = turns_.may_dial_at(now_);
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
    turns_.begin(now_ += 1s);
    EXPECT_FALSE(may_dial());
    turns_.given_up(now_);
    EXPECT_FALSE(turns_.has_failed_since(before)) << "that says nothing of the server";
    EXPECT_TRUE(turns_.last_fault());
    EXPECT_FALSE(may_dial()) << "many may have no more than a millisecond";
    EXPECT_LE(turns_.may_dial_at(now_), now_ + 50ms);
}

TEST_F(DialTurns, that_fail_late_say_nothing_of_a_server_that_was_reached_meanwhile) {
    const auto early = turns_.begin(now_);
    turns_.connected(turns_.begin(now_));
    turns_.failed(early, refused(), now_);
    EXPECT_FALSE(turns_.last_fault());
    EXPECT_TRUE(may_dial());
}

}  // namespace
