#include "machine_tools.hpp"
#include "service_tools.hpp"
#include <redlatch/core/acquisition.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace redlatch::test;
using namespace std::chrono_literals;
using Kind = AcquireAnswer::Kind;
using std::chrono::milliseconds;

constexpr TimePoint start{1000s};
constexpr CleanUp nothing{};
constexpr CleanUp at_once{.at_once = true, .once_more = false};
constexpr CleanUp twice{.at_once = true, .once_more = true};
constexpr milliseconds leave{-1};

/// Two sets of scripts, that nobody runs.
constexpr char somewhere[2]{};
const LockScripts* const scripts = reinterpret_cast<const LockScripts*>(&somewhere[0]);
const LockScripts* const other_scripts = reinterpret_cast<const LockScripts*>(&somewhere[1]);

PolicyTraits traits(bool fenced = false, const LockScripts* which = scripts) {
    return {.key_type = KeyType::string,
            .reentrant = false,
            .watched = false,
            .fenced = fenced,
            .scripts = which};
}

AcquisitionPlan plan(Wait wait = 10s) {
    return {.attempts = {.wait = wait,
                         .lease = 30s,
                         .drift = {.factor = 0, .floor = 0ms},
                         .backoff = {10ms, 20ms},
                         .command_timeout = 1s},
            .key = "key",
            .traits = traits(),
            .plain_set = true};
}

AcquisitionPlan fenced(Wait wait = 10s) {
    AcquisitionPlan plan = ::plan(wait);
    plan.traits.fenced = true;
    plan.plain_set = false;
    return plan;
}

AcquisitionPlan at_three(Wait wait = 10s) {
    AcquisitionPlan plan = ::plan(wait);
    plan.polls = true;
    plan.several_masters = true;
    return plan;
}

AcquireAnswer ours(TimePoint sent = start) {
    return {.kind = Kind::ours, .sent = sent};
}

AcquireAnswer not_ours(TimePoint sent = start) {
    return {.kind = Kind::not_ours, .sent = sent, .refusal = {.ttl = 20s}};
}

/// Not ours, and a place in the queue.
AcquireAnswer queued(TimePoint sent = start) {
    AcquireAnswer answer = not_ours(sent);
    answer.place = 0;
    answer.will_be_told = true;
    answer.time = 5s;
    answer.server = std::make_shared<const std::string>("run id");
    return answer;
}

Grant grant() {
    return {
        .ttl = 30s, .time = 6s, .server = "run id", .key_type = 's', .token = "mine", .key = "key"};
}

/// A machine whose hold has been made, with token "mine".
struct Contender {
    explicit Contender(const AcquisitionPlan& plan = ::plan(), bool contended = false)
        : machine(plan, start, 1) {
        static_cast<void>(machine.admitted(nullptr, contended));
        first = machine.hold_made("mine", start);
    }

    /// The same that has sent the script and waits in the queue.
    static Contender in_queue(const AcquisitionPlan& plan = ::plan()) {
        Contender contender{plan, true};
        contender.first = contender.machine.answered(queued(), start + 1ms);
        return contender;
    }

    AcquisitionMachine machine;
    AcquisitionAction first{SendSet{}};
};

AcquisitionAction pause_over(AcquisitionMachine& machine, TimePoint now) {
    return machine.woken(Woken::in_time, std::nullopt, now);
}

AcquisitionAction granted(AcquisitionMachine& machine, const std::optional<Grant>& message,
                          TimePoint now) {
    return machine.woken(Woken::granted, message, now);
}

AcquisitionAction closed(AcquisitionMachine& machine) {
    return machine.woken(Woken::closed, std::nullopt, start);
}

/// The end of an acquisition that failed.
CleanUp failed(const AcquisitionMachine& machine, const AcquisitionAction& action, Errc code) {
    EXPECT_EQ(machine.error().code, code);
    return as<AcquisitionFailed>(action).clean_up;
}

/// What follows when the fault has been told.
AcquisitionAction told(AcquisitionMachine& machine, const AcquisitionAction& action, Errc code,
                       TimePoint now) {
    static_cast<void>(as<TellFault>(action));
    EXPECT_NE(machine.fault(), nullptr);
    if (machine.fault() != nullptr) {
        EXPECT_EQ(machine.fault()->code, code);
        EXPECT_EQ(machine.fault()->key, "key");
    }
    return machine.fault_told(now);
}

/// What follows when those behind have been told that there was an answer.
AcquisitionAction answer_told(AcquisitionMachine& machine, const AcquisitionAction& action,
                              TimePoint now = start) {
    static_cast<void>(as<TellFault>(action));
    EXPECT_EQ(machine.fault(), nullptr);
    return machine.fault_told(now);
}

// ---- The lock table's answer

TEST(Acquisition, not_admitted_says_why) {
    const auto error = [](LockOutcome why, const detail::WhyBusy& busy = {}) {
        AcquisitionMachine machine{plan(), start, 1};
        const auto action = machine.not_admitted(why, busy, start + 10s);
        EXPECT_EQ(as<AcquisitionFailed>(action).clean_up, nothing);
        return machine.error();
    };
    EXPECT_EQ(error(LockOutcome::busy).code, Errc::timed_out);
    EXPECT_EQ(error(LockOutcome::busy).message,
              "held, or waited for, in this process after 10.0 s");
    EXPECT_EQ(error(LockOutcome::busy, {.by_caller = true}).message,
              "held by the calling thread itself after 10.0 s; this lock does not nest");
    const auto fault = std::make_shared<const Error>(Error{Errc::denied, {}, {}, "NOPERM", {}});
    EXPECT_EQ(error(LockOutcome::busy, {.fault = fault}).code, Errc::denied) << "as those in front";
    EXPECT_EQ(error(LockOutcome::busy, {.is_unanswered = true}).code, Errc::unavailable);
    EXPECT_EQ(error(LockOutcome::busy, {.fault = fault, .is_unanswered = true}).code, Errc::denied);
    EXPECT_EQ(error(LockOutcome::deadlock).code, Errc::deadlock);
    EXPECT_EQ(error(LockOutcome::cancelled).code, Errc::cancelled);
    EXPECT_EQ(error(LockOutcome::cancelled).message, "cancelled by the caller");
    EXPECT_EQ(error(LockOutcome::closed).code, Errc::cancelled);
    EXPECT_EQ(error(LockOutcome::closed).message, "the client was closed");
    EXPECT_EQ(error(LockOutcome::wrong_key_type).code, Errc::wrong_type);
}

TEST(Acquisition, takes_a_hold_that_is_handed_to_it_while_it_lasts) {
    AcquisitionMachine machine{plan(), start, 1};
    EXPECT_TRUE(as<AcquisitionDone>(machine.handed(true, std::nullopt)).watch_over);
    EXPECT_TRUE(as<LetGo>(machine.handed(false, std::nullopt)).ask_again);
}

TEST(Acquisition, lets_a_hold_go_that_cannot_be_renewed) {
    for (const bool valid : {false, true}) {
        AcquisitionMachine machine{plan(), start, 1};
        const Error why{Errc::unavailable, {}, {}, "no thread", {}};
        EXPECT_FALSE(as<LetGo>(machine.handed(valid, why)).ask_again);
        EXPECT_EQ(machine.error().message, "no thread");
    }
}

TEST(Acquisition, admitted_makes_a_hold_with_a_token_of_its_own) {
    AcquisitionMachine machine{plan(), start, 1};
    const auto make = as<MakeHold>(machine.admitted(nullptr, false));
    EXPECT_TRUE(make.new_token);
    EXPECT_EQ(make.clean_up, nothing);
}

TEST(Acquisition, goes_on_with_a_place_that_was_passed_on) {
    for (const bool unclear : {false, true}) {
        AcquisitionMachine machine{plan(), start, 1};
        const PassedPlace place{.token = "theirs", .traits = traits(), .unclear = unclear};
        const auto make = as<MakeHold>(machine.admitted(&place, false));
        EXPECT_FALSE(make.new_token);
        EXPECT_EQ(make.clean_up, nothing);
        EXPECT_GT(as<SendScript>(machine.hold_made("theirs", start)).queue_ttl, 0ms)
            << "a plain SET would be refused by those in front";
        EXPECT_EQ(machine.token().token(), "theirs");
        EXPECT_EQ(as<PassPlaceOn>(machine.cancelled()).unclear, unclear);
    }
}

TEST(Acquisition, cleans_up_a_place_of_another_kind) {
    for (const PolicyTraits& other : {traits(true), traits(false, other_scripts)}) {
        for (const bool unclear : {false, true}) {
            AcquisitionMachine machine{plan(), start, 1};
            const PassedPlace place{.token = "theirs", .traits = other, .unclear = unclear};
            const auto make = as<MakeHold>(machine.admitted(&place, false));
            EXPECT_TRUE(make.new_token);
            EXPECT_EQ(make.clean_up, unclear ? twice : at_once);
            static_cast<void>(as<SendSet>(machine.hold_made("mine", start)));
            EXPECT_EQ(machine.token().token(), "mine");
        }
    }
}

TEST(Acquisition, cleans_up_a_place_for_another_claim) {
    AcquisitionPlan writing = plan();
    writing.weight = ClaimTerms::writer;
    AcquisitionMachine machine{writing, start, 1};
    const PassedPlace place{.token = "theirs", .traits = traits(), .weight = ClaimTerms::reader};
    const auto make = as<MakeHold>(machine.admitted(&place, false));
    EXPECT_TRUE(make.new_token) << "it may read by now, and would be taken for a writer";
    EXPECT_EQ(make.clean_up, at_once);
}

TEST(Acquisition, that_polls_cleans_up_a_place_that_was_passed_on) {
    AcquisitionPlan polling = plan();
    polling.polls = true;
    AcquisitionMachine machine{polling, start, 1};
    const PassedPlace place{.token = "theirs", .traits = traits()};
    const auto make = as<MakeHold>(machine.admitted(&place, false));
    EXPECT_TRUE(make.new_token) << "it would sleep as one that will be told";
    EXPECT_EQ(make.clean_up, at_once);
}

TEST(Acquisition, without_a_renewal_leaves_the_lock_alone) {
    const Error why{Errc::unavailable, {}, {}, "no thread", {}};
    AcquisitionMachine machine{plan(), start, 1};
    static_cast<void>(machine.admitted(nullptr, false));
    EXPECT_EQ(failed(machine, machine.no_hold(why), Errc::unavailable), nothing);

    AcquisitionMachine with_place{plan(), start, 1};
    const PassedPlace place{.token = "theirs", .traits = traits()};
    static_cast<void>(with_place.admitted(&place, false));
    static_cast<void>(as<PassPlaceOn>(with_place.no_hold(why)));
    EXPECT_EQ(failed(with_place, with_place.place_passed_on(false), Errc::unavailable), at_once);
}

// ---- What it sends

TEST(Acquisition, uncontended_is_one_plain_set) {
    Contender contender;
    EXPECT_EQ(as<SendSet>(contender.first).answer_by, start + 1s);
    const auto keep = as<KeepHold>(contender.machine.answered(ours(start + 1us), start + 1ms));
    EXPECT_EQ(keep.since, start + 1us) << "when it was sent";
    EXPECT_EQ(keep.fence, 0U);
    EXPECT_FALSE(keep.unclear);
    EXPECT_FALSE(keep.others_wait);
    EXPECT_FALSE(as<AcquisitionDone>(contender.machine.kept(true, false)).watch_over);
    EXPECT_EQ(contender.machine.tries(), 1U);
}

TEST(Acquisition, tells_of_a_lock_that_the_server_keeps_for_longer_than_was_asked) {
    AcquisitionPlan delayed = plan();
    delayed.lock_delay = 5s;
    for (const auto& [ttl, prolonged] : {std::pair{35000ms, false}, std::pair{35001ms, true}}) {
        Contender contender{delayed, true};
        AcquireAnswer answer = ours();
        answer.ttl = ttl;
        const auto keep = as<KeepHold>(contender.machine.answered(answer, start));
        EXPECT_EQ(keep.prolonged, prolonged);
        const auto hold = asked_hold({});
        keep_hold(*hold, keep, {1, nullptr, false, false});
        EXPECT_EQ(hold->unanswered().extend, prolonged) << "released when it is lost";
    }
}

TEST(Acquisition, plain_set_that_is_refused_is_followed_by_the_script_at_once) {
    Contender contender;
    const auto script = as<SendScript>(contender.machine.answered({.kind = Kind::no}, start + 5ms));
    EXPECT_EQ(script.answer_by, start + 1s) << "one try, one deadline";
    EXPECT_EQ(script.queue_ttl, 11s - 5ms) << "a second longer than it waits";
    EXPECT_TRUE(script.announce);
    EXPECT_EQ(contender.machine.tries(), 1U);
}

TEST(Acquisition, plain_set_that_is_refused_counts_where_the_script_gets_no_answer) {
    Contender contender{plan(Wait::none())};
    static_cast<void>(as<SendScript>(contender.machine.answered({.kind = Kind::no}, start + 5ms)));
    AcquisitionMachine& machine = contender.machine;
    const auto failed = as<AcquisitionFailed>(
        told(machine, machine.failed(silent(), {}, start + 1s), Errc::unavailable, start + 1s));
    EXPECT_EQ(machine.error().code, Errc::timed_out);
    EXPECT_TRUE(failed.clean_up.needed()) << "the script may have taken the lock";
}

TEST(Acquisition, script_comes_first_where_a_plain_set_is_of_no_use) {
    EXPECT_TRUE(holds_alternative<SendScript>(Contender(plan(), true).first)) << "contended";
    EXPECT_TRUE(holds_alternative<SendScript>(Contender(fenced()).first));
    EXPECT_TRUE(holds_alternative<SendScript>(Contender(at_three()).first));
    AcquisitionPlan hash = plan();
    hash.plain_set = false;
    EXPECT_TRUE(holds_alternative<SendScript>(Contender(hash).first));
}

TEST(Acquisition, second_try_is_no_plain_set) {
    Contender contender;
    const auto sleep = told(contender.machine, contender.machine.failed(refused(), {}, start),
                            Errc::unavailable, start);
    const auto again = pause_over(contender.machine, as<SleepUntil>(sleep).until);
    EXPECT_TRUE(holds_alternative<SendScript>(again));
    EXPECT_EQ(contender.machine.tries(), 2U);
}

TEST(Acquisition, polling_asks_for_no_place) {
    AcquisitionPlan polling = plan();
    polling.polls = true;
    Contender contender{polling, true};
    const auto script = as<SendScript>(contender.first);
    EXPECT_EQ(script.queue_ttl, 0ms);
    EXPECT_FALSE(script.announce);
    static_cast<void>(as<SleepUntil>(contender.machine.answered(not_ours(), start)));
    EXPECT_EQ(as<SendScript>(pause_over(contender.machine, start + 10s)).queue_ttl, 0ms);
}

TEST(Acquisition, without_a_wait_asks_for_no_place) {
    Contender contender{plan(Wait::none()), true};
    const auto script = as<SendScript>(contender.first);
    EXPECT_EQ(script.queue_ttl, 0ms);
    EXPECT_FALSE(script.announce);
    const auto end =
        answer_told(contender.machine, contender.machine.answered(not_ours(), start + 1ms));
    EXPECT_EQ(failed(contender.machine, end, Errc::timed_out), nothing);
}

TEST(Acquisition, announces_each_token_once) {
    Contender contender = Contender::in_queue();
    EXPECT_FALSE(as<SendScript>(pause_over(contender.machine, start + 2s)).announce);
    // This answer comes too late for the lease, and the token dies.
    const auto make = as<MakeHold>(told(contender.machine,
                                        contender.machine.answered(ours(start - 1h), start + 3s),
                                        Errc::unavailable, start + 3s));
    EXPECT_TRUE(make.new_token);
    EXPECT_EQ(make.clean_up, twice);
    static_cast<void>(as<SleepUntil>(contender.machine.hold_made("next", start + 3s)));
    EXPECT_EQ(contender.machine.token().token(), "next");
    EXPECT_TRUE(as<SendScript>(pause_over(contender.machine, start + 4s)).announce);
}

TEST(Acquisition, at_the_last_try_its_place_depends_on_those_behind_it) {
    for (const bool waiters : {false, true}) {
        Contender contender = Contender::in_queue();
        static_cast<void>(as<AskForWaiters>(pause_over(contender.machine, start + 10s)));
        const auto script = as<SendScript>(contender.machine.waiters(waiters, start + 10s));
        EXPECT_EQ(script.queue_ttl, waiters ? 1s : milliseconds{leave});
        EXPECT_EQ(script.answer_by, start + 10s + last_answer_slack);
        EXPECT_EQ(script.give_up_at, script.answer_by);
        EXPECT_FALSE(script.announce);
    }
}

TEST(Acquisition, that_is_cut_short_by_its_own_wait_tells_nobody_behind_it_of_a_fault) {
    for (const auto wait : {1ms, 2000ms}) {
        AcquisitionPlan wanted = plan();
        wanted.attempts.wait = wait;  // a command may take 1 s
        Contender contender{wanted};
        const auto answer_by = as<SendSet>(contender.first).answer_by;
        const auto told = contender.machine.failed(unanswered_fault(), {}, answer_by);
        EXPECT_EQ(as<TellFault>(told).to_waiters, wait > 1s);
    }
}

TEST(Acquisition, at_the_last_try_without_a_place_asks_nobody) {
    Contender contender{plan(), true};
    static_cast<void>(as<SleepUntil>(contender.machine.answered(not_ours(), start)));
    EXPECT_EQ(as<SendScript>(pause_over(contender.machine, start + 10s)).queue_ttl, 0ms);
}

// ---- Refused

TEST(Acquisition, with_a_place_and_a_message_to_come_sleeps_long) {
    Contender contender = Contender::in_queue();
    const auto sleep = as<SleepUntil>(contender.first);
    EXPECT_GE(sleep.until, start + 1s);
    EXPECT_TRUE(sleep.subscribe);
}

TEST(Acquisition, with_a_place_and_no_message_to_come_asks_again_soon_and_subscribes) {
    Contender contender{plan(), true};
    AcquireAnswer answer = queued();
    answer.will_be_told = false;
    const auto sleep = as<SleepUntil>(contender.machine.answered(answer, start));
    EXPECT_LE(sleep.until, start + 20ms);
    EXPECT_TRUE(sleep.subscribe);
    EXPECT_TRUE(contender.machine.token().queued());
}

TEST(Acquisition, without_a_place_asks_again_soon_and_does_not_subscribe) {
    Contender contender{plan(), true};
    const auto sleep = as<SleepUntil>(contender.machine.answered(not_ours(), start));
    EXPECT_LE(sleep.until, start + 20ms);
    EXPECT_FALSE(sleep.subscribe);
    EXPECT_FALSE(contender.machine.token().queued());
}

TEST(Acquisition, refused_at_the_deadline_has_timed_out_and_tells_who_has_it) {
    Contender contender{plan(Wait::none()), true};
    AcquireAnswer answer = not_ours();
    answer.refusal.owner = std::string(32, 'a') + ":web-3:1:2";
    const auto end = answer_told(contender.machine, contender.machine.answered(answer, start));
    EXPECT_EQ(failed(contender.machine, end, Errc::timed_out), nothing);
    EXPECT_EQ(contender.machine.error().message, "held by web-3");
}

// ---- Granted by a message

TEST(Acquisition, message_that_can_be_believed_is_the_lock) {
    Contender contender = Contender::in_queue();
    const auto keep = as<KeepHold>(granted(contender.machine, grant(), start + 2s));
    EXPECT_EQ(keep.since, start + 1s) << "by the server's clock";
    EXPECT_TRUE(keep.others_wait);
    EXPECT_EQ(keep.fence, 0U);
    EXPECT_FALSE(keep.unclear);
}

TEST(Acquisition, message_is_confirmed_by_the_server_where_it_cannot_be_believed) {
    const auto asks = [](std::optional<Grant> message, const AcquisitionPlan& plan = ::plan(),
                         TimePoint now = start + 2s) {
        Contender contender = Contender::in_queue(plan);
        return holds_alternative<SendScript>(granted(contender.machine, message, now));
    };
    EXPECT_FALSE(asks(grant()));
    EXPECT_TRUE(asks(std::nullopt)) << "somebody else has taken it";
    Grant other = grant();
    other.token = "theirs";
    EXPECT_TRUE(asks(other));
    AcquisitionPlan replicated = plan();
    replicated.replicated = true;
    EXPECT_TRUE(asks(grant(), replicated)) << "replicas are asked behind a command of ours";
    EXPECT_TRUE(asks(grant(), fenced())) << "it has no fencing token";
    const AcquisitionPlan patient = plan(Wait::unlimited());
    EXPECT_FALSE(asks(grant(), patient, start + 31s - 1ns));
    EXPECT_TRUE(asks(grant(), patient, start + 31s)) << "it is over";
}

TEST(Acquisition, message_brings_the_fencing_token) {
    Contender contender = Contender::in_queue(fenced());
    Grant message = grant();
    message.fence = 7;
    EXPECT_EQ(as<KeepHold>(granted(contender.machine, message, start + 2s)).fence, 7U);
}

TEST(Acquisition, message_has_to_be_about_the_lease_with_its_delay) {
    AcquisitionPlan delayed = plan();
    delayed.lock_delay = 5s;
    Contender contender = Contender::in_queue(delayed);
    Grant message = grant();
    message.ttl = 35s;
    EXPECT_TRUE(holds_alternative<KeepHold>(granted(contender.machine, message, start + 2s)));
}

// ---- Granted by the late answer to a try that was given up

Grant late_answer(std::uint64_t number, TimePoint sent) {
    return {.ttl = 30s,
            .time = {},
            .server = {},
            .key_type = {},
            .token = "mine",
            .key = "key",
            .answers = AbandonedTry{.sent = sent, .number = number}};
}

/// The lock is taken, and that the server has answered again was told.
KeepHold keeps(AcquisitionMachine& machine, const Grant& answer, TimePoint now) {
    static_cast<void>(as<TellFault>(granted(machine, answer, now)));
    EXPECT_EQ(machine.fault(), nullptr);
    return as<KeepHold>(machine.fault_told(now));
}

/// Whose try got no answer, and that sleeps.
Contender unanswered(const AcquisitionPlan& plan = ::plan()) {
    Contender contender{plan, true};
    const auto fault = contender.machine.failed(silent(), {}, start + 1s);
    const auto sleep = told(contender.machine, fault, Errc::unavailable, start + 1s);
    EXPECT_FALSE(as<SleepUntil>(sleep).announce) << "that it asked for a place told the table";
    return contender;
}

TEST(Acquisition, late_answer_is_the_lock_from_when_its_try_was_sent) {
    Contender contender = unanswered();
    const auto keep = keeps(contender.machine, late_answer(1, start), start + 1s);
    EXPECT_EQ(keep.since, start);
    EXPECT_TRUE(keep.unclear);
    EXPECT_FALSE(keep.prolonged);
}

TEST(Acquisition, late_answer_is_the_lock_of_who_goes_on_with_the_place) {
    const auto pass = as<PassPlaceOn>(unanswered().machine.cancelled());
    AcquisitionMachine heir{plan(), start + 1s, 1};
    const PassedPlace place{
        .token = "mine", .traits = traits(), .unclear = pass.unclear, .tries = pass.tries};
    static_cast<void>(as<MakeHold>(heir.admitted(&place, false)));
    static_cast<void>(as<SendScript>(heir.hold_made("mine", start + 1s)));
    static_cast<void>(told(heir, heir.failed(silent(), {}, start + 2s), Errc::unavailable, start));
    Grant answer = late_answer(1, start);
    answer.ttl = 40s;
    const auto keep = keeps(heir, answer, start + 2s);
    EXPECT_EQ(keep.since, start);
    EXPECT_TRUE(keep.prolonged);
}

TEST(Acquisition, late_answer_is_confirmed_by_the_server_where_it_cannot_be_believed) {
    const auto asks = [](const Grant& answer, TimePoint now = start + 2s) {
        Contender contender = unanswered(plan(Wait::unlimited()));
        return holds_alternative<SendScript>(granted(contender.machine, answer, now));
    };
    EXPECT_FALSE(asks(late_answer(1, start)));
    EXPECT_TRUE(asks(late_answer(0, start))) << "a later try was answered";
    EXPECT_TRUE(asks(late_answer(1, start), start + 30s)) << "it is over";
    Grant shorter = late_answer(1, start);
    shorter.ttl = 29s;
    EXPECT_TRUE(asks(shorter)) << "whoever gave the try up asked for less";
}

TEST(Acquisition, late_answer_to_a_try_before_one_that_was_answered_is_confirmed_by_the_server) {
    Contender contender = unanswered(plan(Wait::unlimited()));
    const auto again = contender.machine.woken(Woken::in_time, std::nullopt, start + 1100ms);
    static_cast<void>(as<SendScript>(again));
    static_cast<void>(contender.machine.answered(not_ours(start + 1100ms), start + 1200ms));
    static_cast<void>(as<SleepUntil>(contender.machine.fault_told(start + 1200ms)));
    const auto woken = granted(contender.machine, late_answer(1, start), start + 2s);
    EXPECT_TRUE(holds_alternative<SendScript>(woken));
}

TEST(Acquisition, plain_try_without_an_answer_is_told_to_the_table) {
    Contender contender;
    static_cast<void>(as<SendSet>(contender.first));
    const auto fault = contender.machine.failed(silent(), {}, start + 1s);
    const auto sleep = told(contender.machine, fault, Errc::unavailable, start + 1s);
    EXPECT_TRUE(as<SleepUntil>(sleep).announce);
}

TEST(Acquisition, recheck_may_be_answered_with_the_lock) {
    Contender contender = Contender::in_queue();
    static_cast<void>(as<SendScript>(pause_over(contender.machine, start + 2s)));
    AcquireAnswer answer = ours(start + 2s);
    answer.others_wait = true;
    const auto keep = as<KeepHold>(contender.machine.answered(answer, start + 3s));
    EXPECT_EQ(keep.since, start + 2s);
    EXPECT_TRUE(keep.others_wait);
}

// ---- Fencing tokens

TEST(Acquisition, fenced_brings_its_token) {
    Contender contender{fenced()};
    AcquireAnswer answer = ours();
    answer.fence = 7;
    EXPECT_EQ(as<KeepHold>(contender.machine.answered(answer, start)).fence, 7U);
}

TEST(Acquisition, fenced_without_a_token_is_no_answer) {
    Contender contender{fenced(Wait::none())};
    const auto end =
        told(contender.machine, contender.machine.answered(ours(), start), Errc::protocol, start);
    EXPECT_EQ(failed(contender.machine, end, Errc::protocol), twice);
}

/// Fenced at several masters, a majority of which has given the lock.
Contender with_majority() {
    AcquisitionPlan plan = at_three();
    plan.traits.fenced = true;
    Contender contender{plan};
    AcquireAnswer answer = ours();
    answer.fence = 7;
    answer.masters = {.asked = 0b111, .answered = 0b111, .agreed = 0b111};
    contender.first = contender.machine.answered(answer, start + 1ms);
    return contender;
}

TEST(Acquisition, fence_of_several_masters_counts_when_a_majority_has_stored_it) {
    Contender contender = with_majority();
    const auto store = as<StoreFence>(contender.first);
    EXPECT_EQ(store.fence, 7U);
    EXPECT_EQ(store.answer_by, start + 1s);
    const auto keep = as<KeepHold>(contender.machine.fence_stored(true, start + 2ms));
    EXPECT_EQ(keep.fence, 7U);
    EXPECT_EQ(keep.since, start) << "as of the lock";
}

TEST(Acquisition, without_a_fence_several_masters_store_none) {
    Contender contender{at_three()};
    AcquireAnswer answer = ours();
    answer.masters = {.asked = 0b111, .answered = 0b111, .agreed = 0b111};
    EXPECT_EQ(as<KeepHold>(contender.machine.answered(answer, start + 1ms)).fence, 0U);
}

TEST(Acquisition, fence_that_is_not_stored_is_the_end_of_its_token) {
    for (const bool answered : {false, true}) {
        Contender contender = with_majority();
        const auto fault = answered ? contender.machine.fence_stored(false, start + 2ms)
                                    : contender.machine.fence_failed(refused(), start + 2ms);
        const auto votes = told(contender.machine, fault, Errc::unavailable, start + 2ms);
        EXPECT_EQ(as<ReturnVotes>(votes).answer_by, start + 1s);
        const auto make = contender.machine.votes_returned({.asked = 0b111, .answered = 0b111});
        EXPECT_EQ(as<MakeHold>(make).clean_up, nothing);
    }
}

TEST(Acquisition, fence_that_is_stored_too_late_is_none) {
    Contender contender = with_majority();
    const auto late = contender.machine.fence_stored(true, start + 1h);
    static_cast<void>(
        as<ReturnVotes>(told(contender.machine, late, Errc::unavailable, start + 1h)));
    EXPECT_TRUE(contender.machine.token().dead());
}

// ---- Replicas

AcquireAnswer not_replicated() {
    return {.kind = Kind::not_replicated,
            .sent = start,
            .replicas = 1,
            .replicas_wanted = 2,
            .node = "a:6379"};
}

TEST(Acquisition, too_few_replicas_are_asked_again_with_the_same_token) {
    Contender contender;
    const auto sleep = told(contender.machine, contender.machine.answered(not_replicated(), start),
                            Errc::not_replicated, start);
    EXPECT_EQ(contender.machine.fault()->message, "1 of 2 replicas have it");
    EXPECT_EQ(contender.machine.fault()->node, "a:6379");
    static_cast<void>(pause_over(contender.machine, as<SleepUntil>(sleep).until));
    EXPECT_EQ(contender.machine.token().token(), "mine");
    const auto answered = contender.machine.answered(ours(), start + 1s);
    static_cast<void>(as<TellFault>(answered));
    const auto keep = as<KeepHold>(contender.machine.fault_told(start + 1s));
    EXPECT_TRUE(keep.unclear) << "the first try may yet be repeated";
}

TEST(Acquisition, too_few_replicas_leave_no_place_to_pass_on) {
    Contender contender = Contender::in_queue();
    static_cast<void>(as<SendScript>(pause_over(contender.machine, start + 1s)));
    static_cast<void>(as<SleepUntil>(told(contender.machine,
                                          contender.machine.answered(not_replicated(), start + 1s),
                                          Errc::not_replicated, start + 1s)));
    EXPECT_EQ(failed(contender.machine, contender.machine.cancelled(), Errc::cancelled), twice);
}

TEST(Acquisition, too_few_replicas_to_the_end_give_the_lock_back) {
    Contender contender{plan(Wait::none())};
    const auto end = told(contender.machine, contender.machine.answered(not_replicated(), start),
                          Errc::not_replicated, start);
    EXPECT_EQ(failed(contender.machine, end, Errc::not_replicated), twice);
}

// ---- Faults

TEST(Acquisition, fault_is_told_and_followed_by_a_pause) {
    Contender contender;
    const auto sleep =
        told(contender.machine, contender.machine.failed(refused("no route"), {}, start),
             Errc::unavailable, start);
    EXPECT_EQ(contender.machine.fault()->message, "no route");
    EXPECT_LE(as<SleepUntil>(sleep).until, start + 20ms);
    EXPECT_FALSE(as<SleepUntil>(sleep).subscribe);
}

TEST(Acquisition, answer_after_a_fault_is_told_once) {
    Contender contender;
    static_cast<void>(contender.machine.failed(refused(), {}, start));
    static_cast<void>(contender.machine.fault_told(start));
    static_cast<void>(pause_over(contender.machine, start + 1s));
    static_cast<void>(as<TellFault>(contender.machine.answered(not_ours(), start + 1s)));
    EXPECT_EQ(contender.machine.fault(), nullptr);
    static_cast<void>(as<SleepUntil>(contender.machine.fault_told(start + 1s)));
    static_cast<void>(pause_over(contender.machine, start + 2s));
    static_cast<void>(as<SleepUntil>(contender.machine.answered(not_ours(), start + 2s)));
}

TEST(Acquisition, same_fault_is_told_each_time) {
    Contender contender;
    static_cast<void>(contender.machine.failed(refused(), {}, start));
    static_cast<void>(contender.machine.fault_told(start));
    static_cast<void>(pause_over(contender.machine, start + 1s));
    static_cast<void>(as<TellFault>(contender.machine.failed(refused(), {}, start + 1s)));
}

TEST(Acquisition, cancellation_of_a_command_is_told_nobody) {
    Contender contender;
    Fault cancelled = forbidden();
    cancelled.error.code = Errc::cancelled;
    const auto end = contender.machine.failed(cancelled, {}, start);
    EXPECT_EQ(failed(contender.machine, end, Errc::cancelled), nothing);
}

TEST(Acquisition, fault_that_will_not_pass_is_the_end) {
    Contender contender;
    const auto end = told(contender.machine, contender.machine.failed(forbidden(), {}, start),
                          Errc::denied, start);
    EXPECT_EQ(failed(contender.machine, end, Errc::denied), nothing) << "it was not carried out";
    EXPECT_EQ(contender.machine.error().key, "key");
}

TEST(Acquisition, try_without_an_answer_is_cleaned_up_twice) {
    Contender contender{plan(Wait::none())};
    const auto end = told(contender.machine, contender.machine.failed(silent(), {}, start),
                          Errc::unavailable, start);
    EXPECT_EQ(failed(contender.machine, end, Errc::unavailable), twice);
}

TEST(Acquisition, script_without_an_answer_may_have_a_place_and_a_plain_set_has_none) {
    Contender script{plan(), true};
    static_cast<void>(script.machine.failed(silent(), {}, start));
    EXPECT_TRUE(script.machine.token().queued());
    Contender plain;
    static_cast<void>(plain.machine.failed(silent(), {}, start));
    EXPECT_FALSE(plain.machine.token().queued());
}

TEST(Acquisition, try_that_was_sent_twice_stays_unclear) {
    Contender contender;
    AcquireAnswer answer = ours();
    answer.repeated = true;
    EXPECT_TRUE(as<KeepHold>(contender.machine.answered(answer, start)).unclear);
}

TEST(Acquisition, answer_of_another_shape_is_a_fault) {
    Contender contender;
    const auto end =
        told(contender.machine, contender.machine.answered({}, start), Errc::protocol, start);
    EXPECT_EQ(failed(contender.machine, end, Errc::protocol), twice);
    Contender script{plan(Wait::none()), true};
    static_cast<void>(told(script.machine, script.machine.answered({.kind = Kind::no}, start),
                           Errc::protocol, start));
    Contender behind_plain{plan(Wait::none())};
    AcquisitionMachine& machine = behind_plain.machine;
    static_cast<void>(as<SendScript>(machine.answered({.kind = Kind::no}, start)));
    static_cast<void>(
        told(machine, machine.answered({.kind = Kind::no}, start), Errc::protocol, start));
}

TEST(Acquisition, without_a_renewal_for_the_next_token_leaves_only_that_one) {
    Contender contender;
    static_cast<void>(
        as<MakeHold>(told(contender.machine, contender.machine.answered(ours(start - 1h), start),
                          Errc::unavailable, start)));
    const auto end = contender.machine.no_hold({Errc::unavailable, {}, {}, "no thread", {}});
    EXPECT_EQ(failed(contender.machine, end, Errc::unavailable), nothing)
        << "the one before has been seen to";
}

// ---- Votes of several masters

AcquireAnswer minority() {
    AcquireAnswer answer = not_ours();
    answer.masters = {.asked = 0b111, .answered = 0b111, .agreed = 0b001};
    return answer;
}

TEST(Acquisition, votes_of_a_minority_are_returned_before_the_pause) {
    Contender contender{at_three()};
    const auto votes = as<ReturnVotes>(contender.machine.answered(minority(), start));
    EXPECT_EQ(votes.answer_by, start + 1s);
    const auto make =
        as<MakeHold>(contender.machine.votes_returned({.asked = 0b111, .answered = 0b111}));
    EXPECT_TRUE(make.new_token);
    EXPECT_EQ(make.clean_up, nothing);
    static_cast<void>(as<SleepUntil>(contender.machine.hold_made("next", start + 1ms)));
    const auto again = pause_over(contender.machine, start + 1s);
    EXPECT_EQ(as<SendScript>(again).queue_ttl, 0ms);
    EXPECT_NE(contender.machine.token().at_masters(), nullptr);
}

TEST(Acquisition, votes_are_returned_by_the_deadline_where_one_more_try_follows) {
    Contender contender{at_three(100ms)};
    const auto votes = as<ReturnVotes>(contender.machine.answered(minority(), start));
    EXPECT_EQ(votes.answer_by, start + 100ms) << "the last try may take longer, and comes later";
}

TEST(Acquisition, votes_are_returned_in_the_time_of_the_last_try_where_none_follows) {
    Contender contender{at_three(100ms)};
    const auto told = contender.machine.answered(minority(), start + 100ms);
    const auto votes = as<ReturnVotes>(answer_told(contender.machine, told));
    EXPECT_EQ(votes.answer_by, start + 100ms + last_answer_slack);
}

TEST(Acquisition, votes_that_are_not_all_returned_are_cleaned_up) {
    Contender contender{at_three()};
    static_cast<void>(contender.machine.answered(minority(), start));
    const auto make = contender.machine.votes_returned({.asked = 0b110, .answered = 0b110});
    EXPECT_EQ(as<MakeHold>(make).clean_up, twice);
}

TEST(Acquisition, votes_are_returned_at_the_end_too) {
    for (const bool all : {false, true}) {
        Contender contender{at_three(Wait::none())};
        static_cast<void>(as<ReturnVotes>(
            answer_told(contender.machine, contender.machine.answered(minority(), start))));
        const std::uint64_t told = all ? 0b111 : 0b110;
        const auto end = contender.machine.votes_returned({.asked = told, .answered = told});
        EXPECT_EQ(failed(contender.machine, end, Errc::timed_out), all ? nothing : twice);
    }
}

TEST(Acquisition, masters_that_have_all_refused_have_nothing_to_return) {
    Contender contender{at_three()};
    AcquireAnswer answer = not_ours();
    answer.masters = {.asked = 0b111, .answered = 0b111};
    static_cast<void>(as<SleepUntil>(contender.machine.answered(answer, start)));
    EXPECT_EQ(contender.machine.token().token(), "mine");
}

TEST(Acquisition, votes_without_a_majority_that_answers_are_returned) {
    Contender contender{at_three()};
    const MasterSets one{.asked = 0b001, .answered = 0b001, .agreed = 0b001};
    const auto votes = told(contender.machine, contender.machine.failed(silent(), one, start),
                            Errc::unavailable, start);
    static_cast<void>(as<ReturnVotes>(votes));
}

// ---- What ends a pause

TEST(Acquisition, recheck_asks_again_before_the_pause_is_over) {
    for (const auto why : {Woken::in_time, Woken::recheck}) {
        Contender contender = Contender::in_queue();
        const auto next = contender.machine.woken(why, std::nullopt, start + 5ms);
        EXPECT_TRUE(holds_alternative<SendScript>(next));
    }
}

TEST(Acquisition, cancelled_in_a_pause_gives_up) {
    Contender contender = Contender::in_queue();
    const auto next = contender.machine.woken(Woken::cancelled, std::nullopt, start);
    EXPECT_TRUE(holds_alternative<PassPlaceOn>(next));
    EXPECT_EQ(contender.machine.error().message, "cancelled by the caller");
}

// ---- Giving up

TEST(Acquisition, place_goes_to_the_next_waiter_of_this_process) {
    Contender contender = Contender::in_queue();
    EXPECT_FALSE(as<PassPlaceOn>(contender.machine.cancelled()).unclear);
    EXPECT_EQ(failed(contender.machine, contender.machine.place_passed_on(true), Errc::cancelled),
              nothing);
}

TEST(Acquisition, place_that_nobody_here_wants_is_left) {
    Contender contender = Contender::in_queue();
    static_cast<void>(contender.machine.cancelled());
    EXPECT_EQ(failed(contender.machine, contender.machine.place_passed_on(false), Errc::cancelled),
              at_once);
}

TEST(Acquisition, place_is_passed_on_with_its_doubts) {
    Contender contender{plan(Wait::none()), true};
    static_cast<void>(contender.machine.answered(queued(), start));
    Contender unclear = Contender::in_queue();
    static_cast<void>(pause_over(unclear.machine, start + 1s));
    static_cast<void>(unclear.machine.failed(silent(), {}, start + 2s));
    static_cast<void>(unclear.machine.fault_told(start + 2s));
    EXPECT_TRUE(as<PassPlaceOn>(unclear.machine.cancelled()).unclear);
    EXPECT_EQ(failed(unclear.machine, unclear.machine.place_passed_on(false), Errc::cancelled),
              twice);
}

TEST(Acquisition, cancelled_says_by_whom) {
    Contender by_caller;
    static_cast<void>(by_caller.machine.cancelled());
    EXPECT_EQ(by_caller.machine.error().message, "cancelled by the caller");
    Contender by_close;
    static_cast<void>(closed(by_close.machine));
    EXPECT_EQ(by_close.machine.error().code, Errc::cancelled);
    EXPECT_EQ(by_close.machine.error().message, "the client was closed");
}

TEST(Acquisition, cancelled_before_anything_was_sent_leaves_nothing) {
    Contender contender;
    EXPECT_EQ(failed(contender.machine, contender.machine.cancelled(), Errc::cancelled), nothing);
}

TEST(Acquisition, closed_while_the_answer_was_on_its_way_gives_the_lock_back) {
    for (const bool repeated : {false, true}) {
        Contender contender;
        AcquireAnswer answer = ours();
        answer.repeated = repeated;
        static_cast<void>(as<KeepHold>(contender.machine.answered(answer, start)));
        EXPECT_EQ(failed(contender.machine, contender.machine.kept(false, true), Errc::cancelled),
                  repeated ? twice : at_once);
        EXPECT_EQ(contender.machine.error().message, "the client was closed");
    }
}

TEST(Acquisition, without_memory_to_keep_the_lock_gives_it_back) {
    Contender contender;
    static_cast<void>(as<KeepHold>(contender.machine.answered(ours(), start)));
    EXPECT_EQ(failed(contender.machine, contender.machine.kept(false, false), Errc::unavailable),
              at_once);
}

}  // namespace
