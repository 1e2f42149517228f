#pragma once

#include <array>
#include <cstddef>

namespace redlatch::test::simulator {

/// What the server is asked to do.
enum class Verb {
    set,
    acquire,
    extend,
    release,
    move,
    nest,
    downgrade,
    inspect,
    force_unlock,
    set_permits,
    other
};
inline constexpr std::array verb_names{"SET",          "acquire",     "extend",    "release",
                                       "move",         "nest",        "downgrade", "inspect",
                                       "force_unlock", "set_permits", "other"};
inline constexpr std::size_t verb_count = verb_names.size();

}  // namespace redlatch::test::simulator
