#include "lock_table_tools.hpp"
#include "service_tools.hpp"
#include "support/wait.hpp"
#include <redlatch/policy/fenced.hpp>
#include <redlatch/service/lock_table_monitor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::Acquisition;
using detail::Grant;
using detail::Hold;
using detail::LockOwner;
using detail::LockTable;
using detail::LockTableMonitor;
using detail::Phase;
using detail::PolicyTraits;
using detail::saturating_add;
using detail::TimePoint;
using detail::traits_of;
using Outcome = LockTable::Outcome;
using Woken = LockTable::Woken;
using Kind = LockTable::Ending::Kind;

const int some_handle = 0;
const int other_handle = 0;

/// One who asks for a lock, with what the tests change first.
struct Guest {
    std::string key = "key";
    PolicyTraits traits = traits_of<Simple>();
    Wait wait = Wait::unlimited();
    std::stop_token stop{};
    LockOwner thread = detail::this_thread();
    std::uint64_t id = 1;
    const void* through = &some_handle;
    bool watched = false;
    // Other than a hold's in these tests: then the lock is released between two of them.
    Lease lease = 2h;
    unsigned local_handoffs = 0;
    bool others_poll = false;
    bool owns_itself = false;

    Acquisition acquisition() const { return {id, through, watched}; }
    LockOwner owner() const { return owns_itself ? LockOwner::acquisition(id) : thread; }

    LockTableMonitor::Admission enter(LockTableMonitor& table) const {
        const detail::HoldTerms terms = terms_of({.key = key, .traits = traits, .lease = lease});
        return table.enter({.terms = terms,
                            .owner = owner(),
                            .caller = thread,
                            .wait = wait,
                            .deadline = saturating_add(
                                Clock::now(), std::max(wait.duration(), Clock::duration::zero())),
                            .acquisition = acquisition(),
                            .handoffs = {.in_row = local_handoffs, .others_poll = others_poll}},
                           stop);
    }

    Outcome ask(LockTableMonitor& table) const { return enter(table).outcome; }

    /// The same request from the thread that calls this.
    Guest from_here() const {
        Guest guest = *this;
        guest.thread = detail::this_thread();
        return guest;
    }

    /// Takes the lock, as if the server had given it to `hold`.
    void take(LockTableMonitor& table, const std::shared_ptr<Hold>& hold) const {
        auto admission = enter(table);
        ASSERT_EQ(admission.outcome, Outcome::turn);
        hold->nest.push_back(acquisition());
        ASSERT_TRUE(admission.turn->finish(hold));
    }
};

void expect_free(LockTableMonitor& table, const std::string& key = "key") {
    EXPECT_EQ((Guest{.key = key, .wait = Wait::none(), .thread = another_thread()}.ask(table)),
              Outcome::turn);
}

/// Ends the innermost acquisition and, where it was the last, frees the lock.
Kind unlock(LockTableMonitor& table, const std::string& key = "key") {
    const auto ending = table.end_innermost(key, detail::this_thread());
    if (ending.kind == Kind::last) {
        ending.hold->advance(Phase::releasing, Phase::released);
        table.released(*ending.hold);
    }
    return ending.kind;
}

TEST(LockTableMonitor, free_name_gives_a_turn_at_once) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    EXPECT_EQ(admission.outcome, Outcome::turn);
    EXPECT_TRUE(admission.turn);
    EXPECT_TRUE((admission.expired == nullptr));
    EXPECT_EQ(table.size(), 1U);
    admission.turn.reset();
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, turn_excludes_others) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    const Guest other{.wait = Wait::none(), .thread = another_thread()};
    EXPECT_EQ(other.ask(table), Outcome::busy);
    admission.turn.reset();
    EXPECT_EQ(other.ask(table), Outcome::turn);
}

TEST(LockTableMonitor, turn_that_moved_ends_once) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    {
        const LockTableMonitor::Turn turn = *std::move(admission.turn);
        admission.turn.reset();
        EXPECT_EQ((Guest{.wait = Wait::none()}.ask(table)), Outcome::busy);
    }
    expect_free(table);
}

TEST(LockTableMonitor, hold_excludes_others) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    Guest{}.take(table, hold);
    EXPECT_EQ((Guest{.wait = Wait::none(), .thread = another_thread()}.ask(table)), Outcome::busy);
    EXPECT_EQ(table.current("key"), hold);
    EXPECT_EQ(unlock(table), Kind::last);
    EXPECT_EQ(table.current("key"), nullptr);
    EXPECT_EQ(table.size(), 0U);
    expect_free(table);
}

TEST(LockTableMonitor, stays_closed_until_the_release_is_answered) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    const auto ending = table.end_innermost("key", detail::this_thread());
    ASSERT_EQ(ending.kind, Kind::last);
    EXPECT_TRUE(ending.hold->in(Phase::releasing));
    EXPECT_EQ((Guest{.wait = Wait::none(), .thread = another_thread()}.ask(table)), Outcome::busy);
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(table)), Outcome::busy) << "no nesting either";
    table.released(*ending.hold);
    expect_free(table);
}

TEST(LockTableMonitor, zero_or_negative_wait_is_busy_at_once) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    for (const Wait wait : {Wait::none(), Wait{-1h}, Wait{std::chrono::hours::min()}}) {
        EXPECT_EQ((Guest{.wait = wait, .thread = another_thread()}.ask(table)), Outcome::busy);
    }
}

TEST(LockTableMonitor, waiter_is_busy_at_its_deadline) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    const TimePoint began = Clock::now();
    EXPECT_EQ((Guest{.wait = 30ms, .thread = another_thread()}.ask(table)), Outcome::busy);
    EXPECT_GE(Clock::now() - began, 30ms);
    EXPECT_EQ(unlock(table), Kind::last);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, busy_behind_a_fault_tells_the_fault) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    const Guest other{.wait = 1ms, .thread = another_thread()};
    EXPECT_EQ(other.enter(table).fault, nullptr);
    const auto fault = std::make_shared<const Error>(Error{Errc::unavailable, {}, {}, {}, {}});
    admission.turn->set_fault(fault);
    EXPECT_EQ(other.enter(table).fault, fault);
    admission.turn->set_fault(nullptr);
    EXPECT_EQ(other.enter(table).fault, nullptr) << "the server answered since";
    admission.turn->set_fault(fault);
    admission.turn->finish(taken_hold());
    EXPECT_EQ(other.enter(table).fault, nullptr) << "somebody holds it";
}

TEST(LockTableMonitor, waiters_are_served_first_come_first_served) {
    LockTableMonitor table;
    std::mutex mutex;
    std::vector<int> order;
    auto first = Guest{}.enter(table);
    std::vector<std::unique_ptr<Waiter>> waiters;
    for (int i = 0; i < 8; ++i) {
        waiters.push_back(std::make_unique<Waiter>([&, i] {
            const auto admission = Guest{}.enter(table);
            const std::lock_guard lock{mutex};
            if (admission.outcome == Outcome::turn) order.push_back(i);
        }));
        waiters.back()->wait_until_asleep();
    }
    first.turn.reset();
    for (const auto& waiter : waiters) waiter->join();
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, waiters_follow_a_release_in_order_too) {
    LockTableMonitor table;
    std::mutex mutex;
    std::vector<int> order;
    Guest{}.take(table, taken_hold());
    std::vector<std::unique_ptr<Waiter>> waiters;
    for (int i = 0; i < 4; ++i) {
        waiters.push_back(std::make_unique<Waiter>([&, i] {
            Guest{}.take(table, taken_hold());
            {
                const std::lock_guard lock{mutex};
                order.push_back(i);
            }
            EXPECT_EQ(unlock(table), Kind::last);
        }));
        waiters.back()->wait_until_asleep();
    }
    EXPECT_EQ(unlock(table), Kind::last);
    for (const auto& waiter : waiters) waiter->join();
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3}));
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, nobody_overtakes_the_queue) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    std::atomic<bool> go{false};
    Waiter waiter{[&] {
        const auto admission = Guest{}.enter(table);
        EXPECT_EQ(admission.outcome, Outcome::turn);
        EXPECT_TRUE(eventually([&go] { return go.load(); }));
    }};
    waiter.wait_until_asleep();
    first.turn.reset();
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(table)), Outcome::busy);
    go = true;
}

TEST(LockTableMonitor, stop_ends_the_wait) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    Guest{}.take(table, hold);
    std::stop_source source;
    Outcome answer{};
    Waiter waiter{[&] { answer = Guest{.stop = source.get_token()}.ask(table); }};
    waiter.wait_until_asleep();
    EXPECT_FALSE(waiter.done());
    source.request_stop();
    waiter.join();
    EXPECT_EQ(answer, Outcome::cancelled);
    EXPECT_EQ(table.current("key"), hold);
}

TEST(LockTableMonitor, stop_asked_for_before_ends_the_wait_at_once) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    std::stop_source source;
    source.request_stop();
    EXPECT_EQ((Guest{.stop = source.get_token(), .thread = another_thread()}.ask(table)),
              Outcome::cancelled);
}

TEST(LockTableMonitor, front_waiter_that_leaves_does_not_hold_up_the_next) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    std::stop_source source;
    Outcome front{};
    Outcome next{};
    Waiter leaving{[&] { front = Guest{.stop = source.get_token()}.ask(table); }};
    leaving.wait_until_asleep();
    Waiter staying{[&] { next = Guest{}.ask(table); }};
    staying.wait_until_asleep();
    source.request_stop();
    leaving.join();
    first.turn.reset();
    staying.join();
    EXPECT_EQ(front, Outcome::cancelled);
    EXPECT_EQ(next, Outcome::turn);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, waiter_in_the_middle_may_leave) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    Outcome front{};
    Outcome middle{};
    Outcome last{};
    std::stop_source source;
    Waiter a{[&] { front = Guest{}.ask(table); }};
    a.wait_until_asleep();
    Waiter b{[&] { middle = Guest{.stop = source.get_token()}.ask(table); }};
    b.wait_until_asleep();
    Waiter c{[&] { last = Guest{}.ask(table); }};
    c.wait_until_asleep();
    source.request_stop();
    b.join();
    first.turn.reset();
    a.join();
    c.join();
    EXPECT_EQ(front, Outcome::turn);
    EXPECT_EQ(middle, Outcome::cancelled);
    EXPECT_EQ(last, Outcome::turn);
}

TEST(LockTableMonitor, unrelated_names_do_not_wait_for_each_other) {
    LockTableMonitor table;
    Guest{.key = "a"}.take(table, taken_hold({.key = "a"}));
    Outcome answer{};
    std::stop_source source;
    Waiter waiter{[&] { answer = Guest{.key = "a", .stop = source.get_token()}.ask(table); }};
    waiter.wait_until_asleep();
    Guest{.key = "b"}.take(table, taken_hold({.key = "b"}));
    EXPECT_EQ(unlock(table, "b"), Kind::last);
    EXPECT_FALSE(waiter.done());
    source.request_stop();
}

TEST(LockTableMonitor, names_are_bytes) {
    LockTableMonitor table;
    const std::string with_nul{"a\0b", 3};
    Guest{.key = with_nul}.take(table, taken_hold({.key = with_nul}));
    expect_free(table, "a");
    expect_free(table, std::string{"a\0c", 3});
    EXPECT_EQ(unlock(table, with_nul), Kind::last);
}

TEST(LockTableMonitor, closing_ends_all_waiting_and_tells_what_is_held) {
    LockTableMonitor table;
    const auto a = taken_hold({.key = "a"});
    const auto b = taken_hold({.key = "b"});
    Guest{.key = "a"}.take(table, a);
    Guest{.key = "b"}.take(table, b);
    Outcome answers[2]{};
    Waiter first{[&] { answers[0] = Guest{.key = "a"}.ask(table); }};
    first.wait_until_asleep();
    Waiter second{[&] { answers[1] = Guest{.key = "a"}.ask(table); }};
    second.wait_until_asleep();
    const auto holds = table.close().holds;
    first.join();
    second.join();
    EXPECT_EQ(answers[0], Outcome::closed);
    EXPECT_EQ(answers[1], Outcome::closed);
    ASSERT_EQ(holds.size(), 2U);
    EXPECT_TRUE((holds[0] == a && holds[1] == b) || (holds[0] == b && holds[1] == a));
}

TEST(LockTableMonitor, closed_lets_nobody_in) {
    LockTableMonitor table;
    EXPECT_TRUE(table.close().holds.empty());
    EXPECT_EQ(Guest{}.ask(table), Outcome::closed);
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(table)), Outcome::closed);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, turn_finished_after_closing_is_no_hold) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    EXPECT_TRUE(table.close().holds.empty());
    EXPECT_FALSE(admission.turn->finish(taken_hold()));
    EXPECT_EQ(table.current("key"), nullptr);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, pause_lasts_until_its_end) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    const TimePoint until = Clock::now() + 20ms;
    EXPECT_EQ(admission.turn->pause(until, {}), Woken::in_time);
    EXPECT_GE(Clock::now(), until);
    EXPECT_EQ(admission.turn->pause(Clock::now() - 1h, {}), Woken::in_time)
        << "over before it began";
}

TEST(LockTableMonitor, pause_is_cut_short_by_a_stop) {
    LockTableMonitor table;
    std::stop_source source;
    Woken woken{};
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(table);
        woken = admission.turn->pause(TimePoint::max(), source.get_token());
    }};
    waiter.wait_until_asleep();
    source.request_stop();
    waiter.join();
    EXPECT_EQ(woken, Woken::cancelled);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, pause_is_cut_short_by_closing) {
    LockTableMonitor table;
    Woken woken{};
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(table);
        woken = admission.turn->pause(TimePoint::max(), {});
    }};
    waiter.wait_until_asleep();
    static_cast<void>(table.close());
    waiter.join();
    EXPECT_EQ(woken, Woken::closed);
}

TEST(LockTableMonitor, late_message_about_a_lock_on_its_way_to_the_next_thread_is_no_stranger) {
    LockTableMonitor table;
    const auto hold = taken_hold({.lease = 2h, .token = "t"});
    Guest{}.take(table, hold);
    std::atomic<bool> known{false};
    Waiter heir{[&] {
        const auto admission = Guest{.thread = another_thread()}.enter(table);
        if (admission.outcome != Outcome::handed) return;
        const detail::Grant late{
            .ttl = 1s, .time = 1us, .server = "-", .key_type = 's', .token = "t", .key = "key"};
        known = table.deliver(late);
    }};
    heir.wait_until_asleep();
    const auto ending = table.end_innermost("key", detail::this_thread());
    ASSERT_TRUE(ending.kind == Kind::handed || ending.can_hand_off);
    if (ending.kind == Kind::last) {
        EXPECT_TRUE(table.moved(*hold, {hold->token(), Clock::now()}, false));
    }
    heir.join();
    EXPECT_TRUE(known);
}

TEST(LockTableMonitor, lock_with_a_fencing_token_passes_on_only_with_another_one) {
    LockTableMonitor table;
    const PolicyTraits traits = traits_of<Fenced<Simple>>();
    const auto hold = asked_hold({.traits = traits, .lease = 2h});
    hold->taken(Clock::now(), Clock::now() + 1min);  // without a number it would pass in silence
    hold->fence = 6;
    Guest{.traits = traits}.take(table, hold);
    std::atomic<std::uint64_t> fence{0};
    Waiter heir{[&] {
        const auto admission = Guest{.traits = traits, .thread = another_thread()}.enter(table);
        if (admission.outcome == Outcome::handed) fence = admission.hold->fence;
    }};
    heir.wait_until_asleep();
    const auto ending = table.end_innermost("key", detail::this_thread());
    EXPECT_EQ(ending.kind, Kind::last);
    EXPECT_TRUE(ending.can_hand_off);
    EXPECT_TRUE(
        table.moved(*hold, {.token = {"next"}, .refreshed = Clock::now(), .fence = 7}, false));
    heir.join();
    EXPECT_EQ(fence, 7U);
}

TEST(LockTableMonitor, pausing_thread_keeps_its_turn) {
    LockTableMonitor table;
    std::stop_source source;
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(table);
        static_cast<void>(admission.turn->pause(TimePoint::max(), source.get_token()));
    }};
    waiter.wait_until_asleep();
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(table)), Outcome::busy);
    source.request_stop();
}

Grant grant_for(std::string token, std::string key = "key") {
    return {.ttl = 1h,
            .time = 1s,
            .server = "-",
            .key_type = 's',
            .token = std::move(token),
            .key = std::move(key)};
}

TEST(LockTableMonitor, grant_before_the_pause_begins_is_not_missed) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    auto& turn = *admission.turn;
    EXPECT_FALSE(table.deliver(grant_for("mine"))) << "not announced yet";
    turn.announce(*asked_hold({.token = "mine"}));
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_EQ(turn.pause(TimePoint::max(), {}), Woken::granted);
    const auto grant = turn.take_grant();
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->token, "mine");
    EXPECT_EQ(grant->ttl, 1h);
    EXPECT_FALSE(turn.take_grant()) << "only once";
    EXPECT_EQ(turn.pause(Clock::now(), {}), Woken::in_time);
}

TEST(LockTableMonitor, grant_ends_the_pause) {
    LockTableMonitor table;
    Woken woken{};
    std::optional<Grant> grant;
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(table);
        admission.turn->announce(*asked_hold({.token = "mine"}));
        woken = admission.turn->pause(TimePoint::max(), {});
        grant = admission.turn->take_grant();
    }};
    waiter.wait_until_asleep();
    EXPECT_FALSE(table.deliver(grant_for("yours")));
    EXPECT_FALSE(table.deliver(grant_for("mine", "other key")));
    EXPECT_FALSE(table.deliver(grant_for("")));
    EXPECT_FALSE(waiter.done());
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    waiter.join();
    EXPECT_EQ(woken, Woken::granted);
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->token, "mine");
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, grant_wakes_nobody_else) {
    LockTableMonitor table;
    std::stop_source source;
    Woken woken{};
    Waiter waiter{[&] {
        auto admission = Guest{.key = "other"}.enter(table);
        admission.turn->announce(*asked_hold({.key = "other", .token = "other"}));
        woken = admission.turn->pause(TimePoint::max(), source.get_token());
    }};
    waiter.wait_until_asleep();
    auto admission = Guest{}.enter(table);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    source.request_stop();
    waiter.join();
    EXPECT_EQ(woken, Woken::cancelled);
}

TEST(LockTableMonitor, announced_anew_knows_the_new_token_only) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    admission.turn->announce(*asked_hold({.token = "old"}));
    admission.turn->announce(*asked_hold({.token = "new"}));
    EXPECT_FALSE(table.deliver(grant_for("old")));
    EXPECT_TRUE(table.deliver(grant_for("new")));
}

TEST(LockTableMonitor, grant_for_what_is_held_is_known_and_disturbs_nobody) {
    LockTableMonitor table;
    const auto hold = taken_hold({.token = "mine"});
    Guest{}.take(table, hold);
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_FALSE(table.deliver(grant_for("yours")));
    EXPECT_EQ(unlock(table), Kind::last);
    EXPECT_EQ(table.size(), 0U);

    auto next = Guest{}.enter(table);
    EXPECT_EQ(next.turn->pause(Clock::now(), {}), Woken::in_time) << "nothing of it is left";
}

TEST(LockTableMonitor, grant_is_unknown_after_the_hold) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold({.token = "mine"}));
    EXPECT_EQ(unlock(table), Kind::last);
    EXPECT_FALSE(table.deliver(grant_for("mine")));

    const auto lost = taken_hold({.token = "mine"});
    Guest{}.take(table, lost);
    lost->advance(Phase::held, Phase::lost);
    table.lost(lost);
    EXPECT_EQ(table.size(), 1U) << "it has yet to be returned";
    EXPECT_FALSE(table.deliver(grant_for("mine")));
}

TEST(LockTableMonitor, grant_is_unknown_after_the_turn) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    admission.turn.reset();
    EXPECT_FALSE(table.deliver(grant_for("mine")));
    EXPECT_EQ(table.size(), 0U);
    Guest{}.take(table, taken_hold({.token = "other"}));
    EXPECT_FALSE(table.deliver(grant_for("mine")));
}

TEST(LockTableMonitor, closing_and_a_stop_come_before_a_grant) {
    std::stop_source source;
    source.request_stop();
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_EQ(admission.turn->pause(TimePoint::max(), source.get_token()), Woken::cancelled);
    static_cast<void>(table.close());
    EXPECT_EQ(admission.turn->pause(TimePoint::max(), {}), Woken::closed);
}

TEST(LockTableMonitor, recheck_ends_the_pause_of_who_waits_at_the_server) {
    LockTableMonitor table;
    Woken first{};
    Woken second{};
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(table);
        admission.turn->announce(*asked_hold({.token = "mine"}));
        first = admission.turn->pause(TimePoint::max(), {});
        second = admission.turn->pause(Clock::now(), {});
    }};
    waiter.wait_until_asleep();
    table.recheck_all(Clock::now());
    waiter.join();
    EXPECT_EQ(first, Woken::recheck);
    EXPECT_EQ(second, Woken::in_time) << "once is enough";
}

TEST(LockTableMonitor, recheck_asked_for_before_the_pause_is_not_missed) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    table.recheck_all(Clock::now());
    EXPECT_EQ(admission.turn->pause(TimePoint::max(), {}), Woken::recheck);
}

TEST(LockTableMonitor, recheck_does_not_concern_who_has_no_place) {
    LockTableMonitor table;
    table.recheck_all(Clock::now());
    auto admission = Guest{}.enter(table);
    table.recheck_all(Clock::now() - 1h);
    EXPECT_EQ(admission.turn->pause(Clock::now(), {}), Woken::in_time);
    Guest{.key = "held"}.take(table, taken_hold({.key = "held"}));
    table.recheck_all(Clock::now() - 1h);
    EXPECT_EQ(unlock(table, "held"), Kind::last);
}

TEST(LockTableMonitor, recheck_does_not_outlive_its_turn) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    first.turn->announce(*asked_hold({.token = "mine"}));
    Woken woken{};
    Waiter heir{[&] { woken = Guest{}.enter(table).turn->pause(Clock::now(), {}); }};
    heir.wait_until_asleep();
    table.recheck_all(Clock::now() - 1h);
    EXPECT_TRUE(first.turn->pass_place_on(false));
    heir.join();
    EXPECT_EQ(woken, Woken::in_time) << "the heir asks anyhow";
}

TEST(LockTableMonitor, recheck_of_many_is_spread_over_a_second) {
    constexpr int names = 1000;
    LockTableMonitor table;
    std::vector<LockTableMonitor::Admission> admissions;
    for (int i = 0; i < names; ++i) {
        const std::string key = std::to_string(i);
        admissions.push_back(Guest{.key = key}.enter(table));
        admissions.back().turn->announce(*asked_hold({.key = key}));
    }
    // How many are to ask by now, if that began a while ago.
    const auto due_after = [&](Clock::duration since) {
        table.recheck_all(Clock::now() - since);
        return std::count_if(admissions.begin(), admissions.end(), [](auto& admission) {
            return admission.turn->pause(TimePoint::min(), {}) == Woken::recheck;
        });
    };
    EXPECT_EQ(due_after(-1h), 0);
    EXPECT_GT(due_after(500ms), names / 3);
    EXPECT_EQ(due_after(1s), names);
    // This thread may be late itself.
    EXPECT_TRUE(eventually([&] { return due_after(100ms) < names / 3; })) << "not all at once";
}

TEST(LockTableMonitor, knows_whether_there_are_heirs) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    EXPECT_FALSE(first.turn->has_waiters());
    std::stop_source source;
    Waiter heir{
        [&] { EXPECT_EQ(Guest{.stop = source.get_token()}.ask(table), Outcome::cancelled); }};
    heir.wait_until_asleep();
    EXPECT_TRUE(first.turn->has_waiters());
    Guest{.key = "other"}.take(table, taken_hold({.key = "other"}));
    source.request_stop();
    heir.join();
    EXPECT_FALSE(first.turn->has_waiters());
}

TEST(LockTableMonitor, fresh_turn_inherits_nothing) {
    LockTableMonitor table;
    EXPECT_FALSE(Guest{}.enter(table).turn->place());
}

TEST(LockTableMonitor, heir_gets_the_place_in_the_servers_queue) {
    for (const bool unclear : {false, true}) {
        LockTableMonitor table;
        const auto hold = asked_hold({.token = "mine"});
        auto first = Guest{}.enter(table);
        first.turn->announce(*hold);
        std::optional<detail::QueuePlace> queue_place;
        Waiter heir{[&] {
            auto admission = Guest{}.enter(table);
            ASSERT_EQ(admission.outcome, Outcome::turn);
            queue_place = admission.turn->place();
        }};
        heir.wait_until_asleep();
        EXPECT_TRUE(first.turn->pass_place_on(unclear));
        heir.join();
        ASSERT_TRUE(queue_place);
        EXPECT_EQ(queue_place->token.bytes, "mine");
        EXPECT_EQ(queue_place->terms.traits.scripts, &hold->scripts());
        EXPECT_EQ(queue_place->unclear_try, unclear);
        EXPECT_EQ(table.size(), 0U) << "the heir left no heir";
    }
}

TEST(LockTableMonitor, place_goes_through_many_hands) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    first.turn->announce(*asked_hold({.token = "mine"}));
    std::vector<std::unique_ptr<Waiter>> heirs;
    std::vector<std::string> tokens(4);
    std::vector<char> bequeathed(4);
    for (std::size_t i = 0; i < 4; ++i) {
        heirs.push_back(std::make_unique<Waiter>([&, i] {
            auto admission = Guest{}.enter(table);
            const auto queue_place = admission.turn->place();
            if (queue_place) tokens[i] = queue_place->token.bytes;
            bequeathed[i] = admission.turn->pass_place_on(true) ? 'y' : 'n';
        }));
        heirs.back()->wait_until_asleep();
    }
    EXPECT_TRUE(first.turn->pass_place_on(false));
    for (const auto& heir : heirs) heir->join();
    EXPECT_EQ(tokens, (std::vector<std::string>{"mine", "mine", "mine", "mine"}));
    EXPECT_EQ(bequeathed, (std::vector{'y', 'y', 'y', 'n'}));
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, grant_during_the_handover_reaches_the_heir) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    first.turn->announce(*asked_hold({.token = "mine"}));
    std::atomic<bool> go{false};
    Woken woken{};
    Waiter heir{[&] {
        auto admission = Guest{}.enter(table);
        EXPECT_TRUE(eventually([&go] { return go.load(); }));
        woken = admission.turn->pause(TimePoint::max(), {});
    }};
    heir.wait_until_asleep();
    EXPECT_TRUE(first.turn->pass_place_on(false));
    EXPECT_TRUE(table.deliver(grant_for("mine"))) << "whether the heir is awake by now or not";
    go = true;
    heir.join();
    EXPECT_EQ(woken, Woken::granted);
}

TEST(LockTableMonitor, grant_for_the_one_before_is_not_inherited) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    first.turn->announce(*asked_hold({.token = "mine"}));
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    Woken woken{};
    Waiter heir{[&] { woken = Guest{}.enter(table).turn->pause(Clock::now(), {}); }};
    heir.wait_until_asleep();
    EXPECT_TRUE(first.turn->pass_place_on(false));
    heir.join();
    EXPECT_EQ(woken, Woken::in_time) << "the heir asks the server first, by its own measure";
}

TEST(LockTableMonitor, without_heirs_nothing_is_bequeathed) {
    LockTableMonitor table;
    auto admission = Guest{}.enter(table);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    EXPECT_FALSE(admission.turn->pass_place_on(true));
    EXPECT_EQ(table.size(), 0U);
    EXPECT_FALSE(table.deliver(grant_for("mine")));
    EXPECT_FALSE(Guest{}.enter(table).turn->place());
}

TEST(LockTableMonitor, without_a_place_the_heir_gets_the_turn_only) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    bool inherited = true;
    Waiter heir{[&] { inherited = Guest{}.enter(table).turn->place().has_value(); }};
    heir.wait_until_asleep();
    EXPECT_FALSE(first.turn->pass_place_on(true));
    heir.join();
    EXPECT_FALSE(inherited);
}

TEST(LockTableMonitor, turn_that_just_ends_leaves_no_place) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    first.turn->announce(*asked_hold({.token = "mine"}));
    bool inherited = true;
    Waiter heir{[&] { inherited = Guest{}.enter(table).turn->place().has_value(); }};
    heir.wait_until_asleep();
    first.turn.reset();
    heir.join();
    EXPECT_FALSE(inherited);
}

TEST(LockTableMonitor, hold_leaves_no_place) {
    LockTableMonitor table;
    const auto hold = taken_hold({.token = "mine"});
    auto first = Guest{}.enter(table);
    first.turn->announce(*hold);
    hold->nest.push_back(Guest{}.acquisition());
    bool inherited = true;
    Waiter heir{[&] { inherited = Guest{}.enter(table).turn->place().has_value(); }};
    heir.wait_until_asleep();
    ASSERT_TRUE(first.turn->finish(hold));
    EXPECT_TRUE(table.deliver(grant_for("mine"))) << "late, but known";
    EXPECT_EQ(unlock(table), Kind::last);
    heir.join();
    EXPECT_FALSE(inherited);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, closed_bequeaths_nothing) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    first.turn->announce(*asked_hold({.token = "mine"}));
    Outcome answer{};
    Waiter heir{[&] { answer = Guest{}.ask(table); }};
    heir.wait_until_asleep();
    static_cast<void>(table.close());
    EXPECT_FALSE(first.turn->pass_place_on(false));
    heir.join();
    EXPECT_EQ(answer, Outcome::closed);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, closing_returns_each_place_that_its_heir_has_not_taken) {
    // The heir or the closing thread may be faster; the place is never forgotten.
    for (int round = 0; round < 200; ++round) {
        LockTableMonitor table;
        auto first = Guest{}.enter(table);
        first.turn->announce(*asked_hold({.token = "mine"}));
        bool inherited = false;
        Waiter heir{[&] {
            auto admission = Guest{}.enter(table);
            inherited = admission.turn && admission.turn->place();
        }};
        ASSERT_TRUE(eventually([&] { return first.turn->has_waiters(); }));
        ASSERT_TRUE(first.turn->pass_place_on(true));
        const auto places = table.close().places;
        heir.join();
        ASSERT_EQ(places.size(), inherited ? 0U : 1U);
        if (inherited) continue;
        EXPECT_EQ(places[0].token.bytes, "mine");
        EXPECT_EQ(places[0].terms.keys->lock, "key");
        EXPECT_TRUE(places[0].unclear_try);
    }
}

TEST(LockTableMonitor, hold_that_was_lost_before_its_turn_ended_blocks_nobody) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    auto admission = Guest{}.enter(table);
    hold->nest.push_back(Guest{}.acquisition());
    ASSERT_TRUE(hold->advance(Phase::held, Phase::lost));  // as a service declares it
    table.lost(hold);
    ASSERT_TRUE(admission.turn->finish(hold));
    EXPECT_EQ(table.current("key"), nullptr);
    EXPECT_EQ(table.find("key", detail::this_thread()), hold) << "its thread can see the loss";
    expect_free(table);
    EXPECT_EQ(unlock(table), Kind::past);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, waiter_behind_a_hand_over_has_its_turn_when_the_new_hold_runs_out) {
    LockTableMonitor table;
    const auto hold = taken_hold({.lease = 300ms});
    const Guest guest{.lease = 300ms, .local_handoffs = 100};
    guest.take(table, hold);
    hold->confirm(Clock::now(), 1h);  // an extension, which the next hold does not inherit
    Outcome second{};
    Outcome third{};
    Waiter hanging{[&] { second = guest.from_here().ask(table); }};  // and never releases
    hanging.wait_until_asleep();
    Waiter behind{[&] { third = guest.from_here().ask(table); }};
    behind.wait_until_asleep();
    const auto ending = table.end_innermost("key", detail::this_thread());
    if (ending.kind == Kind::last) {  // too slow for a hand-over without a command
        ASSERT_TRUE(table.moved(*hold, {{"next"}, Clock::now()}, false));
    }
    hanging.join();
    EXPECT_EQ(second, Outcome::handed);
    EXPECT_TRUE(eventually([&] { return behind.done(); }));
    static_cast<void>(table.close());  // ends a wait that goes on for ever
    behind.join();
    EXPECT_EQ(third, Outcome::turn);
}

TEST(LockTableMonitor, waiter_behind_waiters_needs_no_call_to_become_the_one_in_front) {
    // The first to wait has a long lease to look at, the one that gets the lock a short one.
    LockTableMonitor table;
    const auto hold = taken_hold({.lease = 1h});
    Guest{}.take(table, hold);
    const Guest brief{.lease = 300ms, .local_handoffs = 100};
    Outcome answer{};
    std::stop_source source;
    Waiter leaving{[&] { Guest{.stop = source.get_token()}.ask(table); }};
    leaving.wait_until_asleep();
    Waiter next{[&] { brief.from_here().take(table, taken_hold({.lease = 300ms})); }};
    next.wait_until_asleep();
    Waiter last{[&] { answer = brief.from_here().ask(table); }};
    last.wait_until_asleep();
    source.request_stop();
    leaving.join();
    EXPECT_EQ(unlock(table), Kind::last);
    next.join();
    EXPECT_TRUE(eventually([&] { return last.done(); }));
    static_cast<void>(table.close());
    last.join();
    EXPECT_EQ(answer, Outcome::turn);
}

TEST(LockTableMonitor, heir_takes_the_place_even_if_it_has_just_been_stopped_or_run_out_of_time) {
    // Else the place would be nobody's. Who is faster, differs from round to round.
    for (int round = 0; round < 60; ++round) {
        LockTableMonitor table;
        auto first = Guest{}.enter(table);
        first.turn->announce(*asked_hold({.token = "mine"}));
        std::stop_source source;
        Outcome answer{};
        bool inherited = false;
        const Wait wait = round % 2 == 0 ? Wait{5ms} : Wait::unlimited();
        Waiter heir{[&] {
            auto admission = Guest{.wait = wait, .stop = source.get_token()}.enter(table);
            answer = admission.outcome;
            inherited = admission.turn && admission.turn->place();
        }};
        if (round % 2 == 0) {
            EXPECT_TRUE(eventually([&] { return first.turn->has_waiters() || heir.done(); }));
            const TimePoint about_its_end = Clock::now() + 4700us + round * 10us;
            while (Clock::now() < about_its_end) {
            }
        } else {
            EXPECT_TRUE(eventually([&] { return first.turn->has_waiters(); }));
            source.request_stop();
        }
        const bool bequeathed = first.turn->pass_place_on(false);
        heir.join();
        ASSERT_EQ(inherited, bequeathed);
        ASSERT_TRUE(!bequeathed || answer == Outcome::turn);
        ASSERT_EQ(table.size(), 0U);
    }
}

const PolicyTraits& nesting() {
    static const PolicyTraits traits = traits_of<Reentrant>();
    return traits;
}

TEST(LockTableMonitor, reentrant_nests_in_its_thread) {
    LockTableMonitor table;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1}.take(table, hold);
    for (const std::uint64_t id : {2U, 3U}) {
        const auto admission =
            Guest{.traits = nesting(), .wait = Wait::none(), .id = id}.enter(table);
        EXPECT_EQ(admission.outcome, Outcome::nested);
        EXPECT_EQ(admission.hold, hold);
        EXPECT_EQ(admission.count, id);
        EXPECT_FALSE(admission.turn);
    }
    EXPECT_EQ(unlock(table), Kind::nested);
    EXPECT_EQ(unlock(table), Kind::nested);
    EXPECT_EQ(unlock(table), Kind::last);
    EXPECT_EQ(unlock(table), Kind::nothing);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, reentrant_excludes_other_threads) {
    LockTableMonitor table;
    Guest{.traits = nesting()}.take(table, taken_hold({.traits = nesting()}));
    EXPECT_EQ((Guest{.traits = nesting(), .wait = 1ms, .thread = another_thread()}.ask(table)),
              Outcome::busy);
}

TEST(LockTableMonitor, own_lock_without_limit_is_a_deadlock) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    EXPECT_EQ(Guest{}.ask(table), Outcome::deadlock);
    EXPECT_EQ((Guest{.wait = std::chrono::hours::max()}.ask(table)), Outcome::deadlock);
    EXPECT_EQ(unlock(table), Kind::last);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, own_lock_with_a_limit_is_busy) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(table)), Outcome::busy);
    EXPECT_EQ((Guest{.wait = 5ms}.ask(table)), Outcome::busy);
}

/// A hold that the acquisition 1 owns.
std::shared_ptr<Hold> hold_of_no_thread(const PolicyTraits& traits) {
    return taken_hold({.traits = traits, .owner = LockOwner::acquisition(1)});
}

TEST(LockTableMonitor, hold_of_no_thread_excludes_the_thread_that_took_it) {
    for (const PolicyTraits& traits : {traits_of<Simple>(), nesting()}) {
        LockTableMonitor table;
        const Guest guest{.traits = traits, .wait = 5ms, .owns_itself = true};
        guest.take(table, hold_of_no_thread(traits));
        EXPECT_EQ((Guest{.traits = traits, .wait = 5ms, .id = 2, .owns_itself = true}.ask(table)),
                  Outcome::busy);
        EXPECT_EQ((Guest{.traits = traits, .wait = 5ms}.ask(table)), Outcome::busy);
        EXPECT_EQ(table.find("key", detail::this_thread()), nullptr);
        Outcome answer{};
        Waiter waiter{[&] { answer = Guest{.traits = traits}.ask(table); }};
        waiter.wait_until_asleep();
        const auto ending = table.end_acquisition(*table.current("key"), guest.id);
        ASSERT_EQ(ending.kind, Kind::last);
        table.released(*ending.hold);
        waiter.join();
        EXPECT_EQ(answer, Outcome::turn);
    }
}

TEST(LockTableMonitor, hold_of_no_thread_does_not_nest_in_its_threads_hold) {
    LockTableMonitor table;
    Guest{.traits = nesting()}.take(table, taken_hold({.traits = nesting()}));
    const Guest limited{.traits = nesting(), .wait = 5ms, .owns_itself = true};
    EXPECT_EQ(limited.ask(table), Outcome::busy);
    const Guest unlimited{.traits = nesting(), .owns_itself = true};
    EXPECT_EQ(unlimited.ask(table), Outcome::deadlock)
        << "the thread itself would have to release it";
}

TEST(LockTableMonitor, hold_of_no_thread_is_handed_on_as_one) {
    LockTableMonitor table;
    const auto hold = hold_of_no_thread(traits_of<Simple>());
    const Guest guest{.lease = 1h, .local_handoffs = 100, .owns_itself = true};
    guest.take(table, hold);
    std::shared_ptr<Hold> next;
    Waiter heir{[&] { next = guest.enter(table).hold; }};
    heir.wait_until_asleep();
    const auto ending = table.end_acquisition(*hold, guest.id);
    if (ending.kind == Kind::last) {
        ASSERT_TRUE(table.moved(*hold, {{"next"}, Clock::now()}, false));
    }
    heir.join();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->owner(), LockOwner::acquisition(guest.id));
}

/// A thread that pauses before it nests once more.
class NestingPause : public ::testing::Test {
protected:
    void SetUp() override { Guest{.traits = nesting()}.take(locks_, hold_); }

    Woken pause(TimePoint until, const std::stop_token& stop = {}) {
        return locks_.pause(*hold_, until, stop);
    }

    LockTableMonitor locks_;
    std::shared_ptr<Hold> hold_ = taken_hold({.traits = nesting()});
};

TEST_F(NestingPause, ends_in_time) {
    const TimePoint until = Clock::now() + 20ms;
    EXPECT_EQ(pause(until), Woken::in_time);
    EXPECT_GE(Clock::now(), until);
}

TEST_F(NestingPause, ends_with_the_client) {
    Woken woken{};
    Waiter waiter{[&] { woken = pause(TimePoint::max()); }};
    waiter.wait_until_asleep();
    EXPECT_EQ(locks_.close().holds, std::vector{hold_});
    waiter.join();
    EXPECT_EQ(woken, Woken::closed);
    EXPECT_EQ(pause(TimePoint::max()), Woken::closed);
}

TEST_F(NestingPause, ends_with_the_stop_token) {
    std::stop_source source;
    Woken woken{};
    Waiter waiter{[&] { woken = pause(TimePoint::max(), source.get_token()); }};
    waiter.wait_until_asleep();
    source.request_stop();
    waiter.join();
    EXPECT_EQ(woken, Woken::cancelled);
}

TEST_F(NestingPause, ends_with_the_loss_of_the_hold) {
    Woken woken{};
    Waiter waiter{[&] { woken = pause(TimePoint::max()); }};
    waiter.wait_until_asleep();
    ASSERT_TRUE(hold_->advance(Phase::held, Phase::lost));
    locks_.lost(hold_);
    waiter.join();
    EXPECT_EQ(woken, Woken::lost);
    EXPECT_EQ(pause(TimePoint::max()), Woken::lost);
}

TEST_F(NestingPause, ends_when_validity_does) {
    const auto brief = taken_hold({.key = "brief", .traits = nesting(), .lease = 200ms});
    Guest{.key = "brief", .traits = nesting()}.take(locks_, brief);
    EXPECT_EQ(locks_.pause(*brief, TimePoint::max(), {}), Woken::lost);
    EXPECT_GE(Clock::now(), brief->valid_until());
}

TEST(LockTableMonitor, extended_hold_is_not_passed_on_without_a_command) {
    // The next one would block others for the longer lease, should it die.
    const std::vector<std::function<void(Hold&)>> prolong{
        [](Hold& hold) { hold.confirm(Clock::now(), 2h); },
        [](Hold& hold) { hold.may_be_prolonged = true; }};
    for (const auto& change : prolong) {
        LockTableMonitor table;
        const auto hold = taken_hold();
        const Guest guest{.lease = 1h, .local_handoffs = 100};
        guest.take(table, hold);
        Waiter next{[&] { guest.from_here().ask(table); }};
        next.wait_until_asleep();
        hold->confirm(Clock::now(), 1h);
        change(*hold);
        EXPECT_EQ(table.end_innermost("key", guest.thread).kind, Kind::last);
        static_cast<void>(table.close());
    }
}

TEST(LockTableMonitor, another_shape_is_refused_at_once) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    const Guest other{.traits = nesting(), .thread = another_thread()};
    EXPECT_EQ(other.ask(table), Outcome::wrong_key_type);
    EXPECT_EQ(unlock(table), Kind::last);
    EXPECT_EQ(other.ask(table), Outcome::turn) << "a free name has no key type";
}

TEST(LockTableMonitor, another_shape_is_refused_during_a_turn_too) {
    LockTableMonitor table;
    const auto admission = Guest{}.enter(table);
    EXPECT_EQ((Guest{.traits = nesting()}.ask(table)), Outcome::wrong_key_type);
}

TEST(LockTableMonitor, forgotten_hold_blocks_nobody_after_its_validity) {
    LockTableMonitor table;
    const auto forgotten = run_out_hold();
    Guest{}.take(table, forgotten);
    const auto admission = Guest{.wait = Wait::none(), .thread = another_thread()}.enter(table);
    EXPECT_EQ(admission.outcome, Outcome::turn);
    EXPECT_EQ(admission.expired, forgotten);
    EXPECT_EQ(table.current("key"), nullptr);
}

TEST(LockTableMonitor, forgotten_hold_does_not_keep_its_shape) {
    LockTableMonitor table;
    const auto forgotten = run_out_hold();
    Guest{}.take(table, forgotten);
    const auto admission =
        Guest{.traits = nesting(), .wait = Wait::none(), .thread = another_thread()}.enter(table);
    EXPECT_EQ(admission.outcome, Outcome::turn) << "the server's key has expired as well";
    EXPECT_EQ(admission.expired, forgotten);
}

TEST(LockTableMonitor, own_forgotten_hold_is_taken_anew) {
    for (const PolicyTraits& traits : {traits_of<Simple>(), nesting()}) {
        LockTableMonitor table;
        const auto forgotten = run_out_hold({.traits = traits});
        Guest{.traits = traits}.take(table, forgotten);
        const auto admission = Guest{.traits = traits}.enter(table);
        EXPECT_EQ(admission.outcome, Outcome::turn);
        EXPECT_EQ(admission.expired, forgotten);
    }
}

TEST(LockTableMonitor, waiter_comes_in_when_validity_ends) {
    LockTableMonitor table;
    const auto brief = taken_hold({.lease = 100ms});
    Guest{}.take(table, brief);
    const auto admission = Guest{.thread = another_thread()}.enter(table);
    EXPECT_EQ(admission.outcome, Outcome::turn);
    EXPECT_GE(Clock::now(), brief->valid_until());
    EXPECT_EQ(admission.expired, brief);
}

TEST(LockTableMonitor, waiter_goes_on_waiting_while_validity_is_renewed) {
    LockTableMonitor table;
    const auto hold = taken_hold({.lease = 100ms});
    Guest{}.take(table, hold);
    hold->confirm(Clock::now() + 100ms, 100ms);
    const auto admission = Guest{.thread = another_thread()}.enter(table);
    EXPECT_EQ(admission.outcome, Outcome::turn);
    EXPECT_GE(Clock::now(), hold->valid_until());
}

TEST(LockTableMonitor, waiter_outlasts_several_forgotten_holds) {
    LockTableMonitor table;
    const auto first = taken_hold({.lease = 100ms});
    const auto second = taken_hold({.lease = 200ms});
    Guest{}.take(table, first);
    Waiter front{[&] {
        auto admission = Guest{}.enter(table);
        EXPECT_EQ(admission.outcome, Outcome::turn);
        second->nest.push_back({.id = 2, .through = nullptr, .watched = false});
        EXPECT_TRUE(admission.turn->finish(second));
    }};
    front.wait_until_asleep();
    const auto admission = Guest{.wait = 20s, .thread = another_thread()}.enter(table);
    EXPECT_EQ(admission.outcome, Outcome::turn);
    EXPECT_GE(Clock::now(), second->valid_until());
    ASSERT_FALSE((admission.expired == nullptr));
    EXPECT_EQ(admission.expired, second);
}

TEST(LockTableMonitor, run_out_hold_is_remembered_until_returned) {
    LockTableMonitor table;
    const auto hold = run_out_hold();
    Guest{}.take(table, hold);
    const auto mine = detail::this_thread();
    { const auto admission = Guest{.thread = another_thread()}.enter(table); }
    EXPECT_EQ(table.find("key", mine), hold);
    const auto ending = table.end_innermost("key", mine);
    EXPECT_EQ(ending.kind, Kind::past);
    EXPECT_EQ(ending.hold, hold);
    EXPECT_EQ(table.find("key", mine), nullptr);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, returning_a_past_hold_leaves_the_next_holder_alone) {
    LockTableMonitor table;
    const auto old = run_out_hold();
    const auto young = taken_hold({.owner = another_thread()});
    Guest{}.take(table, old);
    Guest{.thread = another_thread()}.take(table, young);
    EXPECT_EQ(unlock(table), Kind::past);
    EXPECT_EQ(table.current("key"), young);
    EXPECT_TRUE(young->in(Phase::held));
    EXPECT_EQ(unlock(table), Kind::nothing);
}

TEST(LockTableMonitor, lost_hold_frees_the_lock_and_is_remembered) {
    LockTableMonitor table;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1}.take(table, hold);
    EXPECT_EQ((Guest{.traits = nesting(), .id = 2}.ask(table)), Outcome::nested);
    hold->advance(Phase::held, Phase::lost);
    table.lost(hold);
    table.lost(hold);
    EXPECT_EQ(table.current("key"), nullptr);
    EXPECT_EQ((Guest{.traits = nesting(), .wait = Wait::none()}.ask(table)), Outcome::turn);
    EXPECT_EQ(unlock(table), Kind::past);
    EXPECT_EQ(table.size(), 1U) << "one acquisition is left to return";
    EXPECT_EQ(unlock(table), Kind::past);
    EXPECT_EQ(unlock(table), Kind::nothing);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, lost_hold_lets_the_next_in) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    Guest{}.take(table, hold);
    Outcome answer{};
    Waiter waiter{[&] { answer = Guest{}.ask(table); }};
    waiter.wait_until_asleep();
    hold->advance(Phase::held, Phase::lost);
    table.lost(hold);
    waiter.join();
    EXPECT_EQ(answer, Outcome::turn);
}

TEST(LockTableMonitor, hold_lost_while_it_is_released_is_past) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    Guest{}.take(table, hold);
    hold->advance(Phase::held, Phase::lost);  // whoever noticed has not told the lock table yet
    EXPECT_EQ(unlock(table), Kind::past);
    table.lost(hold);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, acquisitions_end_by_id_in_any_order) {
    const std::vector<std::vector<std::uint64_t>> orders{{1, 2, 3}, {1, 3, 2}, {2, 1, 3},
                                                         {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};
    for (const auto& order : orders) {
        LockTableMonitor table;
        const auto hold = taken_hold({.traits = nesting()});
        Guest{.traits = nesting(), .id = 1, .through = nullptr}.take(table, hold);
        for (const std::uint64_t id : {2U, 3U}) {
            ASSERT_EQ((Guest{.traits = nesting(), .id = id, .through = nullptr}.ask(table)),
                      Outcome::nested);
        }
        std::uint64_t left = 3;
        for (const std::uint64_t id : order) {
            const auto ending = table.end_acquisition(*hold, id);
            --left;
            EXPECT_EQ(ending.kind, left == 0 ? Kind::last : Kind::nested);
            EXPECT_EQ(ending.count, left);
            EXPECT_EQ(ending.hold, hold);
            EXPECT_EQ(table.end_acquisition(*hold, id).kind, Kind::nothing) << "only once";
        }
        table.released(*hold);
        EXPECT_EQ(table.size(), 0U);
    }
}

TEST(LockTableMonitor, acquisition_ends_from_another_thread) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    Guest{.through = nullptr}.take(table, hold);
    std::thread{[&] { EXPECT_EQ(table.end_acquisition(*hold, 1).kind, Kind::last); }}.join();
}

TEST(LockTableMonitor, unlock_ends_what_lock_took_only) {
    LockTableMonitor table;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1}.take(table, hold);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 2, .through = nullptr}.ask(table)),
              Outcome::nested);
    EXPECT_EQ(table.end_innermost("key", another_thread()).kind, Kind::nothing);
    EXPECT_EQ(unlock(table), Kind::nested) << "the outer one: the inner one is a Held's";
    EXPECT_EQ(unlock(table), Kind::nothing);
    EXPECT_EQ(table.end_acquisition(*hold, 2).kind, Kind::last);
}

TEST(LockTableMonitor, handle_ends_what_was_taken_through_it) {
    LockTableMonitor table;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1, .through = &some_handle}.take(table, hold);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 2, .through = &other_handle}.ask(table)),
              Outcome::nested);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 3, .through = &some_handle}.ask(table)),
              Outcome::nested);
    EXPECT_EQ(table.end_one_through("key", &some_handle).kind, Kind::nested);
    EXPECT_EQ(table.end_one_through("key", &some_handle).kind, Kind::nested);
    EXPECT_EQ(table.end_one_through("key", &some_handle).kind, Kind::nothing);
    EXPECT_EQ(table.end_one_through("key", &other_handle).kind, Kind::last);
}

TEST(LockTableMonitor, nested_ending_says_whether_what_ended_wanted_renewal) {
    LockTableMonitor table;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1, .watched = false}.take(table, hold);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 2, .watched = true}.ask(table)), Outcome::nested);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 3, .watched = true}.ask(table)), Outcome::nested);
    EXPECT_TRUE(table.end_acquisition(*hold, 3).watched);
    EXPECT_FALSE(table.end_acquisition(*hold, 1).watched);
}

TEST(LockTableMonitor, nothing_is_there_to_end_or_find) {
    LockTableMonitor table;
    EXPECT_EQ(table.end_innermost("key", detail::this_thread()).kind, Kind::nothing);
    EXPECT_EQ(table.end_one_through("key", &some_handle).kind, Kind::nothing);
    EXPECT_EQ(table.end_acquisition(*taken_hold(), 1).kind, Kind::nothing);
    EXPECT_EQ(table.find("key", detail::this_thread()), nullptr);
    EXPECT_EQ(table.current("key"), nullptr);
    table.released(*taken_hold());
    table.lost(taken_hold());
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, finds_the_hold_of_the_thread_that_asks) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    Guest{}.take(table, hold);
    EXPECT_EQ(table.find("key", detail::this_thread()), hold);
    EXPECT_EQ(table.find("key", another_thread()), nullptr);
    EXPECT_EQ(table.find("other", detail::this_thread()), nullptr);
}

TEST(LockTableMonitor, a_hundred_thousand_idle_names_leave_nothing) {
    LockTableMonitor table;
    for (int i = 0; i < 100'000; ++i) {
        const std::string key = std::to_string(i);
        const auto hold = taken_hold({.key = key});
        Guest{.key = key}.take(table, hold);
        ASSERT_EQ(unlock(table, key), Kind::last);
    }
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, a_hundred_thousand_names_at_once_leave_nothing) {
    LockTableMonitor table;
    constexpr int names = 100'000;
    for (int i = 0; i < names; ++i) {
        const std::string key = std::to_string(i);
        Guest{.key = key}.take(table, taken_hold({.key = key}));
    }
    EXPECT_EQ(table.size(), static_cast<std::size_t>(names));
    for (int i = 0; i < names; ++i) ASSERT_EQ(unlock(table, std::to_string(i)), Kind::last);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, excludes_under_load) {
    LockTableMonitor table;
    int inside = 0;  // guarded by the lock that is tested
    int entered = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i) {
                auto admission = Guest{}.enter(table);
                ASSERT_EQ(admission.outcome, Outcome::turn);
                ASSERT_EQ(++inside, 1);
                ++entered;
                if (i % 3 == 0) {
                    --inside;
                    continue;  // the turn ends without a hold
                }
                const auto hold = taken_hold();
                hold->nest.push_back(Guest{}.acquisition());
                ASSERT_TRUE(admission.turn->finish(hold));
                --inside;
                ASSERT_EQ(unlock(table), Kind::last);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(entered, 6 * 200);
    EXPECT_EQ(table.size(), 0U);
}

}  // namespace
