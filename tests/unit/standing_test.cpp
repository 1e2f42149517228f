#include <redlatch/core/standing.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::ClockSample;
using detail::Grant;
using detail::Standing;
using detail::TimePoint;
using std::chrono::milliseconds;

constexpr milliseconds silence = 30s;
constexpr milliseconds leave{-1};
constexpr TimePoint sent{1000s};
constexpr TimePoint arrived = sent + 2s;

ClockSample sample() {
    return {.sent = sent,
            .time = 5s,
            .ttl = 30s,
            .server = std::make_shared<const std::string>("run id")};
}

Grant grant(std::string token = "mine") {
    return {.ttl = 30s,
            .time = 6s,
            .server = "run id",
            .key_type = 's',
            .token = std::move(token),
            .key = "key"};
}

std::optional<TimePoint> granted(const Standing& standing, const Grant& message = grant()) {
    return standing.granted(message, arrived, 0);
}

/// What is known of a token at any time.
struct Known {
    bool queued = false;
    bool unclear = false;
    bool dead = false;
};

void expect(const Standing& standing, const Known& known) {
    EXPECT_EQ(standing.token(), "mine");
    EXPECT_EQ(standing.queued(), known.queued);
    EXPECT_EQ(standing.unclear(), known.unclear);
    EXPECT_EQ(standing.dead(), known.dead);
    EXPECT_EQ(standing.can_be_bequeathed(), known.queued && !known.dead);
    EXPECT_EQ(standing.must_be_released(), known.queued || known.unclear);
}

Standing queued() {
    Standing standing{"mine"};
    standing.refused(3, sample());
    return standing;
}

TEST(Standing, begins_fresh) {
    const Standing standing{"mine"};
    expect(standing, {});
    EXPECT_EQ(granted(standing), std::nullopt);
}

TEST(Standing, refused_with_a_place_is_queued) {
    for (const std::int64_t place : {0, 1, 1000}) {
        Standing standing{"mine"};
        standing.refused(place, sample());
        expect(standing, {.queued = true});
        EXPECT_EQ(granted(standing), sent + 1s);
    }
    Standing without_anchor{"mine"};
    without_anchor.refused(0);
    expect(without_anchor, {.queued = true});
}

TEST(Standing, refused_without_a_place_is_not) {
    Standing standing{"mine"};
    standing.refused(-1);
    expect(standing, {});
    standing = queued();
    standing.refused(-1);
    expect(standing, {});
    EXPECT_EQ(granted(standing), std::nullopt) << "nobody gives it to who has left";
}

TEST(Standing, asks_to_stay_for_as_long_as_it_may_be_silent) {
    for (const bool has_heirs : {false, true}) {
        EXPECT_EQ(Standing{"mine"}.stay(false, has_heirs, silence), silence);
        EXPECT_EQ(queued().stay(false, has_heirs, silence), silence);
    }
}

TEST(Standing, at_the_last_try_asks_for_no_place_and_leaves_the_one_it_has) {
    EXPECT_EQ(Standing{"mine"}.stay(true, false, silence), 0ms);
    EXPECT_EQ(Standing{"mine"}.stay(true, true, silence), 0ms) << "there is nothing to inherit";
    EXPECT_EQ(queued().stay(true, false, silence), leave);
    EXPECT_EQ(queued().stay(true, true, silence), silence) << "somebody else goes on with it";
}

TEST(Standing, taken_has_no_place_any_more) {
    Standing standing{"mine"};
    standing.taken();
    expect(standing, {});
    standing = queued();
    standing.taken();
    expect(standing, {});
    EXPECT_EQ(granted(standing), std::nullopt);
}

TEST(Standing, taken_stays_unclear) {
    Standing standing{"mine"};
    standing.repeated();
    standing.taken();
    expect(standing, {.unclear = true});
}

TEST(Standing, failed_without_having_been_sent_changes_nothing) {
    for (const milliseconds stay : {silence, 0ms, leave}) {
        Standing standing{"mine"};
        standing.failed(stay, false);
        expect(standing, {});
        standing = queued();
        standing.failed(stay, false);
        expect(standing, {.queued = true});
        EXPECT_EQ(granted(standing), sent + 1s);
    }
}

TEST(Standing, failed_that_may_be_carried_out_is_unclear) {
    for (const milliseconds stay : {0ms, leave}) {
        Standing standing{"mine"};
        standing.failed(stay, true);
        expect(standing, {.unclear = true});
        standing = queued();
        standing.failed(stay, true);
        expect(standing, {.queued = true, .unclear = true});
    }
}

TEST(Standing, failed_that_may_have_brought_a_place_counts_as_queued) {
    Standing standing{"mine"};
    standing.failed(1ms, true);
    expect(standing, {.queued = true, .unclear = true});
    EXPECT_EQ(granted(standing), std::nullopt) << "there is nothing to measure a grant by";
    EXPECT_EQ(standing.stay(true, false, silence), leave);
    standing.refused(2, sample());
    expect(standing, {.queued = true, .unclear = true});
    EXPECT_EQ(granted(standing), sent + 1s);
}

TEST(Standing, unclear_stays_unclear) {
    Standing standing = queued();
    standing.repeated();
    expect(standing, {.queued = true, .unclear = true});
    standing.refused(1, sample());
    expect(standing, {.queued = true, .unclear = true});
    standing.refused(-1);
    expect(standing, {.unclear = true});
    standing.failed(silence, false);
    expect(standing, {.unclear = true});
}

TEST(Standing, dead_is_released_and_never_believed_or_inherited) {
    Standing standing{"mine"};
    standing.die();
    expect(standing, {.unclear = true, .dead = true});
    standing = queued();
    standing.die();
    expect(standing, {.queued = true, .unclear = true, .dead = true});
    EXPECT_EQ(granted(standing), std::nullopt);
    standing = queued();
    standing.taken();
    standing.die();
    expect(standing, {.unclear = true, .dead = true});
}

TEST(Standing, inherited_has_a_place_and_nothing_to_measure_by) {
    for (const bool unclear : {false, true}) {
        Standing standing = Standing::inherited("mine", unclear);
        expect(standing, {.queued = true, .unclear = unclear});
        EXPECT_EQ(granted(standing), std::nullopt);
        EXPECT_EQ(standing.stay(true, false, silence), leave);
        standing.refused(0, sample());
        expect(standing, {.queued = true, .unclear = unclear});
        EXPECT_EQ(granted(standing), sent + 1s);
    }
}

TEST(Standing, believes_a_grant_of_its_own_token_only) {
    for (const std::string token : {"", "min", "mine ", "yours"}) {
        EXPECT_EQ(granted(queued(), grant(token)), std::nullopt) << token;
    }
}

TEST(Standing, believes_a_grant_by_the_latest_answer) {
    Standing standing = queued();
    ClockSample later = sample();
    later.sent += 10s;
    later.time += 500ms;
    standing.refused(0, later);
    EXPECT_EQ(standing.granted(grant(), arrived + 10s, 0), sent + 10500ms);
    later.time = grant().time;
    standing.refused(0, later);
    EXPECT_EQ(standing.granted(grant(), arrived + 10s, 0), std::nullopt) << "of before that answer";
}

TEST(Standing, passes_the_drift_on) {
    EXPECT_EQ(queued().granted(grant(), arrived, 0.1), sent + 900ms);
}

}  // namespace
