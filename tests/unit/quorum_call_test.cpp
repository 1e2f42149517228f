#include <redlatch/core/quorum_call.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using redlatch::Errc;
using redlatch::detail::ConnectStatus;
using redlatch::detail::Fault;
using redlatch::detail::MasterAnswer;
using redlatch::detail::QuorumCall;
using redlatch::detail::QuorumRules;
using redlatch::detail::QuorumSubject;
using redlatch::detail::TimePoint;
using redlatch::detail::Verdict;
using redlatch::detail::Vote;

constexpr TimePoint start{1h};
constexpr TimePoint deadline = start + 1s;
constexpr QuorumRules taking{QuorumSubject::taking, 50ms, 0ms};
constexpr QuorumRules keeping{QuorumSubject::keeping, 50ms, 0ms};
constexpr QuorumRules asking{QuorumSubject::asking, 50ms, 0ms};
const MasterAnswer yes{.vote = Vote::yes};
const MasterAnswer no{.vote = Vote::no};

Fault fault(Errc code, bool transient = true, bool maybe_executed = false) {
    return {.error = {code, {}, {}, "broken", {}},
            .transient = transient,
            .maybe_executed = maybe_executed};
}

ConnectStatus coming(TimePoint since = TimePoint::min()) {
    return {ConnectStatus::Kind::coming, {}, since};
}
ConnectStatus doubtful() {
    return {ConnectStatus::Kind::doubtful, fault(Errc::unavailable), TimePoint::min()};
}
ConnectStatus none() {
    return {ConnectStatus::Kind::none, fault(Errc::unavailable), TimePoint::min()};
}

void send(QuorumCall& call, std::size_t master) {
    ASSERT_TRUE(call.unconnected(master));
    ASSERT_TRUE(call.admit(master, std::nullopt, start));
    call.send(master, start);
}

/// One that has been sent to all masters.
QuorumCall sent(std::size_t masters, const QuorumRules& rules) {
    QuorumCall call{masters, rules, deadline};
    for (std::size_t i = 0; i < masters; ++i) send(call, i);
    return call;
}

MasterAnswer from(const char* run_id, Vote vote = Vote::yes) {
    return {.vote = vote, .server = std::make_shared<const std::string>(run_id)};
}

TEST(QuorumCall, asks_all_masters_and_waits_for_them) {
    QuorumCall call{3, taking, deadline};
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(call.unconnected(i));
        EXPECT_FALSE(call.waits_for(i));
        send(call, i);
        EXPECT_FALSE(call.unconnected(i));
        EXPECT_TRUE(call.waits_for(i));
    }
    EXPECT_FALSE(call.any_unconnected());
    EXPECT_FALSE(call.is_over(start));
    EXPECT_EQ(call.sets().asked, 0b111U);
}

TEST(QuorumCall, is_over_with_the_majority_and_leaves_the_other_answers) {
    QuorumCall call = sent(3, taking);
    call.answered(0, yes);
    EXPECT_FALSE(call.is_over(start));
    call.answered(2, yes);
    EXPECT_TRUE(call.is_over(start));
    EXPECT_EQ(call.end(), Verdict::yes);
    EXPECT_EQ(call.sets().answered, 0b101U);
    EXPECT_EQ(call.sets().agreed, 0b101U);
    EXPECT_EQ(call.sets().late, 0b010U);
}

TEST(QuorumCall, is_over_where_no_majority_can_come_together) {
    QuorumCall call = sent(3, taking);
    call.answered(0, no);
    EXPECT_FALSE(call.is_over(start));
    call.answered(1, no);
    EXPECT_TRUE(call.is_over(start));
    EXPECT_EQ(call.end(), Verdict::no);
    EXPECT_EQ(call.sets().agreed, 0U);
}

TEST(QuorumCall, refuses_without_those_whose_votes_can_make_no_majority) {
    QuorumCall call = sent(3, taking);
    call.answered(0, no);
    call.failed(1, fault(Errc::unavailable));
    EXPECT_TRUE(call.is_over(start));
    EXPECT_EQ(call.end(), Verdict::no);
}

TEST(QuorumCall, refuses_though_it_waits_no_longer_for_those_that_are_being_connected_to) {
    QuorumCall call{5, taking, deadline};
    for (const std::size_t master : {0U, 1U, 2U}) send(call, master);
    for (const std::size_t master : {3U, 4U}) call.not_connected(master, coming());
    call.failed(0, fault(Errc::unavailable));
    call.answered(1, no);
    EXPECT_FALSE(call.is_over(start));
    call.answered(2, no);
    EXPECT_TRUE(call.is_over(start));
    EXPECT_EQ(call.end(), Verdict::no) << "the others might have answered";
    EXPECT_EQ(call.fault(3), nullptr);
}

TEST(QuorumCall, gives_an_own_lock_up_only_where_no_majority_can_have_it) {
    QuorumCall call = sent(3, keeping);
    call.answered(0, no);
    call.failed(1, fault(Errc::unavailable));
    EXPECT_FALSE(call.is_over(start));
    call.answered(2, yes);
    EXPECT_TRUE(call.is_over(start));
    EXPECT_EQ(call.end(), Verdict::unknown);
}

TEST(QuorumCall, asks_all_for_what_each_sees) {
    QuorumCall call = sent(3, asking);
    call.answered(0, yes);
    call.answered(1, yes);
    EXPECT_FALSE(call.is_over(start));
    call.answered(2, yes);
    EXPECT_TRUE(call.is_over(start));
    EXPECT_EQ(call.end(), Verdict::yes);
}

TEST(QuorumCall, gives_each_master_its_time) {
    QuorumCall call{3, taking, deadline};
    ASSERT_TRUE(call.admit(0, std::nullopt, start));
    EXPECT_EQ(call.send(0, start), start + 50ms);
    ASSERT_TRUE(call.admit(1, std::nullopt, start + 20ms));
    EXPECT_EQ(call.send(1, start + 20ms), start + 70ms);
    EXPECT_EQ(call.next_due(start), start + 50ms);
    call.pass_time(start + 49ms);
    EXPECT_TRUE(call.waits_for(0));
    call.pass_time(start + 50ms);
    EXPECT_FALSE(call.waits_for(0));
    EXPECT_TRUE(call.waits_for(1));
    EXPECT_EQ(call.next_due(start), start + 70ms);
    ASSERT_NE(call.fault(0), nullptr);
    EXPECT_TRUE(call.fault(0)->maybe_executed);
    EXPECT_EQ(call.sets().asked, 0b011U);
    EXPECT_EQ(call.sets().late, 0b011U) << "its answer may still come";
}

TEST(QuorumCall, counts_a_late_answer_in_place_of_none) {
    QuorumCall call{3, taking, deadline};
    send(call, 0);
    call.pass_time(start + 50ms);
    ASSERT_NE(call.fault(0), nullptr);
    call.answered(0, no);
    EXPECT_EQ(call.fault(0), nullptr);
    EXPECT_FALSE(call.is_over(start + 50ms)) << "the others are a majority";
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
        send(call, i);
        call.answered(i, yes);
    }
    EXPECT_TRUE(call.is_over(start + 50ms));
    EXPECT_EQ(call.end(), Verdict::yes);
}

TEST(QuorumCall, gives_no_master_more_time_than_there_is) {
    QuorumCall call{1, taking, start + 30ms};
    EXPECT_EQ(call.next_due(start), start + 30ms);
    EXPECT_EQ(call.send(0, start), start + 30ms);
}

TEST(QuorumCall, takes_a_master_for_silent_only_after_its_whole_time) {
    QuorumCall call{3, taking, start + 60ms};
    call.send(0, start);
    call.send(1, start + 20ms);
    call.send(2, start + 70ms);  // to return a vote, when the time is over
    call.pass_time(start + 70ms);
    for (std::size_t i = 0; i < 3; ++i) ASSERT_NE(call.fault(i), nullptr);
    EXPECT_TRUE(call.has_to_be_reached_anew(0));
    EXPECT_FALSE(call.has_to_be_reached_anew(1));
    EXPECT_FALSE(call.has_to_be_reached_anew(2));

    call.failed(1, fault(Errc::unavailable, true, true));
    EXPECT_TRUE(call.has_to_be_reached_anew(1)) << "its connection has died";
    call.failed(2, fault(Errc::unavailable, true, false));
    EXPECT_FALSE(call.has_to_be_reached_anew(2)) << "it has heard nothing";
}

TEST(QuorumCall, gives_a_master_to_which_too_much_was_sent_before_its_time_anew) {
    constexpr TimePoint later = deadline + 1s;
    QuorumCall call{1, taking, deadline};
    QuorumCall given_up = call;
    call.has_until(later);
    call.pass_time(deadline);
    EXPECT_TRUE(call.unconnected(0));
    EXPECT_EQ(call.next_due(deadline), later);
    EXPECT_EQ(call.send(0, later - 20ms), later);

    given_up.pass_time(deadline);
    ASSERT_NE(given_up.fault(0), nullptr);
    EXPECT_EQ(given_up.fault(0)->error.message, "too much was to be sent before it");
}

TEST(QuorumCall, waits_for_a_connection_that_is_coming) {
    QuorumCall call{3, taking, deadline};
    send(call, 0);
    call.not_connected(1, coming());
    call.not_connected(2, none());
    call.answered(0, yes);
    EXPECT_FALSE(call.is_over(start));
    EXPECT_TRUE(call.unconnected(1));
    EXPECT_TRUE(call.any_unconnected());
    call.pass_time(deadline);
    EXPECT_TRUE(call.is_over(deadline));
    EXPECT_EQ(call.end(), Verdict::unknown);
    ASSERT_NE(call.fault(1), nullptr);
    EXPECT_EQ(call.fault(1)->error.message, "no connection in time");
    EXPECT_EQ(call.sets().asked, 0b001U);
}

TEST(QuorumCall, waits_for_a_connection_whose_master_may_decide_where_the_others_disagree) {
    QuorumCall call{3, taking, deadline};
    send(call, 0);
    send(call, 1);
    call.not_connected(2, coming());
    call.answered(0, yes);
    call.answered(1, no);
    EXPECT_FALSE(call.is_over(start));
    send(call, 2);
    EXPECT_FALSE(call.is_over(start));
    call.answered(2, yes);
    EXPECT_TRUE(call.is_over(start));
    EXPECT_EQ(call.end(), Verdict::yes);
}

TEST(QuorumCall, waits_a_moment_for_a_new_connection_although_it_is_decided) {
    QuorumCall call{3, taking, deadline};
    call.not_connected(2, coming(start));
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
        send(call, i);
        call.answered(i, yes);
    }
    EXPECT_FALSE(call.is_over(start + 49ms));
    EXPECT_EQ(call.next_due(start + 49ms), start + 50ms);
    EXPECT_TRUE(call.is_over(start + 50ms));
    EXPECT_EQ(call.next_due(start + 50ms), deadline);
    QuorumCall asked = call;
    send(asked, 2);
    EXPECT_TRUE(asked.is_over(start)) << "its answer may come late";
}

TEST(QuorumCall, waits_for_no_connection_where_the_lock_is_ours) {
    QuorumCall call{3, keeping, deadline};
    call.not_connected(2, coming(start));
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
        send(call, i);
        call.answered(i, yes);
    }
    EXPECT_TRUE(call.is_over(start));
}

TEST(QuorumCall, gives_a_connection_one_moment_however_often_it_is_asked_for) {
    QuorumCall call{3, taking, deadline};
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
        send(call, i);
        call.answered(i, yes);
    }
    call.not_connected(2, coming(start));
    call.not_connected(2, coming(start + 40ms));
    EXPECT_FALSE(call.is_over(start + 49ms));
    EXPECT_TRUE(call.is_over(start + 50ms));
}

TEST(QuorumCall, gives_the_moment_also_to_one_that_was_doubtful) {
    QuorumCall call{3, taking, deadline};
    call.not_connected(2, doubtful());
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
        send(call, i);
        call.answered(i, yes);
    }
    EXPECT_TRUE(call.is_over(start));
    call.not_connected(2, coming(start));
    EXPECT_FALSE(call.is_over(start + 49ms));
    EXPECT_TRUE(call.is_over(start + 50ms));
}

TEST(QuorumCall, waits_for_a_doubtful_master_only_where_nothing_is_decided_without_it) {
    for (const bool enough : {false, true}) {
        QuorumCall call{3, asking, deadline};
        send(call, 0);
        send(call, 1);
        call.not_connected(2, doubtful());
        EXPECT_TRUE(call.any_unconnected());
        call.answered(0, yes);
        EXPECT_FALSE(call.is_over(start));
        if (enough) {
            call.answered(1, yes);
        } else {
            call.failed(1, fault(Errc::unavailable));
        }
        EXPECT_EQ(call.is_over(start), enough);
        EXPECT_EQ(call.end(), enough ? Verdict::yes : Verdict::unknown);
        ASSERT_NE(call.fault(2), nullptr) << "why it was in doubt";
        EXPECT_EQ(call.fault(2)->error.message, "broken");
    }
}

TEST(QuorumCall, says_of_a_doubtful_master_why_it_was_in_doubt) {
    QuorumCall call{1, taking, deadline};
    call.not_connected(0, doubtful());
    EXPECT_EQ(call.fault(0), nullptr) << "it may yet be reached";
    call.pass_time(deadline);
    ASSERT_NE(call.fault(0), nullptr);
    EXPECT_EQ(call.fault(0)->error.message, "broken");
}

TEST(QuorumCall, says_nothing_of_a_master_that_was_not_waited_for) {
    QuorumCall call = sent(1, taking);
    call.answered(0, yes);
    EXPECT_EQ(call.fault(0), nullptr);

    QuorumCall other{1, taking, deadline};
    other.not_connected(0, doubtful());
    other.not_connected(0, coming());
    EXPECT_EQ(other.end(), Verdict::unknown);
    EXPECT_EQ(other.fault(0), nullptr);
}

TEST(QuorumCall, forgets_why_a_master_was_in_doubt_once_it_is_asked) {
    QuorumCall call{2, taking, deadline};
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
        call.not_connected(i, doubtful());
        send(call, i);
    }
    call.answered(0, yes);
    EXPECT_EQ(call.end(), Verdict::open) << "the caller has cancelled";
    EXPECT_EQ(call.fault(0), nullptr);
    EXPECT_EQ(call.fault(1), nullptr);
    EXPECT_TRUE(call.no_quorum().error.causes.empty());
}

TEST(QuorumCall, fails_at_once_where_a_master_cannot_be_reached) {
    QuorumCall call{1, taking, deadline};
    call.not_connected(0, none());
    EXPECT_TRUE(call.is_over(start));
    EXPECT_EQ(call.end(), Verdict::unknown);
    EXPECT_FALSE(call.maybe_executed());
}

TEST(QuorumCall, lets_no_young_master_vote_on_a_lock_that_is_wanted) {
    constexpr QuorumRules rules{QuorumSubject::taking, 50ms, 10s};
    QuorumCall call{3, rules, deadline};
    EXPECT_FALSE(call.admit(0, start - 9999ms, start));
    EXPECT_TRUE(call.admit(1, start - 10s, start));
    EXPECT_FALSE(call.admit(2, std::nullopt, start)) << "nobody knows";
    ASSERT_NE(call.fault(0), nullptr);
    EXPECT_EQ(call.fault(0)->error.code, Errc::unavailable);
    EXPECT_TRUE(call.fault(0)->transient);
    ASSERT_NE(call.fault(2), nullptr);
    EXPECT_EQ(call.fault(2)->error.code, Errc::denied);
    EXPECT_FALSE(call.fault(2)->transient);
    EXPECT_EQ(call.sets().asked, 0U);
}

TEST(QuorumCall, lets_no_master_vote_where_it_must_be_older_than_time_is_long) {
    QuorumCall call{1, {QuorumSubject::taking, 50ms, std::chrono::milliseconds::max()}, deadline};
    EXPECT_FALSE(call.admit(0, start - 100h, start));
}

TEST(QuorumCall, lets_a_young_master_vote_on_anything_else) {
    for (const QuorumSubject subject : {QuorumSubject::keeping, QuorumSubject::asking}) {
        QuorumCall call{1, {subject, 50ms, 10s}, deadline};
        EXPECT_TRUE(call.admit(0, start, start));
    }
}

TEST(QuorumCall, counts_one_vote_for_each_server) {
    QuorumCall call = sent(3, taking);
    call.answered(0, from("a"));
    call.answered(1, from("a"));
    EXPECT_FALSE(call.is_over(start)) << "the same server twice";
    ASSERT_NE(call.fault(1), nullptr);
    EXPECT_EQ(call.fault(1)->error.code, Errc::invalid_argument);
    EXPECT_NE(call.fault(1)->error.message.find("run id a"), std::string::npos);
    call.answered(2, from("b"));
    EXPECT_EQ(call.end(), Verdict::yes);
    EXPECT_EQ(call.sets().answered, 0b101U);
}

TEST(QuorumCall, counts_servers_that_do_not_say_who_they_are) {
    QuorumCall call = sent(3, taking);
    call.answered(0, yes);
    call.answered(1, yes);
    EXPECT_EQ(call.end(), Verdict::yes);
}

TEST(QuorumCall, knows_where_the_command_may_have_been_executed) {
    QuorumCall call = sent(4, taking);
    call.failed(0, fault(Errc::unavailable));
    call.failed(1, fault(Errc::unavailable, true, true));
    call.disconnected(2, false);
    call.disconnected(3, true);
    EXPECT_EQ(call.sets().asked, 0b1010U);
    EXPECT_EQ(call.sets().late, 0U);
    EXPECT_TRUE(call.unconnected(2));
    EXPECT_TRUE(call.unconnected(3));
    call.not_connected(3, none());
    EXPECT_EQ(call.sets().asked, 0b1010U);
    EXPECT_TRUE(call.fault(3)->maybe_executed) << "the first sending";
    EXPECT_TRUE(call.maybe_executed());
}

TEST(QuorumCall, may_have_been_executed_where_a_master_agreed_or_is_silent) {
    QuorumCall refused = sent(2, taking);
    refused.answered(0, no);
    refused.failed(1, fault(Errc::unavailable));
    EXPECT_FALSE(refused.maybe_executed());
    QuorumCall agreed = sent(2, taking);
    agreed.answered(0, yes);
    agreed.failed(1, fault(Errc::unavailable));
    EXPECT_TRUE(agreed.maybe_executed());
    QuorumCall silent = sent(2, taking);
    silent.answered(0, no);
    EXPECT_TRUE(silent.maybe_executed());
}

TEST(QuorumCall, is_repeated_where_an_answer_is_or_a_master_stays_silent_for_good) {
    const auto call_with = [](const QuorumRules& rules, bool repeated, bool silent) {
        QuorumCall call = sent(3, rules);
        call.answered(0, {.vote = Vote::yes, .repeated = repeated});
        call.answered(1, yes);
        if (silent) call.failed(2, fault(Errc::unavailable, true, true));
        return call;
    };
    EXPECT_FALSE(call_with(taking, false, false).is_repeated()) << "a late answer will tell";
    EXPECT_TRUE(call_with(taking, true, false).is_repeated());
    EXPECT_TRUE(call_with(taking, false, true).is_repeated());
    EXPECT_FALSE(call_with(keeping, false, true).is_repeated());
    EXPECT_TRUE(call_with(keeping, true, false).is_repeated());
}

/// Which of these answers stands for all.
std::size_t standing(const QuorumRules& rules, std::vector<MasterAnswer> answers) {
    QuorumCall call = sent(answers.size(), rules);
    for (std::size_t i = 0; i < answers.size(); ++i) call.answered(i, std::move(answers[i]));
    call.end();
    return call.deciding_master();
}

TEST(QuorumCall, takes_the_latest_fencing_token) {
    EXPECT_EQ(standing(taking, {{.vote = Vote::yes, .fence = 7},
                                {.vote = Vote::no, .fence = 9},
                                {.vote = Vote::yes, .fence = 8}}),
              2U);
}

TEST(QuorumCall, takes_the_earliest_end_of_a_lock_that_others_have) {
    EXPECT_EQ(standing(taking, {{.vote = Vote::no, .ttl = 30},
                                {.vote = Vote::yes, .ttl = 1},
                                {.vote = Vote::no, .ttl = 20}}),
              2U);
}

using Owners = std::vector<std::string>;

/// The same where the masters behind them are silent.
std::size_t standing_beside_silent(std::size_t silent, std::vector<Owners> owners) {
    QuorumCall call = sent(owners.size() + silent, asking);
    for (std::size_t i = 0; i < owners.size(); ++i) {
        call.answered(i, {.vote = Vote::yes, .owners = std::move(owners[i])});
    }
    for (std::size_t i = 0; i < silent; ++i) {
        call.failed(owners.size() + i, fault(Errc::unavailable, true, true));
    }
    call.end();
    return call.deciding_master();
}

TEST(QuorumCall, takes_the_owner_who_may_have_a_majority_with_the_silent_masters) {
    EXPECT_EQ(standing_beside_silent(2, {{}, {"a"}, {}}), 1U) << "three of five may have it";
    EXPECT_EQ(standing_beside_silent(1, {{}, {"a"}, {}, {}}), 0U) << "two of five at most";
    EXPECT_EQ(standing_beside_silent(0, {{}, {"a"}, {}}), 0U);
    EXPECT_EQ(standing_beside_silent(1, {{}, {"a"}}), 1U);
}

TEST(QuorumCall, takes_the_claims_of_most_owners_who_may_have_a_majority) {
    EXPECT_EQ(standing_beside_silent(0, {{}, {"1 a"}, {"1 a"}}), 1U);
    EXPECT_EQ(standing_beside_silent(0, {{"1 a"}, {"1 a", "1 b"}, {"1 a", "1 b"}}), 1U);
    EXPECT_EQ(standing_beside_silent(0, {{"1 a"}, {}, {}}), 1U) << "nobody has what one master has";
    EXPECT_EQ(standing_beside_silent(0, {{"1 a", "1 b"}, {"1 c", "1 b"}, {"1 c", "1 b"}}), 1U);
}

TEST(QuorumCall, takes_the_owner_that_most_masters_know) {
    EXPECT_EQ(standing(asking, {{.vote = Vote::yes, .owners = Owners{"a"}},
                                {.vote = Vote::yes, .owners = Owners{"b"}},
                                {.vote = Vote::yes, .owners = Owners{"b"}}}),
              1U);
    EXPECT_EQ(standing(asking, {{.vote = Vote::yes, .owners = Owners{}},
                                {.vote = Vote::yes, .owners = Owners{"b"}}}),
              1U)
        << "of two, the one that there is";
    EXPECT_EQ(standing(asking, {{.vote = Vote::yes, .owners = Owners{"b"}},
                                {.vote = Vote::yes, .owners = Owners{}}}),
              0U);
    EXPECT_EQ(standing(asking, {yes, yes}), 0U) << "nobody was asked for one";
}

TEST(QuorumCall, lists_why_there_is_no_decision) {
    QuorumCall call = sent(3, taking);
    call.answered(0, yes);
    call.failed(1, fault(Errc::unavailable));
    call.failed(2, fault(Errc::denied, false));
    EXPECT_EQ(call.end(), Verdict::unknown);
    const Fault why = call.no_quorum();
    EXPECT_EQ(why.error.code, Errc::no_quorum);
    EXPECT_EQ(why.error.message, "2 of 3 masters gave no usable answer");
    ASSERT_EQ(why.error.causes.size(), 2U);
    EXPECT_EQ(why.error.causes[0].code, Errc::unavailable);
    EXPECT_EQ(why.error.causes[1].code, Errc::denied);
    EXPECT_TRUE(why.transient) << "the other one may come back";
}

TEST(QuorumCall, can_never_succeed_where_too_many_masters_refuse_for_good) {
    for (const Errc other : {Errc::denied, Errc::wrong_type}) {
        QuorumCall call = sent(3, taking);
        call.failed(0, fault(Errc::denied, false));
        call.failed(2, fault(other, false));
        EXPECT_EQ(call.end(), Verdict::unknown);
        const Fault why = call.no_quorum();
        EXPECT_FALSE(why.transient);
        EXPECT_EQ(why.error.code, other == Errc::denied ? Errc::denied : Errc::no_quorum);
    }
}

TEST(QuorumCall, decides_for_the_majority_in_whatever_order_they_answer) {
    constexpr std::size_t masters = 5;
    std::array<std::size_t, masters> order{};
    for (std::size_t votes = 0; votes < (1U << masters); ++votes) {
        for (std::size_t first = 0; first < masters; ++first) {
            QuorumCall call = sent(masters, taking);
            std::size_t agreed = 0;
            for (std::size_t k = 0; k < masters; ++k) {
                order[k] = (first + k) % masters;
                if (call.is_over(start)) break;
                const bool agrees = (votes >> order[k] & 1U) != 0;
                agreed += agrees ? 1 : 0;
                call.answered(order[k], agrees ? yes : no);
            }
            EXPECT_TRUE(call.is_over(start));
            EXPECT_EQ(call.end() == Verdict::yes, agreed >= 3);
        }
    }
}

}  // namespace
