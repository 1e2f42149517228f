#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// Every call completes once; an asynchronous one not inside the call that begins it, and where it is to:
/// `counts["inside"]` and `counts["elsewhere"]` of a completion say otherwise. The lock that it gives is not over
/// then (`counts["over"]`), unless the process stood still; on a busy machine one or two may have run out meanwhile.
/// Checker "completion".
[[nodiscard]] Violations check_completions(const History& history);

}  // namespace redlatch::test::fault
