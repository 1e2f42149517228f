#include "machine_tools.hpp"
#include <redlatch/core/nesting.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace redlatch::test;
using namespace std::chrono_literals;

constexpr TimePoint start{1000s};
constexpr TimePoint valid_until = start + 20s;
constexpr bool open = false;  // the client is not closed
constexpr bool closed = true;

AcquirePlan plan(Wait wait = 10s) {
    return {.wait = wait,
            .lease = 30s,
            .drift = {.factor = 0, .floor = 0ms},
            .backoff = {10ms, 20ms},
            .command_timeout = 1s};
}

/// A thread that holds the lock and takes it once more.
struct Nested {
    explicit Nested(Wait wait = 10s, TimePoint last_end = TimePoint::max())
        : attempts(plan(wait), start, 1), machine(attempts, {"key", last_end}, 30s) {}

    NestAction begin() { return machine.begin(start, valid_until); }

    Attempts attempts;
    Nesting machine;
};

/// The end of a nested acquisition that failed: whether the outer hold is declared lost.
bool failed(const Nesting& machine, const NestAction& action, Errc code) {
    EXPECT_EQ(machine.error().code, code);
    return as<NestFailed>(action).outer_lost;
}

TEST(Nesting, is_one_command_and_confirms_the_outer_hold) {
    Nested nested;
    const auto send = as<SendNest>(nested.begin());
    EXPECT_EQ(send.answer_by, start + 1s);
    EXPECT_EQ(send.lease, Lease{30s});
    const TimePoint sent = start + 1us;
    const auto confirm =
        as<ConfirmOuter>(nested.machine.answered(NestAnswer::done, open, sent, start + 1ms));
    EXPECT_EQ(confirm.sent, sent);
    EXPECT_EQ(confirm.lease, Lease{30s});
    EXPECT_EQ(as<NestDone>(nested.machine.confirmed(true, open)).sent, sent);
    EXPECT_EQ(nested.attempts.tries(), 1U);
}

TEST(Nesting, waits_for_an_answer_no_longer_than_the_outer_hold_is_valid) {
    Nested nested;
    const auto send = as<SendNest>(nested.machine.begin(start, start + 300ms));
    EXPECT_EQ(send.answer_by, start + 300ms);
}

TEST(Nesting, asks_for_no_longer_than_the_outer_hold_may_last) {
    Nested nested{10s, start + 5s};
    EXPECT_EQ(as<SendNest>(nested.begin()).lease, Lease{5s});
    const auto confirm =
        as<ConfirmOuter>(nested.machine.answered(NestAnswer::done, open, start + 1s, start + 1s));
    EXPECT_EQ(confirm.lease, Lease{4s}) << "from when it was sent";
}

TEST(Nesting, fails_where_the_outer_hold_was_over_before_the_answer_counted) {
    Nested nested;
    static_cast<void>(nested.begin());
    static_cast<void>(nested.machine.answered(NestAnswer::done, open, start, start + 1ms));
    EXPECT_TRUE(failed(nested.machine, nested.machine.confirmed(false, open), Errc::lost));
    EXPECT_EQ(nested.machine.error().message, "the outer hold is gone");
}

TEST(Nesting, fails_where_the_lock_is_gone) {
    Nested nested;
    static_cast<void>(nested.begin());
    const auto end = nested.machine.answered(NestAnswer::gone, open, start, start + 1ms);
    EXPECT_TRUE(failed(nested.machine, end, Errc::lost));
}

TEST(Nesting, fails_where_the_outer_hold_ends_in_a_pause) {
    Nested nested;
    static_cast<void>(nested.begin());
    EXPECT_TRUE(
        failed(nested.machine, nested.machine.woken(Woken::lost, start, valid_until), Errc::lost));
}

TEST(Nesting, is_cancelled_where_the_client_has_ended_the_outer_hold) {
    const auto is_cancelled = [](const Nested& nested, const NestAction& end) {
        EXPECT_EQ(nested.machine.error().message, "the client was closed");
        return !failed(nested.machine, end, Errc::cancelled);
    };
    Nested released;
    static_cast<void>(released.begin());
    EXPECT_TRUE(is_cancelled(
        released, released.machine.answered(NestAnswer::gone, closed, start, start + 1ms)));
    Nested late;
    static_cast<void>(late.begin());
    static_cast<void>(late.machine.answered(NestAnswer::done, closed, start, start + 1ms));
    EXPECT_TRUE(is_cancelled(late, late.machine.confirmed(false, closed)));
    Nested unsent;
    EXPECT_TRUE(is_cancelled(unsent, unsent.machine.begin_unsent(false, closed, start)));
}

TEST(Nesting, of_a_claim_sends_nothing) {
    Nested valid;
    EXPECT_EQ(as<NestDone>(valid.machine.begin_unsent(true, open, start - 1s)).sent, start - 1s);
    Nested over;
    EXPECT_TRUE(failed(over.machine, over.machine.begin_unsent(false, open, start), Errc::lost));
}

TEST(Nesting, without_a_renewal_leaves_the_outer_hold_alone) {
    Nested nested;
    const auto end = nested.machine.unreserved({Errc::unavailable, {}, {}, "no thread", {}});
    EXPECT_FALSE(failed(nested.machine, end, Errc::unavailable));
    EXPECT_EQ(nested.machine.error().message, "no thread");
}

TEST(Nesting, fault_is_told_and_followed_by_a_pause_and_another_try) {
    Nested nested;
    static_cast<void>(nested.begin());
    const auto note = as<NoteNestFault>(nested.machine.failed(refused("no route"), start));
    EXPECT_TRUE(note.tell);
    EXPECT_FALSE(note.prolonged) << "it certainly did not run";
    EXPECT_EQ(nested.machine.fault().message, "no route");
    EXPECT_EQ(nested.machine.fault().key, "key");
    const auto sleep = as<NestSleep>(nested.machine.fault_noted(start, valid_until));
    EXPECT_LE(sleep.until, start + 20ms);
    const TimePoint soon = start + 500ms;
    EXPECT_EQ(as<SendNest>(nested.machine.woken(Woken::in_time, sleep.until, soon)).answer_by,
              soon);
    EXPECT_EQ(nested.attempts.tries(), 2U);
}

TEST(Nesting, try_without_an_answer_may_have_prolonged_the_lock) {
    Nested nested;
    static_cast<void>(nested.begin());
    EXPECT_TRUE(as<NoteNestFault>(nested.machine.failed(silent(), start)).prolonged);
    Nested garbled;
    static_cast<void>(garbled.begin());
    const auto note =
        as<NoteNestFault>(garbled.machine.answered(NestAnswer::unusable, open, start, start));
    EXPECT_TRUE(note.prolonged);
    EXPECT_EQ(garbled.machine.fault().code, Errc::protocol);
    EXPECT_FALSE(
        failed(garbled.machine, garbled.machine.fault_noted(start, valid_until), Errc::protocol));
}

TEST(Nesting, fault_without_a_wait_is_the_end) {
    Nested nested{Wait::none()};
    static_cast<void>(nested.begin());
    static_cast<void>(nested.machine.failed(refused(), start));
    const auto end = nested.machine.fault_noted(start, valid_until);
    EXPECT_FALSE(failed(nested.machine, end, Errc::unavailable)) << "the outer hold goes on";
}

TEST(Nesting, cancellation_of_a_command_is_told_nobody_but_may_have_prolonged_the_lock) {
    Nested nested;
    static_cast<void>(nested.begin());
    Fault cancelled = forbidden();
    cancelled.error.code = Errc::cancelled;
    cancelled.maybe_executed = true;
    const auto note = as<NoteNestFault>(nested.machine.failed(cancelled, start));
    EXPECT_FALSE(note.tell);
    EXPECT_TRUE(note.prolonged);
    EXPECT_FALSE(
        failed(nested.machine, nested.machine.fault_noted(start, valid_until), Errc::cancelled));
}

TEST(Nesting, answer_that_took_longer_than_the_lease_is_none) {
    Nested nested;
    static_cast<void>(nested.begin());
    const auto action = nested.machine.answered(NestAnswer::done, open, start - 1h, start + 1ms);
    EXPECT_TRUE(holds_alternative<NestSleep>(action));
}

TEST(Nesting, cancelled_says_by_whom) {
    Nested nested;
    static_cast<void>(nested.begin());
    EXPECT_FALSE(failed(nested.machine, nested.machine.woken(Woken::cancelled, start, valid_until),
                        Errc::cancelled));
    EXPECT_EQ(nested.machine.error().message, "cancelled by the caller");
    EXPECT_FALSE(failed(nested.machine, nested.machine.woken(Woken::closed, start, valid_until),
                        Errc::cancelled));
    EXPECT_EQ(nested.machine.error().message, "the client was closed");
}

}  // namespace
