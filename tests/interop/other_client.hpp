#pragma once

#include "support/redis_server.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace redlatch::test {

/// The key of all these tests.
inline const std::string shared_key = "job";

/// A lock client that is not ours, on `shared_key`. One hold and one thread at a time.
///
/// All throw std::runtime_error when their process or its server fails.
class OtherClient {
public:
    OtherClient() = default;
    OtherClient(const OtherClient&) = delete;
    OtherClient& operator=(const OtherClient&) = delete;
    virtual ~OtherClient() = default;

    /// Whether it has the lock before `wait` is over; tries once for a wait of zero. It asks every
    /// few milliseconds.
    virtual bool acquire(std::chrono::milliseconds wait, std::chrono::milliseconds lease) = 0;

    /// Whether the hold was its own: asked of the server, whatever it believes.
    virtual bool extend(std::chrono::milliseconds lease) = 0;
    virtual bool release() = 0;

    /// Goes so many times through the OverlapDetector named "sections", with the lock held.
    virtual void pass_through(int rounds) = 0;
};

/// redis-py's Lock, in a process of its own. Throws `Absent`.
[[nodiscard]] std::unique_ptr<OtherClient> redis_py(const RedisServer& server);

/// node-redlock on ioredis, in a process of its own. Throws `Absent`.
[[nodiscard]] std::unique_ptr<OtherClient> node_redlock(const RedisServer& server);

/// What Redisson's locks do to the server, by hand: RLock's scripts, and the pauses of RSpinLock, which
/// keeps the same hash and asks again instead of listening. Nests.
[[nodiscard]] std::unique_ptr<OtherClient> redisson(const RedisServer& server);

}  // namespace redlatch::test
