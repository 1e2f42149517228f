#include "service_tools.hpp"
#include <redlatch/core/hold.hpp>
#include <redlatch/policy/watchdog.hpp>
#include <redlatch/service/hold_calls.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::Hold;
using detail::Phase;
using detail::TimePoint;

constexpr TimePoint sent{1000s};

std::shared_ptr<Hold> taken_at_sent(HoldRecipe recipe = {}) {
    auto hold = asked_hold(std::move(recipe));
    hold->taken(sent);
    return hold;
}

TEST(Hold, asked_for_holds_nothing) {
    const auto hold = asked_hold();
    EXPECT_TRUE(hold->in(Phase::acquiring));
    EXPECT_FALSE(hold->valid(sent));
    EXPECT_FALSE(hold->valid(TimePoint::min()));
    EXPECT_EQ(hold->state(sent), HoldState::none);
    EXPECT_EQ(hold->remaining(sent), 0ms);
}

TEST(Hold, taken_is_valid_for_its_lease) {
    const auto hold = taken_at_sent({.lease = 30s});
    EXPECT_TRUE(hold->in(Phase::held));
    EXPECT_EQ(hold->taken_at(), sent);
    EXPECT_EQ(hold->valid_until(), sent + 30s);
    EXPECT_TRUE(hold->valid(sent));
    EXPECT_EQ(hold->state(sent), HoldState::held);
    EXPECT_EQ(hold->remaining(sent + 1s), 29s);
}

TEST(Hold, validity_leaves_drift_out) {
    const auto hold = taken_at_sent({.lease = 30s, .drift = {}});
    EXPECT_EQ(hold->valid_until(), sent + 30s - 300ms - 2ms);
}

TEST(Hold, release_leaves_a_tombstone_until_its_min_hold_is_over) {
    const auto hold = taken_at_sent({.min_hold = 5s});
    const LockScripts& scripts = hold->scripts();
    const auto script_at = [&](TimePoint now) { return detail::release_call(*hold, now).script(); };
    EXPECT_EQ(script_at(sent), &scripts.release) << "nobody has had it yet";
    hold->begin_min_hold(sent + 1s);
    EXPECT_EQ(script_at(sent + 6s - 1ns), &scripts.tombstone);
    EXPECT_EQ(script_at(sent + 6s), &scripts.release);
    hold->drop_min_hold();
    EXPECT_EQ(script_at(sent + 1s), &scripts.release) << "rolled back";
}

TEST(Hold, without_a_min_hold_has_none) {
    const auto hold = taken_at_sent();
    hold->begin_min_hold(sent);
    EXPECT_EQ(hold->kept_until(), TimePoint::min());
}

TEST(Hold, ends_with_its_validity_by_the_clock_alone) {
    const auto hold = taken_at_sent({.lease = 30s});
    EXPECT_TRUE(hold->valid(sent + 30s - 1ns));
    EXPECT_FALSE(hold->valid(sent + 30s));
    EXPECT_EQ(hold->state(sent + 30s - 1ns), HoldState::held);
    EXPECT_EQ(hold->state(sent + 30s), HoldState::lost);
    EXPECT_EQ(hold->remaining(sent + 30s), 0ms);
    EXPECT_EQ(hold->remaining(sent + 300s), 0ms);
}

TEST(Hold, remaining_is_rounded_down) {
    const auto hold = taken_at_sent({.lease = 30s});
    EXPECT_EQ(hold->remaining(sent + 1ns), 29'999ms);
    EXPECT_EQ(hold->remaining(sent + 30s - 1ns), 0ms);
}

TEST(Hold, confirmed_lasts_longer) {
    const auto hold = taken_at_sent({.lease = 30s});
    hold->confirm(sent + 10s, 30s);
    EXPECT_EQ(hold->valid_until(), sent + 40s);
}

TEST(Hold, confirmed_never_gets_shorter) {
    const auto hold = taken_at_sent({.lease = 30s});
    hold->confirm(sent + 1s, 10s);
    EXPECT_EQ(hold->valid_until(), sent + 30s);
    hold->confirm(sent - 10s, 30s);
    EXPECT_EQ(hold->valid_until(), sent + 30s);
}

TEST(Hold, refreshed_is_as_of_the_latest_command_with_a_full_lease) {
    const auto hold = taken_at_sent({.lease = 30s});
    hold->confirm(sent + 2s, 30s);
    hold->confirm(sent + 1s, 30s);  // an answer that was overtaken
    hold->confirm(sent + 3s, 29s);
    EXPECT_EQ(hold->refreshed_at(), sent + 2s);
}

TEST(Hold, is_known_to_the_server_by_its_terms) {
    const detail::HoldTerms terms = asked_hold()->terms();
    EXPECT_TRUE(terms.same_at_server(terms));
    const auto differs = [&](auto change) {
        detail::HoldTerms other = terms;
        change(other);
        return !terms.same_at_server(other) && !other.same_at_server(terms);
    };
    using detail::HoldTerms;
    EXPECT_TRUE(differs([](HoldTerms& t) { t.traits = detail::traits_of<Reentrant>(); }));
    EXPECT_TRUE(differs([](HoldTerms& t) { t.traits.fenced = true; }));
    EXPECT_TRUE(differs([](HoldTerms& t) { t.lease = 1s; }));
    EXPECT_TRUE(differs([](HoldTerms& t) { t.drift.factor = 0.5; }));
    EXPECT_TRUE(differs([](HoldTerms& t) { t.drift.floor = 1ms; }));
    EXPECT_TRUE(differs([](HoldTerms& t) { t.lock_delay = 1ms; }));
    EXPECT_TRUE(differs([](HoldTerms& t) { t.claim.weight = 7; }));
    EXPECT_FALSE(differs([](HoldTerms& t) { t.max_hold = 1s; })) << "how long it is renewed";
}

TEST(Hold, of_a_readers_weight_reads_where_it_is_a_shared_lock) {
    for (const bool shared : {false, true}) {
        detail::HoldTerms terms = asked_hold()->terms();
        terms.claim.weight = detail::ClaimTerms::reader;
        terms.traits.shared = shared;
        const detail::Hold hold{terms, asked_hold()->token(), detail::this_thread()};
        EXPECT_EQ(hold.reads(), shared);
    }
}

TEST(Hold, in_doubt_is_uncertain_until_confirmed) {
    const auto hold = taken_at_sent({.lease = 30s});
    hold->doubt();
    EXPECT_EQ(hold->state(sent + 1s), HoldState::uncertain);
    EXPECT_TRUE(hold->valid(sent + 1s)) << "validity is running all the same";
    EXPECT_EQ(hold->remaining(sent + 1s), 29s);
    EXPECT_EQ(hold->state(sent + 30s), HoldState::lost);
    hold->confirm(sent + 2s, 30s);
    EXPECT_EQ(hold->state(sent + 3s), HoldState::held);
}

TEST(Hold, that_somebody_was_told_is_over_stays_over) {
    for (const bool told : {false, true}) {
        const auto hold = taken_at_sent({.lease = 30s});
        if (told) {
            EXPECT_EQ(hold->state(sent + 30s), HoldState::lost);
        }
        // An answer that is being counted: its thread has looked at the clock before.
        EXPECT_EQ(hold->confirm_in_time(sent + 29s, sent + 20s, 30s), !told);
        EXPECT_EQ(hold->is_seen_valid(sent + 29s), !told);
        EXPECT_EQ(hold->remaining(sent + 31s), told ? 0ms : 19s);
    }
}

TEST(Hold, given_up_is_not_held) {
    for (const Phase phase : {Phase::releasing, Phase::released}) {
        const auto hold = taken_at_sent();
        ASSERT_TRUE(hold->advance(Phase::held, phase));
        EXPECT_EQ(hold->state(sent), HoldState::none);
        EXPECT_FALSE(hold->valid(sent));
        EXPECT_EQ(hold->remaining(sent), 0ms);
    }
}

TEST(Hold, lost_is_lost_although_validity_runs) {
    const auto hold = taken_at_sent();
    ASSERT_TRUE(hold->advance(Phase::held, Phase::lost));
    EXPECT_EQ(hold->state(sent), HoldState::lost);
    EXPECT_FALSE(hold->valid(sent));
}

TEST(Hold, advances_only_from_where_it_is) {
    const auto hold = taken_at_sent();
    EXPECT_FALSE(hold->advance(Phase::releasing, Phase::released));
    EXPECT_TRUE(hold->advance(Phase::held, Phase::releasing));
    EXPECT_FALSE(hold->advance(Phase::held, Phase::lost)) << "a release is no loss";
    EXPECT_TRUE(hold->in(Phase::releasing));
}

TEST(Hold, one_of_many_threads_advances_it) {
    for (int round = 0; round < 100; ++round) {
        const auto hold = taken_at_sent();
        std::atomic<int> winners{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&, i] {
                const Phase to = i % 2 == 0 ? Phase::releasing : Phase::lost;
                if (hold->advance(Phase::held, to)) ++winners;
            });
        }
        for (auto& thread : threads) thread.join();
        ASSERT_EQ(winners, 1);
    }
}

TEST(Hold, confirmed_by_many_threads_keeps_the_latest_end) {
    const auto hold = taken_at_sent({.lease = 1s});
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&hold, i] {
            for (int j = 0; j < 1000; ++j) {
                hold->confirm(sent + std::chrono::milliseconds{4 * j + i}, 1s);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(hold->valid_until(), sent + 3999ms + 1s);
}

TEST(Hold, watched_ends_with_max_hold) {
    const auto hold = taken_at_sent(
        {.traits = detail::traits_of<Watchdog<Simple>>(), .lease = 30s, .max_hold = 40s});
    EXPECT_EQ(hold->last_end(), sent + 40s);
    EXPECT_EQ(hold->valid_until(), sent + 30s);
    hold->confirm(sent + 20s, 30s);
    EXPECT_EQ(hold->valid_until(), sent + 40s);
}

TEST(Hold, watched_without_max_hold_has_no_end) {
    const auto hold = taken_at_sent({.traits = detail::traits_of<Watchdog<Simple>>()});
    EXPECT_EQ(hold->last_end(), TimePoint::max());
}

TEST(Hold, unwatched_knows_no_max_hold) {
    const auto hold = taken_at_sent({.lease = 30s, .max_hold = 1s});
    EXPECT_EQ(hold->last_end(), TimePoint::max());
    EXPECT_EQ(hold->valid_until(), sent + 30s);
}

TEST(Hold, lock_delay_is_for_the_server_only) {
    const auto hold = taken_at_sent({.lease = 30s, .lock_delay = 5s});
    EXPECT_EQ(hold->server_ttl(30s), 35'000);
    EXPECT_EQ(hold->server_ttl(Lease::max()), 24LL * 86'400'000 + 5000);
    EXPECT_EQ(hold->valid_until(), sent + 30s);
}

TEST(Hold, lost_token_fires_when_told) {
    const auto hold = taken_at_sent();
    const std::stop_token token = hold->lost_token();
    EXPECT_TRUE(token.stop_possible());
    EXPECT_FALSE(token.stop_requested());
    hold->tell_lost();
    EXPECT_TRUE(token.stop_requested());
}

TEST(Hold, lost_tokens_are_all_told) {
    const auto hold = taken_at_sent();
    const std::stop_token a = hold->lost_token();
    const std::stop_token b = hold->lost_token();
    int calls = 0;
    const std::stop_callback on_loss{a, [&calls] { ++calls; }};
    hold->tell_lost();
    hold->tell_lost();
    EXPECT_TRUE(b.stop_requested());
    EXPECT_EQ(calls, 1);
}

TEST(Hold, lost_token_asked_for_afterwards_has_fired) {
    const auto hold = taken_at_sent();
    hold->tell_lost();
    EXPECT_TRUE(hold->lost_token().stop_requested());
}

TEST(Hold, lost_token_outlives_the_hold_without_firing) {
    std::stop_token token;
    {
        const auto hold = taken_at_sent();
        token = hold->lost_token();
    }
    EXPECT_FALSE(token.stop_requested());
}

TEST(Hold, callback_may_ask_the_hold) {
    const auto hold = taken_at_sent();
    bool asked = false;
    const std::stop_callback on_loss{hold->lost_token(),
                                     [&] { asked = hold->lost_token().stop_requested(); }};
    hold->tell_lost();
    EXPECT_TRUE(asked);
}

TEST(Hold, lost_token_is_one_for_all_threads_that_ask_at_once) {
    for (int round = 0; round < 100; ++round) {
        const auto hold = taken_at_sent();
        std::stop_token tokens[4];
        std::vector<std::thread> threads;
        for (auto& token : tokens) threads.emplace_back([&] { token = hold->lost_token(); });
        for (auto& thread : threads) thread.join();
        hold->tell_lost();
        for (const auto& token : tokens) ASSERT_TRUE(token.stop_requested());
    }
}

TEST(Hold, loss_is_awaited_once_somebody_asked) {
    const auto hold = taken_at_sent();
    EXPECT_FALSE(hold->loss_is_awaited());
    static_cast<void>(hold->lost_token());
    EXPECT_TRUE(hold->loss_is_awaited());
}

}  // namespace
