#include "gate_tools.hpp"
#include "service_tools.hpp"
#include "support/wait.hpp"
#include <redlatch/service/gate.hpp>

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
using detail::Gate;
using detail::Grant;
using detail::Hold;
using detail::Phase;
using detail::PolicyTraits;
using detail::saturating_add;
using detail::ThreadSerial;
using detail::TimePoint;
using detail::traits_of;
using Answer = Gate::Answer;
using Woken = Gate::Woken;
using Kind = Gate::Ending::Kind;

const int some_handle = 0;
const int other_handle = 0;

/// One who asks for a lock, with what the tests change first.
struct Guest {
    std::string key = "key";
    PolicyTraits traits = traits_of<Simple>();
    Wait wait = Wait::unlimited();
    std::stop_token stop{};
    ThreadSerial thread = detail::this_thread_serial();
    std::uint64_t id = 1;
    const void* through = &some_handle;
    bool watched = false;
    // Other than a hold's in these tests: then the lock is released between two of them.
    Lease lease = 2h;
    unsigned local_handoffs = 0;
    bool others_poll = false;
    Owner owner = Owner::thread;

    Acquisition acquisition() const { return {id, through, watched}; }

    Gate::Admission enter(Gate& gate) const {
        const detail::HoldTerms terms = terms_of({.key = key, .traits = traits, .lease = lease});
        return gate.enter({.terms = terms,
                           .thread = thread,
                           .wait = wait,
                           .deadline = saturating_add(
                               Clock::now(), std::max(wait.duration(), Clock::duration::zero())),
                           .stop = stop,
                           .acquisition = acquisition(),
                           .handoffs = {.in_row = local_handoffs, .others_poll = others_poll},
                           .owner = owner});
    }

    Answer ask(Gate& gate) const { return enter(gate).answer; }

    /// The same request from the thread that calls this.
    Guest from_here() const {
        Guest guest = *this;
        guest.thread = detail::this_thread_serial();
        return guest;
    }

    /// Takes the lock, as if the server had given it to `hold`.
    void take(Gate& gate, const std::shared_ptr<Hold>& hold) const {
        auto admission = enter(gate);
        ASSERT_EQ(admission.answer, Answer::turn);
        hold->nest.push_back(acquisition());
        ASSERT_TRUE(admission.turn->finish(hold));
    }
};

void expect_free(Gate& gate, const std::string& key = "key") {
    EXPECT_EQ((Guest{.key = key, .wait = Wait::none(), .thread = another_thread()}.ask(gate)),
              Answer::turn);
}

/// Ends the innermost acquisition and, where it was the last, frees the lock.
Kind unlock(Gate& gate, const std::string& key = "key") {
    const auto ending = gate.end_innermost(key, detail::this_thread_serial());
    if (ending.kind == Kind::last) {
        ending.hold->advance(Phase::releasing, Phase::released);
        gate.released(*ending.hold);
    }
    return ending.kind;
}

TEST(Gate, free_name_gives_a_turn_at_once) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    EXPECT_EQ(admission.answer, Answer::turn);
    EXPECT_TRUE(admission.turn);
    EXPECT_TRUE(admission.run_out.empty());
    EXPECT_EQ(gate.size(), 1U);
    admission.turn.reset();
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, turn_excludes_others) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    const Guest other{.wait = Wait::none(), .thread = another_thread()};
    EXPECT_EQ(other.ask(gate), Answer::busy);
    admission.turn.reset();
    EXPECT_EQ(other.ask(gate), Answer::turn);
}

TEST(Gate, turn_that_moved_ends_once) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    {
        const Gate::Turn turn = *std::move(admission.turn);
        admission.turn.reset();
        EXPECT_EQ((Guest{.wait = Wait::none()}.ask(gate)), Answer::busy);
    }
    expect_free(gate);
}

TEST(Gate, hold_excludes_others) {
    Gate gate;
    const auto hold = taken_hold();
    Guest{}.take(gate, hold);
    EXPECT_EQ((Guest{.wait = Wait::none(), .thread = another_thread()}.ask(gate)), Answer::busy);
    EXPECT_EQ(gate.current("key"), hold);
    EXPECT_EQ(unlock(gate), Kind::last);
    EXPECT_EQ(gate.current("key"), nullptr);
    EXPECT_EQ(gate.size(), 0U);
    expect_free(gate);
}

TEST(Gate, stays_closed_until_the_release_is_answered) {
    Gate gate;
    Guest{}.take(gate, taken_hold());
    const auto ending = gate.end_innermost("key", detail::this_thread_serial());
    ASSERT_EQ(ending.kind, Kind::last);
    EXPECT_TRUE(ending.hold->in(Phase::releasing));
    EXPECT_EQ((Guest{.wait = Wait::none(), .thread = another_thread()}.ask(gate)), Answer::busy);
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(gate)), Answer::busy) << "no nesting either";
    gate.released(*ending.hold);
    expect_free(gate);
}

TEST(Gate, zero_or_negative_wait_is_busy_at_once) {
    Gate gate;
    Guest{}.take(gate, taken_hold());
    for (const Wait wait : {Wait::none(), Wait{-1h}, Wait{std::chrono::hours::min()}}) {
        EXPECT_EQ((Guest{.wait = wait, .thread = another_thread()}.ask(gate)), Answer::busy);
    }
}

TEST(Gate, waiter_is_busy_at_its_deadline) {
    Gate gate;
    Guest{}.take(gate, taken_hold());
    const TimePoint began = Clock::now();
    EXPECT_EQ((Guest{.wait = 30ms, .thread = another_thread()}.ask(gate)), Answer::busy);
    EXPECT_GE(Clock::now() - began, 30ms);
    EXPECT_EQ(unlock(gate), Kind::last);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, busy_behind_a_fault_tells_the_fault) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    const Guest other{.wait = 1ms, .thread = another_thread()};
    EXPECT_EQ(other.enter(gate).fault, nullptr);
    const auto fault = std::make_shared<const Error>(Error{Errc::unavailable, {}, {}, {}, {}});
    admission.turn->met(fault);
    EXPECT_EQ(other.enter(gate).fault, fault);
    admission.turn->met(nullptr);
    EXPECT_EQ(other.enter(gate).fault, nullptr) << "the server answered since";
    admission.turn->met(fault);
    admission.turn->finish(taken_hold());
    EXPECT_EQ(other.enter(gate).fault, nullptr) << "somebody holds it";
}

TEST(Gate, waiters_are_served_first_come_first_served) {
    Gate gate;
    std::mutex mutex;
    std::vector<int> order;
    auto first = Guest{}.enter(gate);
    std::vector<std::unique_ptr<Waiter>> waiters;
    for (int i = 0; i < 8; ++i) {
        waiters.push_back(std::make_unique<Waiter>([&, i] {
            const auto admission = Guest{}.enter(gate);
            const std::lock_guard lock{mutex};
            if (admission.answer == Answer::turn) order.push_back(i);
        }));
        waiters.back()->wait_until_asleep();
    }
    first.turn.reset();
    for (const auto& waiter : waiters) waiter->join();
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, waiters_follow_a_release_in_order_too) {
    Gate gate;
    std::mutex mutex;
    std::vector<int> order;
    Guest{}.take(gate, taken_hold());
    std::vector<std::unique_ptr<Waiter>> waiters;
    for (int i = 0; i < 4; ++i) {
        waiters.push_back(std::make_unique<Waiter>([&, i] {
            Guest{}.take(gate, taken_hold());
            {
                const std::lock_guard lock{mutex};
                order.push_back(i);
            }
            EXPECT_EQ(unlock(gate), Kind::last);
        }));
        waiters.back()->wait_until_asleep();
    }
    EXPECT_EQ(unlock(gate), Kind::last);
    for (const auto& waiter : waiters) waiter->join();
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3}));
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, nobody_overtakes_the_queue) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    std::atomic<bool> go{false};
    Waiter waiter{[&] {
        const auto admission = Guest{}.enter(gate);
        EXPECT_EQ(admission.answer, Answer::turn);
        EXPECT_TRUE(eventually([&go] { return go.load(); }));
    }};
    waiter.wait_until_asleep();
    first.turn.reset();
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(gate)), Answer::busy);
    go = true;
}

TEST(Gate, stop_ends_the_wait) {
    Gate gate;
    const auto hold = taken_hold();
    Guest{}.take(gate, hold);
    std::stop_source source;
    Answer answer{};
    Waiter waiter{[&] { answer = Guest{.stop = source.get_token()}.ask(gate); }};
    waiter.wait_until_asleep();
    EXPECT_FALSE(waiter.done());
    source.request_stop();
    waiter.join();
    EXPECT_EQ(answer, Answer::cancelled);
    EXPECT_EQ(gate.current("key"), hold);
}

TEST(Gate, stop_asked_for_before_ends_the_wait_at_once) {
    Gate gate;
    Guest{}.take(gate, taken_hold());
    std::stop_source source;
    source.request_stop();
    EXPECT_EQ((Guest{.stop = source.get_token(), .thread = another_thread()}.ask(gate)),
              Answer::cancelled);
}

TEST(Gate, front_waiter_that_leaves_does_not_hold_up_the_next) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    std::stop_source source;
    Answer front{};
    Answer next{};
    Waiter leaving{[&] { front = Guest{.stop = source.get_token()}.ask(gate); }};
    leaving.wait_until_asleep();
    Waiter staying{[&] { next = Guest{}.ask(gate); }};
    staying.wait_until_asleep();
    source.request_stop();
    leaving.join();
    first.turn.reset();
    staying.join();
    EXPECT_EQ(front, Answer::cancelled);
    EXPECT_EQ(next, Answer::turn);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, waiter_in_the_middle_may_leave) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    Answer front{};
    Answer middle{};
    Answer last{};
    std::stop_source source;
    Waiter a{[&] { front = Guest{}.ask(gate); }};
    a.wait_until_asleep();
    Waiter b{[&] { middle = Guest{.stop = source.get_token()}.ask(gate); }};
    b.wait_until_asleep();
    Waiter c{[&] { last = Guest{}.ask(gate); }};
    c.wait_until_asleep();
    source.request_stop();
    b.join();
    first.turn.reset();
    a.join();
    c.join();
    EXPECT_EQ(front, Answer::turn);
    EXPECT_EQ(middle, Answer::cancelled);
    EXPECT_EQ(last, Answer::turn);
}

TEST(Gate, unrelated_names_do_not_wait_for_each_other) {
    Gate gate;
    Guest{.key = "a"}.take(gate, taken_hold({.key = "a"}));
    Answer answer{};
    std::stop_source source;
    Waiter waiter{[&] { answer = Guest{.key = "a", .stop = source.get_token()}.ask(gate); }};
    waiter.wait_until_asleep();
    Guest{.key = "b"}.take(gate, taken_hold({.key = "b"}));
    EXPECT_EQ(unlock(gate, "b"), Kind::last);
    EXPECT_FALSE(waiter.done());
    source.request_stop();
}

TEST(Gate, names_are_bytes) {
    Gate gate;
    const std::string with_nul{"a\0b", 3};
    Guest{.key = with_nul}.take(gate, taken_hold({.key = with_nul}));
    expect_free(gate, "a");
    expect_free(gate, std::string{"a\0c", 3});
    EXPECT_EQ(unlock(gate, with_nul), Kind::last);
}

TEST(Gate, closing_ends_all_waiting_and_tells_what_is_held) {
    Gate gate;
    const auto a = taken_hold({.key = "a"});
    const auto b = taken_hold({.key = "b"});
    Guest{.key = "a"}.take(gate, a);
    Guest{.key = "b"}.take(gate, b);
    Answer answers[2]{};
    Waiter first{[&] { answers[0] = Guest{.key = "a"}.ask(gate); }};
    first.wait_until_asleep();
    Waiter second{[&] { answers[1] = Guest{.key = "a"}.ask(gate); }};
    second.wait_until_asleep();
    const auto holds = gate.close().holds;
    first.join();
    second.join();
    EXPECT_EQ(answers[0], Answer::closed);
    EXPECT_EQ(answers[1], Answer::closed);
    ASSERT_EQ(holds.size(), 2U);
    EXPECT_TRUE((holds[0] == a && holds[1] == b) || (holds[0] == b && holds[1] == a));
}

TEST(Gate, closed_lets_nobody_in) {
    Gate gate;
    EXPECT_TRUE(gate.close().holds.empty());
    EXPECT_EQ(Guest{}.ask(gate), Answer::closed);
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(gate)), Answer::closed);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, turn_finished_after_closing_is_no_hold) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    EXPECT_TRUE(gate.close().holds.empty());
    EXPECT_FALSE(admission.turn->finish(taken_hold()));
    EXPECT_EQ(gate.current("key"), nullptr);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, pause_lasts_until_its_end) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    const TimePoint until = Clock::now() + 20ms;
    EXPECT_EQ(admission.turn->pause(until, {}), Woken::in_time);
    EXPECT_GE(Clock::now(), until);
    EXPECT_EQ(admission.turn->pause(Clock::now() - 1h, {}), Woken::in_time)
        << "over before it began";
}

TEST(Gate, pause_is_cut_short_by_a_stop) {
    Gate gate;
    std::stop_source source;
    Woken woken{};
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(gate);
        woken = admission.turn->pause(TimePoint::max(), source.get_token());
    }};
    waiter.wait_until_asleep();
    source.request_stop();
    waiter.join();
    EXPECT_EQ(woken, Woken::cancelled);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, pause_is_cut_short_by_closing) {
    Gate gate;
    Woken woken{};
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(gate);
        woken = admission.turn->pause(TimePoint::max(), {});
    }};
    waiter.wait_until_asleep();
    static_cast<void>(gate.close());
    waiter.join();
    EXPECT_EQ(woken, Woken::closed);
}

TEST(Gate, late_message_about_a_lock_on_its_way_to_the_next_thread_is_no_stranger) {
    Gate gate;
    const auto hold = taken_hold({.lease = 2h, .token = "t"});
    Guest{}.take(gate, hold);
    std::atomic<bool> known{false};
    Waiter heir{[&] {
        const auto admission = Guest{.thread = another_thread()}.enter(gate);
        if (admission.answer != Answer::handed) return;
        const detail::Grant late{
            .ttl = 1s, .time = 1us, .server = "-", .key_type = 's', .token = "t", .key = "key"};
        known = gate.deliver(late);
    }};
    heir.wait_until_asleep();
    const auto ending = gate.end_innermost("key", detail::this_thread_serial());
    ASSERT_TRUE(ending.kind == Kind::handed || ending.has_heir);
    if (ending.kind == Kind::last) {
        EXPECT_TRUE(gate.moved(*hold, {hold->token(), Clock::now()}, false));
    }
    heir.join();
    EXPECT_TRUE(known);
}

TEST(Gate, lock_with_a_fencing_token_passes_on_only_with_another_one) {
    Gate gate;
    const PolicyTraits traits = traits_of<Fenced<Simple>>();
    const auto hold = asked_hold({.traits = traits, .lease = 2h});
    hold->taken(Clock::now(), Clock::now() + 1min);  // without a number it would pass in silence
    hold->fence = 6;
    Guest{.traits = traits}.take(gate, hold);
    std::atomic<std::uint64_t> fence{0};
    Waiter heir{[&] {
        const auto admission = Guest{.traits = traits, .thread = another_thread()}.enter(gate);
        if (admission.answer == Answer::handed) fence = admission.hold->fence;
    }};
    heir.wait_until_asleep();
    const auto ending = gate.end_innermost("key", detail::this_thread_serial());
    EXPECT_EQ(ending.kind, Kind::last);
    EXPECT_TRUE(ending.has_heir);
    EXPECT_TRUE(
        gate.moved(*hold, {.token = {"next"}, .refreshed = Clock::now(), .fence = 7}, false));
    heir.join();
    EXPECT_EQ(fence, 7U);
}

TEST(Gate, pausing_thread_keeps_its_turn) {
    Gate gate;
    std::stop_source source;
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(gate);
        static_cast<void>(admission.turn->pause(TimePoint::max(), source.get_token()));
    }};
    waiter.wait_until_asleep();
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(gate)), Answer::busy);
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

TEST(Gate, grant_before_the_pause_begins_is_not_missed) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    auto& turn = *admission.turn;
    EXPECT_FALSE(gate.deliver(grant_for("mine"))) << "not announced yet";
    turn.announce(*asked_hold({.token = "mine"}));
    EXPECT_TRUE(gate.deliver(grant_for("mine")));
    EXPECT_EQ(turn.pause(TimePoint::max(), {}), Woken::granted);
    const auto grant = turn.take_grant();
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->token, "mine");
    EXPECT_EQ(grant->ttl, 1h);
    EXPECT_FALSE(turn.take_grant()) << "only once";
    EXPECT_EQ(turn.pause(Clock::now(), {}), Woken::in_time);
}

TEST(Gate, grant_ends_the_pause) {
    Gate gate;
    Woken woken{};
    std::optional<Grant> grant;
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(gate);
        admission.turn->announce(*asked_hold({.token = "mine"}));
        woken = admission.turn->pause(TimePoint::max(), {});
        grant = admission.turn->take_grant();
    }};
    waiter.wait_until_asleep();
    EXPECT_FALSE(gate.deliver(grant_for("yours")));
    EXPECT_FALSE(gate.deliver(grant_for("mine", "other key")));
    EXPECT_FALSE(gate.deliver(grant_for("")));
    EXPECT_FALSE(waiter.done());
    EXPECT_TRUE(gate.deliver(grant_for("mine")));
    waiter.join();
    EXPECT_EQ(woken, Woken::granted);
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->token, "mine");
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, grant_wakes_nobody_else) {
    Gate gate;
    std::stop_source source;
    Woken woken{};
    Waiter waiter{[&] {
        auto admission = Guest{.key = "other"}.enter(gate);
        admission.turn->announce(*asked_hold({.key = "other", .token = "other"}));
        woken = admission.turn->pause(TimePoint::max(), source.get_token());
    }};
    waiter.wait_until_asleep();
    auto admission = Guest{}.enter(gate);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    EXPECT_TRUE(gate.deliver(grant_for("mine")));
    source.request_stop();
    waiter.join();
    EXPECT_EQ(woken, Woken::cancelled);
}

TEST(Gate, announced_anew_knows_the_new_token_only) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    admission.turn->announce(*asked_hold({.token = "old"}));
    admission.turn->announce(*asked_hold({.token = "new"}));
    EXPECT_FALSE(gate.deliver(grant_for("old")));
    EXPECT_TRUE(gate.deliver(grant_for("new")));
}

TEST(Gate, grant_for_what_is_held_is_known_and_disturbs_nobody) {
    Gate gate;
    const auto hold = taken_hold({.token = "mine"});
    Guest{}.take(gate, hold);
    EXPECT_TRUE(gate.deliver(grant_for("mine")));
    EXPECT_FALSE(gate.deliver(grant_for("yours")));
    EXPECT_EQ(unlock(gate), Kind::last);
    EXPECT_EQ(gate.size(), 0U);

    auto next = Guest{}.enter(gate);
    EXPECT_EQ(next.turn->pause(Clock::now(), {}), Woken::in_time) << "nothing of it is left";
}

TEST(Gate, grant_is_unknown_after_the_hold) {
    Gate gate;
    Guest{}.take(gate, taken_hold({.token = "mine"}));
    EXPECT_EQ(unlock(gate), Kind::last);
    EXPECT_FALSE(gate.deliver(grant_for("mine")));

    const auto lost = taken_hold({.token = "mine"});
    Guest{}.take(gate, lost);
    lost->advance(Phase::held, Phase::lost);
    gate.lost(lost);
    EXPECT_EQ(gate.size(), 1U) << "it has yet to be returned";
    EXPECT_FALSE(gate.deliver(grant_for("mine")));
}

TEST(Gate, grant_is_unknown_after_the_turn) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    admission.turn.reset();
    EXPECT_FALSE(gate.deliver(grant_for("mine")));
    EXPECT_EQ(gate.size(), 0U);
    Guest{}.take(gate, taken_hold({.token = "other"}));
    EXPECT_FALSE(gate.deliver(grant_for("mine")));
}

TEST(Gate, closing_and_a_stop_come_before_a_grant) {
    std::stop_source source;
    source.request_stop();
    Gate gate;
    auto admission = Guest{}.enter(gate);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    EXPECT_TRUE(gate.deliver(grant_for("mine")));
    EXPECT_EQ(admission.turn->pause(TimePoint::max(), source.get_token()), Woken::cancelled);
    static_cast<void>(gate.close());
    EXPECT_EQ(admission.turn->pause(TimePoint::max(), {}), Woken::closed);
}

TEST(Gate, recheck_ends_the_pause_of_who_waits_at_the_server) {
    Gate gate;
    Woken first{};
    Woken second{};
    Waiter waiter{[&] {
        auto admission = Guest{}.enter(gate);
        admission.turn->announce(*asked_hold({.token = "mine"}));
        first = admission.turn->pause(TimePoint::max(), {});
        second = admission.turn->pause(Clock::now(), {});
    }};
    waiter.wait_until_asleep();
    gate.recheck_all(Clock::now());
    waiter.join();
    EXPECT_EQ(first, Woken::recheck);
    EXPECT_EQ(second, Woken::in_time) << "once is enough";
}

TEST(Gate, recheck_asked_for_before_the_pause_is_not_missed) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    gate.recheck_all(Clock::now());
    EXPECT_EQ(admission.turn->pause(TimePoint::max(), {}), Woken::recheck);
}

TEST(Gate, recheck_does_not_concern_who_has_no_place) {
    Gate gate;
    gate.recheck_all(Clock::now());
    auto admission = Guest{}.enter(gate);
    gate.recheck_all(Clock::now() - 1h);
    EXPECT_EQ(admission.turn->pause(Clock::now(), {}), Woken::in_time);
    Guest{.key = "held"}.take(gate, taken_hold({.key = "held"}));
    gate.recheck_all(Clock::now() - 1h);
    EXPECT_EQ(unlock(gate, "held"), Kind::last);
}

TEST(Gate, recheck_does_not_outlive_its_turn) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    first.turn->announce(*asked_hold({.token = "mine"}));
    Woken woken{};
    Waiter heir{[&] { woken = Guest{}.enter(gate).turn->pause(Clock::now(), {}); }};
    heir.wait_until_asleep();
    gate.recheck_all(Clock::now() - 1h);
    EXPECT_TRUE(first.turn->bequeath(false));
    heir.join();
    EXPECT_EQ(woken, Woken::in_time) << "the heir asks anyhow";
}

TEST(Gate, recheck_of_many_is_spread_over_a_second) {
    constexpr int names = 1000;
    Gate gate;
    std::vector<Gate::Admission> admissions;
    for (int i = 0; i < names; ++i) {
        const std::string key = std::to_string(i);
        admissions.push_back(Guest{.key = key}.enter(gate));
        admissions.back().turn->announce(*asked_hold({.key = key}));
    }
    // How many are to ask by now, if that began a while ago.
    const auto due_after = [&](Clock::duration since) {
        gate.recheck_all(Clock::now() - since);
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

TEST(Gate, knows_whether_there_are_heirs) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    EXPECT_FALSE(first.turn->has_heirs());
    std::stop_source source;
    Waiter heir{[&] { EXPECT_EQ(Guest{.stop = source.get_token()}.ask(gate), Answer::cancelled); }};
    heir.wait_until_asleep();
    EXPECT_TRUE(first.turn->has_heirs());
    Guest{.key = "other"}.take(gate, taken_hold({.key = "other"}));
    source.request_stop();
    heir.join();
    EXPECT_FALSE(first.turn->has_heirs());
}

TEST(Gate, fresh_turn_inherits_nothing) {
    Gate gate;
    EXPECT_FALSE(Guest{}.enter(gate).turn->inherited());
}

TEST(Gate, heir_gets_the_place_in_the_servers_queue) {
    for (const bool unclear : {false, true}) {
        Gate gate;
        const auto hold = asked_hold({.token = "mine"});
        auto first = Guest{}.enter(gate);
        first.turn->announce(*hold);
        std::optional<detail::Ticket> ticket;
        Waiter heir{[&] {
            auto admission = Guest{}.enter(gate);
            ASSERT_EQ(admission.answer, Answer::turn);
            ticket = admission.turn->inherited();
        }};
        heir.wait_until_asleep();
        EXPECT_TRUE(first.turn->bequeath(unclear));
        heir.join();
        ASSERT_TRUE(ticket);
        EXPECT_EQ(ticket->token.bytes, "mine");
        EXPECT_EQ(ticket->terms.traits.scripts, &hold->scripts());
        EXPECT_EQ(ticket->unclear_try, unclear);
        EXPECT_EQ(gate.size(), 0U) << "the heir left no heir";
    }
}

TEST(Gate, place_goes_through_many_hands) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    first.turn->announce(*asked_hold({.token = "mine"}));
    std::vector<std::unique_ptr<Waiter>> heirs;
    std::vector<std::string> tokens(4);
    std::vector<char> bequeathed(4);
    for (std::size_t i = 0; i < 4; ++i) {
        heirs.push_back(std::make_unique<Waiter>([&, i] {
            auto admission = Guest{}.enter(gate);
            const auto ticket = admission.turn->inherited();
            if (ticket) tokens[i] = ticket->token.bytes;
            bequeathed[i] = admission.turn->bequeath(true) ? 'y' : 'n';
        }));
        heirs.back()->wait_until_asleep();
    }
    EXPECT_TRUE(first.turn->bequeath(false));
    for (const auto& heir : heirs) heir->join();
    EXPECT_EQ(tokens, (std::vector<std::string>{"mine", "mine", "mine", "mine"}));
    EXPECT_EQ(bequeathed, (std::vector{'y', 'y', 'y', 'n'}));
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, grant_during_the_handover_reaches_the_heir) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    first.turn->announce(*asked_hold({.token = "mine"}));
    std::atomic<bool> go{false};
    Woken woken{};
    Waiter heir{[&] {
        auto admission = Guest{}.enter(gate);
        EXPECT_TRUE(eventually([&go] { return go.load(); }));
        woken = admission.turn->pause(TimePoint::max(), {});
    }};
    heir.wait_until_asleep();
    EXPECT_TRUE(first.turn->bequeath(false));
    EXPECT_TRUE(gate.deliver(grant_for("mine"))) << "whether the heir is awake by now or not";
    go = true;
    heir.join();
    EXPECT_EQ(woken, Woken::granted);
}

TEST(Gate, grant_for_the_one_before_is_not_inherited) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    first.turn->announce(*asked_hold({.token = "mine"}));
    EXPECT_TRUE(gate.deliver(grant_for("mine")));
    Woken woken{};
    Waiter heir{[&] { woken = Guest{}.enter(gate).turn->pause(Clock::now(), {}); }};
    heir.wait_until_asleep();
    EXPECT_TRUE(first.turn->bequeath(false));
    heir.join();
    EXPECT_EQ(woken, Woken::in_time) << "the heir asks the server first, by its own measure";
}

TEST(Gate, without_heirs_nothing_is_bequeathed) {
    Gate gate;
    auto admission = Guest{}.enter(gate);
    admission.turn->announce(*asked_hold({.token = "mine"}));
    EXPECT_FALSE(admission.turn->bequeath(true));
    EXPECT_EQ(gate.size(), 0U);
    EXPECT_FALSE(gate.deliver(grant_for("mine")));
    EXPECT_FALSE(Guest{}.enter(gate).turn->inherited());
}

TEST(Gate, without_a_place_the_heir_gets_the_turn_only) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    bool inherited = true;
    Waiter heir{[&] { inherited = Guest{}.enter(gate).turn->inherited().has_value(); }};
    heir.wait_until_asleep();
    EXPECT_FALSE(first.turn->bequeath(true));
    heir.join();
    EXPECT_FALSE(inherited);
}

TEST(Gate, turn_that_just_ends_leaves_no_place) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    first.turn->announce(*asked_hold({.token = "mine"}));
    bool inherited = true;
    Waiter heir{[&] { inherited = Guest{}.enter(gate).turn->inherited().has_value(); }};
    heir.wait_until_asleep();
    first.turn.reset();
    heir.join();
    EXPECT_FALSE(inherited);
}

TEST(Gate, hold_leaves_no_place) {
    Gate gate;
    const auto hold = taken_hold({.token = "mine"});
    auto first = Guest{}.enter(gate);
    first.turn->announce(*hold);
    hold->nest.push_back(Guest{}.acquisition());
    bool inherited = true;
    Waiter heir{[&] { inherited = Guest{}.enter(gate).turn->inherited().has_value(); }};
    heir.wait_until_asleep();
    ASSERT_TRUE(first.turn->finish(hold));
    EXPECT_TRUE(gate.deliver(grant_for("mine"))) << "late, but known";
    EXPECT_EQ(unlock(gate), Kind::last);
    heir.join();
    EXPECT_FALSE(inherited);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, closed_bequeaths_nothing) {
    Gate gate;
    auto first = Guest{}.enter(gate);
    first.turn->announce(*asked_hold({.token = "mine"}));
    Answer answer{};
    Waiter heir{[&] { answer = Guest{}.ask(gate); }};
    heir.wait_until_asleep();
    static_cast<void>(gate.close());
    EXPECT_FALSE(first.turn->bequeath(false));
    heir.join();
    EXPECT_EQ(answer, Answer::closed);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, closing_returns_each_place_that_its_heir_has_not_taken) {
    // The heir or the closing thread may be faster; the place is never forgotten.
    for (int round = 0; round < 200; ++round) {
        Gate gate;
        auto first = Guest{}.enter(gate);
        first.turn->announce(*asked_hold({.token = "mine"}));
        bool inherited = false;
        Waiter heir{[&] {
            auto admission = Guest{}.enter(gate);
            inherited = admission.turn && admission.turn->inherited();
        }};
        ASSERT_TRUE(eventually([&] { return first.turn->has_heirs(); }));
        ASSERT_TRUE(first.turn->bequeath(true));
        const auto places = gate.close().places;
        heir.join();
        ASSERT_EQ(places.size(), inherited ? 0U : 1U);
        if (inherited) continue;
        EXPECT_EQ(places[0].token.bytes, "mine");
        EXPECT_EQ(places[0].terms.keys->lock, "key");
        EXPECT_TRUE(places[0].unclear_try);
    }
}

TEST(Gate, hold_that_was_lost_before_its_turn_ended_blocks_nobody) {
    Gate gate;
    const auto hold = taken_hold();
    auto admission = Guest{}.enter(gate);
    hold->nest.push_back(Guest{}.acquisition());
    ASSERT_TRUE(hold->advance(Phase::held, Phase::lost));  // as a service declares it
    gate.lost(hold);
    ASSERT_TRUE(admission.turn->finish(hold));
    EXPECT_EQ(gate.current("key"), nullptr);
    EXPECT_EQ(gate.find("key", detail::this_thread_serial()), hold)
        << "its thread can see the loss";
    expect_free(gate);
    EXPECT_EQ(unlock(gate), Kind::past);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, waiter_behind_a_hand_over_has_its_turn_when_the_new_hold_runs_out) {
    Gate gate;
    const auto hold = taken_hold({.lease = 300ms});
    const Guest guest{.lease = 300ms, .local_handoffs = 100};
    guest.take(gate, hold);
    hold->confirm(Clock::now(), 1h);  // an extension, which the next hold does not inherit
    Answer second{};
    Answer third{};
    Waiter hanging{[&] { second = guest.from_here().ask(gate); }};  // and never releases
    hanging.wait_until_asleep();
    Waiter behind{[&] { third = guest.from_here().ask(gate); }};
    behind.wait_until_asleep();
    const auto ending = gate.end_innermost("key", detail::this_thread_serial());
    if (ending.kind == Kind::last) {  // too slow for a hand-over without a command
        ASSERT_TRUE(gate.moved(*hold, {{"next"}, Clock::now()}, false));
    }
    hanging.join();
    EXPECT_EQ(second, Answer::handed);
    EXPECT_TRUE(eventually([&] { return behind.done(); }));
    static_cast<void>(gate.close());  // ends a wait that goes on for ever
    behind.join();
    EXPECT_EQ(third, Answer::turn);
}

TEST(Gate, waiter_behind_waiters_needs_no_call_to_become_the_one_in_front) {
    // The first to wait has a long lease to look at, the one that gets the lock a short one.
    Gate gate;
    const auto hold = taken_hold({.lease = 1h});
    Guest{}.take(gate, hold);
    const Guest brief{.lease = 300ms, .local_handoffs = 100};
    Answer answer{};
    std::stop_source source;
    Waiter leaving{[&] { Guest{.stop = source.get_token()}.ask(gate); }};
    leaving.wait_until_asleep();
    Waiter next{[&] { brief.from_here().take(gate, taken_hold({.lease = 300ms})); }};
    next.wait_until_asleep();
    Waiter last{[&] { answer = brief.from_here().ask(gate); }};
    last.wait_until_asleep();
    source.request_stop();
    leaving.join();
    EXPECT_EQ(unlock(gate), Kind::last);
    next.join();
    EXPECT_TRUE(eventually([&] { return last.done(); }));
    static_cast<void>(gate.close());
    last.join();
    EXPECT_EQ(answer, Answer::turn);
}

TEST(Gate, heir_takes_the_place_even_if_it_has_just_been_stopped_or_run_out_of_time) {
    // Else the place would be nobody's. Who is faster, differs from round to round.
    for (int round = 0; round < 60; ++round) {
        Gate gate;
        auto first = Guest{}.enter(gate);
        first.turn->announce(*asked_hold({.token = "mine"}));
        std::stop_source source;
        Answer answer{};
        bool inherited = false;
        const Wait wait = round % 2 == 0 ? Wait{5ms} : Wait::unlimited();
        Waiter heir{[&] {
            auto admission = Guest{.wait = wait, .stop = source.get_token()}.enter(gate);
            answer = admission.answer;
            inherited = admission.turn && admission.turn->inherited();
        }};
        if (round % 2 == 0) {
            EXPECT_TRUE(eventually([&] { return first.turn->has_heirs() || heir.done(); }));
            const TimePoint about_its_end = Clock::now() + 4700us + round * 10us;
            while (Clock::now() < about_its_end) {
            }
        } else {
            EXPECT_TRUE(eventually([&] { return first.turn->has_heirs(); }));
            source.request_stop();
        }
        const bool bequeathed = first.turn->bequeath(false);
        heir.join();
        ASSERT_EQ(inherited, bequeathed);
        ASSERT_TRUE(!bequeathed || answer == Answer::turn);
        ASSERT_EQ(gate.size(), 0U);
    }
}

const PolicyTraits& nesting() {
    static const PolicyTraits traits = traits_of<Reentrant>();
    return traits;
}

TEST(Gate, reentrant_nests_in_its_thread) {
    Gate gate;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1}.take(gate, hold);
    for (const std::uint64_t id : {2U, 3U}) {
        const auto admission =
            Guest{.traits = nesting(), .wait = Wait::none(), .id = id}.enter(gate);
        EXPECT_EQ(admission.answer, Answer::nested);
        EXPECT_EQ(admission.hold, hold);
        EXPECT_EQ(admission.count, id);
        EXPECT_FALSE(admission.turn);
    }
    EXPECT_EQ(unlock(gate), Kind::nested);
    EXPECT_EQ(unlock(gate), Kind::nested);
    EXPECT_EQ(unlock(gate), Kind::last);
    EXPECT_EQ(unlock(gate), Kind::nothing);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, reentrant_excludes_other_threads) {
    Gate gate;
    Guest{.traits = nesting()}.take(gate, taken_hold({.traits = nesting()}));
    EXPECT_EQ((Guest{.traits = nesting(), .wait = 1ms, .thread = another_thread()}.ask(gate)),
              Answer::busy);
}

TEST(Gate, own_lock_without_limit_is_a_deadlock) {
    Gate gate;
    Guest{}.take(gate, taken_hold());
    EXPECT_EQ(Guest{}.ask(gate), Answer::deadlock);
    EXPECT_EQ((Guest{.wait = std::chrono::hours::max()}.ask(gate)), Answer::deadlock);
    EXPECT_EQ(unlock(gate), Kind::last);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, own_lock_with_a_limit_is_busy) {
    Gate gate;
    Guest{}.take(gate, taken_hold());
    EXPECT_EQ((Guest{.wait = Wait::none()}.ask(gate)), Answer::busy);
    EXPECT_EQ((Guest{.wait = 5ms}.ask(gate)), Answer::busy);
}

/// A hold that no thread owns.
std::shared_ptr<Hold> hold_of_no_thread(const PolicyTraits& traits) {
    return taken_hold({.traits = traits, .thread = detail::no_thread});
}

TEST(Gate, hold_of_no_thread_excludes_the_thread_that_took_it) {
    for (const PolicyTraits& traits : {traits_of<Simple>(), nesting()}) {
        Gate gate;
        const Guest guest{.traits = traits, .wait = 5ms, .owner = Owner::hold};
        guest.take(gate, hold_of_no_thread(traits));
        EXPECT_EQ(guest.ask(gate), Answer::busy);
        EXPECT_EQ((Guest{.traits = traits, .wait = 5ms}.ask(gate)), Answer::busy);
        EXPECT_EQ(gate.find("key", detail::this_thread_serial()), nullptr);
        Answer answer{};
        Waiter waiter{[&] { answer = Guest{.traits = traits}.ask(gate); }};
        waiter.wait_until_asleep();
        const auto ending = gate.end_acquisition(*gate.current("key"), guest.id);
        ASSERT_EQ(ending.kind, Kind::last);
        gate.released(*ending.hold);
        waiter.join();
        EXPECT_EQ(answer, Answer::turn);
    }
}

TEST(Gate, hold_of_no_thread_does_not_nest_in_its_threads_hold) {
    Gate gate;
    Guest{.traits = nesting()}.take(gate, taken_hold({.traits = nesting()}));
    const Guest limited{.traits = nesting(), .wait = 5ms, .owner = Owner::hold};
    EXPECT_EQ(limited.ask(gate), Answer::busy);
    const Guest unlimited{.traits = nesting(), .owner = Owner::hold};
    EXPECT_EQ(unlimited.ask(gate), Answer::deadlock)
        << "the thread itself would have to release it";
}

TEST(Gate, hold_of_no_thread_is_handed_on_as_one) {
    Gate gate;
    const auto hold = hold_of_no_thread(traits_of<Simple>());
    const Guest guest{.lease = 1h, .local_handoffs = 100, .owner = Owner::hold};
    guest.take(gate, hold);
    std::shared_ptr<Hold> next;
    Waiter heir{[&] { next = guest.enter(gate).hold; }};
    heir.wait_until_asleep();
    const auto ending = gate.end_acquisition(*hold, guest.id);
    if (ending.kind == Kind::last) {
        ASSERT_TRUE(gate.moved(*hold, {{"next"}, Clock::now()}, false));
    }
    heir.join();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->thread(), detail::no_thread);
}

/// A thread that pauses before it nests once more.
class NestingPause : public ::testing::Test {
protected:
    void SetUp() override { Guest{.traits = nesting()}.take(gate_, hold_); }

    Woken pause(TimePoint until, const std::stop_token& stop = {}) {
        return gate_.pause(*hold_, until, stop);
    }

    Gate gate_;
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
    EXPECT_EQ(gate_.close().holds, std::vector{hold_});
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
    gate_.lost(hold_);
    waiter.join();
    EXPECT_EQ(woken, Woken::lost);
    EXPECT_EQ(pause(TimePoint::max()), Woken::lost);
}

TEST_F(NestingPause, ends_when_validity_does) {
    const auto brief = taken_hold({.key = "brief", .traits = nesting(), .lease = 200ms});
    Guest{.key = "brief", .traits = nesting()}.take(gate_, brief);
    EXPECT_EQ(gate_.pause(*brief, TimePoint::max(), {}), Woken::lost);
    EXPECT_GE(Clock::now(), brief->valid_until());
}

TEST(Gate, extended_hold_is_not_passed_on_without_a_command) {
    // The next one would block others for the longer lease, should it die.
    const std::vector<std::function<void(Hold&)>> prolong{
        [](Hold& hold) { hold.confirm(Clock::now(), 2h); },
        [](Hold& hold) { hold.may_be_prolonged = true; }};
    for (const auto& change : prolong) {
        Gate gate;
        const auto hold = taken_hold();
        const Guest guest{.lease = 1h, .local_handoffs = 100};
        guest.take(gate, hold);
        Waiter next{[&] { guest.from_here().ask(gate); }};
        next.wait_until_asleep();
        hold->confirm(Clock::now(), 1h);
        change(*hold);
        EXPECT_EQ(gate.end_innermost("key", guest.thread).kind, Kind::last);
        static_cast<void>(gate.close());
    }
}

TEST(Gate, another_shape_is_refused_at_once) {
    Gate gate;
    Guest{}.take(gate, taken_hold());
    const Guest other{.traits = nesting(), .thread = another_thread()};
    EXPECT_EQ(other.ask(gate), Answer::wrong_key_type);
    EXPECT_EQ(unlock(gate), Kind::last);
    EXPECT_EQ(other.ask(gate), Answer::turn) << "a free name has no key type";
}

TEST(Gate, another_shape_is_refused_during_a_turn_too) {
    Gate gate;
    const auto admission = Guest{}.enter(gate);
    EXPECT_EQ((Guest{.traits = nesting()}.ask(gate)), Answer::wrong_key_type);
}

TEST(Gate, forgotten_hold_blocks_nobody_after_its_validity) {
    Gate gate;
    const auto forgotten = run_out_hold();
    Guest{}.take(gate, forgotten);
    const auto admission = Guest{.wait = Wait::none(), .thread = another_thread()}.enter(gate);
    EXPECT_EQ(admission.answer, Answer::turn);
    EXPECT_EQ(admission.run_out, std::vector{forgotten});
    EXPECT_EQ(gate.current("key"), nullptr);
}

TEST(Gate, forgotten_hold_does_not_keep_its_shape) {
    Gate gate;
    const auto forgotten = run_out_hold();
    Guest{}.take(gate, forgotten);
    const auto admission =
        Guest{.traits = nesting(), .wait = Wait::none(), .thread = another_thread()}.enter(gate);
    EXPECT_EQ(admission.answer, Answer::turn) << "the server's key has expired as well";
    EXPECT_EQ(admission.run_out, std::vector{forgotten});
}

TEST(Gate, own_forgotten_hold_is_taken_anew) {
    for (const PolicyTraits& traits : {traits_of<Simple>(), nesting()}) {
        Gate gate;
        const auto forgotten = run_out_hold({.traits = traits});
        Guest{.traits = traits}.take(gate, forgotten);
        const auto admission = Guest{.traits = traits}.enter(gate);
        EXPECT_EQ(admission.answer, Answer::turn);
        EXPECT_EQ(admission.run_out, std::vector{forgotten});
    }
}

TEST(Gate, waiter_comes_in_when_validity_ends) {
    Gate gate;
    const auto brief = taken_hold({.lease = 100ms});
    Guest{}.take(gate, brief);
    const auto admission = Guest{.thread = another_thread()}.enter(gate);
    EXPECT_EQ(admission.answer, Answer::turn);
    EXPECT_GE(Clock::now(), brief->valid_until());
    EXPECT_EQ(admission.run_out, std::vector{brief});
}

TEST(Gate, waiter_goes_on_waiting_while_validity_is_renewed) {
    Gate gate;
    const auto hold = taken_hold({.lease = 100ms});
    Guest{}.take(gate, hold);
    hold->confirm(Clock::now() + 100ms, 100ms);
    const auto admission = Guest{.thread = another_thread()}.enter(gate);
    EXPECT_EQ(admission.answer, Answer::turn);
    EXPECT_GE(Clock::now(), hold->valid_until());
}

TEST(Gate, waiter_outlasts_several_forgotten_holds) {
    Gate gate;
    const auto first = taken_hold({.lease = 100ms});
    const auto second = taken_hold({.lease = 200ms});
    Guest{}.take(gate, first);
    Waiter front{[&] {
        auto admission = Guest{}.enter(gate);
        EXPECT_EQ(admission.answer, Answer::turn);
        second->nest.push_back({.id = 2, .through = nullptr, .watched = false});
        EXPECT_TRUE(admission.turn->finish(second));
    }};
    front.wait_until_asleep();
    const auto admission = Guest{.wait = 20s, .thread = another_thread()}.enter(gate);
    EXPECT_EQ(admission.answer, Answer::turn);
    EXPECT_GE(Clock::now(), second->valid_until());
    ASSERT_FALSE(admission.run_out.empty());
    EXPECT_EQ(admission.run_out.back(), second);
}

TEST(Gate, run_out_hold_is_remembered_until_returned) {
    Gate gate;
    const auto hold = run_out_hold();
    Guest{}.take(gate, hold);
    const auto mine = detail::this_thread_serial();
    { const auto admission = Guest{.thread = another_thread()}.enter(gate); }
    EXPECT_EQ(gate.find("key", mine), hold);
    const auto ending = gate.end_innermost("key", mine);
    EXPECT_EQ(ending.kind, Kind::past);
    EXPECT_EQ(ending.hold, hold);
    EXPECT_EQ(gate.find("key", mine), nullptr);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, returning_a_past_hold_leaves_the_next_holder_alone) {
    Gate gate;
    const auto old = run_out_hold();
    const auto young = taken_hold({.thread = another_thread()});
    Guest{}.take(gate, old);
    Guest{.thread = another_thread()}.take(gate, young);
    EXPECT_EQ(unlock(gate), Kind::past);
    EXPECT_EQ(gate.current("key"), young);
    EXPECT_TRUE(young->in(Phase::held));
    EXPECT_EQ(unlock(gate), Kind::nothing);
}

TEST(Gate, lost_hold_frees_the_lock_and_is_remembered) {
    Gate gate;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1}.take(gate, hold);
    EXPECT_EQ((Guest{.traits = nesting(), .id = 2}.ask(gate)), Answer::nested);
    hold->advance(Phase::held, Phase::lost);
    gate.lost(hold);
    gate.lost(hold);
    EXPECT_EQ(gate.current("key"), nullptr);
    EXPECT_EQ((Guest{.traits = nesting(), .wait = Wait::none()}.ask(gate)), Answer::turn);
    EXPECT_EQ(unlock(gate), Kind::past);
    EXPECT_EQ(gate.size(), 1U) << "one acquisition is left to return";
    EXPECT_EQ(unlock(gate), Kind::past);
    EXPECT_EQ(unlock(gate), Kind::nothing);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, lost_hold_lets_the_next_in) {
    Gate gate;
    const auto hold = taken_hold();
    Guest{}.take(gate, hold);
    Answer answer{};
    Waiter waiter{[&] { answer = Guest{}.ask(gate); }};
    waiter.wait_until_asleep();
    hold->advance(Phase::held, Phase::lost);
    gate.lost(hold);
    waiter.join();
    EXPECT_EQ(answer, Answer::turn);
}

TEST(Gate, hold_lost_while_it_is_released_is_past) {
    Gate gate;
    const auto hold = taken_hold();
    Guest{}.take(gate, hold);
    hold->advance(Phase::held, Phase::lost);  // whoever noticed has not told the gate yet
    EXPECT_EQ(unlock(gate), Kind::past);
    gate.lost(hold);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, acquisitions_end_by_id_in_any_order) {
    const std::vector<std::vector<std::uint64_t>> orders{{1, 2, 3}, {1, 3, 2}, {2, 1, 3},
                                                         {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};
    for (const auto& order : orders) {
        Gate gate;
        const auto hold = taken_hold({.traits = nesting()});
        Guest{.traits = nesting(), .id = 1, .through = nullptr}.take(gate, hold);
        for (const std::uint64_t id : {2U, 3U}) {
            ASSERT_EQ((Guest{.traits = nesting(), .id = id, .through = nullptr}.ask(gate)),
                      Answer::nested);
        }
        std::uint64_t left = 3;
        for (const std::uint64_t id : order) {
            const auto ending = gate.end_acquisition(*hold, id);
            --left;
            EXPECT_EQ(ending.kind, left == 0 ? Kind::last : Kind::nested);
            EXPECT_EQ(ending.count, left);
            EXPECT_EQ(ending.hold, hold);
            EXPECT_EQ(gate.end_acquisition(*hold, id).kind, Kind::nothing) << "only once";
        }
        gate.released(*hold);
        EXPECT_EQ(gate.size(), 0U);
    }
}

TEST(Gate, acquisition_ends_from_another_thread) {
    Gate gate;
    const auto hold = taken_hold();
    Guest{.through = nullptr}.take(gate, hold);
    std::thread{[&] { EXPECT_EQ(gate.end_acquisition(*hold, 1).kind, Kind::last); }}.join();
}

TEST(Gate, unlock_ends_what_lock_took_only) {
    Gate gate;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1}.take(gate, hold);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 2, .through = nullptr}.ask(gate)), Answer::nested);
    EXPECT_EQ(gate.end_innermost("key", another_thread()).kind, Kind::nothing);
    EXPECT_EQ(unlock(gate), Kind::nested) << "the outer one: the inner one is a Held's";
    EXPECT_EQ(unlock(gate), Kind::nothing);
    EXPECT_EQ(gate.end_acquisition(*hold, 2).kind, Kind::last);
}

TEST(Gate, handle_ends_what_was_taken_through_it) {
    Gate gate;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1, .through = &some_handle}.take(gate, hold);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 2, .through = &other_handle}.ask(gate)),
              Answer::nested);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 3, .through = &some_handle}.ask(gate)),
              Answer::nested);
    EXPECT_EQ(gate.end_one_through("key", &some_handle).kind, Kind::nested);
    EXPECT_EQ(gate.end_one_through("key", &some_handle).kind, Kind::nested);
    EXPECT_EQ(gate.end_one_through("key", &some_handle).kind, Kind::nothing);
    EXPECT_EQ(gate.end_one_through("key", &other_handle).kind, Kind::last);
}

TEST(Gate, nested_ending_says_whether_what_ended_wanted_renewal) {
    Gate gate;
    const auto hold = taken_hold({.traits = nesting()});
    Guest{.traits = nesting(), .id = 1, .watched = false}.take(gate, hold);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 2, .watched = true}.ask(gate)), Answer::nested);
    ASSERT_EQ((Guest{.traits = nesting(), .id = 3, .watched = true}.ask(gate)), Answer::nested);
    EXPECT_TRUE(gate.end_acquisition(*hold, 3).watched);
    EXPECT_FALSE(gate.end_acquisition(*hold, 1).watched);
}

TEST(Gate, nothing_is_there_to_end_or_find) {
    Gate gate;
    EXPECT_EQ(gate.end_innermost("key", detail::this_thread_serial()).kind, Kind::nothing);
    EXPECT_EQ(gate.end_one_through("key", &some_handle).kind, Kind::nothing);
    EXPECT_EQ(gate.end_acquisition(*taken_hold(), 1).kind, Kind::nothing);
    EXPECT_EQ(gate.find("key", detail::this_thread_serial()), nullptr);
    EXPECT_EQ(gate.current("key"), nullptr);
    gate.released(*taken_hold());
    gate.lost(taken_hold());
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, finds_the_hold_of_the_thread_that_asks) {
    Gate gate;
    const auto hold = taken_hold();
    Guest{}.take(gate, hold);
    EXPECT_EQ(gate.find("key", detail::this_thread_serial()), hold);
    EXPECT_EQ(gate.find("key", another_thread()), nullptr);
    EXPECT_EQ(gate.find("other", detail::this_thread_serial()), nullptr);
}

TEST(Gate, a_hundred_thousand_idle_names_leave_nothing) {
    Gate gate;
    for (int i = 0; i < 100'000; ++i) {
        const std::string key = std::to_string(i);
        const auto hold = taken_hold({.key = key});
        Guest{.key = key}.take(gate, hold);
        ASSERT_EQ(unlock(gate, key), Kind::last);
    }
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, a_hundred_thousand_names_at_once_leave_nothing) {
    Gate gate;
    constexpr int names = 100'000;
    for (int i = 0; i < names; ++i) {
        const std::string key = std::to_string(i);
        Guest{.key = key}.take(gate, taken_hold({.key = key}));
    }
    EXPECT_EQ(gate.size(), static_cast<std::size_t>(names));
    for (int i = 0; i < names; ++i) ASSERT_EQ(unlock(gate, std::to_string(i)), Kind::last);
    EXPECT_EQ(gate.size(), 0U);
}

TEST(Gate, excludes_under_load) {
    Gate gate;
    int inside = 0;  // guarded by the lock that is tested
    int entered = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i) {
                auto admission = Guest{}.enter(gate);
                ASSERT_EQ(admission.answer, Answer::turn);
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
                ASSERT_EQ(unlock(gate), Kind::last);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(entered, 6 * 200);
    EXPECT_EQ(gate.size(), 0U);
}

}  // namespace
