// How a lock is taken away from its owner, step by step, with a clock of its own.

#include "machine_tools.hpp"
#include <redlatch/core/forced_release.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::ServerKeeps;
using detail::TimePoint;
using Machine = detail::ForcedRelease;
using Action = Machine::Action;

constexpr TimePoint start{1000s};
constexpr TimePoint give_up_at = start + 1s;

Machine of_anybody() {
    return Machine{{.give_up_at = give_up_at}};
}
Machine of_owner() {
    return Machine{{.owner = "a", .give_up_at = give_up_at}};
}
Machine of_any_claims() {
    return Machine{{.has_claims = true, .give_up_at = give_up_at}};
}
Machine of_claims_at_several_masters() {
    return Machine{{.has_claims = true, .several_masters = true, .give_up_at = give_up_at}};
}
Machine of_claim() {
    return Machine{{.owner = "a", .has_claims = true, .give_up_at = give_up_at}};
}

void expect_removes(const Action& action, const std::string& owner) {
    EXPECT_EQ(as<Machine::Remove>(action).owner, owner);
}
void expect_done(const Action& action, Forced outcome) {
    EXPECT_EQ(as<Machine::Done>(action).outcome.value(), outcome);
}

/// That the local holder is told, and then the call is over.
void expect_told(Machine& machine, const Action& action, ServerKeeps server, Forced outcome) {
    EXPECT_EQ(as<Machine::DeclareLost>(action).server, server);
    expect_done(machine.declared_lost(), outcome);
}

/// That it ends with a fault, and says that.
void expect_failed(const Machine& machine, const std::string& message) {
    const auto done = as<Machine::Done>(machine.failed({Errc::unavailable, {}, {}, "x", {}}));
    ASSERT_FALSE(done.outcome.has_value());
    EXPECT_EQ(done.outcome.error().code, Errc::unavailable);
    EXPECT_EQ(done.outcome.error().message, message);
}

TEST(ForcedRelease, of_anybody_removes_the_one_that_it_has_seen) {
    Machine machine = of_anybody();
    as<Machine::Look>(machine.begin());
    expect_removes(machine.seen({{"a"}}), "a");
    expect_told(machine, machine.answered({.removed = true}, start), ServerKeeps::nothing,
                Forced::removed);
}

TEST(ForcedRelease, of_a_lock_that_nobody_has_tells_a_holder_of_this_process) {
    Machine machine = of_anybody();
    as<Machine::Look>(machine.begin());
    expect_told(machine, machine.seen({}), ServerKeeps::nothing, Forced::absent);
}

// Of three masters, one that has answered may know of an owner whom the others do not know.
TEST(ForcedRelease, over_several_masters_tells_nobody_but_the_owner_that_it_has_removed) {
    Machine machine{{.several_masters = true, .give_up_at = give_up_at}};
    machine.begin();
    machine.seen({{"a"}});
    const Action removed = machine.answered({.removed = true}, start);
    EXPECT_FALSE(as<Machine::DeclareLost>(removed).is_others_too);

    Machine alone = of_anybody();
    alone.begin();
    alone.seen({{"a"}});
    EXPECT_TRUE(as<Machine::DeclareLost>(alone.answered({.removed = true}, start)).is_others_too);
}

TEST(ForcedRelease, looks_again_where_the_lock_has_gone_to_the_next_one) {
    Machine machine = of_anybody();
    as<Machine::Look>(machine.begin());
    expect_removes(machine.seen({{"a"}}), "a");
    as<Machine::Look>(machine.answered({.removed = false}, start));
    expect_removes(machine.seen({{"b"}}), "b");
    expect_told(machine, machine.answered({.removed = true}, start), ServerKeeps::nothing,
                Forced::removed);
}

/// The same token may have got the lock anew meanwhile, by a try that is sent again.
TEST(ForcedRelease, does_not_tell_whom_it_did_not_find_where_nobody_has_the_lock_in_the_end) {
    Machine machine = of_anybody();
    machine.begin();
    EXPECT_FALSE(as<Machine::DeclareLost>(machine.seen({})).is_owners);

    machine = of_anybody();
    machine.begin();
    machine.seen({{"a"}});
    machine.answered({.removed = false, .was_held = true}, start);
    const auto told = as<Machine::DeclareLost>(machine.seen({}));
    EXPECT_FALSE(told.is_owners);
    EXPECT_TRUE(told.is_others_too);
}

TEST(ForcedRelease, looks_no_more_when_its_time_is_over) {
    Machine machine = of_anybody();
    machine.begin();
    machine.seen({{"a"}});
    expect_told(machine, machine.answered({.removed = false}, give_up_at), ServerKeeps::nothing,
                Forced::absent);
}

TEST(ForcedRelease, that_was_sent_twice_goes_by_the_hold_that_was_valid_until_then) {
    for (const bool was_valid : {false, true}) {
        for (Machine machine : {of_anybody(), of_owner()}) {
            machine.begin();
            machine.seen({{"a"}});
            const auto action = machine.answered(
                {.removed = false, .repeated = true, .was_valid = was_valid}, start);
            expect_told(machine, action, ServerKeeps::nothing,
                        was_valid ? Forced::removed : Forced::absent);
        }
    }
}

TEST(ForcedRelease, of_an_owner_asks_nobody_who_it_is) {
    Machine machine = of_owner();
    expect_removes(machine.begin(), "a");
    expect_told(machine, machine.answered({.removed = true}, start), ServerKeeps::nothing,
                Forced::removed);
}

TEST(ForcedRelease, of_an_owner_that_has_it_no_more_removes_nobody_else) {
    Machine machine = of_owner();
    machine.begin();
    expect_told(machine,
                machine.answered({.removed = false, .was_held = true, .was_valid = true}, start),
                ServerKeeps::nothing, Forced::absent);
}

TEST(ForcedRelease, of_an_owner_tells_no_hold_that_has_begun_since_it_was_sent) {
    Machine machine = of_owner();
    machine.begin();
    expect_done(machine.answered({.removed = false}, start), Forced::absent);
}

TEST(ForcedRelease, of_a_claim_tells_all_that_share_it) {
    Machine machine = of_claim();
    expect_removes(machine.begin(), "a");
    expect_told(machine, machine.answered({.removed = true}, start), ServerKeeps::removed,
                Forced::removed);
}

TEST(ForcedRelease, of_a_claim_that_is_not_there_tells_nobody) {
    Machine machine = of_claim();
    machine.begin();
    expect_done(machine.answered({.removed = false, .was_valid = true}, start), Forced::absent);
}

TEST(ForcedRelease, of_a_claim_that_was_sent_twice_tells_a_hold_that_was_valid) {
    Machine machine = of_claim();
    machine.begin();
    expect_told(machine,
                machine.answered({.removed = false, .repeated = true, .was_valid = true}, start),
                ServerKeeps::removed, Forced::removed);
}

TEST(ForcedRelease, removes_one_claim_after_the_other) {
    Machine machine = of_any_claims();
    as<Machine::Look>(machine.begin());
    expect_removes(machine.seen({{"a", "b"}}), "a");
    as<Machine::DeclareLost>(machine.answered({.removed = true}, start));
    expect_removes(machine.declared_lost(), "b");
    expect_done(machine.answered({.removed = false}, start), Forced::removed);
}

TEST(ForcedRelease, looks_again_where_there_are_more_claims_than_it_was_shown) {
    Machine machine = of_any_claims();
    machine.begin();
    expect_removes(machine.seen({.owners = {"a"}, .all = false}), "a");
    as<Machine::Look>(machine.answered({.removed = false}, start));
    expect_removes(machine.seen({.owners = {"b"}, .all = true}), "b");
    expect_done(machine.answered({.removed = false}, start), Forced::absent);
}

TEST(ForcedRelease, of_no_claims_is_over_at_once) {
    Machine machine = of_any_claims();
    machine.begin();
    expect_done(machine.seen({}), Forced::absent);
}

TEST(ForcedRelease, ends_with_the_first_fault) {
    for (Machine machine : {of_anybody(), of_any_claims()}) {
        machine.begin();
        machine.seen({{"a", "b"}});
        expect_failed(machine, "x");
    }
}

TEST(ForcedRelease, that_fails_says_that_some_owners_are_removed) {
    Machine machine = of_any_claims();
    machine.begin();
    expect_removes(machine.seen({{"a", "b", "c"}}), "a");
    expect_removes(machine.answered({.removed = false}, start), "b");
    as<Machine::DeclareLost>(machine.answered({.removed = true}, start));
    expect_removes(machine.declared_lost(), "c");
    expect_failed(machine, "x; some owners have been removed by then");
}

TEST(ForcedRelease, of_any_claims_at_several_masters_looks_until_nobody_is_seen) {
    Machine machine = of_claims_at_several_masters();
    as<Machine::Look>(machine.begin());
    for (const char* const owner : {"a", "b"}) {
        expect_removes(machine.seen({{owner}}), owner);
        as<Machine::DeclareLost>(machine.answered({.removed = true}, start));
        as<Machine::Look>(machine.declared_lost());
    }
    expect_done(machine.seen({}), Forced::removed);
}

TEST(ForcedRelease, of_any_claims_at_several_masters_ends_where_somebody_always_comes) {
    Machine machine = of_claims_at_several_masters();
    Action action = machine.begin();
    int looks = 0;
    while (holds_alternative<Machine::Look>(action)) {
        ASSERT_LT(++looks, 100);
        expect_removes(machine.seen({{"a"}}), "a");
        action = machine.answered({.removed = false}, start);
    }
    expect_done(action, Forced::absent);
}

}  // namespace
