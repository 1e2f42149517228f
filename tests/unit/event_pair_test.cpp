#include <redlatch/core/event_pair.hpp>

#include <gtest/gtest.h>

namespace redlatch::test {
namespace {

using detail::EventPair;

TEST(PairOfEvents, tells_the_beginning_and_then_the_end) {
    EventPair pair;
    EXPECT_TRUE(pair.begins());
    EXPECT_TRUE(pair.ends());
}

TEST(PairOfEvents, tells_neither_where_the_beginning_never_comes) {
    EventPair pair;
    EXPECT_FALSE(pair.ends());
}

TEST(PairOfEvents, tells_neither_where_the_end_overtakes) {
    EventPair pair;
    EXPECT_FALSE(pair.ends());
    EXPECT_FALSE(pair.begins());
}

TEST(PairOfEvents, knows_that_the_beginning_was_dropped) {
    EventPair pair;
    EXPECT_FALSE(pair.is_dropped());
    pair.drop();
    EXPECT_TRUE(pair.is_dropped());
    EXPECT_FALSE(pair.ends());
}

TEST(PairOfEvents, tells_no_end_where_telling_the_beginning_failed) {
    EventPair pair;
    EXPECT_TRUE(pair.begins());
    pair.drop();
    EXPECT_TRUE(pair.is_dropped());
    EXPECT_FALSE(pair.ends());
}

}  // namespace
}  // namespace redlatch::test
