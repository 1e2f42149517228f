#pragma once

#include "support/process.hpp"

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace redlatch::test {

/// A program in another language. What it needs may be absent on this machine.
struct ForeignProgram {
    std::string interpreter;
    std::string script;
    std::map<std::string, std::string> env;
    std::string needs;  ///< what to install
};

/// `script` is run by Debian's Python, whose python3-redis it may import, or else by the first
/// python3 in PATH. The environment's REDLATCH_PYTHON is another one.
[[nodiscard]] ForeignProgram python_program(const std::string& script);

/// `script` is run by node and may require what tests/interop/package.json names. The
/// environment's REDLATCH_NODE and REDLATCH_NODE_PACKAGES (a node_modules folder) are others.
[[nodiscard]] ForeignProgram node_program(const std::string& script);

/// Thrown where a program, its interpreter or one of its libraries is absent; says what to install.
class Absent : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Starts it, and returns when it has written the line "ready". One that lacks a library writes
/// "absent" instead, and this throws `Absent`.
[[nodiscard]] ChildProcess start(const ForeignProgram& program,
                                 const std::vector<std::string>& arguments);

}  // namespace redlatch::test
