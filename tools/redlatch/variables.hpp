#pragma once

namespace tool {

/// A variable in the environment of a command from which REDLATCH_URI is kept.
inline constexpr const char* needs_uri = "REDLATCH_NEEDS_URI";

}  // namespace tool
