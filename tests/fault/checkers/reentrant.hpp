#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// A lock that nests counts: within its validity its holder can take it again (a fault may prevent that,
/// another owner cannot), each release but the last leaves it held, and the last one does not. A lock that does not
/// nest refuses its holder. A hold that is over may say so at any release. Checker "reentrant".
[[nodiscard]] Violations check_reentrancy(const History& history);

}  // namespace redlatch::test::fault
