#include "support/model_commands.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace redlatch::test::model {
namespace {

constexpr const char* not_float = "ERR value is not a valid float";
constexpr const char* syntax_error = "ERR syntax error";

std::string wrong_count(std::string_view name) {
    return "ERR wrong number of arguments for '" + std::string{name} + "' command";
}

// ---- Numbers and words as Redis reads and writes them ------------------------------------------

bool equals(std::string_view word, std::string_view upper_case) {
    return std::ranges::equal(word, upper_case, [](char a, char b) {
        return std::toupper(static_cast<unsigned char>(a)) == b;
    });
}

std::int64_t integer(std::string_view text, const char* otherwise = not_integer) {
    const auto number = to_integer(text);
    if (!number) throw Refused{otherwise};
    return *number;
}

/// `lax` as ZCOUNT reads the ends of a range: nothing at all is 0, and so on.
double floating(std::string_view text, const char* otherwise, bool lax = false) {
    if (const auto number = to_integer(text)) return static_cast<double>(*number);
    const std::string terminated{text};
    char* end = nullptr;
    errno = 0;
    const double number = std::strtod(terminated.c_str(), &end);
    const bool whole = end == terminated.c_str() + terminated.size();
    const bool strict =
        !terminated.empty() && std::isspace(static_cast<unsigned char>(terminated[0])) == 0 &&
        !(errno == ERANGE && (std::isinf(number) || std::fpclassify(number) == FP_ZERO));
    if (!whole || std::isnan(number) || !(strict || lax)) throw Refused{otherwise};
    return number;
}

// ---- Commands on keys of any type --------------------------------------------------------------

void del(Database& db, Words words, Value& out) {
    std::int64_t count = 0;
    for (const std::string_view key : words.subspan(1)) count += db.erase(key) ? 1 : 0;
    reply(out, count);
}

void exists(Database& db, Words words, Value& out) {
    std::int64_t count = 0;
    for (const std::string_view key : words.subspan(1)) count += db.find(key) != nullptr ? 1 : 0;
    reply(out, count);
}

void type(Database& db, Words words, Value& out) {
    constexpr std::array<const char*, 3> names{"string", "hash", "zset"};
    const Entry* const entry = db.find(words[1]);
    reply_status(out, entry == nullptr ? "none" : names.at(entry->value.index()));
}

std::int64_t time_to_live(Database& db, std::string_view key) {
    const Entry* const entry = db.find(key);
    if (entry == nullptr) return -2;
    if (entry->expires_ms == Entry::never) return -1;
    return entry->expires_ms - db.now_ms();
}

void pttl(Database& db, Words words, Value& out) {
    reply(out, time_to_live(db, words[1]));
}

void ttl(Database& db, Words words, Value& out) {
    const std::int64_t left = time_to_live(db, words[1]);
    reply(out, left < 0 ? left : (left + 500) / 1000);
}

/// In milliseconds since 1970; `base` is added to `time`, which comes in `unit` milliseconds.
std::int64_t instant(std::int64_t time, std::int64_t unit, std::int64_t base,
                     std::string_view name) {
    std::int64_t result = 0;
    if (__builtin_mul_overflow(time, unit, &result) ||
        __builtin_add_overflow(result, base, &result)) {
        throw Refused{"ERR invalid expire time in '" + std::string{name} + "' command"};
    }
    return result;
}

void set_expiry(Database& db, Words words, std::int64_t unit, std::int64_t base,
                std::string_view name, Value& out) {
    bool nx = false;
    bool xx = false;
    bool gt = false;
    bool lt = false;
    for (const std::string_view word : words.subspan(3)) {
        if (equals(word, "NX")) {
            nx = true;
        } else if (equals(word, "XX")) {
            xx = true;
        } else if (equals(word, "GT")) {
            gt = true;
        } else if (equals(word, "LT")) {
            lt = true;
        } else {
            throw Refused{"ERR Unsupported option " + std::string{word}};
        }
    }
    if (nx && (xx || gt || lt)) {
        throw Refused{"ERR NX and XX, GT or LT options at the same time are not compatible"};
    }
    if (gt && lt) {
        throw Refused{"ERR GT and LT options at the same time are not compatible"};
    }
    const std::int64_t when = instant(integer(words[2]), unit, base, name);
    Entry* const entry = db.find(words[1]);
    if (entry == nullptr) return reply(out, false);
    const std::int64_t old = entry->expires_ms;
    const bool endless = old == Entry::never;
    if ((nx && !endless) || (xx && endless) || (gt && (endless || when <= old)) ||
        (lt && !endless && when >= old)) {
        return reply(out, false);
    }
    if (when <= db.now_ms()) {
        db.erase(words[1]);
    } else {
        entry->expires_ms = when;
    }
    reply(out, true);
}

void expire(Database& db, Words words, Value& out) {
    set_expiry(db, words, 1000, db.now_ms(), "expire", out);
}
void pexpire(Database& db, Words words, Value& out) {
    set_expiry(db, words, 1, db.now_ms(), "pexpire", out);
}
void expireat(Database& db, Words words, Value& out) {
    set_expiry(db, words, 1000, 0, "expireat", out);
}
void pexpireat(Database& db, Words words, Value& out) {
    set_expiry(db, words, 1, 0, "pexpireat", out);
}

void persist(Database& db, Words words, Value& out) {
    Entry* const entry = db.find(words[1]);
    const bool ends = entry != nullptr && entry->expires_ms != Entry::never;
    if (ends) entry->expires_ms = Entry::never;
    reply(out, ends);
}

void flushall(Database& db, Words words, Value& out) {
    if (words.size() > 2 ||
        (words.size() == 2 && !equals(words[1], "ASYNC") && !equals(words[1], "SYNC"))) {
        throw Refused{syntax_error};
    }
    db.keys.clear();
    reply_status(out, "OK");
}

// ---- Strings -----------------------------------------------------------------------------------

void get(Database& db, Words words, Value& out) {
    const auto* const value = db.find_as<std::string>(words[1]);
    if (value == nullptr) return reply_nil(out);
    reply(out, std::string_view{*value});
}

struct SetOptions {
    bool nx = false, xx = false, keep_ttl = false, get = false;
    std::optional<std::string_view> time = {};
    std::int64_t unit = 1;
    bool absolute = false;
    std::string_view time_option = {};
};

SetOptions set_options(Words words) {
    SetOptions options;
    for (std::size_t i = 3; i < words.size(); ++i) {
        const std::string_view word = words[i];
        const bool more = i + 1 < words.size();
        const auto timed = [&](std::string_view name, std::int64_t unit, bool absolute) {
            if (!equals(word, name) || options.keep_ttl || !more ||
                (options.time && options.time_option != name)) {
                return false;
            }
            options.time = words[++i];
            options.unit = unit;
            options.absolute = absolute;
            options.time_option = name;
            return true;
        };
        if (equals(word, "NX") && !options.xx) {
            options.nx = true;
        } else if (equals(word, "XX") && !options.nx) {
            options.xx = true;
        } else if (equals(word, "GET")) {
            options.get = true;
        } else if (equals(word, "KEEPTTL") && !options.time) {
            options.keep_ttl = true;
        } else if (!timed("PX", 1, false) && !timed("EX", 1000, false) && !timed("PXAT", 1, true) &&
                   !timed("EXAT", 1000, true)) {
            throw Refused{syntax_error};
        }
    }
    return options;
}

void set(Database& db, Words words, Value& out) {
    const SetOptions options = set_options(words);
    std::int64_t expires = Entry::never;
    if (options.time) {
        const std::int64_t time = integer(*options.time);
        if (time <= 0) throw Refused{"ERR invalid expire time in 'set' command"};
        expires = instant(time, options.unit, options.absolute ? 0 : db.now_ms(), "set");
    }
    if (options.get) get(db, words, out);
    Entry* entry = db.find(words[1]);
    if ((options.nx && entry != nullptr) || (options.xx && entry == nullptr)) {
        if (!options.get) reply_nil(out);
        return;
    }
    if (entry == nullptr) entry = &db.keys[std::string{words[1]}];
    if (auto* const old = std::get_if<std::string>(&entry->value)) {
        old->assign(words[2]);
    } else {
        entry->value = std::string{words[2]};
    }
    if (!options.keep_ttl) entry->expires_ms = expires;
    if (!options.get) reply_status(out, "OK");
}

void setrange(Database& db, Words words, Value& out) {
    const std::int64_t offset = integer(words[2]);
    if (offset < 0) throw Refused{"ERR offset is out of range"};
    auto* const old = db.find_as<std::string>(words[1]);
    const std::string_view bytes = words[3];
    if (bytes.empty()) return reply(out, old == nullptr ? 0 : old->size());
    std::string& value = db.make<std::string>(words[1]);
    const auto start = static_cast<std::size_t>(offset);
    value.resize(std::max(value.size(), start + bytes.size()));
    value.replace(start, bytes.size(), bytes);
    reply(out, value.size());
}

void add(Database& db, std::string_view key, std::int64_t step, Value& out) {
    const auto* const old = db.find_as<std::string>(key);
    std::int64_t number = old == nullptr ? 0 : integer(*old);
    if (__builtin_add_overflow(number, step, &number)) {
        throw Refused{"ERR increment or decrement would overflow"};
    }
    Digits digits;
    db.make<std::string>(key).assign(print(number, digits));
    reply(out, number);
}

void incr(Database& db, Words words, Value& out) {
    add(db, words[1], 1, out);
}
void decr(Database& db, Words words, Value& out) {
    add(db, words[1], -1, out);
}
void incrby(Database& db, Words words, Value& out) {
    add(db, words[1], integer(words[2]), out);
}

// ---- Hashes ------------------------------------------------------------------------------------

void hset(Database& db, Words words, Value& out) {
    if (words.size() % 2 != 0) throw Refused{wrong_count("hset")};
    auto& hash = db.make<Hash>(words[1]);
    std::int64_t count = 0;
    for (std::size_t i = 2; i < words.size(); i += 2) {
        count += hash.set(words[i], words[i + 1]) ? 1 : 0;
    }
    reply(out, count);
}

void hget(Database& db, Words words, Value& out) {
    auto* const hash = db.find_as<Hash>(words[1]);
    const std::string* const value = hash == nullptr ? nullptr : hash->find(words[2]);
    if (value == nullptr) return reply_nil(out);
    reply(out, std::string_view{*value});
}

void hmget(Database& db, Words words, Value& out) {
    auto* const hash = db.find_as<Hash>(words[1]);
    reply_array(out);
    for (const std::string_view name : words.subspan(2)) {
        const std::string* const value = hash == nullptr ? nullptr : hash->find(name);
        out.elements.push_back(value == nullptr ? Value{} : Value::of(*value));
    }
}

void hdel(Database& db, Words words, Value& out) {
    auto* const hash = db.find_as<Hash>(words[1]);
    if (hash == nullptr) return reply(out, false);
    std::int64_t count = 0;
    for (const std::string_view name : words.subspan(2)) count += hash->erase(name) ? 1 : 0;
    db.erase_if_empty(words[1], *hash);
    reply(out, count);
}

void hexists(Database& db, Words words, Value& out) {
    auto* const hash = db.find_as<Hash>(words[1]);
    reply(out, hash != nullptr && hash->find(words[2]) != nullptr);
}

void hlen(Database& db, Words words, Value& out) {
    const auto* const hash = db.find_as<Hash>(words[1]);
    reply(out, hash == nullptr ? 0 : hash->fields.size());
}

void list_fields(Database& db, std::string_view key, bool names, bool values, Value& out) {
    const auto* const hash = db.find_as<Hash>(key);
    reply_array(out);
    if (hash == nullptr) return;
    for (const auto& [name, value] : hash->fields) {
        if (names) out.elements.push_back(Value::of(name));
        if (values) out.elements.push_back(Value::of(value));
    }
}

void hkeys(Database& db, Words words, Value& out) {
    list_fields(db, words[1], true, false, out);
}
void hvals(Database& db, Words words, Value& out) {
    list_fields(db, words[1], false, true, out);
}
void hgetall(Database& db, Words words, Value& out) {
    list_fields(db, words[1], true, true, out);
}

void hincrby(Database& db, Words words, Value& out) {
    const std::int64_t step = integer(words[3]);
    auto* const hash = db.find_as<Hash>(words[1]);
    const std::string* const old = hash == nullptr ? nullptr : hash->find(words[2]);
    std::int64_t number = old == nullptr ? 0 : integer(*old, "ERR hash value is not an integer");
    if (__builtin_add_overflow(number, step, &number)) {
        throw Refused{"ERR increment or decrement would overflow"};
    }
    Digits digits;
    db.make<Hash>(words[1]).set(words[2], print(number, digits));
    reply(out, number);
}

// ---- Sorted sets -------------------------------------------------------------------------------

Value number(double score) {
    Digits digits;
    return Value::of(print(score, digits));
}

void zadd(Database& db, Words words, Value& out) {
    bool nx = false;
    bool xx = false;
    bool gt = false;
    bool lt = false;
    bool changed = false;
    std::size_t first = 2;
    for (; first < words.size(); ++first) {
        if (equals(words[first], "NX")) {
            nx = true;
        } else if (equals(words[first], "XX")) {
            xx = true;
        } else if (equals(words[first], "GT")) {
            gt = true;
        } else if (equals(words[first], "LT")) {
            lt = true;
        } else if (equals(words[first], "CH")) {
            changed = true;
        } else if (equals(words[first], "INCR")) {
            throw Refused{"ERR not in the model: ZADD's INCR"};
        } else {
            break;
        }
    }
    const Words pairs = words.subspan(first);
    if (pairs.empty() || pairs.size() % 2 != 0) throw Refused{syntax_error};
    if (nx && xx) {
        throw Refused{"ERR XX and NX options at the same time are not compatible"};
    }
    if ((nx && (gt || lt)) || (gt && lt)) {
        throw Refused{"ERR GT, LT, and/or NX options at the same time are not compatible"};
    }
    std::vector<double> scores;
    scores.reserve(pairs.size() / 2);
    for (std::size_t i = 0; i < pairs.size(); i += 2) {
        scores.push_back(floating(pairs[i], not_float));
    }
    if (xx && db.find_as<SortedSet>(words[1]) == nullptr) return reply(out, false);
    auto& set = db.make<SortedSet>(words[1]);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        const std::string_view member = pairs[2 * i + 1];
        const double score = scores[i];
        const auto at = set.find(member);
        if (at == set.elements.end()) {
            if (xx) continue;
            set.insert(score, member);
            ++count;
        } else {
            const double old = at->first;
            if (nx || (gt && score <= old) || (lt && score >= old) || score == old) continue;
            set.elements.erase(at);
            set.insert(score, member);
            count += changed ? 1 : 0;
        }
    }
    reply(out, count);
}

void zrem(Database& db, Words words, Value& out) {
    auto* const set = db.find_as<SortedSet>(words[1]);
    if (set == nullptr) return reply(out, false);
    std::int64_t count = 0;
    for (const std::string_view member : words.subspan(2)) {
        const auto at = set->find(member);
        if (at == set->elements.end()) continue;
        set->elements.erase(at);
        ++count;
    }
    db.erase_if_empty(words[1], *set);
    reply(out, count);
}

void zscore(Database& db, Words words, Value& out) {
    auto* const set = db.find_as<SortedSet>(words[1]);
    if (set == nullptr) return reply_nil(out);
    const auto at = set->find(words[2]);
    if (at == set->elements.end()) return reply_nil(out);
    Digits digits;
    reply(out, print(at->first, digits));
}

void zrank(Database& db, Words words, Value& out) {
    auto* const set = db.find_as<SortedSet>(words[1]);
    if (set == nullptr) return reply_nil(out);
    const auto at = set->find(words[2]);
    if (at == set->elements.end()) return reply_nil(out);
    reply(out, static_cast<std::int64_t>(at - set->elements.begin()));
}

void zcard(Database& db, Words words, Value& out) {
    const auto* const set = db.find_as<SortedSet>(words[1]);
    reply(out, set == nullptr ? 0 : set->elements.size());
}

struct ScoreRange {
    double min = 0, max = 0;
    bool without_min = false, without_max = false;

    ScoreRange(std::string_view from, std::string_view to)
        : without_min(from.starts_with('(')), without_max(to.starts_with('(')) {
        constexpr const char* otherwise = "ERR min or max is not a float";
        min = floating(from.substr(without_min ? 1 : 0), otherwise, true);
        max = floating(to.substr(without_max ? 1 : 0), otherwise, true);
    }
    [[nodiscard]] bool contains(double score) const {
        return (without_min ? score > min : score >= min) &&
               (without_max ? score < max : score <= max);
    }
};

void zcount(Database& db, Words words, Value& out) {
    const ScoreRange range{words[2], words[3]};
    const auto* const set = db.find_as<SortedSet>(words[1]);
    if (set == nullptr) return reply(out, false);
    std::int64_t count = 0;
    for (const auto& [score, member] : set->elements) count += range.contains(score) ? 1 : 0;
    reply(out, count);
}

void append(const SortedSet::Element& element, bool with_score, Value& out) {
    out.elements.push_back(Value::of(element.second));
    if (with_score) out.elements.push_back(number(element.first));
}

void zrange(Database& db, Words words, Value& out) {
    bool with_scores = false;
    for (const std::string_view word : words.subspan(4)) {
        for (const char* const option : {"BYSCORE", "BYLEX", "REV", "LIMIT"}) {
            if (equals(word, option)) throw Refused{"ERR not in the model: ZRANGE's option"};
        }
        if (!equals(word, "WITHSCORES")) throw Refused{syntax_error};
        with_scores = true;
    }
    std::int64_t start = integer(words[2]);
    std::int64_t stop = integer(words[3]);
    const auto* const set = db.find_as<SortedSet>(words[1]);
    reply_array(out);
    if (set == nullptr) return;
    const auto size = static_cast<std::int64_t>(set->elements.size());
    if (start < 0) start = std::max(start + size, std::int64_t{0});
    if (stop < 0) stop += size;
    stop = std::min(stop, size - 1);
    for (; start <= stop; ++start) {
        append(set->elements[static_cast<std::size_t>(start)], with_scores, out);
    }
}

void zrangebyscore(Database& db, Words words, Value& out) {
    bool with_scores = false;
    std::int64_t skip = 0;
    std::int64_t limit = -1;
    for (std::size_t i = 4; i < words.size(); ++i) {
        if (equals(words[i], "WITHSCORES")) {
            with_scores = true;
        } else if (equals(words[i], "LIMIT") && i + 2 < words.size()) {
            skip = integer(words[i + 1]);
            limit = integer(words[i + 2]);
            i += 2;
        } else {
            throw Refused{syntax_error};
        }
    }
    const ScoreRange range{words[2], words[3]};
    const auto* const set = db.find_as<SortedSet>(words[1]);
    reply_array(out);
    if (set == nullptr || skip < 0) return;
    for (const auto& element : set->elements) {
        if (!range.contains(element.first) || skip-- > 0) continue;
        if (limit-- == 0) return;
        append(element, with_scores, out);
    }
}

void zremrangebyscore(Database& db, Words words, Value& out) {
    const ScoreRange range{words[2], words[3]};
    auto* const set = db.find_as<SortedSet>(words[1]);
    if (set == nullptr) return reply(out, false);
    const std::size_t count = std::erase_if(
        set->elements, [&](const auto& element) { return range.contains(element.first); });
    db.erase_if_empty(words[1], *set);
    reply(out, count);
}

void zpopmin(Database& db, Words words, Value& out) {
    if (words.size() > 3) throw Refused{syntax_error};
    constexpr const char* not_positive = "ERR value is out of range, must be positive";
    std::int64_t count = words.size() == 3 ? integer(words[2], not_positive) : 1;
    if (count < 0) throw Refused{not_positive};
    auto* const set = db.find_as<SortedSet>(words[1]);
    reply_array(out);
    if (set == nullptr) return;
    count = std::min(count, static_cast<std::int64_t>(set->elements.size()));
    const auto end = set->elements.begin() + static_cast<std::ptrdiff_t>(count);
    for (auto at = set->elements.begin(); at != end; ++at) append(*at, true, out);
    set->elements.erase(set->elements.begin(), end);
    db.erase_if_empty(words[1], *set);
}

// ---- The rest ----------------------------------------------------------------------------------

void time(Database& db, Words, Value& out) {
    Digits digits;
    reply_array(out);
    out.elements.push_back(Value::of(print(db.now_us / 1'000'000, digits)));
    out.elements.push_back(Value::of(print(db.now_us % 1'000'000, digits)));
}

std::int64_t subscribers(const Database& db, std::string_view channel) {
    const auto at = db.subscribers.find(channel);
    return at == db.subscribers.end() ? 0 : at->second;
}

void publish(Database& db, Words words, Value& out) {
    if (db.keeps_messages) db.messages.emplace_back(words[1], words[2]);
    reply(out, subscribers(db, words[1]));
}

void pubsub(Database& db, Words words, Value& out) {
    reply_array(out);
    for (const std::string_view channel : words.subspan(2)) {
        out.elements.push_back(Value::of(channel));
        out.elements.push_back(Value::of(subscribers(db, channel)));
    }
}

void ping(Database&, Words words, Value& out) {
    if (words.size() > 2) throw Refused{wrong_count("ping")};
    if (words.size() == 2) return reply(out, words[1]);
    reply_status(out, "PONG");
}

// ---- All of them -------------------------------------------------------------------------------

constexpr std::array table{
    Command{"get", 2, 1, 1, &get},
    Command{"set", -3, 1, 1, &set, Writes::always},
    Command{"setrange", 4, 1, 1, &setrange, Writes::always},
    Command{"del", -2, 1, -1, &del, Writes::unless_zero},
    Command{"unlink", -2, 1, -1, &del, Writes::unless_zero},
    Command{"exists", -2, 1, -1, &exists},
    Command{"type", 2, 1, 1, &type},
    Command{"ttl", 2, 1, 1, &ttl},
    Command{"pttl", 2, 1, 1, &pttl},
    Command{"expire", -3, 1, 1, &expire, Writes::unless_zero},
    Command{"pexpire", -3, 1, 1, &pexpire, Writes::unless_zero},
    Command{"expireat", -3, 1, 1, &expireat, Writes::unless_zero},
    Command{"pexpireat", -3, 1, 1, &pexpireat, Writes::unless_zero},
    Command{"persist", 2, 1, 1, &persist, Writes::unless_zero},
    Command{"incr", 2, 1, 1, &incr, Writes::always},
    Command{"decr", 2, 1, 1, &decr, Writes::always},
    Command{"incrby", 3, 1, 1, &incrby, Writes::always},
    Command{"hset", -4, 1, 1, &hset, Writes::always},
    Command{"hget", 3, 1, 1, &hget},
    Command{"hmget", -3, 1, 1, &hmget},
    Command{"hdel", -3, 1, 1, &hdel, Writes::unless_zero},
    Command{"hexists", 3, 1, 1, &hexists},
    Command{"hlen", 2, 1, 1, &hlen},
    Command{"hkeys", 2, 1, 1, &hkeys},
    Command{"hvals", 2, 1, 1, &hvals},
    Command{"hgetall", 2, 1, 1, &hgetall},
    Command{"hincrby", 4, 1, 1, &hincrby, Writes::always},
    Command{"zadd", -4, 1, 1, &zadd, Writes::always},
    Command{"zrem", -3, 1, 1, &zrem, Writes::unless_zero},
    Command{"zscore", 3, 1, 1, &zscore},
    Command{"zrank", 3, 1, 1, &zrank},
    Command{"zcard", 2, 1, 1, &zcard},
    Command{"zcount", 4, 1, 1, &zcount},
    Command{"zrange", -4, 1, 1, &zrange},
    Command{"zrangebyscore", -4, 1, 1, &zrangebyscore},
    Command{"zremrangebyscore", 4, 1, 1, &zremrangebyscore, Writes::unless_zero},
    Command{"zpopmin", -2, 1, 1, &zpopmin, Writes::always},
    Command{"time", 1, 0, 0, &time},
    Command{"publish", 3, 0, 0, &publish},
    Command{"pubsub", -2, 0, 0, &pubsub},
    Command{"ping", -1, 0, 0, &ping},
    Command{"flushall", -1, 0, 0, &flushall, Writes::always},
    Command{"eval", -3, 0, 0, nullptr},
};

}  // namespace

std::optional<std::int64_t> to_integer(std::string_view text) {
    const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
    if (digits.empty() || (digits[0] == '0' && text.size() > 1)) return {};
    std::int64_t number = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failure != std::errc{} || end != text.data() + text.size()) return {};
    return number;
}

std::string lower_case(std::string_view word) {
    std::string lower{word};
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower;
}

/// "%.17g", which is slow; most numbers here are whole.
std::string_view print(double number, Digits& digits) {
    constexpr double exponent_from = 1e17;
    const double size = std::fabs(number);
    if (size < exponent_from && size == std::floor(size) &&
        !(number == 0 && std::signbit(number))) {
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(),
                                       static_cast<std::int64_t>(number));
        return {digits.data(), static_cast<std::size_t>(end.ptr - digits.data())};
    }
    const int length = std::snprintf(digits.data(), digits.size(), "%.17g", number);
    return {digits.data(), static_cast<std::size_t>(length)};
}

std::string_view print(std::int64_t number, Digits& digits) {
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    return {digits.data(), static_cast<std::size_t>(end.ptr - digits.data())};
}

void Command::run(Database& db, Words words, Value& out) const {
    try {
        handler(db, words, out);
        const bool nothing = out.is_nil() || (out.type == Value::Type::integer && out.integer == 0);
        if (writes == Writes::always ? !out.is_nil() : writes == Writes::unless_zero && !nothing) {
            ++db.writes;
        }
    } catch (const Refused& refused) {
        reply_error(out, refused.text);
    }
}

const Command* find_command(std::string_view name) {
    static const auto by_name = [] {
        std::unordered_map<std::string_view, const Command*> map;
        for (const Command& command : table) map.emplace(command.name, &command);
        return map;
    }();
    std::array<char, 24> lower{};
    if (name.size() > lower.size()) return nullptr;
    std::ranges::transform(name, lower.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    const auto at = by_name.find(std::string_view{lower.data(), name.size()});
    return at == by_name.end() ? nullptr : at->second;
}

}  // namespace redlatch::test::model
