// Waiting and renewing, by chance: some hundred thousand times a few processes contend for a lock
// of a model server that runs the library's scripts, over a model network that loses, delays and
// repeats, and after each step what a lock promises is looked at. The clients are the library's own
// cores in a shell without threads and I/O.
//
// REDLATCH_SCHEDULES says how many schedules, REDLATCH_SEED which is the first. A failure prints
// the seed of its schedule and what happened: REDLATCH_SEED=n REDLATCH_SCHEDULES=1 plays it again.
// REDLATCH_TRACE prints also what happened where a mistake was found.

#include "schedules/schedule.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

namespace redlatch::test::schedules {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

#if defined(REDLATCH_TEST_ASAN) || defined(REDLATCH_TEST_TSAN)
constexpr std::uint64_t usual_count = 5'000;  // a tenth of the speed
#else
constexpr std::uint64_t usual_count = 100'000;
#endif

/// One for all: it takes a while to open Lua.
ModelRedis& redis() {
    static ModelRedis model;
    return model;
}

std::uint64_t steps = 0;

/// What was wrong in a schedule; nothing where all was well.
std::optional<std::string> violation(std::uint64_t seed, Bug bug) {
    Schedule schedule{seed, bug, redis(), false};
    try {
        schedule.run();
    } catch (const Violation& violation) {
        return violation.what();
    }
    steps += schedule.steps();
    return std::nullopt;
}

std::string trace(std::uint64_t seed, Bug bug) {
    Schedule schedule{seed, bug, redis(), true};
    try {
        schedule.run();
    } catch (const Violation&) {
    }
    return schedule.trace();
}

TEST(Schedules, keep_every_promise) {
    steps = 0;
    const std::uint64_t first = from_environment("REDLATCH_SEED", 1);
    const std::uint64_t count = from_environment("REDLATCH_SCHEDULES", usual_count);
    for (std::uint64_t seed = first; seed - first < count; ++seed) {
        const auto wrong = violation(seed, Bug::none);
        ASSERT_FALSE(wrong) << "REDLATCH_SEED=" << seed << ": " << *wrong << "\n"
                            << trace(seed, Bug::none);
    }
    std::cout << steps << " steps in " << count << " schedules\n";
}

struct Control {
    const char* name;
    Bug bug;
};

/// The checker finds mistakes: each of these is put in on purpose.
class Mistake : public ::testing::TestWithParam<Control> {};

TEST_P(Mistake, is_found) {
    constexpr std::uint64_t most = 20'000;
    for (std::uint64_t seed = 1; seed <= most; ++seed) {
        const auto wrong = violation(seed, GetParam().bug);
        if (!wrong) continue;
        std::cout << "in schedule " << seed << ": " << *wrong << '\n';
        if (std::getenv("REDLATCH_TRACE") != nullptr) std::cout << trace(seed, GetParam().bug);
        return;
    }
    FAIL() << "not in " << most << " schedules";
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Mistake,
    ::testing::Values(Control{"late_grant_believed", Bug::late_grant_believed},
                      Control{"lease_shortened", Bug::lease_shortened},
                      Control{"anchor_kept_over_failover", Bug::anchor_kept},
                      Control{"dead_token_used", Bug::dead_token_used},
                      Control{"plain_delete", Bug::plain_delete},
                      Control{"counted_from_arrival", Bug::counted_from_arrival},
                      Control{"no_recheck", Bug::no_recheck},
                      Control{"unknown_grant_ignored", Bug::unknown_grant_ignored},
                      Control{"shared_queue", Bug::shared_queue},
                      Control{"last_come_first_served", Bug::last_come_first_served},
                      Control{"late_commands_run", Bug::late_commands_run},
                      Control{"fence_without_clock", Bug::fence_without_clock},
                      Control{"fence_without_memory", Bug::fence_without_memory},
                      Control{"fence_not_granted", Bug::fence_not_granted},
                      Control{"anyones_extended", Bug::anyones_extended},
                      Control{"released_renewed", Bug::released_renewed}),
    [](const auto& instance) { return std::string{instance.param.name}; });

}  // namespace
}  // namespace redlatch::test::schedules
