#include <redlatch/core/slot_map_refresh.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace std::chrono_literals;

using Turn = SlotMapRefresh::Turn;
using Outcome = SlotMapRefresh::Outcome;

constexpr TimePoint start{1h};

TEST(SlotMapRefresh, is_one_callers_turn_at_a_time) {
    SlotMapRefresh refresh;
    EXPECT_EQ(refresh.wanted(start), Turn::ask);
    EXPECT_TRUE(refresh.under_way());
    EXPECT_EQ(refresh.wanted(start), Turn::wait);
    EXPECT_EQ(refresh.wanted(start + 1h), Turn::wait);
    refresh.ended(Outcome::learned, start);
    EXPECT_FALSE(refresh.under_way());
}

TEST(SlotMapRefresh, leaves_a_map_alone_that_is_brand_new) {
    for (const Outcome outcome : {Outcome::learned, Outcome::nobody_knows}) {
        SlotMapRefresh refresh;
        EXPECT_EQ(refresh.wanted(start), Turn::ask);
        refresh.ended(outcome, start);
        EXPECT_EQ(refresh.wanted(start + 99ms), Turn::skip);
        EXPECT_EQ(refresh.wanted(start + 100ms), Turn::ask);
    }
}

TEST(SlotMapRefresh, is_enough_for_all_who_waited) {
    SlotMapRefresh refresh;
    refresh.wanted(start);
    EXPECT_EQ(refresh.waited(start), Turn::wait) << "it has not ended";
    refresh.ended(Outcome::learned, start);
    EXPECT_EQ(refresh.waited(start + 1h), Turn::skip) << "however late they wake";
    refresh.wanted(start + 1h);
    refresh.ended(Outcome::nobody_knows, start + 1h);
    EXPECT_EQ(refresh.waited(start + 2h), Turn::skip);
}

TEST(SlotMapRefresh, passes_to_one_who_waited_where_it_was_cut_short) {
    SlotMapRefresh refresh;
    refresh.wanted(start);
    refresh.ended(Outcome::cut_short, start);
    EXPECT_EQ(refresh.waited(start), Turn::ask) << "it says nothing about the map's age";
    EXPECT_EQ(refresh.waited(start), Turn::wait);
}

TEST(SlotMapRefresh, is_for_the_next_command_where_the_map_is_suspect) {
    SlotMapRefresh refresh;
    EXPECT_TRUE(refresh.take_suspicion()) << "nothing is known at first";
    EXPECT_FALSE(refresh.take_suspicion());
    refresh.suspect();
    EXPECT_TRUE(refresh.take_suspicion());
    EXPECT_FALSE(refresh.take_suspicion());
}

const ServerAddress a{"a", 1};
const ServerAddress b{"b", 2};
const ServerAddress c{"c", 3};
const ServerAddress d{"d", 4};
using Addresses = std::vector<ServerAddress>;

TEST(MapInformants, are_the_seeds_and_the_masters_each_once) {
    EXPECT_EQ(map_informants({a, b}, {b, c}, std::nullopt), (Addresses{a, b, c}));
}

TEST(MapInformants, begin_with_the_one_that_knew_the_map_last) {
    EXPECT_EQ(map_informants({a, b}, {c, d}, c), (Addresses{c, a, b, d}));
    EXPECT_EQ(map_informants({a, b}, {}, d), (Addresses{a, b}))
        << "one that serves no slot any more";
}

TEST(MapInformants, begin_behind_the_one_that_has_misled) {
    const bool misled = true;
    EXPECT_EQ(map_informants({a, b}, {c, d}, a, misled), (Addresses{b, c, d, a}));
    EXPECT_EQ(map_informants({a, b}, {c, d}, b, misled), (Addresses{c, d, a, b}))
        << "in turn, so that none stays out";
    EXPECT_EQ(map_informants({a, b}, {c}, c, misled), (Addresses{a, b, c}));
    EXPECT_EQ(map_informants({a}, {}, a, misled), (Addresses{a})) << "there is no other";
    EXPECT_EQ(map_informants({a, b}, {}, std::nullopt, misled), (Addresses{a, b}));
}

TEST(SlotMapRefresh, was_misled_where_a_command_failed_by_the_map_until_another_one_is_learned) {
    SlotMapRefresh refresh;
    EXPECT_FALSE(refresh.was_misled());
    refresh.suspect();
    EXPECT_TRUE(refresh.was_misled());
    refresh.wanted(start);
    refresh.ended(Outcome::nobody_knows, start);
    EXPECT_TRUE(refresh.was_misled());
    refresh.wanted(start + 1s);
    refresh.ended(Outcome::learned, start + 1s);
    EXPECT_FALSE(refresh.was_misled());
    refresh.wanted(start + 2s);
    refresh.ended(Outcome::cut_short, start + 2s);
    EXPECT_TRUE(refresh.was_misled()) << "by who was asked first, and gave no answer";
}

TEST(SlotMapInquiry, asks_all_in_turn_with_half_of_the_time_that_is_left) {
    SlotMapInquiry inquiry{{a, b}, start + 300ms};
    auto ask = inquiry.next(start);
    ASSERT_TRUE(ask);
    EXPECT_EQ(ask->node, a);
    EXPECT_EQ(ask->until, start + 150ms);
    ask = inquiry.next(start + 20ms);
    ASSERT_TRUE(ask);
    EXPECT_EQ(ask->node, b);
    EXPECT_EQ(ask->until, start + 160ms);
    EXPECT_FALSE(inquiry.next(start + 50ms));
    EXPECT_EQ(inquiry.failed(start + 50ms), Outcome::nobody_knows);
}

TEST(SlotMapInquiry, is_cut_short_where_its_time_ends) {
    SlotMapInquiry inquiry{{a, b}, start + 300ms};
    inquiry.next(start);
    EXPECT_EQ(inquiry.failed(start), Outcome::cut_short) << "not all were asked";
    EXPECT_FALSE(inquiry.next(start + 300ms));
    SlotMapInquiry slow{{a}, start + 300ms};
    slow.next(start);
    EXPECT_EQ(slow.failed(start + 300ms), Outcome::cut_short) << "who was asked had no time";
}

TEST(SlotMapInquiry, may_have_all_the_time) {
    SlotMapInquiry inquiry{{a}, TimePoint::max()};
    const auto ask = inquiry.next(start);
    ASSERT_TRUE(ask);
    EXPECT_GT(ask->until, start + 24h);
}

}  // namespace
