#include "text.hpp"

namespace tool {

bool is_plain(char c) {
    return c >= 0x20 && c < 0x7f;
}

std::string hex_of(char c) {
    constexpr std::string_view digits{"0123456789abcdef"};
    const auto byte = static_cast<unsigned char>(c);
    return {digits[byte >> 4U], digits[byte & 0xfU]};
}

std::string printable(std::string_view bytes) {
    std::string text;
    for (const char c : bytes) text += is_plain(c) ? std::string(1, c) : "\\x" + hex_of(c);
    return text;
}

std::string printable_owner(std::string_view token) {
    return token.empty() ? "'' (an empty token)" : printable(token);
}

bool is_uri(std::string_view word) {
    return word.find("://") != std::string_view::npos;
}

std::string shown(std::string_view word) {
    return is_uri(word) ? "a URI" : "'" + printable(word) + "'";
}

}  // namespace tool
