// How a number of permits is set, step by step.

#include "machine_tools.hpp"
#include <redlatch/core/permits_setting.hpp>

#include <gtest/gtest.h>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using Machine = detail::PermitsSetting;

TEST(PermitsSetting, asks_when_it_is_issued_and_then_sets) {
    Machine machine;
    EXPECT_EQ(as<Machine::Send>(Machine::begin()).issued, 0);
    EXPECT_EQ(as<Machine::Send>(machine.answered(1234)).issued, 1234);
    EXPECT_TRUE(as<Machine::Done>(machine.answered(1)).outcome);
}

TEST(PermitsSetting, that_is_older_than_what_is_set_has_been_set_and_replaced) {
    Machine machine;
    static_cast<void>(machine.answered(1234));
    EXPECT_TRUE(as<Machine::Done>(machine.answered(0)).outcome);
}

TEST(PermitsSetting, ends_with_the_first_fault) {
    const auto done = as<Machine::Done>(Machine::failed({Errc::unavailable, {}, {}, "x", {}}));
    EXPECT_EQ(done.outcome.error().code, Errc::unavailable);
}

}  // namespace
