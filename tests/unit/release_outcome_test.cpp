#include "machine_tools.hpp"
#include <redlatch/core/release.hpp>

#include <gtest/gtest.h>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using detail::Fault;
using detail::ReleaseOutcome;

TEST(ReleaseOutcome, answered_ours_is_released) {
    for (const bool valid : {true, false}) {
        EXPECT_EQ(*ReleaseOutcome{true}.answered(true, valid), Release::released);
    }
}

TEST(ReleaseOutcome, lost_before_is_expired_though_the_server_has_kept_it) {
    ReleaseOutcome core{false};
    EXPECT_EQ(*core.answered(true, false), Release::expired);
    core.unclear_try();
    EXPECT_EQ(*core.answered(false, false), Release::expired);
}

TEST(ReleaseOutcome, answered_not_ours_at_the_first_try_is_expired) {
    for (const bool valid : {true, false}) {
        EXPECT_EQ(*ReleaseOutcome{true}.answered(false, valid), Release::expired);
        EXPECT_EQ(*ReleaseOutcome{false}.answered(false, valid), Release::expired);
    }
}

TEST(ReleaseOutcome, not_ours_at_a_retry_while_valid_is_released) {
    ReleaseOutcome core{true};
    ASSERT_FALSE(core.failed(silent(), true, true));
    EXPECT_EQ(*core.answered(false, true), Release::released);
}

TEST(ReleaseOutcome, not_ours_at_a_retry_after_validity_is_unclear) {
    ReleaseOutcome core{true};
    ASSERT_FALSE(core.failed(silent("lost on the way"), true, true));
    const auto outcome = core.answered(false, false);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, Errc::unclear);
    ASSERT_EQ(outcome.error().causes.size(), 1U);
    EXPECT_EQ(outcome.error().causes[0].message, "lost on the way");
}

TEST(ReleaseOutcome, ours_at_a_retry_is_released) {
    ReleaseOutcome core{true};
    ASSERT_FALSE(core.failed(silent(), true, true));
    EXPECT_EQ(*core.answered(true, false), Release::released);
}

TEST(ReleaseOutcome, not_ours_after_a_try_that_never_ran_is_expired) {
    ReleaseOutcome core{true};
    ASSERT_FALSE(core.failed(refused(), true, true));
    EXPECT_EQ(*core.answered(false, true), Release::expired);
}

TEST(ReleaseOutcome, one_unclear_try_among_several_counts) {
    ReleaseOutcome core{true};
    ASSERT_FALSE(core.failed(silent(), true, true));
    ASSERT_FALSE(core.failed(refused(), true, true));
    EXPECT_EQ(*core.answered(false, true), Release::released);
    EXPECT_EQ(core.answered(false, false).error().code, Errc::unclear);
}

TEST(ReleaseOutcome, try_repeated_underneath_counts_as_unclear) {
    ReleaseOutcome core{true};
    core.unclear_try();
    EXPECT_EQ(*core.answered(false, true), Release::released);
    EXPECT_EQ(core.answered(false, false).error().code, Errc::unclear);
    EXPECT_TRUE(core.answered(false, false).error().causes.empty());
}

TEST(ReleaseOutcome, expired_lock_is_not_retried) {
    for (const Fault& fault : {refused(), silent(), forbidden()}) {
        ReleaseOutcome core{false};
        const auto outcome = core.failed(fault, false, true);
        ASSERT_TRUE(outcome);
        EXPECT_EQ(**outcome, Release::expired);
    }
}

TEST(ReleaseOutcome, is_retried_only_while_valid) {
    ReleaseOutcome core{true};
    EXPECT_FALSE(core.failed(silent(), true, true));
    const auto outcome = core.failed(silent(), false, true);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->error().code, Errc::unclear);
}

TEST(ReleaseOutcome, is_retried_only_while_there_is_time) {
    ReleaseOutcome core{true};
    const auto outcome = core.failed(silent(), true, false);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->error().code, Errc::unclear);
}

TEST(ReleaseOutcome, that_never_ran_is_reported_as_its_fault) {
    for (const bool valid : {true, false}) {
        ReleaseOutcome core{true};
        const auto outcome = core.failed(refused("connect: refused"), valid, false);
        ASSERT_TRUE(outcome);
        EXPECT_EQ(outcome->error().code, Errc::unavailable);
        EXPECT_EQ(outcome->error().message, "connect: refused");
    }
}

TEST(ReleaseOutcome, forbidden_is_reported_at_once) {
    ReleaseOutcome core{true};
    const auto outcome = core.failed(forbidden(), true, true);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->error().code, Errc::denied);
}

TEST(ReleaseOutcome, forbidden_after_an_unclear_try_is_unclear) {
    ReleaseOutcome core{true};
    ASSERT_FALSE(core.failed(silent(), true, true));
    const auto outcome = core.failed(forbidden(), true, true);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->error().code, Errc::unclear);
    ASSERT_EQ(outcome->error().causes.size(), 1U);
    EXPECT_EQ(outcome->error().causes[0].code, Errc::denied) << "the last fault is the news";
}

}  // namespace
