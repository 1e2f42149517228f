// How a lock goes from one process to another, step by step, with a clock of its own.

#include "machine_tools.hpp"
#include <redlatch/core/transfer.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::CleanUp;
using detail::Fault;
using detail::retry_pause;
using detail::TimePoint;
using Machine = detail::TransferMachine;
using Action = Machine::Action;

constexpr TimePoint start{1000s};
constexpr Machine::Plan detaching{.kind = Machine::Kind::detach,
                                  .lease = 10s,
                                  .give_up_at = start + 1s,
                                  .valid_until = start + 5s};
constexpr Machine::Plan adopting{
    .kind = Machine::Kind::adopt, .lease = 10s, .give_up_at = start + 1s};

constexpr CleanUp nothing{};
constexpr CleanUp at_once{.at_once = true};
constexpr CleanUp later{.once_more = true};
constexpr CleanUp now_and_later{.at_once = true, .once_more = true};

Fault refused() {
    return {.error = {Errc::unavailable, {}, {}, "refused", {}}, .transient = true};
}
Fault unanswered() {
    Fault fault = refused();
    fault.maybe_executed = true;
    return fault;
}

void expect_failed(const Action& action, Errc code, CleanUp from, CleanUp to) {
    const auto& failed = as<Machine::Failed>(action);
    EXPECT_EQ(failed.error.code, code) << failed.error.describe();
    EXPECT_EQ(failed.from, from);
    EXPECT_EQ(failed.to, to);
}

TEST(Detaching, moves_the_lock_to_the_ticket) {
    Machine machine{detaching};
    EXPECT_EQ(as<Machine::SendMove>(machine.begin(start)).answer_by, start + 1s);
    const auto moved = as<Machine::Moved>(machine.answered({.moved = true}, start + 1ms));
    EXPECT_EQ(moved.from, nothing);
}

TEST(Detaching, releases_the_old_token_once_more_where_a_try_of_it_was_unclear) {
    Machine::Plan plan = detaching;
    plan.unclear_try = true;
    Machine machine{plan};
    static_cast<void>(machine.begin(start));
    EXPECT_EQ(as<Machine::Moved>(machine.answered({.moved = true}, start)).from, later);
}

TEST(Detaching, is_lost_with_the_validity) {
    Machine machine{detaching};
    expect_failed(machine.begin(start + 5s), Errc::lost, at_once, nothing);
}

TEST(Detaching, is_lost_where_the_server_has_another) {
    Machine machine{detaching};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.answered({.moved = false}, start), Errc::lost, nothing, nothing);
}

TEST(Detaching, sends_again_what_got_no_answer_and_believes_the_repetition) {
    Machine machine{detaching};
    static_cast<void>(machine.begin(start));
    const auto retry = as<Machine::RetryAt>(machine.failed(unanswered(), start));
    EXPECT_EQ(retry.time, start + retry_pause);
    as<Machine::SendMove>(machine.pause_over(retry.time));
    EXPECT_TRUE(as<Machine::Moved>(machine.answered({.moved = true}, retry.time)).unclear);
}

TEST(Detaching, of_which_an_earlier_sending_may_be_carried_out_too_is_unclear) {
    Machine machine{detaching};
    static_cast<void>(machine.begin(start));
    const auto moved = machine.answered({.moved = true, .repeated = true}, start + 1ms);
    EXPECT_TRUE(as<Machine::Moved>(moved).unclear);
}

TEST(Detaching, and_adopting_tell_apart_why_the_lock_is_gone) {
    for (const Machine::Plan& plan : {detaching, adopting}) {
        Machine machine{plan};
        static_cast<void>(machine.begin(start));
        const auto failed = as<Machine::Failed>(machine.answered({.moved = false}, start));
        const bool speaks_of_ticket = failed.error.message.find("ticket") != std::string::npos;
        EXPECT_EQ(speaks_of_ticket, plan.kind == Machine::Kind::adopt) << failed.error.message;
    }
}

TEST(Detaching, that_nobody_answered_releases_both_tokens) {
    Machine machine{detaching};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.failed(unanswered(), start + 990ms), Errc::unavailable, now_and_later,
                  now_and_later);
}

TEST(Detaching, that_was_never_sent_releases_the_hold_only) {
    Machine machine{detaching};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.failed(refused(), start + 990ms), Errc::unavailable, at_once, nothing);
}

TEST(Detaching, tries_no_longer_than_the_validity) {
    Machine::Plan plan = detaching;
    plan.valid_until = start + 30ms;
    Machine machine{plan};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.failed(refused(), start + 10ms), Errc::unavailable, at_once, nothing);
}

TEST(Adopting, counts_from_the_send_and_takes_the_fencing_token) {
    Machine machine{adopting};
    static_cast<void>(machine.begin(start));
    const auto moved = as<Machine::Moved>(
        machine.answered({.moved = true, .others_wait = true, .fence = 7}, start + 3ms));
    EXPECT_EQ(moved.since, start);
    EXPECT_EQ(moved.fence, 7U);
    EXPECT_TRUE(moved.others_wait);
    EXPECT_FALSE(moved.unclear);
    EXPECT_EQ(moved.from, nothing);
}

TEST(Adopting, of_a_ticket_that_is_gone_is_lost_and_touches_nothing) {
    Machine machine{adopting};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.answered({.moved = false}, start), Errc::lost, nothing, nothing);
}

TEST(Adopting, too_late_to_be_of_use_gives_the_lock_back) {
    Machine machine{adopting};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.answered({.moved = true}, start + 10s), Errc::unavailable, nothing,
                  at_once);
}

TEST(Adopting, with_too_few_replicas_gives_the_lock_back) {
    Machine machine{adopting};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.answered({.moved = true, .replicas = 0, .replicas_wanted = 2}, start),
                  Errc::not_replicated, nothing, at_once);
}

TEST(Adopting, that_nobody_answered_gives_back_what_it_may_have) {
    Machine machine{adopting};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.failed(unanswered(), start + 990ms), Errc::unavailable, nothing,
                  now_and_later);
}

TEST(Adopting, that_was_never_sent_leaves_the_ticket) {
    Machine machine{adopting};
    static_cast<void>(machine.begin(start));
    expect_failed(machine.failed(refused(), start + 990ms), Errc::unavailable, nothing, nothing);
}

TEST(Adopting, refused_for_good_is_not_tried_again) {
    Machine machine{adopting};
    static_cast<void>(machine.begin(start));
    Fault denied{.error = {Errc::denied, {}, {}, {}, {}}};
    denied.transient = false;
    expect_failed(machine.failed(denied, start), Errc::denied, nothing, nothing);
}

}  // namespace
