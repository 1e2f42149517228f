#include <redlatch/core/recheck.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::Random;
using detail::recheck_pause;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Ttl = std::optional<milliseconds>;

constexpr std::int64_t far_back = std::numeric_limits<std::int64_t>::max();

/// The shortest and the longest of many pauses.
std::pair<nanoseconds, nanoseconds> range(Ttl ttl, std::int64_t place) {
    Random random{7};
    nanoseconds shortest = nanoseconds::max();
    nanoseconds longest = nanoseconds::min();
    for (int i = 0; i < 5000; ++i) {
        const nanoseconds pause = recheck_pause(ttl, place, random);
        shortest = std::min(shortest, pause);
        longest = std::max(longest, pause);
    }
    return {shortest, longest};
}

/// Within the bounds, and using them to their ends.
void expect_range(Ttl ttl, std::int64_t place, nanoseconds low, nanoseconds high) {
    const auto [shortest, longest] = range(ttl, place);
    const nanoseconds margin = (high - low) / 100;
    EXPECT_GE(shortest, low);
    EXPECT_LT(shortest, low + margin);
    EXPECT_LT(longest, high);
    EXPECT_GE(longest, high - margin);
}

TEST(Recheck, those_in_front_ask_within_one_to_two_seconds) {
    for (const std::int64_t place : {0, 1, 7}) expect_range(std::nullopt, place, 1s, 2s);
}

TEST(Recheck, all_others_ask_within_five_to_ten_seconds) {
    for (const std::int64_t place :
         {std::int64_t{8}, std::int64_t{9}, std::int64_t{1000}, far_back}) {
        expect_range(std::nullopt, place, 5s, 10s);
    }
}

TEST(Recheck, a_waiter_who_asks_thrice_as_seldom_still_counts_as_alive) {
    EXPECT_EQ(detail::longest_presence_ttl, 30s);
}

TEST(Recheck, pauses_differ) {
    Random random{1};
    std::set<nanoseconds> pauses;
    for (int i = 0; i < 100; ++i) pauses.insert(recheck_pause(std::nullopt, 0, random));
    EXPECT_GT(pauses.size(), 95U);
}

TEST(Recheck, an_end_without_a_date_or_far_away_changes_nothing) {
    for (const Ttl ttl : {Ttl{-1ms}, Ttl{-2ms}, Ttl{milliseconds::min()}, Ttl{2001ms}, Ttl{30s},
                          Ttl{std::chrono::days{36'500}}}) {
        expect_range(ttl, 0, 1s, 2s);
    }
    for (const Ttl ttl : {Ttl{-1ms}, Ttl{-2ms}, Ttl{milliseconds::min()}, Ttl{10'001ms},
                          Ttl{std::chrono::days{36'500}}, Ttl{milliseconds::max()}}) {
        expect_range(ttl, 8, 5s, 10s);
    }
}

TEST(Recheck, the_first_asks_just_after_the_holders_end) {
    for (const milliseconds ttl : {0ms, 1ms, 100ms, 900ms}) {
        expect_range(ttl, 0, ttl + 1ms, ttl + 11ms);
    }
}

TEST(Recheck, the_others_follow_one_after_the_other) {
    for (const std::int64_t place : {1, 2, 3, 30}) {
        const nanoseconds turn = place * 100ms;
        expect_range(0ms, place, std::min<nanoseconds>(turn + 1ms, 5s), turn + 11ms);
        if (place > 7) expect_range(1500ms, place, 1501ms + turn, 1511ms + turn);
    }
    EXPECT_LT(range(200ms, 4).second, range(200ms, 5).first) << "no two at the same time";
}

TEST(Recheck, never_waits_longer_than_without_the_holders_end) {
    for (const milliseconds ttl : {0ms, 1ms, 1999ms, 2000ms, 9999ms, 10'000ms}) {
        for (const std::int64_t place : {std::int64_t{0}, std::int64_t{1}, std::int64_t{60},
                                         std::int64_t{100}, std::int64_t{101}, far_back}) {
            const auto [shortest, longest] = range(ttl, place);
            EXPECT_GT(shortest, ttl.count() == 0 ? 0ns : nanoseconds{1ms});
            EXPECT_LT(longest, place < 8 ? 2s : 10s);
        }
    }
}

}  // namespace
