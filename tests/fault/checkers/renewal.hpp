#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// When a hold with a watchdog has to live.
struct RenewalLimits {
    Time shortest{};  ///< of leases: one that is shorter may run out while the machine is busy
    Time settle{};    ///< after a fault's end nothing is expected for so long
    Time slow{};      ///< a call that waits for nobody takes no longer, or the machine has no time
};

/// No hold was lost, or ran out, while one of its acquisitions was watched, unless there was a fault within the lease
/// before, or a slow call of its process. What counts: `counts["watched"]` of acquisitions and releases, and
/// `counts["lease_ms"]`; not holds with `counts["ends_itself"]`. Checker "renewal".
[[nodiscard]] Violations check_renewal(const History& history, const RenewalLimits& limits);

}  // namespace redlatch::test::fault
