#include <redlatch/core/token_state.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::CleanUp;
using detail::ClockSample;
using detail::Grant;
using detail::MasterSets;
using detail::OpenTries;
using detail::TimePoint;
using detail::TokenAtMasters;
using detail::TokenState;
using std::chrono::milliseconds;

constexpr milliseconds presence_ttl = 30s;
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

std::optional<TimePoint> granted(const TokenState& state, const Grant& message = grant()) {
    return state.granted(message, arrived, 0);
}

/// What is known of a token at any time.
struct Known {
    bool queued = false;
    bool lock = false;
    bool unclear = false;
    bool dead = false;
};

void expect(const TokenState& state, const Known& known) {
    EXPECT_EQ(state.token(), "mine");
    EXPECT_EQ(state.queued(), known.queued);
    EXPECT_EQ(state.unclear(), known.unclear);
    EXPECT_EQ(state.dead(), known.dead);
    EXPECT_EQ(state.can_pass_place_on(), known.queued && !known.dead);
    const CleanUp clean_up = state.clean_up();
    EXPECT_EQ(clean_up.at_once, known.queued || known.lock || known.unclear);
    EXPECT_EQ(clean_up.once_more, known.unclear);
    EXPECT_FALSE(state.has_votes_to_return()) << "one master decides";
}

TokenState queued() {
    TokenState state{"mine"};
    state.refused(3, sample());
    return state;
}

TEST(TokenState, begins_fresh) {
    const TokenState state{"mine"};
    expect(state, {});
    EXPECT_EQ(granted(state), std::nullopt);
}

TEST(TokenState, refused_with_a_place_is_queued) {
    for (const std::int64_t place : {0, 1, 1000}) {
        TokenState state{"mine"};
        state.refused(place, sample());
        expect(state, {.queued = true});
        EXPECT_EQ(granted(state), sent + 1s);
    }
    TokenState without_anchor{"mine"};
    without_anchor.refused(0);
    expect(without_anchor, {.queued = true});
}

TEST(TokenState, refused_without_a_place_is_not) {
    TokenState state{"mine"};
    state.refused(-1);
    expect(state, {});
    state = queued();
    state.refused(-1);
    expect(state, {});
    EXPECT_EQ(granted(state), std::nullopt) << "nobody gives it to who has left";
}

TEST(TokenState, asks_to_stay_for_as_long_as_it_may_be_silent) {
    for (const bool has_waiters : {false, true}) {
        EXPECT_EQ(TokenState{"mine"}.queue_ttl(false, has_waiters, presence_ttl), presence_ttl);
        EXPECT_EQ(queued().queue_ttl(false, has_waiters, presence_ttl), presence_ttl);
    }
}

TEST(TokenState, at_the_last_try_asks_for_no_place_and_leaves_the_one_it_has) {
    EXPECT_EQ(TokenState{"mine"}.queue_ttl(true, false, presence_ttl), 0ms);
    EXPECT_EQ(TokenState{"mine"}.queue_ttl(true, true, presence_ttl), 0ms)
        << "there is nothing to inherit";
    EXPECT_EQ(queued().queue_ttl(true, false, presence_ttl), leave);
    EXPECT_EQ(queued().queue_ttl(true, true, presence_ttl), presence_ttl)
        << "somebody else goes on with it";
}

TEST(TokenState, acquired_has_the_lock_and_no_place_any_more) {
    TokenState state{"mine"};
    state.acquired();
    expect(state, {.lock = true});
    state = queued();
    state.acquired();
    expect(state, {.lock = true});
    EXPECT_EQ(granted(state), std::nullopt);
}

TEST(TokenState, refused_has_not_the_lock_any_more) {
    TokenState state{"mine"};
    state.acquired();
    state.refused(-1);
    expect(state, {});
    state.acquired();
    state.refused(0, sample());
    expect(state, {.queued = true});
}

TEST(TokenState, acquired_stays_unclear) {
    TokenState state{"mine"};
    state.repeated();
    state.acquired();
    expect(state, {.lock = true, .unclear = true});
}

TEST(TokenState, failed_without_having_been_sent_changes_nothing) {
    for (const milliseconds stay : {presence_ttl, 0ms, leave}) {
        TokenState state{"mine"};
        state.failed(stay, false);
        expect(state, {});
        state = queued();
        state.failed(stay, false);
        expect(state, {.queued = true});
        EXPECT_EQ(granted(state), sent + 1s);
    }
}

TEST(TokenState, failed_that_may_be_carried_out_is_unclear) {
    for (const milliseconds stay : {0ms, leave}) {
        TokenState state{"mine"};
        state.failed(stay, true);
        expect(state, {.unclear = true});
        state = queued();
        state.failed(stay, true);
        expect(state, {.queued = true, .unclear = true});
    }
}

TEST(TokenState, failed_that_may_have_brought_a_place_counts_as_queued) {
    TokenState state{"mine"};
    state.failed(1ms, true);
    expect(state, {.queued = true, .unclear = true});
    EXPECT_EQ(granted(state), std::nullopt) << "there is nothing to measure a grant by";
    EXPECT_EQ(state.queue_ttl(true, false, presence_ttl), leave);
    state.refused(2, sample());
    expect(state, {.queued = true, .unclear = true});
    EXPECT_EQ(granted(state), sent + 1s);
}

TEST(TokenState, unclear_stays_unclear) {
    TokenState state = queued();
    state.repeated();
    expect(state, {.queued = true, .unclear = true});
    state.refused(1, sample());
    expect(state, {.queued = true, .unclear = true});
    state.refused(-1);
    expect(state, {.unclear = true});
    state.failed(presence_ttl, false);
    expect(state, {.unclear = true});
}

TEST(TokenState, dead_is_released_and_never_believed_or_inherited) {
    TokenState state{"mine"};
    state.die();
    expect(state, {.unclear = true, .dead = true});
    state = queued();
    state.die();
    expect(state, {.queued = true, .unclear = true, .dead = true});
    EXPECT_EQ(granted(state), std::nullopt);
    state = queued();
    state.acquired();
    state.die();
    expect(state, {.lock = true, .unclear = true, .dead = true});
}

TEST(TokenState, inherited_has_a_place_and_nothing_to_measure_by) {
    for (const bool unclear : {false, true}) {
        TokenState state = TokenState::with_place("mine", unclear);
        expect(state, {.queued = true, .unclear = unclear});
        EXPECT_EQ(granted(state), std::nullopt);
        EXPECT_EQ(state.queue_ttl(true, false, presence_ttl), leave);
        state.refused(0, sample());
        expect(state, {.queued = true, .unclear = unclear});
        EXPECT_EQ(granted(state), sent + 1s);
    }
}

TEST(TokenState, believes_a_grant_of_its_own_token_only) {
    for (const std::string token : {"", "min", "mine ", "yours"}) {
        EXPECT_EQ(granted(queued(), grant(token)), std::nullopt) << token;
    }
}

TEST(TokenState, believes_a_grant_by_the_latest_answer) {
    TokenState state = queued();
    ClockSample later = sample();
    later.sent += 10s;
    later.time += 500ms;
    state.refused(0, later);
    EXPECT_EQ(state.granted(grant(), arrived + 10s, 0), sent + 10500ms);
    later.time = grant().time;
    state.refused(0, later);
    EXPECT_EQ(state.granted(grant(), arrived + 10s, 0), std::nullopt) << "of before that answer";
}

// ---- A try that was given up, and is answered all the same

TEST(TokenState, believes_a_late_answer_from_when_its_try_was_sent) {
    TokenState state = queued();
    state.asks(300ms);
    state.failed(presence_ttl, true);
    EXPECT_EQ(state.answered_late("mine", {.sent = sent, .number = 1}), sent);
    EXPECT_EQ(state.answered_late("theirs", {.sent = sent, .number = 1}), std::nullopt);
    state.die();
    EXPECT_EQ(state.answered_late("mine", {.sent = sent, .number = 1}), std::nullopt);
}

TEST(TokenState, remembers_what_was_asked_for_at_most_whoever_asked) {
    TokenState state{"mine"};
    state.asks(3s);
    state.asks(300ms);
    EXPECT_EQ(state.open_tries().longest, 3s);
    TokenState heir = TokenState::with_place("mine", true, state.tries());
    heir.asks(100ms);
    EXPECT_EQ(heir.open_tries().longest, 3s);
    heir.asks(5s);
    EXPECT_EQ(heir.open_tries().longest, 5s);
}

TEST(TokenState, does_not_believe_a_late_answer_when_a_later_try_was_answered) {
    TokenState state{"mine"};
    for (int tries = 0; tries < 2; ++tries) state.asks(300ms);
    state.answered();
    state.asks(300ms);
    const TokenState heir = TokenState::with_place("mine", true, state.tries());
    for (const TokenState& any : {state, heir}) {
        EXPECT_EQ(any.answered_late("mine", {.sent = sent, .number = 1}), std::nullopt);
        EXPECT_EQ(any.answered_late("mine", {.sent = sent, .number = 2}), std::nullopt);
        EXPECT_EQ(any.answered_late("mine", {.sent = sent, .number = 3}), sent);
    }
}

// ---- Of several masters

constexpr MasterSets none{};

TokenState at_three() {
    return TokenState{"mine", true};
}

TEST(TokenState, at_several_masters_begins_with_nothing) {
    const TokenState state = at_three();
    EXPECT_FALSE(state.clean_up().needed());
    EXPECT_FALSE(state.has_votes_to_return());
    ASSERT_NE(state.at_masters(), nullptr);
    EXPECT_EQ(state.at_masters()->asked(), 0U);
    EXPECT_TRUE(state.at_masters()->all_settled());
    EXPECT_EQ(TokenState{"mine"}.at_masters(), nullptr) << "one has it, or not";
}

TEST(TokenState, refused_by_all_is_not_dead) {
    TokenState state = at_three();
    state.attempted({.asked = 0b111, .answered = 0b111});
    state.refused(-1);
    EXPECT_FALSE(state.dead());
    EXPECT_FALSE(state.clean_up().needed());
}

TEST(TokenState, refused_with_a_vote_that_others_need_is_dead) {
    TokenState state = at_three();
    state.attempted({.asked = 0b111, .answered = 0b111, .agreed = 0b001});
    state.refused(-1);
    EXPECT_TRUE(state.dead());
    EXPECT_TRUE(state.has_votes_to_return());
    EXPECT_EQ(state.clean_up(), (CleanUp{.at_once = true, .once_more = true}));
}

TEST(TokenState, refused_with_an_answer_missing_is_dead) {
    TokenState state = at_three();
    state.attempted({.asked = 0b111, .answered = 0b011});
    state.refused(-1);
    EXPECT_TRUE(state.dead());
    EXPECT_TRUE(state.has_votes_to_return());
}

TEST(TokenState, failed_with_a_vote_is_dead_and_without_one_is_not) {
    TokenState state = at_three();
    state.attempted(none);
    state.failed(0ms, false);
    EXPECT_FALSE(state.dead());
    state.attempted({.asked = 0b001, .answered = 0b001, .agreed = 0b001});
    state.failed(0ms, false);
    EXPECT_TRUE(state.dead());
}

TEST(TokenState, votes_of_an_earlier_try_do_not_kill_it) {
    TokenState state = at_three();
    state.attempted({.asked = 0b111, .answered = 0b111, .agreed = 0b111});
    state.attempted({.asked = 0b111, .answered = 0b111});
    state.refused(-1);
    EXPECT_FALSE(state.dead());
}

/// Dead, after tries and a release that got so far.
CleanUp after_return(std::initializer_list<MasterSets> tries, const MasterSets& release) {
    TokenState state = at_three();
    for (const MasterSets& reached : tries) state.attempted(reached);
    state.die();
    EXPECT_TRUE(state.has_votes_to_return());
    state.votes_returned(release);
    return state.clean_up();
}

TEST(TokenState, votes_that_all_were_asked_for_returned_leave_nothing_to_clean_up) {
    const MasterSets tried{.asked = 0b011, .answered = 0b011, .agreed = 0b001};
    EXPECT_EQ(after_return({tried}, {.asked = 0b111, .answered = 0b011}), CleanUp{});
    EXPECT_EQ(after_return({tried}, {.asked = 0b111, .answered = 0b001, .late = 0b010}), CleanUp{})
        << "the late answer is looked after";
}

TEST(TokenState, votes_that_one_was_not_told_to_return_are_cleaned_up) {
    const MasterSets tried{.asked = 0b111, .answered = 0b111, .agreed = 0b001};
    const CleanUp both{.at_once = true, .once_more = true};
    EXPECT_EQ(after_return({tried}, {.asked = 0b111, .answered = 0b110}), both);
    EXPECT_EQ(after_return({tried}, none), both);
}

TEST(TokenState, votes_that_may_come_yet_are_cleaned_up_whatever_the_release_was_answered) {
    const MasterSets tried{.asked = 0b111, .answered = 0b011, .agreed = 0b001};
    const MasterSets again{.asked = 0b111, .answered = 0b111, .agreed = 0b001};
    const MasterSets all{.asked = 0b111, .answered = 0b111};
    const CleanUp both{.at_once = true, .once_more = true};
    EXPECT_EQ(after_return({tried}, all), both);
    EXPECT_EQ(after_return({tried, again}, all), both) << "of an earlier try";
    EXPECT_EQ(after_return({again}, all), CleanUp{});
}

TEST(TokenAtMasters, remembers_all_that_were_asked) {
    TokenAtMasters masters;
    masters.attempted({.asked = 0b001});
    masters.attempted({.asked = 0b100});
    EXPECT_EQ(masters.asked(), 0b101U);
    EXPECT_TRUE(masters.was_asked(0));
    EXPECT_FALSE(masters.was_asked(1));
    EXPECT_TRUE(masters.was_asked(2));
}

TEST(TokenAtMasters, is_settled_when_each_late_answer_has_come) {
    TokenAtMasters masters;
    masters.attempted({.asked = 0b111, .answered = 0b001, .late = 0b110});
    EXPECT_FALSE(masters.all_settled());
    masters.settled();
    EXPECT_FALSE(masters.all_settled());
    masters.settled();
    EXPECT_TRUE(masters.all_settled());
}

TEST(TokenState, leaves_open_what_outlives_it) {
    TokenState state = at_three();
    state.attempted({.asked = 0b101, .answered = 0b001, .late = 0b100});
    const OpenTries open = state.open_tries();
    EXPECT_FALSE(open.unclear);
    EXPECT_EQ(open.masters(), 0b101U);
    EXPECT_FALSE(open.may_be_at(1));
    EXPECT_TRUE(open.may_be_at(2));
    EXPECT_TRUE(open.may_be_carried_out());
    state.at_masters()->settled();
    EXPECT_FALSE(open.may_be_carried_out()) << "the late answer has come";
    state.repeated();
    EXPECT_TRUE(state.open_tries().unclear);
    EXPECT_TRUE(state.open_tries().may_be_carried_out());
}

TEST(OpenTries, of_one_master_are_those_without_an_answer) {
    EXPECT_FALSE(OpenTries{}.may_be_carried_out());
    EXPECT_TRUE(OpenTries{.unclear = true}.may_be_carried_out());
    EXPECT_EQ(OpenTries{}.masters(), 0U);
    EXPECT_TRUE(OpenTries{}.may_be_at(0));
}

TEST(TokenState, passes_the_drift_on) {
    EXPECT_EQ(queued().granted(grant(), arrived, 0.1), sent + 900ms);
}

}  // namespace
