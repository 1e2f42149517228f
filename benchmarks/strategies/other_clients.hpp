#pragma once

#include "support/foreign_program.hpp"
#include "support/redis_server.hpp"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::bench {

/// A lock client of another language: threads of a process of its own take turns by it.
struct OtherClient {
    std::string name;
    test::ForeignProgram program;
};

inline std::string folder_of_other_clients() {
    return REDLATCH_BENCHMARK_OTHER_CLIENTS;
}

inline std::vector<OtherClient> other_locks() {
    const std::string folder = folder_of_other_clients();
    return {{.name = "redis_py", .program = test::python_program(folder + "/redis_py.py")},
            {.name = "node_redlock", .program = test::node_program(folder + "/node_redlock.js")}};
}

inline std::vector<OtherClient> other_semaphores() {
    return {{.name = "redis_semaphore",
             .program = test::node_program(folder_of_other_clients() + "/redis_semaphore.js")}};
}

/// Those that this machine has; says what the others lack.
inline std::vector<OtherClient> present_clients(std::vector<OtherClient> clients,
                                                const test::RedisServer& server) {
    std::vector<OtherClient> present;
    for (OtherClient& client : clients) {
        try {
            const auto process = test::start(
                client.program, {std::to_string(server.port()), "present", "0", "0", "1000", "1"});
            present.push_back(std::move(client));
        } catch (const test::Absent& absent) {
            std::printf("%s: skipped, %s\n", client.name.c_str(), absent.what());
        }
    }
    return present;
}

}  // namespace redlatch::bench
