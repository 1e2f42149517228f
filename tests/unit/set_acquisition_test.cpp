// How a set of locks is taken, step by step, with a clock of its own.

#include "machine_tools.hpp"
#include <redlatch/core/set_acquisition.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::TimePoint;
using Machine = detail::SetAcquisition;
using Action = Machine::Action;

constexpr TimePoint start{1000s};
constexpr Lease lease{30s};

const Error busy{Errc::timed_out, "b", {}, {}, {}};
const Error cut_short{Errc::cancelled, "b", {}, {}, {}};

class TakingASet : public testing::Test {
protected:
    void expect_take(const Action& action, std::size_t member, Wait wait) {
        EXPECT_EQ(as<Machine::Take>(action).member, member);
        EXPECT_EQ(as<Machine::Take>(action).wait, wait);
    }
    void expect_failed(const Action& action, Errc code, TimePoint now = start) {
        as<Machine::GiveBack>(action);
        EXPECT_EQ(as<Machine::Failed>(machine.given_back(now)).error.code, code);
    }

    static Machine set_with(Wait wait) {
        return Machine{{.members = 2, .wait = wait, .lease = lease, .command_timeout = 5s}, start};
    }

    Machine machine = set_with(1s);
};

TEST_F(TakingASet, takes_one_after_the_other_within_one_wait) {
    expect_take(machine.begin(start), 0, 1s);
    const Action second = machine.taken(true, start, start + 300ms);
    expect_take(second, 1, 700ms);
    EXPECT_EQ(as<Machine::Take>(second).answer_by, start + 1050ms);
    as<Machine::Done>(machine.taken(true, start + 980ms, start + 990ms));
}

TEST_F(TakingASet, gives_a_full_lease_to_those_that_were_taken_long_before) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start + 300ms));
    const auto refresh = as<Machine::Refresh>(machine.taken(true, start, start + 900ms));
    EXPECT_EQ(refresh.since, start + 850ms) << "those that are at most 50 ms old are left alone";
    EXPECT_EQ(refresh.answer_by, start + 1050ms);
    as<Machine::Done>(machine.refreshed(true, false, start + 910ms));
}

TEST_F(TakingASet, gives_all_back_where_one_is_refused) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start));
    expect_failed(machine.refused(busy, true, false, start + 1s), Errc::timed_out);
}

TEST_F(TakingASet, waits_for_its_releases_where_that_takes_no_more_than_its_call_may) {
    const auto given_back_by = [](Wait wait, bool stopped, TimePoint now = start) {
        Machine refused = set_with(wait);
        static_cast<void>(refused.begin(start));
        static_cast<void>(refused.taken(true, start, start));
        return as<Machine::GiveBack>(refused.refused(busy, true, stopped, now)).answer_by;
    };
    EXPECT_EQ(given_back_by(Wait::none(), false), start + 5s);
    EXPECT_EQ(given_back_by(Wait::unlimited(), false), TimePoint::max());
    EXPECT_EQ(given_back_by(1s, false), start + 1050ms);
    EXPECT_EQ(given_back_by(1s, false, start + 1s), TimePoint::min()) << "that leaves no time";
    EXPECT_EQ(given_back_by(Wait::none(), true), TimePoint::min()) << "nobody waits";
    Machine anew = set_with(Wait::unlimited());
    static_cast<void>(anew.begin(start));
    EXPECT_EQ(as<Machine::GiveBack>(anew.taken(false, start, start)).answer_by, TimePoint::min());
}

TEST_F(TakingASet, begins_anew_where_one_is_lost_while_another_is_waited_for) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start));
    as<Machine::GiveBack>(machine.refused(cut_short, false, false, start + 400ms));
    expect_take(machine.given_back(start + 400ms), 0, 600ms);
    expect_take(machine.taken(true, start + 400ms, start + 500ms), 1, 500ms);
}

TEST_F(TakingASet, begins_anew_where_one_was_lost_in_the_end) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start));
    as<Machine::GiveBack>(machine.taken(false, start, start + 1ms));
    expect_take(machine.given_back(start + 1ms), 0, 999ms);
}

TEST_F(TakingASet, begins_anew_where_one_turns_out_to_be_lost_as_it_is_renewed) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start));
    as<Machine::Refresh>(machine.taken(true, start, start + 500ms));
    as<Machine::GiveBack>(machine.refreshed(false, false, start + 501ms));
    expect_take(machine.given_back(start + 501ms), 0, 499ms);
}

TEST_F(TakingASet, tries_each_of_the_rest_once_where_its_wait_is_over) {
    static_cast<void>(machine.begin(start));
    expect_take(machine.taken(true, start, start + 1s), 1, 0ms);
    expect_failed(machine.refused(busy, true, false, start + 1s), Errc::timed_out);
}

TEST_F(TakingASet, does_not_begin_anew_after_its_wait) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start));
    expect_failed(machine.taken(false, start, start + 1s), Errc::timed_out);
}

TEST_F(TakingASet, is_cancelled_as_its_caller_likes) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start));
    expect_failed(machine.refused(cut_short, true, true, start), Errc::cancelled);
}

TEST_F(TakingASet, is_cancelled_also_where_one_was_lost_meanwhile) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start));
    expect_failed(machine.refused(cut_short, false, true, start), Errc::cancelled);
}

TEST_F(TakingASet, is_cancelled_while_the_first_are_given_a_full_lease) {
    for (const bool all_held : {true, false}) {
        Machine stopped = set_with(1s);
        static_cast<void>(stopped.begin(start));
        static_cast<void>(stopped.taken(true, start, start));
        as<Machine::Refresh>(stopped.taken(true, start, start + 500ms));
        as<Machine::GiveBack>(stopped.refreshed(all_held, true, start + 501ms));
        EXPECT_EQ(as<Machine::Failed>(stopped.given_back(start + 501ms)).error.code,
                  Errc::cancelled);
    }
}

TEST_F(TakingASet, is_given_up_for_another_reason_also_where_one_was_lost_meanwhile) {
    static_cast<void>(machine.begin(start));
    static_cast<void>(machine.taken(true, start, start));
    expect_failed(machine.refused(busy, false, false, start), Errc::timed_out);
}

TEST_F(TakingASet, is_cancelled_where_nothing_was_there_to_lose) {
    static_cast<void>(machine.begin(start));
    expect_failed(machine.refused(cut_short, true, false, start), Errc::cancelled);
}

TEST_F(TakingASet, without_a_wait_tries_each_once) {
    Machine once = set_with(Wait::none());
    expect_take(once.begin(start), 0, Wait::none());
    expect_take(once.taken(true, start, start + 5s), 1, Wait::none());
    as<Machine::GiveBack>(once.taken(false, start, start + 5s));
    EXPECT_EQ(as<Machine::Failed>(once.given_back(start)).error.code, Errc::timed_out);
}

TEST_F(TakingASet, without_a_wait_has_one_command_timeout_for_all) {
    Machine once = set_with(Wait::none());
    EXPECT_EQ(as<Machine::Take>(once.begin(start)).answer_by, start + 5s);
    const Action second = once.taken(true, start, start + 3s);
    EXPECT_EQ(as<Machine::Take>(second).answer_by, start + 5s);
    const Action last = once.taken(true, start, start + 4s);
    EXPECT_EQ(as<Machine::Refresh>(last).answer_by, start + 5s);
}

TEST_F(TakingASet, without_a_limit_goes_on) {
    Machine endless = set_with(Wait::unlimited());
    expect_take(endless.begin(start), 0, Wait::unlimited());
    as<Machine::GiveBack>(endless.taken(false, start, start + 24h));
    expect_take(endless.given_back(start + 24h), 0, Wait::unlimited());
    expect_take(endless.taken(true, start, start + 24h), 1, Wait::unlimited());
    const auto refresh = as<Machine::Refresh>(endless.taken(true, start, start + 24h));
    EXPECT_EQ(refresh.answer_by, TimePoint::max());
}

}  // namespace
