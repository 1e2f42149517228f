#include <redlatch/core/release.hpp>

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace redlatch;
using detail::Fault;
using detail::ReleaseCore;

/// A command that certainly did not run.
Fault refused(std::string message = "connect: refused") {
    return {.error = {Errc::unavailable, {}, {}, std::move(message), {}}};
}

/// A command that may have run.
Fault silent(std::string message = "no answer in time") {
    Fault fault = refused(std::move(message));
    fault.maybe_executed = true;
    return fault;
}

Fault forbidden() {
    return {.error = {Errc::denied, {}, {}, "NOPERM", {}}, .transient = false};
}

TEST(Release, answered_ours_is_released) {
    for (const bool valid : {true, false}) {
        EXPECT_EQ(*ReleaseCore{true}.answered(true, valid), Release::released);
        EXPECT_EQ(*ReleaseCore{false}.answered(true, valid), Release::released);
    }
}

TEST(Release, answered_not_ours_at_the_first_try_is_expired) {
    for (const bool valid : {true, false}) {
        EXPECT_EQ(*ReleaseCore{true}.answered(false, valid), Release::expired);
        EXPECT_EQ(*ReleaseCore{false}.answered(false, valid), Release::expired);
    }
}

TEST(Release, not_ours_at_a_retry_while_valid_is_released) {
    ReleaseCore core{true};
    ASSERT_FALSE(core.failed(silent(), true, true));
    EXPECT_EQ(*core.answered(false, true), Release::released);
}

TEST(Release, not_ours_at_a_retry_after_validity_is_unclear) {
    ReleaseCore core{true};
    ASSERT_FALSE(core.failed(silent("lost on the way"), true, true));
    const auto outcome = core.answered(false, false);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, Errc::unclear);
    ASSERT_EQ(outcome.error().causes.size(), 1U);
    EXPECT_EQ(outcome.error().causes[0].message, "lost on the way");
}

TEST(Release, ours_at_a_retry_is_released) {
    ReleaseCore core{true};
    ASSERT_FALSE(core.failed(silent(), true, true));
    EXPECT_EQ(*core.answered(true, false), Release::released);
}

TEST(Release, not_ours_after_a_try_that_never_ran_is_expired) {
    ReleaseCore core{true};
    ASSERT_FALSE(core.failed(refused(), true, true));
    EXPECT_EQ(*core.answered(false, true), Release::expired);
}

TEST(Release, one_unclear_try_among_several_counts) {
    ReleaseCore core{true};
    ASSERT_FALSE(core.failed(silent(), true, true));
    ASSERT_FALSE(core.failed(refused(), true, true));
    EXPECT_EQ(*core.answered(false, true), Release::released);
    EXPECT_EQ(core.answered(false, false).error().code, Errc::unclear);
}

TEST(Release, try_repeated_underneath_counts_as_unclear) {
    ReleaseCore core{true};
    core.unclear_try();
    EXPECT_EQ(*core.answered(false, true), Release::released);
    EXPECT_EQ(core.answered(false, false).error().code, Errc::unclear);
    EXPECT_TRUE(core.answered(false, false).error().causes.empty());
}

TEST(Release, expired_lock_is_not_retried) {
    for (const Fault& fault : {refused(), silent(), forbidden()}) {
        ReleaseCore core{false};
        const auto outcome = core.failed(fault, false, true);
        ASSERT_TRUE(outcome);
        EXPECT_EQ(**outcome, Release::expired);
    }
}

TEST(Release, is_retried_only_while_valid) {
    ReleaseCore core{true};
    EXPECT_FALSE(core.failed(silent(), true, true));
    const auto outcome = core.failed(silent(), false, true);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->error().code, Errc::unclear);
}

TEST(Release, is_retried_only_while_there_is_time) {
    ReleaseCore core{true};
    const auto outcome = core.failed(silent(), true, false);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->error().code, Errc::unclear);
}

TEST(Release, that_never_ran_is_reported_as_its_fault) {
    for (const bool valid : {true, false}) {
        ReleaseCore core{true};
        const auto outcome = core.failed(refused("connect: refused"), valid, false);
        ASSERT_TRUE(outcome);
        EXPECT_EQ(outcome->error().code, Errc::unavailable);
        EXPECT_EQ(outcome->error().message, "connect: refused");
    }
}

TEST(Release, forbidden_is_reported_at_once) {
    ReleaseCore core{true};
    const auto outcome = core.failed(forbidden(), true, true);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->error().code, Errc::denied);
}

TEST(Release, forbidden_after_an_unclear_try_is_unclear) {
    ReleaseCore core{true};
    ASSERT_FALSE(core.failed(silent(), true, true));
    const auto outcome = core.failed(forbidden(), true, true);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->error().code, Errc::unclear);
    ASSERT_EQ(outcome->error().causes.size(), 1U);
    EXPECT_EQ(outcome->error().causes[0].code, Errc::denied) << "the last fault is the news";
}

}  // namespace
