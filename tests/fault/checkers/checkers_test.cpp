// Each checker on small histories, good ones and bad ones.

#include "completion.hpp"
#include "exclusion.hpp"
#include "fence_order.hpp"
#include "honesty.hpp"
#include "hygiene.hpp"
#include "liveness.hpp"
#include "ownership.hpp"
#include "reentrant.hpp"
#include "renewal.hpp"
#include "store.hpp"
#include "story.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace redlatch::test::fault {
namespace {

using namespace std::chrono_literals;

testing::AssertionResult finds(const Violations& violations, const std::string& words) {
    for (const Violation& violation : violations) {
        if (violation.text.find(words) != std::string::npos) return testing::AssertionSuccess();
    }
    auto result = testing::AssertionFailure() << "not found: " << words;
    for (const Violation& violation : violations) result << "\n  " << violation;
    return result;
}

testing::AssertionResult clean(const Violations& violations) {
    if (violations.empty()) return testing::AssertionSuccess();
    auto result = testing::AssertionFailure();
    for (const Violation& violation : violations) result << violation << "\n";
    return result;
}

// ---- Exclusion

TEST(Exclusion, accepts_holds_one_after_the_other) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).releases(1, 1, 50, 60);
    story.takes({.process = 2, .from = 40, .to = 55, .valid = 150}).releases(2, 1, 90, 95);
    EXPECT_TRUE(clean(check_exclusion(story.history())));
}

TEST(Exclusion, finds_two_holders) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).releases(1, 1, 50, 60);
    story.takes({.process = 2, .from = 40, .to = 49, .valid = 150}).releases(2, 1, 90, 95);
    EXPECT_TRUE(finds(check_exclusion(story.history()), "a is held by 1/1 (Simple) and 2/1"));
}

TEST(Exclusion, ends_with_the_validity) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100});
    story.takes({.process = 2, .from = 40, .to = 100, .valid = 150});
    EXPECT_TRUE(clean(check_exclusion(story.history())));
    story.takes({.process = 3, .from = 40, .to = 149, .valid = 250});
    EXPECT_TRUE(finds(check_exclusion(story.history()), "2/1 (Simple) and 3/1"));
}

TEST(Exclusion, ends_when_the_client_is_told_of_the_loss) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).loses(1, 1, 20);
    story.takes({.process = 2, .from = 10, .to = 30, .valid = 150});
    EXPECT_TRUE(clean(check_exclusion(story.history())));
}

TEST(Exclusion, goes_on_with_what_is_told_later) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).probes(1, 1, 90, true, 190);
    story.takes({.process = 2, .from = 40, .to = 150, .valid = 250});
    EXPECT_TRUE(finds(check_exclusion(story.history()), "1/1"));
}

TEST(Exclusion, sees_a_hold_that_came_back_to_life) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).extends(1, 1, 90, 180, 290);
    story.takes({.process = 2, .from = 100, .to = 130, .valid = 230});
    EXPECT_TRUE(finds(check_exclusion(story.history()), "for 50 ms"));
}

TEST(Exclusion, nested_releases_end_nothing) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100, .policy = "Reentrant"});
    story.nests(1, 1, 6, 7, 100).releases(1, 1, 20, 25, "still_held");
    story.takes({.process = 2, .from = 10, .to = 30, .valid = 130});
    EXPECT_TRUE(finds(check_exclusion(story.history()), "1/1"));
}

TEST(Exclusion, does_not_mix_locks_or_threads_of_a_process) {
    Story story;
    story.takes({.process = 1, .hold = 1, .to = 5, .lock = "a"});
    story.takes({.process = 1, .hold = 2, .to = 5, .lock = "b"});
    EXPECT_TRUE(clean(check_exclusion(story.history())));
    story.takes({.process = 1, .hold = 3, .to = 6, .lock = "b"});
    EXPECT_TRUE(finds(check_exclusion(story.history()), "1/2 (Simple) and 1/3"));
}

TEST(Exclusion, sees_a_short_hold_inside_a_long_one) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 500});
    story.takes({.process = 2, .from = 6, .to = 10, .valid = 20});
    story.takes({.process = 3, .from = 6, .to = 300, .valid = 400});
    EXPECT_EQ(check_exclusion(story.history()).size(), 2U);
}

// ---- Ownership

/// The lock is lost at 10, and another's from 20 on.
Story story_of_a_lost_lock() {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 300}).fault_at("flush", 10, 0);
    story.takes({.process = 2, .from = 11, .to = 20, .valid = 200}).releases(2, 1, 150, 160);
    return story;
}

const std::vector<std::string> key_losses{"flush", "evict"};

TEST(Ownership, finds_an_extension_of_anothers_lock) {
    Story story = story_of_a_lost_lock();
    story.extends(1, 1, 30, 40, 330);
    EXPECT_TRUE(finds(check_ownership(story.history(), key_losses),
                      "1/1 (Simple) extended a, which was 2/1 (Simple)'s"));
}

TEST(Ownership, finds_a_nest_in_anothers_lock) {
    Story story = story_of_a_lost_lock();
    story.nests(1, 1, 30, 40, 330);
    EXPECT_TRUE(finds(check_ownership(story.history(), key_losses), "1/1 (Simple) nested in a"));
}

TEST(Ownership, accepts_who_is_told_of_the_loss) {
    Story story = story_of_a_lost_lock();
    story.fails(Op::extend, 1, 1, 30, 40, "lost");
    EXPECT_TRUE(clean(check_ownership(story.history(), key_losses)));
}

TEST(Ownership, accepts_extensions_of_ones_own_lock_and_of_other_locks) {
    Story story = story_of_a_lost_lock();
    story.extends(2, 1, 30, 40, 240);
    story.takes({.process = 3, .to = 5, .lock = "b"}).extends(3, 1, 30, 40, 240);
    EXPECT_TRUE(clean(check_ownership(story.history(), key_losses)));
}

TEST(Ownership, an_extension_may_come_before_or_behind_the_other_holder) {
    Story story = story_of_a_lost_lock();
    story.extends(1, 1, 15, 40, 330).extends(1, 1, 140, 155, 400).extends(1, 1, 165, 170, 500);
    EXPECT_TRUE(clean(check_ownership(story.history(), key_losses)));
}

TEST(Ownership, who_may_have_lost_the_lock_again_is_no_witness) {
    Story story = story_of_a_lost_lock();
    story.extends(1, 1, 30, 40, 330).fault_at("flush", 12, 0);
    EXPECT_TRUE(clean(check_ownership(story.history(), key_losses)));
    Story lasting = story_of_a_lost_lock();
    lasting.extends(1, 1, 30, 40, 330).fault("evict", 9, 13);
    EXPECT_TRUE(clean(check_ownership(lasting.history(), key_losses)));
    Story harmless = story_of_a_lost_lock();
    harmless.extends(1, 1, 30, 40, 330).fault("delay", 9, 35).fault_at("flush", 45, 0);
    EXPECT_FALSE(clean(check_ownership(harmless.history(), key_losses)));
}

// ---- Fencing tokens

TEST(FenceOrder, accepts_rising_ones_and_any_order_of_calls_at_the_same_time) {
    Story story;
    story.takes({.process = 1, .from = 0, .to = 10, .fence = 5});
    story.takes({.process = 2, .from = 5, .to = 15, .fence = 4});
    story.takes({.process = 3, .from = 16, .to = 20, .fence = 9});
    EXPECT_TRUE(clean(check_fence_order(story.history())));
}

TEST(FenceOrder, finds_falling_ones) {
    Story story;
    story.takes({.process = 1, .from = 0, .to = 10, .fence = 5});
    story.takes({.process = 2, .from = 11, .to = 15, .fence = 4});
    EXPECT_TRUE(finds(check_fence_order(story.history()), "has 4 after one had 5"));
}

TEST(FenceOrder, finds_repeated_ones) {
    Story story;
    story.takes({.process = 1, .from = 0, .to = 10, .fence = 5});
    story.takes({.process = 2, .from = 5, .to = 15, .fence = 5});
    EXPECT_TRUE(finds(check_fence_order(story.history()), "another's fence"));
}

TEST(FenceOrder, nested_acquisitions_keep_it) {
    Story story;
    story.takes({.process = 1, .to = 10, .fence = 5, .policy = "Reentrant"});
    story.nests(1, 1, 11, 12, 100);
    EXPECT_TRUE(clean(check_fence_order(story.history())));
    History other = story.history();
    other.back().fence = 6;
    EXPECT_TRUE(finds(check_fence_order(other), "another fence"));
}

TEST(FenceOrder, leaves_out_holds_without) {
    Story story;
    story.takes({.process = 1, .to = 10}).takes({.process = 2, .from = 20, .to = 30});
    EXPECT_TRUE(clean(check_fence_order(story.history())));
}

// ---- The store

TEST(FencedStore, accepts_equal_and_rising_ones) {
    Story story;
    story.writes(1, 0, 5).writes(2, 1, 5).writes(3, 2, 4, "stale").writes(4, 2, 7);
    EXPECT_TRUE(clean(check_fenced_store(story.history())));
}

TEST(FencedStore, finds_a_stale_write_that_was_accepted) {
    Story story;
    story.writes(1, 0, 5).writes(2, 1, 4);
    EXPECT_TRUE(finds(check_fenced_store(story.history()), "4 was accepted after 5"));
}

TEST(FencedStore, finds_a_write_of_a_holder_of_before) {
    Story story;
    story.takes({.process = 1, .from = 0, .to = 10, .fence = 9});
    story.takes({.process = 2, .from = 20, .to = 30, .fence = 8});
    story.writes(1, 0, 8, "accepted", 2);
    EXPECT_TRUE(clean(check_fenced_store(story.history())));
    story.writes(2, 1, 9, "accepted", 1);
    EXPECT_TRUE(finds(check_fenced_store(story.history()), "9 was accepted of a holder of before"));
}

TEST(LostUpdates, accepts_a_chain) {
    Story story;
    story.writes(1, 0).writes(2, 0, 0, "late").writes(3, 1).writes(4, 2);
    EXPECT_TRUE(clean(check_lost_updates(story.history())));
}

TEST(LostUpdates, finds_a_broken_one) {
    Story story;
    story.writes(1, 0).writes(2, 1).writes(3, 1);
    EXPECT_TRUE(finds(check_lost_updates(story.history()), "had read 1 and wrote over 2"));
}

// ---- Liveness

constexpr const char* reads = "reads";

TEST(Exclusion, lets_readers_share) {
    Story story;
    story.takes({.hold = 1, .counts = {{reads, 1}}});
    story.takes({.process = 2, .hold = 2, .from = 5, .to = 6, .counts = {{reads, 1}}});
    EXPECT_TRUE(clean(check_exclusion(story.history())));
}

TEST(Exclusion, finds_a_writer_beside_a_reader) {
    Story writes;
    writes.takes({.hold = 1, .counts = {{reads, 1}}});
    writes.takes({.process = 2, .hold = 2, .from = 5, .to = 6});
    EXPECT_TRUE(finds(check_exclusion(writes.history()), "1/1 (Simple) and 2/2"));
    Story read;
    read.takes({.hold = 1});
    read.takes({.process = 2, .hold = 2, .from = 5, .to = 6, .counts = {{reads, 1}}});
    EXPECT_TRUE(finds(check_exclusion(read.history()), "1/1 (Simple) and 2/2"));
}

TEST(Exclusion, finds_a_writer_beside_the_longer_of_two_readers) {
    Story story;
    story.takes({.hold = 1, .valid = 100, .counts = {{reads, 1}}});
    story.takes({.hold = 2, .valid = 20, .counts = {{reads, 1}}});
    story.takes({.process = 2, .hold = 3, .from = 50, .to = 51, .valid = 150});
    EXPECT_TRUE(finds(check_exclusion(story.history()), "1/1 (Simple) and 2/3"));
}

TEST(Exclusion, counts_permits) {
    Story story;
    story.takes({.hold = 1, .counts = {{"permits", 2}, {"of", 3}}});
    story.takes({.hold = 2, .from = 2, .to = 3, .counts = {{"permits", 1}, {"of", 3}}});
    EXPECT_TRUE(clean(check_exclusion(story.history())));
    story.takes({.hold = 3, .from = 4, .to = 5, .counts = {{"permits", 1}, {"of", 3}}});
    EXPECT_TRUE(finds(check_exclusion(story.history()), "4 of 3 permits"));
}

TEST(HonestEnds, do_not_mind_other_readers) {
    Story story;
    story.takes({.hold = 1, .counts = {{reads, 1}}});
    story.takes({.process = 2, .hold = 2, .from = 5, .to = 6, .counts = {{reads, 1}}});
    story.releases(1, 1, 50, 51);
    EXPECT_TRUE(clean(check_honest_ends(story.history())));
}

TEST(Ownership, lets_a_reader_extend_beside_readers_and_not_beside_a_writer) {
    Story story;
    story.takes({.hold = 1, .counts = {{reads, 1}}});
    story.takes({.process = 2, .hold = 2, .from = 5, .to = 6, .counts = {{reads, 1}}});
    story.extends(1, 1, 20, 21, 150);
    EXPECT_TRUE(clean(check_ownership(story.history(), {})));
    story.takes({.process = 3, .hold = 3, .from = 5, .to = 6});
    EXPECT_TRUE(finds(check_ownership(story.history(), {}), "3/3"));
}

TEST(FenceOrder, readers_have_that_of_the_last_writer) {
    Story story;
    story.takes({.hold = 1, .fence = 7}).releases(1, 1, 2, 3);
    story.takes({.hold = 2, .from = 4, .to = 5, .fence = 7, .counts = {{reads, 1}}});
    story.takes({.hold = 3, .from = 4, .to = 5, .fence = 7, .counts = {{reads, 1}}});
    EXPECT_TRUE(clean(check_fence_order(story.history())));
    story.takes({.hold = 4, .from = 6, .to = 7, .fence = 6, .counts = {{reads, 1}}});
    EXPECT_TRUE(finds(check_fence_order(story.history()), "has 6 after one had 7"));
}

TEST(IdleLocks, may_be_those_that_a_set_has_while_it_waits_for_others) {
    Story story;
    story.waits(1, 0, 900, 1000);
    EXPECT_FALSE(clean(check_idle_locks(story.history(), {.longest = 100ms, .settle = 0ms})));
    story.takes({.process = 2, .from = 50, .to = 850, .valid = 900, .counts = {{"set", 1}}});
    EXPECT_TRUE(clean(check_idle_locks(story.history(), {.longest = 100ms, .settle = 0ms})));
}

TEST(Completions, once_each_is_right) {
    Story story;
    story.takes({}).releases(1, 1, 50, 51).waits(1, 60, 70, 80);
    EXPECT_TRUE(clean(check_completions(story.history())));
}

TEST(Completions, finds_a_call_that_completes_twice) {
    Story story;
    story.takes({}).completes_again(5).releases(1, 1, 50, 51);
    EXPECT_TRUE(finds(check_completions(story.history()), "completed twice"));
}

TEST(Completions, finds_one_inside_the_call_that_began_it) {
    Story story;
    story.takes({}).completed("inside");
    EXPECT_TRUE(finds(check_completions(story.history()), "inside"));
}

TEST(Completions, finds_holds_that_were_over_when_they_were_delivered) {
    Story story;
    story.takes({.hold = 1, .to = 700, .valid = 0}).completed("over");
    story.takes({.hold = 2, .to = 700, .valid = 0}).completed("over");
    EXPECT_TRUE(clean(check_completions(story.history())));
    story.takes({.hold = 3, .to = 700, .valid = 0}).completed("over");
    EXPECT_TRUE(finds(check_completions(story.history()), "was over when it was delivered"));
    story.fault("freeze client", 100, 600, 1);
    EXPECT_TRUE(clean(check_completions(story.history())));
}

TEST(Completions, finds_one_on_another_thread) {
    Story story;
    story.takes({}).completed("elsewhere");
    EXPECT_TRUE(finds(check_completions(story.history()), "another thread"));
}

TEST(Deadlines, accepts_calls_that_are_back_in_time) {
    Story story;
    story.waits(1, 0, 105, 100).waits(2, 0, 400, 100);
    story.fault("freeze client", 50, 360, 2);
    EXPECT_TRUE(clean(check_deadlines(story.history(), 10ms)));
}

TEST(Deadlines, finds_late_ones) {
    Story story;
    story.waits(1, 0, 115, 100);
    EXPECT_TRUE(finds(check_deadlines(story.history(), 10ms), "15 ms late"));
}

TEST(Deadlines, finds_those_that_never_came_back) {
    Story story;
    story.waits(1, 0, 0, 100);
    EXPECT_TRUE(finds(check_deadlines(story.history(), 10ms), "never came back"));
    story.fault_at("kill client", 50, 1);
    EXPECT_TRUE(clean(check_deadlines(story.history(), 10ms)));
}

constexpr IdleLimits idle_limits{.longest = 200ms, .settle = 100ms};

TEST(IdleLocks, accepts_those_that_are_taken_soon) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 500}).releases(1, 1, 300, 310);
    story.waits(2, 10, 490, 1000);
    story.takes({.process = 3, .from = 10, .to = 500, .valid = 900});
    EXPECT_TRUE(clean(check_idle_locks(story.history(), idle_limits)));
}

TEST(IdleLocks, finds_a_lock_that_lies_free) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 500}).releases(1, 1, 300, 310);
    story.waits(2, 10, 1000, 1000);
    EXPECT_TRUE(finds(check_idle_locks(story.history(), idle_limits), "lay free for 690 ms"));
}

TEST(IdleLocks, a_hold_that_is_not_released_lasts_as_long_as_its_validity) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 500});
    story.waits(2, 10, 600, 1000);
    EXPECT_TRUE(clean(check_idle_locks(story.history(), idle_limits)));
}

TEST(IdleLocks, expects_nothing_during_a_fault_and_shortly_after) {
    Story story;
    story.waits(2, 10, 1000, 1000).fault("delay", 50, 750);
    EXPECT_TRUE(clean(check_idle_locks(story.history(), idle_limits)));
}

TEST(IdleLocks, a_short_lease_may_be_over_when_its_answer_comes) {
    Story story;
    story.waits(2, 10, 1000, 1000).failed("unavailable").watched(2, 50);
    EXPECT_TRUE(clean(check_idle_locks(story.history(), idle_limits)));
    story.watched(2, 500);
    EXPECT_TRUE(finds(check_idle_locks(story.history(), idle_limits), "lay free for 990 ms"));
}

TEST(IdleLocks, the_dead_do_not_wait) {
    Story story;
    story.waits(2, 10, 0, 1000).fault_at("kill client", 50, 2).snapshot(1, "end", 900, {});
    EXPECT_TRUE(clean(check_idle_locks(story.history(), idle_limits)));
}

TEST(Deadlines, a_wait_without_limit_ends_with_its_client) {
    Story story;
    story.waits(1, 0, 500, 0);
    EXPECT_TRUE(clean(check_deadlines(story.history(), 10ms)));
    story.closes(1, 480, 495, 520);
    EXPECT_TRUE(clean(check_deadlines(story.history(), 10ms)));
    story.waits(1, 0, 600, 0);
    EXPECT_TRUE(finds(check_deadlines(story.history(), 10ms), "105 ms late"));
    story.waits(1, 0, 0, 0);
    EXPECT_TRUE(finds(check_deadlines(story.history(), 10ms), "never came back"));
}

TEST(Deadlines, a_nested_call_that_took_the_lock_anew_ends_with_its_client) {
    Story story;
    story.waits_anew(1, 0, 500, 100);
    EXPECT_TRUE(clean(check_deadlines(story.history(), 10ms)));
    story.closes(1, 380, 395, 520);
    EXPECT_TRUE(finds(check_deadlines(story.history(), 10ms), "105 ms late"));
}

TEST(Deadlines, finds_a_client_that_takes_long_to_end) {
    Story story;
    story.closes(1, 480, 900, 520);
    EXPECT_TRUE(finds(check_deadlines(story.history(), 10ms), "end of a client"));
}

TEST(IdleLocks, a_hold_that_is_released_late_lasts_as_long_as_its_validity) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).releases(1, 1, 900, 901, "expired");
    story.waits(1, 10, 902, 1000);
    EXPECT_TRUE(finds(check_idle_locks(story.history(), idle_limits), "lay free for 800 ms"));
}

TEST(IdleLocks, what_a_watchdog_does_is_not_known) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100, .policy = "Watchdog<Simple>"});
    story.releases(1, 1, 900, 901).waits(1, 10, 902, 1000);
    EXPECT_TRUE(clean(check_idle_locks(story.history(), idle_limits)));
    story.loses(1, 1, 110);
    EXPECT_TRUE(finds(check_idle_locks(story.history(), idle_limits), "lay free for 792 ms"));
}

// ---- Renewal

constexpr RenewalLimits renewal_limits{.shortest = 50ms, .settle = 20ms, .slow = 30ms};

/// A watched hold, and when it was seen to be over.
Story story_of_a_watched_hold(int over) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100, .policy = "Watchdog<Simple>"})
        .watched(2, 100);
    story.loses(1, 1, over).watched(1, 100);
    return story;
}

TEST(Renewal, finds_a_watched_hold_that_runs_out) {
    EXPECT_TRUE(finds(check_renewal(story_of_a_watched_hold(400).history(), renewal_limits),
                      "was watched and is over, lease 100 ms"));
}

TEST(Renewal, sees_an_end_in_each_of_its_signs) {
    Story released;
    released.takes({.process = 1, .to = 5}).watched(2, 100);
    released.releases(1, 1, 400, 405, "released").watched(2, 100);
    EXPECT_TRUE(clean(check_renewal(released.history(), renewal_limits)));
    Story probed;
    probed.takes({.process = 1, .to = 5}).watched(2, 100).probes(1, 1, 400, false).watched(1, 100);
    EXPECT_TRUE(finds(check_renewal(probed.history(), renewal_limits), "is over"));
}

TEST(Renewal, a_fault_within_the_lease_before_is_an_excuse) {
    Story story = story_of_a_watched_hold(400);
    story.fault("delay", 150, 250);
    EXPECT_TRUE(finds(check_renewal(story.history(), renewal_limits), "is over"));
    story.fault("delay", 150, 290);
    EXPECT_TRUE(clean(check_renewal(story.history(), renewal_limits)));
}

TEST(Renewal, asks_nothing_of_leases_that_are_too_short) {
    EXPECT_TRUE(clean(check_renewal(story_of_a_watched_hold(400).history(),
                                    {.shortest = 200ms, .settle = 20ms, .slow = 30ms})));
}

TEST(Renewal, a_slow_call_of_the_process_within_the_lease_before_is_an_excuse) {
    const auto told = [](const auto& add_call) {
        Story story = story_of_a_watched_hold(400);
        story.takes({.process = 1, .hold = 2, .lock = "b"});
        story.takes({.process = 2, .hold = 2, .lock = "c"});
        add_call(story);
        return check_renewal(story.history(), renewal_limits);
    };
    const auto quick = [](Story& story) { story.nests(1, 2, 310, 335, 500); };
    const auto slow = [](Story& story) { story.nests(1, 2, 310, 345, 500); };
    const auto slow_before = [](Story& story) { story.extends(1, 2, 250, 290, 500); };
    const auto slow_elsewhere = [](Story& story) { story.releases(2, 2, 310, 390); };
    const auto waiting = [](Story& story) { story.waits(1, 310, 390, 390, "b"); };
    EXPECT_TRUE(clean(told(slow)));
    EXPECT_TRUE(finds(told(quick), "is over"));
    EXPECT_TRUE(finds(told(slow_before), "is over"));
    EXPECT_TRUE(finds(told(slow_elsewhere), "is over"));
    EXPECT_TRUE(finds(told(waiting), "is over"));
}

TEST(Renewal, lasts_as_long_as_one_acquisition_is_watched) {
    Story story;
    story.takes({.process = 1, .to = 5, .policy = "Reentrant"});
    story.nests(1, 1, 6, 10, 100).watched(2, 100).nests(1, 1, 11, 12, 100).watched(2, 100);
    story.releases(1, 1, 20, 21, "still_held").watched(2, 100);
    Story other = story;
    story.loses(1, 1, 400).watched(1, 100);
    EXPECT_TRUE(finds(check_renewal(story.history(), renewal_limits), "is over"));
    other.releases(1, 1, 30, 31, "still_held").watched(2, 100);
    other.loses(1, 1, 400).watched(1, 100);
    EXPECT_TRUE(clean(check_renewal(other.history(), renewal_limits)));
}

// ---- Hygiene

TEST(Hygiene, accepts_what_is_as_before) {
    Story story;
    story.snapshot(9, "server", 0, {{"clients", 2}});
    story.snapshot(1, "before", 1, {{"descriptors", 5}, {"threads", 1}});
    story.snapshot(1, "warm", 2, {{"memory_kib", 5000}})
        .snapshot(1, "end", 8, {{"memory_kib", 5500}});
    story.snapshot(1, "after", 9, {{"descriptors", 5}, {"threads", 1}});
    story.snapshot(9, "server", 10, {{"clients", 2}});
    EXPECT_TRUE(clean(check_hygiene(story.history(), 1000)));
    EXPECT_TRUE(finds(check_hygiene(story.history(), 400), "grown by 500 KiB"));
}

TEST(Hygiene, finds_what_is_left_in_a_process) {
    Story story;
    story.snapshot(1, "before", 1, {{"descriptors", 5}, {"threads", 1}});
    story.snapshot(1, "after", 9,
                   {{"descriptors", 6}, {"threads", 3}, {"thread 'redlatch events'", 2}});
    EXPECT_TRUE(finds(check_hygiene(story.history(), 0), "5 descriptors before and has 6"));
    EXPECT_TRUE(finds(check_hygiene(story.history(), 0),
                      "1 threads before and has 3 after: 2 thread 'redlatch events'"));
}

TEST(Hygiene, finds_what_is_left_at_the_server) {
    Story story;
    story.snapshot(9, "server", 0, {{"clients", 2}});
    story.snapshot(9, "server", 1, {{"clients", 4}, {"keys", 1}, {"channels", 3}});
    EXPECT_TRUE(finds(check_hygiene(story.history(), 0), "2 connections are left"));
    EXPECT_TRUE(finds(check_hygiene(story.history(), 0), "1 keys are left"));
    EXPECT_TRUE(finds(check_hygiene(story.history(), 0), "3 channels are left"));
}

TEST(Hygiene, a_process_that_was_killed_owes_nothing) {
    Story story;
    story.snapshot(1, "before", 1, {{"descriptors", 5}, {"threads", 1}});
    EXPECT_TRUE(clean(check_hygiene(story.history(), 0)));
}

// ---- Honesty

TEST(Honesty, accepts_a_hold_that_runs_out_and_is_told) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).probes(1, 1, 50, true, 100);
    story.probes(1, 1, 101, true, 102).loses(1, 1, 103).probes(1, 1, 104, false);
    story.releases(1, 1, 300, 301, "expired");
    EXPECT_TRUE(clean(check_honesty(story.history(), 20ms)));
}

TEST(Honesty, finds_a_hold_that_comes_back) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100, .policy = "Watchdog<Simple>"});
    story.probes(1, 1, 110, false).probes(1, 1, 120, true, 200);
    EXPECT_TRUE(finds(check_honesty(story.history(), 1s), "true again"));
}

TEST(Honesty, finds_a_hold_that_is_held_after_its_loss) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).loses(1, 1, 20);
    story.probes(1, 1, 21, true, 100);
    EXPECT_TRUE(finds(check_honesty(story.history(), 1s), "true again"));
}

TEST(Honesty, finds_a_validity_that_is_longer_than_told) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).probes(1, 1, 103, true, 130);
    EXPECT_TRUE(finds(check_honesty(story.history(), 1s), "after the validity"));
    Story watched;
    watched.takes({.process = 1, .to = 5, .valid = 100, .policy = "Watchdog<Simple>"});
    watched.probes(1, 1, 103, true, 130);
    EXPECT_TRUE(clean(check_honesty(watched.history(), 1s)));
    Story extended;
    extended.takes({.process = 1, .to = 5, .valid = 100}).extends(1, 1, 80, 90, 180);
    extended.probes(1, 1, 103, true, 180);
    EXPECT_TRUE(clean(check_honesty(extended.history(), 1s)));
}

TEST(Honesty, finds_a_lost_hold_that_was_extended) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).loses(1, 1, 103);
    story.extends(1, 1, 104, 106, 200);
    EXPECT_TRUE(finds(check_honesty(story.history(), 1s), "over was extended"));
}

TEST(Honesty, finds_a_loss_that_nobody_was_told_of) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).probes(1, 1, 104, false);
    Story unasked = story;
    unasked.releases(1, 1, 300, 301, "expired");
    EXPECT_TRUE(clean(check_honesty(unasked.history(), 20ms)));
    story.asks(1, 1, 6);
    story.releases(1, 1, 300, 301, "expired");
    EXPECT_TRUE(finds(check_honesty(story.history(), 20ms), "did not fire for 196 ms"));
    story.fault("freeze client", 105, 295, 1);
    EXPECT_TRUE(clean(check_honesty(story.history(), 20ms)));
}

TEST(Honesty, finds_words_that_contradict_each_other) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).probes(1, 1, 104, false);
    History history = story.history();
    history.back().outcome = "uncertain";
    EXPECT_TRUE(finds(check_honesty(history, 1s), "state() says held"));
    history.back().outcome = "lost";
    EXPECT_TRUE(clean(check_honesty(history, 1s)));
    history.back().valid_until = 200ms;
    EXPECT_TRUE(finds(check_honesty(history, 1s), "remaining() is positive"));
}

TEST(Honesty, finds_a_late_question_without_an_answer) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).loses(1, 1, 110);
    History history = story.history();
    history.back().outcome = "not fired";
    EXPECT_TRUE(finds(check_honesty(history, 1s), "asked after the end"));
}

TEST(Honesty, finds_a_loss_that_is_told_late_while_the_holder_does_nothing) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100})
        .asks(1, 1, 6)
        .releases(1, 1, 300, 301, "expired");
    EXPECT_TRUE(finds(check_honesty(story.history(), 20ms), "198 ms after the validity"));
    EXPECT_TRUE(clean(check_honesty(story.history(), 250ms)));
    story.fault("freeze client", 105, 295, 1);
    EXPECT_TRUE(clean(check_honesty(story.history(), 20ms)));
    Story told;
    told.takes({.process = 1, .to = 5, .valid = 100}).asks(1, 1, 6).loses(1, 1, 110);
    told.releases(1, 1, 300, 301, "expired");
    EXPECT_TRUE(clean(check_honesty(told.history(), 20ms)));
}

TEST(Honesty, finds_a_release_that_is_called_a_loss) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).releases(1, 1, 20, 30);
    Story late = story;
    story.fails(Op::extend, 1, 1, 10, 40, "not_held");
    EXPECT_TRUE(clean(check_honesty(story.history(), 20ms)));
    story.fails(Op::extend, 1, 1, 10, 40, "lost");
    EXPECT_TRUE(finds(check_honesty(story.history(), 20ms), "says lost, and it was released"));
    late.fails(Op::extend, 1, 1, 10, 120, "lost");
    EXPECT_TRUE(clean(check_honesty(late.history(), 20ms))) << "by then it would have been";
}

TEST(HonestEnds, the_end_of_a_client_is_that_of_its_holds) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).closes(1, 50, 60, 80).loses(1, 1, 55);
    EXPECT_TRUE(clean(check_honest_ends(until_closed(story.history()))));
    story.takes({.process = 2, .from = 40, .to = 62, .valid = 250});
    EXPECT_TRUE(clean(check_exclusion(until_closed(story.history()))));
    story.takes({.process = 3, .from = 40, .to = 45, .valid = 60});
    EXPECT_TRUE(finds(check_exclusion(until_closed(story.history())), "1/1 (Simple) and 3/1"));
}

TEST(HonestEnds, accepts_releases_in_time_and_after) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).releases(1, 1, 50, 60);
    story.takes({.process = 2, .from = 40, .to = 55, .valid = 150});
    story.releases(2, 1, 160, 165, "expired").loses(2, 1, 152);
    EXPECT_TRUE(clean(check_honest_ends(story.history())));
}

TEST(HonestEnds, finds_a_loss_before_the_time) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).loses(1, 1, 70);
    EXPECT_TRUE(finds(check_honest_ends(story.history()), "lost 30 ms before"));
}

TEST(HonestEnds, finds_an_expiry_before_the_time) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).releases(1, 1, 50, 60, "expired");
    EXPECT_TRUE(finds(check_honest_ends(story.history()), "within its validity"));
}

TEST(HonestEnds, finds_a_release_of_anothers_lock) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).releases(1, 1, 150, 160);
    story.takes({.process = 2, .from = 40, .to = 120, .valid = 250});
    EXPECT_TRUE(finds(check_honest_ends(story.history()), "2/1 (Simple) had it before"));
}

TEST(HonestEnds, a_hold_that_was_over_before_it_was_told_is_nobodys) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100}).releases(1, 1, 50, 60);
    story.takes({.process = 2, .from = 0, .to = 20, .valid = 0});
    EXPECT_TRUE(clean(check_honest_ends(story.history())));
}

// ---- Nesting

TEST(Reentrancy, accepts_a_nest) {
    Story story;
    story.takes({.process = 1, .to = 5, .policy = "Reentrant"}).nests(1, 1, 6, 7, 100);
    story.fails(Op::nest, 1, 1, 8, 9, "unavailable");
    story.releases(1, 1, 10, 11, "still_held").releases(1, 1, 12, 13, "released");
    EXPECT_TRUE(clean(check_reentrancy(story.history())));
}

TEST(Reentrancy, finds_a_lock_that_is_free_too_early) {
    Story story;
    story.takes({.process = 1, .to = 5, .policy = "Reentrant"}).nests(1, 1, 6, 7, 100);
    story.releases(1, 1, 10, 11, "released");
    EXPECT_TRUE(finds(check_reentrancy(story.history()), "free too early"));
}

TEST(Reentrancy, finds_a_lock_that_is_free_too_late) {
    Story story;
    story.takes({.process = 1, .to = 5, .policy = "Reentrant"});
    story.releases(1, 1, 10, 11, "still_held");
    EXPECT_TRUE(finds(check_reentrancy(story.history()), "still held"));
}

TEST(Reentrancy, finds_a_lock_that_nests_where_it_should_not) {
    Story story;
    story.takes({.process = 1, .to = 5, .policy = "Simple"}).nests(1, 1, 6, 7, 100);
    EXPECT_TRUE(finds(check_reentrancy(story.history()), "taken twice"));
}

TEST(Reentrancy, finds_one_that_does_not_nest_where_it_should) {
    Story story;
    story.takes({.process = 1, .to = 5, .policy = "Reentrant"});
    story.fails(Op::nest, 1, 1, 6, 7, "timed_out");
    EXPECT_TRUE(finds(check_reentrancy(story.history()), "does not nest"));
}

TEST(Reentrancy, a_hold_that_is_over_does_not_nest) {
    Story story;
    story.takes({.process = 1, .to = 5, .valid = 100, .policy = "Reentrant"});
    story.fails(Op::nest, 1, 1, 101, 102, "timed_out");
    EXPECT_TRUE(clean(check_reentrancy(story.history())));
    Story removed;
    removed.takes({.process = 1, .to = 5, .valid = 100, .policy = "Reentrant"});
    removed.fails(Op::nest, 1, 1, 50, 52, "timed_out").loses(1, 1, 53);
    EXPECT_TRUE(clean(check_reentrancy(removed.history())));
}

TEST(Reentrancy, finds_a_release_of_nothing) {
    Story story;
    story.takes({.process = 1, .to = 5}).releases(1, 1, 10, 11, "not_held");
    EXPECT_TRUE(finds(check_reentrancy(story.history()), "not held at its release"));
}

}  // namespace
}  // namespace redlatch::test::fault
