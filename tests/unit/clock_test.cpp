#include <redlatch/clock.hpp>
#include <redlatch/types.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::saturating_add;
using detail::saturating_cast;
using detail::saturating_sub;
using detail::TimePoint;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr TimePoint at(Clock::duration since) {
    return TimePoint{since};
}

TEST(Clock, never_goes_back) {
    TimePoint last = Clock::now();
    for (int i = 0; i < 10'000; ++i) {
        const TimePoint now = Clock::now();
        ASSERT_GE(now, last);
        last = now;
    }
    EXPECT_GT(last, TimePoint{});
}

TEST(SaturatingCast, keeps_what_fits) {
    EXPECT_EQ(saturating_cast<nanoseconds>(3ms), 3'000'000ns);
    EXPECT_EQ(saturating_cast<nanoseconds>(-2h), nanoseconds{-2h});
    EXPECT_EQ(saturating_cast<milliseconds>(5s), 5000ms);
    EXPECT_EQ(saturating_cast<nanoseconds>(std::chrono::days{24}), nanoseconds{576h});
    EXPECT_EQ(saturating_cast<nanoseconds>(0ns), 0ns);
}

TEST(SaturatingCast, truncates_towards_zero) {
    EXPECT_EQ(saturating_cast<milliseconds>(1'999'999ns), 1ms);
    EXPECT_EQ(saturating_cast<milliseconds>(-1'999'999ns), -1ms);
    EXPECT_EQ(saturating_cast<nanoseconds>(std::chrono::duration<double, std::milli>{0.25}),
              250'000ns);
}

template <class Duration>
void expect_ends_of_nanoseconds() {
    EXPECT_EQ(saturating_cast<nanoseconds>(Duration::max()), nanoseconds::max());
    EXPECT_EQ(saturating_cast<nanoseconds>(Duration::min()), nanoseconds::min());
}

TEST(SaturatingCast, ends_of_coarser_durations_become_the_ends) {
    expect_ends_of_nanoseconds<std::chrono::microseconds>();
    expect_ends_of_nanoseconds<milliseconds>();
    expect_ends_of_nanoseconds<std::chrono::seconds>();
    expect_ends_of_nanoseconds<std::chrono::duration<std::int64_t, std::ratio<60>>>();
    expect_ends_of_nanoseconds<std::chrono::duration<std::int64_t, std::ratio<3600>>>();
    expect_ends_of_nanoseconds<std::chrono::duration<std::int64_t, std::ratio<31556952>>>();
    expect_ends_of_nanoseconds<std::chrono::duration<std::int64_t, std::giga>>();
    expect_ends_of_nanoseconds<std::chrono::duration<std::int64_t, std::ratio<1, 3>>>();
    expect_ends_of_nanoseconds<std::chrono::duration<std::int64_t, std::ratio<1001, 30000>>>();
}

TEST(TimeLeft, until_the_last_point_of_a_clock_is_without_limit) {
    using detail::time_left;
    EXPECT_TRUE(Wait{time_left(std::chrono::system_clock::time_point::max())}.is_unlimited());
    EXPECT_TRUE(Wait{time_left(std::chrono::steady_clock::time_point::max())}.is_unlimited());
    EXPECT_TRUE(Wait{time_left(std::chrono::sys_seconds::max())}.is_unlimited());
    EXPECT_FALSE(Wait{time_left(std::chrono::steady_clock::now() + 24h)}.is_unlimited());
    EXPECT_TRUE(Wait{time_left(std::chrono::steady_clock::time_point::min())}.is_none());
}

TEST(SaturatingCast, ends_of_the_same_duration_stay) {
    EXPECT_EQ(saturating_cast<nanoseconds>(nanoseconds::max()), nanoseconds::max());
    EXPECT_EQ(saturating_cast<nanoseconds>(nanoseconds::min()), nanoseconds::min());
    EXPECT_EQ(saturating_cast<nanoseconds>(nanoseconds::max() - 1ns), nanoseconds::max() - 1ns);
    EXPECT_EQ(saturating_cast<milliseconds>(milliseconds::max()), milliseconds::max());
}

TEST(SaturatingCast, ends_of_finer_durations_fit) {
    using Pico = std::chrono::duration<std::int64_t, std::pico>;
    using Atto = std::chrono::duration<std::int64_t, std::atto>;
    EXPECT_EQ(saturating_cast<nanoseconds>(Pico::max()).count(), Pico::max().count() / 1000);
    EXPECT_EQ(saturating_cast<nanoseconds>(Atto::min()), -9s - 223'372'036ns);
    EXPECT_EQ(saturating_cast<milliseconds>(nanoseconds::max()), 9'223'372'036'854ms);
    EXPECT_EQ(saturating_cast<milliseconds>(nanoseconds::min()), -9'223'372'036'854ms);
}

TEST(SaturatingCast, just_inside_and_outside_the_range) {
    EXPECT_EQ(saturating_cast<nanoseconds>(9'223'372'036s), nanoseconds{9'223'372'036s});
    EXPECT_EQ(saturating_cast<nanoseconds>(9'223'372'037s), nanoseconds::max());
    EXPECT_EQ(saturating_cast<nanoseconds>(-9'223'372'036s), nanoseconds{-9'223'372'036s});
    EXPECT_EQ(saturating_cast<nanoseconds>(-9'223'372'037s), nanoseconds::min());
    EXPECT_EQ(saturating_cast<nanoseconds>(9'223'372'036'854'775us),
              nanoseconds{9'223'372'036'854'775us});
    EXPECT_EQ(saturating_cast<nanoseconds>(9'223'372'036'854'776us), nanoseconds::max());
}

TEST(SaturatingCast, odd_periods_do_not_overflow_on_the_way) {
    using Thirds = std::chrono::duration<std::int64_t, std::ratio<1, 3>>;
    EXPECT_EQ(saturating_cast<nanoseconds>(Thirds{3}), 1s);
    EXPECT_EQ(saturating_cast<nanoseconds>(Thirds{24'000'000'000}), nanoseconds{8'000'000'000s});
    EXPECT_EQ(saturating_cast<nanoseconds>(Thirds{-24'000'000'000}), nanoseconds{-8'000'000'000s});
}

TEST(SaturatingCast, narrow_and_unsigned_counts) {
    EXPECT_EQ(saturating_cast<nanoseconds>(std::chrono::duration<int>{7}), 7s);
    EXPECT_EQ(saturating_cast<nanoseconds>(std::chrono::duration<short, std::milli>{-7}), -7ms);
    using Unsigned = std::chrono::duration<std::uint64_t, std::nano>;
    EXPECT_EQ(saturating_cast<nanoseconds>(Unsigned{7}), 7ns);
    EXPECT_EQ(saturating_cast<nanoseconds>(Unsigned::max()), nanoseconds::max());
    EXPECT_EQ(
        saturating_cast<nanoseconds>(std::chrono::duration<std::uint32_t, std::ratio<3600>>::max()),
        nanoseconds::max());
}

TEST(SaturatingCast, floating_point_ends) {
    using Seconds = std::chrono::duration<double>;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(saturating_cast<nanoseconds>(Seconds{infinity}), nanoseconds::max());
    EXPECT_EQ(saturating_cast<nanoseconds>(Seconds{-infinity}), nanoseconds::min());
    EXPECT_EQ(saturating_cast<nanoseconds>(Seconds{1e300}), nanoseconds::max());
    EXPECT_EQ(saturating_cast<nanoseconds>(Seconds{-1e300}), nanoseconds::min());
    EXPECT_EQ(saturating_cast<nanoseconds>(Seconds{1e-300}), 0ns);
    EXPECT_EQ(saturating_cast<nanoseconds>(std::chrono::duration<float>{0.5F}), 500ms);
    EXPECT_EQ(saturating_cast<nanoseconds>(
                  std::chrono::duration<double, std::nano>{9223372036854775808.0}),
              nanoseconds::max());
}

TEST(SaturatingCast, not_a_number_becomes_zero) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(saturating_cast<nanoseconds>(std::chrono::duration<double>{nan}), 0ns);
    EXPECT_EQ(saturating_cast<milliseconds>(std::chrono::duration<double>{-nan}), 0ms);
}

TEST(SaturatingAdd, adds) {
    EXPECT_EQ(saturating_add(at(5s), 3s), at(8s));
    EXPECT_EQ(saturating_add(at(5s), -8s), at(-3s));
    EXPECT_EQ(saturating_add(at(5s), 0s), at(5s));
}

TEST(SaturatingAdd, stays_at_the_ends) {
    const auto top = Clock::duration::max();
    const auto bottom = Clock::duration::min();
    EXPECT_EQ(saturating_add(at(1ns), top), TimePoint::max());
    EXPECT_EQ(saturating_add(at(0ns), top), TimePoint::max());
    EXPECT_EQ(saturating_add(TimePoint::max(), 1ns), TimePoint::max());
    EXPECT_EQ(saturating_add(TimePoint::max(), top), TimePoint::max());
    EXPECT_EQ(saturating_add(at(top - 1ns), 1ns), TimePoint::max());
    EXPECT_EQ(saturating_add(at(-1ns), bottom), TimePoint::min());
    EXPECT_EQ(saturating_add(TimePoint::min(), -1ns), TimePoint::min());
    EXPECT_EQ(saturating_add(TimePoint::min(), bottom), TimePoint::min());
    EXPECT_EQ(saturating_add(at(0ns), bottom), TimePoint::min());
}

TEST(SaturatingAdd, comes_back_from_the_ends) {
    EXPECT_EQ(saturating_add(TimePoint::max(), -1ns), at(Clock::duration::max() - 1ns));
    EXPECT_EQ(saturating_add(TimePoint::min(), Clock::duration::max()), at(-1ns));
}

TEST(SaturatingSub, subtracts) {
    EXPECT_EQ(saturating_sub(at(5s), at(3s)), 2s);
    EXPECT_EQ(saturating_sub(at(3s), at(5s)), -2s);
    EXPECT_EQ(saturating_sub(at(3s), at(3s)), 0s);
}

TEST(SaturatingSub, for_ever_stays_for_ever_away) {
    EXPECT_EQ(saturating_sub(TimePoint::max(), at(5s)), Clock::duration::max());
    EXPECT_EQ(saturating_sub(TimePoint::max(), at(-5s)), Clock::duration::max());
    EXPECT_EQ(saturating_sub(TimePoint::max(), TimePoint::min()), Clock::duration::max());
}

TEST(SaturatingSub, stays_at_the_ends) {
    EXPECT_EQ(saturating_sub(at(5s), TimePoint::min()), Clock::duration::max());
    EXPECT_EQ(saturating_sub(at(0s), TimePoint::min()), Clock::duration::max());
    EXPECT_EQ(saturating_sub(TimePoint::min(), at(5s)), Clock::duration::min());
    EXPECT_EQ(saturating_sub(TimePoint::min(), TimePoint::max()), Clock::duration::min());
    EXPECT_EQ(saturating_sub(TimePoint::min(), at(0s)), Clock::duration::min());
    EXPECT_EQ(saturating_sub(at(-1ns), TimePoint::max()), Clock::duration::min());
    EXPECT_EQ(saturating_sub(TimePoint::min(), TimePoint::min()), 0ns);
}

}  // namespace
