// What the end of an acquisition does at the server, step by step, with a clock of its own.

#include "machine_tools.hpp"
#include <redlatch/core/release.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::CleanUp;
using detail::more_to_serve;
using detail::more_to_serve_not_held;
using detail::retry_pause;
using detail::SentRelease;
using detail::TimePoint;
using Machine = detail::ReleaseMachine;
using Action = Machine::Action;
using Kind = Machine::Ended::Kind;
using Which = Machine::Which;

constexpr TimePoint start{1000s};
constexpr TimePoint end_of_validity = start + 10s;
constexpr TimePoint give_up_at = start + 1s;

constexpr bool released = true;
constexpr bool valid = true;

constexpr CleanUp later{.once_more = true};
constexpr CleanUp now_and_later{.at_once = true, .once_more = true};

constexpr Machine::Ended last{
    .kind = Kind::last, .valid_until = end_of_validity, .give_up_at = give_up_at};

Machine::Ended ended(Kind kind) {
    Machine::Ended how = last;
    how.kind = kind;
    return how;
}

Machine::Ended last_with_heir() {
    Machine::Ended how = last;
    how.can_hand_off = true;
    return how;
}

Machine::Ended last_unclear() {
    Machine::Ended how = last;
    how.unclear_try = true;
    return how;
}

Machine::Ended last_at(std::uint64_t masters) {
    Machine::Ended how = last;
    how.masters = masters;
    return how;
}

Machine::Ended last_sent() {
    Machine::Ended how = last;
    how.mode = ReleaseMode::sent;
    return how;
}

class EndOf : public testing::Test {
protected:
    /// The first command, after the renewal has been stopped.
    Action begin(const Machine::Ended& how, TimePoint now = start) {
        EXPECT_TRUE(as<Machine::StopRenewal>(machine.begin(how, now)).whole_hold);
        return machine.next();
    }

    Action answered(std::int64_t value, TimePoint at = start + 1ms) {
        return machine.release_answered({.value = value}, at);
    }

    Action failed(const detail::Fault& fault, TimePoint at = start + 1ms) {
        return machine.failed(fault, {}, at);
    }

    void expect_release_of(Which token, const Action& action) {
        EXPECT_EQ(as<Machine::SendRelease>(action).token, token);
        EXPECT_EQ(as<Machine::SendRelease>(action).answer_by, give_up_at);
    }

    void expect_clean_up(const Action& action, Which token, CleanUp what) {
        EXPECT_EQ(as<Machine::CleanUpToken>(action).token, token);
        EXPECT_EQ(as<Machine::CleanUpToken>(action).what, what);
    }

    std::optional<Result<Release>> outcome_of(const Action& action) {
        as<Machine::Done>(action);
        return machine.take_outcome();
    }

    /// The last action, with that outcome.
    void expect_done(const Action& action, Release outcome) {
        const auto done = outcome_of(action);
        ASSERT_TRUE(done && *done);
        EXPECT_EQ(**done, outcome);
    }
    void expect_done(const Action& action, Errc code) {
        const auto done = outcome_of(action);
        ASSERT_TRUE(done && !*done);
        EXPECT_EQ(done->error().code, code);
    }

    /// The next thread's turn, and the end.
    template <class Outcome>
    void expect_freed(const Action& action, Outcome outcome) {
        as<Machine::FreeHold>(action);
        expect_done(machine.next(), outcome);
    }

    /// The same with something that is cleaned up once more, later.
    template <class Outcome>
    void expect_freed_and_cleaned_up(const Action& action, Outcome outcome) {
        as<Machine::FreeHold>(action);
        expect_clean_up(machine.next(), Which::held, later);
        expect_done(machine.next(), outcome);
    }

    Machine machine;
};

using EndOfAHold = EndOf;
using EndOfANestedHold = EndOf;
using Move = EndOf;
using UnwantedMove = EndOf;
using SentUnlock = EndOf;
using ReleaseOfSeveralMasters = EndOf;

// ---- A hold whose lock nobody is to get yet

TEST_F(EndOfAHold, moves_to_an_heir_only_when_its_min_hold_is_over) {
    Machine::Ended kept = last_with_heir();
    kept.kept_until = start + 1ms;
    expect_release_of(Which::held, begin(kept));
    as<Machine::SendMove>(begin(kept, start + 1ms));
}

// ---- The last acquisition of a hold

TEST_F(EndOfAHold, stops_its_renewal_before_the_release_is_sent) {
    EXPECT_TRUE(as<Machine::StopRenewal>(machine.begin(last, start)).whole_hold);
    expect_release_of(Which::held, machine.next());
}

TEST_F(EndOfAHold, is_released_when_the_server_says_so) {
    begin(last);
    expect_freed(answered(1), Release::released);
}

TEST_F(EndOfAHold, is_expired_when_the_token_was_gone) {
    begin(last);
    expect_freed(answered(0), Release::expired);
}

TEST_F(EndOfAHold, that_was_lost_before_says_so_and_asks_nobody) {
    expect_done(machine.begin(ended(Kind::past), start), Release::expired);
}

TEST_F(EndOfAHold, that_was_lost_before_is_released_where_the_server_delays_its_end) {
    Machine::Ended delayed = ended(Kind::past);
    delayed.delayed = now_and_later;
    const auto clean_up = as<Machine::CleanUpToken>(machine.begin(delayed, start));
    EXPECT_EQ(clean_up.what, now_and_later);
    EXPECT_EQ(clean_up.token, Which::held);
    expect_done(machine.next(), Release::expired);
}

TEST_F(EndOfAHold, whose_claim_is_kept_for_others_leaves_its_release_for_later) {
    Machine::Ended kept = ended(Kind::left);
    kept.delayed = {.once_more = true, .is_delayed = true};
    for (const bool is_abandoned : {false, true}) {
        machine = {};
        EXPECT_TRUE(as<Machine::StopRenewal>(is_abandoned ? machine.abandon(kept, {})
                                                          : machine.begin(kept, start))
                        .whole_hold);
        const auto clean_up = as<Machine::CleanUpToken>(machine.next());
        EXPECT_EQ(clean_up.what, kept.delayed);
        EXPECT_EQ(clean_up.token, Which::held);
        expect_done(machine.next(), Release::released);
    }
}

TEST_F(EndOfAHold, of_which_there_is_none_has_no_outcome) {
    EXPECT_FALSE(outcome_of(machine.begin(ended(Kind::nothing), start)));
}

TEST_F(EndOfAHold, that_has_passed_on_in_memory_sends_nothing) {
    EXPECT_TRUE(as<Machine::StopRenewal>(machine.begin(ended(Kind::handed), start)).whole_hold);
    expect_done(machine.next(), Release::released);
}

TEST_F(EndOfAHold, whose_claim_others_go_on_with_sends_nothing) {
    const auto end_at = [this](TimePoint now) {
        machine = {};
        EXPECT_TRUE(as<Machine::StopRenewal>(machine.begin(ended(Kind::left), now)).whole_hold);
        return machine.next();
    };
    expect_done(end_at(end_of_validity - 1ms), Release::released);
    expect_done(end_at(end_of_validity), Release::expired);
}

TEST_F(EndOfAHold, is_sent_again_after_a_pause) {
    begin(last);
    for (const TimePoint at : {start + 5ms, start + 400ms}) {
        EXPECT_EQ(as<Machine::RetryAt>(failed(silent(), at)).time, at + retry_pause);
        expect_release_of(Which::held, machine.pause_over());
    }
    expect_freed(answered(1, start + 500ms), Release::released);
}

TEST_F(EndOfAHold, sent_again_finds_the_token_gone_and_was_released_while_validity_runs) {
    begin(last);
    as<Machine::RetryAt>(failed(silent()));
    expect_freed(answered(0), Release::released);
}

TEST_F(EndOfAHold, repeated_underneath_finds_the_token_gone_and_was_released) {
    begin(last);
    expect_freed(machine.release_answered({.value = 0, .repeated = true}, start + 1ms),
                 Release::released);
}

TEST_F(EndOfAHold, sent_again_finds_the_token_gone_after_validity_and_is_unclear) {
    Machine::Ended how = last;
    how.valid_until = start + 100ms;
    begin(how);
    as<Machine::RetryAt>(failed(silent("lost on the way"), start + 50ms));
    as<Machine::FreeHold>(answered(0, start + 100ms));
    expect_clean_up(machine.next(), Which::held, later);
    const auto done = outcome_of(machine.next());
    ASSERT_TRUE(done && !*done);
    EXPECT_EQ(done->error().code, Errc::unclear);
    ASSERT_EQ(done->error().causes.size(), 1U);
    EXPECT_EQ(done->error().causes[0].message, "lost on the way");
}

TEST_F(EndOfAHold, is_not_sent_again_when_validity_has_ended) {
    Machine::Ended how = last;
    how.valid_until = start + 100ms;
    begin(how);
    expect_freed_and_cleaned_up(failed(silent(), start + 100ms), Errc::unclear);
}

TEST_F(EndOfAHold, is_sent_again_until_the_pause_would_reach_the_deadline) {
    begin(last);
    as<Machine::RetryAt>(failed(silent(), give_up_at - retry_pause - 1ns));
    expect_freed_and_cleaned_up(failed(silent(), give_up_at - retry_pause), Errc::unclear);
}

TEST_F(EndOfAHold, whose_validity_had_ended_before_is_tried_once_and_expired) {
    begin(last, end_of_validity);
    expect_freed(answered(0, end_of_validity + 1ms), Release::expired);
}

TEST_F(EndOfAHold, whose_validity_had_ended_before_is_released_later_where_no_answer_came) {
    for (const detail::Fault& fault : {silent(), refused()}) {
        machine = Machine{};
        begin(last, end_of_validity);
        expect_freed_and_cleaned_up(failed(fault, end_of_validity + 1ms), Release::expired);
    }
}

TEST_F(EndOfAHold, that_was_never_sent_reports_the_fault_and_is_released_later) {
    begin(last);
    expect_freed_and_cleaned_up(failed(refused(), give_up_at), Errc::unavailable);
}

TEST_F(EndOfAHold, that_was_never_sent_as_the_client_closed_is_released_at_once) {
    begin(last);
    const detail::Fault closed{.error = {Errc::cancelled, {}, {}, "the client was closed", {}},
                               .transient = false};
    as<Machine::FreeHold>(failed(closed));
    expect_clean_up(machine.next(), Which::held, now_and_later);
    expect_done(machine.next(), Errc::cancelled);
}

TEST_F(EndOfAHold, that_is_forbidden_is_not_sent_again) {
    begin(last);
    expect_freed_and_cleaned_up(failed(forbidden()), Errc::denied);
}

TEST_F(EndOfAHold, is_released_once_more_where_a_try_to_take_it_got_no_answer) {
    for (const std::int64_t value : {0, 1}) {
        machine = {};
        begin(last_unclear());
        expect_freed_and_cleaned_up(answered(value),
                                    value == 1 ? Release::released : Release::expired);
    }
}

TEST_F(EndOfAHold, serves_the_waiters_until_a_live_one_has_the_lock) {
    begin(last);
    expect_release_of(Which::held, answered(more_to_serve));
    expect_release_of(Which::held, answered(more_to_serve));
    expect_freed(answered(0), Release::released);
}

TEST_F(EndOfAHold, serves_the_waiters_of_what_was_lost_too) {
    begin(last);
    expect_release_of(Which::held, answered(more_to_serve_not_held));
    expect_release_of(Which::held, answered(more_to_serve_not_held));
    expect_freed(answered(0), Release::expired);
}

TEST_F(EndOfAHold, is_released_whatever_becomes_of_the_waiters) {
    begin(last);
    expect_release_of(Which::held, answered(more_to_serve));
    expect_freed(failed(silent()), Release::released);
}

TEST_F(EndOfAHold, serves_the_waiters_no_longer_than_its_deadline) {
    begin(last);
    expect_release_of(Which::held, answered(more_to_serve, give_up_at - 1ns));
    expect_freed(answered(more_to_serve, give_up_at), Release::released);
}

// ---- One of several acquisitions of a hold

TEST_F(EndOfANestedHold, tells_the_server_how_many_are_left) {
    Machine::Ended how = ended(Kind::nested);
    how.count = 2;
    const auto send = as<Machine::SendCount>(machine.begin(how, start));
    EXPECT_EQ(send.count, 2U);
    EXPECT_EQ(send.answer_by, give_up_at);
    expect_done(machine.count_answered(true, !released), Release::still_held);
}

TEST_F(EndOfANestedHold, that_was_watched_ends_its_own_share_of_the_renewal) {
    Machine::Ended how = ended(Kind::nested);
    how.watched = true;
    EXPECT_FALSE(as<Machine::StopRenewal>(machine.begin(how, start)).whole_hold);
    as<Machine::SendCount>(machine.next());
}

TEST_F(EndOfANestedHold, finds_out_that_the_hold_is_lost) {
    as<Machine::SendCount>(machine.begin(ended(Kind::nested), start));
    as<Machine::DeclareLost>(machine.count_answered(false, !released));
    expect_done(machine.next(), Release::expired);
}

TEST_F(EndOfANestedHold, may_come_to_the_server_behind_the_release) {
    as<Machine::SendCount>(machine.begin(ended(Kind::nested), start));
    expect_done(machine.count_answered(false, released), Release::still_held);
}

TEST_F(EndOfANestedHold, that_was_over_has_expired_and_asks_nobody) {
    Machine::Ended how = ended(Kind::nested);
    expect_done(machine.begin(how, how.valid_until), Release::expired);
    how.tells_count = false;
    expect_done(machine.begin(how, how.valid_until), Release::expired);
}

TEST_F(EndOfANestedHold, has_ended_whatever_goes_wrong) {
    for (const auto& fault : {silent(), refused(), forbidden()}) {
        as<Machine::SendCount>(machine.begin(ended(Kind::nested), start));
        expect_done(failed(fault), Release::still_held);
    }
}

// ---- A thread of this process would like to be next

constexpr Machine::Move moved{
    .moved = true, .others_wait = true, .fence = 7, .sent = start, .valid_until = start + 20s};

TEST_F(Move, gives_the_lock_to_the_next_thread) {
    EXPECT_EQ(as<Machine::SendMove>(begin(last_with_heir())).answer_by, give_up_at);
    const auto over = as<Machine::PassOn>(machine.move_answered(moved));
    EXPECT_TRUE(over.move.others_wait);
    EXPECT_EQ(over.move.fence, 7U);
    EXPECT_EQ(over.move.sent, start);
    expect_done(machine.passed_on(true), Release::released);
}

TEST_F(Move, of_a_token_with_an_unclear_try_releases_that_once_more) {
    Machine::Ended how = last_with_heir();
    how.unclear_try = true;
    begin(how);
    as<Machine::PassOn>(machine.move_answered(moved));
    expect_clean_up(machine.passed_on(true), Which::held, later);
    expect_done(machine.next(), Release::released);
}

TEST_F(Move, finds_the_token_gone) {
    begin(last_with_heir());
    expect_freed(machine.move_answered({.moved = false}), Release::expired);
}

TEST_F(Move, that_finds_the_token_gone_releases_an_unclear_one_once_more) {
    Machine::Ended how = last_with_heir();
    how.unclear_try = true;
    begin(how);
    expect_freed_and_cleaned_up(machine.move_answered({.moved = false}), Release::expired);
}

TEST_F(Move, without_an_answer_has_both_tokens_released) {
    begin(last_with_heir());
    expect_clean_up(failed(silent()), Which::next, now_and_later);
    expect_release_of(Which::held, machine.next());
    expect_freed(answered(0), Release::released);
}

TEST_F(Move, without_an_answer_makes_what_follows_unclear) {
    begin(last_with_heir());
    expect_clean_up(failed(silent()), Which::next, now_and_later);
    expect_freed_and_cleaned_up(answered(0, end_of_validity), Errc::unclear);
}

TEST_F(Move, that_never_ran_leaves_only_the_release) {
    begin(last_with_heir());
    expect_release_of(Which::held, failed(refused()));
    expect_freed(answered(0), Release::expired);
}

TEST_F(Move, without_an_answer_waits_for_the_release_even_where_it_may_be_only_sent) {
    Machine::Ended how = last_with_heir();
    how.mode = ReleaseMode::sent;
    as<Machine::SendMove>(begin(how));
    expect_clean_up(failed(silent()), Which::next, now_and_later);
    expect_release_of(Which::held, machine.next());
}

TEST_F(Move, is_not_tried_with_a_lock_whose_validity_has_ended) {
    expect_release_of(Which::held, begin(last_with_heir(), end_of_validity));
}

TEST_F(Move, is_not_tried_with_several_masters) {
    Machine::Ended how = last_at(0b111);
    how.can_hand_off = true;
    expect_release_of(Which::held, begin(how));
}

// ---- … and has left meanwhile

TEST_F(UnwantedMove, is_released) {
    begin(last_with_heir());
    as<Machine::PassOn>(machine.move_answered(moved));
    expect_release_of(Which::next, machine.passed_on(false));
    expect_freed(answered(1), Release::released);
}

TEST_F(UnwantedMove, that_expired_meanwhile_was_a_release_all_the_same) {
    begin(last_with_heir());
    as<Machine::PassOn>(machine.move_answered(moved));
    expect_release_of(Which::next, machine.passed_on(false));
    expect_freed(answered(0), Release::released);
}

TEST_F(UnwantedMove, is_released_again_while_its_own_validity_runs) {
    begin(last_with_heir());
    as<Machine::PassOn>(machine.move_answered(moved));
    machine.passed_on(false);
    as<Machine::RetryAt>(failed(silent(), start + 500ms));
    expect_release_of(Which::next, machine.pause_over());

    machine = {};
    Machine::Move short_lived = moved;
    short_lived.valid_until = start + 500ms;
    begin(last_with_heir());
    as<Machine::PassOn>(machine.move_answered(short_lived));
    machine.passed_on(false);
    as<Machine::FreeHold>(failed(silent(), start + 500ms));
}

TEST_F(UnwantedMove, whose_release_is_unclear_is_released_in_the_background) {
    begin(last_with_heir());
    as<Machine::PassOn>(machine.move_answered(moved));
    machine.passed_on(false);
    as<Machine::FreeHold>(failed(silent(), give_up_at));
    expect_clean_up(machine.next(), Which::next, now_and_later);
    expect_done(machine.next(), Errc::unclear);
}

TEST_F(UnwantedMove, cleans_up_both_tokens_where_both_may_come_to_life) {
    Machine::Ended how = last_with_heir();
    how.unclear_try = true;
    Machine::Move repeated = moved;
    repeated.repeated = true;
    begin(how);
    as<Machine::PassOn>(machine.move_answered(repeated));
    machine.passed_on(false);
    as<Machine::FreeHold>(answered(1));
    expect_clean_up(machine.next(), Which::held, later);
    expect_clean_up(machine.next(), Which::next, later);
    expect_done(machine.next(), Release::released);
}

// ---- ReleaseMode::sent

TEST_F(SentUnlock, waits_for_no_answer) {
    const auto post = as<Machine::PostRelease>(begin(last_sent()));
    EXPECT_EQ(post.answer_by, give_up_at);
    EXPECT_TRUE(post.valid);
    as<Machine::FreeHold>(machine.posted(true));
    EXPECT_FALSE(outcome_of(machine.next()));
}

TEST_F(SentUnlock, that_could_not_be_sent_is_waited_for) {
    begin(last_sent());
    expect_release_of(Which::held, machine.posted(false));
    as<Machine::RetryAt>(failed(silent()));
    expect_release_of(Which::held, machine.pause_over());
    expect_freed(answered(1), Release::released);
}

TEST_F(SentUnlock, is_confirmed_where_several_masters_decide) {
    Machine::Ended how = last_at(0b111);
    how.mode = ReleaseMode::sent;
    expect_release_of(Which::held, begin(how));
}

TEST_F(SentUnlock, is_confirmed_while_a_min_hold_runs) {
    Machine::Ended how = last_sent();
    how.kept_until = start + 1ms;
    expect_release_of(Which::held, begin(how));
}

TEST_F(SentUnlock, is_only_sent_when_its_min_hold_is_over) {
    Machine::Ended how = last_sent();
    how.kept_until = start;
    as<Machine::PostRelease>(begin(how));
}

TEST_F(SentUnlock, is_confirmed_where_a_thread_here_waits_behind_a_lost_lock) {
    Machine::Ended how = last_sent();
    how.can_hand_off = true;
    expect_release_of(Which::held, begin(how, end_of_validity));
}

TEST_F(SentUnlock, of_a_nested_hold_is_told_at_once) {
    Machine::Ended how = ended(Kind::nested);
    how.mode = ReleaseMode::sent;
    as<Machine::SendCount>(machine.begin(how, start));
}

TEST_F(SentUnlock, that_is_answered_late_means_what_the_answer_says) {
    constexpr bool clear = false;
    constexpr bool unclear = true;
    const auto freed = SentRelease::answered(1, clear, valid);
    EXPECT_EQ(*freed.outcome, Release::released);
    EXPECT_FALSE(freed.clean_up.needed());

    const auto gone = SentRelease::answered(0, clear, valid);
    EXPECT_EQ(*gone.outcome, Release::expired);
    EXPECT_FALSE(gone.clean_up.needed());

    EXPECT_EQ(SentRelease::answered(1, unclear, valid).clean_up, later);
    EXPECT_EQ(SentRelease::answered(0, unclear, valid).clean_up, later);
}

TEST_F(SentUnlock, whose_validity_was_over_has_expired_whatever_the_server_says) {
    EXPECT_FALSE(as<Machine::PostRelease>(begin(last_sent(), end_of_validity)).valid);
    EXPECT_EQ(*SentRelease::answered(1, false, !valid).outcome, Release::expired);
    const auto unanswered = SentRelease::failed({Errc::unavailable, {}, {}, "gone", {}}, !valid);
    EXPECT_EQ(*unanswered.outcome, Release::expired);
    EXPECT_EQ(unanswered.clean_up, now_and_later);
}

TEST_F(SentUnlock, that_left_waiters_unserved_is_sent_again) {
    EXPECT_EQ(*SentRelease::answered(more_to_serve_not_held, false, valid).outcome,
              Release::expired);
    const auto sent = SentRelease::answered(more_to_serve, false, valid);
    EXPECT_EQ(*sent.outcome, Release::released);
    EXPECT_EQ(sent.clean_up, now_and_later);
}

TEST_F(SentUnlock, that_is_never_answered_is_unclear_and_sent_again_now_and_later) {
    const auto sent = SentRelease::failed({Errc::unavailable, "job", {}, "gone", {}}, valid);
    ASSERT_FALSE(sent.outcome);
    EXPECT_EQ(sent.outcome.error().code, Errc::unclear);
    EXPECT_EQ(sent.outcome.error().key, "job");
    ASSERT_EQ(sent.outcome.error().causes.size(), 1U);
    EXPECT_EQ(sent.outcome.error().causes[0].message, "gone");
    EXPECT_EQ(sent.clean_up, now_and_later);
}

// ---- Several masters

TEST_F(ReleaseOfSeveralMasters, that_have_all_heard_of_it_leaves_nothing) {
    begin(last_at(0b10101));
    expect_freed(machine.release_answered({.value = 1, .masters = {.told = 0b10101}}, start),
                 Release::released);
}

TEST_F(ReleaseOfSeveralMasters, is_sent_at_once_and_once_more_where_one_has_not_heard_of_it) {
    begin(last_at(0b10101));
    as<Machine::FreeHold>(
        machine.release_answered({.value = 1, .masters = {.told = 0b00101}}, start));
    expect_clean_up(machine.next(), Which::held, {.at_once = true, .once_more = true});
    expect_done(machine.next(), Release::released);
}

TEST_F(ReleaseOfSeveralMasters, counts_those_that_heard_of_any_try) {
    begin(last_at(0b111));
    as<Machine::RetryAt>(machine.failed(silent(), {.told = 0b100}, start));
    expect_freed(machine.release_answered({.value = 1, .masters = {.told = 0b011}}, start),
                 Release::released);
}

TEST_F(ReleaseOfSeveralMasters, is_sent_once_more_where_one_still_owes_an_answer_to_the_taking) {
    begin(last_at(0b111));
    const detail::MastersHeard owing{.told = 0b111, .acquire_unanswered = true};
    expect_freed_and_cleaned_up(machine.release_answered({.value = 1, .masters = owing}, start),
                                Release::released);
}

TEST_F(ReleaseOfSeveralMasters, forgets_a_debt_that_was_settled_meanwhile) {
    begin(last_at(0b111));
    const detail::MastersHeard owing{.told = 0b111, .acquire_unanswered = true};
    as<Machine::RetryAt>(machine.failed(silent(), owing, start));
    expect_freed(machine.release_answered({.value = 1, .masters = {.told = 0b111}}, start),
                 Release::released);
}

TEST_F(ReleaseOfSeveralMasters, is_made_up_for_at_one_that_is_silent) {
    begin(last_at(0b111));
    EXPECT_EQ(machine.if_silent(), later);
    as<Machine::RetryAt>(machine.failed(silent(), {.told = 0b100}, start));
    as<Machine::SendRelease>(machine.pause_over());
    EXPECT_EQ(machine.if_silent(), later);
}

TEST_F(ReleaseOfSeveralMasters, is_all_that_is_made_up_for) {
    Machine::Ended nested = last_at(0b111);
    nested.kind = Kind::nested;
    as<Machine::SendCount>(machine.begin(nested, start));
    EXPECT_FALSE(machine.if_silent().needed()) << "the outer hold goes on with the token";
    begin(last);
    EXPECT_FALSE(machine.if_silent().needed()) << "one master decides";
}

TEST_F(ReleaseOfSeveralMasters, without_a_quorum_is_unclear_and_sent_once_more) {
    begin(last_at(0b111));
    expect_freed_and_cleaned_up(machine.failed(silent(), {.told = 0b111}, give_up_at),
                                Errc::unclear);
}

class AbandonedAcquisition : public EndOf {
protected:
    Action abandon(Machine::Ended how, const detail::MastersHeard& masters = {}) {
        how.mode = ReleaseMode::sent;
        return machine.abandon(how, masters);
    }

    /// The outcome for the observer, if it has heard of the acquisition.
    void expect_end(const Action& action, Release outcome) {
        const auto done = outcome_of(action);
        ASSERT_TRUE(done);
        EXPECT_EQ(done->value(), outcome);
    }
};

TEST_F(AbandonedAcquisition, is_released_in_the_background_before_the_next_threads_turn) {
    EXPECT_TRUE(as<Machine::StopRenewal>(abandon(last_with_heir())).whole_hold);
    expect_clean_up(machine.next(), Which::held, {.at_once = true});
    as<Machine::FreeHold>(machine.next());
    expect_end(machine.next(), Release::released);
}

TEST_F(AbandonedAcquisition, is_released_once_more_where_a_try_to_take_it_got_no_answer) {
    as<Machine::StopRenewal>(abandon(last_unclear()));
    expect_clean_up(machine.next(), Which::held, now_and_later);
}

TEST_F(AbandonedAcquisition, is_released_once_more_where_a_master_still_owes_an_answer) {
    as<Machine::StopRenewal>(abandon(last_at(0b111), {.acquire_unanswered = true}));
    expect_clean_up(machine.next(), Which::held, now_and_later);
}

TEST_F(AbandonedAcquisition, of_a_nest_ends_its_own_share_of_the_renewal) {
    Machine::Ended nested = ended(Kind::nested);
    expect_end(abandon(nested), Release::still_held);
    nested.watched = true;
    EXPECT_FALSE(as<Machine::StopRenewal>(abandon(nested)).whole_hold);
    expect_end(machine.next(), Release::still_held);
}

TEST_F(AbandonedAcquisition, that_has_passed_on_or_was_lost_leaves_nothing) {
    for (const Kind kind : {Kind::handed, Kind::left}) {
        machine = {};
        EXPECT_TRUE(as<Machine::StopRenewal>(abandon(ended(kind))).whole_hold);
    }
    expect_end(machine.next(), Release::released);
    expect_end(abandon(ended(Kind::past)), Release::expired);
    EXPECT_FALSE(outcome_of(abandon(ended(Kind::nothing))));
}

}  // namespace
