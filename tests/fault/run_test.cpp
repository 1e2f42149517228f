// Short runs of the laboratory. They print their seed; REDLATCH_FAULT_SEED sets it. Longer ones are
// made with tests/fault/soak.

#include "lab/run.hpp"

#include "lab/controls.hpp"
#include "lab/scenarios.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <ostream>
#include <sstream>
#include <string>

namespace redlatch::test::fault {

void PrintTo(const Control& control, std::ostream* out);
void PrintTo(const Control& control, std::ostream* out) {
    *out << control.subject;
}

void PrintTo(const Scenario& scenario, std::ostream* out);
void PrintTo(const Scenario& scenario, std::ostream* out) {
    *out << scenario.name;
}

namespace {

using namespace std::chrono_literals;

RunPlan of_the_library(FaultClass faults, std::uint64_t seed) {
    return common_plan(faults, seed_or(seed));
}

/// Whether somebody got somewhere, so that no violation says something.
bool shows_something(const RunPlan& plan, RunReport& report) {
    const bool writes = plan.client.habits.mixes == 0 && plan.client.subject != "permits";
    return report.counts["acquire ok"] > 0 && (!writes || report.counts["write accepted"] > 0);
}

/// On a busy machine nobody may get anywhere: then it is run again, for longer, three times at most.
void expect_no_violation(RunPlan plan) {
    std::cout << "seed " << plan.seed << std::endl;
    constexpr int most_runs = 4;
    for (int runs = 1;; ++runs) {
        RunReport report = run(plan);
        std::cout << report;
        EXPECT_TRUE(report.violations.empty());
        if (shows_something(plan, report) || testing::Test::HasFailure()) return;
        ASSERT_LT(runs, most_runs) << "nobody got anywhere";
        plan.calm = 2 * plan.calm + 2s;
    }
}

TEST(Laboratory, promises_hold_without_faults) {
    RunPlan plan = of_the_library(FaultClass::inside, 1);
    plan.storm = 0ms;
    plan.calm = 2s;
    expect_no_violation(plan);
}

TEST(Laboratory, promises_hold_while_the_server_keeps_its_keys_and_clock) {
    RunPlan plan = of_the_library(FaultClass::inside, 2);
    plan.storm = 7s;
    expect_no_violation(plan);
}

TEST(Laboratory, what_is_left_of_them_holds_when_it_does_not) {
    RunPlan plan = of_the_library(FaultClass::outside, 3);
    plan.storm = 5s;
    expect_no_violation(plan);
}

TEST(Laboratory, fencing_tokens_rise_also_when_they_are_lost) {
    RunPlan plan = of_the_library(FaultClass::outside, 5);
    plan.client.subject = "fenced";
    plan.storm = 4s;
    plan.only = {"freeze client", "kill server and its data", "flush", "late requests"};
    expect_no_violation(plan);
}

TEST(Laboratory, promises_hold_over_several_masters) {
    RunPlan plan = of_the_library(FaultClass::inside, 6);
    plan.masters = 3;
    plan.storm = 5s;
    expect_no_violation(plan);
}

TEST(Laboratory, masters_that_forget_all_give_no_lock_to_two) {
    // Clients of this seed end with the run: under so many faults, new ones come to no lock.
    RunPlan plan = of_the_library(FaultClass::outside, 8);
    plan.masters = 3;
    plan.storm = 5s;
    plan.only = {"kill server and its data", "freeze client", "late requests", "late replies"};
    expect_no_violation(plan);
}

class LaboratoryScenario : public ::testing::TestWithParam<Scenario> {};

TEST_P(LaboratoryScenario, promises_hold) {
    RunPlan plan = GetParam().plan;
    plan.seed = seed_or(8);
    expect_no_violation(plan);
}

std::string name_for_a_test(std::string name) {
    for (char& c : name) c = c == ' ' ? '_' : c;
    return name;
}

INSTANTIATE_TEST_SUITE_P(Laboratory, LaboratoryScenario, ::testing::ValuesIn(all_scenarios()),
                         [](const auto& one) { return name_for_a_test(one.param.name); });

class SeededBug : public ::testing::TestWithParam<Control> {};

TEST_P(SeededBug, is_found) {
    const std::uint64_t seed = seed_or(4);
    std::ostringstream report;
    EXPECT_TRUE(is_found(GetParam(), seed, report)) << "seed " << seed << "\n" << report.str();
}

INSTANTIATE_TEST_SUITE_P(Laboratory, SeededBug, ::testing::ValuesIn(all_controls()),
                         [](const auto& bug) { return name_for_a_test(bug.param.subject); });

}  // namespace
}  // namespace redlatch::test::fault
