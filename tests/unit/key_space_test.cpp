#include <redlatch/core/describe_owner.hpp>
#include <redlatch/core/key_space.hpp>

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace redlatch::detail;

const std::string usual = std::string(32, 'a') + ":host:k12345678:1:7";

TEST(KeySpace, that_is_the_usual_one_leaves_no_mark) {
    EXPECT_EQ(mark_of("redlatch:"), "");
    EXPECT_EQ(mark_in(usual), "") << "the name of a client may look like one";
}

TEST(KeySpace, leaves_a_mark_of_a_fixed_length) {
    EXPECT_EQ(mark_of("svc:"), mark_of("svc:"));
    EXPECT_NE(mark_of("svc:"), mark_of("svd:"));
    for (int i = 0; i < 5000; ++i) {  // some hashes begin with zeros
        const std::string mark = mark_of(std::to_string(i));
        EXPECT_EQ(mark.size(), 10U) << mark;
        EXPECT_EQ(mark_in(usual + mark), mark);
    }
}

TEST(KeySpace, of_an_owner_is_another_one_or_not) {
    const std::string mark = mark_of("svc:");
    for (const std::string end : {"", ":min_hold", ":ticket"}) {
        EXPECT_FALSE(is_of_other_key_space(usual + end, ""));
        EXPECT_TRUE(is_of_other_key_space(usual + end, mark));
        EXPECT_TRUE(is_of_other_key_space(usual + mark + end, ""));
        EXPECT_FALSE(is_of_other_key_space(usual + mark + end, mark));
        EXPECT_TRUE(is_of_other_key_space(usual + mark + end, mark_of("svd:")));
    }
}

TEST(KeySpace, leaves_a_mark_that_no_number_is_taken_for) {
    EXPECT_EQ(mark_in(std::string(32, 'a') + ":host:1:12345678"), "");
    EXPECT_EQ(mark_in(std::string(32, 'a') + ":host:1234567:12"), "");
    EXPECT_EQ(mark_in(usual + ":k1234567g"), "");
    EXPECT_EQ(mark_in(":k12345678"), ":k12345678");
}

TEST(KeySpace, of_a_foreign_client_is_none) {
    for (const std::string foreign : {"", "foreign", ":k12345678", "8743c9c0-0795:1"}) {
        EXPECT_FALSE(is_of_other_key_space(foreign, mark_of("svc:"))) << foreign;
    }
}

}  // namespace
