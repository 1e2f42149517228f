#pragma once

#include "raw_connection.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace redlatch::bench {

/// `SET NX PX`, and a script that compares and deletes.
class RawLock {
public:
    RawLock(const std::string& uri, std::string key, std::int64_t lease_ms)
        : connection_(uri), key_(std::move(key)), lease_(std::to_string(lease_ms)) {
        release_ = connection_.load(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) "
            "else return 0 end");
    }

    bool try_lock() {
        token_ = tokens_.next();
        return connection_.command<6>({"SET", key_, token_, "NX", "PX", lease_}).is_ok();
    }

    bool unlock() {
        return connection_.command<5>({"EVALSHA", release_, "1", key_, token_}).is_one();
    }

private:
    RawConnection connection_;
    RawTokens tokens_;
    std::string key_;
    std::string lease_;
    std::string release_;
    std::string token_;
};

/// The same in a hash `token -> hold count`, as reentrant locks are kept: a script for both.
class RawHashLock {
public:
    RawHashLock(const std::string& uri, std::string key, std::int64_t lease_ms)
        : RawHashLock(uri, std::move(key), lease_ms, "redis.call('EXISTS', KEYS[1]) == 1") {}

    bool try_lock() {
        token_ = tokens_.next();
        return connection_.command<6>({"EVALSHA", acquire_, "1", key_, token_, lease_}).is_one();
    }

    bool unlock() {
        return connection_.command<5>({"EVALSHA", release_, "1", key_, token_}).is_one();
    }

protected:
    /// `taken`: what is true in Lua where it cannot be had.
    RawHashLock(const std::string& uri, std::string key, std::int64_t lease_ms,
                const std::string& taken)
        : connection_(uri), key_(std::move(key)), lease_(std::to_string(lease_ms)) {
        acquire_ = connection_.load("if " + taken +
                                    " then return 0 end "
                                    "redis.call('HSET', KEYS[1], ARGV[1], 1) "
                                    "redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1");
        release_ = connection_.load("return redis.call('HDEL', KEYS[1], ARGV[1])");
    }

private:
    RawConnection connection_;
    RawTokens tokens_;
    std::string key_;
    std::string lease_;
    std::string acquire_;
    std::string release_;
    std::string token_;
};

/// One reader of a hash `token -> 1`, which a writer would have for itself.
class RawReader : public RawHashLock {
public:
    RawReader(const std::string& uri, std::string key, std::int64_t lease_ms)
        : RawHashLock(uri, std::move(key), lease_ms,
                      "redis.call('HEXISTS', KEYS[1], 'writer') == 1") {}
};

/// One hold of a hash `token -> count`, nested and ended with the absolute count.
class RawNesting {
public:
    RawNesting(const std::string& uri, std::string key, std::int64_t lease_ms)
        : connection_(uri), key_(std::move(key)), lease_(std::to_string(lease_ms)) {
        nest_ = connection_.load(
            "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end "
            "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) "
            "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then "
            "redis.call('PEXPIRE', KEYS[1], ARGV[3]) end return 1");
        connection_.command<4>({"HSET", key_, token_, "1"});
        connection_.command<3>({"PEXPIRE", key_, lease_});
    }
    ~RawNesting() { connection_.command<2>({"DEL", key_}); }
    RawNesting(const RawNesting&) = delete;
    RawNesting& operator=(const RawNesting&) = delete;

    bool nest(std::string_view count, std::string_view lease) {
        return connection_.command<7>({"EVALSHA", nest_, "1", key_, token_, count, lease}).is_one();
    }
    bool lock() { return nest("2", lease_); }
    bool unlock() { return nest("1", "0"); }

private:
    RawConnection connection_;
    std::string key_;
    std::string lease_;
    std::string token_ = RawTokens{}.next();
    std::string nest_;
};

}  // namespace redlatch::bench
