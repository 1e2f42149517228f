#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// Every call came back, by its limit plus `slack`; the time for which its process stood still does not count,
/// and a killed process owes nothing. A wait without limit has the end of its client for one. Checker
/// "deadline".
[[nodiscard]] Violations check_deadlines(const History& history, Time slack);

/// How long a free lock may lie there.
struct IdleLimits {
    Time longest{};  ///< a free lock that somebody waits for is taken within this time
    Time settle{};   ///< after a fault's end nothing is expected for so long
};

/// No lock lay free for longer than allowed while somebody waited for it, faults and what follows
/// them left out. Who waits: calls of `Op::acquire` that may wait for longer than that; those of a set
/// (`counts["set"]`) take some locks while they wait for others, and are busy. Checker
/// "idle lock".
[[nodiscard]] Violations check_idle_locks(const History& history, const IdleLimits& limits);

}  // namespace redlatch::test::fault
