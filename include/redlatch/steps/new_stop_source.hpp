#pragma once

#include <redlatch/compilation.hpp>

#include <stop_token>

namespace redlatch::inline v0::detail {

/// Never put into its caller: there g++ 12 takes what the constructor refers to for uninitialised, and may warn in a
/// user's file.
[[gnu::noinline]] inline std::stop_source new_stop_source() {
    return {};
}

}  // namespace redlatch::inline v0::detail
