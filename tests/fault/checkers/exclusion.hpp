#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// No two holds of a lock are relied on at the same time, but for those of readers (`counts["reads"]` of the
/// acquisition), and of permits (`counts["permits"]`), of which no more are than there are
/// (`counts["of"]`). Checker "exclusion".
[[nodiscard]] Violations check_exclusion(const History& history);

}  // namespace redlatch::test::fault
