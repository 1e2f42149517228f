#include <redlatch/core/server_clock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace redlatch::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;

constexpr TimePoint start{1000s};
constexpr microseconds epoch = 1'700'000'000s;

/// Microseconds since `epoch`, less the margin.
std::int64_t limit(const ServerClock& clock, TimePoint now, Clock::duration patience = 0s) {
    return clock.server_deadline(now, patience) - (epoch + microseconds{late_margin}).count();
}

TEST(ServerTime, is_one_that_can_be) {
    constexpr std::int64_t latest = (std::int64_t{1} << 53U) - 1;
    EXPECT_EQ(server_time(epoch.count()), epoch);
    EXPECT_EQ(server_time(1), 1us);
    EXPECT_EQ(server_time(latest), microseconds{latest});
    EXPECT_EQ(server_time(0), std::nullopt);
    EXPECT_EQ(server_time(-1), std::nullopt);
    EXPECT_EQ(server_time(latest + 1), std::nullopt);
    EXPECT_EQ(server_time(std::numeric_limits<std::int64_t>::max()), std::nullopt);
}

TEST(ServerClock, at_its_latest_overflows_nothing) {
    constexpr microseconds latest{(std::int64_t{1} << 53U) - 1};
    ServerClock clock;
    clock.answered(start, latest, start);
    EXPECT_GT(clock.server_deadline(start, Clock::duration::max()), latest.count());
}

TEST(ServerClock, that_was_never_seen_limits_nothing) {
    EXPECT_EQ(ServerClock{}.server_deadline(start, 1s), 0);
}

TEST(ServerClock, goes_on_from_its_last_answer) {
    ServerClock clock;
    clock.answered(start, epoch, start);
    EXPECT_EQ(limit(clock, start), 0);
    EXPECT_EQ(limit(clock, start + 5s, 400ms), 5'400'000);
}

TEST(ServerClock, is_not_taken_to_be_ahead_of_what_it_told) {
    ServerClock clock;
    clock.answered(start, epoch, start + 300ms);
    EXPECT_EQ(limit(clock, start + 300ms), 0);
}

TEST(ServerClock, is_known_better_with_each_answer) {
    ServerClock clock;
    clock.answered(start, epoch + 100ms, start + 300ms);    // 200 to 100 ms behind ours
    clock.answered(start + 1s, epoch + 850ms, start + 1s);  // 150 ms
    EXPECT_EQ(limit(clock, start + 1s), 850'000);
    clock.answered(start + 2s, epoch + 2s,
                   start + 3s);  // an answer on the way for a second: no news
    EXPECT_EQ(limit(clock, start + 3s), 2'850'000);
}

TEST(ServerClock, that_was_set_is_followed_both_ways) {
    ServerClock clock;
    clock.answered(start, epoch, start);
    clock.answered(start + 1s, epoch + 1h, start + 1s);
    EXPECT_EQ(limit(clock, start + 1s), microseconds{1h}.count());
    clock.answered(start + 2s, epoch - 1h, start + 2s);
    EXPECT_EQ(limit(clock, start + 2s), -microseconds{1h}.count());
}

TEST(ServerClock, does_not_overflow_where_somebody_waits_for_ever) {
    ServerClock clock;
    clock.answered(start, epoch, start);
    EXPECT_GT(limit(clock, start, Clock::duration::max()), microseconds{24h}.count());
    EXPECT_EQ(limit(clock, start, Clock::duration::min()), 0);
}

Fault fault(std::string message) {
    return {.error = {Errc::unavailable, {}, {}, std::move(message), {}}};
}

TEST(Late, is_told_with_the_servers_time) {
    EXPECT_EQ(late_reply_time(fault("LATE 1700000000000001 is the time")), epoch + 1us);
    EXPECT_EQ(late_reply_time(fault("LATE 17")), 17us);
}

TEST(Late, is_nothing_else) {
    for (const char* const text : {"", "LATE", "LATE ", "LATE x", "LATE -1", "LATE 0", "LATER 17",
                                   "ERR LATE 17", "LATE 99999999999999999999"}) {
        EXPECT_FALSE(late_reply_time(fault(text))) << text;
    }
}

}  // namespace
}  // namespace redlatch::detail
