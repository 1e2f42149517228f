#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

/// Nothing is left behind, by the notes of `Op::snapshot`:
/// - "server", at the end of a run: no key but fencing tokens ("keys"), no more connections than at
///   its beginning ("clients"), no subscription ("channels");
/// - "before" and "after", of a process that ended in order, around its use of the library: as many
///   descriptors and threads as before;
/// - "warm" and "end", within that use: the memory has not grown by more than `growth_kib`.
/// Checker "hygiene".
[[nodiscard]] Violations check_hygiene(const History& history, long long growth_kib);

}  // namespace redlatch::test::fault
