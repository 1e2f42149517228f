#pragma once

#include <redlatch/compilation.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace redlatch::inline v0::detail {

/// The SHA-1 of `text` in lower-case hexadecimal (FIPS 180-4): the name that `EVALSHA` knows a
/// script by. Not for anything that has to withstand an attacker.
class Sha1 {
public:
    static constexpr std::array<char, 40> hex(std::string_view text) {
        Sha1 sha;
        const std::size_t padded = (text.size() + 8) / 64 * 64 + 64;
        for (std::size_t at = 0; at < padded; at += 64) sha.add_block(text, at, padded);
        return sha.digits();
    }

private:
    /// Byte `i` of the message with its padding: a one bit, zeros, the length in bits.
    static constexpr std::uint8_t byte(std::string_view text, std::size_t i, std::size_t padded) {
        if (i < text.size()) return static_cast<std::uint8_t>(text[i]);
        if (i == text.size()) return 0x80;
        if (i < padded - 8) return 0;
        const std::uint64_t bits = std::uint64_t{text.size()} * 8;
        return static_cast<std::uint8_t>(bits >> (8 * (padded - 1 - i)));
    }

    constexpr void add_block(std::string_view text, std::size_t at, std::size_t padded) {
        std::array<std::uint32_t, 80> w{};
        for (std::size_t i = 0; i < 64; ++i) {
            w[i / 4] = w[i / 4] << 8U | byte(text, at + i, padded);
        }
        for (std::size_t i = 16; i < 80; ++i) {
            w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
        }
        auto [a, b, c, d, e] = state_;
        for (std::size_t i = 0; i < 80; ++i) {
            const std::uint32_t mixed = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999U
                                        : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1U
                                        : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcU
                                                 : (b ^ c ^ d) + 0xca62c1d6U;
            const std::uint32_t next = std::rotl(a, 5) + mixed + e + w[i];
            e = d;
            d = c;
            c = std::rotl(b, 30);
            b = a;
            a = next;
        }
        state_[0] += a;
        state_[1] += b;
        state_[2] += c;
        state_[3] += d;
        state_[4] += e;
    }

    constexpr std::array<char, 40> digits() const {
        std::array<char, 40> hex{};
        for (std::size_t i = 0; i < 40; ++i) {
            hex[i] = "0123456789abcdef"[state_[i / 8] >> (28 - 4 * (i % 8)) & 0xfU];
        }
        return hex;
    }

    std::array<std::uint32_t, 5> state_{0x67452301U, 0xefcdab89U, 0x98badcfeU, 0x10325476U,
                                        0xc3d2e1f0U};
};

}  // namespace redlatch::inline v0::detail
