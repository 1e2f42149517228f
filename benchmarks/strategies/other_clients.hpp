#pragma once

#include "support/foreign_program.hpp"

#include <string>
#include <vector>

namespace redlatch::bench {

/// A lock client of another language: threads of a process of its own take turns by it.
struct OtherClient {
    std::string name;
    test::ForeignProgram program;
};

inline std::vector<OtherClient> other_clients() {
    const std::string folder = REDLATCH_BENCHMARK_OTHER_CLIENTS;
    return {{.name = "redis_py", .program = test::python_program(folder + "/redis_py.py")},
            {.name = "node_redlock", .program = test::node_program(folder + "/node_redlock.js")}};
}

}  // namespace redlatch::bench
