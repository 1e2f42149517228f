#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// Of two holds of a lock, one of which was over with its acquisition before the other's began, the
/// later one has the higher fencing token; no two have the same; a nested acquisition has that of
/// its hold. A reader has that of a writer before
/// it. Holds without a fencing token are left out. Checker "fence order".
[[nodiscard]] Violations check_fence_order(const History& history);

}  // namespace redlatch::test::fault
