#include <redlatch/types.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>
#include <string_view>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Wait, made_of_any_duration) {
    EXPECT_EQ(Wait{3s}.duration(), 3'000'000'000ns);
    EXPECT_EQ(Wait{7ns}.duration(), 7ns);
    EXPECT_EQ(Wait{std::chrono::duration<double>{0.5}}.duration(), 500ms);
    EXPECT_EQ(Wait{std::chrono::days{1}}.duration(), 24h);
}

TEST(Wait, zero_or_less_is_none) {
    EXPECT_TRUE(Wait::none().is_none());
    EXPECT_TRUE(Wait{0s}.is_none());
    EXPECT_TRUE(Wait{-1ns}.is_none());
    EXPECT_TRUE(Wait{hours::min()}.is_none());
    EXPECT_TRUE(Wait{nanoseconds::min()}.is_none());
    EXPECT_FALSE(Wait{1ns}.is_none());
    EXPECT_FALSE(Wait::unlimited().is_none());
}

TEST(Wait, not_a_number_is_none) {
    EXPECT_TRUE(
        Wait{std::chrono::duration<double>{std::numeric_limits<double>::quiet_NaN()}}.is_none());
}

TEST(Wait, too_large_to_count_is_unlimited) {
    EXPECT_TRUE(Wait::unlimited().is_unlimited());
    EXPECT_TRUE(Wait{nanoseconds::max()}.is_unlimited());
    EXPECT_TRUE(Wait{milliseconds::max()}.is_unlimited());
    EXPECT_TRUE(Wait{hours::max()}.is_unlimited());
    EXPECT_TRUE(Wait{std::chrono::years{300}}.is_unlimited());
    EXPECT_TRUE(Wait{std::chrono::duration<double>{std::numeric_limits<double>::infinity()}}
                    .is_unlimited());
    EXPECT_FALSE(Wait{nanoseconds::max() - 1ns}.is_unlimited());
    EXPECT_FALSE(Wait{std::chrono::years{200}}.is_unlimited());
    EXPECT_FALSE(Wait::none().is_unlimited());
}

TEST(Wait, compares) {
    EXPECT_EQ(Wait{1s}, Wait{1000ms});
    EXPECT_LT(Wait{1s}, Wait{2s});
    EXPECT_LT(Wait{std::chrono::years{200}}, Wait::unlimited());
}

TEST(Lease, counts_whole_milliseconds) {
    EXPECT_EQ(Lease{30s}.duration(), 30'000ms);
    EXPECT_EQ(Lease{10'999us}.duration(), 10ms);
    EXPECT_EQ(Lease{std::chrono::duration<double>{0.0109}}.duration(), 10ms);
    EXPECT_EQ(Lease{0s}.duration(), 0ms);
    EXPECT_EQ(Lease{-1s}.duration(), -1000ms);
}

TEST(Lease, saturates) {
    EXPECT_EQ(Lease{hours::max()}.duration(), milliseconds::max());
    EXPECT_EQ(Lease{hours::min()}.duration(), milliseconds::min());
    EXPECT_EQ(
        Lease{std::chrono::duration<double>{std::numeric_limits<double>::quiet_NaN()}}.duration(),
        0ms);
    EXPECT_GT(Lease{milliseconds::max()}, Lease::max());
    EXPECT_LT(Lease{milliseconds::min()}, Lease::min());
}

TEST(Lease, has_limits) {
    EXPECT_EQ(Lease::min().duration(), 10ms);
    EXPECT_EQ(Lease::max().duration(), milliseconds{std::chrono::days{24}});
    EXPECT_LT(Lease{9'999us}, Lease::min());
    EXPECT_EQ(Lease{10'001us}, Lease::min());
}

TEST(Ticket, is_made_of_any_text) {
    const std::string_view line{"ticket=text"};
    EXPECT_EQ(Ticket{line.substr(7)}, Ticket{"text"});
    EXPECT_EQ(Ticket{line.substr(7)}, Ticket{std::string{"text"}});
}

TEST(LockInfo, of_nothing_is_unlocked) {
    const LockInfo info;
    EXPECT_FALSE(info.locked);
    EXPECT_EQ(info.owner, "");
    EXPECT_EQ(info.hold_count, 0U);
    EXPECT_FALSE(info.ttl);
}

}  // namespace
