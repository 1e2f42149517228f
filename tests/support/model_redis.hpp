#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test {

/// What a redis-server would do, inside this process and by a clock that only the test moves: plain
/// commands, and real Lua scripts in an interpreter of its own. A script takes about a microsecond,
/// so a test can play many thousand schedules; `model_redis_test` shows that the answers are those
/// of Redis 7.0.
///
/// Commands: GET SET DEL UNLINK EXISTS TYPE, TTL PTTL EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST,
/// INCR INCRBY DECR, HSET HGET HMGET HDEL HEXISTS HLEN HKEYS HVALS HGETALL HINCRBY, ZADD ZREM
/// ZSCORE ZRANK ZCARD ZCOUNT ZRANGE (by rank only) ZRANGEBYSCORE ZREMRANGEBYSCORE ZPOPMIN, TIME
/// PUBLISH PUBSUB NUMSUB PING FLUSHALL EVAL. In scripts also redis.call, pcall, error_reply,
/// status_reply and sha1hex; of Lua's libraries base, string, table and math. Anything else is an
/// error, in Redis' words where it has some.
///
/// One thread at a time. Sets and hashes are searched from end to end: they should stay small. To
/// start again, `flush()` it: a new one has to open Lua and compile the scripts again.
class ModelRedis {
public:
    /// A reply, comparable and printable.
    struct Value {
        enum class Type { nil, integer, string, status, error, array };

        Type type = Type::nil;
        std::int64_t integer = 0;
        std::string text = {};  ///< of a string, a status or an error
        std::vector<Value> elements = {};

        [[nodiscard]] bool is_nil() const { return type == Type::nil; }
        [[nodiscard]] bool is_error() const { return type == Type::error; }

        static Value of(std::int64_t number) { return {.type = Type::integer, .integer = number}; }
        static Value of(std::string_view bytes) {
            return {.type = Type::string, .text = std::string{bytes}};
        }
        static Value status(std::string_view words) {
            return {.type = Type::status, .text = std::string{words}};
        }
        static Value error(std::string_view words) {
            return {.type = Type::error, .text = std::string{words}};
        }
        static Value array(std::vector<Value> elements) {
            return {.type = Type::array, .elements = std::move(elements)};
        }

        bool operator==(const Value&) const = default;
        friend std::ostream& operator<<(std::ostream& out, const Value& value);
    };

    using OnPublish = std::function<void(std::string_view channel, std::string_view message)>;

    /// `start_us` is what the server's clock shows first, in microseconds since 1970.
    explicit ModelRedis(std::int64_t start_us = 1'700'000'000'000'000);
    ~ModelRedis();

    ModelRedis(const ModelRedis&) = delete;
    ModelRedis& operator=(const ModelRedis&) = delete;

    /// Moves the clock that TIME shows and keys expire by; a negative step is an administrator's.
    void advance(std::chrono::microseconds step);
    [[nodiscard]] std::int64_t now_us() const;

    /// Runs a script as EVAL would. It is compiled once, and found again fastest if its source
    /// stays at one address.
    Value eval(std::string_view source, std::span<const std::string> keys,
               std::span<const std::string> arguments);
    Value eval(std::string_view source, std::span<const std::string_view> keys,
               std::span<const std::string_view> arguments);

    /// A plain command, as in {"SET", key, token, "NX", "PX", "1000"}.
    Value command(std::span<const std::string> words);
    Value command(std::span<const std::string_view> words);

    /// Is told each PUBLISH once the command or script has ended, before its answer is returned. It
    /// may use the model.
    void on_publish(OnPublish callback);

    /// What PUBLISH and PUBSUB NUMSUB answer for a channel; 0 where nothing was said.
    void set_subscribers(std::string channel, int count);

    /// An ACL that forbids a command (or allows it again), at the top level and in scripts.
    void deny(std::string_view command, bool denied = true);

    /// The memory is used up: a script may not begin to write with a command that may take memory.
    void set_full(bool full);

    /// A script that touches a key which is not in its KEYS ends with an error "undeclared key",
    /// whatever else it answers, as in a cluster it must not. On at first; the key was left alone.
    void set_strict_keys(bool strict);

    /// The keys' slot moves to another server of a Cluster: a script runs where all its keys exist, and may not
    /// touch one that it has deleted.
    void set_slot_leaves(bool leaves);

    /// A restart without data. Subscribers, ACL and clock stay.
    void flush();

    /// How many commands have written something so far, those of scripts included.
    [[nodiscard]] std::uint64_t writes() const;

    /// All keys as they are: what a replica has got that is up to date.
    struct Snapshot;
    [[nodiscard]] std::shared_ptr<const Snapshot> snapshot() const;
    /// Has those keys in place of its own. They end when they would have ended.
    void restore(const Snapshot& snapshot);

    /// The keys that are alive, sorted.
    [[nodiscard]] std::vector<std::string> keys() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace redlatch::test
