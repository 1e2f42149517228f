#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// No two holds of a lock are relied on at the same time. Checker "exclusion".
[[nodiscard]] Violations check_exclusion(const History& history);

}  // namespace redlatch::test::fault
