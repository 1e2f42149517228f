// Who gets a lock inside a process, and who waits for it.

#include "lock_table_tools.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using detail::LockOwner;
using detail::LockTable;
using detail::Phase;
using detail::PolicyTraits;
using detail::TimePoint;
using detail::traits_of;
using Outcome = LockTable::Outcome;
using Kind = LockTable::Ending::Kind;

void expect_free(Locks& locks, const std::string& key = "key") {
    EXPECT_EQ(locks.ask({.key = key, .owner = other}), Outcome::turn);
}

TEST(LockTable, free_name_gives_a_turn_at_once) {
    Locks locks;
    const Asker& asker = locks.enter();
    EXPECT_EQ(asker.said.outcome, Outcome::turn);
    EXPECT_TRUE(asker.turn());
    EXPECT_EQ(asker.said.expired, nullptr);
    EXPECT_EQ(locks.table.size(), 1U);
    locks.table.end_turn(asker.turn());
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, free_name_gives_a_turn_without_the_time) {
    Locks locks;
    const Asker asker{{}, locks.now};
    const LockTable::Turn turn = locks.table.enter_if_free(asker.request);
    ASSERT_TRUE(turn);
    EXPECT_FALSE(locks.table.enter_if_free(asker.request)) << "it has a contender";
    EXPECT_EQ(locks.ask({.traits = nesting()}), Outcome::wrong_key_type);
    locks.table.end_turn(turn);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, name_that_is_held_or_waited_for_or_closed_gives_no_turn_without_the_time) {
    Locks locks;
    const Asker late{{}, locks.now};
    const auto hold = locks.taken();
    locks.take(hold);
    EXPECT_FALSE(locks.table.enter_if_free(late.request));
    locks.enter({.owner = other});
    locks.free(*hold);
    EXPECT_FALSE(locks.table.enter_if_free(late.request)) << "somebody came before";
    static_cast<void>(locks.table.close());
    const Asker elsewhere{{.key = "elsewhere"}, locks.now};
    EXPECT_FALSE(locks.table.enter_if_free(elsewhere.request));
}

TEST(LockTable, turn_excludes_others) {
    Locks locks;
    const Asker& asker = locks.enter();
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::busy);
    locks.table.end_turn(asker.turn());
    expect_free(locks);
}

TEST(LockTable, hold_excludes_others) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::busy);
    EXPECT_EQ(locks.table.current("key"), hold);
    EXPECT_EQ(locks.unlock(), Kind::last);
    EXPECT_EQ(locks.table.current("key"), nullptr);
    EXPECT_TRUE(locks.table.is_empty());
    expect_free(locks);
}

TEST(LockTable, stays_closed_until_the_release_is_answered) {
    Locks locks;
    locks.take(locks.taken());
    const auto ending = locks.table.end_innermost("key", me);
    ASSERT_EQ(ending.kind, Kind::last);
    EXPECT_TRUE(ending.hold->in(Phase::releasing));
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::busy);
    EXPECT_EQ(locks.ask({}), Outcome::busy) << "no nesting either";
    locks.table.released(*ending.hold);
    expect_free(locks);
}

TEST(LockTable, single_try_waits_for_the_answer_to_a_release) {
    for (const LockOwner who : {me, other}) {
        Locks locks;
        const auto hold = locks.taken();
        locks.take(hold);
        const Wish single_try{.wait = Wait::none(), .owner = who, .try_for = 1s};
        if (who == other) {
            EXPECT_EQ(locks.enter(single_try).said.outcome, Outcome::busy) << "it is held";
        }
        static_cast<void>(locks.table.end_innermost("key", me));
        Asker& waiter = locks.enter(single_try);
        ASSERT_EQ(waiter.said.outcome, Outcome::queued);
        EXPECT_EQ(waiter.said.wake_at, locks.now + 1s);
        EXPECT_EQ(locks.enter(single_try).said.outcome, Outcome::busy) << "somebody is in front";
        locks.free(*hold);
        EXPECT_EQ(locks.woken(), Woken{&waiter});
        EXPECT_EQ(locks.resume(waiter), Outcome::turn);
        locks.table.end_turn(waiter.turn());
        expect_free(locks);
    }
}

TEST(LockTable, single_try_waits_no_longer_than_its_time_for_a_release) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    static_cast<void>(locks.table.end_innermost("key", me));
    const Wish single_try{.wait = Wait::none(), .owner = other, .try_for = 1s};
    Asker& late = locks.enter(single_try);
    locks.now += 1s - 1ns;
    EXPECT_EQ(locks.resume(late), Outcome::queued);
    locks.now += 1ns;
    EXPECT_EQ(locks.resume(late), Outcome::busy);
    Asker& stopped = locks.enter(single_try);
    stopped.stop_requested = true;
    EXPECT_EQ(locks.resume(stopped), Outcome::cancelled);
    Asker& waiter = locks.enter({.owner = other});
    locks.free(*hold);
    EXPECT_EQ(locks.resume(waiter), Outcome::turn);
    locks.table.set_fault(waiter.turn(), nullptr);
    EXPECT_EQ(locks.enter(single_try).said.outcome, Outcome::busy) << "the lock is taken";
    locks.table.end_turn(waiter.turn());
    expect_free(locks);
}

/// A lock whose release has had no answer yet.
struct BeingReleased {
    Locks locks;
    const std::shared_ptr<detail::Hold> hold = locks.taken();  // for 10 s

    BeingReleased() {
        locks.take(hold);
        EXPECT_EQ(locks.table.end_acquisition(*hold, 1).kind, Kind::last);
    }
    Asker& single_try() {
        return locks.enter({.wait = Wait::none(), .owner = other, .try_for = 1s});
    }
};

TEST(LockTable, single_try_between_a_release_and_the_next_turn_waits_for_the_answer_to_that) {
    BeingReleased release;
    Locks& locks = release.locks;
    Asker& next = locks.enter({.wait = 1h, .owner = other});
    locks.free(*release.hold);
    Asker& single_try = release.single_try();
    ASSERT_EQ(single_try.said.outcome, Outcome::queued);
    EXPECT_EQ(locks.resume(single_try), Outcome::queued) << "it is the other one's turn";
    ASSERT_EQ(locks.resume(next), Outcome::turn);
    locks.table.set_fault(next.turn(), nullptr);
    EXPECT_EQ(locks.resume(single_try), Outcome::busy);
    EXPECT_FALSE(single_try.said.busy.is_unanswered);
    locks.table.end_turn(next.turn());
    expect_free(locks);
}

TEST(LockTable, silence_of_a_release_ends_with_its_answer) {
    BeingReleased release;
    Locks& locks = release.locks;
    Asker& next = locks.enter({.wait = 1h, .owner = other});
    Asker& late = locks.enter({.wait = 1010ms, .owner = other});
    locks.now += 1s;
    locks.free(*release.hold);
    ASSERT_EQ(locks.resume(next), Outcome::turn);
    locks.now += 10ms;
    EXPECT_EQ(locks.resume(late), Outcome::busy);
    EXPECT_FALSE(late.said.busy.is_unanswered);
    locks.table.end_turn(next.turn());
    expect_free(locks);
}

TEST(LockTable, wait_that_ends_tells_whether_the_caller_itself_has_the_lock) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    Asker& itself = locks.enter({.wait = 1ms, .owner = me});
    Asker& somebody = locks.enter({.wait = 1ms, .owner = other});
    locks.now += 1ms;
    EXPECT_EQ(locks.resume(itself), Outcome::busy);
    EXPECT_TRUE(itself.said.busy.by_caller);
    EXPECT_EQ(locks.resume(somebody), Outcome::busy);
    EXPECT_FALSE(somebody.said.busy.by_caller);
}

/// Two single tries behind one that has had no answer yet.
struct SingleTries {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& first = locks.enter({.wait = Wait::none(), .owner = other, .try_for = 1s});
    Asker& second = locks.enter({.wait = Wait::none(), .owner = other, .try_for = 1s});
    const std::shared_ptr<const Error> fault =
        std::make_shared<const Error>(Error{Errc::unavailable, {}, {}, {}, {}});
};

TEST(LockTable, single_tries_wait_for_the_answer_to_another_one) {
    for (const bool has_failed : {true, false}) {
        auto [locks, turn, first, second, fault] = SingleTries{};
        const auto heard = has_failed ? fault : nullptr;
        for (Asker* const waiter : {&first, &second}) {
            ASSERT_EQ(waiter->said.outcome, Outcome::queued);
            EXPECT_EQ(waiter->said.wake_at, locks.now + 1s);
        }
        locks.table.set_fault(turn, heard);
        EXPECT_EQ(locks.woken(), (Woken{&first, &second}));
        for (Asker* const waiter : {&first, &second}) {
            EXPECT_EQ(locks.resume(*waiter), Outcome::busy);
            EXPECT_EQ(waiter->said.busy.fault, heard);
            EXPECT_FALSE(waiter->said.busy.is_unanswered);
        }
        locks.table.end_turn(turn);
        expect_free(locks);
    }
}

TEST(LockTable, single_tries_that_have_their_answer_take_no_turn) {
    for (const bool with_place : {false, true}) {
        auto [locks, turn, first, second, fault] = SingleTries{};
        if (with_place) locks.table.announce(turn, *locks.taken());
        locks.table.set_fault(turn, nullptr);
        EXPECT_EQ(locks.table.pass_place_on(turn, false), with_place);
        EXPECT_EQ(locks.resume(second), Outcome::busy);
        EXPECT_FALSE(second.said.busy.is_unanswered);
        if (with_place) {
            ASSERT_EQ(locks.resume(first), Outcome::turn) << "somebody has to see to the place";
            locks.table.end_turn(first.turn());
        } else {
            EXPECT_EQ(locks.resume(first), Outcome::busy);
            EXPECT_FALSE(first.said.busy.is_unanswered);
        }
        expect_free(locks);
    }
}

TEST(LockTable, single_tries_behind_one_that_has_got_the_lock_are_busy_while_it_is_released) {
    auto [locks, turn, first, second, fault] = SingleTries{};
    const auto hold = locks.taken();
    hold->nest.push_back({1, &some_handle, false, false});
    ASSERT_TRUE(locks.table.finish(turn, hold, false, locks.now));
    ASSERT_EQ(locks.table.end_innermost("key", me).kind, Kind::last);
    for (Asker* const waiter : {&first, &second}) {
        EXPECT_EQ(locks.resume(*waiter), Outcome::busy);
        EXPECT_FALSE(waiter->said.busy.is_unanswered);
    }
    locks.free(*hold);
    expect_free(locks);
}

TEST(LockTable, single_tries_behind_one_that_is_cancelled_wait_for_the_next_one) {
    auto [locks, turn, first, second, fault] = SingleTries{};
    locks.table.end_turn(turn);
    EXPECT_EQ(locks.resume(second), Outcome::queued)
        << "nobody has been told that the lock is taken";
    ASSERT_EQ(locks.resume(first), Outcome::turn);
    locks.table.set_fault(first.turn(), nullptr);
    EXPECT_EQ(locks.resume(second), Outcome::busy);
    locks.table.end_turn(first.turn());
    expect_free(locks);
}

TEST(LockTable, single_tries_are_unanswered_where_the_one_before_is) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& late = locks.enter({.wait = Wait::none(), .owner = other, .try_for = 1s});
    locks.now += 1s;
    EXPECT_EQ(locks.resume(late), Outcome::busy);
    EXPECT_TRUE(late.said.busy.is_unanswered);
    EXPECT_EQ(late.said.busy.fault, nullptr);
    locks.table.end_turn(turn);
    expect_free(locks);
}

TEST(LockTable, single_tries_behind_one_that_gave_up_have_its_fault_or_a_turn) {
    for (const bool is_told : {true, false}) {
        auto [locks, turn, first, second, fault] = SingleTries{};
        if (is_told) locks.table.set_fault(turn, fault);
        locks.table.end_turn(turn);
        EXPECT_EQ(locks.woken(), (Woken{&first, &second}));
        if (is_told) {
            for (Asker* const waiter : {&second, &first}) {
                EXPECT_EQ(locks.resume(*waiter), Outcome::busy);
                EXPECT_EQ(waiter->said.busy.fault, fault);
            }
        } else {
            ASSERT_EQ(locks.resume(first), Outcome::turn);
            EXPECT_EQ(locks.resume(second), Outcome::queued) << "behind that one now";
            locks.table.end_turn(first.turn());
            ASSERT_EQ(locks.resume(second), Outcome::turn);
            locks.table.end_turn(second.turn());
        }
        expect_free(locks);
    }
}

TEST(LockTable, fault_of_the_one_before_counts_until_the_next_one_asks) {
    auto [locks, turn, first, second, fault] = SingleTries{};
    Asker& waiter = locks.enter({.wait = 1h, .owner = other});
    Asker& short_wait = locks.enter({.wait = 1ms, .owner = other});
    locks.table.set_fault(turn, fault);
    locks.table.end_turn(turn);
    for (Asker* const answered : {&first, &second})
        EXPECT_EQ(locks.resume(*answered), Outcome::busy);
    Asker& late = locks.enter({.wait = Wait::none(), .owner = other, .try_for = 1s});
    EXPECT_EQ(late.said.outcome, Outcome::queued) << "nobody knows whether the lock is taken";
    locks.now += 1ms;
    EXPECT_EQ(locks.resume(short_wait), Outcome::busy);
    EXPECT_EQ(short_wait.said.busy.fault, fault);
    ASSERT_EQ(locks.resume(waiter), Outcome::turn);
    locks.table.end_turn(waiter.turn());
    ASSERT_EQ(locks.resume(late), Outcome::turn);
    locks.table.end_turn(late.turn());
    expect_free(locks);
}

TEST(LockTable, wait_ends_unanswered_where_the_one_before_is_for_a_while) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    const auto is_unanswered_after = [&locks](Clock::duration wait) {
        Asker& late = locks.enter({.wait = Wait{wait}, .owner = other});
        EXPECT_EQ(late.said.wake_at, locks.now + wait);
        locks.now += wait;
        EXPECT_EQ(locks.resume(late), Outcome::busy);
        return late.said.busy.is_unanswered;
    };
    EXPECT_FALSE(is_unanswered_after(199ms)) << "others have come before";
    EXPECT_TRUE(is_unanswered_after(1ms));
    locks.table.set_fault(turn, nullptr);
    EXPECT_FALSE(is_unanswered_after(1ms)) << "the lock is taken";
    locks.table.end_turn(turn);
    expect_free(locks);
}

TEST(LockTable, place_is_passed_on_with_what_was_tried) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& next = locks.enter({.wait = 1h, .owner = other});
    locks.table.announce(turn, *locks.taken());
    ASSERT_TRUE(locks.table.pass_place_on(turn, true, {.sent = 3, .answered = 2, .longest = 7s}));
    ASSERT_EQ(locks.resume(next), Outcome::turn);
    const auto& place = locks.table.place(next.turn());
    ASSERT_TRUE(place);
    EXPECT_TRUE(place->unclear_try);
    EXPECT_EQ(place->tries.sent, 3U);
    EXPECT_EQ(place->tries.answered, 2U);
    EXPECT_EQ(place->tries.longest, 7s);
    locks.table.end_turn(next.turn());
    expect_free(locks);
}

TEST(LockTable, adopted_hold_is_of_its_kind_and_knows_whether_others_wait) {
    for (const bool others_wait : {false, true}) {
        Locks locks;
        const auto adopted = locks.taken();
        adopted->nest.push_back({1, &some_handle, false, false});
        ASSERT_TRUE(locks.table.adopt(adopted, others_wait, locks.now));
        EXPECT_EQ(locks.ask({.traits = nesting(), .owner = other}), Outcome::wrong_key_type);
        Asker& next = locks.enter({.owner = other, .lease = adopted->terms().lease});
        EXPECT_EQ(locks.table.end_acquisition(*adopted, 1).can_hand_off, !others_wait);
        locks.free(*adopted);
        ASSERT_EQ(locks.resume(next), Outcome::turn);
        locks.table.end_turn(next.turn());
        expect_free(locks);
    }
}

TEST(LockTable, silence_goes_on_from_one_turn_to_the_next) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& next = locks.enter({.wait = 1h, .owner = other});
    Asker& late = locks.enter({.wait = 210ms, .owner = other});
    locks.now += 200ms;
    locks.table.end_turn(turn);  // without an answer
    ASSERT_EQ(locks.resume(next), Outcome::turn);
    locks.now += 10ms;
    EXPECT_EQ(locks.resume(late), Outcome::busy);
    EXPECT_TRUE(late.said.busy.is_unanswered);
    locks.table.end_turn(next.turn());
    expect_free(locks);
}

TEST(LockTable, single_try_does_not_wait_for_what_was_held_beside_the_one_that_is_released) {
    Locks locks;
    const auto before = locks.taken({.token = "before"});
    locks.take(before);
    locks.now += 1ms;
    const auto adopted = locks.taken({.token = "adopted"});
    adopted->nest.push_back({2, &some_handle, false, false});
    ASSERT_TRUE(locks.table.adopt(adopted, false, locks.now));
    const auto ending = locks.table.end_acquisition(*adopted, 2);
    ASSERT_EQ(ending.kind, Kind::last);
    Asker& waiter = locks.enter({.wait = Wait::none(), .owner = other, .try_for = 1s});
    ASSERT_EQ(waiter.said.outcome, Outcome::queued);
    locks.free(*adopted);
    EXPECT_EQ(locks.woken(), Woken{&waiter});
    EXPECT_EQ(locks.resume(waiter), Outcome::busy);
}

TEST(LockTable, end_of_an_adopted_hold_forgets_nothing_that_the_contender_beside_it_was_told) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    locks.table.set_fault(turn, nullptr);
    const auto adopted = locks.taken({.token = "adopted"});
    adopted->nest.push_back({2, &some_handle, false, false});
    ASSERT_TRUE(locks.table.adopt(adopted, false, locks.now));
    ASSERT_EQ(locks.end(*adopted, 2), Kind::last);
    const Asker& single_try = locks.enter({.wait = Wait::none(), .owner = other, .try_for = 1s});
    EXPECT_EQ(single_try.said.outcome, Outcome::busy);
    EXPECT_FALSE(single_try.said.busy.is_unanswered);
    Asker& late = locks.enter({.wait = 1h, .owner = other});
    locks.now += 1h;
    EXPECT_EQ(locks.resume(late), Outcome::busy);
    EXPECT_FALSE(late.said.busy.is_unanswered);
    locks.table.end_turn(turn);
    expect_free(locks);
}

TEST(LockTable, silence_of_a_turn_lasts_since_its_begin_whatever_is_released_beside_it) {
    Locks locks;
    const TimePoint begin = locks.now;
    const LockTable::Turn turn = locks.enter().turn();
    locks.now += 100ms;
    const auto adopted = locks.taken({.token = "adopted"});
    adopted->nest.push_back({2, &some_handle, false, false});
    ASSERT_TRUE(locks.table.adopt(adopted, false, locks.now));
    ASSERT_EQ(locks.end(*adopted, 2), Kind::last);
    for (const auto& [wait, is_unanswered] : {std::pair{199ms, false}, {200ms, true}}) {
        Asker& late = locks.enter({.wait = begin + wait - locks.now, .owner = other});
        locks.now = begin + wait;
        EXPECT_EQ(locks.resume(late), Outcome::busy);
        EXPECT_EQ(late.said.busy.is_unanswered, is_unanswered);
    }
    locks.table.end_turn(turn);
    expect_free(locks);
}

TEST(LockTable, silence_behind_a_hold_that_was_moved_is_not_that_of_the_release_before) {
    Locks locks;
    const auto adopted = locks.taken({.token = "adopted"});
    adopted->nest.push_back({1, &some_handle, false, false});
    ASSERT_TRUE(locks.table.adopt(adopted, false, locks.now));
    Wish wish{.owner = other,
              .id = 2,
              .lease = adopted->terms().lease,
              .drift = adopted->terms().drift,
              .local_handoffs = 100};
    Asker& next = locks.enter(wish);
    wish.id = 3;
    Asker& third = locks.enter(wish);
    LockTable::Ending ending = locks.table.end_acquisition(*adopted, 1);
    ending.can_hand_off = false;  // as where that takes a command
    locks.table.conclude(ending, locks.now);
    adopted->advance(detail::Phase::releasing, detail::Phase::released);
    ASSERT_TRUE(
        locks.table.moved(*adopted, {detail::Token{"n"}, locks.now, {}, 0}, true, locks.now));
    locks.resume(next);
    ASSERT_EQ(next.said.outcome, Outcome::handed);

    locks.now = next.said.hold->valid_until() + 1s;
    ASSERT_EQ(locks.resume(third), Outcome::turn);
    Asker& late = locks.enter({.wait = 10ms, .owner = other, .id = 4});
    locks.now += 10ms;
    EXPECT_EQ(locks.resume(late), Outcome::busy);
    EXPECT_FALSE(late.said.busy.is_unanswered);
}

TEST(LockTable, waits_behind_a_release_that_outlasts_the_lease_are_unanswered) {
    BeingReleased release;
    Locks& locks = release.locks;
    Asker& waiter = locks.enter({.wait = 1h, .owner = other});
    const Asker& early = release.single_try();
    EXPECT_EQ(early.said.outcome, Outcome::busy) << "somebody waits already";
    EXPECT_FALSE(early.said.busy.is_unanswered);

    locks.now = release.hold->valid_until();
    Asker& first = release.single_try();
    ASSERT_EQ(first.said.outcome, Outcome::queued) << "nobody knows who has the lock";
    locks.now += 1s;
    EXPECT_EQ(locks.resume(first), Outcome::busy);
    EXPECT_TRUE(first.said.busy.is_unanswered);
    Asker& second = release.single_try();
    locks.free(*release.hold);
    ASSERT_EQ(locks.resume(waiter), Outcome::turn);
    locks.table.set_fault(waiter.turn(), nullptr);
    EXPECT_EQ(locks.resume(second), Outcome::busy);
    EXPECT_FALSE(second.said.busy.is_unanswered) << "that one was told that the lock is taken";
    locks.table.end_turn(waiter.turn());
    expect_free(locks);
}

TEST(LockTable, single_tries_behind_such_a_release_are_woken_where_it_hands_the_lock_on) {
    BeingReleased release;
    Locks& locks = release.locks;
    Asker& waiter = locks.enter({.wait = 1h, .owner = other, .lease = release.hold->terms().lease});
    locks.now = release.hold->valid_until();
    Asker& single_try = release.single_try();
    ASSERT_EQ(single_try.said.outcome, Outcome::queued);
    ASSERT_TRUE(locks.table.moved(*release.hold, {{"next"}, locks.now}, false, locks.now));
    EXPECT_EQ(locks.woken(), (Woken{&waiter, &single_try}));
    EXPECT_EQ(locks.resume(single_try), Outcome::busy);
    EXPECT_FALSE(single_try.said.busy.is_unanswered);
}

TEST(LockTable, wait_ends_unanswered_shortly_behind_such_a_release) {
    BeingReleased release;
    Locks& locks = release.locks;
    for (const auto& [wait, is_unanswered] :
         {std::pair{-1ns, false}, {199ms, false}, {200ms, true}}) {
        const TimePoint end = release.hold->valid_until() + wait;
        Asker& late = locks.enter({.wait = Wait{end - locks.now}, .owner = other});
        locks.now = end;
        EXPECT_EQ(locks.resume(late), Outcome::busy);
        EXPECT_EQ(late.said.busy.is_unanswered, is_unanswered);
    }
    locks.free(*release.hold);
    expect_free(locks);
}

TEST(LockTable,
     wait_behind_a_release_that_begins_after_the_lease_is_unanswered_only_after_a_while) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    locks.now = hold->valid_until() + 1h;
    auto ending = locks.table.end_acquisition(*hold, 1);
    ASSERT_EQ(ending.kind, Kind::last);
    locks.table.conclude(ending, locks.now);
    const TimePoint begin = locks.now;
    for (const auto& [wait, is_unanswered] : {std::pair{199ms, false}, {200ms, true}}) {
        Asker& late = locks.enter({.wait = begin + wait - locks.now, .owner = other});
        ASSERT_EQ(late.said.outcome, Outcome::queued);
        locks.now = begin + wait;
        EXPECT_EQ(locks.resume(late), Outcome::busy);
        EXPECT_EQ(late.said.busy.is_unanswered, is_unanswered);
    }
    locks.free(*hold);
    expect_free(locks);
}

TEST(LockTable, zero_or_negative_wait_is_busy_at_once) {
    Locks locks;
    locks.take(locks.taken());
    for (const Wait wait : {Wait::none(), Wait{-1h}, Wait{std::chrono::hours::min()}}) {
        EXPECT_EQ(locks.enter({.wait = wait, .owner = other}).said.outcome, Outcome::busy);
    }
}

TEST(LockTable, waiter_is_busy_at_its_deadline) {
    Locks locks;
    locks.take(locks.taken());
    Asker& waiter = locks.enter({.wait = 30ms, .owner = other});
    ASSERT_EQ(waiter.said.outcome, Outcome::queued);
    EXPECT_EQ(waiter.said.wake_at, locks.now + 30ms);
    locks.now += 30ms - 1ns;
    EXPECT_EQ(locks.resume(waiter), Outcome::queued);
    locks.now += 1ns;
    EXPECT_EQ(locks.resume(waiter), Outcome::busy);
    EXPECT_EQ(locks.unlock(), Kind::last);
    EXPECT_EQ(locks.woken(), Woken{}) << "the table has forgotten about it";
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, busy_behind_a_fault_tells_the_fault) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    const auto fault_of = [&locks](Wait wait) {
        Asker& late = locks.enter({.wait = wait, .owner = other});
        locks.now += 200ms;
        if (late.said.outcome == Outcome::queued) locks.resume(late);
        EXPECT_EQ(late.said.outcome, Outcome::busy);
        return late.said.busy.fault;
    };
    EXPECT_EQ(fault_of(1ms), nullptr);
    const auto fault = std::make_shared<const Error>(Error{Errc::unavailable, {}, {}, {}, {}});
    locks.table.set_fault(turn, fault);
    EXPECT_EQ(fault_of(1ms), fault);
    EXPECT_EQ(fault_of(Wait::none()), fault);
    locks.table.set_fault(turn, nullptr);
    EXPECT_EQ(fault_of(1ms), nullptr) << "the server answered since";
    locks.table.set_fault(turn, fault);
    EXPECT_TRUE(locks.table.finish(turn, locks.taken(), false, locks.now));
    EXPECT_EQ(fault_of(1ms), nullptr) << "somebody holds it";
    EXPECT_EQ(fault_of(Wait::none()), nullptr);
}

TEST(LockTable, waiters_are_served_first_come_first_served) {
    Locks locks;
    LockTable::Turn turn = locks.enter().turn();
    std::vector<Asker*> waiters;
    for (int i = 0; i < 10'000; ++i) waiters.push_back(&locks.enter());
    for (Asker* const waiter : waiters) {
        EXPECT_EQ(locks.woken(), Woken{});
        EXPECT_EQ(locks.resume(*waiters.back()), Outcome::queued) << "whoever looks";
        locks.table.end_turn(turn);
        EXPECT_EQ(locks.woken(), Woken{waiter});
        ASSERT_EQ(locks.resume(*waiter), Outcome::turn);
        turn = waiter->turn();
    }
    locks.table.end_turn(turn);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, waiters_follow_a_release_in_order_too) {
    Locks locks;
    locks.take(locks.taken());
    std::vector<Asker*> waiters;
    for (int i = 0; i < 4; ++i) waiters.push_back(&locks.enter({.owner = other}));
    LockOwner holder = me;
    for (Asker* const waiter : waiters) {
        EXPECT_EQ(locks.unlock("key", holder), Kind::last);
        EXPECT_EQ(locks.woken(), Woken{waiter});
        ASSERT_EQ(locks.resume(*waiter), Outcome::turn);
        EXPECT_TRUE(locks.finish(*waiter, locks.taken({.owner = other})));
        holder = other;
    }
    EXPECT_EQ(locks.unlock("key", holder), Kind::last);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, nobody_overtakes_the_queue) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& waiter = locks.enter();
    Asker& behind = locks.enter();
    locks.table.end_turn(turn);
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::busy) << "the one in front is about to wake";
    EXPECT_EQ(locks.resume(behind), Outcome::queued);
    EXPECT_EQ(locks.resume(waiter), Outcome::turn);
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::busy);
}

TEST(LockTable, stop_ends_the_wait) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    Asker& waiter = locks.enter({.owner = other});
    ASSERT_EQ(waiter.said.outcome, Outcome::queued);
    waiter.stop_requested = true;
    EXPECT_EQ(locks.resume(waiter), Outcome::cancelled);
    EXPECT_EQ(locks.table.current("key"), hold);
}

TEST(LockTable, stop_asked_for_before_ends_the_wait_at_once) {
    Locks locks;
    locks.take(locks.taken());
    Asker waiter{{.owner = other}, locks.now};
    EXPECT_EQ(locks.table.enter(waiter.request, waiter, locks.now, true).outcome,
              Outcome::cancelled);
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::busy);
}

TEST(LockTable, lock_that_is_free_comes_before_a_stop_and_the_deadline) {
    // Else the place that the one before has left would be nobody's.
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& waiter = locks.enter({.wait = 1ms, .owner = other});
    locks.table.end_turn(turn);
    waiter.stop_requested = true;
    locks.now += 1h;
    EXPECT_EQ(locks.resume(waiter), Outcome::turn);
}

TEST(LockTable, front_waiter_that_leaves_wakes_the_next_if_that_would_oversleep) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& leaving = locks.enter();
    Asker& staying = locks.enter();
    leaving.stop_requested = true;
    EXPECT_EQ(locks.resume(leaving), Outcome::cancelled);
    locks.table.end_turn(turn);
    EXPECT_EQ(locks.woken(), Woken{&staying});
    EXPECT_EQ(locks.resume(staying), Outcome::turn);
}

TEST(LockTable, front_waiter_that_leaves_wakes_the_next_if_the_hold_ends_before_its_sleep) {
    Locks locks;
    locks.take(locks.taken({.lease = 1h}));
    Asker& brief = locks.enter({.owner = other});
    Asker& leaving = locks.enter({.owner = other});
    Asker& staying = locks.enter({.owner = other});
    EXPECT_EQ(locks.unlock(), Kind::last);
    ASSERT_EQ(locks.resume(brief), Outcome::turn);
    EXPECT_TRUE(locks.finish(brief, locks.taken({.lease = 1s, .owner = other})));
    EXPECT_EQ(locks.woken(), (Woken{&brief, &leaving})) << "the new hold ends sooner";
    leaving.stop_requested = true;
    EXPECT_EQ(locks.resume(leaving), Outcome::cancelled);
    EXPECT_EQ(locks.woken(), Woken{&staying});
    EXPECT_EQ(locks.resume(staying), Outcome::queued);
    EXPECT_EQ(staying.said.wake_at, locks.now + 1s);
}

TEST(LockTable, release_under_way_wakes_the_next_only_when_it_is_over) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    Asker& leaving = locks.enter({.owner = other});
    static_cast<void>(locks.table.end_innermost("key", me));
    Asker& staying = locks.enter({.owner = other});
    EXPECT_EQ(staying.said.wake_at, TimePoint::max());
    leaving.stop_requested = true;
    EXPECT_EQ(locks.resume(leaving), Outcome::cancelled);
    EXPECT_EQ(locks.woken(), Woken{});
    locks.free(*hold);
    EXPECT_EQ(locks.woken(), Woken{&staying});
}

TEST(LockTable, fault_of_one_who_got_the_lock_after_all_is_not_the_next_ones) {
    Locks locks;
    const Asker& first = locks.enter();
    locks.table.set_fault(first.turn(),
                          std::make_shared<const Error>(Error{Errc::unavailable, {}, {}, {}, {}}));
    EXPECT_TRUE(locks.finish(first, locks.taken()));
    Asker& next = locks.enter({.owner = other});
    EXPECT_EQ(locks.unlock(), Kind::last);
    ASSERT_EQ(locks.resume(next), Outcome::turn);
    EXPECT_EQ(locks.enter({.wait = Wait::none()}).said.busy.fault, nullptr);
}

TEST(LockTable, fault_of_one_who_gave_up_is_not_that_of_the_next_once_the_server_has_answered) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& next = locks.enter({.owner = other});
    const auto fault = std::make_shared<const Error>(Error{Errc::unavailable, {}, {}, {}, {}});
    locks.table.set_fault(turn, fault);
    locks.table.end_turn(turn);
    ASSERT_EQ(locks.resume(next), Outcome::turn);
    const auto fault_behind = [&locks] {
        return locks.enter({.wait = Wait::none()}).said.busy.fault;
    };
    EXPECT_EQ(fault_behind(), fault) << "nothing is known yet";
    LockTable::Waiter sleeper;
    const auto pause = [&](Clock::duration length) {
        const TimePoint until = locks.now + length;
        while (!locks.table.pause(next.turn(), sleeper, until, locks.now, false).ended) {
            locks.now = until;
        }
    };
    pause(1s);  // after an answer: a fault would have been told before
    EXPECT_EQ(fault_behind(), nullptr);
    locks.table.set_fault(next.turn(), fault);
    pause(1s);
    EXPECT_EQ(fault_behind(), fault);
}

TEST(LockTable, waiter_in_the_middle_or_at_the_end_may_leave) {
    Locks locks;
    LockTable::Turn turn = locks.enter().turn();
    std::vector<Asker*> waiters;
    for (int i = 0; i < 4; ++i) waiters.push_back(&locks.enter());
    for (Asker* const leaving : {waiters[1], waiters[3]}) {
        leaving->stop_requested = true;
        EXPECT_EQ(locks.resume(*leaving), Outcome::cancelled);
    }
    EXPECT_EQ(locks.woken(), Woken{});
    waiters.push_back(&locks.enter());
    for (Asker* const waiter : {waiters[0], waiters[2], waiters[4]}) {
        locks.table.end_turn(turn);
        EXPECT_EQ(locks.woken(), Woken{waiter});
        ASSERT_EQ(locks.resume(*waiter), Outcome::turn);
        turn = waiter->turn();
    }
}

TEST(LockTable, unrelated_names_do_not_wait_for_each_other) {
    Locks locks;
    locks.take(locks.taken({.key = "a"}), {.key = "a"});
    locks.enter({.key = "a", .owner = other});
    locks.take(locks.taken({.key = "b"}), {.key = "b"});
    EXPECT_EQ(locks.unlock("b"), Kind::last);
    EXPECT_EQ(locks.woken(), Woken{});
}

TEST(LockTable, names_are_bytes) {
    Locks locks;
    const std::string with_nul{"a\0b", 3};
    locks.take(locks.taken({.key = with_nul}), {.key = with_nul});
    expect_free(locks, "a");
    expect_free(locks, std::string{"a\0c", 3});
    EXPECT_EQ(locks.unlock(with_nul), Kind::last);
}

TEST(LockTable, closing_ends_all_waiting_and_tells_what_is_held) {
    Locks locks;
    const auto a = locks.taken({.key = "a"});
    const auto b = locks.taken({.key = "b"});
    locks.take(a, {.key = "a"});
    locks.take(b, {.key = "b"});
    Asker& first = locks.enter({.key = "a", .owner = other});
    Asker& second = locks.enter({.key = "a", .owner = other});
    const auto holds = locks.table.close().holds;
    EXPECT_EQ(locks.woken(), (Woken{&first, &second}));
    EXPECT_EQ(locks.resume(second), Outcome::closed);
    EXPECT_EQ(locks.resume(first), Outcome::closed);
    ASSERT_EQ(holds.size(), 2U);
    EXPECT_TRUE((holds[0] == a && holds[1] == b) || (holds[0] == b && holds[1] == a));
}

TEST(LockTable, closing_wakes_a_hundred_thousand_at_once) {
    Locks locks;
    locks.take(locks.taken());
    std::vector<Asker*> waiting;
    for (int i = 0; i < 100'000; ++i) waiting.push_back(&locks.enter({.owner = other}));
    const auto began = std::chrono::steady_clock::now();
    static_cast<void>(locks.table.close());
    std::size_t woken = 0;
    while (locks.table.take_woken() != nullptr) ++woken;
    EXPECT_EQ(woken, waiting.size());
    EXPECT_LT(std::chrono::steady_clock::now() - began, 10s) << "not one by one";
    for (Asker* const asker : waiting) ASSERT_EQ(locks.resume(*asker), Outcome::closed);
}

TEST(LockTable, closed_lets_nobody_in) {
    Locks locks;
    EXPECT_TRUE(locks.table.close().holds.empty());
    EXPECT_EQ(locks.enter().said.outcome, Outcome::closed);
    EXPECT_EQ(locks.ask({}), Outcome::closed);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, closed_gives_no_turn_to_the_one_in_front) {
    Locks locks;
    const LockTable::Turn turn = locks.enter().turn();
    Asker& waiter = locks.enter();
    static_cast<void>(locks.table.close());
    locks.table.end_turn(turn);
    EXPECT_EQ(locks.resume(waiter), Outcome::closed);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, turn_finished_after_closing_is_no_hold) {
    Locks locks;
    const Asker& asker = locks.enter();
    EXPECT_TRUE(locks.table.close().holds.empty());
    EXPECT_FALSE(locks.finish(asker, locks.taken()));
    EXPECT_EQ(locks.table.current("key"), nullptr);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, own_lock_without_limit_is_a_deadlock) {
    Locks locks;
    locks.take(locks.taken());
    EXPECT_EQ(locks.enter().said.outcome, Outcome::deadlock);
    EXPECT_EQ(locks.enter({.wait = std::chrono::hours::max()}).said.outcome, Outcome::deadlock);
    EXPECT_EQ(locks.unlock(), Kind::last);
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, own_lock_with_a_limit_is_waited_for) {
    Locks locks;
    locks.take(locks.taken());
    EXPECT_EQ(locks.ask({}), Outcome::busy);
    EXPECT_EQ(locks.enter({.wait = 5ms}).said.outcome, Outcome::queued);
}

TEST(LockTable, hold_that_owns_itself_excludes_the_thread_that_took_it) {
    for (const PolicyTraits& traits : {traits_of<Simple>(), nesting()}) {
        Locks locks;
        const auto hold = locks.taken({.traits = traits, .owner = LockOwner::acquisition(1)});
        locks.take(hold, {.traits = traits, .owns_itself = true});
        EXPECT_EQ(locks.ask({.traits = traits, .id = 2, .owns_itself = true}), Outcome::busy);
        EXPECT_EQ(locks.ask({.traits = traits}), Outcome::busy);
        EXPECT_EQ(locks.table.find("key", me), nullptr);
        Asker& waiter = locks.enter({.traits = traits});
        EXPECT_EQ(waiter.said.outcome, Outcome::queued) << "no deadlock: any thread may end it";
        EXPECT_EQ(locks.end(*hold, 1), Kind::last);
        EXPECT_EQ(locks.woken(), Woken{&waiter});
        EXPECT_EQ(locks.resume(waiter), Outcome::turn);
    }
}

TEST(LockTable, hold_that_owns_itself_does_not_nest_in_its_threads_hold) {
    Locks locks;
    locks.take(locks.taken({.traits = nesting()}), {.traits = nesting()});
    const Wish limited{.traits = nesting(), .wait = 5ms, .id = 2, .owns_itself = true};
    EXPECT_EQ(locks.enter(limited).said.outcome, Outcome::queued);
    const Wish unlimited{.traits = nesting(), .id = 3, .owns_itself = true};
    EXPECT_EQ(locks.enter(unlimited).said.outcome, Outcome::deadlock)
        << "the thread itself would have to release it";
}

TEST(LockTable, another_key_type_is_refused_at_once) {
    Locks locks;
    locks.take(locks.taken());
    EXPECT_EQ(locks.enter({.traits = nesting(), .owner = other}).said.outcome,
              Outcome::wrong_key_type);
    EXPECT_EQ(locks.unlock(), Kind::last);
    EXPECT_EQ(locks.ask({.traits = nesting(), .owner = other}), Outcome::turn)
        << "a free name has no key type";
}

TEST(LockTable, another_key_type_is_refused_during_a_turn_too) {
    Locks locks;
    locks.enter();
    EXPECT_EQ(locks.ask({.traits = nesting()}), Outcome::wrong_key_type);
}

TEST(LockTable, forgotten_hold_blocks_nobody_after_its_validity) {
    for (const PolicyTraits& traits : {traits_of<Simple>(), nesting()}) {
        for (const LockOwner owner : {me, other}) {
            Locks locks;
            const auto forgotten = locks.taken({.lease = 100ms});
            locks.take(forgotten);
            locks.now += 100ms;
            const Asker& next = locks.enter({.traits = traits, .owner = owner});
            EXPECT_EQ(next.said.outcome, Outcome::turn) << "the server's key has expired as well";
            EXPECT_EQ(next.said.expired, forgotten);
            EXPECT_EQ(locks.table.current("key"), nullptr);
        }
    }
}

TEST(LockTable, waiter_comes_in_when_validity_ends) {
    Locks locks;
    const auto brief = locks.taken({.lease = 100ms});
    locks.take(brief);
    Asker& waiter = locks.enter({.owner = other});
    EXPECT_EQ(waiter.said.wake_at, brief->valid_until());
    locks.sleep(waiter);
    EXPECT_EQ(locks.resume(waiter), Outcome::turn);
    EXPECT_EQ(waiter.said.expired, brief);
}

TEST(LockTable, waiter_goes_on_waiting_while_validity_is_renewed) {
    Locks locks;
    const auto hold = locks.taken({.lease = 100ms});
    locks.take(hold);
    Asker& waiter = locks.enter({.owner = other});
    hold->confirm(locks.now + 50ms, 100ms);
    locks.sleep(waiter);
    EXPECT_EQ(locks.resume(waiter), Outcome::queued);
    EXPECT_EQ(waiter.said.wake_at, hold->valid_until());
    locks.sleep(waiter);
    EXPECT_EQ(locks.resume(waiter), Outcome::turn);
}

TEST(LockTable, waiter_outlasts_several_forgotten_holds) {
    Locks locks;
    locks.take(locks.taken({.lease = 100ms}));
    Asker& front = locks.enter({.owner = other});
    Asker& next = locks.enter({.wait = 20s, .owner = other});
    locks.sleep(front);
    ASSERT_EQ(locks.resume(front), Outcome::turn);
    const auto second = locks.taken({.lease = 200ms, .owner = other});
    EXPECT_TRUE(locks.finish(front, second));
    while (locks.resume(next) == Outcome::queued) locks.sleep(next);
    EXPECT_EQ(next.said.outcome, Outcome::turn);
    EXPECT_EQ(locks.now, second->valid_until());
    EXPECT_EQ(next.said.expired, second);
}

TEST(LockTable, lost_hold_lets_the_next_in) {
    Locks locks;
    const auto hold = locks.taken();
    locks.take(hold);
    Asker& waiter = locks.enter({.owner = other});
    locks.lose(hold);
    EXPECT_EQ(locks.woken(), Woken{&waiter});
    EXPECT_EQ(locks.resume(waiter), Outcome::turn);
}

TEST(LockTable, a_hundred_thousand_idle_names_leave_nothing) {
    Locks locks;
    for (int i = 0; i < 100'000; ++i) {
        const std::string key = std::to_string(i);
        Asker asker{{.key = key}, locks.now};
        asker.said.turn = locks.table.enter_if_free(asker.request);
        locks.finish(asker, locks.taken({.key = key}));
        ASSERT_EQ(locks.unlock(key), Kind::last);
    }
    EXPECT_TRUE(locks.table.is_empty());
}

TEST(LockTable, a_hundred_thousand_names_at_once_leave_nothing) {
    Locks locks;
    constexpr int names = 100'000;
    for (int i = 0; i < names; ++i) {
        const std::string key = std::to_string(i);
        locks.take(locks.taken({.key = key}), {.key = key});
    }
    EXPECT_EQ(locks.table.size(), static_cast<std::size_t>(names));
    for (int i = 0; i < names; ++i) ASSERT_EQ(locks.unlock(std::to_string(i)), Kind::last);
    EXPECT_TRUE(locks.table.is_empty());
}

}  // namespace
}  // namespace redlatch::test
