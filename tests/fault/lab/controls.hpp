#pragma once

#include "run.hpp"

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace redlatch::test::fault {

/// A seeded bug, and a run that has to show it. A laboratory that finds one of them no more has gone
/// blind.
struct Control {
    std::string subject;
    std::string found_by;  ///< the checker that has to speak
    RunPlan plan;
};

[[nodiscard]] const std::vector<Control>& all_controls();

/// Whether the bug was found, at the latest after some runs with seeds from `seed` on. The last
/// run's report goes to `out`.
[[nodiscard]] bool is_found(const Control& control, std::uint64_t seed, std::ostream& out);

}  // namespace redlatch::test::fault
