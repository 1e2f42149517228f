#include "service_tools.hpp"
#include <redlatch/core/renewal.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::CleanUp;
using detail::Fault;
using detail::Hold;
using detail::MasterIndex;
using detail::Phase;
using detail::Renewal;
using detail::renewal_due;
using detail::renewal_lease;
using detail::renewal_patience;
using detail::renewal_retry_due;
using detail::renewal_window;
using detail::ServerKeeps;
using detail::TimePoint;
using detail::widest_renewal_window;

constexpr TimePoint now{1000s};

TEST(RenewalTime, is_due_after_a_third_of_the_lease) {
    EXPECT_EQ(renewal_due(now, 30s, Drift{}), now + 10s);
    EXPECT_EQ(renewal_due(now, 10ms, Drift{}), now + 3'333'333ns);
    EXPECT_EQ(renewal_due(now, Lease::max(), Drift{}), now + std::chrono::days{8});
    EXPECT_EQ(renewal_due(TimePoint::max(), 30s, Drift{}), TimePoint::max());
}

TEST(RenewalTime, is_due_while_validity_runs_however_much_the_drift_takes) {
    EXPECT_EQ(renewal_due(now, 1s, {.factor = 0.7, .floor = 0ms}), now + 150ms);
    EXPECT_EQ(renewal_due(now, 1s, {.factor = 0, .floor = 900ms}), now + 50ms);
    EXPECT_EQ(renewal_due(now, 900ms, {.factor = 0, .floor = 300ms}), now + 300ms);
    const Drift most{.factor = 0.9, .floor = 90ms};
    EXPECT_EQ(renewal_due(now, 1s, most) - renewal_window(1s, most), now + 3750us);
}

TEST(RenewalTime, goes_out_sooner_than_due_by_a_fraction_of_the_lease_at_most) {
    EXPECT_EQ(renewal_window(30s, Drift{}), 10ms);
    EXPECT_EQ(renewal_window(Lease::max(), Drift{}), widest_renewal_window);
    EXPECT_EQ(renewal_window(60ms, Drift{}), 5ms);
    for (auto lease = 10ms; lease < 60s; lease = lease * 3 / 2) {
        const auto pause = renewal_due(now, lease, Drift{}) - renewal_window(lease, Drift{}) - now;
        EXPECT_GE(pause, lease / 4) << lease.count() << ": renewed at once again";
        EXPECT_LE(renewal_window(lease, Drift{}), widest_renewal_window);
    }
}

TEST(RenewalTime, without_an_answer_is_tried_again_soon) {
    EXPECT_EQ(renewal_retry_due(now, 1200ms, Drift{}), now + 100ms);
}

TEST(RenewalTime, without_an_answer_is_not_tried_in_a_hot_loop) {
    EXPECT_EQ(renewal_retry_due(now, 10ms, Drift{}), now + 5ms);
    EXPECT_EQ(renewal_retry_due(now, 60ms, Drift{}), now + 5ms);
}

TEST(RenewalTime, of_a_long_lease_is_tried_again_within_half_a_second) {
    EXPECT_EQ(renewal_retry_due(now, 30s, Drift{}), now + 500ms);
    EXPECT_EQ(renewal_retry_due(now, Lease::max(), Drift{}), now + 500ms);
}

TEST(RenewalTime, waits_for_its_answer_as_long_as_another_try_fits_in) {
    EXPECT_EQ(renewal_patience(30s, Drift{}, 1000ms), 1s);
    EXPECT_EQ(renewal_patience(300ms, Drift{}, 1000ms), 100ms);
    EXPECT_EQ(renewal_patience(3s, Drift{}, 1000ms), 1s);
    EXPECT_EQ(renewal_patience(Lease::max(), Drift{}, 24h), 24h);
}

TEST(RenewalTime, of_a_forged_lease_does_not_overflow) {
    const Lease longest{std::chrono::milliseconds::max()};
    EXPECT_EQ(renewal_patience(longest, Drift{}, 1000ms), 1s);
    EXPECT_GT(renewal_due(now, longest, Drift{}), now + std::chrono::years{50});
}

TEST(RenewalTime, of_an_endless_hold_asks_for_the_whole_lease) {
    EXPECT_EQ(renewal_lease(30s, now, TimePoint::max()), Lease{30s});
    EXPECT_EQ(renewal_lease(Lease::max(), TimePoint{}, TimePoint::max()), Lease::max());
}

TEST(RenewalTime, asks_for_no_more_than_the_hold_has_left) {
    EXPECT_EQ(renewal_lease(30s, now, now + 40s), Lease{30s});
    EXPECT_EQ(renewal_lease(30s, now, now + 30s), Lease{30s});
    EXPECT_EQ(renewal_lease(30s, now, now + 7s), Lease{7s});
    EXPECT_EQ(renewal_lease(30s, now, now + 1500us), Lease{2ms}) << "rounded up";
}

TEST(RenewalTime, after_the_end_asks_for_nothing) {
    EXPECT_LE(renewal_lease(30s, now, now), Lease{0ms});
    EXPECT_LE(renewal_lease(30s, now, now - 1s), Lease{0ms});
    EXPECT_LE(renewal_lease(30s, TimePoint::max(), TimePoint{}), Lease{0ms});
}

TEST(RenewalTime, without_an_answer_leaves_time_for_another_try) {
    for (const double factor : {0.01, 0.3, 0.5, 0.8, 0.97}) {
        const Drift drift{.factor = factor};
        for (auto lease = 20ms; lease < 60s; lease = lease * 3 / 2) {
            const auto end = detail::valid_until(now, lease, drift);
            if (end < now + 30ms) continue;  // hardly more than the shortest pause
            const auto first = renewal_due(now, lease, drift);
            const auto given_up = first + renewal_patience(lease, drift, 1000ms);
            EXPECT_LT(renewal_retry_due(given_up, lease, drift), end)
                << lease.count() << " ms, " << factor;
        }
    }
}

/// A command that the machine has ordered, and that no master has answered yet.
struct Command {
    std::shared_ptr<Renewal::Try> attempt;
    MasterIndex master;

    std::string token() const { return attempt->hold().token().bytes; }
    std::optional<Lease> lease() const { return attempt->lease(); }
};

Fault fault_of(Errc code, bool transient) {
    return {.error = {code, {}, {}, "a fault", {}}, .transient = transient};
}

/// The machine with a clock that stands still, and masters that answer when the test says so.
class RenewalMachine : public ::testing::Test {
protected:
    explicit RenewalMachine(std::size_t masters = 1) : masters_(masters) {}

    static constexpr Clock::duration late = 1050ms;

    std::shared_ptr<Hold> taken(HoldRecipe recipe) const {
        auto hold = asked_hold(std::move(recipe));
        hold->taken(now_);
        return hold;
    }

    /// A hold that was taken now, and is renewed.
    std::shared_ptr<Hold> watched(HoldRecipe recipe) {
        auto hold = taken(std::move(recipe));
        machine_.enlist(*hold);
        machine_.arm(hold, now_);
        return hold;
    }

    /// What is to be sent by now, since the last call.
    std::vector<Command> commands() {
        machine_.pass_time(now_);
        for (const auto& attempt : machine_.take_due(now_)) {
            std::vector<MasterIndex> all(masters_);
            std::iota(all.begin(), all.end(), MasterIndex{0});
            machine_.begin(attempt, std::move(all), now_);
        }
        std::vector<Command> sent;
        for (auto& action : machine_.take_actions()) {
            if (auto* const send = get_if<Renewal::Send>(&action)) {
                if (machine_.send(*send->attempt, send->master, now_)) {
                    sent.push_back({send->attempt, send->master});
                }
            } else {
                told_.push_back(std::move(action));
            }
        }
        return sent;
    }

    /// The one command that is to be sent by now.
    Command command() {
        auto sent = commands();
        if (sent.size() != 1) throw std::runtime_error{std::to_string(sent.size()) + " commands"};
        return sent.front();
    }

    bool nothing_to_send() { return commands().empty(); }

    void answer(const Command& command, std::int64_t answer, bool may_have_forgotten = false) {
        answer_by(command, answer, {.may_have_forgotten = may_have_forgotten});
    }
    void answer_by(const Command& command, std::int64_t answer, const Renewal::Answering& by) {
        machine_.answered(*command.attempt, command.master, answer, by, now_);
    }
    void refuse(const Command& command, const Fault& fault) {
        machine_.refused(*command.attempt, command.master, fault, now_);
    }
    void cut_off(const Command& command) {
        machine_.unanswered(*command.attempt, command.master, now_);
    }

    /// Goes on to when the machine has something to do.
    void go_on() { now_ = std::max(now_, machine_.next_due()); }

    /// What it has said of that kind, since the last call.
    template <class What>
    std::vector<What> told() {
        for (auto& action : machine_.take_actions()) told_.push_back(std::move(action));
        std::vector<What> some;
        for (auto& action : told_) {
            if (auto* const what = get_if<What>(&action)) some.push_back(*what);
        }
        std::erase_if(told_, [](const auto& a) { return holds_alternative<What>(a); });
        return some;
    }

    /// Whether it has said that this hold, and no other, is lost.
    bool told_lost(const std::shared_ptr<Hold>& hold, ServerKeeps server) {
        const auto lost = told<Renewal::Lost>();
        return lost.size() == 1 && lost[0].hold == hold && lost[0].server == server;
    }
    bool told_nothing() {
        return told<Renewal::Lost>().empty() && told<Renewal::Renewed>().empty() &&
               told<Renewal::Silent>().empty();
    }

    TimePoint now_{1000s};
    const TimePoint start_ = now_;
    const std::size_t masters_;
    Renewal machine_{{.several_masters = masters_ > 1, .command_timeout = 1s, .late_window = late}};
    std::vector<Renewal::Action> told_;
};

// One master.

using WatchedHold = RenewalMachine;

TEST_F(WatchedHold, is_renewed_when_a_third_of_its_lease_is_over) {
    const auto hold = watched({.lease = 30s});
    EXPECT_EQ(machine_.next_due(), start_ + 10s);
    now_ = start_ + 10s - 10ms - 1ns;
    EXPECT_TRUE(nothing_to_send());
    now_ = start_ + 10s;
    const Command sent = command();
    EXPECT_EQ(sent.token(), "token");
    EXPECT_EQ(sent.lease(), Lease{30s});
    EXPECT_EQ(sent.master, 0U);
    EXPECT_TRUE(nothing_to_send()) << "once";
}

TEST_F(WatchedHold, goes_out_with_others_up_to_10_ms_early) {
    const auto first = watched({.lease = 30s, .token = "a"});
    now_ += 9ms;
    const auto second = watched({.lease = 30s, .token = "b"});
    now_ += 9ms;
    const auto third = watched({.lease = 30s, .token = "c"});
    now_ = start_ + 10s;
    EXPECT_EQ(commands().size(), 2U);
    EXPECT_EQ(machine_.next_due(), start_ + 10s + 18ms);
}

TEST_F(WatchedHold, is_valid_for_a_lease_from_when_its_renewal_was_sent) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    now_ += 200ms;
    answer(sent, 1);
    EXPECT_EQ(hold->valid_until(), start_ + 1s + 3s);
    ASSERT_EQ(told<Renewal::Renewed>().size(), 1U);
    EXPECT_EQ(machine_.next_due(), start_ + 2s) << "a third of a lease after the send";
    EXPECT_TRUE(told_nothing());
}

TEST_F(WatchedHold, that_waited_for_a_connection_counts_from_when_it_was_written) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const auto due = machine_.take_due(now_);
    ASSERT_EQ(due.size(), 1U);
    machine_.begin(due[0], {0}, now_);
    now_ += 300ms;
    EXPECT_TRUE(machine_.send(*due[0], 0, now_));
    now_ += 300ms;
    machine_.answered(*due[0], 0, 1, {}, now_);
    EXPECT_EQ(hold->valid_until(), start_ + 1300ms + 3s);
}

TEST_F(WatchedHold, sent_twice_counts_from_the_first_time) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    now_ += 300ms;
    EXPECT_TRUE(machine_.send(*sent.attempt, 0, now_)) << "as the server did not know the script";
    answer(sent, 1);
    EXPECT_EQ(hold->valid_until(), start_ + 1s + 3s);
}

TEST_F(WatchedHold,
       renewed_over_a_second_connection_may_be_prolonged_by_what_the_first_one_has_sent) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    machine_.connection_replaced(*sent.attempt);
    EXPECT_TRUE(machine_.send(*sent.attempt, 0, now_));
    answer(sent, 1);
    EXPECT_TRUE(hold->unanswered().extend);
}

TEST_F(WatchedHold, renewed_by_the_second_form_of_a_command_is_not_prolonged_any_more) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    EXPECT_TRUE(machine_.send(*sent.attempt, 0, now_)) << "as the server did not know the script";
    answer(sent, 1);
    EXPECT_FALSE(hold->unanswered().extend);
}

TEST_F(WatchedHold, that_is_not_ours_is_lost_and_not_renewed_any_more) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    answer(command(), 0);
    EXPECT_TRUE(told_lost(hold, ServerKeeps::removed));
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
    now_ += 10s;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_TRUE(told_nothing());
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

TEST_F(WatchedHold, whose_key_is_of_another_type_is_lost) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    refuse(command(), fault_of(Errc::wrong_type, false));
    EXPECT_TRUE(told_lost(hold, ServerKeeps::removed));
}

TEST_F(WatchedHold, that_the_server_confirms_after_its_validity_is_lost_and_the_server_has_it) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    now_ = start_ + 3s;
    answer(sent, 1);
    EXPECT_TRUE(told_lost(hold, ServerKeeps::longer));
    EXPECT_EQ(hold->valid_until(), start_ + 3s) << "never again valid";
    EXPECT_TRUE(told_nothing());
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(WatchedHold, that_was_lost_meanwhile_is_lost_and_the_server_has_it) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    hold->advance(Phase::held, Phase::lost);
    answer(sent, 1);
    EXPECT_TRUE(told_lost(hold, ServerKeeps::longer));
}

TEST_F(WatchedHold, that_was_released_meanwhile_is_the_business_of_its_release) {
    for (const std::int64_t reply : {0, 1}) {
        for (const Phase phase : {Phase::releasing, Phase::released}) {
            const auto hold = watched({.lease = 3s});
            now_ += 1s;
            const Command sent = command();
            machine_.dismiss(*hold);
            hold->advance(Phase::held, phase);
            answer(sent, reply);
            EXPECT_TRUE(told_nothing());
            now_ += 10s;
            EXPECT_TRUE(nothing_to_send());
        }
    }
}

TEST_F(WatchedHold, without_an_answer_is_uncertain_and_asked_for_again) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    EXPECT_EQ(machine_.next_due(), start_ + 800ms) << "a third of the lease for the answer";
    now_ = start_ + 800ms - 1ns;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_EQ(hold->state(now_), HoldState::held);
    now_ = start_ + 800ms;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_TRUE(sent.attempt->is_over());
    EXPECT_EQ(hold->state(now_), HoldState::uncertain);
    EXPECT_EQ(hold->valid_until(), start_ + 1200ms) << "as it was";
    const auto silent = told<Renewal::Silent>();
    ASSERT_EQ(silent.size(), 1U);
    EXPECT_EQ(silent[0].master, 0U);
    EXPECT_EQ(silent[0].since, start_ + 400ms);
    now_ = start_ + 900ms;
    answer(command(), 1);
    EXPECT_EQ(hold->state(now_), HoldState::held);
    EXPECT_EQ(hold->valid_until(), start_ + 900ms + 1200ms);
}

TEST_F(WatchedHold, waits_for_an_answer_no_longer_than_a_command_may_take) {
    const auto hold = watched({.lease = 30s});
    now_ = start_ + 10s;
    const Command sent = command();
    EXPECT_EQ(machine_.next_due(), start_ + 11s);
}

TEST_F(WatchedHold, without_an_answer_may_be_kept_for_longer_by_the_server) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    EXPECT_FALSE(hold->unanswered().extend);
    now_ = start_ + 800ms;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_TRUE(hold->unanswered().extend);
}

TEST_F(WatchedHold, that_was_never_asked_for_is_not_kept_for_longer) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    for (const auto& attempt : machine_.take_due(now_)) machine_.begin(attempt, {0}, now_);
    now_ = start_ + 800ms;
    machine_.pass_time(now_);
    EXPECT_EQ(hold->state(now_), HoldState::uncertain);
    EXPECT_FALSE(hold->unanswered().extend);
}

TEST_F(WatchedHold, that_was_lost_while_it_was_asked_for_is_released_where_no_answer_comes) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    hold->advance(Phase::held, Phase::lost);
    machine_.dismiss(*hold);
    cut_off(sent);
    EXPECT_TRUE(told_lost(hold, ServerKeeps::longer));
}

TEST_F(WatchedHold, that_was_lost_while_it_was_asked_for_is_released_when_its_patience_is_over) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    hold->advance(Phase::held, Phase::lost);
    machine_.dismiss(*hold);
    now_ = start_ + 800ms;
    machine_.pass_time(now_);
    EXPECT_TRUE(told_lost(hold, ServerKeeps::longer));
}

TEST_F(WatchedHold, that_was_released_while_it_was_asked_for_is_its_releases_business) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    hold->advance(Phase::held, Phase::released);
    machine_.dismiss(*hold);
    cut_off(sent);
    EXPECT_TRUE(told_nothing());
}

TEST_F(WatchedHold, is_renewed_by_an_answer_after_its_patience) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    now_ = start_ + 850ms;
    EXPECT_TRUE(nothing_to_send());
    ASSERT_EQ(hold->state(now_), HoldState::uncertain);
    answer(sent, 1);
    EXPECT_EQ(hold->state(now_), HoldState::held);
    EXPECT_EQ(hold->valid_until(), start_ + 400ms + 1200ms);
    EXPECT_EQ(told<Renewal::Renewed>().size(), 1U);
    go_on();
    EXPECT_EQ(commands().size(), 1U) << "the next try, which was due already";
}

TEST_F(WatchedHold, is_lost_by_an_answer_after_its_patience) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    now_ = start_ + 850ms;
    EXPECT_TRUE(nothing_to_send());
    answer(sent, 0);
    EXPECT_TRUE(told_lost(hold, ServerKeeps::removed));
}

TEST_F(WatchedHold, stays_certain_where_a_try_that_was_given_up_fails_later) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command first = command();
    now_ = start_ + 900ms;
    EXPECT_TRUE(nothing_to_send());
    go_on();
    answer(command(), 1);
    ASSERT_EQ(hold->state(now_), HoldState::held);
    cut_off(first);
    EXPECT_EQ(hold->state(now_), HoldState::held);
}

TEST_F(WatchedHold, that_no_connection_leads_to_is_uncertain_and_asked_for_again) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    cut_off(command());
    EXPECT_EQ(hold->state(now_), HoldState::uncertain);
    EXPECT_EQ(machine_.next_due(), start_ + 1250ms) << "after a twelfth of the lease";
    EXPECT_TRUE(told_nothing()) << "the driver knows";
}

TEST_F(WatchedHold, that_the_server_refuses_for_good_is_asked_for_again_all_the_same) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    refuse(command(), fault_of(Errc::denied, false));
    EXPECT_EQ(hold->state(now_), HoldState::uncertain);
    EXPECT_EQ(machine_.next_due(), start_ + 1250ms);
}

Fault keys_in_two_places() {
    Fault fault = fault_of(Errc::unavailable, true);
    fault.error.message = "TRYAGAIN Multiple keys request during rehashing of slot";
    return fault;
}

TEST_F(WatchedHold, whose_keys_are_in_two_places_is_asked_for_by_its_own_key_alone) {
    const auto hold = watched({.lease = 3s});
    go_on();
    const Command first = command();
    EXPECT_FALSE(first.attempt->lock_alone());
    refuse(first, keys_in_two_places());
    go_on();
    EXPECT_LT(now_, hold->valid_until());
    const Command again = command();
    EXPECT_TRUE(again.attempt->lock_alone());
    answer(again, 1);
    go_on();
    const Command next = command();
    EXPECT_FALSE(next.attempt->lock_alone()) << "they may be together again";
    refuse(next, fault_of(Errc::unavailable, true));
    go_on();
    EXPECT_FALSE(command().attempt->lock_alone()) << "the server was loading, say";
}

TEST_F(WatchedHold, whose_answer_makes_no_sense_is_uncertain) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    answer(command(), 7);
    EXPECT_EQ(hold->state(now_), HoldState::uncertain);
}

TEST_F(WatchedHold, is_not_renewed_after_its_validity) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 3s;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_TRUE(told_nothing()) << "whoever wants to know watches the clock";
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

TEST_F(WatchedHold, whose_validity_ends_before_there_is_a_connection_is_not_sent) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const auto due = machine_.take_due(now_);
    ASSERT_EQ(due.size(), 1U);
    machine_.begin(due[0], {0}, now_);
    now_ = start_ + 3s;
    EXPECT_FALSE(machine_.send(*due[0], 0, now_));
    EXPECT_TRUE(due[0]->is_over());
}

TEST_F(WatchedHold, is_renewed_for_as_long_as_the_longest_of_its_nest_wants) {
    const auto hold = taken({.lease = 3s});
    machine_.enlist(*hold);
    machine_.enlist(*hold);
    machine_.arm(hold, start_, {1, start_ + 4s});
    machine_.arm(hold, start_, {2, start_ + 2s});
    now_ = start_ + 1500ms;
    const Command sent = command();
    EXPECT_EQ(sent.lease(), Lease{2500ms});
    answer(sent, 1);
    now_ = start_ + 4s;
    EXPECT_TRUE(nothing_to_send());
    machine_.dismiss(*hold);
    machine_.enlist(*hold);
    machine_.arm(hold, now_);
    EXPECT_EQ(hold->renewed_until(), TimePoint::max()) << "of a later one alone";
}

TEST_F(WatchedHold, is_renewed_for_as_long_as_one_of_those_left_wants) {
    const auto hold = taken({.lease = 3s});
    for (int i = 0; i < 3; ++i) machine_.enlist(*hold);
    machine_.arm(hold, start_, {1, start_ + 1h});
    machine_.arm(hold, start_, {2, start_ + 4s});
    machine_.arm(hold, start_);
    EXPECT_EQ(hold->renewed_until(), TimePoint::max()) << "the third has no end";
    machine_.dismiss_one(*hold, 3);
    EXPECT_EQ(hold->renewed_until(), start_ + 1h);
    machine_.dismiss_one(*hold, 1);
    now_ = start_ + 1500ms;
    EXPECT_EQ(command().lease(), Lease{2500ms});
}

TEST_F(WatchedHold, asks_for_no_more_than_max_hold_leaves) {
    auto recipe = HoldRecipe{.lease = 3s, .max_hold = 5s};
    recipe.traits.watched = true;
    const auto hold = watched(std::move(recipe));
    now_ = start_ + 1s;
    const Command first = command();
    EXPECT_EQ(first.lease(), Lease{3s});
    answer(first, 1);
    now_ = start_ + 2500ms;
    const Command second = command();
    EXPECT_EQ(second.lease(), Lease{2500ms});
    answer(second, 1);
    EXPECT_EQ(hold->valid_until(), start_ + 5s);
    now_ = start_ + 5s;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(WatchedHold, is_renewed_for_as_long_as_one_acquisition_wants_it) {
    const auto hold = taken({.lease = 3s});
    machine_.arm(hold, now_);
    now_ = start_ + 1s;
    EXPECT_TRUE(nothing_to_send()) << "not announced";
    machine_.enlist(*hold);
    machine_.enlist(*hold);
    machine_.arm(hold, start_);
    machine_.dismiss_one(*hold, 1);
    answer(command(), 1);
    machine_.dismiss_one(*hold, 2);
    EXPECT_EQ(hold.use_count(), 1 + 1) << "only what it has just said still has it";
    now_ = start_ + 2s;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(WatchedHold, that_was_not_watched_before_is_renewed_while_it_lasts) {
    const auto hold = taken({.lease = 3s});
    now_ = start_ + 2500ms;
    machine_.enlist(*hold);
    machine_.arm(hold, now_);  // for a nested acquisition with a lease that ends no later
    answer(command(), 1);
    EXPECT_TRUE(hold->valid(start_ + 5s));
}

TEST_F(WatchedHold, that_was_dismissed_is_not_renewed_by_one_that_comes_late) {
    const auto hold = taken({.lease = 3s});
    machine_.enlist(*hold);
    machine_.dismiss(*hold);
    machine_.arm(hold, now_);
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

TEST_F(WatchedHold, that_is_dismissed_while_it_is_asked_for_is_not_asked_for_again) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    machine_.dismiss(*hold);
    answer(sent, 1);
    now_ = start_ + 2s;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

TEST_F(WatchedHold,
       that_is_disarmed_while_it_is_asked_for_is_not_asked_for_until_it_is_armed_anew) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    machine_.disarm(*hold);
    answer(sent, 1);
    now_ = start_ + 2s;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
    machine_.arm(hold, now_);
    now_ = start_ + 3s;
    answer(command(), 1);
}

TEST_F(WatchedHold, is_asked_for_three_times_in_a_lease_where_all_is_well) {
    for (const Lease lease : {Lease{10ms}, Lease{100ms}, Lease{30s}}) {
        const auto hold = watched({.lease = lease});
        const TimePoint begin = now_;
        int sent = 0;
        while (go_on(), now_ < begin + 10 * lease.duration()) {
            for (const Command& command : commands()) {
                ++sent;
                answer(command, 1);
            }
        }
        EXPECT_GE(sent, 29) << lease.duration().count();
        EXPECT_LE(sent, 41) << lease.duration().count();
        EXPECT_TRUE(hold->valid(now_));
        machine_.dismiss(*hold);
    }
}

TEST_F(WatchedHold, is_never_asked_for_in_a_hot_loop) {
    for (const Lease lease : {Lease{10ms}, Lease{100ms}, Lease{30s}}) {
        for (const bool silent : {false, true}) {
            const auto hold = watched({.lease = lease});
            const TimePoint begin = now_;
            int sent = 0;
            while (go_on(), now_ < begin + lease.duration()) {
                for (const Command& command : commands()) {
                    ++sent;
                    if (!silent) cut_off(command);
                }
            }
            EXPECT_GE(sent, lease < Lease{20ms} ? 1 : 2) << lease.duration().count();
            EXPECT_LE(sent, lease < Lease{1s} ? 9 : 40) << lease.duration().count();
            EXPECT_FALSE(hold->valid(now_));
            now_ = begin + 3 * lease.duration();
            EXPECT_TRUE(nothing_to_send());
        }
    }
}

TEST_F(WatchedHold, with_a_long_lease_is_not_given_up_with_a_short_one) {
    const auto brief = watched({.lease = 30ms, .token = "brief"});
    const auto other = watched({.lease = 300ms, .token = "long"});
    now_ = start_ + 10ms;
    EXPECT_EQ(command().token(), "brief");
    now_ = start_ + 100ms;
    const Command sent = command();
    EXPECT_EQ(sent.token(), "long");
    for (now_ += 1ms; now_ < start_ + 200ms; now_ += 1ms) {
        EXPECT_TRUE(nothing_to_send());
        ASSERT_FALSE(sent.attempt->is_over());
    }
    now_ = start_ + 200ms;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_TRUE(sent.attempt->is_over());
}

TEST_F(WatchedHold, of_a_short_lease_is_in_time_among_a_thousand_long_ones_that_are_silent) {
    std::vector<std::shared_ptr<Hold>> many;
    for (int i = 0; i < 3000; ++i) {
        many.push_back(watched({.lease = 30s, .token = std::to_string(i)}));
    }
    now_ = start_ + 10s;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(commands().size(), 1000U);
    const auto brief = watched({.lease = 30ms, .token = "brief"});
    for (int i = 0; i < 20; ++i) {
        const TimePoint due = now_ + 10ms;
        EXPECT_EQ(machine_.next_due(), due);
        now_ = due;
        answer(command(), 1);
    }
}

TEST_F(WatchedHold, one_of_ten_thousand_is_asked_for_once_a_third) {
    std::vector<std::shared_ptr<Hold>> many;
    for (int i = 0; i < 10'000; ++i) {
        now_ += 1ms;
        many.push_back(watched({.lease = 30s, .token = std::to_string(i)}));
    }
    std::size_t sent = 0;
    while (go_on(), now_ <= start_ + 20s) {
        for (const Command& command : commands()) {
            ++sent;
            answer(command, 1);
        }
    }
    EXPECT_GE(sent, many.size());
    EXPECT_LE(sent, many.size() + 100);
    for (const auto& hold : many) machine_.dismiss(*hold);
    now_ += 1min;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(WatchedHold, follows_its_key_to_another_server) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    EXPECT_TRUE(machine_.redirect(*sent.attempt, 0, 5));
    EXPECT_TRUE(machine_.send(*sent.attempt, 5, now_));
    now_ = start_ + 800ms;
    EXPECT_TRUE(nothing_to_send());
    const auto silent = told<Renewal::Silent>();
    ASSERT_EQ(silent.size(), 1U);
    EXPECT_EQ(silent[0].master, 5U);
    answer({sent.attempt, 5}, 1);
    EXPECT_EQ(told<Renewal::Renewed>().size(), 1U);
}

TEST_F(WatchedHold, follows_its_key_no_more_than_eight_times) {
    const auto hold = watched({.lease = 3s});
    now_ = start_ + 1s;
    const Command sent = command();
    for (MasterIndex i = 0; i < 8; ++i) EXPECT_TRUE(machine_.redirect(*sent.attempt, i, i + 1));
    EXPECT_FALSE(machine_.redirect(*sent.attempt, 8, 9));
}

TEST_F(WatchedHold, that_was_given_up_follows_its_key_nowhere) {
    const auto hold = watched({.lease = 1200ms});
    now_ = start_ + 400ms;
    const Command sent = command();
    now_ = start_ + 800ms;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_FALSE(machine_.redirect(*sent.attempt, 0, 1)) << "another try is on its way";
}

// Readers of one claim.

class RenewalOfReaders : public RenewalMachine {
protected:
    static HoldRecipe reading() {
        HoldRecipe recipe{.lease = 3s, .joins = true};
        recipe.traits.watched = true;
        return recipe;
    }
    std::shared_ptr<Hold> reader() { return watched(reading()); }
    std::shared_ptr<Hold> reader_until(std::chrono::milliseconds max_hold) {
        HoldRecipe recipe = reading();
        recipe.max_hold = max_hold;
        return watched(std::move(recipe));
    }
    /// Of a lock that is not watched, with one acquisition that is, until then.
    std::shared_ptr<Hold> watched_until(TimePoint end) {
        HoldRecipe recipe = reading();
        recipe.traits.watched = false;
        auto hold = taken(std::move(recipe));
        machine_.enlist(*hold);
        machine_.arm(hold, now_, {1, end});
        return hold;
    }
    void leaves(Hold& hold) {
        machine_.dismiss(hold);
        hold.advance(Phase::held, Phase::released);
    }
};

TEST_F(RenewalOfReaders, is_one_for_all_of_a_claim) {
    const auto first = reader();
    now_ += 300ms;
    const auto second = reader();
    EXPECT_EQ(machine_.next_due(), start_ + 1s) << "when it is due for the one that came first";
    now_ = start_ + 1s;
    const Command sent = command();
    EXPECT_EQ(sent.token(), "token");
    now_ += 200ms;
    answer(sent, 1);
    EXPECT_EQ(told<Renewal::Renewed>().size(), 2U);
    EXPECT_EQ(first->valid_until(), start_ + 4s);
    EXPECT_EQ(second->valid_until(), start_ + 4s);
    EXPECT_EQ(machine_.next_due(), start_ + 2s);
}

TEST_F(RenewalOfReaders, is_not_that_of_another_claim) {
    const auto first = reader();
    HoldRecipe recipe = reading();
    recipe.token = "another";
    const auto second = watched(std::move(recipe));
    now_ = start_ + 1s;
    EXPECT_EQ(commands().size(), 2U);
}

TEST_F(RenewalOfReaders, goes_on_for_those_that_are_left) {
    const auto first = reader();
    now_ += 300ms;
    const auto second = reader();
    const auto third = reader();
    leaves(*first);
    leaves(*third);
    EXPECT_EQ(machine_.next_due(), start_ + 1s) << "a little early does no harm";
    go_on();
    answer(command(), 1);
    EXPECT_EQ(second->valid_until(), start_ + 4s);
    EXPECT_EQ(first->valid_until(), start_ + 3s) << "it has nothing more to do with that";
    leaves(*second);
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

TEST_F(RenewalOfReaders, goes_on_where_one_leaves_while_it_is_asked_for) {
    const auto first = reader();
    const auto second = reader();
    now_ = start_ + 1s;
    const Command sent = command();
    leaves(*first);
    EXPECT_TRUE(nothing_to_send());
    answer(sent, 1);
    EXPECT_EQ(told<Renewal::Renewed>().size(), 1U);
    now_ = start_ + 2s;
    answer(command(), 1);
    EXPECT_EQ(second->valid_until(), start_ + 5s);
}

TEST_F(RenewalOfReaders, that_nobody_wants_any_more_is_over) {
    const auto first = reader();
    const auto second = reader();
    now_ = start_ + 1s;
    const Command sent = command();
    leaves(*first);
    leaves(*second);
    answer(sent, 1);
    EXPECT_TRUE(told_nothing());
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
    const auto third = reader();
    EXPECT_EQ(machine_.next_due(), now_ + 1s);
}

TEST_F(RenewalOfReaders, is_also_for_one_that_comes_while_it_is_asked_for) {
    const auto first = reader();
    now_ = start_ + 1s;
    const Command sent = command();
    const auto second = reader();
    EXPECT_TRUE(nothing_to_send());
    now_ += 500ms;
    const auto third = reader();
    answer(sent, 1);
    EXPECT_EQ(second->valid_until(), start_ + 4s);
    EXPECT_EQ(third->valid_until(), start_ + 1500ms + 3s) << "it lasted longer already";
    EXPECT_EQ(machine_.next_due(), start_ + 2s) << "one for all of them";
    now_ = start_ + 2s;
    answer(command(), 1);
    EXPECT_EQ(third->valid_until(), start_ + 5s);
}

TEST_F(RenewalOfReaders, lengthens_the_hold_of_one_that_joins_while_it_is_asked_for) {
    const auto first = reader();
    now_ = start_ + 1s;
    const Command sent = command();
    const auto joined = [this](std::chrono::milliseconds max_hold) {
        HoldRecipe recipe = reading();
        recipe.max_hold = max_hold;
        auto hold = asked_hold(std::move(recipe));
        hold->taken(now_, start_);  // on the lease that the claim had
        machine_.enlist(*hold);
        machine_.arm(hold, start_);
        return hold;
    };
    const auto second = joined(std::chrono::milliseconds::max());
    const auto brief = joined(2500ms);
    answer(sent, 1);
    EXPECT_EQ(second->valid_until(), start_ + 4s);
    EXPECT_EQ(brief->valid_until(), start_ + 3500ms);
    EXPECT_EQ(told<Renewal::Renewed>().size(), 3U);
}

TEST_F(RenewalOfReaders, says_that_all_have_lost_a_claim_that_is_gone) {
    const auto first = reader();
    const auto second = reader();
    now_ = start_ + 1s;
    answer(command(), 0);
    const auto lost = told<Renewal::Lost>();
    ASSERT_EQ(lost.size(), 2U);
    EXPECT_EQ(lost[0].hold, first);
    EXPECT_EQ(lost[1].hold, second);
    EXPECT_EQ(lost[1].server, ServerKeeps::removed);
    EXPECT_TRUE(nothing_to_send());
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

TEST_F(RenewalOfReaders, without_an_answer_leaves_all_uncertain) {
    const auto first = reader();
    const auto second = reader();
    now_ = start_ + 1s;
    cut_off(command());
    go_on();
    EXPECT_LT(now_, start_ + 2s);
    const Command again = command();
    EXPECT_EQ(first->state(now_), HoldState::uncertain);
    EXPECT_EQ(second->state(now_), HoldState::uncertain);
    answer(again, 1);
    EXPECT_EQ(second->state(now_), HoldState::held);
}

TEST_F(RenewalOfReaders, lets_each_end_when_it_has_to) {
    const auto brief = reader_until(1500ms);
    const auto longer = reader_until(5s);
    now_ = start_ + 1s;
    const Command sent = command();
    EXPECT_EQ(sent.lease(), Lease{3s}) << "as long as the longest may last";
    answer(sent, 1);
    EXPECT_EQ(brief->valid_until(), start_ + 1500ms);
    EXPECT_EQ(longer->valid_until(), start_ + 4s);
    now_ = start_ + 2500ms;
    const Command last = command();
    EXPECT_EQ(last.lease(), Lease{2500ms});
    answer(last, 1);
    EXPECT_EQ(longer->valid_until(), start_ + 5s);
}

TEST_F(RenewalOfReaders, lasts_for_none_longer_than_its_watched_acquisition_wants) {
    const auto brief = watched_until(start_ + 500ms);
    const auto longer = reader();
    now_ = start_ + 1s;
    answer(command(), 1);
    EXPECT_EQ(brief->valid_until(), start_ + 3s);
    EXPECT_EQ(longer->valid_until(), start_ + 4s);
}

TEST_F(RenewalOfReaders, lasts_for_each_as_long_as_its_watched_acquisition_wants) {
    const auto brief = watched_until(start_ + 3500ms);
    const auto longer = reader();
    now_ = start_ + 1s;
    const Command sent = command();
    EXPECT_EQ(sent.lease(), Lease{3s}) << "as long as the longest wants";
    answer(sent, 1);
    EXPECT_EQ(brief->valid_until(), start_ + 3500ms);
    EXPECT_EQ(longer->valid_until(), start_ + 4s);
}

TEST_F(RenewalOfReaders, says_nothing_to_one_that_wants_none_any_more) {
    const auto brief = watched_until(start_ + 500ms);
    const auto longer = reader();
    for (const auto time : {1s, 2s, 3s}) {
        SCOPED_TRACE(time.count());
        now_ = start_ + time;
        brief->doubt();
        answer(command(), 1);
        const auto renewed = told<Renewal::Renewed>();
        ASSERT_EQ(renewed.size(), 1U);
        EXPECT_EQ(renewed[0].hold, longer);
        EXPECT_TRUE(told<Renewal::Lost>().empty()) << "it may have ended by itself";
        EXPECT_EQ(brief->state(now_), time < 3s ? HoldState::uncertain : HoldState::lost);
    }
    EXPECT_EQ(brief->valid_until(), start_ + 3s);
}

TEST_F(RenewalOfReaders, tells_one_that_was_lost_meanwhile_that_the_server_has_it) {
    const auto first = reader();
    const auto second = reader();
    now_ = start_ + 1s;
    const Command sent = command();
    machine_.dismiss(*first);
    first->advance(Phase::held, Phase::lost);
    answer(sent, 1);
    EXPECT_TRUE(told_lost(first, ServerKeeps::longer));
    EXPECT_EQ(machine_.next_due(), start_ + 2s) << "for the other one";
    EXPECT_EQ(second->valid_until(), start_ + 4s);
}

TEST_F(RenewalOfReaders, tells_so_also_one_that_wanted_none_any_more) {
    const auto brief = watched_until(start_ + 500ms);
    const auto longer = reader();
    now_ = start_ + 1s;
    const Command sent = command();
    machine_.dismiss(*brief);
    brief->advance(Phase::held, Phase::lost);
    answer(sent, 1);
    EXPECT_TRUE(told_lost(brief, ServerKeeps::longer));
}

TEST_F(RenewalOfReaders, is_about_the_own_key_alone_for_all_where_that_has_to_be) {
    const auto first = reader();
    const auto second = reader();
    go_on();
    refuse(command(), keys_in_two_places());
    leaves(*first);
    go_on();
    const Command again = command();
    EXPECT_TRUE(again.attempt->lock_alone());
    answer(again, 1);
    EXPECT_TRUE(second->valid(start_ + 3500ms));
}

TEST_F(RenewalOfReaders, begins_anew_for_one_that_comes_when_the_others_have_run_out) {
    const auto first = reader();
    now_ = start_ + 4s;
    EXPECT_TRUE(nothing_to_send());
    const auto second = reader();
    EXPECT_EQ(machine_.next_due(), now_ + 1s);
    go_on();
    answer(command(), 1);
    EXPECT_EQ(second->valid_until(), now_ + 3s);
    EXPECT_FALSE(first->valid(now_));
}

class TokenCleanUp : public RenewalMachine {
protected:
    /// When it is sent, with no answer at all.
    std::vector<TimePoint> vain_tries() {
        std::vector<TimePoint> times;
        while (go_on(), now_ < start_ + 1h) {
            for (const Command& command : commands()) {
                times.push_back(now_);
                cut_off(command);
                EXPECT_GE(machine_.next_due(), now_ + 500ms);
            }
        }
        return times;
    }
};

TEST_F(TokenCleanUp, is_sent_once) {
    for (const std::int64_t reply : {0, 1}) {
        machine_.clean_up(asked_hold({.lease = 3s, .token = "dead"}), {.at_once = true}, now_);
        const Command sent = command();
        EXPECT_EQ(sent.token(), "dead");
        EXPECT_EQ(sent.lease(), std::nullopt) << "a release";
        answer(sent, reply);
        now_ += 1h;
        EXPECT_TRUE(nothing_to_send());
        EXPECT_EQ(machine_.next_due(), TimePoint::max());
        EXPECT_TRUE(told_nothing());
    }
}

TEST_F(TokenCleanUp, once_more_is_sent_when_no_late_command_can_run_any_more) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true, .once_more = true}, now_);
    now_ += 100ms;
    answer(command(), 1);
    now_ += late - 1ns;
    EXPECT_TRUE(nothing_to_send());
    now_ += 1ns;
    answer(command(), 0);
    now_ += 1h;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(TokenCleanUp, that_is_delayed_is_sent_when_its_lock_delay_is_over) {
    machine_.clean_up(asked_hold({.lease = 3s, .lock_delay = 20s}),
                      {.once_more = true, .is_delayed = true}, now_);
    now_ += 20s - 1ns;
    EXPECT_TRUE(nothing_to_send());
    now_ += 1ns;
    answer(command(), 1);
    now_ += 1h;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(TokenCleanUp, of_a_claim_that_is_left_to_others_is_sent_when_their_lock_delay_is_over) {
    const auto hold = asked_hold({.lease = 3s, .lock_delay = 20s});
    for (const auto left : {5s, 0s}) {
        hold->left_until = now_ + left;
        machine_.clean_up(hold, {.once_more = true, .is_delayed = true}, now_);
        EXPECT_EQ(machine_.next_due(), now_ + left);
    }
    hold->may_be_prolonged = true;
    now_ += 5s;
    for (const Command& sent : commands()) answer(sent, 1);
    hold->left_until = now_;
    machine_.clean_up(hold, {.once_more = true, .is_delayed = true}, now_);
    EXPECT_EQ(machine_.next_due(), now_ + late) << "a late command may still run";
}

TEST_F(TokenCleanUp, that_is_only_due_later_is_sent_then) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.once_more = true}, now_);
    EXPECT_TRUE(nothing_to_send());
    EXPECT_EQ(machine_.next_due(), start_ + late);
    now_ += late;
    answer(command(), 1);
    now_ += 1h;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(TokenCleanUp, of_nothing_is_nothing) {
    machine_.clean_up(asked_hold({.lease = 3s}), {}, now_);
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

TEST_F(TokenCleanUp, asked_for_twice_is_sent_at_both_times) {
    const auto hold = asked_hold({.lease = 3s});
    machine_.clean_up(hold, {.at_once = true}, now_);
    machine_.clean_up(hold, {.once_more = true}, now_);
    answer(command(), 1);
    now_ += late;
    answer(command(), 1);
}

TEST_F(TokenCleanUp, is_known_by_its_token_until_it_is_over) {
    const auto hold = asked_hold({.lease = 3s, .token = "dead"});
    machine_.clean_up(asked_hold({.lease = 3s, .token = "another"}), {.once_more = true}, now_);
    EXPECT_EQ(machine_.cleaned_up("dead"), nullptr);
    machine_.clean_up(hold, {.at_once = true}, now_);
    EXPECT_EQ(machine_.cleaned_up("dead"), hold);
    const Command sent = command();
    EXPECT_EQ(machine_.cleaned_up("dead"), hold);
    answer(sent, 1);
    EXPECT_EQ(machine_.cleaned_up("dead"), nullptr);
}

TEST_F(TokenCleanUp, outlives_the_dismissal_of_its_hold) {
    const auto hold = watched({.lease = 3s});
    machine_.clean_up(hold, {.at_once = true}, now_);
    machine_.dismiss(*hold);
    EXPECT_EQ(command().lease(), std::nullopt);
}

TEST_F(TokenCleanUp, is_repeated_until_its_key_is_gone_by_itself) {
    const auto hold = asked_hold({.lease = 3s, .lock_delay = 2s});
    machine_.clean_up(hold, {.at_once = true}, now_);
    const auto tries = vain_tries();
    EXPECT_EQ(tries.back(), start_ + 2 * (3s + 2s));
    EXPECT_EQ(tries.size(), 21U);
}

TEST_F(TokenCleanUp, is_repeated_for_as_long_as_anybody_has_asked_for_with_its_token) {
    const auto hold = asked_hold({.lease = 300ms});
    hold->open_tries.longest = 3s;
    machine_.clean_up(hold, {.at_once = true}, now_);
    EXPECT_EQ(vain_tries().back(), start_ + 6s);
}

TEST_F(TokenCleanUp, is_repeated_until_an_extended_lease_is_over) {
    const auto hold = asked_hold({.lease = 300ms});
    hold->taken(now_);
    hold->confirm(now_, Lease{10s});
    machine_.clean_up(hold, {.at_once = true}, now_);
    EXPECT_GE(vain_tries().back(), hold->valid_until());
}

TEST_F(TokenCleanUp, without_an_answer_in_time_is_repeated) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true}, now_);
    const Command sent = command();
    EXPECT_EQ(machine_.next_due(), start_ + 1s);
    now_ += 1s;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_EQ(told<Renewal::Silent>().size(), 1U);
    now_ += 500ms;
    answer(command(), 1);
    now_ += 1h;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(TokenCleanUp, once_more_goes_on_after_the_first_was_answered_however_late) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true, .once_more = true}, now_);
    cut_off(command());
    now_ += 500ms;
    answer(command(), 1);
    now_ += late;
    answer(command(), 1);
}

TEST_F(TokenCleanUp, is_repeated_after_a_refusal_that_may_pass) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true}, now_);
    refuse(command(), fault_of(Errc::unavailable, true));
    now_ += 500ms;
    refuse(command(), fault_of(Errc::denied, false));
    now_ += 1h;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(TokenCleanUp, goes_on_at_once_where_more_dead_wait_in_front) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true, .once_more = true}, now_);
    for (int i = 0; i < 3; ++i) answer(command(), detail::more_to_serve);
    answer(command(), 0);
    EXPECT_TRUE(nothing_to_send());
    now_ += late;
    answer(command(), 0);
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

TEST_F(TokenCleanUp, of_a_forged_lease_is_repeated_for_ever) {
    machine_.clean_up(asked_hold({.lease = std::chrono::milliseconds::max()}), {.at_once = true},
                      now_);
    for (int i = 0; i < 100; ++i) {
        cut_off(command());
        go_on();
    }
    EXPECT_EQ(now_, start_ + 100 * 500ms);
}

TEST_F(TokenCleanUp, comes_to_its_turn_beside_a_thousand_renewals) {
    std::vector<std::shared_ptr<Hold>> many;
    for (int i = 0; i < 1500; ++i) many.push_back(watched({.lease = 30s}));
    now_ = start_ + 10s;
    machine_.clean_up(asked_hold({.token = "dead"}), {.at_once = true}, now_);
    EXPECT_EQ(commands().size(), 1000U);
    const auto second = commands();
    EXPECT_EQ(second.size(), 501U);
    EXPECT_EQ(second.back().token(), "dead");
}

// Closing.

using ClosingRenewal = RenewalMachine;

TEST_F(ClosingRenewal, sends_what_is_to_be_cleaned_up_whether_due_or_not_and_renews_nothing) {
    const auto hold = watched({.lease = 3s});
    machine_.clean_up(asked_hold({.token = "a"}), {.at_once = true, .once_more = true}, now_);
    machine_.clean_up(asked_hold({.token = "b"}), {.once_more = true}, now_);
    EXPECT_FALSE(machine_.is_closed(now_ + 1h));
    machine_.close(now_);
    EXPECT_FALSE(machine_.is_closed(now_));
    EXPECT_LE(machine_.next_due(), now_);
    const auto sent = commands();
    ASSERT_EQ(sent.size(), 2U);
    EXPECT_FALSE(machine_.is_closed(now_));
    EXPECT_EQ(machine_.next_due(), start_ + 1s);
    for (const Command& command : sent) answer(command, 1);
    EXPECT_TRUE(machine_.is_closed(now_)) << "one try each";
}

TEST_F(ClosingRenewal, with_nothing_to_do_is_closed_at_once) {
    machine_.close(now_);
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, tries_twice_and_no_more_where_it_cannot_be_sent) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true, .once_more = true}, now_);
    machine_.close(now_);
    cut_off(command());
    EXPECT_FALSE(machine_.is_closed(now_));
    EXPECT_LE(machine_.next_due(), now_) << "at once";
    cut_off(command());
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, tries_twice_also_what_got_no_answer_before) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true}, now_);
    cut_off(command());
    machine_.close(now_);
    cut_off(command());
    answer(command(), 1);
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, tries_until_its_time_is_over_where_a_refusal_may_pass) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true, .once_more = true}, now_);
    machine_.close(now_);
    for (int i = 0; i < 19; ++i) {
        refuse(command(), fault_of(Errc::unavailable, true));
        EXPECT_TRUE(nothing_to_send()) << "not in a hot loop";
        EXPECT_EQ(machine_.next_due(), now_ + 50ms);
        now_ += 50ms;
        EXPECT_FALSE(machine_.is_closed(now_));
    }
    refuse(command(), fault_of(Errc::unavailable, true));
    EXPECT_EQ(machine_.next_due(), start_ + 1s);
    now_ = start_ + 1s;
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, ends_with_the_answer_that_comes_behind_a_refusal) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true}, now_);
    refuse(command(), fault_of(Errc::unavailable, true));
    machine_.close(now_);
    EXPECT_LE(machine_.next_due(), now_) << "whose pause is over";
    refuse(command(), fault_of(Errc::unavailable, true));
    now_ += 50ms;
    answer(command(), 1);
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, tries_once_more_after_a_refusal_that_may_pass_and_no_answer) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true}, now_);
    machine_.close(now_);
    refuse(command(), fault_of(Errc::unavailable, true));
    now_ += 50ms;
    cut_off(command());
    cut_off(command());
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, takes_no_longer_than_one_command) {
    machine_.clean_up(asked_hold({.lease = 10ms}), {.at_once = true}, now_);
    machine_.close(now_);
    const Command sent = command();
    now_ += 500ms;
    machine_.close(now_);
    EXPECT_TRUE(nothing_to_send());
    EXPECT_FALSE(sent.attempt->is_over()) << "its answer may still come";
    now_ = start_ + 1s - 1ns;
    EXPECT_FALSE(machine_.is_closed(now_));
    now_ = start_ + 1s;
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, waits_for_what_is_under_way_and_sends_it_once_more) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true, .once_more = true}, now_);
    const Command sent = command();
    machine_.close(now_);
    EXPECT_FALSE(machine_.is_closed(now_));
    answer(sent, 1);
    EXPECT_FALSE(machine_.is_closed(now_));
    answer(command(), 1);
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, goes_on_where_more_dead_wait_in_front) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true}, now_);
    machine_.close(now_);
    answer(command(), detail::more_to_serve);
    EXPECT_FALSE(machine_.is_closed(now_));
    answer(command(), 1);
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, goes_on_so_also_after_a_try_without_an_answer) {
    machine_.clean_up(asked_hold({.lease = 3s}), {.at_once = true}, now_);
    machine_.close(now_);
    answer(command(), detail::more_to_serve);
    cut_off(command());
    EXPECT_FALSE(machine_.is_closed(now_));
    cut_off(command());
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, takes_what_comes_late_for_as_long_as_it_is_not_closed) {
    machine_.clean_up(asked_hold({.token = "a"}), {.at_once = true}, now_);
    machine_.close(now_);
    const Command first = command();
    machine_.clean_up(asked_hold({.token = "b"}), {.once_more = true}, now_);
    answer(first, 1);
    EXPECT_FALSE(machine_.is_closed(now_));
    answer(command(), 1);
    EXPECT_TRUE(machine_.is_closed(now_));
}

TEST_F(ClosingRenewal, sends_however_much_there_is_by_the_thousand) {
    for (int i = 0; i < 2500; ++i) machine_.clean_up(asked_hold(), {.once_more = true}, now_);
    machine_.close(now_);
    std::size_t sent = 0;
    for (int i = 0; i < 3; ++i) {
        EXPECT_FALSE(machine_.is_closed(now_));
        const auto batch = commands();
        sent += batch.size();
        for (const Command& command : batch) answer(command, 1);
    }
    EXPECT_EQ(sent, 2500U);
    EXPECT_TRUE(machine_.is_closed(now_));
}

// Several masters.

class RenewalOfAQuorum : public RenewalMachine {
protected:
    RenewalOfAQuorum() : RenewalMachine{5} {}

    /// A hold that has asked those masters, by their bits.
    std::shared_ptr<Hold> asked_at(std::uint64_t masters) const {
        auto hold = asked_hold({.lease = 3s});
        hold->open_tries.at_masters = std::make_shared<detail::TokenAtMasters>();
        hold->open_tries.at_masters->attempted({.asked = masters});
        return hold;
    }
};

std::vector<MasterIndex> masters_of(const std::vector<Command>& commands) {
    std::vector<MasterIndex> masters;
    for (const Command& command : commands) masters.push_back(command.master);
    return masters;
}

TEST_F(RenewalOfAQuorum, asks_all_masters) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    EXPECT_EQ(masters_of(commands()), (std::vector<MasterIndex>{0, 1, 2, 3, 4}));
}

TEST_F(RenewalOfAQuorum, is_had_by_a_majority_with_any_number_of_them_silent) {
    for (std::size_t silent = 0; silent <= 5; ++silent) {
        SCOPED_TRACE(silent);
        const auto hold = watched({.lease = 3s});
        const TimePoint begin = now_;
        now_ += 1s;
        const auto sent = commands();
        for (std::size_t i = silent; i < 5; ++i) answer(sent[i], 1);
        const bool renewed = silent <= 2;
        EXPECT_EQ(told<Renewal::Renewed>().size(), renewed ? 1U : 0U);
        EXPECT_EQ(hold->valid_until(), begin + (renewed ? 4s : 3s));
        now_ += 1s;
        EXPECT_TRUE(told<Renewal::Silent>().empty());
        static_cast<void>(commands());
        EXPECT_EQ(told<Renewal::Silent>().size(), renewed ? 0U : silent)
            << "those that have answered are not to be replaced";
        EXPECT_EQ(hold->state(now_), renewed ? HoldState::held : HoldState::uncertain);
        machine_.dismiss(*hold);
        now_ += 1h;
        static_cast<void>(commands());
        EXPECT_TRUE(told<Renewal::Lost>().empty());
        told_.clear();
    }
}

// Else a master that is away for two renewals has the lock no more, and gets it no more.
TEST_F(RenewalOfAQuorum, is_sent_once_more_to_those_that_have_not_answered) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    const auto sent = commands();
    for (const std::size_t i : {0U, 1U, 2U}) answer(sent[i], 1);
    cut_off(sent[3]);
    EXPECT_EQ(machine_.next_due(), now_ + 250ms);
    now_ += 100ms;
    answer(sent[4], 1);
    now_ += 150ms;
    const Command again = command();
    EXPECT_EQ(again.master, 3U);
    EXPECT_EQ(again.lease(), Lease{2750ms}) << "as long as at the others";
    cut_off(again);
    now_ += 250ms;
    const Command once_more = command();
    EXPECT_EQ(once_more.master, 3U);
    EXPECT_EQ(once_more.lease(), Lease{2500ms});
    answer(once_more, 1);
    EXPECT_EQ(hold->valid_until(), start_ + 4s);
    EXPECT_EQ(machine_.next_due(), start_ + 2s) << "all of them have it";
    EXPECT_TRUE(told<Renewal::Lost>().empty());
}

TEST_F(RenewalOfAQuorum, is_sent_once_more_only_to_those_that_have_still_not_answered) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    const auto sent = commands();
    for (const std::size_t i : {0U, 1U, 2U}) answer(sent[i], 1);
    for (const std::size_t i : {3U, 4U}) cut_off(sent[i]);
    go_on();
    const auto again = commands();
    EXPECT_EQ(masters_of(again), (std::vector<MasterIndex>{3, 4}));
    answer(again[0], 1);
    cut_off(again[1]);
    go_on();
    EXPECT_EQ(command().master, 4U);
}

TEST_F(RenewalOfAQuorum, is_not_sent_once_more_where_another_one_is_due_soon_or_nobody_wants_it) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    auto sent = commands();
    for (const std::size_t i : {0U, 1U, 2U, 3U}) answer(sent[i], 1);
    for (int times = 0; times < 3; ++times) {
        now_ += 250ms;
        const Command again = command();
        EXPECT_EQ(again.master, 4U);
        cut_off(again);
    }
    now_ = start_ + 2s;
    sent = commands();
    EXPECT_EQ(sent.size(), 5U);
    for (const std::size_t i : {0U, 1U, 2U}) answer(sent[i], 1);
    machine_.dismiss(*hold);
    now_ += 250ms;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_EQ(machine_.next_due(), TimePoint::max());
}

// The later one is sent to all of them, and asks for more.
TEST_F(RenewalOfAQuorum, is_not_sent_once_more_where_a_later_one_is_had_meanwhile) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    auto sent = commands();
    for (const std::size_t i : {0U, 1U, 2U, 3U}) answer(sent[i], 1);
    now_ += 250ms;
    const auto again = machine_.take_due(now_);
    ASSERT_EQ(again.size(), 1U);
    machine_.begin(again[0], {0, 1, 2, 3, 4}, now_);
    ASSERT_EQ(told<Renewal::Send>().size(), 1U) << "it waits for a connection";
    now_ = start_ + 2s;
    sent = commands();
    EXPECT_TRUE(machine_.send(*again[0], 4, now_)) << "the later one has no answer yet";
    for (const std::size_t i : {0U, 1U, 2U}) answer(sent[i], 1);
    EXPECT_FALSE(machine_.send(*again[0], 4, now_));
    EXPECT_EQ(hold->valid_until(), start_ + 5s);
}

TEST_F(RenewalOfAQuorum, is_not_sent_once_more_when_the_client_closes) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    const auto sent = commands();
    for (const std::size_t i : {0U, 1U, 2U, 3U}) answer(sent[i], 1);
    machine_.close(now_);
    EXPECT_TRUE(machine_.is_closed(now_));
    EXPECT_EQ(machine_.next_due(), now_ + 1s) << "the time for the clean-ups";
    now_ += 250ms;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(RenewalOfAQuorum, counts_a_server_under_two_addresses_once) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    const auto sent = commands();
    const auto server = std::make_shared<const std::string>("a run id");
    for (const std::size_t i : {0U, 1U, 2U}) answer_by(sent[i], 1, {.server = server});
    EXPECT_TRUE(told<Renewal::Renewed>().empty());
    answer_by(sent[3], 1, {.server = std::make_shared<const std::string>("another")});
    EXPECT_TRUE(told<Renewal::Renewed>().empty());
    answer(sent[4], 1);
    EXPECT_EQ(told<Renewal::Renewed>().size(), 1U) << "three of five";
}

TEST_F(RenewalOfAQuorum, is_lost_only_where_no_majority_can_have_it) {
    for (std::size_t no = 0; no <= 5; ++no) {
        SCOPED_TRACE(no);
        const auto hold = watched({.lease = 3s});
        now_ += 1s;
        const auto sent = commands();
        for (std::size_t i = 0; i < no; ++i) answer(sent[i], 0);
        EXPECT_EQ(told_lost(hold, ServerKeeps::removed), no >= 3);
        for (std::size_t i = no; i < 5; ++i) cut_off(sent[i]);
        EXPECT_EQ(hold->state(now_), no >= 3 ? HoldState::held : HoldState::uncertain);
        machine_.dismiss(*hold);
        told_.clear();
        now_ += 1h;
        static_cast<void>(commands());
    }
}

// They let nobody else in for as long, so the holder may rely on its validity to the end.
TEST_F(RenewalOfAQuorum, is_not_lost_where_a_master_may_have_forgotten_it) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    const auto sent = commands();
    constexpr bool may_have_forgotten = true;
    for (const std::size_t i : {0U, 1U}) answer(sent[i], 1);
    answer(sent[2], 0, may_have_forgotten);
    for (const std::size_t i : {3U, 4U}) answer(sent[i], 0);
    EXPECT_TRUE(told<Renewal::Lost>().empty());
    EXPECT_EQ(hold->state(now_), HoldState::uncertain);
    EXPECT_EQ(hold->valid_until(), start_ + 3s);
}

TEST_F(RenewalOfAQuorum, is_had_also_by_a_master_that_has_restarted) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    const auto sent = commands();
    for (const std::size_t i : {0U, 1U, 2U}) answer(sent[i], 1, true);
    EXPECT_EQ(told<Renewal::Renewed>().size(), 1U);
    EXPECT_EQ(hold->valid_until(), start_ + 4s);
}

TEST_F(RenewalOfAQuorum, counts_an_answer_that_comes_after_the_patience) {
    const auto hold = watched({.lease = 1200ms});
    now_ += 400ms;
    const auto sent = commands();
    answer(sent[0], 1);
    answer(sent[1], 1);
    now_ += 400ms;
    EXPECT_TRUE(nothing_to_send());
    EXPECT_EQ(hold->state(now_), HoldState::uncertain);
    answer(sent[2], 1);
    EXPECT_EQ(hold->state(now_), HoldState::held);
    EXPECT_EQ(hold->valid_until(), start_ + 1600ms);
    answer(sent[3], 0);
    answer(sent[4], 0);
    EXPECT_TRUE(told<Renewal::Lost>().empty());
}

// A try that was under way has taken the lock at one of them once more: it says "ours" again.
TEST_F(RenewalOfAQuorum, is_not_lost_by_late_answers_to_one_that_was_sent_before_it) {
    const auto hold = watched({.lease = 1200ms});
    now_ += 400ms;
    const auto sent = commands();
    answer(sent[0], 1);
    answer(sent[1], 0);
    answer(sent[2], 0);
    now_ += 450ms;
    EXPECT_TRUE(nothing_to_send());
    go_on();
    const auto next = commands();
    ASSERT_EQ(next.size(), 5U);
    for (const std::size_t i : {0U, 1U, 2U}) answer(next[i], 1);
    ASSERT_EQ(hold->state(now_), HoldState::held);
    answer(sent[3], 0);
    EXPECT_TRUE(told<Renewal::Lost>().empty());
    EXPECT_EQ(hold->state(now_), HoldState::held);
}

TEST_F(RenewalOfAQuorum, follows_no_master_to_another) {
    const auto hold = watched({.lease = 3s});
    now_ += 1s;
    const auto sent = commands();
    EXPECT_FALSE(machine_.redirect(*sent[0].attempt, 0, 1));
}

using CleanUpOfAQuorum = RenewalOfAQuorum;

TEST_F(CleanUpOfAQuorum, is_sent_only_where_somebody_has_asked_with_the_token) {
    machine_.clean_up(asked_at(0b10110), {.at_once = true}, now_);
    EXPECT_EQ(masters_of(commands()), (std::vector<MasterIndex>{1, 2, 4}));
    machine_.clean_up(asked_at(0), {.at_once = true, .once_more = true}, now_);
    EXPECT_TRUE(nothing_to_send());
    now_ += late;
    EXPECT_TRUE(nothing_to_send());
}

TEST_F(CleanUpOfAQuorum, is_repeated_where_there_was_no_answer) {
    machine_.clean_up(asked_at(0b11111), {.at_once = true, .once_more = true}, now_);
    auto sent = commands();
    ASSERT_EQ(sent.size(), 5U);
    for (const std::size_t i : {0U, 2U, 3U}) answer(sent[i], 1);
    EXPECT_FALSE(sent[0].attempt->is_over()) << "a majority is not all";
    cut_off(sent[1]);
    cut_off(sent[4]);
    now_ += 100ms;
    sent = commands();
    EXPECT_EQ(masters_of(sent), (std::vector<MasterIndex>{1, 4}));
    answer(sent[0], 1);
    cut_off(sent[1]);
    now_ += 100ms;
    sent = commands();
    EXPECT_EQ(masters_of(sent), std::vector<MasterIndex>{4});
    answer(sent[0], 1);
    now_ += late;
    EXPECT_EQ(commands().size(), 5U) << "once more everywhere";
}

TEST_F(CleanUpOfAQuorum, tells_of_each_silent_master_once) {
    for (int i = 0; i < 3; ++i) machine_.clean_up(asked_at(0b00111), {.at_once = true}, now_);
    auto sent = commands();
    ASSERT_EQ(sent.size(), 9U);
    for (const Command& command : sent) {
        if (command.master != 2) answer(command, 1);
    }
    now_ += 1s;
    EXPECT_TRUE(nothing_to_send());
    const auto silent = told<Renewal::Silent>();
    ASSERT_EQ(silent.size(), 1U);
    EXPECT_EQ(silent[0].master, 2U);
    now_ += 100ms;
    EXPECT_EQ(masters_of(commands()), (std::vector<MasterIndex>{2, 2, 2}));
}

}  // namespace
