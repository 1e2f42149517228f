#include "support/foreign_program.hpp"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

namespace redlatch::test {
namespace {

std::string from_environment(const char* name, const std::string& otherwise) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

ChildProcess execute(const ForeignProgram& program, const std::vector<std::string>& arguments) {
    std::vector<std::string> all{program.script};
    all.insert(all.end(), arguments.begin(), arguments.end());
    try {
        return ChildProcess::exec(program.interpreter, all, program.env);
    } catch (const std::system_error&) {
        throw Absent{program.interpreter + " is absent; " + program.needs};
    }
}

}  // namespace

ForeignProgram python_program(const std::string& script) {
    const std::string of_debian = "/usr/bin/python3";
    const std::string found = std::filesystem::exists(of_debian) ? of_debian : "python3";
    return {.interpreter = from_environment("REDLATCH_PYTHON", found),
            .script = script,
            .env = {},
            .needs = "install redis-py: apt install python3-redis"};
}

ForeignProgram node_program(const std::string& script) {
    const std::string packages =
        from_environment("REDLATCH_NODE_PACKAGES", REDLATCH_INSTALLED_NODE_PACKAGES);
    return {.interpreter = from_environment("REDLATCH_NODE", "node"),
            .script = script,
            .env = {{"NODE_PATH", packages}},
            .needs = "install node and npm, and run tests/interop/install"};
}

ChildProcess start(const ForeignProgram& program, const std::vector<std::string>& arguments) {
    ChildProcess process = execute(program, arguments);
    const std::optional<std::string> line = process.read_line();
    if (line == "absent") throw Absent{"a library is absent; " + program.needs};
    if (line != "ready") throw std::runtime_error{program.script + " did not start"};
    return process;
}

}  // namespace redlatch::test
