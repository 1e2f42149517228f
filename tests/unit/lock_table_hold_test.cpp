// Holds: nesting, their ends in any order, loss, and how a lock passes from one to the next in memory.

#include "lock_table_tools.hpp"
#include <redlatch/policy/fenced.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using detail::Hold;
using detail::LockOwner;
using detail::LockTable;
using detail::Nest;
using detail::Phase;
using detail::PolicyTraits;
using detail::TimePoint;
using detail::traits_of;
using Outcome = LockTable::Outcome;
using Kind = LockTable::Ending::Kind;

TEST(LockTable, reentrant_nests_for_its_owner) {
    Locks locks;
    const auto hold = locks.taken({.traits = nesting()});
    locks.take(hold, {.traits = nesting(), .id = 1});
    for (const std::uint64_t id : {2U, 3U}) {
        const Asker& nested = locks.enter({.traits = nesting(), .wait = Wait::none(), .id = id});
        EXPECT_EQ(nested.said.outcome, Outcome::nested);
        EXPECT_EQ(nested.said.hold, hold);
        EXPECT_EQ(nested.said.count, id);
        EXPECT_FALSE(nested.turn());
    }
    EXPECT_EQ(locks.unlock(), Kind::nested);
    EXPECT_EQ(locks.unlock(), Kind::nested);
    EXPECT_EQ(locks.unlock(), Kind::last);
    EXPECT_EQ(locks.unlock(), Kind::nothing);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, reentrant_excludes_other_owners) {
    Locks locks;
    locks.take(locks.taken({.traits = nesting()}), {.traits = nesting()});
    EXPECT_EQ(locks.ask({.traits = nesting(), .owner = other}), Outcome::busy);
}

TEST(LockTable, acquisition_with_a_fencing_token_does_not_nest_in_a_hold_without_one) {
    const PolicyTraits fenced = traits_of<Fenced<Reentrant>>();
    Locks locks;
    locks.take(locks.taken({.traits = nesting()}), {.traits = nesting()});
    EXPECT_EQ(locks.ask({.traits = fenced, .id = 2}), Outcome::busy);
    EXPECT_EQ(locks.enter({.traits = fenced, .id = 3}).said.outcome, Outcome::deadlock);
    EXPECT_EQ(locks.unlock(), Kind::last);
    locks.take(locks.taken({.traits = fenced}), {.traits = fenced});
    EXPECT_EQ(locks.enter({.traits = fenced, .id = 2}).said.outcome, Outcome::nested);
    EXPECT_EQ(locks.enter({.traits = nesting(), .id = 3}).said.outcome, Outcome::nested);
}

TEST(LockTable, expired_hold_is_nested_in_by_nobody_though_somebody_waits_for_it) {
    Locks locks;
    locks.take(locks.taken({.traits = nesting(), .lease = 1s}), {.traits = nesting()});
    locks.enter({.traits = nesting(), .owner = other});
    locks.now += 1s;
    EXPECT_EQ(locks.enter({.traits = nesting(), .id = 2}).said.outcome, Outcome::queued);
}

TEST(LockTable, hold_nests_whoever_owns_it) {
    Locks locks;
    const auto hold = locks.taken({.traits = nesting(), .owner = LockOwner::acquisition(1)});
    locks.take(hold, {.traits = nesting(), .owns_itself = true});
    EXPECT_EQ(locks.table.nest(*hold, Nest{{2, nullptr, false}}, locks.now), 2U);
    EXPECT_EQ(locks.end(*hold, 1), Kind::nested);
    EXPECT_EQ(locks.end(*hold, 2), Kind::last);
    EXPECT_FALSE(locks.table.nest(*hold, Nest{{3, nullptr, false}}, locks.now)) << "it is over";
}

TEST(LockTable, hold_that_is_over_nests_nothing) {
    Locks locks;
    const auto brief = locks.taken({.lease = 1s});
    locks.take(brief);
    EXPECT_FALSE(locks.table.nest(*brief, Nest{{2, nullptr, false}}, locks.now + 1s));
    EXPECT_TRUE(locks.table.nest(*brief, Nest{{3, nullptr, false}}, locks.now));
    EXPECT_FALSE(locks.table.nest(*locks.taken(), Nest{{4, nullptr, false}}, locks.now))
        << "another";
    static_cast<void>(locks.table.close());
    EXPECT_FALSE(locks.table.nest(*brief, Nest{{5, nullptr, false}}, locks.now));
    EXPECT_EQ(brief->nest.size(), 2U);
}

TEST(LockTable, hold_that_was_lost_before_its_turn_ended_blocks_nobody) {
    Locks locks;
    const auto hold = locks.taken();
    const Asker& asker = locks.enter();
    locks.lose(hold);  // as a service declares it
    ASSERT_TRUE(locks.finish(asker, hold));
    EXPECT_EQ(locks.table.current("key"), nullptr);
    EXPECT_EQ(locks.table.find("key", me), hold) << "its owner can see the loss";
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::turn);
    EXPECT_EQ(locks.unlock(), Kind::past);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, expired_hold_is_remembered_until_returned) {
    Locks locks;
    const auto hold = locks.taken({.lease = 1s});
    locks.take(hold);
    locks.now += 1s;
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::turn);
    EXPECT_EQ(locks.table.find("key", me), hold);
    locks.lose(hold);
    const auto ending = locks.table.end_innermost("key", me);
    EXPECT_EQ(ending.kind, Kind::past);
    EXPECT_EQ(ending.hold, hold);
    EXPECT_EQ(locks.table.find("key", me), nullptr);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, returning_a_past_hold_leaves_the_next_holder_alone) {
    Locks locks;
    const auto old = locks.taken({.lease = 1s});
    locks.take(old);
    locks.now += 1s;
    const auto young = locks.taken({.owner = other});
    locks.take(young, {.owner = other});
    locks.lose(old);
    EXPECT_EQ(locks.unlock(), Kind::past);
    EXPECT_EQ(locks.table.current("key"), young);
    EXPECT_TRUE(young->in(Phase::held));
    EXPECT_EQ(locks.unlock(), Kind::nothing);
}

TEST(LockTable, lost_hold_frees_the_lock_and_is_remembered) {
    Locks locks;
    const auto hold = locks.taken({.traits = nesting()});
    locks.take(hold, {.traits = nesting(), .id = 1});
    EXPECT_EQ(locks.ask({.traits = nesting(), .id = 2}), Outcome::nested);
    locks.lose(hold);
    locks.table.lost(hold);
    EXPECT_EQ(locks.table.current("key"), nullptr);
    EXPECT_EQ(locks.ask({.traits = nesting()}), Outcome::turn);
    EXPECT_EQ(locks.unlock(), Kind::past);
    EXPECT_EQ(locks.table.size(), 1U) << "one acquisition is left to return";
    EXPECT_EQ(locks.unlock(), Kind::past);
    EXPECT_EQ(locks.unlock(), Kind::nothing);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, hold_lost_while_it_is_released_is_past) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    hold->advance(Phase::held, Phase::lost);  // whoever noticed has not told the lock table yet
    EXPECT_EQ(locks.unlock(), Kind::past);
    locks.table.lost(hold);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, acquisitions_end_by_id_in_any_order) {
    const std::vector<std::vector<std::uint64_t>> orders{{1, 2, 3}, {1, 3, 2}, {2, 1, 3},
                                                         {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};
    for (const auto& order : orders) {
        Locks locks;
        const auto hold = locks.taken({.traits = nesting()});
        locks.take(hold, {.traits = nesting(), .id = 1, .through = nullptr});
        for (const std::uint64_t id : {2U, 3U}) {
            ASSERT_EQ(locks.ask({.traits = nesting(), .id = id, .through = nullptr}),
                      Outcome::nested);
        }
        std::uint64_t left = 3;
        for (const std::uint64_t id : order) {
            const auto ending = locks.table.end_acquisition(*hold, id);
            --left;
            EXPECT_EQ(ending.kind, left == 0 ? Kind::last : Kind::nested);
            EXPECT_EQ(ending.count, left);
            EXPECT_EQ(ending.hold, hold);
            EXPECT_EQ(locks.table.end_acquisition(*hold, id).kind, Kind::nothing) << "only once";
        }
        locks.table.released(*hold);
        EXPECT_TRUE(locks.table.is_empty());
    }
}

TEST(LockTable, unlock_ends_what_lock_took_only) {
    Locks locks;
    const auto hold = locks.taken({.traits = nesting()});
    locks.take(hold, {.traits = nesting(), .id = 1});
    ASSERT_EQ(locks.ask({.traits = nesting(), .id = 2, .through = nullptr}), Outcome::nested);
    EXPECT_EQ(locks.unlock("key", other), Kind::nothing);
    EXPECT_EQ(locks.unlock(), Kind::nested) << "the outer one: the inner one is a Held's";
    EXPECT_EQ(locks.unlock(), Kind::nothing);
    EXPECT_EQ(locks.end(*hold, 2), Kind::last);
}

TEST(LockTable, handle_ends_what_was_taken_through_it) {
    Locks locks;
    const auto hold = locks.taken({.traits = nesting()});
    locks.take(hold, {.traits = nesting(), .id = 1, .through = &some_handle});
    for (const std::uint64_t id : {2U, 3U}) {
        const void* const through = id == 2 ? &other_handle : &some_handle;
        ASSERT_EQ(locks.ask({.traits = nesting(), .id = id, .through = through}), Outcome::nested);
    }
    EXPECT_EQ(locks.table.end_one_through("key", &some_handle).kind, Kind::nested);
    EXPECT_EQ(locks.table.end_one_through("key", &some_handle).kind, Kind::nested);
    EXPECT_EQ(locks.table.end_one_through("key", &some_handle).kind, Kind::nothing);
    EXPECT_EQ(locks.table.end_one_through("key", &other_handle).kind, Kind::last);
}

TEST(LockTable, nested_ending_says_whether_what_ended_wanted_renewal) {
    Locks locks;
    const auto hold = locks.taken({.traits = nesting()});
    locks.take(hold, {.traits = nesting(), .id = 1, .watched = false});
    for (const std::uint64_t id : {2U, 3U}) {
        ASSERT_EQ(locks.ask({.traits = nesting(), .id = id, .watched = true}), Outcome::nested);
    }
    EXPECT_TRUE(locks.table.end_acquisition(*hold, 3).watched);
    EXPECT_FALSE(locks.table.end_acquisition(*hold, 1).watched);
}

TEST(LockTable, nested_acquisition_may_want_renewal_only_later) {
    Locks locks;
    const auto hold = locks.taken({.traits = nesting()});
    locks.take(hold, {.traits = nesting(), .id = 1, .watched = true});
    for (const std::uint64_t id : {2U, 3U}) {
        ASSERT_EQ(locks.ask({.traits = nesting(), .id = id, .watched = false}), Outcome::nested);
    }
    hold->watch(2);
    EXPECT_FALSE(locks.table.end_acquisition(*hold, 3).watched);
    EXPECT_TRUE(locks.table.end_acquisition(*hold, 2).watched);
}

TEST(LockTable, nothing_is_there_to_end_or_find) {
    Locks locks;
    EXPECT_EQ(locks.unlock(), Kind::nothing);
    EXPECT_EQ(locks.table.end_one_through("key", &some_handle).kind, Kind::nothing);
    EXPECT_EQ(locks.end(*locks.taken(), 1), Kind::nothing);
    EXPECT_EQ(locks.table.find("key", me), nullptr);
    EXPECT_EQ(locks.table.current("key"), nullptr);
    locks.table.released(*locks.taken());
    locks.lose(locks.taken());
    EXPECT_FALSE(
        locks.table.moved(*locks.taken(), {.token = {}, .refreshed = locks.now}, false, locks.now));
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, finds_the_hold_of_the_owner_that_asks) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    EXPECT_EQ(locks.table.find("key", me), hold);
    EXPECT_EQ(locks.table.find("key", other), nullptr);
    EXPECT_EQ(locks.table.find("other", me), nullptr);
}

TEST(LockTable, finds_a_hold_by_its_name_and_token) {
    Locks locks;
    const auto first = locks.taken({.token = "first"});
    const auto second = locks.taken({.key = "other", .token = "second"});
    locks.take(first);
    locks.take(second, {.key = "other"});
    EXPECT_EQ(locks.table.with_token("other", "second"), second);
    EXPECT_EQ(locks.table.with_token("key", "first"), first);
    EXPECT_EQ(locks.table.with_token("key", "second"), nullptr);
    EXPECT_EQ(locks.table.with_token("other", "third"), nullptr);
    locks.lose(first);
    EXPECT_EQ(locks.table.with_token("key", "first"), nullptr);
}

TEST(RemovedToken, ends_an_acquisition_whose_answer_is_under_way_with_a_hold_that_is_lost) {
    Locks locks;
    Asker& contends = locks.enter();
    EXPECT_EQ(locks.table.removed("key", "mine"), nullptr) << "nobody has it yet";
    const auto finished =
        locks.table.finish(contends.turn(), locks.taken({.token = "mine"}), false, locks.now);
    EXPECT_TRUE(finished.kept);
    EXPECT_TRUE(finished.is_removed);
}

TEST(RemovedToken, of_a_hold_is_told_with_the_hold_and_once) {
    Locks locks;
    const auto hold = locks.taken({.token = "mine"});
    locks.take(hold);
    EXPECT_EQ(locks.table.removed("key", "mine"), hold);
    locks.lose(hold);
    Asker& contends = locks.enter();
    EXPECT_EQ(locks.table.removed("key", "before"), nullptr);
    const auto finished =
        locks.table.finish(contends.turn(), locks.taken({.token = "mine"}), false, locks.now);
    EXPECT_TRUE(finished.kept);
    EXPECT_FALSE(finished.is_removed);
}

TEST(AdoptedHold, is_found_when_somebody_else_here_has_got_its_lock) {
    Locks locks;
    Asker& contends = locks.enter({.owner = other});
    const auto hold = locks.taken();
    hold->nest.push_back({3, nullptr, false});
    ASSERT_TRUE(locks.table.adopt(hold, true, locks.now));
    ASSERT_TRUE(locks.finish(contends, locks.taken({.owner = other, .token = "next"})));
    EXPECT_EQ(locks.table.with_token("key", hold->token().bytes), hold);
    locks.lose(hold);
    EXPECT_EQ(locks.table.with_token("key", hold->token().bytes), nullptr);
}

/// A hold, and one who waits for it on the same terms.
class Handoff : public testing::Test {
protected:
    const Wish wish{.owner = other, .id = 2, .lease = 1h, .local_handoffs = 100};

    std::shared_ptr<Hold> hold_with(HoldRecipe recipe) {
        recipe.lease = wish.lease;
        hold = locks.taken(std::move(recipe));
        return hold;
    }

    /// How the first hold ends, and what the one who waits gets of that.
    Kind end() {
        const Kind kind = locks.end(*hold, 1);
        woken = locks.woken();
        return kind;
    }

    bool moved(TimePoint refreshed, std::uint64_t fence = 0, bool others_wait = false) {
        return locks.table.moved(*hold, {.token = {"next"}, .refreshed = refreshed, .fence = fence},
                                 others_wait, locks.now);
    }

    Locks locks;
    std::shared_ptr<Hold> hold = locks.taken({.lease = wish.lease});
    Woken woken{};
};

TEST_F(Handoff, gives_the_lock_to_the_waiter_in_front_without_a_command) {
    locks.take(hold);
    hold->open_tries.unclear = true;
    Asker& next = locks.enter(wish);
    Asker& behind = locks.enter(wish);
    locks.now += 1ms;
    EXPECT_EQ(end(), Kind::handed);
    EXPECT_TRUE(hold->in(Phase::released));
    EXPECT_EQ(woken, (Woken{&next})) << "the other one sleeps no longer than the next hold";
    ASSERT_TRUE(next.is_handed());
    ASSERT_EQ(locks.resume(next), Outcome::handed);
    const auto& mine = next.said.hold;
    EXPECT_EQ(locks.table.current("key"), mine);
    EXPECT_EQ(mine->owner(), other);
    EXPECT_EQ(mine->token().bytes, hold->token().bytes);
    EXPECT_EQ(mine->valid_until(), hold->valid_until()) << "inherited";
    EXPECT_EQ(mine->taken_at(), locks.now);
    EXPECT_TRUE(mine->open_tries.unclear);
    EXPECT_EQ(mine->nest.size(), 1U);
    EXPECT_EQ(locks.resume(behind), Outcome::queued);
    EXPECT_FALSE(behind.is_handed());
}

TEST_F(Handoff, goes_by_a_command_where_the_lease_was_set_too_long_ago) {
    locks.take(hold);
    locks.enter(wish);
    locks.now += detail::longest_without_news;
    EXPECT_EQ(end(), Kind::last);
}

TEST_F(Handoff, of_an_extended_hold_goes_by_a_command) {
    // The next one would block others for the longer lease, should it die.
    const std::vector<std::function<void(Hold&)>> prolong{
        [this](Hold& one) { one.confirm(locks.now, 2h); },
        [](Hold& one) { one.may_be_prolonged = true; },
        [this](Hold& one) { EXPECT_TRUE(one.begin_extension(locks.now)); }};
    for (const auto& change : prolong) {
        locks.take(hold_with({}));
        Asker& next = locks.enter(wish);
        change(*hold);
        EXPECT_EQ(end(), Kind::last);
        ASSERT_EQ(locks.resume(next), Outcome::turn);
        locks.table.end_turn(next.turn());
    }
}

TEST(AdoptedHold, is_held_beside_who_contends_for_it_and_gives_way_to_that_one) {
    Locks locks;
    Asker& contends = locks.enter({.owner = other});
    Asker& behind = locks.enter({.owner = other, .id = 2, .local_handoffs = 16});
    ASSERT_EQ(contends.said.outcome, Outcome::turn);
    const auto hold = locks.taken();
    hold->nest.push_back({3, nullptr, false});
    EXPECT_TRUE(locks.table.adopt(hold, true, locks.now));
    EXPECT_EQ(locks.table.find("key", me), hold);
    EXPECT_EQ(locks.ask({}), Outcome::busy);
    const auto ending = locks.table.end_acquisition(*hold, 3);
    EXPECT_EQ(ending.kind, Kind::last);
    EXPECT_FALSE(ending.can_hand_off) << "somebody came before who waits behind";
    locks.free(*hold);
    EXPECT_EQ(locks.resume(behind), Outcome::queued);
    EXPECT_TRUE(locks.finish(contends, locks.taken({.owner = other, .token = "next"})));
}

TEST(AdoptedHold, that_ran_out_unseen_is_still_to_be_released_when_the_next_one_has_the_lock) {
    Locks locks;
    Asker& contends = locks.enter({.owner = other});
    const auto hold = locks.taken();
    hold->nest.push_back({3, nullptr, false});
    EXPECT_TRUE(locks.table.adopt(hold, true, locks.now));
    const auto next = locks.taken({.owner = other, .token = "next"});
    EXPECT_TRUE(locks.finish(contends, next));
    EXPECT_EQ(locks.table.current("key"), next);
    EXPECT_EQ(locks.table.close().holds, (std::vector{next, hold})) << "it may not be known yet";
    EXPECT_EQ(locks.table.end_acquisition(*hold, 3).kind, Kind::last) << "the server knows";
}

TEST(AdoptedHold, has_nobody_go_on_with_a_place_behind_it) {
    Locks locks;
    Asker& contends = locks.enter({.owner = other});
    Asker& behind = locks.enter({.owner = other, .id = 2});
    locks.table.announce(contends.turn(), *locks.taken({.owner = other, .token = "queued"}));
    EXPECT_FALSE(locks.table.adopt(locks.taken(), true, locks.now).place) << "it is used";
    EXPECT_FALSE(locks.table.pass_place_on(contends.turn(), false));
    EXPECT_EQ(locks.resume(behind), Outcome::queued);
}

TEST(AdoptedHold, gives_back_the_place_that_nobody_has_gone_on_with_yet) {
    Locks locks;
    Asker& contends = locks.enter({.owner = other});
    Asker& behind = locks.enter({.owner = other, .id = 2});
    locks.table.announce(contends.turn(), *locks.taken({.owner = other, .token = "queued"}));
    ASSERT_TRUE(locks.table.pass_place_on(contends.turn(), true));
    const auto hold = locks.taken();
    hold->nest.push_back({3, nullptr, false});
    const auto adopted = locks.table.adopt(hold, true, locks.now);
    ASSERT_TRUE(adopted.place);
    EXPECT_EQ(adopted.place->token.bytes, "queued");
    EXPECT_TRUE(adopted.place->unclear_try);
    EXPECT_EQ(locks.resume(behind), Outcome::queued);
    EXPECT_EQ(locks.table.end_acquisition(*hold, 3).kind, Kind::last);
    locks.free(*hold);
    ASSERT_EQ(locks.resume(behind), Outcome::turn);
    EXPECT_FALSE(locks.table.place(behind.turn()));
}

TEST(AdoptedHold, that_is_heard_of_late_displaces_nobody) {
    Locks locks;
    Asker& contends = locks.enter({.owner = other});
    const auto hold = locks.taken();
    hold->nest.push_back({3, nullptr, false});
    locks.now += 1s;
    const auto next = locks.taken({.owner = other, .token = "next"});
    ASSERT_TRUE(locks.finish(contends, next));
    ASSERT_TRUE(locks.table.adopt(hold, true, locks.now));
    EXPECT_EQ(locks.table.current("key"), next);
    EXPECT_EQ(locks.table.with_token("key", hold->token().bytes), hold);
    locks.lose(hold);
    EXPECT_EQ(locks.table.end_acquisition(*hold, 3).kind, Kind::past);
    EXPECT_EQ(locks.table.current("key"), next);
}

// Its try was sent before the adoption, and carried out when the adopted lease was over.
TEST(AdoptedHold, that_ran_out_displaces_nobody_who_got_the_lock_after_it) {
    for (const bool heard_in_time : {true, false}) {
        SCOPED_TRACE(heard_in_time);
        Locks locks;
        Asker& contends = locks.enter({.owner = other});
        const auto next = locks.taken({.lease = 1h, .owner = other, .token = "next"});
        locks.now += 1s;
        const auto hold = locks.taken({.lease = 1s});
        hold->nest.push_back({3, nullptr, false});
        const auto adopt = [&] { return locks.table.adopt(hold, true, locks.now).kept; };
        EXPECT_TRUE(!heard_in_time || adopt());
        locks.now = hold->valid_until();
        ASSERT_TRUE(locks.finish(contends, next));
        EXPECT_TRUE(heard_in_time || adopt());
        EXPECT_EQ(locks.table.current("key"), next);
        EXPECT_EQ(locks.table.end_acquisition(*hold, 3).kind, Kind::last) << "the server knows";
        EXPECT_EQ(locks.table.end_innermost("key", other).kind, Kind::last);
    }
}

/// Another process took an adopted hold away unseen, and the lock was granted here anew. Its moment is a bound, and
/// looks older.
class HoldBesideADeadOne : public testing::Test {
protected:
    HoldBesideADeadOne() {
        const PolicyTraits traits = nesting();
        Asker& contends = locks.enter({.traits = traits, .owner = other});
        alive = locks.taken({.traits = traits, .lease = 1h, .owner = other, .token = "alive"});
        locks.now += 1s;
        dead = locks.taken({.traits = traits, .lease = 1s, .token = "dead"});
        dead->nest.push_back({3, nullptr, false});
        EXPECT_TRUE(locks.table.adopt(dead, true, locks.now));
        EXPECT_TRUE(locks.finish(contends, alive));
        EXPECT_EQ(locks.table.current("key"), dead);
    }

    Outcome nest_once_more() { return locks.ask({.traits = nesting(), .owner = other, .id = 7}); }

    Locks locks;
    std::shared_ptr<Hold> alive;
    std::shared_ptr<Hold> dead;
};

TEST_F(HoldBesideADeadOne, is_released_at_the_server_all_the_same) {
    const auto ending = locks.table.end_innermost("key", other);
    EXPECT_EQ(ending.kind, Kind::last);
    EXPECT_EQ(ending.hold, alive);
    EXPECT_FALSE(ending.can_hand_off);
    locks.free(*alive);
    EXPECT_EQ(locks.table.current("key"), dead);
    EXPECT_EQ(locks.table.find("key", other), nullptr);
}

TEST_F(HoldBesideADeadOne, is_nested_and_ends_step_by_step) {
    ASSERT_TRUE(locks.table.nest(*alive, Nest{{2, nullptr, false}}, locks.now));
    EXPECT_FALSE(locks.table.end_only(*alive, 1)) << "it has two acquisitions";
    EXPECT_EQ(locks.table.end_acquisition(*alive, 2).kind, Kind::nested);
    const auto ending = locks.table.end_only(*alive, 1);
    ASSERT_TRUE(ending);
    EXPECT_EQ(ending->kind, Kind::last);
}

TEST_F(HoldBesideADeadOne, is_the_current_one_when_that_is_declared_lost) {
    locks.lose(dead);
    EXPECT_EQ(locks.table.current("key"), alive);
    EXPECT_EQ(nest_once_more(), Outcome::nested);
    EXPECT_EQ(locks.end(*dead, 3), Kind::past);
    EXPECT_EQ(locks.unlock("key", other), Kind::nested);
    EXPECT_EQ(locks.unlock("key", other), Kind::last);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST_F(HoldBesideADeadOne, is_the_current_one_when_that_was_released) {
    EXPECT_EQ(locks.end(*dead, 3), Kind::last);
    EXPECT_EQ(locks.table.current("key"), alive);
    EXPECT_EQ(nest_once_more(), Outcome::nested);
}

TEST_F(HoldBesideADeadOne, is_the_current_one_when_that_is_found_expired) {
    Asker& waits = locks.enter({.traits = nesting(), .wait = 10h, .id = 9, .owns_itself = true});
    EXPECT_EQ(waits.said.outcome, Outcome::queued);
    locks.sleep(waits);
    EXPECT_EQ(locks.resume(waits), Outcome::queued);
    EXPECT_EQ(waits.said.expired, dead);
    EXPECT_EQ(waits.said.wake_at, alive->valid_until());
    EXPECT_EQ(locks.table.current("key"), alive);
    EXPECT_EQ(locks.unlock("key", other), Kind::last);
    EXPECT_EQ(locks.woken(), Woken{&waits});
    EXPECT_EQ(locks.resume(waits), Outcome::turn);
}

TEST(AdoptedHold, wakes_who_would_sleep_past_its_end) {
    Locks locks;
    const auto before = locks.taken();
    locks.take(before);
    ASSERT_EQ(locks.table.end_acquisition(*before, 1).kind, Kind::last);
    Asker& waits = locks.enter({.owner = other});
    const auto hold = locks.taken({.lease = 1s, .token = "adopted"});
    hold->nest.push_back({3, nullptr, false});
    ASSERT_TRUE(locks.table.adopt(hold, false, locks.now));
    EXPECT_EQ(locks.woken(), Woken{&waits});
    EXPECT_EQ(locks.resume(waits), Outcome::queued);
    EXPECT_EQ(waits.said.wake_at, hold->valid_until());
}

TEST(AdoptedHold, is_none_after_the_end_of_the_client) {
    Locks locks;
    static_cast<void>(locks.table.close());
    EXPECT_FALSE(locks.table.adopt(locks.taken(), false, locks.now));
}

TEST(DetachedHold, ends_without_a_hand_off_and_only_alone) {
    Locks locks;
    const auto hold = locks.taken({.traits = nesting()});
    locks.take(hold, {.traits = nesting()});
    ASSERT_TRUE(locks.table.nest(*hold, Nest{{2, nullptr, false}}, locks.now));
    EXPECT_FALSE(locks.table.end_only(*hold, 1)) << "nested";
    EXPECT_EQ(locks.table.end_acquisition(*hold, 2).kind, Kind::nested);
    locks.enter({.traits = nesting(), .owner = other, .id = 5, .local_handoffs = 16});
    const auto ending = locks.table.end_only(*hold, 1);
    ASSERT_TRUE(ending);
    EXPECT_EQ(ending->kind, Kind::last);
    EXPECT_FALSE(ending->can_hand_off);
}

TEST_F(Handoff, takes_place_only_when_the_min_hold_is_over) {
    for (const auto& [min_hold, kind] :
         {std::pair{2ms, Kind::last}, std::pair{1ms, Kind::handed}}) {
        hold = locks.taken({.min_hold = min_hold});
        hold->begin_min_hold(locks.now);
        locks.take(hold);
        Wish next_wish = wish;
        next_wish.min_hold = 5ms;
        Asker& next = locks.enter(next_wish);
        locks.now += 1ms;
        auto ending = locks.table.end_acquisition(*hold, 1);
        if (ending.can_hand_off) locks.table.hand_off(ending, locks.now);
        EXPECT_EQ(ending.kind, kind);
        if (kind == Kind::last) locks.free(*hold);
        if (locks.resume(next) == Outcome::turn) {
            locks.table.end_turn(next.turn());
        } else {
            EXPECT_EQ(next.said.hold->kept_until(), locks.now + 5ms) << "it has one of its own";
            locks.unlock("key", other);
        }
    }
}

TEST_F(Handoff, of_a_hold_that_is_delivered_later_has_no_min_hold_before) {
    locks.take(hold);
    const detail::HoldTerms terms = Wish{.lease = hold->terms().lease, .min_hold = 5ms}.terms();
    const LockOwner owner = LockOwner::acquisition(5);
    const detail::AcquireRequest request{.terms = terms,
                                         .owner = owner,
                                         .caller = owner,
                                         .wait = Wait::unlimited(),
                                         .deadline = TimePoint::max(),
                                         .acquisition = {5, nullptr, false},
                                         .handoffs = {.in_row = 16, .others_poll = false},
                                         .delivered_later = true};
    LockTable::Waiter waiter;
    ASSERT_EQ(locks.table.enter(request, waiter, locks.now, false).outcome, Outcome::queued);
    auto ending = locks.table.end_acquisition(*hold, 1);
    ASSERT_TRUE(ending.can_hand_off);
    locks.table.hand_off(ending, locks.now);
    const auto next = locks.table.resume(waiter, locks.now, false).hold;
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->kept_until(), TimePoint::min());
    next->delivered();
    EXPECT_EQ(next->kept_until(), locks.now + 5ms);
}

TEST_F(Handoff, of_a_hold_with_a_fencing_token_needs_another_one) {
    const PolicyTraits traits = traits_of<Fenced<Simple>>();
    Wish fenced = wish;
    fenced.traits = traits;
    hold_with({.traits = traits})->fence = 6;
    locks.take(hold, {.traits = traits});
    Asker& next = locks.enter(fenced);
    auto ending = locks.table.end_acquisition(*hold, 1);
    ASSERT_TRUE(ending.can_hand_off);
    locks.table.hand_off(ending, locks.now);
    EXPECT_EQ(ending.kind, Kind::last);
    EXPECT_TRUE(moved(locks.now, 7));
    ASSERT_EQ(locks.resume(next), Outcome::handed);
    EXPECT_EQ(next.said.hold->fence, 7U);
    EXPECT_EQ(next.said.hold->token().bytes, "next");
}

TEST_F(Handoff, asks_whether_others_wait_where_the_lock_shall_not_pass_them) {
    locks.take(hold);
    Wish polite = wish;
    polite.local_handoffs = 0;
    Asker& next = locks.enter(polite);
    auto ending = locks.table.end_acquisition(*hold, 1);
    ASSERT_TRUE(ending.can_hand_off);
    locks.table.hand_off(ending, locks.now);
    EXPECT_EQ(ending.kind, Kind::last) << "by a command only";
    EXPECT_TRUE(moved(locks.now));
    EXPECT_EQ(locks.resume(next), Outcome::handed);
}

/// As somebody writes them whose locks cannot be told from `Simple` ones here.
struct OwnScripts : Simple {
    static const LockScripts& scripts() {
        static const LockScripts all = Simple::scripts();
        return all;
    }
};

TEST_F(Handoff, takes_nobody_with_other_terms) {
    const std::vector<std::function<void(Wish&)>> others{
        [](Wish& one) { one.lease = 2h; },
        [](Wish& one) { one.replicas = Replicas::all(); },
        [](Wish& one) { one.traits = traits_of<Fenced<Simple>>(); },
        [](Wish& one) { one.traits.scripts = &OwnScripts::scripts(); },
        [](Wish& one) { one.drift.factor = 0.02; },
        [](Wish& one) { one.drift.floor = 3ms; },
        [](Wish& one) { one.lock_delay = 1s; },
        [](Wish& one) { one.claim.weight = 2; },
        [](Wish& one) { one.local_handoffs = 0, one.others_poll = true; }};
    for (const auto& change : others) {
        locks.take(hold_with({}));
        Wish different = wish;
        change(different);
        Asker& next = locks.enter(different);
        EXPECT_FALSE(locks.table.end_acquisition(*hold, 1).can_hand_off);
        EXPECT_FALSE(moved(locks.now));
        locks.free(*hold);
        EXPECT_EQ(locks.woken(), Woken{&next});
        ASSERT_EQ(locks.resume(next), Outcome::turn);
        locks.table.end_turn(next.turn());
    }
}

TEST_F(Handoff, takes_nobody_where_the_scripts_cannot_move_a_lock) {
    PolicyTraits traits = traits_of<Simple>();
    traits.can_move = false;
    locks.take(hold_with({.traits = traits}));
    locks.enter(wish);
    EXPECT_FALSE(locks.table.end_acquisition(*hold, 1).can_hand_off);
}

TEST_F(Handoff, needs_somebody_who_waits) {
    locks.take(hold);
    EXPECT_FALSE(locks.table.end_acquisition(*hold, 1).can_hand_off);
}

TEST_F(Handoff, ends_with_the_client) {
    locks.take(hold);
    locks.enter(wish);
    static_cast<void>(locks.table.close());
    EXPECT_FALSE(locks.table.end_acquisition(*hold, 1).can_hand_off);
    EXPECT_FALSE(moved(locks.now));
}

TEST_F(Handoff, of_an_expired_hold_goes_by_a_command) {
    Wish brief = wish;
    brief.lease = 100ms;
    brief.drift = {.factor = 0, .floor = 98ms};
    hold = locks.taken({.lease = brief.lease, .drift = brief.drift});
    locks.take(hold);
    locks.enter(brief);
    locks.now += 3ms;
    EXPECT_FALSE(hold->valid(locks.now));
    EXPECT_EQ(end(), Kind::last);
}

TEST_F(Handoff, of_a_lost_hold_does_not_happen) {
    locks.take(hold);
    Asker& next = locks.enter(wish);
    hold->advance(Phase::held, Phase::lost);
    const auto ending = locks.table.end_acquisition(*hold, 1);
    EXPECT_EQ(ending.kind, Kind::past);
    EXPECT_FALSE(ending.can_hand_off);
    locks.table.lost(hold);
    EXPECT_EQ(locks.resume(next), Outcome::turn);
}

TEST_F(Handoff, by_the_server_lets_go_of_the_hold_before_only_once) {
    locks.take(hold);
    Asker& next = locks.enter(wish);
    static_cast<void>(locks.table.end_acquisition(*hold, 1));
    EXPECT_TRUE(moved(locks.now));
    EXPECT_FALSE(moved(locks.now)) << "it is not there any more";
    locks.table.released(*hold);
    ASSERT_EQ(locks.resume(next), Outcome::handed);
    EXPECT_EQ(locks.table.current("key"), next.said.hold);
}

TEST_F(Handoff, gives_way_after_so_many_in_a_row_while_others_wait) {
    Wish limited = wish;
    limited.local_handoffs = 2;
    locks.take(hold);
    std::vector<Asker*> waiters;
    for (std::uint64_t id = 2; id < 5; ++id) {
        limited.id = id;
        waiters.push_back(&locks.enter(limited));
    }
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(locks.table.end_acquisition(*hold, i + 1).can_hand_off);
        EXPECT_TRUE(moved(locks.now, 0, true));
        ASSERT_EQ(locks.resume(*waiters[i]), Outcome::handed);
        hold = waiters[i]->said.hold;
    }
    EXPECT_FALSE(locks.table.end_acquisition(*hold, 3).can_hand_off);
    locks.free(*hold);
    EXPECT_EQ(locks.resume(*waiters[2]), Outcome::turn);
}

TEST_F(Handoff, to_one_who_owns_itself_makes_a_hold_that_does) {
    Wish own = wish;
    own.owns_itself = true;
    locks.take(hold);
    Asker& next = locks.enter(own);
    EXPECT_EQ(end(), Kind::handed);
    ASSERT_EQ(locks.resume(next), Outcome::handed);
    EXPECT_EQ(next.said.hold->owner(), LockOwner::acquisition(own.id));
}

TEST_F(Handoff, comes_before_a_stop_and_the_deadline) {
    Wish brief = wish;
    brief.wait = 1ms;
    locks.take(hold);
    Asker& next = locks.enter(brief);
    EXPECT_EQ(end(), Kind::handed);
    next.stop_requested = true;
    locks.now += 1h;
    EXPECT_EQ(locks.resume(next), Outcome::handed);
}

TEST_F(Handoff, leaves_a_late_message_known) {
    locks.take(hold);
    locks.enter(wish);
    EXPECT_EQ(end(), Kind::handed);
    const detail::Grant late{.ttl = 1s,
                             .time = 1us,
                             .server = "-",
                             .key_type = 's',
                             .token = hold->token().bytes,
                             .key = "key"};
    EXPECT_TRUE(locks.table.deliver(late));
}

TEST_F(Handoff, wakes_the_one_behind_if_the_next_hold_ends_before_its_sleep) {
    hold->confirm(locks.now, 2h);  // an extension, which the next hold does not inherit
    locks.take(hold);
    Asker& next = locks.enter(wish);
    Asker& behind = locks.enter(wish);
    EXPECT_EQ(behind.said.wake_at, hold->valid_until());
    static_cast<void>(locks.table.end_acquisition(*hold, 1));
    EXPECT_TRUE(moved(locks.now));
    EXPECT_EQ(locks.woken(), (Woken{&next, &behind}));
    EXPECT_EQ(locks.resume(behind), Outcome::queued);
    EXPECT_EQ(behind.said.wake_at, locks.table.current("key")->valid_until());
}

}  // namespace
}  // namespace redlatch::test
