#pragma once

#include "fault_tools.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/sentinels.hpp"
#include "support/wait.hpp"
#include <redlatch/redlatch.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace redlatch::test {

/// A master with a replica, watched over by a Sentinel, and two clients of them.
class FailoverTest : public ::testing::Test {
protected:
    static RawRedis look_at(const RedisServer& server) { return RawRedis{server.tcp_uri()}; }

    /// The replica becomes the master with what it has now.
    void fail_over() {
        group_.first().kill();
        ASSERT_TRUE(group_.master_becomes(group_.second().port()));
    }

    /// The same once it has all keys that the master has.
    void fail_over_with_all_keys() {
        ASSERT_TRUE(eventually(
            [&] { return look_at(group_.second()).keys() == look_at(group_.first()).keys(); }));
        fail_over();
    }

    SentinelGroup group_{{.sentinels = 1}};
    Client client_{options_for(group_.uri(), std::chrono::seconds{10})};
    Client other_{options_for(group_.uri(), std::chrono::seconds{10})};
};

}  // namespace redlatch::test
