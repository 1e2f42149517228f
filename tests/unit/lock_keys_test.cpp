#include <redlatch/policy/lock_keys.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace redlatch;
using detail::LockKeys;

/// CRC-16/XMODEM, as Redis Cluster uses it.
unsigned crc16(std::string_view bytes) {
    unsigned crc = 0;
    for (const char byte : bytes) {
        crc ^= static_cast<unsigned>(static_cast<unsigned char>(byte)) << 8U;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc & 0x8000U) != 0 ? (crc << 1U) ^ 0x1021U : crc << 1U;
        }
    }
    return crc & 0xffffU;
}

/// What lies between the first `{` and the next `}`, if that is not empty; nothing else.
std::string_view hash_tag(std::string_view key) {
    const std::size_t open = key.find('{');
    if (open == std::string_view::npos) return {};
    const std::size_t close = key.find('}', open);
    return close == std::string_view::npos ? std::string_view{}
                                           : key.substr(open + 1, close - open - 1);
}

unsigned slot(std::string_view key) {
    const std::string_view tag = hash_tag(key);
    return crc16(tag.empty() ? key : tag) % 16384;
}

/// All words of the alphabet up to a length; the empty one first.
std::vector<std::string> words(std::string_view alphabet, std::size_t longest) {
    std::vector<std::string> all{""};
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].size() == longest) break;
        for (const char letter : alphabet) all.push_back(all[i] + letter);
    }
    return all;
}

TEST(LockKeys, slots_are_computed_here_as_redis_does) {
    EXPECT_EQ(crc16("123456789"), 0x31c3U);
    EXPECT_EQ(slot("foo"), 12182U);  // CLUSTER KEYSLOT
    EXPECT_EQ(slot("{foo}bar"), 12182U);
    EXPECT_EQ(slot("x{foo}{bar}"), 12182U);
    EXPECT_EQ(hash_tag("a{}{b}"), "") << "only the first pair counts";
    EXPECT_EQ(hash_tag("}{a}"), "a");
    EXPECT_EQ(hash_tag("{{a}}"), "{a");
}

TEST(LockKeys, lock_is_the_name_itself) {
    for (const std::string& name : words("a{}:", 3)) EXPECT_EQ(LockKeys{name}.lock, name);
    const std::string binary{"a\0\r\n {b}", 9};
    EXPECT_EQ(LockKeys{binary}.lock, binary);
    EXPECT_EQ(LockKeys{binary}.queue, "redlatch:queue::" + binary);
}

TEST(LockKeys, name_without_a_hash_tag_becomes_the_companions_tag) {
    for (const std::string name : {"a", "orders:42", "a b", ":", "a{}b", "}{", "{", "}", "{}",
                                   "}a{", "a{}{b}", "{}{a}", "::a"}) {
        const LockKeys keys{name};
        EXPECT_EQ(keys.queue, "redlatch:queue:{" + name + "}");
        EXPECT_EQ(keys.waiters, "redlatch:waiters:{" + name + "}");
        EXPECT_EQ(keys.fence, "redlatch:fence:{" + name + "}");
    }
    EXPECT_EQ(LockKeys{"a"}.queue, "redlatch:queue:{a}");
    EXPECT_EQ(LockKeys{"}{"}.queue, "redlatch:queue:{}{}");
}

TEST(LockKeys, name_with_a_hash_tag_brings_it_along) {
    for (const std::string name :
         {"{a}", "{a}{b}", ":{a}", "x{a}y", "}{a}", "{{a}}", "{ }", "a}b{c}", "{a}b{"}) {
        const LockKeys keys{name};
        EXPECT_EQ(keys.queue, "redlatch:queue::" + name);
        EXPECT_EQ(keys.waiters, "redlatch:waiters::" + name);
        EXPECT_EQ(keys.fence, "redlatch:fence::" + name);
    }
    EXPECT_EQ(LockKeys{"{a}"}.queue, "redlatch:queue::{a}");
    EXPECT_EQ(LockKeys{":{a}"}.queue, "redlatch:queue:::{a}");
}

TEST(LockKeys, half_a_tag_is_none) {
    EXPECT_EQ(LockKeys{"a}b{"}.queue, "redlatch:queue:{a}b{}");
    EXPECT_EQ(LockKeys{"{a"}.queue, "redlatch:queue:{{a}");
    EXPECT_EQ(LockKeys{"a}"}.queue, "redlatch:queue:{a}}");
    EXPECT_EQ(LockKeys{"{}}"}.queue, "redlatch:queue:{{}}}");
}

TEST(LockKeys, all_keys_of_a_lock_lie_in_one_slot) {
    int checked = 0;
    for (const std::string& name : words("a{}:", 5)) {
        const bool no_braces = name.find_first_of("{}") == std::string::npos;
        if (name.empty() || (!no_braces && hash_tag(name).empty())) continue;
        ++checked;
        const LockKeys keys{name};
        EXPECT_EQ(slot(keys.queue), slot(name)) << name;
        EXPECT_EQ(slot(keys.waiters), slot(name)) << name;
        EXPECT_EQ(slot(keys.fence), slot(name)) << name;
    }
    EXPECT_GT(checked, 200);
}

TEST(LockKeys, companions_begin_with_the_key_space) {
    const LockKeys keys{"svc:job", "svc:locks:"};
    EXPECT_EQ(keys.lock, "svc:job");
    EXPECT_EQ(keys.queue, "svc:locks:queue:{svc:job}");
    EXPECT_EQ(keys.waiters, "svc:locks:waiters:{svc:job}");
    EXPECT_EQ(keys.fence, "svc:locks:fence:{svc:job}");
    EXPECT_EQ(keys.permits, "svc:locks:permits:{svc:job}");
    EXPECT_EQ((LockKeys{"a{b}", "s"}.queue), "squeue::a{b}");
    EXPECT_TRUE((LockKeys{"a{b}", "svc"}.in_one_slot()));
    EXPECT_EQ(LockKeys::companion_patterns("svc:"),
              "~svc:queue:* ~svc:waiters:* ~svc:fence:* ~svc:permits:*");
}

TEST(LockKeys, no_two_names_share_a_companion) {
    std::map<std::string, std::string> owner;
    for (const std::string& name : words("a{}:", 5)) {
        const LockKeys keys{name};
        for (const std::string& companion : {keys.queue, keys.waiters, keys.fence}) {
            const auto [there, is_new] = owner.emplace(companion, name);
            EXPECT_TRUE(is_new) << companion << " of " << name << " and " << there->second;
        }
    }
    EXPECT_EQ(owner.size(), 3U * (1 + 4 + 16 + 64 + 256 + 1024));
}

}  // namespace
