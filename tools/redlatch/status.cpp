#include "any_lock.hpp"
#include "verbs.hpp"

#include <cstdio>
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

std::string json(const std::string& name, const redlatch::LockInfo& info) {
    std::string text =
        "{\"name\":" + quoted(name) + ",\"held\":" + (info.locked ? "true" : "false");
    if (info.locked) {
        text += ",\"owner\":" + quoted(info.owner) +
                ",\"hold_count\":" + std::to_string(info.hold_count) + ",\"ttl_ms\":" +
                (info.ttl ? std::to_string(info.ttl->count()) : std::string{"null"});
    }
    return text + ",\"waiters\":" + std::to_string(info.waiters) + "}";
}

std::string plain(const redlatch::LockInfo& info) {
    const std::string waiters = "waiters: " + std::to_string(info.waiters);
    if (!info.locked) return "free, " + waiters;
    std::string text = "held by " + printable(info.owner);
    if (info.hold_count > 1) text += ", " + std::to_string(info.hold_count) + " times";
    text += info.ttl ? ", for at most " + std::to_string(info.ttl->count()) + " ms"
                     : std::string{", without an end"};
    return text + ", " + waiters;
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
    redlatch::Client client = make_client(settings);
    const auto info =
        with_any_lock(client, settings.name, [](auto& lock) { return lock.inspect(); });
    if (!info) {
        complain(settings, info.error().describe());
        return settings.codes.of(info.error());
    }
    std::puts((settings.json ? json(settings.name, *info) : plain(*info)).c_str());
    return info->locked ? is_held : is_free;
}

}  // namespace tool
