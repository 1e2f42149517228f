#pragma once

#include <redlatch/compilation.hpp>

#include <cstdint>

namespace redlatch::inline v0::detail {

/// How far a command has got at several masters: a bit for each, by its place in the list. All zero
/// where one master decides.
struct MasterSets {
    std::uint64_t asked = 0;     ///< it was sent there, and was or may be carried out
    std::uint64_t answered = 0;  ///< with yes or no
    std::uint64_t agreed = 0;    ///< with yes
    std::uint64_t late = 0;      ///< the answer is still to come

    std::uint64_t unanswered() const noexcept { return asked & ~answered; }
    std::uint64_t heard_of() const noexcept { return answered | late; }
};

}  // namespace redlatch::inline v0::detail
