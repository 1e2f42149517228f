#include "any_lock.hpp"
#include "verbs.hpp"

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace tool {

namespace {

constexpr int is_held = 0;
constexpr int is_free = 1;

constexpr std::string_view hex_digits{"0123456789abcdef"};

bool is_plain(char c) {
    return c >= 0x20 && c < 0x7f;
}

/// Text as JSON has it. Names and tokens are bytes: those beyond ASCII are written as U+0080 to U+00FF.
std::string quoted(std::string_view bytes) {
    std::string text{"\""};
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        if (is_plain(c) && c != '"' && c != '\\') {
            text += c;
        } else {
            text.append("\\u00")
                .append(1, hex_digits[byte >> 4U])
                .append(1, hex_digits[byte & 0xfU]);
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
        text += "\"shared\"";
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
        text += "\n" + how + printable(holder.owner) + end_of(holder.ttl);
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
    std::string text = "held by " + printable(seen.holders.front().owner);
    if (seen.count > 1) text += ", " + std::to_string(seen.count) + " times";
    return text + end_of(seen.ttl) + waiters;
}

}  // namespace

std::string printable(std::string_view bytes) {
    std::string text;
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        if (is_plain(c)) {
            text += c;
        } else {
            text.append("\\x").append(1, hex_digits[byte >> 4U]).append(1, hex_digits[byte & 0xfU]);
        }
    }
    return text;
}

int status(const Settings& settings) {
    const std::string& name = settings.names.front();
    redlatch::Client client = make_client(settings);
    const auto seen = look_at(client, name);
    if (!seen) {
        complain(settings, seen.error().describe());
        return settings.codes.of(seen.error());
    }
    std::puts((settings.json ? json(name, *seen) : plain(*seen)).c_str());
    return seen->holders.empty() ? is_free : is_held;
}

}  // namespace tool
