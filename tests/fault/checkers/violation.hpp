#pragma once

#include "../history/event.hpp"

#include <ostream>
#include <string>
#include <vector>

namespace redlatch::test::fault {

/// A promise that a history shows broken.
struct Violation {
    std::string check;  ///< the checker's name
    std::string text;
    Time at{};
};

inline std::ostream& operator<<(std::ostream& out, const Violation& violation) {
    return out << violation.check << " at " << violation.at.count() << ": " << violation.text;
}

using Violations = std::vector<Violation>;

/// Milliseconds for people.
inline std::string in_ms(Time time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) +
           " ms";
}

}  // namespace redlatch::test::fault
