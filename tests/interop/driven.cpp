#include "other_client.hpp"
#include "support/foreign_program.hpp"

#include <optional>
#include <stdexcept>
#include <utility>

namespace redlatch::test {
namespace {

/// One whose program does what it is told by a line, and answers with one.
class Driven final : public OtherClient {
public:
    Driven(const ForeignProgram& program, const RedisServer& server)
        : process_{start(program, {server.socket_path(), shared_key})} {}

    bool acquire(std::chrono::milliseconds wait, std::chrono::milliseconds lease) override {
        return ask("acquire " + std::to_string(wait.count()) + " " + std::to_string(lease.count()));
    }
    bool extend(std::chrono::milliseconds lease) override {
        return ask("extend " + std::to_string(lease.count()));
    }
    bool release() override { return ask("release"); }
    void pass_through(int rounds) override { ask("pass_through " + std::to_string(rounds)); }

private:
    bool ask(const std::string& request) {
        process_.write_line(request);
        const auto answer = process_.read_line(std::chrono::minutes{2});
        if (answer == "yes") return true;
        if (answer == "no") return false;
        throw std::runtime_error{"no answer to: " + request};
    }

    ChildProcess process_;
};

}  // namespace

std::unique_ptr<OtherClient> redis_py(const RedisServer& server) {
    const auto program = python_program(REDLATCH_INTEROP "/redis_py.py");
    return std::make_unique<Driven>(program, server);
}

std::unique_ptr<OtherClient> node_redlock(const RedisServer& server) {
    const auto program = node_program(REDLATCH_INTEROP "/node_redlock.js");
    return std::make_unique<Driven>(program, server);
}

}  // namespace redlatch::test
