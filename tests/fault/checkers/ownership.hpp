#pragma once

#include "../history/history.hpp"
#include "violation.hpp"

#include <string>
#include <vector>

namespace redlatch::test::fault {

/// Nobody was told that a lock of theirs was extended or nested while it was another's, from before
/// that call began until after it was back. That holds also where locks were lost, so it is asked of
/// every run; but whoever took a lock before one of the faults named `key_losses` ended may have lost
/// it to the former holder's late command, and is no witness. Checker "ownership".
[[nodiscard]] Violations check_ownership(const History& history,
                                         const std::vector<std::string>& key_losses);

}  // namespace redlatch::test::fault
