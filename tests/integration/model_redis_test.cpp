// The model of a redis-server answers as a real one does, byte for byte.

#include "support/model_redis.hpp"

#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/wait.hpp"
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/scripts.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using Value = ModelRedis::Value;
using Words = std::vector<std::string>;

Value value_of(const RawReply& reply) {
    switch (reply.type) {
        case RawReply::Type::nil: return {};
        case RawReply::Type::integer: return Value::of(reply.integer);
        case RawReply::Type::string: return Value::of(reply.text);
        case RawReply::Type::status: return Value::status(reply.text);
        case RawReply::Type::error: return Value::error(reply.text);
        case RawReply::Type::array: break;
        case RawReply::Type::other: ADD_FAILURE() << "an unknown reply"; break;
    }
    std::vector<Value> elements;
    for (const RawReply& element : reply.elements) elements.push_back(value_of(element));
    return Value::array(std::move(elements));
}

/// Equal but for time that passed on the server: these tests let keys live for very long, and only
/// times are such large numbers in them.
bool same(const Value& model, const Value& real) {
    if (model.type == Value::Type::integer && real.type == Value::Type::integer) {
        constexpr std::int64_t large = 500'000;
        constexpr std::int64_t slack = 60'000;
        return model.integer == real.integer ||
               (model.integer > large && std::abs(model.integer - real.integer) < slack);
    }
    if (model.type != real.type || model.text != real.text ||
        model.elements.size() != real.elements.size()) {
        return false;
    }
    for (std::size_t i = 0; i < model.elements.size(); ++i) {
        if (!same(model.elements[i], real.elements[i])) return false;
    }
    return true;
}

std::string printed(const Words& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

/// "GET a" → {"GET", "a"}; '' is the empty word.
Words words_of(const std::string& line) {
    std::istringstream stream{line};
    Words words;
    for (std::string word; stream >> word;) words.push_back(word == "''" ? "" : word);
    return words;
}

class ModelRedisTest : public ::testing::Test {
protected:
    void expect_same(const Words& words) { compare(words, value_of(redis_.command(words))); }
    void expect_same(const std::string& line) { expect_same(words_of(line)); }

    void compare(const Words& words, const Value& real) {
        const Value model = model_.command(words);
        EXPECT_TRUE(same(model, real)) << printed(words) << "\n  model  " << model  //
                                       << "\n  Redis  " << real;
    }

    /// A script with two keys and two arguments.
    void expect_same_script(const std::string& script) {
        expect_same({"EVAL", script, "2", "a", "b", "first", "17"});
    }

    void set_full(bool full) {
        redis_.command({"CONFIG", "SET", "maxmemory", full ? "1" : "0"});
        model_.set_full(full);
    }

    void expect_same_content(const std::vector<std::string>& keys) {
        for (const std::string& key : keys) {
            for (const char* const command : {"TYPE", "PTTL", "GET", "HGETALL"}) {
                expect_same({command, key});
            }
            expect_same({"ZRANGE", key, "0", "-1", "WITHSCORES"});
        }
    }

    static std::int64_t time_of(RawRedis& redis) {
        const RawReply time = redis.command({"TIME"});
        return std::stoll(time.elements.at(0).text) * 1'000'000 +
               std::stoll(time.elements.at(1).text);
    }

    RedisServer server_;
    RawRedis redis_{server_};
    ModelRedis model_{time_of(redis_)};
};

// ---- Commands -----------------------------------------------------------------------------------

TEST_F(ModelRedisTest, knows_the_commands) {
    const char* const lines = R"(
PING
PING hello
PING a b
FOO
foo a '' b
GET
get a
GET a b
SET a
SET a 1
GET a
SET a 2 NX
SET a 2 XX
SETRANGE a 0 ''
GET a
SETRANGE a 2 xy
GET a
SETRANGE a 1 z
GET a
SETRANGE none 0 ''
GET none
SETRANGE none 3 ''
SETRANGE a -1 x
SETRANGE a x x
SETRANGE a 0
SET a 2
SET b 2 XX
SET b 2 nx px 1000000000
PTTL b
TTL b
SET b 3 KEEPTTL
PTTL b
SET b 4 GET
PTTL b
SET b 5 EX 1000000 GET
TTL b
SET b 5 EX 1000000 PX 10
SET b 5 PX 10 KEEPTTL
SET b 5 KEEPTTL PX 10
SET b 5 NX XX
SET b 5 NX GET
SET none 5 XX GET
SET b 5 PX
SET b 5 PX 0
SET b 5 PX -1
SET b 5 EX 9223372036854775
SET b 5 PX 9223372036854775807
SET b 5 PX 1.5
SET b 5 PX 05
SET b 5 FOO
SET b 5 PXAT 1000
EXISTS b
SET b 5 PXAT 99999999999999
TYPE b
EXISTS a a b none
TYPE none
TTL none
PTTL none
TTL a
PERSIST b
PERSIST b
PERSIST none
PTTL b
PEXPIRE b 1000000000 XX
PEXPIRE b 1000000000 NX
PEXPIRE b 2000000000 LT
PEXPIRE b 2000000000 GT
PTTL b
PEXPIRE b 1000000000 gt
PEXPIRE b 1000000000 xx lt
PTTL b
PEXPIRE b 10 NX XX
PEXPIRE b 10 GT LT
PEXPIRE b 10 foo
PEXPIRE b foo
PEXPIRE b 9223372036854775807
PEXPIRE none 10
PEXPIRE none foo
EXPIRE b 9223372036854775807
EXPIRE b 1000000
EXPIREAT b 99999999999
PEXPIREAT b 99999999999999
PTTL b
PEXPIRE a 100 GT
PEXPIRE b -1
EXISTS b
PEXPIREAT a 1000
EXISTS a
DEL a b none
SET a 1
SET b 1
DEL a b none
DEL
INCR n
INCRBY n 41
INCRBY n -2
DECR n
GET n
INCRBY n 9223372036854775807
INCRBY n x
SET n x
INCR n
SET n 01
INCR n
SET n -0
INCR n
PEXPIRE n 1000000000
SET n 7 KEEPTTL
INCR n
PTTL n
HSET h
HSET h f
HSET h f 1 g
HSET h f 1 g 2
HSET h f 3 i 4
HGET h f
HGET h none
HGET none f
HMGET h f none g
HMGET none f g
HGETALL h
HGETALL none
HKEYS h
HVALS h
HKEYS none
HLEN h
HLEN none
HEXISTS h f
HEXISTS h none
HEXISTS none f
HINCRBY h f 5
HINCRBY h new 9223372036854775807
HINCRBY h new 1
HINCRBY h f x
HSET h word abc
HINCRBY h word 1
HINCRBY made f 1
PEXPIRE h 1000000000
HDEL h f
PTTL h
HDEL h none none
HDEL none f
HDEL h f g i new word
EXISTS h
HDEL made f
TYPE made
ZADD z
ZADD z 1
ZADD z 1 a
ZADD z 1 a 2
ZADD z 2 b 3 c
ZADD z 2 aa 2 B
TYPE z
ZRANGE z 0 -1
ZRANGE z 0 -1 WITHSCORES
ZRANGE z 1 1
ZRANGE z -2 -1
ZRANGE z -100 1
ZRANGE z 3 100
ZRANGE z 4 3
ZRANGE z -1 -100
ZRANGE z a 1
ZRANGE z 0 1 FOO
ZRANGE none 0 -1
ZADD z NX 9 a 9 d
ZADD z XX 9 a 9 e
ZADD z GT 8 a 10 b
ZADD z LT 8 a 11 b
ZADD z CH 8 a 12 b 1 f
ZADD z GT CH XX 9 a
ZADD z NX XX 1 a
ZADD z NX GT 1 a
ZADD z GT LT 1 a
ZADD none XX 1 a
EXISTS none
ZADD z x a
ZADD z nan a
ZADD z '' a
ZADD z 1 a x b
ZADD z 1e17 e17 0.1 tenth 1700000000000001 us inf inf -inf minf 1e300 big -0 zero 3.0 three
ZRANGE z 0 -1 WITHSCORES
ZSCORE z us
ZSCORE z tenth
ZSCORE z inf
ZSCORE z none
ZSCORE none a
ZRANK z a
ZRANK z none
ZRANK none a
ZCARD z
ZCARD none
ZCOUNT z -inf +inf
ZCOUNT z 1 9
ZCOUNT z (1 (9
ZCOUNT z (9 1
ZCOUNT z foo 3
ZCOUNT z 1 ''
ZCOUNT none 1 2
ZRANGEBYSCORE z -inf (1700000000000001
ZRANGEBYSCORE z 1 10 WITHSCORES
ZRANGEBYSCORE z -inf inf LIMIT 1 2
ZRANGEBYSCORE z -inf inf LIMIT 1 -1
ZRANGEBYSCORE z -inf inf LIMIT 0 0
ZRANGEBYSCORE z -inf inf LIMIT 1
ZRANGEBYSCORE none 1 2
ZREMRANGEBYSCORE z 1 (9
ZREMRANGEBYSCORE none 1 2
ZPOPMIN z
ZPOPMIN z 2
ZPOPMIN z 0
ZPOPMIN z -1
ZPOPMIN z x
ZPOPMIN z 1 2
ZPOPMIN none
PEXPIRE z 1000000000
ZREM z us none us
PTTL z
ZREM none us
ZPOPMIN z 1000
EXISTS z
ZADD z 1 a
ZREM z a
EXISTS z
PUBLISH nobody hears
PUBLISH nobody
PUBSUB
PUBSUB FOO
PUBSUB NUMSUB
PUBSUB numsub a b
TIME now
SET s 1
HSET h f 1
ZADD z 1 m
FLUSHALL NOW
FLUSHALL a b
FLUSHALL ASYNC
EXISTS s h z
EVAL
EVAL x
EVAL return(1) -1
EVAL return(1) 2 a
EVAL return(1) x
EVAL return(1) 0)";
    std::istringstream stream{lines};
    for (std::string line; std::getline(stream, line);) {
        if (!line.empty()) expect_same(line);
    }
}

TEST_F(ModelRedisTest, refuses_a_key_of_another_type) {
    const std::array made{"SET s 1", "HSET h f 1", "ZADD z 1 m"};
    const std::array used{"GET ? ",
                          "SET ? 1 GET",
                          "INCR ?",
                          "INCRBY ? 1",
                          "INCRBY ? x",
                          "HSET ? f 1",
                          "HGET ? f",
                          "HMGET ? f",
                          "HDEL ? f",
                          "HEXISTS ? f",
                          "HLEN ?",
                          "HKEYS ?",
                          "HVALS ?",
                          "HGETALL ?",
                          "HINCRBY ? f 1",
                          "HINCRBY ? f x",
                          "ZADD ? 1 m",
                          "ZADD ? x m",
                          "ZREM ? m",
                          "ZSCORE ? m",
                          "ZRANK ? m",
                          "ZCARD ?",
                          "ZCOUNT ? 1 2",
                          "ZCOUNT ? x 2",
                          "ZRANGE ? 0 -1",
                          "ZRANGE ? x -1",
                          "ZPOPMIN ?",
                          "ZPOPMIN ? 0",
                          "ZPOPMIN ? x",
                          "ZADD ? XX 1 m",
                          "ZRANGEBYSCORE ? 1 2",
                          "ZREMRANGEBYSCORE ? 1 2",
                          "SET ? 1",
                          "SET ? 1 KEEPTTL"};
    for (const std::string use : used) {
        for (const char* const make : made) expect_same(make);
        for (const char* const key : {"s", "h", "z"}) {
            std::string line = use;
            expect_same(line.replace(line.find('?'), 1, key));
        }
        expect_same_content({"s", "h", "z"});
        expect_same("DEL s h z");
    }
}

TEST_F(ModelRedisTest, expires_keys_by_its_clock) {
    const auto expire = [this](const char* line) {
        expect_same(line);
        EXPECT_TRUE(eventually([this] { return redis_.keys().empty(); }));
        model_.advance(2ms);
        EXPECT_TRUE(model_.keys().empty());
        expect_same_content({"a"});
        expect_same("PERSIST a");
        expect_same("PEXPIRE a 100");
    };
    expire("SET a 1 PX 1");
    expect_same("HSET a f 1");
    expire("PEXPIRE a 1");
    expect_same("ZADD a 1 m");
    expire("PEXPIRE a 1");
}

TEST_F(ModelRedisTest, knows_what_an_acl_forbids) {
    redis_.command({"ACL", "SETUSER", "default", "-get", "-pubsub", "-pexpire"});
    for (const char* const name : {"GET", "PubSub", "pexpire"}) model_.deny(name);
    for (const char* const line : {"GET a", "GET", "get a b", "PUBSUB NUMSUB", "PEXPIRE a 5"}) {
        expect_same(line);
    }
    expect_same_script("return redis.call('GET', KEYS[1])");
    expect_same_script("return redis.pcall('GET', KEYS[1])");
    expect_same_script("return redis.call('GET')");
    expect_same_script("return redis.call('PUBSUB', 'NUMSUB', 'x')");
    expect_same_script("return {redis.pcall('PEXPIRE', KEYS[1], 5)}");
    redis_.command({"ACL", "SETUSER", "default", "+get"});
    model_.deny("get", false);
    expect_same("GET a");
}

TEST_F(ModelRedisTest, knows_what_a_full_server_refuses) {
    expect_same("SET a 1");
    set_full(true);
    for (const char* const first :
         {"'GET', 'a'", "'SET', 'a', 1", "'HSET', 'b', 'f', 1", "'ZADD', 'b', 1, 'm'",
          "'INCR', 'a'", "'HINCRBY', 'b', 'f', 1", "'SETRANGE', 'a', 0, 'x'", "'ZREM', 'b', 'm'",
          "'DEL', 'b'", "'PEXPIRE', 'b', 1000000", "'PUBLISH', 'c', 'm'"}) {
        const std::string call = std::string{"redis.pcall("} + first + ")";
        expect_same_script("return " + call);
        expect_same_script("return {" + call + ", redis.pcall('SET', KEYS[1], 1)}");
        expect_same_content({"a", "b"});
    }
    expect_same_script("return redis.call('SET', KEYS[1], 1)");
    set_full(false);
    expect_same_script("return redis.call('SET', KEYS[1], 1)");
}

TEST_F(ModelRedisTest, counts_subscribers) {
    RawRedis subscriber{server_};
    subscriber.command({"SUBSCRIBE", "channel"});
    model_.set_subscribers("channel", 1);
    expect_same("PUBSUB NUMSUB channel other");
    expect_same("PUBLISH channel hello");
    expect_same("PUBLISH other hello");
    expect_same_script(
        "return {redis.call('PUBLISH', 'channel', ''), "
        "redis.call('PUBSUB', 'NUMSUB', 'channel')}");
}

// ---- Scripts ------------------------------------------------------------------------------------

TEST_F(ModelRedisTest, runs_scripts) {
    for (const char* const script : {
             // What is returned.
             "return nil",
             "return",
             "",
             "return true",
             "return false",
             "return 'text'",
             "return 3",
             "return -3",
             "return 3.99",
             "return -3.99",
             "return 2^53",
             "return 2^62",
             "return 2^63",
             "return -2^63",
             "return 1/0",
             "return 0/0",
             "return {}",
             "return {1, 2.5, 'three', true, false, {4, {5}}}",
             "return {1, nil, 3}",
             "return {ok = 'fine'}",
             "return {err = 'My words'}",
             "return {err = 'My\\nwords\\n'}",
             "return {ok = 'a\\r\\nb'}",
             "return {ok = 1}",
             "return {err = 1}",
             "return {ok = 'a', err = 'b'}",
             "return {1, {err = 'E inside'}, {ok = 'inside'}}",
             "return {x = 1}",
             "return {1, 2, x = 3}",
             "return print_not",
             "return 'a\\0b'",
             "return redis.status_reply('FINE')",
             "return redis.error_reply('MY words')",
             "return redis.error_reply('word')",
             "return redis.error_reply('-MY words')",
             "return redis.error_reply('MY words\\n')",
             "return redis.error_reply('A ')",
             "return redis.error_reply(5)",
             "return redis.error_reply('a', 'b')",
             "return redis.status_reply()",
             "return redis.sha1hex('')",
             "return function() end",
             // What comes in.
             "return KEYS",
             "return ARGV",
             "return #KEYS",
             "return KEYS[3]",
             "return ARGV[2] + 1",
             "return tonumber(ARGV[1])",
             "KEYS[1] = 'x' return KEYS",
             // What commands answer.
             "return redis.call('GET', KEYS[1])",
             "return redis.call('GET', KEYS[1]) == false",
             "return redis.call('SET', KEYS[1], ARGV[1])",
             "return redis.call('SET', KEYS[1], ARGV[1]).ok",
             "return redis.call('get', KEYS[1])",
             "return redis.call('SET', KEYS[1], '', 'NX')",
             "return type(redis.call('SET', KEYS[1], '', 'NX'))",
             "return redis.call('DEL', KEYS[1], KEYS[2])",
             "return redis.call('HSET', KEYS[2], 'f', 1, 'g', '')",
             "return redis.call('HMGET', KEYS[2], 'none', 'f', 'none')",
             "return redis.call('HMGET', KEYS[2], 'none', 'f', 'none')[3] == false",
             "return redis.call('HGETALL', KEYS[2])",
             "return redis.call('HGETALL', KEYS[1])",
             "return #redis.call('HGETALL', KEYS[1])",
             "return redis.call('PING')",
             "return redis.call('PING', 'x')",
             "return #redis.call('TIME')",
             "return tonumber(redis.call('TIME')[1]) > 1600000000",
             // Numbers on their way into commands.
             "return redis.call('PING', 1700000000000001)",
             "return redis.call('PING', 1e15)",
             "return redis.call('PING', 99999999999999999)",
             "return redis.call('PING', 1e17)",
             "return redis.call('PING', 2^53 + 1)",
             "return redis.call('PING', 2^60)",
             "return redis.call('PING', -2^60)",
             "return redis.call('PING', -12)",
             "return redis.call('PING', -0)",
             "return redis.call('PING', 0)",
             "return redis.call('PING', 0.1)",
             "return redis.call('PING', 1/3)",
             "return redis.call('PING', 1e300)",
             "return redis.call('PING', 1/0)",
             "return redis.call('PING', -1/0)",
             "return redis.call('PING', 1.5)",
             "return redis.call('PING', tostring(1700000000000001))",
             "return redis.call('PING', 1700000000000001 .. '')",
             "return redis.call('PING', string.format('%.0f', 1700000000000001))",
             "return {redis.call('ZADD', KEYS[1], 1700000000000001, 'm'), "
             "redis.call('ZSCORE', KEYS[1], 'm'), redis.call('DEL', KEYS[1])}",
             "return redis.call('SET', KEYS[1], 'x', 'PX', 1.5)",
             // What goes wrong.
             "return redis.call('HGET', KEYS[1], 'f')",
             "redis.call('SET', KEYS[1], 'text')",
             "return redis.call('HGET', KEYS[1], 'f')",
             "return redis.pcall('HGET', KEYS[1], 'f')",
             "return redis.pcall('HGET', KEYS[1], 'f').err",
             "return type(redis.pcall('HGET', KEYS[1], 'f'))",
             "return {redis.pcall('HGET', KEYS[1], 'f')}",
             "return {pcall(redis.call, 'HGET', KEYS[1], 'f')}",
             "return {pcall(redis.pcall, 'HGET', KEYS[1], 'f')}",
             "return {pcall(error, 'x')}",
             "return {pcall(error, {err = 'x'})}",
             "return {pcall(error, {x = 'x'})}",
             "return {pcall(error)}",
             "return {pcall(error, 5)}",
             "return pcall(function() return 1, 2 end)",
             "return {pcall(function() return 1, 2 end)}",

             "redis.call('SET', KEYS[2], 'done') redis.call('HGET', KEYS[1], 'f')",
             "return redis.call('GET', KEYS[2])",
             "return redis.call()",
             "return redis.pcall()",
             "return redis.call('GET', {})",
             "return redis.pcall('GET', nil)",
             "return redis.call('GET', true)",
             "return redis.call('FOO')",
             "return redis.call(1)",
             "return redis.call('GET')",
             "return redis.call('HSET', KEYS[1], 'f')",
             "return redis.call('HSET', KEYS[1], 'f', 1, 'g')",
             "return redis.call('PUBSUB')",
             "return redis.call('PUBSUB', 'FOO')",
             "return redis.call('EVAL', 'return 1', 0)",
             "return redis.call('INCR', KEYS[1])",
             "return redis.call('PEXPIRE', KEYS[1], 'x')",
             "return redis.call('SET', KEYS[1], 'x', 'PX', 0)",
             "error('boo')",
             "error('boo', 0)",
             "error()",
             "error(5)",
             "error(true)",
             "error({err = 'MY error'})",
             "error({err = 'word'})",
             "local t = nil\nreturn t.x",
             "\n\nreturn 1 + {}",
             "return nil .. ''",
             "local function f() error('deep') end\n\nf()",
             "return redis.foo == nil",
             "return redis.foo()",
             "return }",
             "return 'open",
             "assert(false)",
             "assert(false, 'said')",
             "assert(nil, {err = 'T able'})",
             "return select('#', unpack(redis.call('HMGET', KEYS[2], 'x')))",
             // The sandbox.
             "x = 1",
             "return x",
             "redis = nil",
             "redis.call = nil",
             "string.upper = nil",
             "KEYS = nil",
             "KEYS = {}",
             "_G.x = 1",
             "_G.KEYS = 1",
             "return _G.x",
             "rawset(_G, 'x', 1)",
             "setmetatable(_G, {})",
             "rawset(redis, 'x', 1)",
             "function f() end",
             "local t = rawset({}, 'x', 1) return t.x",
             "local t = setmetatable({}, {__index = function() return 8 end}) return t.x",
             "setmetatable(1)",
             "return print",
             "return os",
             "return io",
             "return require",
             "return dofile",
             "return loadfile",
             "return debug",
             "return package",
             "return loadstring('return 5')()",
             "return loadstring('x = 5')()",
             "return type(table.insert)",
             "return math.floor(2.7)",
             "return ('abc'):upper()",
             "local t = {3, 1, 2} table.sort(t) return t",
             "return table.concat({'a', 'b'}, ',')",
             "return string.format('%d|%s|%5.1f', 3, 'x', 2.25)",
             "return {next({})}",
             "return #'abc'",
             "return {string.find('hello', 'l+')}",
             "return tostring(1e15)",
             "return tostring(123456789012345678)",
             "return tostring(nil)",
             "return type(_G)",
         }) {
        expect_same_script(script);
    }
}

// ---- The library's own scripts ------------------------------------------------------------------

TEST_F(ModelRedisTest, runs_the_librarys_scripts) {
    const std::array situations{
        "DEL job",
        "SET job mine",
        "SET job mine PX 3000000",
        "SET job others",
        "SET job others PX 3000000",
        "HSET job mine 1",
        "HSET job mine 2",
        "HSET job mine 2|PEXPIRE job 3000000",
        "HSET job others 1",
        "HSET job others 1|PEXPIRE job 3000000",
        "HSET job others 1 mine 2",
        "HSET job mine word",
        "ZADD job 1 mine",
    };
    const auto scripts_of = [](const LockScripts& all) {
        return std::array{&all.acquire, &all.extend,       &all.release,
                          &all.inspect, &all.force_unlock, &all.nest};
    };
    std::vector<std::string> sources;
    for (const LockScripts* const all : {&lua::on_string(), &lua::on_hash()}) {
        for (const Script* const script : scripts_of(*all)) {
            if (!script->source().empty()) sources.emplace_back(script->source());
        }
    }
    const auto set_up = [this](const std::string& situation) {
        expect_same("FLUSHALL");
        std::istringstream stream{situation};
        for (std::string line; std::getline(stream, line, '|');) expect_same(line);
    };
    for (const std::string& source : sources) {
        const bool nests = source == lua::on_hash().nest.source();
        for (const std::string lease : {"0", "1000000", "5000000", "2500000.5", "word"}) {
            Words call{"EVAL", source, "1", "job", "mine", lease};
            if (nests) call.insert(call.end() - 1, "3");
            for (const std::string situation : situations) {
                SCOPED_TRACE(situation);
                set_up(situation);
                expect_same(call);
                expect_same_content({"job"});
                expect_same(call);  // and again
                expect_same_content({"job"});
            }
            // After its end.
            set_up("DEL job");
            for (const std::string last : {"SET job others PX 1", "HSET job others 1"}) {
                expect_same(last);
                if (last.starts_with("HSET")) expect_same("PEXPIRE job 1");
                EXPECT_TRUE(eventually([this] { return redis_.keys().empty(); }));
                model_.advance(2ms);
                expect_same(call);
                expect_same_content({"job"});
                expect_same("DEL job");
            }
            // Where the ACL forbids what ends a lock.
            redis_.command({"ACL", "SETUSER", "default", "-pexpire"});
            model_.deny("pexpire");
            set_up("DEL job");
            expect_same(call);
            expect_same_content({"job"});
            redis_.command({"ACL", "SETUSER", "default", "+pexpire"});
            model_.deny("pexpire", false);
            // Where the server has no memory left.
            for (const std::string situation : situations) {
                SCOPED_TRACE(situation);
                set_up(situation);
                set_full(true);
                expect_same(call);
                expect_same_content({"job"});
                set_full(false);
            }
        }
    }
}

// ---- At random ----------------------------------------------------------------------------------

/// Commands on few keys and few elements, so that they meet; some of them wrong.
class RandomCommands {
public:
    RandomCommands(unsigned seed, std::int64_t now_us) : random_{seed}, now_ms_{now_us / 1000} {}

    Words next() {
        Words words = command();
        if (below(20) == 0) words.pop_back();
        if (below(20) == 0) words.push_back(one_of("NX", "XX", "GT", "GET", "x", "1", "1.5", ""));
        if (words.empty()) return {"PING"};
        switch (below(4)) {
            case 0: return in_script("return redis.call(unpack(ARGV))", words);
            case 1: return in_script("return {redis.pcall(unpack(ARGV))}", words);
            default: return words;
        }
    }

    static std::vector<std::string> keys() { return {"a", "b", "c", "d"}; }

private:
    Words command() {
        switch (below(39)) {
            case 0: return {"GET", key()};
            case 1: return {"SET", key(), value()};
            case 2: return {"SET", key(), value(), one_of("NX", "XX", "KEEPTTL", "GET")};
            case 3: return {"SET", key(), value(), "PX", time()};
            case 4: return {"SET", key(), value(), one_of("NX", "XX", "GET"), "PX", time()};
            case 5: return {"DEL", key()};
            case 6: return {"DEL", key(), key()};
            case 7: return {"EXISTS", key(), key()};
            case 8: return {"TYPE", key()};
            case 9: return {"PTTL", key()};
            case 10: return {"PEXPIRE", key(), time()};
            case 11: return {"PEXPIRE", key(), time(), one_of("NX", "XX", "GT", "LT")};
            case 12: return {"PEXPIREAT", key(), instant()};
            case 13: return {"PEXPIREAT", key(), instant(), one_of("NX", "XX", "GT", "LT")};
            case 14: return {"PERSIST", key()};
            case 15: return {"HSET", key(), element(), value()};
            case 16: return {"HSET", key(), element(), value(), element(), value()};
            case 17: return {"HGET", key(), element()};
            case 18: return {"HMGET", key(), element(), element()};
            case 19: return {"HDEL", key(), element()};
            case 20: return {"HDEL", key(), element(), element(), element()};
            case 21: return {"HEXISTS", key(), element()};
            case 22: return {"HLEN", key()};
            case 23: return {"HKEYS", key()};
            case 24: return {"HGETALL", key()};
            case 25: return {"HINCRBY", key(), element(), value()};
            case 26: return {"INCR", key()};
            case 27: return {"INCRBY", key(), value()};
            case 28: return {"ZADD", key(), score(), element()};
            case 29: return {"ZADD", key(), score(), element(), score(), element()};
            case 30:
                return {"ZADD", key(), one_of("NX", "XX", "GT", "LT", "CH"), score(), element()};
            case 31: return {"ZREM", key(), element(), element()};
            case 32: return {"ZSCORE", key(), element()};
            case 33: return {"ZRANK", key(), element()};
            case 34: return {"ZCARD", key()};
            case 35: return {"ZCOUNT", key(), bound(), bound()};
            case 36: return {"ZRANGE", key(), rank(), rank(), "WITHSCORES"};
            case 37: return {"ZRANGEBYSCORE", key(), bound(), bound(), "WITHSCORES"};
            default: return {"ZPOPMIN", key()};
        }
    }

    static Words in_script(const char* script, const Words& words) {
        Words call{"EVAL", script, std::to_string(keys().size())};
        for (const std::string& key : keys()) call.push_back(key);
        call.insert(call.end(), words.begin(), words.end());
        return call;
    }

    std::int64_t below(std::int64_t limit) {
        return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
    }
    template <typename... Words>
    std::string one_of(Words... words) {
        const std::array<const char*, sizeof...(words)> all{words...};
        return all.at(static_cast<std::size_t>(below(sizeof...(words))));
    }

    std::string key() { return one_of("a", "b", "c", "d"); }
    std::string element() { return one_of("m", "n", "o", "p", ""); }
    std::string value() { return one_of("1", "2", "-3", "x", "", "9223372036854775807", "1.5"); }
    std::string score() {
        return one_of("1", "2", "2", "1.5", "-3", "inf", "-inf", "1700000000000001", "1e20", "0.1",
                      "x", "-0", "1e-7");
    }
    std::string bound() { return one_of("-inf", "inf", "1", "(1", "2", "(2", "1.5", "x"); }
    std::string rank() { return one_of("0", "1", "-1", "-2", "-9", "9", "x"); }

    /// Far apart from each other, so that a few seconds of the server's make no difference.
    std::string time() {
        if (below(8) == 0) return one_of("0", "-1", "x");
        return std::to_string((1 + below(1'000'000)) * 1'000'000);
    }
    std::string instant() {
        if (below(8) == 0) return one_of("0", "1000", "x");
        return std::to_string(now_ms_ + (1 + below(1'000'000)) * 1'000'000 + 500'000);
    }

    std::mt19937_64 random_;
    std::int64_t now_ms_;
};

TEST(ModelRedis, has_again_what_a_snapshot_has_and_it_ends_when_it_would_have) {
    ModelRedis model;
    model.command(Words{"SET", "a", "first", "PX", "100"});
    const auto before = model.snapshot();
    model.command(Words{"SET", "a", "second"});
    model.command(Words{"SET", "b", "there"});
    model.advance(50ms);
    model.restore(*before);
    EXPECT_EQ(model.command(Words{"GET", "a"}), Value::of("first"));
    EXPECT_EQ(model.command(Words{"PTTL", "a"}), Value::of(std::int64_t{50}));
    EXPECT_TRUE(model.command(Words{"GET", "b"}).is_nil());
}

TEST(ModelRedis, counts_what_has_written_something) {
    ModelRedis model;
    model.command(Words{"SET", "a", "1"});
    model.command(Words{"PEXPIRE", "a", "100"});
    model.command(Words{"EVAL", "return redis.call('HSET', KEYS[1], 'f', '1')", "1", "h"});
    EXPECT_EQ(model.writes(), 3U);
    for (const char* const line : {"SET a 2 NX", "GET a", "DEL b", "PEXPIRE b 100", "INCR h"}) {
        model.command(words_of(line));
    }
    EXPECT_EQ(model.writes(), 3U);
}

TEST_F(ModelRedisTest, agrees_on_random_commands) {
    model_.set_strict_keys(false);  // no more than Redis is outside a cluster
    for (unsigned seed = 0; seed < 20; ++seed) {
        RandomCommands random{seed, model_.now_us()};
        std::vector<Words> commands;
        for (int i = 0; i < 500; ++i) commands.push_back(random.next());
        const std::vector<RawReply> replies = redis_.pipeline(commands);
        ASSERT_EQ(replies.size(), commands.size());
        for (std::size_t i = 0; i < commands.size(); ++i) {
            compare(commands[i], value_of(replies[i]));
            ASSERT_FALSE(HasFailure()) << "seed " << seed << ", command " << i;
        }
        expect_same_content(RandomCommands::keys());
        expect_same("FLUSHALL");
    }
}

}  // namespace
}  // namespace redlatch::test
