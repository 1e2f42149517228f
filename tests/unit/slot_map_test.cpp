#include <redlatch/core/slot_map.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::detail;

std::optional<SlotMap> told(const std::vector<ToldSlots>& ranges) {
    return SlotMap::from(ranges, "teller");
}

/// The address of a slot's master.
std::optional<ServerAddress> master(const SlotMap& map, unsigned slot) {
    const auto number = map.master_of(slot);
    if (!number) return std::nullopt;
    return map.masters()[*number];
}

TEST(SlotMap, knows_nothing_at_first) {
    const SlotMap map;
    EXPECT_FALSE(map.master_of(0));
    EXPECT_TRUE(map.serving().empty());
    EXPECT_FALSE(told({})) << "a node that knows no map is none to learn it from";
}

TEST(SlotMap, says_who_serves_a_slot) {
    const auto map =
        told({{0, 99, "a", 1}, {100, 100, "b", 2}, {200, 16383, "a", 1}, {101, 101, "a", 2}});
    ASSERT_TRUE(map);
    EXPECT_EQ(master(*map, 0), (ServerAddress{"a", 1}));
    EXPECT_EQ(master(*map, 99), (ServerAddress{"a", 1}));
    EXPECT_EQ(master(*map, 100), (ServerAddress{"b", 2}));
    EXPECT_EQ(master(*map, 101), (ServerAddress{"a", 2})) << "another port, another node";
    EXPECT_EQ(master(*map, 102), std::nullopt);
    EXPECT_EQ(master(*map, 16383), (ServerAddress{"a", 1}));
    EXPECT_EQ(map->masters().size(), 3U);
}

TEST(SlotMap, takes_the_teller_for_a_host_without_a_name) {
    const auto map = told({{0, 0, "", 1}, {1, 1, "?", 2}});
    ASSERT_TRUE(map);
    EXPECT_EQ(master(*map, 0), (ServerAddress{"teller", 1}));
    EXPECT_EQ(master(*map, 1), (ServerAddress{"teller", 2}));
}

TEST(SlotMap, leaves_out_who_has_no_port_for_such_connections) {
    const auto map = told({{0, 0, "a", 0}, {1, 1, "a", 1}});
    ASSERT_TRUE(map);
    EXPECT_EQ(master(*map, 0), std::nullopt);
    EXPECT_EQ(master(*map, 1), (ServerAddress{"a", 1}));
    EXPECT_FALSE(told({{0, 0, "a", 0}, {0, 0, "a", 1}})) << "its slots are given away all the same";
}

TEST(SlotMap, is_refused_where_it_contradicts_itself_or_cannot_be) {
    const ToldSlots fine{0, 10, "a", 1};
    ASSERT_TRUE(told({fine}));
    constexpr std::int64_t huge = std::int64_t{1} << 40U;
    for (const ToldSlots& bad :
         {ToldSlots{10, 10, "b", 1}, ToldSlots{0, 10, "a", 1}, ToldSlots{5, 20, "b", 1},
          ToldSlots{11, 16384, "b", 1}, ToldSlots{-1, 12, "b", 1}, ToldSlots{13, 12, "b", 1},
          ToldSlots{huge, huge, "b", 1}, ToldSlots{-huge, huge, "b", 1}, ToldSlots{11, 12, "b", -1},
          ToldSlots{11, 12, "b", 65536}, ToldSlots{11, 12, "b c", 1},
          ToldSlots{11, 12, "b\n", 1}}) {
        SCOPED_TRACE(std::to_string(bad.first) + "-" + std::to_string(bad.last) + " " +
                     std::string{bad.host} + ":" + std::to_string(bad.port));
        EXPECT_FALSE(told({fine, bad}));
    }
}

TEST(SlotMap, learns_of_a_move) {
    auto map = told({{0, 16383, "a", 1}});
    ASSERT_TRUE(map);
    EXPECT_EQ(map->moved(7, {"b", 2}), 1U);
    EXPECT_EQ(map->moved(8, {"b", 2}), 1U) << "the same node";
    EXPECT_EQ(master(*map, 7), (ServerAddress{"b", 2}));
    EXPECT_EQ(master(*map, 9), (ServerAddress{"a", 1}));
    EXPECT_EQ(map->moved(7, {"a", 1}), 0U);
    EXPECT_EQ(master(*map, 7), (ServerAddress{"a", 1}));
}

TEST(SlotMap, tells_who_serves_any_slot) {
    auto map = told({{0, 0, "a", 1}, {1, 1, "b", 2}});
    ASSERT_TRUE(map);
    EXPECT_EQ(map->serving(), (std::vector<ServerAddress>{{"a", 1}, {"b", 2}}));
    map->moved(0, {"b", 2});
    EXPECT_EQ(map->serving(), (std::vector<ServerAddress>{{"b", 2}}));
    EXPECT_FALSE(map->serves(0));
    EXPECT_TRUE(map->serves(1));
    EXPECT_EQ(map->masters().size(), 2U) << "numbers stay";
}

}  // namespace
