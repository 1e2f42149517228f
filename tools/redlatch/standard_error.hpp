#pragma once

#include <string_view>

namespace tool {

/// Writes what standard error takes within a tenth of a second, and leaves out the rest. Nobody may read it: a pager
/// that is not scrolled, a terminal that is held by its stop key.
void write_what_is_taken(std::string_view text);

}  // namespace tool
