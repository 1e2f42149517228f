#pragma once

#include "run.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace redlatch::test::fault {

/// A run of its own kind: what its clients do hits one sort of mistake more often than chance would.
struct Scenario {
    std::string name;
    RunPlan plan;
};

[[nodiscard]] const std::vector<Scenario>& all_scenarios();

/// Throws std::invalid_argument where there is none of that name.
[[nodiscard]] const Scenario& scenario(const std::string& name);

/// The plan of a common run, inside or outside the promise. The seed decides whether observers are slow,
/// and whether clients end before the threads that use them.
[[nodiscard]] RunPlan common_plan(FaultClass faults, std::uint64_t seed);

}  // namespace redlatch::test::fault
