#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

namespace redlatch::test::fault {

// Both read the store's own log: a note of `Op::write` for each write that was asked of it, in its
// order (`counts["order"]`), with its verdict as the outcome: "accepted", "late" or "stale".

/// Of the writes that carry a fencing token, none was accepted below the highest one accepted before,
/// and none of a hold that was there before the acquisition of another began which had already
/// written. Checker "fenced store".
[[nodiscard]] Violations check_fenced_store(const History& history);

/// Every accepted write had read what the accepted one before it wrote (`counts["read"]` and
/// `counts["wrote"]`). Only where locks exclude each other. Checker "lost update".
[[nodiscard]] Violations check_lost_updates(const History& history);

}  // namespace redlatch::test::fault
