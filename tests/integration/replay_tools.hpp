#pragma once

#include "granted_tools.hpp"
#include <redlatch/core/server_clock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <sstream>
#include <string>

// What the tests of commands that reach the server twice have in common.

namespace redlatch::test {

/// What a client whose copies must not be late gives a command: copies are late when that is over.
inline constexpr std::chrono::milliseconds long_timeout{10'000};

/// The same where copies have to be late, which is waited for.
inline constexpr std::chrono::milliseconds short_timeout{2000};

/// An answer, with what differs from run to run replaced by what it is: a time in microseconds, or a
/// fencing token, which is one; a ttl; a token.
inline std::string gist(const RawReply& reply) {
    using Type = RawReply::Type;
    if (reply.is_error()) return reply.text.substr(0, reply.text.find(' '));
    if (reply.type == Type::string) return reply.text.empty() ? "''" : "token";
    if (reply.type == Type::array) {
        std::string all;
        for (const RawReply& one : reply.elements) all += (all.empty() ? "" : " ") + gist(one);
        return "{" + all + "}";
    }
    if (reply.integer > 1'000'000'000'000) return "time";
    return reply.integer > 1000 ? "ttl" : std::to_string(reply.integer);
}

/// What a copy changes.
enum class Effect { none, place, lock };

/// What a copy is answered, and what it does.
struct Cell {
    std::string answer;
    Effect effect = Effect::none;
};

/// A script, what makes the library send it, and what the table says of it.
template <class Scene>
struct Row {
    std::string name;
    const Script* script;
    std::function<void(Scene&)> send;
    Cell at_once;
    Cell on_anothers;  ///< the token is dead, and another has what it would take
    Cell on_free;      ///< the token is dead, and nobody has it
    Cell too_late;     ///< the same, when nobody waits for its answer any more
};

/// A waiter's terms without the third: when it was seen.
inline std::string terms_without_time(const std::string& terms) {
    std::istringstream words{terms};
    std::string result;
    std::string word;
    for (int i = 0; words >> word; ++i) {
        if (i != 2) result += word + ' ';
    }
    return result;
}

/// The content of all keys, but for the time at which a waiter was seen and the ends of claims.
inline std::string content_of(RawRedis& redis) {
    std::ostringstream out;
    for (const std::string& key : redis.keys()) {
        out << key << " =";
        const std::string type = redis.type(key);
        if (type == "string") out << ' ' << *redis.get(key);
        if (type == "zset") {
            const bool is_lock = !key.starts_with("redlatch:");
            const auto members = redis.command({"ZRANGE", key, "0", "-1", "WITHSCORES"}).elements;
            for (std::size_t i = 0; i + 1 < members.size(); i += 2) {
                const bool is_end = is_lock && !members[i + 1].text.starts_with('-');
                out << ' ' << members[i].text << ' ' << (is_end ? "" : members[i + 1].text);
            }
        }
        if (type == "hash") {
            for (const auto& [field, value] : redis.hgetall(key)) {
                out << ' ' << field << ": " << terms_without_time(value);
            }
        }
        out << '\n';
    }
    return out.str();
}

/// Until nobody waits any more for the answer to what was sent up to now, by a client that gives a command so long.
inline void let_it_be_late(RawRedis& redis, std::chrono::milliseconds timeout) {
    const auto now = [&redis] {
        const RawReply time = redis.command({"TIME"});
        return std::stoll(time.elements.at(0).text) * 1'000'000 +
               std::stoll(time.elements.at(1).text);
    };
    const std::chrono::microseconds longest = timeout + detail::late_margin;
    const long long until = now() + longest.count();
    ASSERT_TRUE(eventually([&] { return now() > until; }));
}

}  // namespace redlatch::test
