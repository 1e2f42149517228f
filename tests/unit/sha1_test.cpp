#include <redlatch/net/sha1.hpp>

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

namespace {

std::string sha1(std::string_view text) {
    const auto hex = redlatch::detail::Sha1::hex(text);
    return {hex.data(), hex.size()};
}

TEST(Sha1, published_examples) {
    EXPECT_EQ(sha1(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    EXPECT_EQ(sha1("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    EXPECT_EQ(sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    EXPECT_EQ(sha1("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                   "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
              "a49b2446a02c645bf419f995b67091253a04a259");
    EXPECT_EQ(sha1("The quick brown fox jumps over the lazy dog"),
              "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12");
}

TEST(Sha1, a_million_letters) {
    EXPECT_EQ(sha1(std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST(Sha1, lengths_around_the_ends_of_a_block) {
    EXPECT_EQ(sha1(std::string(1, 'x')), "11f6ad8ec52a2984abaafd7c3b516503785c2072");
    EXPECT_EQ(sha1(std::string(54, 'x')), "31045e7bb077ff8d188a776b196b980388735dbb");
    EXPECT_EQ(sha1(std::string(55, 'x')), "cef734ba81a024479e09eb5a75b6ddae62e6abf1");
    EXPECT_EQ(sha1(std::string(56, 'x')), "901305367c259952f4e7af8323f480d59f81335b");
    EXPECT_EQ(sha1(std::string(57, 'x')), "025ecbd5d70f8fb3c5457cd96bab13fda305dc59");
    EXPECT_EQ(sha1(std::string(63, 'x')), "0ddc4e0cccd9a12850deb5abb0853a4425559fec");
    EXPECT_EQ(sha1(std::string(64, 'x')), "bb2fa3ee7afb9f54c6dfb5d021f14b1ffe40c163");
    EXPECT_EQ(sha1(std::string(65, 'x')), "78c741ddc482e4cdf8c474a0876347a0905b6233");
    EXPECT_EQ(sha1(std::string(119, 'x')), "4300320394f7ee239bcdce7d3b8bcee173a0cd5c");
    EXPECT_EQ(sha1(std::string(120, 'x')), "ceb2821639c4b6dcb10bce0e522ca2e608ce056d");
    EXPECT_EQ(sha1(std::string(127, 'x')), "e463484d274607e1897d4099497cbf2aedcf8206");
    EXPECT_EQ(sha1(std::string(128, 'x')), "150fa3fbdc899bd0b8f95a9fb6027f564d953762");
    EXPECT_EQ(sha1(std::string(129, 'x')), "2699b675922cc84a9b0dfd926eb7f8211c78693d");
}

TEST(Sha1, any_byte) {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
    EXPECT_EQ(sha1(bytes), "4916d6bdb7f78e6803698cab32d1586ea457dfc8");
    EXPECT_EQ(sha1(std::string_view{"\0", 1}), "5ba93c9db0cff93f52b521d7420e43f6eda2784f");
}

TEST(Sha1, at_compile_time) {
    constexpr std::array<char, 40> hex = redlatch::detail::Sha1::hex("abc");
    static_assert(hex[0] == 'a' && hex[39] == 'd');
    EXPECT_EQ(std::string(hex.begin(), hex.end()), sha1("abc"));
}

}  // namespace
