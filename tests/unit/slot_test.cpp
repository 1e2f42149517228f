#include <redlatch/core/redirection.hpp>
#include <redlatch/core/slot.hpp>

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace {

using namespace redlatch;
using namespace redlatch::detail;

std::optional<Redirection> redirection(const std::string& message) {
    Fault fault;
    fault.error.message = message;
    return redirection_of(fault);
}

TEST(Slot, is_that_of_the_specification) {
    EXPECT_EQ(crc16("123456789"), 0x31c3);
    EXPECT_EQ(slot_of(""), 0U);
    EXPECT_EQ(slot_of("foo"), 12182U);
    EXPECT_EQ(slot_of("{user1000}.following"), slot_of("user1000"));
    EXPECT_EQ(slot_of("foo{bar}{zap}"), slot_of("bar"));
    EXPECT_EQ(slot_of("foo{{bar}}zap"), slot_of("{bar"));
}

TEST(Slot, goes_by_the_whole_key_without_a_tag) {
    for (const std::string key : {"foo{}{bar}", "{}", "{", "}", "a}b{"}) {
        EXPECT_EQ(slot_of(key), crc16(key) % slot_count) << key;
    }
}

TEST(Redirection, says_where_to) {
    const auto moved = redirection("MOVED 3999 127.0.0.1:6381");
    ASSERT_TRUE(moved);
    EXPECT_FALSE(moved->once);
    EXPECT_EQ(moved->slot, 3999U);
    EXPECT_EQ(moved->host, "127.0.0.1");
    EXPECT_EQ(moved->port, 6381);
    const auto ask = redirection("ASK 1 2001:db8::1:6381");
    ASSERT_TRUE(ask);
    EXPECT_TRUE(ask->once);
    EXPECT_EQ(ask->host, "2001:db8::1");
    EXPECT_EQ(redirection("MOVED 1 :6381")->host, "") << "the same host";
    EXPECT_EQ(redirection("MOVED 1 ?:6381")->host, "") << "a name that it has not been told";
}

TEST(Redirection, is_nothing_else) {
    for (const std::string message :
         {"", "MOVED", "MOVED ", "MOVED 1", "MOVED 1 h", "MOVED x h:1", "MOVED 1 h:x",
          "MOVED 1 h:99999", "ASKING", "MOVED 1 h:0", "MOVED 16384 h:1", "ASK 1 a b:1",
          "MOVED 1 a\\x1bb:1", "MOVED 1 \xff:1", "TRYAGAIN Multiple keys request",
          "ERR MOVED 1 h:1", "TAKEN 1 h:1", "MOVED 1h:1"}) {
        EXPECT_FALSE(redirection(message)) << message;
    }
}

}  // namespace
