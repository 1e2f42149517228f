#pragma once

// The scripts with a queue on a real server, as tests run them.

#include "lock_test.hpp"
#include <redlatch/core/grant.hpp>
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/scripts.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace redlatch::test {

using detail::Grant;
using detail::LockKeys;
using detail::parse_grant;
using Tokens = std::vector<std::string>;

/// A token as clients make it, of a client whose id is that digit all over.
inline std::string token(char digit) {
    return std::string(32, digit) + ":client:1:1";
}

inline std::string channel(const std::string& token) {
    return "redlatch:client:" + token.substr(0, 32);
}

inline const std::string holder = token('0');
inline const std::string a = token('a');
inline const std::string b = token('b');
inline const std::string c = token('c');
inline const std::string run_id(40, '7');

/// What an `acquire` asks for; one that has to ask from time to time, unless told otherwise.
struct Asking {
    std::string token;
    int lease = 60'000;
    int stay = 30'000;
    bool hears = false;
    bool fenced = false;
};

/// What an `acquire` is answered.
struct Answered {
    bool ours = false;
    long long ttl = 0;
    long long place = -1;
    long long time = 0;
    bool grants = false;
    long long fence = 0;
    std::string owner{};
};

struct Terms {
    std::string key_type;
    long long lease = 0;
    long long seen_until = 0;
    std::string hears;
    std::string fenced;
};

inline std::string to_string(KeyType key_type) {
    return key_type == KeyType::string ? "s" : "h";
}

inline const LockScripts& scripts_on(KeyType key_type) {
    return key_type == KeyType::string ? lua::on_string() : lua::on_hash();
}

/// A client's ear: subscribed to the channel of a token.
class Listener {
public:
    Listener(const RedisServer& server, const std::string& token) : connection_{server} {
        connection_.command({"SUBSCRIBE", channel(token)});
    }

    /// The next message, which has been or will be published.
    std::string next() {
        const RawReply message = connection_.next();
        EXPECT_EQ(message.elements.size(), 3U);
        return message.elements.size() == 3 ? message.elements[2].text : "";
    }
    std::optional<Grant> next_grant() { return parse_grant(next()); }

    /// The next message, if one was published up to now that was not read.
    std::optional<Grant> pending_grant() {
        const RawReply reply = connection_.command({"PING"});
        if (reply.elements.at(0).text != "message") return std::nullopt;
        connection_.next();  // what PING is answered
        return parse_grant(reply.elements.at(2).text);
    }

    /// All that were published up to now and not read.
    std::vector<Grant> pending_grants() {
        std::vector<Grant> all;
        RawReply reply = connection_.command({"PING"});
        for (; reply.elements.at(0).text == "message"; reply = connection_.next()) {
            if (auto grant = parse_grant(reply.elements.at(2).text)) all.push_back(*grant);
        }
        return all;
    }

    /// Nothing was published up to now that was not read.
    bool silent() { return connection_.command({"PING"}).elements.at(0).text == "pong"; }

private:
    RawRedis connection_;
};

/// What the script answers on that connection.
inline RawReply eval(RawRedis& redis, const Script& script, const std::vector<std::string>& keys,
                     const std::vector<std::string>& arguments) {
    RawRedis::Command command{"EVAL", std::string{script.source()}, std::to_string(keys.size())};
    command.insert(command.end(), keys.begin(), keys.end());
    command.insert(command.end(), arguments.begin(), arguments.end());
    return redis.command(command);
}

class Queue : public ::testing::TestWithParam<KeyType> {
protected:
    RawReply run(const Script& script, const std::vector<std::string>& arguments) {
        return eval(redis_, script, {keys_.lock, keys_.queue, keys_.waiters, keys_.fence},
                    arguments);
    }
    long long number(const Script& script, const std::vector<std::string>& arguments) {
        const RawReply reply = run(script, arguments);
        EXPECT_EQ(reply.type, RawReply::Type::integer) << reply.text;
        return reply.integer;
    }

    Answered acquire(const Asking& asking) { return acquire(asking, GetParam()); }
    Answered acquire(const Asking& asking, KeyType key_type) {
        const RawReply reply =
            run(scripts_on(key_type).acquire,
                {asking.token, std::to_string(asking.lease), std::to_string(asking.stay),
                 asking.hears ? "1" : "0", run_id, "0", asking.fenced ? "1" : "0"});
        const auto& answer = reply.elements;
        const bool ours = answer.size() == 5 && answer[0].integer == 1;
        EXPECT_TRUE(ours || (answer.size() == 6 && answer[0].integer == 0)) << reply.text;
        if (ours) {
            return {.ours = true, .ttl = answer[1].integer, .fence = answer[4].integer};
        }
        if (answer.size() != 6) return {};
        EXPECT_TRUE(answer[4].integer == 0 || answer[4].integer == 1);
        return {.ours = false,
                .ttl = answer[1].integer,
                .place = answer[2].integer,
                .time = answer[3].integer,
                .grants = answer[4].integer == 1,
                .owner = answer[5].text};
    }
    /// Somebody holds the lock.
    void hold() { ASSERT_TRUE(acquire({.token = holder}).ours); }
    /// The same in any key_type, whatever was there.
    void hold_by_hand(KeyType key_type, const std::string& token = holder) {
        redis_.del(keys_.lock);
        if (key_type == KeyType::string) {
            redis_.set(keys_.lock, token);
        } else {
            redis_.command({"HSET", keys_.lock, token, "1"});
        }
    }

    long long release(const std::string& token) {
        return number(scripts_.release, {token, run_id});
    }
    long long force() { return number(scripts_.force_unlock, {owner(), run_id}); }
    long long waiters() { return run(scripts_.inspect, {""}).elements.at(3).integer; }

    KeyType key_type() {
        return redis_.type(keys_.lock) == "hash" ? KeyType::hash : KeyType::string;
    }
    std::string owner() {
        if (key_type() == KeyType::string) return redis_.get(keys_.lock).value_or("");
        const auto fields = redis_.hgetall(keys_.lock);
        return fields.size() == 1 ? fields.begin()->first : "several";
    }
    void expect_owner(const std::string& token, int lease) {
        EXPECT_EQ(owner(), token);
        EXPECT_LE(redis_.pttl(keys_.lock), lease);
        EXPECT_GT(redis_.pttl(keys_.lock), lease - 8000);
        if (key_type() == KeyType::hash) {
            EXPECT_EQ(redis_.hgetall(keys_.lock).at(token), "1");
        }
    }
    void expect_free() { EXPECT_FALSE(redis_.exists(keys_.lock)); }

    Tokens queue() {
        Tokens tokens;
        for (const RawReply& token : redis_.command({"ZRANGE", keys_.queue, "0", "-1"}).elements) {
            tokens.push_back(token.text);
        }
        return tokens;
    }
    std::string score(const std::string& token) {
        return redis_.command({"ZSCORE", keys_.queue, token}).text;
    }
    bool has_terms(const std::string& token) {
        return redis_.hgetall(keys_.waiters).contains(token);
    }
    Terms terms(const std::string& token) {
        std::istringstream words{redis_.hgetall(keys_.waiters)[token]};
        Terms terms;
        words >> terms.key_type >> terms.lease >> terms.seen_until >> terms.hears >> terms.fenced;
        return terms;
    }
    /// In the queue, in that order, with terms, and nobody else.
    void expect_queue(const Tokens& expected) {
        EXPECT_EQ(queue(), expected);
        EXPECT_EQ(redis_.hgetall(keys_.waiters).size(), expected.size());
        for (const std::string& token : expected) EXPECT_TRUE(has_terms(token)) << token;
    }
    /// A place by hand, at the end.
    void put(const std::string& token, const std::string& terms) {
        const std::string last = std::to_string(1000 + queue().size());
        redis_.command({"ZADD", keys_.queue, last, token});
        redis_.command({"HSET", keys_.waiters, token, terms});
    }
    void put_dead(int count) { put_many(count, "dead", "1 0 0"); }
    /// Those whose client listened a moment ago.
    void put_unheard(int count) {
        put_many(count, "unheard", std::to_string(now() + 60'000'000) + " 1 0");
    }
    void put_many(int count, const std::string& name, const std::string& terms) {
        std::vector<RawRedis::Command> all;
        for (int i = 0; i < count; ++i) {
            const std::string token = name + std::to_string(i);
            all.push_back({"ZADD", keys_.queue, std::to_string(1000 + i), token});
            all.push_back(
                {"HSET", keys_.waiters, token, to_string(GetParam()) + " 60000 " + terms});
        }
        redis_.pipeline(all);
    }

    /// The server's clock, in microseconds.
    long long now() {
        const RawReply time = redis_.command({"TIME"});
        return std::stoll(time.elements.at(0).text) * 1'000'000 +
               std::stoll(time.elements.at(1).text);
    }

    /// All there is, but for the time that is left.
    std::string state() {
        std::ostringstream out;
        out << redis_.type(keys_.lock) << ' ' << owner() << " ttl "
            << (redis_.pttl(keys_.lock) > 0);
        if (key_type() == KeyType::hash) out << ' ' << redis_.hgetall(keys_.lock).begin()->second;
        for (const std::string& waiter : queue()) {
            const Terms known = terms(waiter);
            out << '\n' << score(waiter) << waiter << known.key_type << known.lease << known.hears;
        }
        for (const std::string& key : redis_.keys()) out << '\n' << key;
        return out.str();
    }

    RedisServer server_;
    RawRedis redis_{server_};
    LockKeys keys_{"job"};
    const LockScripts& scripts_ = scripts_on(GetParam());
};

/// All commands that a script uses inside, as its source says.
inline std::set<std::string> commands_inside(const Script& script) {
    std::set<std::string> names;
    const std::string_view source = script.source();
    const std::string_view mark = "call('";
    for (auto at = source.find(mark); at != source.npos; at = source.find(mark, at)) {
        at += mark.size();
        names.emplace(source.substr(at, source.find('\'', at) - at));
    }
    return names;
}

}  // namespace redlatch::test
