#pragma once

#include <redlatch/compilation.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

/// What a client's companion keys and channels begin with, unless it is told otherwise.
inline constexpr std::string_view usual_key_space = "redlatch:";

inline constexpr std::string_view key_space_mark = ":k";
inline constexpr std::size_t key_space_digits = 8;

/// What stands at the end of a client's tokens, so that clients of another key space know that it does not tell
/// their waiters of a release: a mark and a hash (FNV-1a). Nothing for the usual one.
inline std::string mark_of(std::string_view key_space) {
    if (key_space == usual_key_space) return {};
    std::uint32_t hash = 0x811c9dc5;
    for (const char c : key_space) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
    std::array<char, key_space_digits> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16).ptr;
    const std::string_view text{digits.data(), static_cast<std::size_t>(end - digits.data())};
    return std::string{key_space_mark}.append(key_space_digits - text.size(), '0').append(text);
}

/// The same as it stands in an owner token; empty where there is none. (The last field of other tokens is a
/// number.)
constexpr std::string_view mark_in(std::string_view token) {
    constexpr std::size_t size = key_space_mark.size() + key_space_digits;
    if (token.size() < size) return {};
    const std::string_view end = token.substr(token.size() - size);
    const bool hexadecimal =
        end.find_first_not_of("0123456789abcdef", key_space_mark.size()) == std::string_view::npos;
    return end.starts_with(key_space_mark) && hexadecimal ? end : std::string_view{};
}

}  // namespace redlatch::inline v0::detail
