#pragma once

#include "raw_connection.hpp"
#include "strategies/strategy.hpp"

#include <stdexcept>
#include <string>

namespace redlatch::bench {

/// A list with one element in it, which whoever takes it out must put back. The server keeps those
/// who wait in order. This is as much as a hand-off can do, not a lock that one should use: it has no
/// lease, so a holder that dies takes the token with it.
class Token {
public:
    explicit Token(const Place& place) : key_(place.key), connection_(place.uri, raw_patience) {}

    void take() {
        if (!connection_.command<3>({"BLPOP", key_, "0"}).is_array()) {
            throw std::runtime_error{"token: not taken"};
        }
    }

    /// The reply is the length of the list: 0 if the token went straight to one who waits.
    void put_back() { connection_.command<3>({"RPUSH", key_, "1"}); }

private:
    std::string key_;
    RawConnection connection_;
};

class TokenContender final : public Contender {
public:
    TokenContender(const Place& place, unsigned /*seed*/) : token_(place) {}
    void lock() override { token_.take(); }
    void unlock() override { token_.put_back(); }

private:
    Token token_;
};

inline void make_token(test::RawRedis& redis, const std::string& key) {
    redis.command({"RPUSH", key, "1"});
}

inline std::string remove_token(test::RawRedis& redis, const std::string& key) {
    const long long tokens = redis.command({"LLEN", key}).integer;
    redis.del(key);
    return tokens == 1 ? std::string{} : std::to_string(tokens) + " tokens are left";
}

}  // namespace redlatch::bench
