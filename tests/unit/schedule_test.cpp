#include <redlatch/core/schedule.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using redlatch::detail::Hold;
using redlatch::detail::Schedule;
using redlatch::detail::TimePoint;

/// Holds are only names here: never looked into.
const Hold* hold(std::uintptr_t i) {
    return reinterpret_cast<const Hold*>(i * 64);
}

constexpr TimePoint at(std::chrono::nanoseconds since) {
    return TimePoint{since};
}

TEST(Schedule, empty_has_nothing_due) {
    Schedule<int> schedule;
    EXPECT_TRUE(schedule.empty());
    EXPECT_EQ(schedule.next_due(), TimePoint::max());
    EXPECT_EQ(schedule.take_due(TimePoint::max()), std::nullopt);
}

TEST(Schedule, gives_items_by_due_time) {
    Schedule<int> schedule;
    schedule.put(hold(1), at(30s), 30);
    schedule.put(hold(2), at(10s), 10);
    schedule.put(hold(3), at(20s), 20);
    EXPECT_EQ(schedule.next_due(), at(10s));
    EXPECT_EQ(schedule.take_due(at(60s)), 10);
    EXPECT_EQ(schedule.take_due(at(60s)), 20);
    EXPECT_EQ(schedule.take_due(at(60s)), 30);
    EXPECT_TRUE(schedule.empty());
}

TEST(Schedule, keeps_what_is_not_due_yet) {
    Schedule<int> schedule;
    schedule.put(hold(1), at(10s), 1);
    EXPECT_EQ(schedule.take_due(at(10s) - 1ns), std::nullopt);
    EXPECT_FALSE(schedule.empty());
    EXPECT_EQ(schedule.take_due(at(10s)), 1) << "due is due";
}

TEST(Schedule, gives_early_what_may_be_early) {
    Schedule<int> schedule;  // of how much sooner each may be taken, in seconds
    schedule.put(hold(1), at(10s), 0);
    schedule.put(hold(2), at(12s), 0);
    schedule.put(hold(3), at(12s), 2);
    schedule.put(hold(4), at(13s), 2);
    schedule.put(hold(5), at(19s), 60);
    const auto early = [](int item) { return std::chrono::seconds{item}; };
    EXPECT_EQ(schedule.take_early(at(9s), 5s, 9, early), std::vector<int>{});
    EXPECT_EQ(schedule.take_early(at(10s), 5s, 9, early), (std::vector{0, 2}));
    EXPECT_EQ(schedule.next_due(), at(12s)) << "the second one, which may not be early";
    EXPECT_EQ(schedule.take_early(at(30s), 5s, 2, early), (std::vector{0, 2})) << "no more at once";
    EXPECT_EQ(schedule.take_early(at(30s), 5s, 2, early), std::vector{60});
    EXPECT_TRUE(schedule.empty());
    schedule.remove(hold(1));
    schedule.put(hold(1), at(1s), 1);
    EXPECT_EQ(schedule.take_due(at(1s)), 1);
}

TEST(Schedule, same_due_time_loses_nobody) {
    Schedule<int> schedule;
    for (std::uintptr_t i = 1; i <= 100; ++i) schedule.put(hold(i), at(1s), 1);
    int taken = 0;
    while (schedule.take_due(at(1s))) ++taken;
    EXPECT_EQ(taken, 100);
}

TEST(Schedule, same_due_time_keeps_the_order_of_their_coming) {
    Schedule<int> schedule;
    for (const int i : {2, 3, 1}) schedule.put(hold(static_cast<std::uintptr_t>(i)), at(1s), i);
    EXPECT_EQ(schedule.take_due(at(1s)), 2);
    EXPECT_EQ(schedule.take_early(at(1s), 0s, 9, [](int) { return 0s; }), (std::vector{3, 1}));
}

TEST(Schedule, put_again_moves) {
    Schedule<int> schedule;
    schedule.put(hold(1), at(10s), 1);
    schedule.put(hold(1), at(30s), 2);
    EXPECT_EQ(schedule.next_due(), at(30s));
    EXPECT_EQ(schedule.take_due(at(20s)), std::nullopt);
    schedule.put(hold(1), at(5s), 3);
    EXPECT_EQ(schedule.take_due(at(5s)), 3);
    EXPECT_TRUE(schedule.empty());
}

TEST(Schedule, put_at_the_same_time_replaces_the_item) {
    Schedule<int> schedule;
    schedule.put(hold(1), at(10s), 1);
    schedule.put(hold(1), at(10s), 2);
    EXPECT_EQ(schedule.take_due(at(10s)), 2);
    EXPECT_TRUE(schedule.empty());
}

TEST(Schedule, removes) {
    Schedule<int> schedule;
    schedule.put(hold(1), at(10s), 1);
    schedule.put(hold(2), at(20s), 2);
    schedule.remove(hold(1));
    schedule.remove(hold(1));
    schedule.remove(hold(3));
    EXPECT_EQ(schedule.next_due(), at(20s));
    EXPECT_EQ(schedule.take_due(at(60s)), 2);
}

TEST(Schedule, taken_can_be_put_again) {
    Schedule<int> schedule;
    schedule.put(hold(1), at(10s), 1);
    EXPECT_EQ(schedule.take_due(at(10s)), 1);
    schedule.remove(hold(1));
    schedule.put(hold(1), at(20s), 2);
    EXPECT_EQ(schedule.take_due(at(20s)), 2);
}

TEST(Schedule, for_ever_is_due_only_then) {
    Schedule<int> schedule;
    schedule.put(hold(1), TimePoint::max(), 1);
    EXPECT_FALSE(schedule.empty());
    EXPECT_EQ(schedule.take_due(TimePoint::max() - 1ns), std::nullopt);
    EXPECT_EQ(schedule.take_due(TimePoint::max()), 1);
}

TEST(Schedule, owns_its_items) {
    const auto item = std::make_shared<int>(7);
    Schedule<std::shared_ptr<int>> schedule;
    schedule.put(hold(1), at(1s), item);
    EXPECT_EQ(item.use_count(), 2);
    EXPECT_EQ(schedule.take_due(at(1s)), item);
    EXPECT_EQ(item.use_count(), 1);
    schedule.put(hold(1), at(1s), item);
    schedule.remove(hold(1));
    EXPECT_EQ(item.use_count(), 1);
}

TEST(Schedule, items_may_only_move) {
    Schedule<std::unique_ptr<int>> schedule;
    schedule.put(hold(1), at(1s), std::make_unique<int>(7));
    const auto item = schedule.take_due(at(1s));
    ASSERT_TRUE(item);
    EXPECT_EQ(**item, 7);
}

TEST(Schedule, agrees_with_a_plain_map) {
    std::mt19937 random{7};
    Schedule<int> schedule;
    std::map<std::uintptr_t, std::pair<TimePoint, int>> model;
    for (int step = 0; step < 50'000; ++step) {
        const std::uintptr_t i = 1 + random() % 20;
        const TimePoint when = at(std::chrono::seconds{random() % 50});
        switch (random() % 4) {
            case 0:
            case 1:
                schedule.put(hold(i), when, step);
                model[i] = {when, step};
                break;
            case 2:
                schedule.remove(hold(i));
                model.erase(i);
                break;
            default: {
                const auto item = schedule.take_due(when);
                const auto first = std::min_element(
                    model.begin(), model.end(),
                    [](const auto& a, const auto& b) { return a.second < b.second; });
                const bool due = first != model.end() && first->second.first <= when;
                ASSERT_EQ(item.has_value(), due);
                if (!due) break;
                ASSERT_EQ(*item, first->second.second);
                model.erase(first);
            }
        }
        ASSERT_EQ(schedule.empty(), model.empty());
    }
}

}  // namespace
