#include <redlatch/core/backoff.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::Pauses;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::nullopt_t no_ttl = std::nullopt;

TEST(Pauses, stay_between_min_and_max) {
    for (const Backoff limits :
         {Backoff{10ms, 100ms}, Backoff{1ms, 2ms}, Backoff{1ms, 30s}, Backoff{99ms, 100ms}}) {
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            Pauses pauses{limits, seed};
            for (int i = 0; i < 500; ++i) {
                const auto pause = pauses.next(no_ttl);
                ASSERT_GE(pause, limits.min);
                ASSERT_LT(pause, limits.max);
            }
        }
    }
}

TEST(Pauses, start_eager_and_grow_threefold_at_most) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Pauses pauses{{10ms, 100s}, seed};
        nanoseconds last = 10ms;
        for (int i = 0; i < 200; ++i) {
            const auto pause = pauses.next(no_ttl);
            ASSERT_LT(pause, last * 3);
            last = pause;
        }
    }
}

TEST(Pauses, slow_down_under_long_waiting) {
    nanoseconds first{};
    nanoseconds late{};
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
        Pauses pauses{{10ms, 1s}, seed};
        first += pauses.next(no_ttl);
        for (int i = 0; i < 30; ++i) static_cast<void>(pauses.next(no_ttl));
        late += pauses.next(no_ttl);
    }
    EXPECT_GT(late, 3 * first);
}

TEST(Pauses, first_one_is_spread_over_its_range) {
    std::array<int, 20> buckets{};  // of 1 ms, from 10 to 30
    for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
        const auto pause = Pauses{{10ms, 100ms}, seed}.next(no_ttl);
        ++buckets.at(static_cast<std::size_t>((pause - 10ms) / 1ms));
    }
    for (const int count : buckets) EXPECT_NEAR(count, 1000, 200);  // six sigma
}

TEST(Pauses, later_ones_use_the_whole_range) {
    std::array<int, 9> buckets{};  // of 10 ms, from 10 to 100
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Pauses pauses{{10ms, 100ms}, seed};
        for (int i = 0; i < 100; ++i) {
            ++buckets.at(static_cast<std::size_t>((pauses.next(no_ttl) - 10ms) / 10ms));
        }
    }
    for (const int count : buckets) EXPECT_GT(count, 20'000 / 30);
}

TEST(Pauses, two_waiters_do_not_fall_into_step) {
    Pauses a{{10ms, 100ms}, 1};
    Pauses b{{10ms, 100ms}, 2};
    std::set<nanoseconds> differences;
    for (int i = 0; i < 100; ++i) differences.insert(a.next(no_ttl) - b.next(no_ttl));
    EXPECT_EQ(differences.size(), 100U);
}

TEST(Pauses, same_seed_repeats) {
    Pauses a{{10ms, 100ms}, 9};
    Pauses b{{10ms, 100ms}, 9};
    for (int i = 0; i < 50; ++i) EXPECT_EQ(a.next(no_ttl), b.next(no_ttl));
}

TEST(Pauses, end_just_after_the_ttl) {
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
        Pauses pauses{{10ms, 10s}, seed};
        for (int i = 0; i < 50; ++i) {
            const auto pause = pauses.next(7ms);
            ASSERT_GT(pause, 7ms);
            ASSERT_LT(pause, 7ms + 1ms + 10ms);
        }
    }
}

TEST(Pauses, after_a_ttl_are_spread_as_well) {
    std::set<nanoseconds> seen;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Pauses pauses{{10ms, 100ms}, seed};
        static_cast<void>(pauses.next(no_ttl));
        seen.insert(pauses.next(1ms));
    }
    EXPECT_GT(seen.size(), 190U);
}

TEST(Pauses, after_a_ttl_are_not_spread_over_the_whole_of_a_long_back_off) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        Pauses pauses{{.min = 5s, .max = 10s}, seed};
        const auto pause = pauses.next(300ms);
        EXPECT_GT(pause, 300ms);
        EXPECT_LE(pause, 300ms + 1ms + 100ms);
    }
}

TEST(Pauses, a_ttl_of_zero_means_soon) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const auto pause = Pauses{{10ms, 10s}, seed}.next(0ms);
        ASSERT_GE(pause, 1ms);
        ASSERT_LT(pause, 11ms);
    }
}

TEST(Pauses, a_later_ttl_changes_nothing) {
    Pauses with{{10ms, 100ms}, 5};
    const Pauses without{{10ms, 100ms}, 5};
    EXPECT_EQ(with.next(1h), Pauses{without}.next(no_ttl));
}

TEST(Pauses, a_key_without_expiry_or_a_missing_one_gives_no_hint) {
    for (const milliseconds ttl : {-1ms, -2ms, milliseconds::min()}) {
        Pauses with{{10ms, 100ms}, 5};
        Pauses without{{10ms, 100ms}, 5};
        EXPECT_EQ(with.next(ttl), without.next(no_ttl));
    }
}

TEST(Pauses, the_largest_ttl_changes_nothing) {
    // A foreign client may have set any; Redis takes up to 9223372036854775 ms.
    for (const milliseconds ttl : {milliseconds{9'223'372'036'854}, milliseconds{9'223'372'036'855},
                                   milliseconds{9'223'372'036'854'775}, milliseconds::max()}) {
        for (std::uint64_t seed = 0; seed < 100; ++seed) {
            Pauses with{{10ms, 100ms}, seed};
            Pauses without{{10ms, 100ms}, seed};
            EXPECT_EQ(with.next(ttl), without.next(no_ttl)) << ttl.count();
        }
    }
}

TEST(Pauses, the_longest_max_does_not_overflow) {
    Pauses pauses{{1ms, std::chrono::days{24}}, 3};
    nanoseconds longest{};
    for (int i = 0; i < 1000; ++i) {
        const auto pause = pauses.next(no_ttl);
        ASSERT_GE(pause, 1ms);
        ASSERT_LT(pause, std::chrono::days{24});
        longest = std::max(longest, pause);
    }
    EXPECT_GT(longest, std::chrono::days{1});

    Pauses slow{{milliseconds{std::chrono::days{24}} - 1ms, std::chrono::days{24}}, 3};
    for (int i = 0; i < 100; ++i) {
        const auto pause = slow.next(no_ttl);
        ASSERT_GE(pause, std::chrono::days{24} - 1ms);
        ASSERT_LT(pause, std::chrono::days{24});
    }
}

}  // namespace
