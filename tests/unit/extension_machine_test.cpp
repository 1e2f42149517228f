// How a lease is set anew, step by step, with a clock of its own.

#include "machine_tools.hpp"
#include <redlatch/core/extension.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <utility>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::retry_pause;
using detail::ServerKeeps;
using detail::TimePoint;
using Machine = detail::ExtensionMachine;
using Action = Machine::Action;

constexpr TimePoint start{1000s};
constexpr TimePoint give_up_at = start + 1s;
constexpr bool valid = true;
constexpr bool lost = true;

class Extension : public testing::Test {
protected:
    static Machine machine_for(Lease lease, TimePoint last_end = TimePoint::max()) {
        return Machine{{.lease = lease, .last_end = last_end, .give_up_at = give_up_at}};
    }

    static void expect_done(const Action& action, Errc code, const std::string& message) {
        const auto done = as<Machine::Done>(action);
        ASSERT_FALSE(done.outcome);
        EXPECT_EQ(done.outcome.error().code, code);
        EXPECT_EQ(done.outcome.error().message, message);
    }

    void expect_lost(const Action& action, ServerKeeps server, const std::string& why) {
        EXPECT_EQ(as<Machine::DeclareLost>(action).server, server);
        expect_done(machine.declared_lost(true), Errc::lost, why);
        expect_done(machine.declared_lost(false), Errc::not_held, "it was released meanwhile");
    }

    Action failed(detail::Fault fault, TimePoint at) {
        return machine.failed(std::move(fault), at, !released);
    }

    static constexpr bool released = true;
    Machine machine = machine_for(30s);
};

TEST_F(Extension, asks_for_the_lease_and_has_it_from_the_send_on) {
    const auto send = as<Machine::SendExtend>(machine.begin(start, valid));
    EXPECT_EQ(send.lease, Lease{30s});
    EXPECT_EQ(send.answer_by, give_up_at);
    const auto confirm = as<Machine::Confirm>(machine.answered(true));
    EXPECT_EQ(confirm.sent, start);
    EXPECT_EQ(confirm.lease, Lease{30s});
    EXPECT_TRUE(as<Machine::Done>(machine.confirmed(true)).outcome);
}

TEST_F(Extension, does_not_pass_the_end_by_max_hold) {
    machine = machine_for(30s, start + 5s);
    EXPECT_EQ(as<Machine::SendExtend>(machine.begin(start, valid)).lease, Lease{5s});
    EXPECT_EQ(as<Machine::Confirm>(machine.answered(true)).lease, Lease{5s});
    EXPECT_EQ(as<Machine::SendExtend>(machine.begin(start + 4s, valid)).lease, Lease{1s});
}

TEST_F(Extension, asks_nobody_for_a_hold_that_has_ended) {
    expect_lost(machine.begin(start, !valid), ServerKeeps::nothing,
                "it had ended before this call");
}

TEST_F(Extension, finds_out_that_the_hold_is_lost) {
    machine.begin(start, valid);
    expect_lost(machine.answered(false), ServerKeeps::removed, "somebody removed it");
}

TEST_F(Extension, that_was_answered_after_the_end_of_the_hold_is_released_at_the_server) {
    machine.begin(start, valid);
    machine.answered(true);
    expect_lost(machine.confirmed(false), ServerKeeps::longer, "it ended before the answer");
}

TEST_F(Extension, is_sent_again_after_a_pause_and_counts_from_that_send) {
    machine.begin(start, valid);
    EXPECT_EQ(as<Machine::RetryAt>(failed(refused(), start + 5ms)).time, start + 5ms + retry_pause);
    as<Machine::SendExtend>(machine.begin(start + 30ms, valid));
    EXPECT_EQ(as<Machine::Confirm>(machine.answered(true)).sent, start + 30ms);
}

TEST_F(Extension, whose_keys_are_in_two_places_is_about_the_lock_alone) {
    EXPECT_FALSE(as<Machine::SendExtend>(machine.begin(start, valid)).lock_alone);
    as<Machine::RetryAt>(failed(refused("CLUSTERDOWN"), start + 5ms));
    EXPECT_FALSE(as<Machine::SendExtend>(machine.begin(start + 30ms, valid)).lock_alone);
    as<Machine::RetryAt>(failed(refused("TRYAGAIN Multiple keys"), start + 35ms));
    EXPECT_TRUE(as<Machine::SendExtend>(machine.begin(start + 60ms, valid)).lock_alone);
}

TEST_F(Extension, without_an_answer_may_have_prolonged_the_lock) {
    machine.begin(start, valid);
    as<Machine::NoteProlonged>(failed(silent(), start + 5ms));
    as<Machine::RetryAt>(machine.noted(!lost));
}

TEST_F(Extension, without_an_answer_is_released_at_the_server_where_the_hold_was_lost_meanwhile) {
    machine.begin(start, valid);
    as<Machine::NoteProlonged>(failed(silent(), start + 5ms));
    expect_lost(machine.noted(lost), ServerKeeps::longer, "it ended before the answer");
}

TEST_F(Extension, ends_with_the_validity) {
    machine.begin(start, valid);
    as<Machine::RetryAt>(failed(refused(), start + 5ms));
    expect_lost(machine.begin(start + 30ms, !valid), ServerKeeps::nothing,
                "it had ended before this call");
}

TEST_F(Extension, is_sent_again_until_the_pause_would_reach_the_deadline) {
    machine.begin(start, valid);
    as<Machine::RetryAt>(failed(refused(), give_up_at - retry_pause - 1ns));
    machine.begin(give_up_at - 1ns, valid);
    expect_done(failed(refused("down"), give_up_at - retry_pause), Errc::unavailable, "down");
}

TEST_F(Extension, that_fails_in_several_ways_tells_the_one_before_too) {
    machine.begin(start, valid);
    as<Machine::RetryAt>(failed(refused("CLUSTERDOWN"), start + 5ms));
    machine.begin(start + 30ms, valid);
    as<Machine::NoteProlonged>(failed(silent("no answer"), give_up_at));
    const auto outcome = as<Machine::Done>(machine.noted(!lost)).outcome;
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().message, "no answer");
    ASSERT_EQ(outcome.error().causes.size(), 1U);
    EXPECT_EQ(outcome.error().causes[0].message, "CLUSTERDOWN");
}

TEST_F(Extension, that_is_forbidden_is_not_sent_again) {
    machine.begin(start, valid);
    expect_done(failed(forbidden(), start), Errc::denied, "NOPERM");
}

TEST_F(Extension, that_the_release_has_taken_out_finds_nothing_held) {
    machine.begin(start, valid);
    expect_done(machine.failed(forbidden(), start, released), Errc::not_held,
                "it was released meanwhile");
}

TEST_F(Extension, without_an_answer_at_the_end_may_have_prolonged_the_lock_too) {
    machine.begin(start, valid);
    as<Machine::NoteProlonged>(failed(silent("gone"), give_up_at));
    expect_done(machine.noted(!lost), Errc::unavailable, "gone");
}

}  // namespace
