#include <redlatch/core/validity.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::delay_over;
using detail::TimePoint;
using detail::usable_part;
using detail::valid_until;

TEST(Validity, is_the_lease_less_drift_from_the_send) {
    const TimePoint sent{100s};
    EXPECT_EQ(valid_until(sent, 30s, Drift{}), sent + 30s - 300ms - 2ms);
    EXPECT_EQ(valid_until(sent, 1s, Drift{.factor = 0.1, .floor = 50ms}), sent + 850ms);
}

TEST(Validity, without_drift_is_the_whole_lease) {
    EXPECT_EQ(usable_part(30s, Drift{.factor = 0, .floor = 0ms}), 30s);
}

TEST(Validity, ends_before_the_lease_for_every_length) {
    for (auto lease = Lease::min().duration(); lease <= Lease::max().duration();
         lease = lease * 2) {
        const auto usable = usable_part(lease, Drift{});
        EXPECT_GT(usable, 0ns) << lease.count();
        EXPECT_LE(usable, lease - 2ms) << lease.count();
    }
    EXPECT_EQ(usable_part(Lease::max(), Drift{}), Lease::max().duration() / 100 * 99 - 2ms);
}

TEST(Validity, grows_with_the_lease) {
    auto last = usable_part(10ms, Drift{});
    for (auto lease = 11ms; lease < 2000ms; ++lease) {
        const auto usable = usable_part(lease, Drift{});
        EXPECT_GT(usable, last);
        last = usable;
    }
}

TEST(Validity, of_a_lease_shorter_than_its_drift_is_none) {
    EXPECT_LE(usable_part(10ms, Drift{.factor = 0.01, .floor = 10ms}), 0ns);
    EXPECT_LE(usable_part(10ms, Drift{.factor = 0, .floor = 10ms}), 0ns);
    EXPECT_LE(usable_part(10ms, Drift{.factor = 0.9, .floor = 1ms}), 0ns);
    EXPECT_LE(valid_until(TimePoint{1s}, 10ms, Drift{.factor = 0, .floor = 24h * 24}),
              TimePoint{1s});
}

TEST(Validity, is_followed_by_a_lock_delay_of_the_servers_clock) {
    EXPECT_EQ(delay_over(TimePoint{5s}, 3s, Drift{.factor = 0, .floor = 0ms}), TimePoint{8s});
    EXPECT_EQ(delay_over(TimePoint{5s}, 3s, Drift{.factor = 0.01, .floor = 2ms}),
              TimePoint{8s} + 30ms + 2ms);
    EXPECT_EQ(delay_over(TimePoint::max() - 1s, 3s, Drift{}), TimePoint::max());
}

TEST(Validity, at_the_end_of_the_clock_saturates) {
    EXPECT_EQ(valid_until(TimePoint::max(), 30s, Drift{}), TimePoint::max());
    EXPECT_EQ(valid_until(TimePoint::max() - 1s, Lease::max(), Drift{}), TimePoint::max());
}

}  // namespace
