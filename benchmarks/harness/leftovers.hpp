#pragma once

#include "support/raw_redis.hpp"

#include <string>

namespace redlatch::bench {

/// What is wrong with the keys when everybody is gone, or nothing. The lock's own key must be gone;
/// others, such as a queue of those who wait, must at least end by themselves. Removes them all.
inline std::string leftovers(test::RawRedis& redis, const std::string& lock) {
    std::string fault;
    for (const std::string& key : redis.keys()) {
        if (key == lock) fault = "the lock's key was left behind";
        if (key != lock && redis.pttl(key) == -1) fault = "left behind without an end: " + key;
    }
    redis.flushall();
    return fault;
}

}  // namespace redlatch::bench
