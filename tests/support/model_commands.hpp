#pragma once

// The model's commands, for model_redis.cpp.

#include "support/model_redis.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace redlatch::test::model {

using Value = ModelRedis::Value;
using Words = std::span<const std::string_view>;

/// Ends a command with an error reply. Never crosses a frame of Lua's.
struct Refused {
    std::string text;
};

// Writing a reply. One reply is used again and again, so its strings seldom need new memory.
inline void reply_nil(Value& out) {
    out.type = Value::Type::nil;
}
inline void reply(Value& out, std::int64_t number) {
    out.type = Value::Type::integer;
    out.integer = number;
}
inline void reply(Value& out, bool yes) {
    reply(out, std::int64_t{yes});
}
inline void reply(Value& out, std::size_t count) {
    reply(out, static_cast<std::int64_t>(count));
}
inline void reply(Value& out, std::string_view bytes) {
    out.type = Value::Type::string;
    out.text.assign(bytes);
}
inline void reply_status(Value& out, std::string_view words) {
    out.type = Value::Type::status;
    out.text.assign(words);
}
inline void reply_error(Value& out, std::string_view words) {
    out.type = Value::Type::error;
    out.text.assign(words);
}
inline void reply_array(Value& out) {
    out.type = Value::Type::array;
    out.elements.clear();
}

using Digits = std::array<char, 32>;

/// As Redis and its Lua print a number; most are whole, and those are printed fast.
std::string_view print(double number, Digits& digits);
std::string_view print(std::int64_t number, Digits& digits);

/// Only the shortest form is a number: no sign but '-', no zeros in front, no spaces.
std::optional<std::int64_t> to_integer(std::string_view text);
inline constexpr const char* not_integer = "ERR value is not an integer or out of range";

std::string lower_case(std::string_view word);

/// In the order in which fields came, as in a small hash of Redis'.
class Hash {
public:
    using Field = std::pair<std::string, std::string>;

    std::string* find(std::string_view name) {
        const auto at = std::ranges::find(fields, name, &Field::first);
        return at == fields.end() ? nullptr : &at->second;
    }
    bool set(std::string_view name, std::string_view value) {
        if (std::string* const old = find(name)) {
            old->assign(value);
            return false;
        }
        fields.emplace_back(name, value);
        return true;
    }
    bool erase(std::string_view name) {
        const auto at = std::ranges::find(fields, name, &Field::first);
        if (at == fields.end()) return false;
        fields.erase(at);
        return true;
    }
    [[nodiscard]] bool empty() const { return fields.empty(); }

    std::vector<Field> fields;
};

/// Sorted by score, then by the bytes of the member.
class SortedSet {
public:
    using Element = std::pair<double, std::string>;

    auto find(std::string_view member) {
        return std::ranges::find(elements, member, &Element::second);
    }
    void insert(double score, std::string_view member) {
        if (score == 0) score = 0;  // no -0
        Element element{score, member};
        elements.insert(std::ranges::lower_bound(elements, element), std::move(element));
    }
    [[nodiscard]] bool empty() const { return elements.empty(); }

    std::vector<Element> elements;
};

struct Entry {
    std::variant<std::string, Hash, SortedSet> value;
    std::int64_t expires_ms = never;

    static constexpr std::int64_t never = -1;
};

struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
        return std::hash<std::string_view>{}(text);
    }
};

template <typename T>
using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

/// Everything that commands work on.
class Database {
public:
    [[nodiscard]] std::int64_t now_ms() const { return now_us / 1000; }

    [[nodiscard]] bool expired(const Entry& entry) const {
        return entry.expires_ms != Entry::never && now_ms() > entry.expires_ms;
    }

    Entry* find(std::string_view key) {
        const auto at = keys.find(key);
        if (at == keys.end()) return nullptr;
        if (!expired(at->second)) return &at->second;
        keys.erase(at);
        return nullptr;
    }

    bool erase(std::string_view key) {
        if (find(key) == nullptr) return false;
        keys.erase(keys.find(key));
        return true;
    }

    /// Null if there is no such key.
    template <typename T>
    T* find_as(std::string_view key) {
        Entry* const entry = find(key);
        if (entry == nullptr) return nullptr;
        T* const value = std::get_if<T>(&entry->value);
        if (value == nullptr) {
            throw Refused{"WRONGTYPE Operation against a key holding the wrong kind of value"};
        }
        return value;
    }

    template <typename T>
    T& make(std::string_view key) {
        if (T* const value = find_as<T>(key)) return *value;
        return std::get<T>(keys.emplace(key, Entry{T{}, Entry::never}).first->second.value);
    }

    /// A hash or sorted set that is empty does not exist.
    template <typename T>
    void erase_if_empty(std::string_view key, const T& value) {
        if (value.empty()) keys.erase(keys.find(key));
    }

    std::int64_t now_us = 0;
    StringMap<Entry> keys;
    std::uint64_t writes = 0;  ///< commands that have written
    StringMap<int> subscribers;
    bool keeps_messages = false;
    std::vector<std::pair<std::string, std::string>> messages;  ///< published, not yet told
};

/// Whether a command has written something, by its answer.
enum class Writes { never, unless_zero, always };

struct Command {
    std::string_view name;    ///< in lower case
    int arity;                ///< words in all; at least so many, if negative
    int first_key, last_key;  ///< 0 for none; -1 is the last word
    void (*handler)(Database& db, Words words, Value& out);  ///< null for EVAL
    Writes writes = Writes::never;

    /// Whether a server that is full refuses it.
    [[nodiscard]] bool may_take_memory() const {
        return writes == Writes::always && name != "zpopmin" && name != "flushall";
    }

    [[nodiscard]] bool fits(std::size_t words) const {
        const int count = static_cast<int>(words);
        return arity < 0 ? count >= -arity : count == arity;
    }

    /// Answers with an error reply where Redis would.
    void run(Database& db, Words words, Value& out) const;
};

/// Null if there is none.
const Command* find_command(std::string_view name);

}  // namespace redlatch::test::model
