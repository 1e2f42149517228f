#include "other_client.hpp"
#include "support/overlap_detector.hpp"
#include "support/raw_redis.hpp"
#include "support/wait.hpp"

#include <stdexcept>

namespace redlatch::test {
namespace {

// KEYS: the lock. ARGV: the owner, a lease in milliseconds. An owner is a field, its value the hold count.

/// Nil, or how long somebody else may still have it.
constexpr const char* take = R"(
    if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
        redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        return nil
    end
    return redis.call('PTTL', KEYS[1])
)";

/// What its watchdog sends.
constexpr const char* renew = R"(
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
)";

/// Nil for who does not hold it. KEYS has the channel of those who wait for a message too. Redisson
/// also keeps the answer in a key for a while, in case it has to ask twice.
constexpr const char* give_back = R"(
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
    if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        return 0
    end
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[2], 0)
    return 1
)";

class Redisson final : public OtherClient {
public:
    explicit Redisson(const RedisServer& server) : server_(server), redis_(server) {}

    bool acquire(std::chrono::milliseconds wait, std::chrono::milliseconds lease) override {
        return eventually([&] { return run(take, lease).is_nil(); }, wait);
    }
    bool extend(std::chrono::milliseconds lease) override { return run(renew, lease).integer == 1; }
    bool release() override { return !run(give_back, lease_of_watchdog).is_nil(); }

    void pass_through(int rounds) override {
        OverlapDetector detector{server_.socket_path(), "sections"};
        for (int i = 0; i < rounds; ++i) {
            if (!acquire(generous_limit, lease_of_watchdog)) throw std::runtime_error{"starved"};
            detector.enter();
            detector.leave();
            if (!release()) throw std::runtime_error{"lost"};
        }
    }

private:
    static constexpr std::chrono::seconds lease_of_watchdog{30};

    RawReply run(const char* script, std::chrono::milliseconds lease) {
        RawReply reply = redis_.command(
            {"EVAL", script, "2", shared_key, channel_, owner_, std::to_string(lease.count())});
        if (reply.is_error()) throw std::runtime_error{reply.text};
        return reply;
    }

    const RedisServer& server_;
    RawRedis redis_;
    std::string channel_ = "redisson_lock__channel:{" + shared_key + "}";
    std::string owner_ = "0cf7d0a6-53a1-4f3b-9a2e-6d1f2c8b7e95:1";  ///< client:thread
};

}  // namespace

std::unique_ptr<OtherClient> redisson(const RedisServer& server) {
    return std::make_unique<Redisson>(server);
}

}  // namespace redlatch::test
