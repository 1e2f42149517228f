// The one whose turn it is at the server: its pauses, its messages, its place in the queue there.

#include "lock_table_tools.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using detail::Grant;
using detail::LockTable;
using detail::TimePoint;
using Outcome = LockTable::Outcome;
using Cause = LockTable::Woken;
using Kind = LockTable::Ending::Kind;

Grant grant_for(std::string token, std::string key = "key") {
    return {.ttl = 1h,
            .time = 1s,
            .server = "-",
            .key_type = 's',
            .token = std::move(token),
            .key = std::move(key)};
}

Grant notice(std::string token) {
    Grant said = grant_for(std::move(token));
    said.key_type = '-';
    return said;
}

/// A table, and the one whose turn it is.
class Contender : public testing::Test {
protected:
    void announce(const std::string& token) { table.announce(turn, *asked_hold({.token = token})); }

    LockTable::Pause pause(TimePoint until = TimePoint::max()) {
        return table.pause(turn, asker, until, locks.now, asker.stop_requested);
    }

    /// The next one's turn begins, by `end` of the first one's.
    template <class End>
    bool pass_to(Asker& next, End end) {
        const bool passed = end();
        EXPECT_EQ(locks.woken(), Woken{&next});
        EXPECT_EQ(locks.resume(next), Outcome::turn);
        turn = next.turn();
        return passed;
    }

    Locks locks;
    LockTable& table = locks.table;
    Asker& asker = locks.enter();
    LockTable::Turn turn = asker.turn();
};

TEST_F(Contender, pauses_until_the_end_of_its_pause) {
    const TimePoint until = locks.now + 20ms;
    const LockTable::Pause first = pause(until);
    EXPECT_FALSE(first.ended);
    EXPECT_EQ(first.wake_at, until);
    locks.now = until - 1ns;
    EXPECT_FALSE(pause(until).ended);
    locks.now = until;
    EXPECT_EQ(pause(until).ended, Cause::in_time);
    EXPECT_EQ(pause(until - 1h).ended, Cause::in_time) << "over before it began";
}

TEST_F(Contender, keeps_its_turn_during_a_pause) {
    EXPECT_FALSE(pause().ended);
    EXPECT_EQ(locks.ask({.owner = other}), Outcome::busy);
}

TEST_F(Contender, is_cut_short_by_a_stop) {
    EXPECT_FALSE(pause().ended);
    asker.stop_requested = true;
    EXPECT_EQ(pause().ended, Cause::cancelled);
}

TEST_F(Contender, is_cut_short_by_closing) {
    EXPECT_FALSE(pause().ended);
    static_cast<void>(table.close());
    EXPECT_EQ(locks.woken(), Woken{&asker});
    EXPECT_EQ(pause().ended, Cause::closed);
}

TEST_F(Contender, whose_grant_came_before_the_pause_does_not_miss_it) {
    EXPECT_FALSE(table.deliver(grant_for("mine"))) << "not announced yet";
    announce("mine");
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_EQ(locks.woken(), Woken{}) << "it does not pause";
    EXPECT_EQ(pause().ended, Cause::granted);
    const auto grant = table.take_grant(turn);
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->token, "mine");
    EXPECT_EQ(grant->ttl, 1h);
    EXPECT_FALSE(table.take_grant(turn)) << "only once";
    EXPECT_EQ(pause(locks.now).ended, Cause::in_time);
}

TEST_F(Contender, is_woken_by_its_grant_only) {
    announce("mine");
    EXPECT_FALSE(pause().ended);
    EXPECT_FALSE(table.deliver(grant_for("yours")));
    EXPECT_FALSE(table.deliver(grant_for("mine", "other key")));
    EXPECT_FALSE(table.deliver(grant_for("")));
    EXPECT_EQ(locks.woken(), Woken{});
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_EQ(locks.woken(), Woken{&asker});
    EXPECT_EQ(pause().ended, Cause::granted);
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_EQ(locks.woken(), Woken{}) << "the pause is over";
}

TEST_F(Contender, asks_again_at_a_notice) {
    EXPECT_TRUE(table.deliver(notice("mine"))) << "nobody has to give anything back";
    announce("mine");
    EXPECT_FALSE(pause().ended);
    EXPECT_TRUE(table.deliver(notice("yours")));
    EXPECT_EQ(locks.woken(), Woken{});
    EXPECT_TRUE(table.deliver(notice("mine")));
    EXPECT_EQ(locks.woken(), Woken{&asker});
    EXPECT_EQ(pause().ended, Cause::recheck);
    EXPECT_FALSE(table.take_grant(turn));
    EXPECT_FALSE(pause().ended) << "once";
}

TEST_F(Contender, asks_again_at_a_grant_that_may_not_be_true) {
    constexpr bool is_hint = true;
    EXPECT_TRUE(table.deliver(grant_for("mine"), is_hint)) << "nobody has to give anything back";
    announce("mine");
    EXPECT_FALSE(pause().ended);
    EXPECT_TRUE(table.deliver(grant_for("mine"), is_hint));
    EXPECT_EQ(locks.woken(), Woken{&asker});
    EXPECT_EQ(pause().ended, Cause::recheck);
    EXPECT_FALSE(table.take_grant(turn));
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_EQ(pause().ended, Cause::granted) << "a later one may be true";
}

TEST_F(Contender, that_withdraws_its_token_gets_no_grant_for_it) {
    announce("mine");
    ASSERT_TRUE(table.deliver(grant_for("mine")));
    table.withdraw(turn);
    EXPECT_FALSE(table.take_grant(turn)) << "which came before";
    EXPECT_FALSE(table.deliver(grant_for("mine"))) << "nobody here goes by that token";
    EXPECT_FALSE(table.place(turn));
}

TEST_F(Contender, announced_anew_is_known_by_the_new_token_only) {
    announce("old");
    announce("new");
    EXPECT_FALSE(table.deliver(grant_for("old")));
    EXPECT_TRUE(table.deliver(grant_for("new")));
}

TEST_F(Contender, that_got_the_lock_knows_a_late_grant_which_disturbs_nobody) {
    announce("mine");
    EXPECT_TRUE(locks.finish(asker, locks.taken({.token = "mine"})));
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_FALSE(table.deliver(grant_for("yours")));
    EXPECT_EQ(locks.unlock(), Kind::last);
    EXPECT_FALSE(table.deliver(grant_for("mine"))) << "the hold is over";
    EXPECT_TRUE(table.is_empty());
    turn = locks.enter().turn();
    EXPECT_EQ(pause(locks.now).ended, Cause::in_time) << "nothing of it is left";
}

TEST_F(Contender, that_lost_the_lock_does_not_know_a_late_grant) {
    const auto hold = locks.taken({.token = "mine"});
    EXPECT_TRUE(locks.finish(asker, hold));
    locks.lose(hold);
    EXPECT_EQ(table.size(), 1U) << "it has yet to be returned";
    EXPECT_FALSE(table.deliver(grant_for("mine")));
}

TEST_F(Contender, that_lost_the_lock_keeps_it_for_its_lock_delay_until_it_has_ended) {
    const auto hold = locks.taken({.lock_delay = 1s, .token = "mine"});
    EXPECT_TRUE(locks.finish(asker, hold));
    locks.lose(hold);
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_FALSE(table.deliver(grant_for("yours")));
    EXPECT_EQ(locks.unlock(), Kind::past);
    EXPECT_FALSE(table.deliver(grant_for("mine")));
}

TEST_F(Contender, that_has_left_does_not_know_a_late_grant) {
    announce("mine");
    table.end_turn(turn);
    EXPECT_FALSE(table.deliver(grant_for("mine")));
    EXPECT_TRUE(table.is_empty());
    locks.take(locks.taken({.token = "other"}));
    EXPECT_FALSE(table.deliver(grant_for("mine")));
}

TEST_F(Contender, that_is_closed_or_stopped_has_no_use_for_a_grant) {
    announce("mine");
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    asker.stop_requested = true;
    EXPECT_EQ(pause().ended, Cause::cancelled);
    static_cast<void>(table.close());
    EXPECT_EQ(pause().ended, Cause::closed);
}

TEST_F(Contender, rechecks_when_messages_may_have_been_missed) {
    announce("mine");
    EXPECT_FALSE(pause().ended);
    table.recheck_all(locks.now);
    EXPECT_EQ(locks.woken(), Woken{&asker}) << "it has to sleep less";
    const LockTable::Pause second = pause();
    if (!second.ended) locks.now = second.wake_at;
    EXPECT_LE(second.wake_at, locks.now + 1ms);
    EXPECT_EQ(second.ended ? second.ended : pause().ended, Cause::recheck);
    EXPECT_EQ(pause(locks.now).ended, Cause::in_time) << "once is enough";
}

TEST_F(Contender, has_nothing_to_recheck_without_a_place) {
    EXPECT_FALSE(pause().ended);
    table.recheck_all(locks.now - 1h);
    EXPECT_EQ(locks.woken(), Woken{});
    EXPECT_EQ(pause(locks.now).ended, Cause::in_time);
    locks.take(locks.taken({.key = "held"}), {.key = "held"});
    table.recheck_all(locks.now - 1h);
    EXPECT_EQ(locks.unlock("held"), Kind::last);
}

TEST_F(Contender, that_is_next_asks_anyhow_and_rechecks_nothing) {
    announce("mine");
    Asker& next = locks.enter();
    table.recheck_all(locks.now - 1h);
    EXPECT_TRUE(pass_to(next, [&] { return table.pass_place_on(turn, false); }));
    EXPECT_EQ(pause(locks.now).ended, Cause::in_time);
}

TEST(LockTable, recheck_of_many_is_spread_over_a_second) {
    constexpr int names = 1000;
    Locks locks;
    std::vector<Asker*> askers;
    for (int i = 0; i < names; ++i) {
        const std::string key = std::to_string(i);
        askers.push_back(&locks.enter({.key = key}));
        locks.table.announce(askers.back()->turn(), *asked_hold({.key = key}));
    }
    locks.table.recheck_all(locks.now);
    const auto due = [&] {
        return std::count_if(askers.begin(), askers.end(), [&](Asker* asker) {
            return locks.table.pause(asker->turn(), *asker, TimePoint::min(), locks.now, false)
                       .ended == Cause::recheck;
        });
    };
    locks.now += 100ms;
    const auto at_first = due();
    EXPECT_GT(at_first, names / 30);
    EXPECT_LT(at_first, names / 5) << "not all at once";
    locks.now += 400ms;
    EXPECT_GT(due(), names / 4);
    locks.now += 500ms;
    EXPECT_GT(due(), names / 3);
    EXPECT_EQ(due(), 0);
}

TEST_F(Contender, knows_whether_somebody_waits) {
    EXPECT_FALSE(table.has_waiters(turn));
    Asker& waiter = locks.enter();
    EXPECT_TRUE(table.has_waiters(turn));
    waiter.stop_requested = true;
    EXPECT_EQ(locks.resume(waiter), Outcome::cancelled);
    EXPECT_FALSE(table.has_waiters(turn));
}

TEST_F(Contender, finds_no_place_on_a_fresh_turn) {
    EXPECT_FALSE(table.place(turn));
}

TEST_F(Contender, passes_its_place_on_to_the_next) {
    for (const bool unclear : {false, true}) {
        const auto hold = asked_hold({.token = "mine"});
        table.announce(turn, *hold);
        Asker& next = locks.enter();
        EXPECT_TRUE(pass_to(next, [&] { return table.pass_place_on(turn, unclear); }));
        const auto place = table.place(turn);
        ASSERT_TRUE(place);
        EXPECT_EQ(place->token.bytes, "mine");
        EXPECT_EQ(place->terms.traits.scripts, &hold->scripts());
        EXPECT_EQ(place->unclear_try, unclear);
    }
}

TEST_F(Contender, passes_a_place_on_that_was_passed_to_it) {
    announce("mine");
    std::vector<Asker*> waiters;
    for (int i = 0; i < 4; ++i) waiters.push_back(&locks.enter());
    for (Asker* const next : waiters) {
        EXPECT_TRUE(pass_to(*next, [&] { return table.pass_place_on(turn, true); }));
        ASSERT_TRUE(table.place(turn));
        EXPECT_EQ(table.place(turn)->token.bytes, "mine");
    }
    EXPECT_FALSE(table.pass_place_on(turn, true)) << "nobody is left";
    EXPECT_TRUE(table.is_empty());
}

TEST_F(Contender, that_takes_a_place_over_gets_the_grant_for_it_even_before_it_wakes) {
    announce("mine");
    Asker& next = locks.enter();
    EXPECT_TRUE(table.pass_place_on(turn, false));
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_EQ(locks.resume(next), Outcome::turn);
    turn = next.turn();
    EXPECT_EQ(pause().ended, Cause::granted);
}

TEST_F(Contender, that_takes_a_place_over_has_no_use_for_a_grant_of_before) {
    announce("mine");
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    Asker& next = locks.enter();
    EXPECT_TRUE(pass_to(next, [&] { return table.pass_place_on(turn, false); }));
    EXPECT_EQ(pause(locks.now).ended, Cause::in_time) << "it asks first, by its own measure";
}

TEST_F(Contender, keeps_its_place_from_nobody) {
    announce("mine");
    EXPECT_FALSE(table.pass_place_on(turn, true));
    EXPECT_TRUE(table.is_empty());
    EXPECT_FALSE(table.deliver(grant_for("mine")));
    turn = locks.enter().turn();
    EXPECT_FALSE(table.place(turn));
}

TEST_F(Contender, without_a_place_passes_only_its_turn_on) {
    Asker& next = locks.enter();
    EXPECT_FALSE(pass_to(next, [&] { return table.pass_place_on(turn, true); }));
    EXPECT_FALSE(table.place(turn));
}

TEST_F(Contender, whose_turn_just_ends_leaves_no_place) {
    announce("mine");
    Asker& next = locks.enter();
    pass_to(next, [&] {
        table.end_turn(turn);
        return false;
    });
    EXPECT_FALSE(table.place(turn));
}

TEST_F(Contender, that_gets_the_lock_leaves_no_place) {
    announce("mine");
    Asker& next = locks.enter();
    EXPECT_TRUE(locks.finish(asker, locks.taken({.token = "mine"})));
    pass_to(next, [&] { return locks.unlock() == Kind::last; });
    EXPECT_FALSE(table.place(turn));
}

TEST_F(Contender, that_is_closed_passes_no_place_on) {
    announce("mine");
    Asker& next = locks.enter();
    EXPECT_TRUE(table.close().places.empty()) << "its contender sees to it";
    EXPECT_FALSE(table.pass_place_on(turn, false));
    EXPECT_EQ(locks.resume(next), Outcome::closed);
    EXPECT_TRUE(table.is_empty());
}

TEST_F(Contender, whose_successor_has_not_come_yet_leaves_its_place_to_closing) {
    announce("mine");
    Asker& next = locks.enter();
    ASSERT_TRUE(table.pass_place_on(turn, true));
    const auto places = table.close().places;
    ASSERT_EQ(places.size(), 1U);
    EXPECT_EQ(places[0].token.bytes, "mine");
    EXPECT_EQ(places[0].terms.keys->lock, "key");
    EXPECT_TRUE(places[0].unclear_try);
    EXPECT_EQ(locks.resume(next), Outcome::closed);
    EXPECT_TRUE(table.is_empty());
}

/// One who pauses before it nests once more.
class NestingPause : public testing::Test {
protected:
    void SetUp() override { locks.take(hold, {.traits = nesting()}); }

    LockTable::Pause pause(TimePoint until = TimePoint::max()) {
        return locks.table.pause(*hold, waiter, until, locks.now, waiter.stop_requested);
    }

    Locks locks;
    std::shared_ptr<detail::Hold> hold = locks.taken({.traits = nesting()});
    Asker waiter{{.traits = nesting()}, locks.now};
};

TEST_F(NestingPause, ends_in_time) {
    const TimePoint until = locks.now + 20ms;
    const LockTable::Pause first = pause(until);
    EXPECT_FALSE(first.ended);
    EXPECT_EQ(first.wake_at, until);
    locks.now = until;
    EXPECT_EQ(pause(until).ended, Cause::in_time);
    locks.lose(hold);
    EXPECT_EQ(locks.woken(), Woken{}) << "the table has forgotten about it";
}

TEST_F(NestingPause, ends_with_the_client) {
    EXPECT_FALSE(pause().ended);
    EXPECT_EQ(locks.table.close().holds, std::vector{hold});
    EXPECT_EQ(locks.woken(), Woken{&waiter});
    EXPECT_EQ(pause().ended, Cause::closed);
    EXPECT_EQ(pause().ended, Cause::closed);
}

TEST_F(NestingPause, ends_with_a_stop) {
    EXPECT_FALSE(pause().ended);
    waiter.stop_requested = true;
    EXPECT_EQ(pause().ended, Cause::cancelled);
}

TEST_F(NestingPause, ends_with_the_loss_of_the_hold) {
    EXPECT_FALSE(pause().ended);
    locks.lose(hold);
    EXPECT_EQ(locks.woken(), Woken{&waiter});
    EXPECT_EQ(pause().ended, Cause::lost);
    EXPECT_EQ(pause().ended, Cause::lost);
}

TEST_F(NestingPause, keeps_the_name_until_it_has_ended) {
    EXPECT_FALSE(pause().ended);
    locks.lose(hold);
    EXPECT_EQ(locks.unlock(), Kind::past);
    EXPECT_EQ(locks.table.size(), 1U);
    EXPECT_EQ(pause().ended, Cause::lost);
    EXPECT_TRUE(locks.table.is_empty());
    EXPECT_EQ(pause().ended, Cause::lost) << "the name is gone as well";
}

TEST_F(NestingPause, ends_when_validity_does) {
    const LockTable::Pause first = pause();
    EXPECT_EQ(first.wake_at, hold->valid_until());
    locks.now = first.wake_at;
    EXPECT_EQ(pause().ended, Cause::lost);
}

TEST(Claimants, of_one_key_have_turns_and_grants_of_their_own) {
    Locks locks;
    const auto claimant = [&](std::uint64_t id) {
        return Wish{
            .id = id, .claim = {.weight = 1, .limit = 3}, .own_entry = "key:" + std::to_string(id)};
    };
    const auto announce = [&](const Asker& asker, std::uint64_t id, const std::string& token) {
        const detail::Hold hold{claimant(id).terms(), detail::Token{token}, me};
        locks.table.announce(asker.turn(), hold);
    };
    const auto grant = [](const std::string& token) {
        Grant told = grant_for(token);
        told.weight = 1;
        return told;
    };
    const Asker& first = locks.enter(claimant(1));
    Asker& second = locks.enter(claimant(2));
    EXPECT_FALSE(locks.table.deliver(grant("a")));
    announce(first, 1, "a");
    announce(second, 2, "b");
    EXPECT_TRUE(locks.table.deliver(grant("b")));
    EXPECT_FALSE(locks.table.take_grant(first.turn()));
    EXPECT_EQ(locks.table.take_grant(second.turn())->token, "b");
    EXPECT_TRUE(locks.table.deliver(notice("b")));
    const auto pause = locks.table.pause(second.turn(), second, TimePoint::max(), locks.now, false);
    EXPECT_EQ(pause.ended, Cause::recheck);
    announce(second, 2, "c");
    EXPECT_FALSE(locks.table.deliver(grant("b"))) << "it goes by another token now";
    locks.table.end_turn(first.turn());
    EXPECT_FALSE(locks.table.deliver(grant("a"))) << "its turn is over";
    EXPECT_TRUE(locks.table.deliver(grant("c")));
    locks.table.end_turn(second.turn());
    EXPECT_TRUE(locks.table.is_empty());
}

}  // namespace
}  // namespace redlatch::test
