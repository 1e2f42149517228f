// The library's machines, by chance: processes with threads and asynchronous owners contend for locks of
// model servers that run the library's scripts, over a model network that loses, delays, repeats and
// reorders, and after each step what a lock promises is looked at. The machines are those that ship, in
// adapters that only carry out what they say.
//
// REDLATCH_SCHEDULES says how many schedules, REDLATCH_SEED which is the first. A failure prints its seed,
// the smallest plan that still fails, and what happened: REDLATCH_SEED=n REDLATCH_SCHEDULES=1 plays it
// again. REDLATCH_FAILURES says after how many the run ends. REDLATCH_TRACE prints also what happened where a mutant was found.

#include "simulator/shrink.hpp"
#include "simulator/simulation.hpp"
#include "simulator/transitions.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace redlatch::test::simulator {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

constexpr std::uint64_t full_count = 20'000;
#if defined(REDLATCH_TEST_ASAN) || defined(REDLATCH_TEST_TSAN)
constexpr std::uint64_t usual_count = 2'000;  // a tenth of the speed
#else
constexpr std::uint64_t usual_count = full_count;
#endif

/// For all schedules: it takes a while to open Lua.
const std::vector<std::unique_ptr<ModelRedis>>& models() {
    static const auto made = [] {
        std::vector<std::unique_ptr<ModelRedis>> models;
        for (std::size_t i = 0; i < most_masters; ++i) {
            models.push_back(std::make_unique<ModelRedis>());
        }
        return models;
    }();
    return made;
}

std::uint64_t steps = 0;

/// What was wrong in a schedule; nothing where all was well.
std::optional<std::string> violation(const Plan& plan, std::string* trace = nullptr) {
    Simulation simulation{plan, models(), trace != nullptr};
    std::optional<std::string> wrong;
    try {
        simulation.run();
    } catch (const Violation& violation) {
        wrong = violation.what();
    }
    steps += simulation.steps();
    if (trace != nullptr) *trace = simulation.trace();
    return wrong;
}

/// The promise, without the token that it is about.
std::string kind_of(const std::string& wrong) {
    return wrong.substr(0, wrong.find(':'));
}

/// The smallest plan that fails in that way, and how.
std::string smallest(const Plan& plan, const std::string& kind) {
    const auto fails = [&kind](const Plan& changed) {
        const auto wrong = violation(changed);
        return wrong && kind_of(*wrong) == kind;
    };
    const Plan small = Shrinker{plan, fails}.run();
    std::string trace;
    const auto wrong = violation(small, &trace);
    std::ostringstream text;
    text << wrong.value_or("it did not fail again") << "\nThe smallest plan that fails:\n"
         << small << trace;
    return text.str();
}

TEST(Simulator, keeps_every_promise) {
    steps = 0;
    const std::uint64_t first = from_environment("REDLATCH_SEED", 1);
    const std::uint64_t count = from_environment("REDLATCH_SCHEDULES", usual_count);
    std::uint64_t failures = from_environment("REDLATCH_FAILURES", 1);
    for (std::uint64_t seed = first; seed - first < count && failures > 0; ++seed) {
        const Plan plan = draw_plan(seed, Mutant::none);
        const auto wrong = violation(plan);
        if (!wrong) continue;
        const bool last = --failures == 0;
        ADD_FAILURE() << "REDLATCH_SEED=" << seed << ": " << *wrong << "\n"
                      << (last ? smallest(plan, kind_of(*wrong)) : std::string{});
    }
    std::cout << steps << " steps in " << count << " schedules\n";
    const auto taken = Coverage::get().transitions();
    for (const auto& [transition, times] : taken) std::cout << times << "\t" << transition << '\n';
    if (count < full_count) return;
    for (const char* const transition : usual_transitions) {
        EXPECT_TRUE(taken.contains(transition)) << "never taken: " << transition;
    }
}

TEST(Simulator, repeats_a_schedule_exactly) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const Plan plan = draw_plan(seed, Mutant::none);
        std::string first;
        std::string second;
        violation(plan, &first);
        const std::vector<char> elsewhere(seed * 100);  // what comes now lies at other addresses
        violation(plan, &second);
        ASSERT_EQ(first, second) << "REDLATCH_SEED=" << seed;
    }
}

struct Control {
    const char* name;
    Mutant mutant;
};

/// The checker finds mistakes: each of these is put in on purpose.
class Mutants : public ::testing::TestWithParam<Control> {};

TEST_P(Mutants, are_found) {
    constexpr std::uint64_t most = 20'000;
    for (std::uint64_t seed = 1; seed <= most; ++seed) {
        const Plan plan = draw_plan(seed, GetParam().mutant);
        const auto wrong = violation(plan);
        if (!wrong) continue;
        std::cout << "in schedule " << seed << ": " << *wrong << '\n';
        if (std::getenv("REDLATCH_TRACE") != nullptr) std::cout << smallest(plan, kind_of(*wrong));
        return;
    }
    FAIL() << "not in " << most << " schedules";
}

INSTANTIATE_TEST_SUITE_P(
    Simulator, Mutants,
    ::testing::Values(Control{"late_grant_believed", Mutant::late_grant_believed},
                      Control{"lease_shortened", Mutant::lease_shortened},
                      Control{"anchor_kept_over_failover", Mutant::anchor_kept},
                      Control{"dead_token_used", Mutant::dead_token_used},
                      Control{"plain_delete", Mutant::plain_delete},
                      Control{"counted_from_arrival", Mutant::counted_from_arrival},
                      Control{"no_recheck", Mutant::no_recheck},
                      Control{"unknown_grant_ignored", Mutant::unknown_grant_ignored},
                      Control{"shared_queue", Mutant::shared_queue},
                      Control{"last_come_first_served", Mutant::last_come_first_served},
                      Control{"late_commands_run", Mutant::late_commands_run},
                      Control{"fence_without_clock", Mutant::fence_without_clock},
                      Control{"fence_without_memory", Mutant::fence_without_memory},
                      Control{"fence_not_granted", Mutant::fence_not_granted},
                      Control{"anyones_extended", Mutant::anyones_extended},
                      Control{"released_renewed", Mutant::released_renewed},
                      Control{"extension_releases", Mutant::extension_releases},
                      Control{"lost_hold_kept", Mutant::lost_hold_kept},
                      Control{"hand_off_wakes_nobody", Mutant::hand_off_wakes_nobody},
                      Control{"loss_told_late", Mutant::loss_told_late},
                      Control{"nesting_goes_on", Mutant::nesting_goes_on},
                      Control{"moved_token_left", Mutant::moved_token_left},
                      Control{"nested_end_stops_renewal", Mutant::nested_end_stops_renewal},
                      Control{"hand_off_without_limit", Mutant::hand_off_without_limit},
                      Control{"unclear_try_forgotten", Mutant::unclear_try_forgotten}),
    [](const auto& instance) { return std::string{instance.param.name}; });

}  // namespace
}  // namespace redlatch::test::simulator
