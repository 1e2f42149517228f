#include <redlatch/core/attempts.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::Acquired;
using detail::AcquirePlan;
using detail::AttemptAction;
using detail::Attempts;
using detail::Fault;
using detail::GiveUp;
using detail::Pause;
using detail::Random;
using detail::SendTry;
using detail::TimePoint;
using std::chrono::milliseconds;

constexpr TimePoint start{1000s};
constexpr std::nullopt_t no_ttl = std::nullopt;

AcquirePlan plan(Wait wait) {
    return {.wait = wait, .lease = 30s, .drift = {}, .backoff = {}, .command_timeout = 1000ms};
}

Fault transient(std::string message = "connect: refused") {
    return {.error = {Errc::unavailable, {}, {}, std::move(message), {}}};
}

Fault permanent(Errc code = Errc::denied) {
    return {.error = {code, {}, {}, "never", {}}, .transient = false};
}

/// The action as the kind it has to be.
template <class Kind>
Kind as(const AttemptAction& action) {
    EXPECT_TRUE(holds_alternative<Kind>(action)) << "another kind: " << action.index();
    if (!holds_alternative<Kind>(action)) throw std::bad_cast{};
    return get<Kind>(action);
}

TEST(Attempts, granted_at_the_first_try) {
    Attempts core{plan(10s), start, 1};
    EXPECT_EQ(as<SendTry>(core.send_try(start)).answer_by, start + 1s);
    const auto acquired = as<Acquired>(core.taken(start, start + 5ms));
    EXPECT_EQ(acquired.since, start);
    EXPECT_EQ(core.tries(), 1U);
}

TEST(Attempts, wait_for_no_answer_beyond_the_end_for_several) {
    for (const Wait wait : {Wait::none(), Wait{10s}, Wait::unlimited()}) {
        AcquirePlan one_of_several = plan(wait);
        one_of_several.answer_by = start + 300ms;
        EXPECT_EQ(as<SendTry>(Attempts(one_of_several, start, 1).send_try(start)).answer_by,
                  start + 300ms);
    }
}

TEST(Attempts, leave_a_try_that_waits_for_its_turn_as_long_as_the_wait_lasts) {
    const auto first = [](Wait wait, TimePoint answer_by = TimePoint::max()) {
        AcquirePlan wanted = plan(wait);
        wanted.answer_by = answer_by;
        return as<SendTry>(Attempts(wanted, start, 1).send_try(start));
    };
    EXPECT_EQ(first(Wait::none()).give_up_at, start + 1s) << "as its answer";
    EXPECT_EQ(first(10s).give_up_at, start + 10s + detail::last_answer_slack);
    EXPECT_EQ(first(10s).answer_by, start + 1s);
    EXPECT_EQ(first(Wait::unlimited()).give_up_at, TimePoint::max());
    EXPECT_EQ(first(10s, start + 300ms).give_up_at, start + 300ms) << "one of several";
}

TEST(Attempts, ask_only_where_a_try_fits_in_behind_that) {
    const Attempts core{plan(10s), start, 1};
    EXPECT_EQ(core.time_to_ask(start), start + 1s);
    EXPECT_EQ(core.time_to_ask(start + 9s - 1ns), start + 10s - 1ns);
    EXPECT_EQ(core.time_to_ask(start + 9s), std::nullopt);
    EXPECT_EQ(core.time_to_ask(start + 11s), std::nullopt);
    EXPECT_EQ((Attempts{plan(Wait::none()), start, 1}.time_to_ask(start)), std::nullopt);
    EXPECT_EQ((Attempts{plan(Wait::unlimited()), start, 1}.time_to_ask(start + 24h)),
              start + 24h + 1s);
}

TEST(Attempts, ask_no_longer_than_until_the_end_for_several) {
    AcquirePlan one_of_several = plan(10s);
    one_of_several.answer_by = start + 300ms;
    EXPECT_EQ((Attempts{one_of_several, start, 1}.time_to_ask(start)), start + 300ms);
}

TEST(Attempts, without_a_wait_tries_exactly_once) {
    for (const Wait wait : {Wait::none(), Wait{-1ns}, Wait{std::chrono::hours::min()}}) {
        for (const TimePoint answered : {start, start + 1ms, start + 900ms}) {
            Attempts contended{plan(wait), start, 1};
            EXPECT_EQ(as<SendTry>(contended.send_try(start)).answer_by, start + 1s);
            const auto busy = as<GiveUp>(contended.refused(answered, {.ttl = 5ms}));
            EXPECT_EQ(busy.error.code, Errc::timed_out);
            EXPECT_EQ(contended.tries(), 1U);

            Attempts faulty{plan(wait), start, 1};
            static_cast<void>(faulty.send_try(start));
            EXPECT_EQ(as<GiveUp>(faulty.fault(answered, transient())).error.code,
                      Errc::unavailable);
            EXPECT_EQ(faulty.tries(), 1U);

            Attempts lucky{plan(wait), start, 1};
            static_cast<void>(lucky.send_try(start));
            EXPECT_TRUE(holds_alternative<Acquired>(lucky.taken(start, answered)));
        }
    }
}

TEST(Attempts, without_a_wait_has_its_deadline_now) {
    EXPECT_EQ((Attempts{plan(Wait::none()), start, 1}.deadline()), start);
    EXPECT_EQ((Attempts{plan(std::chrono::hours::min()), start, 1}.deadline()), start);
}

TEST(Attempts, shortest_wait_tries_again_at_its_deadline) {
    Attempts core{plan(1ns), start, 1};
    static_cast<void>(core.send_try(start));
    EXPECT_EQ(as<Pause>(core.refused(start, {.ttl = no_ttl})).until, start + 1ns);
    static_cast<void>(as<SendTry>(core.send_try(start + 1ns)));
    EXPECT_EQ(as<GiveUp>(core.refused(start + 1ms, {.ttl = no_ttl})).error.code, Errc::timed_out);
    EXPECT_EQ(core.tries(), 2U);
}

TEST(Attempts, unlimited_never_gives_up_on_contention_or_transient_faults) {
    Attempts core{plan(Wait::unlimited()), start, 1};
    EXPECT_EQ(core.deadline(), TimePoint::max());
    TimePoint now = start;
    AttemptAction action = core.send_try(now);
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_EQ(as<SendTry>(action).answer_by, now + 1s);
        now += 1s;
        action = i % 3 == 0 ? core.refused(now, {.ttl = 20s}) : core.fault(now, transient());
        now = as<Pause>(action).until;
        action = core.send_try(now);
    }
    EXPECT_EQ(core.tries(), 10'001U);
}

TEST(Attempts, unlimited_gives_up_on_a_permanent_fault) {
    Attempts core{plan(Wait::unlimited()), start, 1};
    static_cast<void>(core.send_try(start));
    EXPECT_EQ(as<GiveUp>(core.fault(start, permanent())).error.code, Errc::denied);
}

TEST(Attempts, permanent_fault_is_reported_at_once_as_what_it_is) {
    for (const Errc code : {Errc::denied, Errc::wrong_type, Errc::protocol, Errc::invalid_argument,
                            Errc::cancelled}) {
        Attempts core{plan(10s), start, 1};
        static_cast<void>(core.send_try(start));
        const auto error = as<GiveUp>(core.fault(start + 1ms, permanent(code))).error;
        EXPECT_EQ(error.code, code);
        EXPECT_EQ(error.message, "never");
        EXPECT_EQ(core.tries(), 1U);
    }
}

TEST(Attempts, contention_is_followed_by_a_pause_within_the_backoff) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Attempts core{plan(10s), start, seed};
        static_cast<void>(core.send_try(start));
        const auto pause = as<Pause>(core.refused(start + 1ms, {.ttl = 5s})).until - (start + 1ms);
        EXPECT_GE(pause, 10ms);
        EXPECT_LT(pause, 30ms);
    }
}

TEST(Attempts, ttl_shortens_the_pause) {
    AcquirePlan slow = plan(10s);
    slow.backoff = {500ms, 5s};
    Attempts core{slow, start, 1};
    static_cast<void>(core.send_try(start));
    const auto until = as<Pause>(core.refused(start, {.ttl = 3ms})).until;
    EXPECT_GT(until, start + 3ms);
    EXPECT_LT(until, start + 3ms + 1ms + 500ms);
}

TEST(Attempts, pause_ends_at_the_deadline_at_the_latest) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Attempts core{plan(15ms), start, seed};
        static_cast<void>(core.send_try(start));
        EXPECT_LE(as<Pause>(core.refused(start + 1ms, {.ttl = no_ttl})).until, start + 15ms);
        EXPECT_LE(as<Pause>(core.fault(start + 14ms, transient())).until, start + 15ms);
    }
}

TEST(Attempts, last_try_goes_out_exactly_at_the_deadline) {
    AcquirePlan slow = plan(200ms);
    slow.backoff = {1s, 2s};
    Attempts core{slow, start, 1};
    static_cast<void>(core.send_try(start));
    EXPECT_EQ(as<Pause>(core.refused(start + 1ms, {.ttl = 10s})).until, start + 200ms);
    EXPECT_EQ(as<SendTry>(core.send_try(start + 200ms)).answer_by, start + 250ms);
    EXPECT_EQ(as<GiveUp>(core.refused(start + 201ms, {.ttl = 10s})).error.code, Errc::timed_out);
}

TEST(Attempts, last_try_may_be_granted) {
    Attempts core{plan(200ms), start, 1};
    static_cast<void>(core.send_try(start));
    static_cast<void>(core.refused(start + 1ms, {.ttl = 10s}));
    static_cast<void>(core.send_try(start + 200ms));
    EXPECT_TRUE(holds_alternative<Acquired>(core.taken(start + 200ms, start + 230ms)));
}

TEST(Attempts, answer_after_the_deadline_ends_the_wait) {
    Attempts core{plan(200ms), start, 1};
    static_cast<void>(core.send_try(start));
    EXPECT_EQ(as<GiveUp>(core.refused(start + 200ms, {.ttl = no_ttl})).error.code, Errc::timed_out);
}

TEST(Attempts, waiting_try_is_bounded_by_the_deadline) {
    Attempts core{plan(200ms), start, 1};
    EXPECT_EQ(as<SendTry>(core.send_try(start)).answer_by, start + 250ms);
}

TEST(Attempts, try_begun_after_the_deadline_gets_the_slack_only) {
    Attempts core{plan(200ms), start, 1};  // the queue inside the process took that long
    EXPECT_EQ(as<SendTry>(core.send_try(start + 300ms)).answer_by, start + 350ms);
    EXPECT_EQ(as<GiveUp>(core.refused(start + 310ms, {.ttl = no_ttl})).error.code, Errc::timed_out);
    EXPECT_EQ(core.tries(), 1U);
}

TEST(Attempts, short_command_timeout_bounds_each_try) {
    AcquirePlan hasty = plan(10s);
    hasty.command_timeout = 7ms;
    Attempts core{hasty, start, 1};
    EXPECT_EQ(as<SendTry>(core.send_try(start)).answer_by, start + 7ms);
    EXPECT_EQ(as<SendTry>(core.send_try(start + 10s)).answer_by, start + 10s + 7ms);
}

TEST(Attempts, fault_at_the_end_is_reported_as_the_fault) {
    Attempts core{plan(100ms), start, 1};
    static_cast<void>(core.send_try(start));
    static_cast<void>(core.refused(start + 1ms, {.ttl = no_ttl}));
    static_cast<void>(core.send_try(start + 100ms));
    const auto error = as<GiveUp>(core.fault(start + 150ms, transient("no answer"))).error;
    EXPECT_EQ(error.code, Errc::unavailable);
    EXPECT_EQ(error.message, "no answer");
}

TEST(Attempts, fault_at_the_end_tells_each_that_was_before_once) {
    Attempts core{plan(100ms), start, 1};
    Fault denied = transient("connect: refused");
    denied.error.causes.push_back({Errc::denied, {}, "map:1", "NOPERM", {}});
    for (const Fault& fault : {denied, transient("silent"), transient("loading")}) {
        static_cast<void>(core.send_try(start));
        static_cast<void>(core.fault(start + 1ms, fault));
    }
    static_cast<void>(core.send_try(start + 100ms));
    const auto error = as<GiveUp>(core.fault(start + 150ms, transient("silent"))).error;
    EXPECT_EQ(error.message, "silent");
    std::vector<std::string> causes;
    for (const Error& cause : error.causes) {
        EXPECT_TRUE(cause.causes.empty());
        causes.push_back(cause.message);
    }
    EXPECT_EQ(causes, (std::vector<std::string>{"loading", "connect: refused", "NOPERM"}));
}

TEST(Attempts, fault_at_the_end_tells_of_the_same_trouble_at_another_server) {
    const auto causes_of = [](std::string before, std::string at_the_end) {
        Attempts core{plan(100ms), start, 1};
        const auto at = [](std::string node) {
            Fault fault = transient();
            fault.error.node = std::move(node);
            return fault;
        };
        static_cast<void>(core.send_try(start));
        static_cast<void>(core.fault(start + 1ms, at(std::move(before))));
        static_cast<void>(core.send_try(start + 100ms));
        const AttemptAction end = core.fault(start + 101ms, at(std::move(at_the_end)));
        return as<GiveUp>(end).error.causes.size();
    };
    EXPECT_EQ(causes_of("a:6379", "a:6379"), 0U);
    EXPECT_EQ(causes_of("a:6379", "b:6379"), 1U);
    EXPECT_EQ(causes_of("", "b:6379"), 0U) << "which may be the same";
    EXPECT_EQ(causes_of("a:6379", ""), 0U);
}

TEST(Attempts, fault_at_the_end_that_tells_its_own_causes_is_left_alone) {
    Attempts core{plan(100ms), start, 1};
    static_cast<void>(core.send_try(start));
    static_cast<void>(core.fault(start + 1ms, transient("loading")));
    static_cast<void>(core.send_try(start + 100ms));
    Fault denied = transient("nobody tells the map");
    denied.error.causes.push_back({Errc::denied, {}, "map:1", "NOPERM", {}});
    const Error error = as<GiveUp>(core.fault(start + 101ms, denied)).error;
    ASSERT_EQ(error.causes.size(), 1U);
    EXPECT_EQ(error.causes[0].message, "NOPERM");
}

TEST(Attempts, are_cut_short_where_their_wait_ends_before_a_command_s_time) {
    const auto is_cut_short = [](Wait wait, TimePoint now) {
        Attempts core{plan(wait), start, 1};
        static_cast<void>(core.send_try(start));
        return core.was_cut_short(now);
    };
    const TimePoint answer_by = start + 10ms + detail::last_answer_slack;
    EXPECT_TRUE(is_cut_short(10ms, answer_by));
    EXPECT_FALSE(is_cut_short(10ms, answer_by - 1ns)) << "a fault that came before";
    EXPECT_FALSE(is_cut_short(10s, start + 1s)) << "a command's time";
}

TEST(Attempts, fault_at_the_end_of_a_long_wait_tells_no_more_than_the_latest) {
    Attempts core{plan(Wait::unlimited()), start, 1};
    for (int i = 0; i < 100; ++i) {
        static_cast<void>(core.send_try(start));
        static_cast<void>(core.fault(start + 1ms, transient("fault " + std::to_string(i))));
    }
    static_cast<void>(core.send_try(start));
    const auto error = as<GiveUp>(core.fault(start + 1ms, permanent())).error;
    ASSERT_EQ(error.causes.size(), 8U);
    EXPECT_EQ(error.causes.front().message, "fault 99");
    EXPECT_EQ(error.causes.back().message, "fault 92");
}

/// What ends a wait of one second whose first try is refused after `answered`, and whose last one gets no answer.
Error silent_at_the_end(std::chrono::milliseconds answered, Fault fault = transient("silent")) {
    Attempts core{plan(1s), start, 1};
    static_cast<void>(core.send_try(start));
    static_cast<void>(core.refused(start + answered, {.ttl = no_ttl, .owner = "foreign"}));
    static_cast<void>(core.send_try(start + 1s));
    return as<GiveUp>(core.fault(start + 1s + detail::last_answer_slack, std::move(fault))).error;
}

TEST(Attempts, silence_at_the_end_says_nothing_of_a_server_that_is_farther_away) {
    EXPECT_EQ(silent_at_the_end(49ms).code, Errc::unavailable);
    const Error error = silent_at_the_end(50ms);
    EXPECT_EQ(error.code, Errc::timed_out);
    EXPECT_EQ(error.message,
              "held by another kind of client (token 'foreign') after 1.0 s and 2 tries");
    ASSERT_EQ(error.causes.size(), 1U);
    EXPECT_EQ(error.causes[0].message, "silent");
}

TEST(Attempts, that_ask_who_has_the_lock_know_that_somebody_has_it) {
    const auto end_of = [](Wait wait, Fault fault) {
        Attempts core{plan(wait), start, 1};
        static_cast<void>(core.send_try(start));
        core.refused_plainly(start + 1ms);
        return as<GiveUp>(core.fault(start + 1050ms, std::move(fault))).error;
    };
    Fault broken = transient("broken");
    broken.disconnected = true;
    for (const Fault& fault : {transient("silent"), broken}) {
        for (const Wait wait : {Wait::none(), Wait{1s}}) {
            const Error error = end_of(wait, fault);
            EXPECT_EQ(error.code, Errc::timed_out);
            ASSERT_EQ(error.causes.size(), 1U);
            EXPECT_EQ(error.causes[0].message, fault.error.message);
        }
    }
    EXPECT_EQ(end_of(Wait::none(), permanent(Errc::wrong_type)).code, Errc::wrong_type);
}

TEST(Attempts, tell_of_a_key_without_an_end) {
    Attempts core{plan(0s), start, 1};
    static_cast<void>(core.send_try(start));
    const auto end = core.refused(start + 1ms, {.ttl = detail::no_end, .owner = "foreign"});
    EXPECT_EQ(as<GiveUp>(end).error.message,
              "held by another kind of client (token 'foreign'); its key has no end, and stays "
              "until somebody deletes it");
}

TEST(Attempts, a_fault_that_is_no_silence_is_told_however_far_the_server_is) {
    EXPECT_EQ(silent_at_the_end(60ms, permanent()).code, Errc::denied);
    Fault broken = transient();
    broken.disconnected = true;
    EXPECT_EQ(silent_at_the_end(60ms, std::move(broken)).code, Errc::unavailable);
}

TEST(Attempts, a_fault_before_the_last_try_is_told_however_far_the_server_is) {
    Attempts core{plan(1s), start, 1};
    static_cast<void>(core.send_try(start));
    static_cast<void>(core.refused(start + 60ms, {.ttl = no_ttl}));
    static_cast<void>(core.send_try(start + 500ms));
    static_cast<void>(core.fault(start + 800ms, transient()));
    static_cast<void>(core.send_try(start + 1s));
    EXPECT_EQ(as<GiveUp>(core.fault(start + 1050ms, transient())).error.code, Errc::unavailable);
}

TEST(Attempts, contention_at_the_end_is_a_timeout_with_the_fault_as_its_cause) {
    Attempts core{plan(100ms), start, 1};
    static_cast<void>(core.send_try(start));
    static_cast<void>(core.fault(start + 1ms, transient("first")));
    static_cast<void>(core.send_try(start + 50ms));
    static_cast<void>(core.fault(start + 51ms, transient("second")));
    static_cast<void>(core.send_try(start + 100ms));
    const auto error = as<GiveUp>(core.refused(start + 101ms, {.ttl = no_ttl})).error;
    EXPECT_EQ(error.code, Errc::timed_out);
    ASSERT_EQ(error.causes.size(), 1U);
    EXPECT_EQ(error.causes[0].message, "second");
}

TEST(Attempts, pure_contention_has_no_cause) {
    Attempts core{plan(Wait::none()), start, 1};
    static_cast<void>(core.send_try(start));
    EXPECT_TRUE(as<GiveUp>(core.refused(start, {.ttl = no_ttl})).error.causes.empty());
}

TEST(Attempts, cancelled_is_reported_as_such) {
    Attempts core{plan(10s), start, 1};
    static_cast<void>(core.send_try(start));
    static_cast<void>(core.fault(start + 1ms, transient("first")));
    const auto error = as<GiveUp>(core.cancelled("by the caller")).error;
    EXPECT_EQ(error.code, Errc::cancelled);
    EXPECT_EQ(error.message, "by the caller");
    ASSERT_EQ(error.causes.size(), 1U);
    EXPECT_EQ(error.causes[0].message, "first");
}

TEST(Attempts, never_reaching_the_server_is_a_timeout) {
    Attempts core{plan(10ms), start, 1};
    const Error error = core.out_of_turn(start + 10ms, false);
    EXPECT_EQ(error.code, Errc::timed_out);
    EXPECT_TRUE(error.causes.empty());
    EXPECT_EQ(error.message, "held, or waited for, in this process after 10 ms");
    EXPECT_EQ(core.tries(), 0U);
    const Attempts single{plan(Wait::none()), start, 1};
    EXPECT_EQ(single.out_of_turn(start, false).message, "held, or waited for, in this process");
    EXPECT_EQ(single.out_of_turn(start, true).message,
              "held by the calling thread itself; this lock does not nest");
}

/// The message of a wait of 10 s that ended with that refusal, after that many tries.
std::string contention(const std::string& owner, int tries, std::chrono::milliseconds waited) {
    Attempts core{plan(waited), start, 1};
    AttemptAction action = core.send_try(start);
    for (int i = 1; i < tries; ++i) {
        static_cast<void>(core.refused(start + 1ms, {.ttl = no_ttl, .owner = "earlier"}));
        static_cast<void>(core.send_try(start + 1ms));
    }
    const TimePoint end = start + waited;
    return as<GiveUp>(core.refused(end, {.ttl = no_ttl, .owner = owner})).error.message;
}

TEST(Attempts, contention_tells_who_has_it_how_long_was_waited_and_by_how_many_tries) {
    const std::string id(32, 'a');
    EXPECT_EQ(contention(id + ":web-3:4711:8:1", 3, 10s),
              "held by web-3:4711 after 10.0 s and 3 tries");
    EXPECT_EQ(contention(id + ":web-3:4711:8:1", 1, 1s),
              "held by web-3:4711 after 1.0 s and 1 try");
    EXPECT_EQ(contention("", 2, 999ms), "held, or waited for, by others after 999 ms and 2 tries");
    EXPECT_EQ(contention("", 2, 90'190ms),
              "held, or waited for, by others after 90.1 s and 2 tries");
}

TEST(Attempts, contention_for_permits_names_no_only_owner) {
    AcquirePlan of_permits = plan(1s);
    of_permits.of_permits = true;
    const auto refused = [&](const std::string& owner) {
        Attempts core{of_permits, start, 1};
        static_cast<void>(core.send_try(start));
        const auto over = core.refused(start + 1s, {.ttl = no_ttl, .owner = owner});
        return as<GiveUp>(over).error.message;
    };
    EXPECT_EQ(refused(""),
              "too few permits are free, or others wait in front after 1.0 s and 1 try");
    EXPECT_EQ(refused(std::string(32, 'a') + ":web-3:4711:8:1"),
              "too few permits are free, or others wait in front after 1.0 s and 1 try; some are "
              "held by web-3:4711");
}

TEST(Attempts, contention_of_a_single_try_tells_who_has_it) {
    Attempts core{plan(Wait::none()), start, 1};
    static_cast<void>(core.send_try(start));
    const auto over = as<GiveUp>(
        core.refused(start + 1ms, {.ttl = no_ttl, .owner = std::string(32, '0') + ":b:1:2"}));
    EXPECT_EQ(over.error.describe(), "the lock is taken: held by b");
}

TEST(Attempts, contention_shows_no_more_of_a_foreign_token_than_its_beginning) {
    const auto owner = [](const std::string& token) { return detail::describe_owner(token); };
    EXPECT_EQ(owner("8743c9c0-0795-4907-87fd-6c719a6b4586:1"),
              "another kind of client (token '8743c9c0…')");
    EXPECT_EQ(owner("12345678"), "another kind of client (token '12345678')");
    EXPECT_EQ(owner("123456789"), "another kind of client (token '12345678…')");
    EXPECT_EQ(owner("a\r\n\x1b[31m"), "another kind of client (token 'a\\x0d\\x0a\\x1b[31m')");
    const std::string id(32, 'A');
    for (const std::string& foreign : {id, id + ":", id + ":secret", id + ":secret:1", id + "::1:2",
                                       id.substr(1) + "g:n:1:2", id + "A:n:1:2"}) {
        EXPECT_TRUE(owner(foreign).starts_with("another kind of client (token '")) << foreign;
        EXPECT_EQ(owner(foreign).find("secret"), std::string::npos);
    }
    EXPECT_EQ(owner(id + ":n\x01:1:2"), "n\\x01");
    EXPECT_EQ(owner(id + ":" + std::string(100, 'n') + ":1:2"), std::string(64, 'n'));
}

TEST(Attempts, contention_by_another_key_space_shows_the_same_name) {
    const std::string token = std::string(32, 'A') + ":n:1:2" + detail::mark_of("svc:");
    EXPECT_EQ(detail::describe_owner(token), "n");
    EXPECT_EQ(detail::describe_owner(token + ":min_hold"), "the min_hold of n");
    EXPECT_EQ(detail::describe_owner(token + ":ticket"), "a ticket of n");
    EXPECT_TRUE(detail::is_ticket(token + ":ticket"));
}

TEST(Attempts, contention_by_a_min_hold_or_a_ticket_says_whose_it_is) {
    EXPECT_EQ(detail::describe_owner(std::string(32, 'A') + ":n:1:2:min_hold"),
              "the min_hold of n");
    EXPECT_EQ(detail::describe_owner(std::string(32, 'A') + ":n:1:2:ticket"), "a ticket of n");
}

TEST(Attempts, late_grant_is_no_grant) {
    AcquirePlan brief = plan(10s);
    brief.lease = 100ms;  // valid for 97 ms
    Attempts core{brief, start, 1};
    static_cast<void>(core.send_try(start));
    EXPECT_EQ(as<Acquired>(core.taken(start, start + 97ms - 1ns)).since, start);
    EXPECT_TRUE(holds_alternative<Pause>(core.taken(start, start + 97ms)));
    EXPECT_TRUE(holds_alternative<Pause>(core.taken(start, start + 5s)));
}

TEST(Attempts, late_grant_at_the_deadline_is_a_fault) {
    AcquirePlan brief = plan(200ms);
    brief.lease = 100ms;
    Attempts core{brief, start, 1};
    static_cast<void>(core.send_try(start));
    const auto error = as<GiveUp>(core.taken(start, start + 220ms)).error;
    EXPECT_EQ(error.code, Errc::unavailable) << "nobody else held it";
}

TEST(Attempts, validity_counts_from_the_send_of_its_own_try) {
    Attempts core{plan(60s), start, 1};
    static_cast<void>(core.send_try(start));
    static_cast<void>(core.refused(start + 1ms, {.ttl = no_ttl}));
    static_cast<void>(core.send_try(start + 20s));
    EXPECT_EQ(as<Acquired>(core.taken(start + 20s, start + 50s - 302ms - 1ns)).since, start + 20s);
}

TEST(Attempts, longest_durations_do_not_overflow) {
    const AcquirePlan endless{.wait = std::chrono::hours::max(),
                              .lease = Lease::max(),
                              .drift = {},
                              .backoff = {1ms, std::chrono::days{24}},
                              .command_timeout = std::chrono::days{24}};
    for (const TimePoint now : {TimePoint{}, start, TimePoint::max() - 1s, TimePoint::max()}) {
        Attempts core{endless, now, 1};
        EXPECT_EQ(core.deadline(), TimePoint::max());
        EXPECT_GE(as<SendTry>(core.send_try(now)).answer_by, now);
    }
}

TEST(Attempts, key_that_hardly_ever_expires_is_no_reason_to_hurry) {
    for (const milliseconds ttl : {milliseconds{9'223'372'036'854'775}, milliseconds::max()}) {
        Attempts core{plan(Wait::unlimited()), start, 1};
        static_cast<void>(core.send_try(start));
        EXPECT_GE(as<Pause>(core.refused(start, {.ttl = ttl})).until, start + 10ms);
    }
}

TEST(Attempts, wait_just_below_unlimited_keeps_its_deadline) {
    const Attempts core{plan(Clock::duration::max() - 2000s), start, 1};
    EXPECT_EQ(core.deadline(), TimePoint::max() - 1000s);
}

TEST(Attempts, place_in_the_queue_is_rechecked_and_not_polled) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Attempts core{plan(Wait::unlimited()), start, seed};
        static_cast<void>(core.send_try(start));
        const auto of_first = as<Pause>(core.refused(start, {.ttl = 20s, .place = 0})).until;
        EXPECT_GE(of_first, start + 1s);
        EXPECT_LT(of_first, start + 2s);
        static_cast<void>(core.send_try(of_first));
        const auto of_ninth = as<Pause>(core.refused(start, {.ttl = no_ttl, .place = 8})).until;
        EXPECT_GE(of_ninth, start + 5s);
        EXPECT_LT(of_ninth, start + 10s);
    }
}

TEST(Attempts, place_in_the_queue_is_rechecked_when_the_holder_may_be_dead) {
    Attempts core{plan(Wait::unlimited()), start, 1};
    static_cast<void>(core.send_try(start));
    const auto until = as<Pause>(core.refused(start, {.ttl = 300ms, .place = 0})).until;
    EXPECT_GE(until, start + 301ms);
    EXPECT_LT(until, start + 311ms);
}

TEST(Attempts, recheck_comes_at_the_deadline_at_the_latest) {
    for (const std::int64_t place : {0, 1, 50}) {
        Attempts core{plan(400ms), start, 1};
        static_cast<void>(core.send_try(start));
        EXPECT_EQ(as<Pause>(core.refused(start, {.ttl = 20s, .place = place})).until,
                  start + 400ms);
        EXPECT_TRUE(as<SendTry>(core.send_try(start + 400ms)).last);
        EXPECT_EQ(as<GiveUp>(core.refused(start + 401ms, {.ttl = 20s, .place = place})).error.code,
                  Errc::timed_out);
    }
}

TEST(Attempts, place_is_of_no_use_after_the_deadline_or_without_a_wait) {
    Attempts late{plan(400ms), start, 1};
    static_cast<void>(late.send_try(start));
    EXPECT_EQ(as<GiveUp>(late.refused(start + 400ms, {.ttl = 20s, .place = 0})).error.code,
              Errc::timed_out);
    Attempts hasty{plan(Wait::none()), start, 1};
    EXPECT_TRUE(as<SendTry>(hasty.send_try(start)).last);
    EXPECT_EQ(as<GiveUp>(hasty.refused(start, {.ttl = 20s, .place = 0})).error.code,
              Errc::timed_out);
}

TEST(Attempts, rechecks_do_not_slow_down_the_backoff) {
    Attempts core{plan(Wait::unlimited()), start, 1};
    static_cast<void>(core.send_try(start));
    for (int i = 0; i < 20; ++i) static_cast<void>(core.refused(start, {.ttl = 20s, .place = 0}));
    EXPECT_LT(as<Pause>(core.refused(start, {.ttl = 20s})).until, start + 30ms);
}

TEST(Attempts, only_the_try_at_the_deadline_is_the_last) {
    Attempts core{plan(400ms), start, 1};
    EXPECT_FALSE(as<SendTry>(core.send_try(start)).last);
    EXPECT_FALSE(as<SendTry>(core.send_try(start + 399ms)).last);
    EXPECT_TRUE(as<SendTry>(core.send_try(start + 400ms)).last);
    Attempts endless{plan(Wait::unlimited()), start, 1};
    EXPECT_FALSE(as<SendTry>(endless.send_try(start + 24h)).last);
}

TEST(Attempts, may_be_silent_for_three_rechecks) {
    for (const Wait wait : {Wait::unlimited(), Wait{24h}, Wait{29s}}) {
        EXPECT_EQ((Attempts{plan(wait), start, 1}.presence_ttl(start)), 30s);
    }
}

TEST(Attempts, may_be_silent_for_three_of_its_own_pauses_where_those_are_longer) {
    AcquirePlan slow = plan(Wait::unlimited());
    slow.backoff = {1s, 60s};
    EXPECT_EQ((Attempts{slow, start, 1}.presence_ttl(start)), 180s);
    slow.wait = 100s;
    EXPECT_EQ((Attempts{slow, start, 1}.presence_ttl(start)), 101s);
    slow.wait = Wait::unlimited();
    slow.backoff = {1ms, std::chrono::days{24}};
    EXPECT_EQ((Attempts{slow, start, 1}.presence_ttl(start)), std::chrono::days{72});
}

TEST(Attempts, is_not_taken_for_alive_much_longer_than_it_waits) {
    const Attempts core{plan(10s), start, 1};
    EXPECT_EQ(core.presence_ttl(start), 11s);
    EXPECT_EQ(core.presence_ttl(start + 9s), 2s);
    EXPECT_EQ(core.presence_ttl(start + 9s + 1ns), 2s) << "rounded up";
    EXPECT_EQ(core.presence_ttl(start + 10s), 1s);
    EXPECT_EQ(core.presence_ttl(start + 24h), 1s) << "never in the past";
    EXPECT_EQ(core.presence_ttl(TimePoint::max()), 1s);
    EXPECT_EQ((Attempts{plan(1ns), start, 1}.presence_ttl(start)), 1001ms);
    EXPECT_EQ((Attempts{plan(Wait::none()), start, 1}.presence_ttl(start)), 1s);
    EXPECT_EQ((Attempts{plan(std::chrono::hours::min()), start, 1}.presence_ttl(start)), 1s);
}

/// Plays one acquisition with a server that does anything, and checks what always has to hold.
class Play {
public:
    explicit Play(std::uint64_t seed)
        : random_(seed), plan_(any_plan()), core_(plan_, now_, seed) {}

    void run() {
        AttemptAction action = core_.send_try(now_);
        for (steps_ = 0; steps_ < 2000; ++steps_) {
            if (const auto* try_out = get_if<SendTry>(&action)) {
                action = answer(*try_out);
            } else if (const auto* pause = get_if<Pause>(&action)) {
                action = rest(*pause);
            } else if (const auto* acquired = get_if<Acquired>(&action)) {
                return check_acquired(*acquired);
            } else {
                return check_given_up(get<GiveUp>(action).error);
            }
            if (testing::Test::HasFatalFailure()) return;
        }
        EXPECT_TRUE(plan_.wait.is_unlimited() || plan_.wait.duration() > 1s) << "no end";
    }

private:
    enum class Event { none, refused, transient, permanent, taken_late, taken, cancelled };

    AcquirePlan any_plan() {
        const Wait waits[] = {Wait::none(), -5ms, 1ns, 1ms, 20ms, 300ms, 5s, Wait::unlimited()};
        const Lease leases[] = {10ms, 50ms, 1s, 30s, Lease::max()};
        const Backoff backoffs[] = {{1ms, 2ms}, {10ms, 100ms}, {1ms, 10s}, {2s, 3s}};
        const milliseconds timeouts[] = {1ms, 30ms, 1000ms, 24h};
        return {.wait = waits[below(8)],
                .lease = leases[below(5)],
                .drift = {},
                .backoff = backoffs[below(4)],
                .command_timeout = timeouts[below(4)]};
    }

    std::size_t below(std::int64_t n) { return static_cast<std::size_t>(random_.between(0, n)); }

    AttemptAction answer(const SendTry& try_out) {
        ++tries_;
        EXPECT_EQ(core_.tries(), tries_);
        EXPECT_LE(try_out.answer_by, now_ + plan_.command_timeout);
        EXPECT_GT(try_out.answer_by, now_);
        if (!plan_.wait.is_none() && !plan_.wait.is_unlimited()) {
            EXPECT_LE(try_out.answer_by, std::max(core_.deadline(), now_) + 50ms);
        }
        was_last_try_ = now_ >= core_.deadline();
        EXPECT_EQ(try_out.last, was_last_try_);
        longest_pause_ = plan_.backoff.max;
        sent_ = now_;
        now_ += Clock::duration{random_.between(0, (try_out.answer_by - now_).count() + 1)};
        if (below(10) == 0) now_ += 3ms;  // the thread woke up late

        const auto refused_in = std::exchange(refused_in_, std::nullopt);
        switch (below(8)) {
            case 0: {
                const bool silence_says_nothing = (was_last_try_ || now_ >= core_.deadline()) &&
                                                  refused_in &&
                                                  *refused_in >= try_out.answer_by - sent_;
                event_ = silence_says_nothing ? Event::refused : Event::transient;
                return core_.fault(now_, transient());
            }
            case 1:
                if (below(10) != 0) break;
                event_ = Event::permanent;
                return core_.fault(now_, permanent());
            case 2:
                if (below(4) != 0) break;
                event_ = now_ < detail::valid_until(sent_, plan_.lease, plan_.drift)
                             ? Event::taken
                             : Event::taken_late;
                return core_.taken(sent_, now_);
            default: break;
        }
        event_ = Event::refused;
        refused_in_ = now_ - sent_;
        const std::optional<milliseconds> ttls[] = {std::nullopt, -1ms, 0ms,
                                                    1ms,          40ms, milliseconds{24h}};
        const std::optional<std::int64_t> places[] = {std::nullopt, 0, 1, 500};
        const auto place = places[below(4)];
        if (place) longest_pause_ = 10s;
        return core_.refused(now_, {.ttl = ttls[below(6)], .place = place});
    }

    AttemptAction rest(const Pause& pause) {
        EXPECT_TRUE(event_ == Event::refused || event_ == Event::transient ||
                    event_ == Event::taken_late);
        EXPECT_FALSE(plan_.wait.is_none());
        EXPECT_FALSE(was_last_try_);
        EXPECT_GT(pause.until, now_);
        EXPECT_LE(pause.until, core_.deadline());
        EXPECT_LE(pause.until, now_ + longest_pause_);
        if (below(40) == 0) {
            event_ = Event::cancelled;
            return core_.cancelled("enough");
        }
        now_ = pause.until;
        if (below(10) == 0) now_ += 3ms;
        return core_.send_try(now_);
    }

    void check_acquired(const Acquired& acquired) const {
        EXPECT_EQ(event_, Event::taken);
        EXPECT_EQ(acquired.since, sent_);
        EXPECT_GT(detail::valid_until(acquired.since, plan_.lease, plan_.drift), now_);
    }

    void check_given_up(const Error& error) const {
        const bool over = was_last_try_ || now_ >= core_.deadline();
        switch (event_) {
            case Event::refused:
                EXPECT_EQ(error.code, Errc::timed_out);
                EXPECT_TRUE(over);
                EXPECT_FALSE(plan_.wait.is_unlimited());
                break;
            case Event::transient:
            case Event::taken_late:
                EXPECT_EQ(error.code, Errc::unavailable);
                EXPECT_TRUE(over);
                EXPECT_FALSE(plan_.wait.is_unlimited());
                break;
            case Event::permanent: EXPECT_EQ(error.code, Errc::denied); break;
            case Event::cancelled: EXPECT_EQ(error.code, Errc::cancelled); break;
            default: ADD_FAILURE() << "gave up without a reason";
        }
        EXPECT_TRUE(tries_ == 1 || !plan_.wait.is_none());
    }

    Random random_;
    TimePoint now_ = start;
    TimePoint sent_{};
    AcquirePlan plan_;
    Attempts core_;
    Event event_ = Event::none;
    bool was_last_try_ = false;
    std::optional<Clock::duration> refused_in_{};
    milliseconds longest_pause_{};
    unsigned tries_ = 0;
    int steps_ = 0;
};

TEST(Attempts, keeps_its_rules_whatever_the_server_does) {
    for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
        SCOPED_TRACE(seed);
        Play{seed}.run();
        if (HasFailure()) break;
    }
}

}  // namespace
