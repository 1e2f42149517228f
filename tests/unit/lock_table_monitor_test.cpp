#include "service_tools.hpp"
#include "support/own_new.hpp"
#include "support/wait.hpp"
#include "support/waiting_thread.hpp"
#include <redlatch/service/lock_table_monitor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
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

/// One who asks for a lock, with what the tests change first.
struct Guest {
    std::string key = "key";
    PolicyTraits traits = traits_of<Simple>();
    Wait wait = Wait::unlimited();
    std::stop_token stop{};
    LockOwner thread = detail::this_thread();
    std::uint64_t id = 1;
    // Other than a hold's in these tests: then the lock is released between two of them.
    Lease lease = 2h;
    unsigned local_handoffs = 0;

    Acquisition acquisition() const { return {id, &some_handle, false}; }

    LockTableMonitor::Admission enter(LockTableMonitor& table) const {
        const detail::HoldTerms terms = terms_of({.key = key, .traits = traits, .lease = lease});
        return table.enter({.terms = terms,
                            .owner = thread,
                            .caller = thread,
                            .wait = wait,
                            .deadline = saturating_add(
                                Clock::now(), std::max(wait.duration(), Clock::duration::zero())),
                            .acquisition = acquisition(),
                            .handoffs = {.in_row = local_handoffs, .others_poll = false}},
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

TEST(LockTableMonitor, waiter_is_busy_at_its_deadline) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    const TimePoint began = Clock::now();
    EXPECT_EQ((Guest{.wait = 30ms, .thread = another_thread()}.ask(table)), Outcome::busy);
    EXPECT_GE(Clock::now() - began, 30ms);
    EXPECT_EQ(unlock(table), Kind::last);
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, waiters_are_served_first_come_first_served) {
    LockTableMonitor table;
    std::mutex mutex;
    std::vector<int> order;
    auto first = Guest{}.enter(table);
    std::vector<std::unique_ptr<WaitingThread>> waiters;
    for (int i = 0; i < 8; ++i) {
        waiters.push_back(std::make_unique<WaitingThread>([&, i] {
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
    std::vector<std::unique_ptr<WaitingThread>> waiters;
    for (int i = 0; i < 4; ++i) {
        waiters.push_back(std::make_unique<WaitingThread>([&, i] {
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
    WaitingThread waiter{[&] {
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
    WaitingThread waiter{[&] { answer = Guest{.stop = source.get_token()}.ask(table); }};
    waiter.wait_until_asleep();
    EXPECT_FALSE(waiter.done());
    source.request_stop();
    waiter.join();
    EXPECT_EQ(answer, Outcome::cancelled);
    EXPECT_EQ(table.current("key"), hold);
}

thread_local int successful_allocations = -1;  // before one fails; negative: all

TEST(LockTableMonitor, waiter_without_memory_stays_in_no_queue) {
    if (!has_own_new) GTEST_SKIP() << "the sanitizer has an operator new of its own";
    before_allocation = [] {
        if (successful_allocations == 0) throw std::bad_alloc{};
        --successful_allocations;
    };
    LockTableMonitor table;
    const Guest holder{.local_handoffs = 100};
    holder.take(table, taken_hold({.lease = holder.lease}));
    std::stop_source source;
    const Guest waiter{.wait = 1ms, .stop = source.get_token(), .thread = another_thread()};
    bool returned = false;
    for (int number = 0; !returned; ++number) {
        try {
            successful_allocations = number;
            EXPECT_EQ(waiter.ask(table), Outcome::busy);
            returned = true;
            EXPECT_GT(number, 0) << "no allocation can fail";
        } catch (const std::bad_alloc&) {
        }
        successful_allocations = -1;
    }
    before_allocation = nullptr;
    EXPECT_FALSE(table.end_innermost("key", holder.thread).can_hand_off);
}

TEST(LockTableMonitor, stop_asked_for_before_ends_the_wait_at_once) {
    LockTableMonitor table;
    Guest{}.take(table, taken_hold());
    std::stop_source source;
    source.request_stop();
    EXPECT_EQ((Guest{.stop = source.get_token(), .thread = another_thread()}.ask(table)),
              Outcome::cancelled);
}

TEST(LockTableMonitor, waiter_in_the_middle_may_leave) {
    LockTableMonitor table;
    auto first = Guest{}.enter(table);
    Outcome front{};
    Outcome middle{};
    Outcome last{};
    std::stop_source source;
    WaitingThread a{[&] { front = Guest{}.ask(table); }};
    a.wait_until_asleep();
    WaitingThread b{[&] { middle = Guest{.stop = source.get_token()}.ask(table); }};
    b.wait_until_asleep();
    WaitingThread c{[&] { last = Guest{}.ask(table); }};
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

TEST(LockTableMonitor, closing_ends_all_waiting_and_tells_what_is_held) {
    LockTableMonitor table;
    const auto a = taken_hold({.key = "a"});
    const auto b = taken_hold({.key = "b"});
    Guest{.key = "a"}.take(table, a);
    Guest{.key = "b"}.take(table, b);
    Outcome answers[2]{};
    WaitingThread first{[&] { answers[0] = Guest{.key = "a"}.ask(table); }};
    first.wait_until_asleep();
    WaitingThread second{[&] { answers[1] = Guest{.key = "a"}.ask(table); }};
    second.wait_until_asleep();
    const auto holds = table.close().holds;
    first.join();
    second.join();
    EXPECT_EQ(answers[0], Outcome::closed);
    EXPECT_EQ(answers[1], Outcome::closed);
    ASSERT_EQ(holds.size(), 2U);
    EXPECT_TRUE((holds[0] == a && holds[1] == b) || (holds[0] == b && holds[1] == a));
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
    WaitingThread waiter{[&] {
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
    WaitingThread waiter{[&] {
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
    WaitingThread heir{[&] {
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

Grant grant_for(std::string token, std::string key = "key") {
    return {.ttl = 1h,
            .time = 1s,
            .server = "-",
            .key_type = 's',
            .token = std::move(token),
            .key = std::move(key)};
}

TEST(LockTableMonitor, grant_ends_the_pause) {
    LockTableMonitor table;
    Woken woken{};
    std::optional<Grant> grant;
    WaitingThread waiter{[&] {
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

TEST(LockTableMonitor, recheck_ends_the_pause_of_who_waits_at_the_server) {
    LockTableMonitor table;
    Woken first{};
    Woken second{};
    WaitingThread waiter{[&] {
        auto admission = Guest{}.enter(table);
        admission.turn->announce(*asked_hold({.token = "mine"}));
        first = admission.turn->pause(TimePoint::max(), {});
        second = admission.turn->pause(Clock::now(), {});
    }};
    waiter.wait_until_asleep();
    table.recheck_all();
    waiter.join();
    EXPECT_EQ(first, Woken::recheck);
    EXPECT_EQ(second, Woken::in_time) << "once is enough";
}

TEST(LockTableMonitor, heir_gets_the_place_in_the_servers_queue) {
    for (const bool unclear : {false, true}) {
        LockTableMonitor table;
        const auto hold = asked_hold({.token = "mine"});
        auto first = Guest{}.enter(table);
        first.turn->announce(*hold);
        std::optional<detail::QueuePlace> queue_place;
        WaitingThread heir{[&] {
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

TEST(LockTableMonitor, closing_returns_each_place_that_its_heir_has_not_taken) {
    // The heir or the closing thread may be faster; the place is never forgotten.
    for (int round = 0; round < 200; ++round) {
        LockTableMonitor table;
        auto first = Guest{}.enter(table);
        first.turn->announce(*asked_hold({.token = "mine"}));
        bool inherited = false;
        WaitingThread heir{[&] {
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

TEST(LockTableMonitor, waiter_behind_a_hand_over_has_its_turn_when_the_new_hold_runs_out) {
    LockTableMonitor table;
    const auto hold = taken_hold({.lease = 300ms});
    const Guest guest{.lease = 300ms, .local_handoffs = 100};
    guest.take(table, hold);
    hold->confirm(Clock::now(), 1h);  // an extension, which the next hold does not inherit
    Outcome second{};
    Outcome third{};
    WaitingThread hanging{[&] { second = guest.from_here().ask(table); }};  // and never releases
    hanging.wait_until_asleep();
    WaitingThread behind{[&] { third = guest.from_here().ask(table); }};
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
        WaitingThread heir{[&] {
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

/// A thread that pauses before it nests once more.
class NestingPause : public ::testing::Test {
protected:
    void SetUp() override { Guest{.traits = traits_of<Reentrant>()}.take(locks_, hold_); }

    Woken pause(TimePoint until, const std::stop_token& stop = {}) {
        return locks_.pause(*hold_, until, stop);
    }

    LockTableMonitor locks_;
    std::shared_ptr<Hold> hold_ = taken_hold({.traits = traits_of<Reentrant>()});
};

TEST_F(NestingPause, ends_in_time) {
    const TimePoint until = Clock::now() + 20ms;
    EXPECT_EQ(pause(until), Woken::in_time);
    EXPECT_GE(Clock::now(), until);
}

TEST_F(NestingPause, ends_with_the_client) {
    Woken woken{};
    WaitingThread waiter{[&] { woken = pause(TimePoint::max()); }};
    waiter.wait_until_asleep();
    EXPECT_EQ(locks_.close().holds, std::vector{hold_});
    waiter.join();
    EXPECT_EQ(woken, Woken::closed);
    EXPECT_EQ(pause(TimePoint::max()), Woken::closed);
}

TEST_F(NestingPause, ends_with_the_stop_token) {
    std::stop_source source;
    Woken woken{};
    WaitingThread waiter{[&] { woken = pause(TimePoint::max(), source.get_token()); }};
    waiter.wait_until_asleep();
    source.request_stop();
    waiter.join();
    EXPECT_EQ(woken, Woken::cancelled);
}

TEST_F(NestingPause, ends_with_the_loss_of_the_hold) {
    Woken woken{};
    WaitingThread waiter{[&] { woken = pause(TimePoint::max()); }};
    waiter.wait_until_asleep();
    ASSERT_TRUE(hold_->advance(Phase::held, Phase::lost));
    locks_.lost(hold_);
    waiter.join();
    EXPECT_EQ(woken, Woken::lost);
    EXPECT_EQ(pause(TimePoint::max()), Woken::lost);
}

TEST_F(NestingPause, ends_when_validity_does) {
    const auto brief =
        taken_hold({.key = "brief", .traits = traits_of<Reentrant>(), .lease = 200ms});
    Guest{.key = "brief", .traits = traits_of<Reentrant>()}.take(locks_, brief);
    EXPECT_EQ(locks_.pause(*brief, TimePoint::max(), {}), Woken::lost);
    EXPECT_GE(Clock::now(), brief->valid_until());
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

TEST(LockTableMonitor, lost_hold_lets_the_next_in) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    Guest{}.take(table, hold);
    Outcome answer{};
    WaitingThread waiter{[&] { answer = Guest{}.ask(table); }};
    waiter.wait_until_asleep();
    hold->advance(Phase::held, Phase::lost);
    table.lost(hold);
    waiter.join();
    EXPECT_EQ(answer, Outcome::turn);
}

TEST(LockTableMonitor, acquisition_ends_from_another_thread) {
    LockTableMonitor table;
    const auto hold = taken_hold();
    Guest{}.take(table, hold);
    std::thread{[&] { EXPECT_EQ(table.end_acquisition(*hold, 1).kind, Kind::last); }}.join();
}

TEST(LockTableMonitor, hands_the_lock_on_to_a_thread_that_sleeps) {
    LockTableMonitor table;
    const auto hold = taken_hold({.lease = 2h});
    const Guest guest{.local_handoffs = 100};
    guest.take(table, hold);
    std::shared_ptr<Hold> next;
    WaitingThread heir{[&] { next = guest.from_here().enter(table).hold; }};
    heir.wait_until_asleep();
    const auto ending = table.end_innermost("key", guest.thread);
    if (ending.kind == Kind::last) {  // too slow for a hand-off without a command
        ASSERT_TRUE(table.moved(*hold, {.token = {"next"}, .refreshed = Clock::now()}, false));
    }
    heir.join();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(table.current("key"), next);
}

/// An operation that waits without a thread.
class WaitingOperation final : public LockTableMonitor::Waiter {
public:
    explicit WaitingOperation(std::uint64_t id) : guest_{.id = id} {}

    /// Goes on where it is handed the lock, and asks `monitor` something there.
    WaitingOperation(std::uint64_t id, LockTableMonitor& monitor)
        : guest_{.id = id}, monitor_(&monitor) {}

    bool goes_on_here() noexcept override { return monitor_ != nullptr; }
    void go_on_here() noexcept override {
        got.push_back(LockTable::take_handed(*this).hold);
        EXPECT_EQ(monitor_->current("key"), got.back()) << "the mutex is free again";
    }

    detail::Parker::Wake wake() noexcept override {
        ++woken;
        return {};
    }
    LockTable::Admission enter(LockTableMonitor& table) {
        return table.enter(request_, *this, false);
    }

    std::atomic<int> woken{0};
    std::vector<std::shared_ptr<Hold>> got{};

private:
    Guest guest_;
    LockTableMonitor* monitor_ = nullptr;
    detail::HoldTerms terms_ =
        terms_of({.key = guest_.key, .traits = guest_.traits, .lease = guest_.lease});
    detail::AcquireRequest request_{.terms = terms_,
                                    .owner = LockOwner::acquisition(guest_.id),
                                    .caller = LockOwner::acquisition(guest_.id),
                                    .wait = Wait::unlimited(),
                                    .deadline = TimePoint::max(),
                                    .acquisition = guest_.acquisition(),
                                    .handoffs = {.in_row = 10, .others_poll = false}};
};

TEST(LockTableMonitor, operations_and_threads_wait_in_one_queue) {
    LockTableMonitor table;
    std::optional<LockTableMonitor::Turn> turn = Guest{}.enter(table).turn;
    WaitingOperation first{2};
    ASSERT_EQ(first.enter(table).outcome, Outcome::queued);
    std::optional<LockTableMonitor::Turn> threads_turn;
    WaitingThread second{[&] {
        auto admission = Guest{}.enter(table);
        if (admission.turn) threads_turn.emplace(*std::move(admission.turn));
    }};
    second.wait_until_asleep();
    WaitingOperation third{3};
    ASSERT_EQ(third.enter(table).outcome, Outcome::queued);

    EXPECT_EQ(first.woken, 0);
    turn.reset();
    EXPECT_EQ(first.woken, 1);
    auto admission = table.resume(first, false);
    ASSERT_EQ(admission.outcome, Outcome::turn);
    turn.emplace(table, admission.turn);
    EXPECT_FALSE(second.done());
    turn.reset();
    second.join();
    EXPECT_EQ(table.resume(third, false).outcome, Outcome::queued);
    threads_turn.reset();
    EXPECT_EQ(third.woken, 1);
    admission = table.resume(third, false);
    ASSERT_EQ(admission.outcome, Outcome::turn);
    turn.emplace(table, admission.turn);
    turn.reset();
    EXPECT_EQ(table.size(), 0U);
}

TEST(LockTableMonitor, operation_is_handed_the_lock) {
    LockTableMonitor table;
    const auto hold = hold_with_recent_news({.lease = 2h, .token = "passed on"});
    Guest{}.take(table, hold);
    WaitingOperation next{2};
    ASSERT_EQ(next.enter(table).outcome, Outcome::queued);
    EXPECT_EQ(unlock(table), Kind::handed);
    EXPECT_EQ(next.woken, 1);
    const auto admission = table.resume(next, false);
    ASSERT_EQ(admission.outcome, Outcome::handed);
    EXPECT_EQ(admission.hold->token().bytes, "passed on");
    EXPECT_EQ(admission.hold->owner(), LockOwner::acquisition(2));
}

TEST(LockTableMonitor, operation_may_go_on_where_it_is_handed_the_lock) {
    LockTableMonitor table;
    const auto hold = hold_with_recent_news({.lease = 2h, .token = "passed on"});
    Guest{}.take(table, hold);
    WaitingOperation next{2, table};
    WaitingOperation behind{3, table};
    ASSERT_EQ(next.enter(table).outcome, Outcome::queued);
    ASSERT_EQ(behind.enter(table).outcome, Outcome::queued);
    EXPECT_EQ(unlock(table), Kind::handed);
    EXPECT_EQ(next.woken, 0);
    ASSERT_EQ(next.got.size(), 1U);
    EXPECT_EQ(next.got.front()->token().bytes, "passed on");
    EXPECT_TRUE(behind.got.empty());
}

TEST(LockTableMonitor, operation_that_gets_its_turn_is_woken_wherever_it_may_go_on) {
    LockTableMonitor table;
    std::optional<LockTableMonitor::Turn> turn = Guest{}.enter(table).turn;
    WaitingOperation next{2, table};
    ASSERT_EQ(next.enter(table).outcome, Outcome::queued);
    turn.reset();
    EXPECT_EQ(next.woken, 1);
    EXPECT_TRUE(next.got.empty());
    const auto admission = table.resume(next, false);
    ASSERT_EQ(admission.outcome, Outcome::turn);
    turn.emplace(table, admission.turn);
}

TEST(LockTableMonitor, pause_of_an_operation_ends_by_a_message_or_by_a_stop) {
    LockTableMonitor table;
    WaitingOperation operation{2};
    auto admission = operation.enter(table);
    ASSERT_EQ(admission.outcome, Outcome::turn);
    LockTableMonitor::Turn turn{table, admission.turn};
    turn.announce(*asked_hold({.token = "mine"}));
    const TimePoint later = Clock::now() + 1h;
    EXPECT_FALSE(turn.pause(operation, later, false).ended);
    EXPECT_TRUE(table.deliver(grant_for("mine")));
    EXPECT_EQ(operation.woken, 1);
    EXPECT_EQ(turn.pause(operation, later, false).ended, Woken::granted);
    ASSERT_TRUE(turn.take_grant());
    EXPECT_EQ(turn.pause(operation, later, true).ended, Woken::cancelled);
}

TEST(LockTableMonitor, hands_the_lock_on_under_load) {
    LockTableMonitor table;
    int inside = 0;  // guarded by the lock that is tested
    std::atomic<std::uint64_t> ids{0};
    std::atomic<int> handed{0};
    const auto release = [&table](Hold& hold, std::uint64_t id) {
        const auto ending = table.end_acquisition(hold, id);
        if (ending.kind == Kind::handed) return;
        ASSERT_EQ(ending.kind, Kind::last);
        ending.hold->advance(Phase::releasing, Phase::released);
        // As by the server: too slow for a hand-off without a command.
        const detail::HandOff next{.token = hold.token(), .refreshed = Clock::now()};
        if (!ending.can_hand_off || !table.moved(hold, next, false)) table.released(hold);
    };
    const auto use = [&](const Guest& guest) {
        auto admission = guest.enter(table);
        std::shared_ptr<Hold> mine = admission.hold;
        if (admission.turn) {
            mine = taken_hold({.lease = guest.lease, .owner = guest.thread});
            mine->nest.push_back(guest.acquisition());
            ASSERT_TRUE(admission.turn->finish(mine));
        } else {
            ASSERT_EQ(admission.outcome, Outcome::handed);
            ++handed;
        }
        ASSERT_EQ(++inside, 1);
        --inside;
        release(*mine, guest.id);
    };
    const auto hold = taken_hold({.lease = 2h});
    const Guest guest{.id = ++ids, .local_handoffs = 100'000};
    guest.take(table, hold);
    std::vector<std::unique_ptr<WaitingThread>> threads;
    for (int t = 0; t < 6; ++t) {
        threads.push_back(std::make_unique<WaitingThread>([&] {
            for (int i = 0; i < 500; ++i) use(Guest{.id = ++ids, .local_handoffs = 100'000});
        }));
        threads.back()->wait_until_asleep();
    }
    release(*hold, guest.id);
    for (const auto& thread : threads) thread->join();
    EXPECT_GE(handed, 6) << "all of them waited";
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
