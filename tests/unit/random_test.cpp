#include <redlatch/core/random.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <set>

namespace {

using redlatch::detail::Random;

TEST(Random, gives_the_published_sequence) {
    Random random{1234567};  // the reference output of SplitMix64 for this seed
    EXPECT_EQ(random.next(), 6457827717110365317U);
    EXPECT_EQ(random.next(), 3203168211198807973U);
    EXPECT_EQ(random.next(), 9817491932198370423U);
    EXPECT_EQ(random.next(), 4593380528125082431U);
    EXPECT_EQ(random.next(), 16408922859458223821U);
}

TEST(Random, same_seed_gives_the_same_numbers) {
    Random a{42};
    Random b{42};
    for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(), b.next());
}

TEST(Random, neighbouring_seeds_differ_at_once) {
    std::set<std::uint64_t> first;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) first.insert(Random{seed}.next());
    EXPECT_EQ(first.size(), 1000U);
}

TEST(Random, between_stays_in_bounds) {
    Random random{1};
    for (int i = 0; i < 10'000; ++i) {
        const std::int64_t n = random.between(-3, 4);
        EXPECT_GE(n, -3);
        EXPECT_LT(n, 4);
    }
}

TEST(Random, between_reaches_each_number) {
    Random random{1};
    std::set<std::int64_t> seen;
    for (int i = 0; i < 1000; ++i) seen.insert(random.between(-3, 4));
    EXPECT_EQ(seen.size(), 7U);
}

TEST(Random, between_nothing_is_the_lower_end) {
    Random random{1};
    EXPECT_EQ(random.between(5, 5), 5);
    EXPECT_EQ(random.between(5, 4), 5);
    EXPECT_EQ(random.between(5, 6), 5);
    EXPECT_EQ(random.between(std::numeric_limits<std::int64_t>::max(), 0),
              std::numeric_limits<std::int64_t>::max());
}

TEST(Random, between_spreads_evenly) {
    Random random{7};
    std::array<int, 16> buckets{};
    constexpr int draws = 160'000;
    for (int i = 0; i < draws; ++i) {
        ++buckets[static_cast<std::size_t>(random.between(0, 1'600'000) / 100'000)];
    }
    for (const int count : buckets) EXPECT_NEAR(count, draws / 16, 600);  // six sigma
}

}  // namespace
