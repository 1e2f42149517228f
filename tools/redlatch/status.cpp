#include "any_lock.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace tool {

namespace {

constexpr int is_held = 0;
constexpr int is_free = 1;

/// How many bytes the first character of a text takes in UTF-8; 0 where it is none.
std::size_t length_of_character(std::string_view text) {
    const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (byte(0) < 0x80) return 1;
    if (byte(0) < 0xc2 || byte(0) > 0xf4) return 0;
    const std::size_t length = byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
    if (text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0U) != 0x80U) return 0;
    }
    // Longer than need be, halves of a pair, or beyond the last character there is.
    const bool is_one = (byte(0) != 0xe0 || byte(1) >= 0xa0) &&
                        (byte(0) != 0xed || byte(1) < 0xa0) &&
                        (byte(0) != 0xf0 || byte(1) >= 0x90) && (byte(0) != 0xf4 || byte(1) < 0x90);
    return is_one ? length : 0;
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = length_of_character(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

/// Text as JSON has it. Names and tokens are bytes: where they are no UTF-8, those beyond ASCII are written
/// as U+0080 to U+00FF.
std::string quoted(std::string_view bytes) {
    const bool is_text = is_utf8(bytes);
    std::string text{"\""};
    for (const char c : bytes) {
        const bool is_part_of_text = is_text && static_cast<unsigned char>(c) >= 0x80;
        if (is_part_of_text || (is_plain(c) && c != '"' && c != '\\')) {
            text += c;
        } else {
            text += "\\u00" + hex_of(c);
        }
    }
    return text + '"';
}

std::string number_or_null(const std::optional<std::chrono::milliseconds>& time) {
    return time ? std::to_string(time->count()) : "null";
}

std::string json_of(const redlatch::Holder& holder, Kind kind) {
    const std::string how = kind == Kind::semaphore
                                ? "\"permits\":" + std::to_string(holder.weight)
                                : std::string{"\"writes\":"} + (holder.writes ? "true" : "false");
    return "{\"owner\":" + quoted(holder.owner) + "," + how +
           ",\"ttl_ms\":" + std::to_string(holder.ttl.count()) + "}";
}

/// Of those that several may hold.
std::string json_of_holders(const Seen& seen) {
    std::string text = ",\"kind\":";
    if (seen.kind == Kind::semaphore) {
        text += "\"semaphore\",\"permits\":" +
                (seen.permits ? std::to_string(*seen.permits) : std::string{"null"}) +
                ",\"taken\":" + std::to_string(seen.count);
    } else {
        text += "\"shared\",\"hold_count\":" + std::to_string(seen.count);
    }
    std::string holders;
    for (const redlatch::Holder& holder : seen.holders) {
        holders += (holders.empty() ? "" : ",") + json_of(holder, seen.kind);
    }
    return text + ",\"holders\":[" + holders + "]";
}

std::string json(const std::string& name, const Seen& seen) {
    const bool held = !seen.holders.empty();
    std::string text = "{\"name\":" + quoted(name) + ",\"held\":" + (held ? "true" : "false");
    if (seen.kind == Kind::shared || seen.kind == Kind::semaphore) {
        text += json_of_holders(seen);
    } else if (held) {
        text += ",\"owner\":" + quoted(seen.holders.front().owner) +
                ",\"hold_count\":" + std::to_string(seen.count) +
                ",\"ttl_ms\":" + number_or_null(seen.ttl);
    }
    return text + ",\"waiters\":" + std::to_string(seen.waiters) + "}";
}

std::string end_of(const std::optional<std::chrono::milliseconds>& ttl) {
    if (!ttl) return ", without an end";
    return ", for at most " + std::to_string(ttl->count()) + " ms";
}

/// Each holder of those that several may hold, on a line of its own.
std::string plain_holders(const Seen& seen) {
    std::string text;
    for (const redlatch::Holder& holder : seen.holders) {
        const std::string how = seen.kind == Kind::semaphore
                                    ? std::to_string(holder.weight) + " by "
                                : holder.writes ? "written by "
                                                : "read by ";
        text += "\n" + how + printable_owner(holder.owner) + end_of(holder.ttl);
    }
    return text;
}

std::string plain(const Seen& seen) {
    const std::string waiters = ", waiters: " + std::to_string(seen.waiters);
    if (seen.holders.empty()) return "free" + waiters;
    if (seen.kind == Kind::semaphore) {
        const std::string of = seen.permits ? " of " + std::to_string(*seen.permits) : "";
        return "permits taken: " + std::to_string(seen.count) + of + waiters + plain_holders(seen);
    }
    if (seen.kind == Kind::shared) {
        return "holders: " + std::to_string(seen.count) + waiters + plain_holders(seen);
    }
    std::string text = "held by " + printable_owner(seen.holders.front().owner);
    if (seen.count > 1) text += ", " + std::to_string(seen.count) + " times";
    return text + end_of(seen.ttl) + waiters;
}

}  // namespace

int failed(const Settings& settings, const redlatch::Error& error) {
    const bool is_none = error.code == redlatch::Errc::wrong_type;
    complain(settings, is_none ? "'" + printable(settings.names.front()) +
                                     "' is no lock; redis-cli TYPE tells what it is"
                               : error.describe());
    return settings.codes.of(error);
}

int status(const Settings& settings) {
    const std::string& name = settings.names.front();
    redlatch::Client client = make_client(settings);
    const auto seen = look_at(client, name);
    if (!seen) return failed(settings, seen.error());
    std::puts((settings.json ? json(name, *seen) : plain(*seen)).c_str());
    return seen->holders.empty() ? is_free : is_held;
}

}  // namespace tool
