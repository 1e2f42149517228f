#pragma once

#include <hiredis/hiredis.h>

#include <sys/time.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::bench {

/// What one writes by hand on hiredis if it has to be quick and right: one blocking context for
/// each thread, arguments as they are instead of a format string, a token of its own for each
/// acquisition, scripts by their SHA. No queue, no retry, no idea of when the lease is over.
class RawConnection {
public:
    class Reply {
    public:
        explicit Reply(void* reply) : reply_(static_cast<redisReply*>(reply)) {
            if (reply_ == nullptr) throw std::runtime_error{"raw: the connection broke"};
        }
        bool is_ok() const noexcept { return reply_->type == REDIS_REPLY_STATUS; }
        bool is_one() const noexcept {
            return reply_->type == REDIS_REPLY_INTEGER && reply_->integer == 1;
        }
        std::string text() const { return {reply_->str, reply_->len}; }

    private:
        struct Free {
            void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
        };
        std::unique_ptr<redisReply, Free> reply_;
    };

    explicit RawConnection(const std::string& uri) {
        const timeval timeout{.tv_sec = 1, .tv_usec = 0};
        constexpr std::string_view unix_scheme = "unix://";
        if (uri.starts_with(unix_scheme)) {
            const std::string path = uri.substr(unix_scheme.size());
            context_.reset(redisConnectUnixWithTimeout(path.c_str(), timeout));
        } else {
            const auto host = uri.find("//") + 2;
            const auto colon = uri.rfind(':');
            context_.reset(redisConnectWithTimeout(uri.substr(host, colon - host).c_str(),
                                                   std::stoi(uri.substr(colon + 1)), timeout));
        }
        if (context_ == nullptr || context_->err != 0) throw std::runtime_error{"raw: connect"};
        if (redisSetTimeout(context_.get(), timeout) != REDIS_OK) {
            throw std::runtime_error{"raw: timeout"};
        }
    }

    template <std::size_t N>
    Reply command(const std::array<std::string_view, N>& words) {
        std::array<const char*, N> data{};
        std::array<std::size_t, N> lengths{};
        for (std::size_t i = 0; i < N; ++i) {
            data[i] = words[i].data();
            lengths[i] = words[i].size();
        }
        return Reply{
            redisCommandArgv(context_.get(), static_cast<int>(N), data.data(), lengths.data())};
    }

    std::string load(std::string_view script) {
        return command<3>({"SCRIPT", "LOAD", script}).text();
    }

private:
    struct Free {
        void operator()(redisContext* context) const noexcept { redisFree(context); }
    };
    std::unique_ptr<redisContext, Free> context_;
};

/// Names for acquisitions that nobody else has.
class RawTokens {
public:
    std::string next() { return prefix_ + std::to_string(++count_); }

private:
    static std::string random_prefix() {
        std::random_device source;
        std::string text;
        for (int i = 0; i < 4; ++i) text += std::to_string(source()) + ":";
        return text;
    }

    const std::string prefix_ = random_prefix();
    std::uint64_t count_ = 0;
};

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
        : connection_(uri), key_(std::move(key)), lease_(std::to_string(lease_ms)) {
        acquire_ = connection_.load(
            "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end "
            "redis.call('HSET', KEYS[1], ARGV[1], 1) "
            "redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1");
        release_ = connection_.load("return redis.call('HDEL', KEYS[1], ARGV[1])");
    }

    bool try_lock() {
        token_ = tokens_.next();
        return connection_.command<6>({"EVALSHA", acquire_, "1", key_, token_, lease_}).is_one();
    }

    bool unlock() {
        return connection_.command<5>({"EVALSHA", release_, "1", key_, token_}).is_one();
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
