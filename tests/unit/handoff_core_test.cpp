#include <redlatch/core/handoff.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::HandoffLimit;
using detail::Handoffs;
using detail::may_pass_silently;
using detail::TimePoint;

constexpr TimePoint start{1h};

TEST(Handoff, passes_silently_for_five_milliseconds_after_news_of_waiters) {
    EXPECT_TRUE(may_pass_silently(start, start, start, 30s));
    EXPECT_TRUE(may_pass_silently(start, start, start + 5ms - 1ns, 30s));
    EXPECT_FALSE(may_pass_silently(start, start, start + 5ms, 30s));
    EXPECT_FALSE(may_pass_silently(start + 5ms, start, start + 5ms, 30s))
        << "a renewal is no news of them";
}

TEST(Handoff, passes_silently_for_fifty_milliseconds_after_a_refresh) {
    EXPECT_TRUE(may_pass_silently(start, start + 49ms, start + 50ms - 1ns, 30s));
    EXPECT_FALSE(may_pass_silently(start, start + 49ms, start + 50ms, 30s));
}

TEST(Handoff, passes_silently_for_a_third_of_a_short_lease) {
    EXPECT_TRUE(may_pass_silently(start, start, start + 3ms, 10ms));
    EXPECT_FALSE(may_pass_silently(start, start, start + 4ms, 10ms));
}

TEST(Handoff, never_passes_silently_what_was_never_refreshed) {
    EXPECT_FALSE(may_pass_silently(TimePoint::min(), start, start, 30s));
    EXPECT_FALSE(may_pass_silently(start, TimePoint::min(), start, 30s));
}

void pass(Handoffs& handoffs, int times) {
    for (int i = 0; i < times; ++i) handoffs.count();
}

TEST(Handoffs, have_no_limit_while_nobody_waits) {
    Handoffs handoffs;
    handoffs.begin(false, start);
    pass(handoffs, 1000);
    EXPECT_TRUE(handoffs.allowed({.in_row = 0, .others_poll = false}));
}

TEST(Handoffs, are_limited_while_others_wait) {
    constexpr HandoffLimit limit{.in_row = 2, .others_poll = false};
    Handoffs handoffs;
    handoffs.begin(true, start);
    pass(handoffs, 1);
    EXPECT_TRUE(handoffs.allowed(limit));
    pass(handoffs, 1);
    EXPECT_FALSE(handoffs.allowed(limit));
    handoffs.begin(true, start);
    EXPECT_TRUE(handoffs.allowed(limit));
    EXPECT_FALSE(handoffs.allowed({.in_row = 0, .others_poll = false}));
}

TEST(Handoffs, count_from_the_news_that_others_wait) {
    constexpr HandoffLimit limit{.in_row = 2, .others_poll = false};
    Handoffs handoffs;
    handoffs.begin(false, start);
    pass(handoffs, 100);
    handoffs.others_wait(true, start);
    EXPECT_TRUE(handoffs.allowed(limit));
    pass(handoffs, 2);
    handoffs.others_wait(true, start);
    EXPECT_FALSE(handoffs.allowed(limit)) << "the same news again is no new beginning";
    handoffs.others_wait(false, start);
    EXPECT_TRUE(handoffs.allowed(limit));
    handoffs.others_wait(true, start);
    EXPECT_TRUE(handoffs.allowed(limit)) << "nobody waited in between";
}

TEST(Handoffs, are_always_limited_where_others_poll) {
    constexpr HandoffLimit limit{.in_row = 2, .others_poll = true};
    Handoffs handoffs;
    handoffs.begin(false, start);
    pass(handoffs, 2);
    handoffs.others_wait(false, start);
    EXPECT_FALSE(handoffs.allowed(limit));
    handoffs.begin(false, start);
    EXPECT_TRUE(handoffs.allowed(limit));
}

}  // namespace
