#include <redlatch/core/renew.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::renewal_due;
using detail::renewal_lease;
using detail::renewal_patience;
using detail::renewal_retry_due;
using detail::renewal_window;
using detail::TimePoint;
using detail::widest_renewal_window;

constexpr TimePoint now{1000s};

TEST(Renewal, is_due_after_a_third_of_the_lease) {
    EXPECT_EQ(renewal_due(now, 30s), now + 10s);
    EXPECT_EQ(renewal_due(now, 10ms), now + 3'333'333ns);
    EXPECT_EQ(renewal_due(now, Lease::max()), now + std::chrono::days{8});
    EXPECT_EQ(renewal_due(TimePoint::max(), 30s), TimePoint::max());
}

TEST(Renewal, goes_out_sooner_than_due_by_a_fraction_of_the_lease_at_most) {
    EXPECT_EQ(renewal_window(30s), 10ms);
    EXPECT_EQ(renewal_window(Lease::max()), widest_renewal_window);
    EXPECT_EQ(renewal_window(60ms), 5ms);
    for (auto lease = 10ms; lease < 60s; lease = lease * 3 / 2) {
        const auto pause = renewal_due(now, lease) - renewal_window(lease) - now;
        EXPECT_GE(pause, lease / 4) << lease.count() << ": renewed at once again";
        EXPECT_LE(renewal_window(lease), widest_renewal_window);
    }
}

TEST(Renewal, without_an_answer_is_tried_again_soon) {
    EXPECT_EQ(renewal_retry_due(now, 1200ms), now + 100ms);
}

TEST(Renewal, without_an_answer_is_not_tried_in_a_hot_loop) {
    EXPECT_EQ(renewal_retry_due(now, 10ms), now + 5ms);
    EXPECT_EQ(renewal_retry_due(now, 60ms), now + 5ms);
}

TEST(Renewal, of_a_long_lease_is_tried_again_within_half_a_second) {
    EXPECT_EQ(renewal_retry_due(now, 30s), now + 500ms);
    EXPECT_EQ(renewal_retry_due(now, Lease::max()), now + 500ms);
}

TEST(Renewal, waits_for_its_answer_as_long_as_another_try_fits_in) {
    EXPECT_EQ(renewal_patience(30s, 1000ms), 1s);
    EXPECT_EQ(renewal_patience(300ms, 1000ms), 100ms);
    EXPECT_EQ(renewal_patience(3s, 1000ms), 1s);
    EXPECT_EQ(renewal_patience(Lease::max(), 24h), 24h);
}

TEST(Renewal, of_an_endless_hold_asks_for_the_whole_lease) {
    EXPECT_EQ(renewal_lease(30s, now, TimePoint::max()), Lease{30s});
    EXPECT_EQ(renewal_lease(Lease::max(), TimePoint{}, TimePoint::max()), Lease::max());
}

TEST(Renewal, asks_for_no_more_than_the_hold_has_left) {
    EXPECT_EQ(renewal_lease(30s, now, now + 40s), Lease{30s});
    EXPECT_EQ(renewal_lease(30s, now, now + 30s), Lease{30s});
    EXPECT_EQ(renewal_lease(30s, now, now + 7s), Lease{7s});
    EXPECT_EQ(renewal_lease(30s, now, now + 1500us), Lease{2ms}) << "rounded up";
}

TEST(Renewal, after_the_end_asks_for_nothing) {
    EXPECT_LE(renewal_lease(30s, now, now), Lease{0ms});
    EXPECT_LE(renewal_lease(30s, now, now - 1s), Lease{0ms});
    EXPECT_LE(renewal_lease(30s, TimePoint::max(), TimePoint{}), Lease{0ms});
}

TEST(Renewal, without_an_answer_leaves_time_for_another_try) {
    for (auto lease = 20ms; lease < 60s; lease = lease * 3 / 2) {
        const auto first = renewal_due(now, lease);
        const auto second =
            renewal_retry_due(first + renewal_patience(lease, 1000ms), Lease{lease});
        EXPECT_LT(second, now + lease) << lease.count();
    }
}

}  // namespace
