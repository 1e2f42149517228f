// The library's machines, by chance: processes with threads and asynchronous owners contend for locks of
// model servers that run the library's scripts, over a model network that loses, delays, repeats and
// reorders, and after each step what a lock promises is looked at. The machines are those that ship. The
// adapters that carry out what they say are the simulator's own.
//
// REDLATCH_SCHEDULES says how many schedules, REDLATCH_SEED which is the first. A failure prints its seed,
// the smallest plan that still fails, and what happened: REDLATCH_SEED=n REDLATCH_SCHEDULES=1 plays it
// again. REDLATCH_FAILURES says after how many the run ends.

#include "simulator/play.hpp"
#include "simulator/transitions.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
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
constexpr std::uint64_t usual_count = 1'000;  // each takes ten times as long
#else
constexpr std::uint64_t usual_count = full_count;
#endif

TEST(Simulator, keeps_every_promise) {
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
    std::cout << played_steps() << " steps in " << count << " schedules\n";
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
        // What comes now lies at other addresses.
        const std::vector<char> elsewhere(100 * static_cast<std::size_t>(seed));
        violation(plan, &second);
        ASSERT_EQ(first, second) << "REDLATCH_SEED=" << seed;
    }
}

}  // namespace
}  // namespace redlatch::test::simulator
