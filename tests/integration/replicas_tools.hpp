#pragma once

#include "granted_tools.hpp"

#include <gtest/gtest.h>

#include <string>

namespace redlatch::test {

/// Whether a wait has failed as too few replicas have the lock. On a busy machine the answer to its last try may be
/// late; then that is the error's cause.
template <class T>
testing::AssertionResult is_not_replicated(const Result<T>& refused) {
    const auto unavailable = fails_with(refused, Errc::unavailable);
    if (unavailable && speaks_of(refused.error(), "0 of 1 replicas")) return unavailable;
    return fails_with(refused, Errc::not_replicated);
}

/// A master with a replica that can be stopped, and two clients.
class WithReplica : public ::testing::Test {
protected:
    WithReplica() {
        replica_redis_.command({"REPLICAOF", "127.0.0.1", std::to_string(server_.port())});
        EXPECT_TRUE(eventually([this] { return replicas_online() == "1"; }));
    }

    std::string replicas_online() {
        const auto info = redis_.info("replication");
        const auto first = info.find("slave0");
        const bool online =
            first != info.end() && first->second.find("state=online") != std::string::npos;
        return online ? info.at("connected_slaves") : "0";
    }

    long long waits() { return redis_.command_calls("wait"); }

    RedisServer server_{{.tcp = true, .config = {{"repl-diskless-sync-delay", "0"}}}};
    RedisServer replica_;
    RawRedis redis_{server_};
    RawRedis replica_redis_{replica_};
    Client client_{options_for(server_.uri(), 10s)};
    Client other_client_{options_for(server_.uri(), 10s)};
};

}  // namespace redlatch::test
