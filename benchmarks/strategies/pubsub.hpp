#pragma once

#include "raw_connection.hpp"
#include "strategies/strategy.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

namespace redlatch::bench {

/// By hand: the script that unlocks publishes a message, and all who hear it try again with SET NX
/// PX. Each thread has a connection for commands and one for messages, which stays subscribed: to
/// subscribe anew for each wait would cost two more commands a section.
class PubsubContender final : public Contender {
public:
    PubsubContender(const Place& place, unsigned /*seed*/)
        : key_(place.key),
          channel_(place.key + ":freed"),
          commands_(place.uri, raw_patience),
          messages_(place.uri, raw_patience) {
        release_ = commands_.load(
            "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
            "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '') return 1");
        messages_.command<2>({"SUBSCRIBE", channel_});
    }

    void lock() override {
        token_ = tokens_.next();
        forget_messages();
        while (!try_lock()) {
            messages_.next(longest_wait);
            forget_messages();
        }
    }

    void unlock() override {
        if (!commands_.command<6>({"EVALSHA", release_, "1", key_, token_, channel_}).is_one()) {
            throw std::runtime_error{"pubsub: not released"};
        }
    }

private:
    /// A message that was lost costs no more than this.
    static constexpr std::chrono::milliseconds longest_wait{1'000};

    /// What was said before a try says nothing after it. What is said during the try stays.
    void forget_messages() {
        while (messages_.next(std::chrono::milliseconds{0})) {
        }
    }

    bool try_lock() {
        return commands_.command<6>({"SET", key_, token_, "NX", "PX", lease_}).is_ok();
    }

    std::string key_;
    std::string channel_;
    RawConnection commands_;
    RawConnection messages_;
    RawTokens tokens_;
    const std::string lease_ = std::to_string(raw_lease_ms);
    std::string token_;
    std::string release_;
};

}  // namespace redlatch::bench
