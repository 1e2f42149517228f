#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// What the library said of a hold was true, by what it said before and after:
/// - `held()` is never true again once it was false, once `lost()` has fired, or once the validity
///   is over that the client was told of last (of holds without a watchdog);
/// - `state()` and `remaining()` say nothing else than `held()` before them;
/// - nothing is extended or nested in a hold that is lost;
/// - a client that asked for `lost()`, saw the end of the validity and waits for `slack` hears of it by
///   `lost()`, the time for which its process stood still left out; who asks after the end is told at once;
/// - who asked for `lost()` of a hold without a watchdog and did not release it is told within `slack`
///   after the validity, whatever the holder and its callbacks do; the same time is left out;
/// - `extend()` does not say "lost" of a hold that another thread has released in time.
/// Checker "honesty".
[[nodiscard]] Violations check_honesty(const History& history, Time slack);

/// Where the server keeps its keys and nobody removes locks, none is lost before its validity ends,
/// and nobody released a lock that was another's by then. Checker "honest end".
[[nodiscard]] Violations check_honest_ends(const History& history);

}  // namespace redlatch::test::fault
