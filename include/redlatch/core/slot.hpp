#pragma once

#include <redlatch/compilation.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace redlatch::inline v0::detail {

/// How many slots a Redis Cluster has.
inline constexpr unsigned slot_count = 16384;

/// CRC-16 with the polynomial 0x1021, begun with 0 (XMODEM).
constexpr std::uint16_t crc16(std::string_view bytes) noexcept {
    unsigned crc = 0;
    for (const char c : bytes) {
        crc ^= static_cast<unsigned>(static_cast<unsigned char>(c)) << 8U;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc & 0x8000U) != 0 ? crc << 1U ^ 0x1021U : crc << 1U;
        }
    }
    return static_cast<std::uint16_t>(crc & 0xffffU);
}

/// What stands in the first `{…}` of a key; empty where there is none.
constexpr std::string_view hash_tag(std::string_view key) noexcept {
    const std::size_t open = key.find('{');
    if (open == std::string_view::npos) return {};
    const std::size_t close = key.find('}', open + 1);
    if (close == std::string_view::npos) return {};
    return key.substr(open + 1, close - open - 1);
}

/// The slot that a key lies in: that of its hash tag, if it has one.
constexpr unsigned slot_of(std::string_view key) noexcept {
    const std::string_view tag = hash_tag(key);
    return crc16(tag.empty() ? key : tag) % slot_count;
}

}  // namespace redlatch::inline v0::detail
