#include <redlatch/core/cluster_redirection.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace std::chrono_literals;

using Machine = ClusterRedirection;

constexpr TimePoint start{1h};
constexpr TimePoint deadline = start + 1s;

Fault fault(Errc code, const std::string& message, bool maybe_executed = false) {
    Fault fault{.error = {code, {}, "node", message, {}}};
    fault.transient = code == Errc::unavailable;
    fault.maybe_executed = maybe_executed;
    return fault;
}
Fault moved(const std::string& to = "b:2") {
    return fault(Errc::protocol, "MOVED 7 " + to);
}
Fault ask(const std::string& to = "b:2") {
    return fault(Errc::protocol, "ASK 7 " + to);
}
Fault unreachable(bool maybe_executed = false) {
    return fault(Errc::unavailable, "connect: Connection refused", maybe_executed);
}

template <class Wanted>
std::optional<Wanted> as(const Machine::Action& action) {
    if (const auto* const wanted = get_if<Wanted>(&action)) return *wanted;
    return std::nullopt;
}
bool goes_to_master(const Machine::Action& action) {
    return as<Machine::SendToMaster>(action).has_value();
}
bool refreshes_until(const Machine::Action& action, TimePoint until) {
    const auto refresh = as<Machine::RefreshMap>(action);
    return refresh && refresh->until == until;
}

TEST(ClusterRedirection, sends_to_the_master_of_the_map) {
    EXPECT_TRUE(goes_to_master(Machine{deadline}.begin()));
}

TEST(ClusterRedirection, follows_also_where_its_time_was_prolonged) {
    for (const bool prolonged : {false, true}) {
        Machine machine{deadline};
        static_cast<void>(machine.begin());
        if (prolonged) machine.has_until(deadline + 1s);
        const auto next = machine.failed(ask(), deadline + 1ms);
        EXPECT_EQ(as<Machine::SendTo>(next).has_value(), prolonged);
    }
}

TEST(ClusterRedirection, gives_half_of_the_time_to_a_map_that_is_in_doubt) {
    Machine machine{deadline};
    EXPECT_TRUE(refreshes_until(machine.begin_in_doubt(start), start + 500ms));
    EXPECT_TRUE(goes_to_master(machine.map_settled(false, start + 500ms)));
    Machine patient{TimePoint::max()};
    const auto refresh = as<Machine::RefreshMap>(patient.begin_in_doubt(start));
    ASSERT_TRUE(refresh);
    EXPECT_GT(refresh->until, start + 24h);
}

TEST(ClusterRedirection, follows_moved_once_the_map_was_asked_for) {
    for (const bool elsewhere : {false, true}) {
        Machine machine{deadline};
        machine.begin();
        EXPECT_TRUE(refreshes_until(machine.failed(moved(), start), deadline));
        const auto sent = as<Machine::SendTo>(machine.map_settled(elsewhere, start));
        ASSERT_TRUE(sent);
        EXPECT_EQ(sent->to.host, "b");
        EXPECT_EQ(sent->to.port, 2);
        EXPECT_FALSE(sent->to.once);
    }
}

TEST(ClusterRedirection, follows_ask_at_once_and_with_asking) {
    Machine machine{deadline};
    machine.begin();
    const auto sent = as<Machine::SendTo>(machine.failed(ask(), start));
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->to.host, "b");
    EXPECT_TRUE(sent->to.once);
}

TEST(ClusterRedirection, goes_on_to_the_present_master_where_a_node_is_out_of_reach) {
    for (const Fault& gone : {unreachable(), fault(Errc::unavailable, "CLUSTERDOWN not served")}) {
        Machine machine{deadline};
        machine.begin();
        EXPECT_TRUE(refreshes_until(machine.failed(gone, start), deadline));
        EXPECT_TRUE(goes_to_master(machine.map_settled(true, start)));
    }
}

TEST(ClusterRedirection, gives_up_where_the_master_is_the_node_out_of_reach) {
    Machine machine{deadline};
    machine.begin();
    machine.failed(unreachable(), start);
    const auto end = as<Machine::GiveUp>(machine.map_settled(false, start));
    ASSERT_TRUE(end);
    EXPECT_EQ(end->fault.error.message, "connect: Connection refused");
    EXPECT_TRUE(end->map_in_doubt);
}

TEST(ClusterRedirection, repeats_nothing_elsewhere_that_may_have_been_executed) {
    Machine machine{deadline};
    machine.begin();
    EXPECT_TRUE(refreshes_until(machine.failed(unreachable(true), start), deadline))
        << "for the next command";
    const auto end = as<Machine::GiveUp>(machine.map_settled(true, start));
    ASSERT_TRUE(end);
    EXPECT_TRUE(end->fault.maybe_executed);
}

TEST(ClusterRedirection, remembers_that_a_command_may_have_been_executed_before_it_was_sent_on) {
    Machine machine{deadline};
    machine.begin();
    // Its first connection died, and over the second one came the redirection.
    EXPECT_TRUE(
        as<Machine::RefreshMap>(machine.failed(fault(Errc::protocol, "MOVED 7 b:2", true), start)));
    EXPECT_TRUE(as<Machine::SendTo>(machine.map_settled(true, start)));
    EXPECT_TRUE(as<Machine::RefreshMap>(machine.failed(unreachable(), start)));
    const auto end = as<Machine::GiveUp>(machine.map_settled(true, start));
    ASSERT_TRUE(end);
    EXPECT_TRUE(end->fault.maybe_executed);
}

TEST(ClusterRedirection, leaves_keys_in_two_places_to_the_caller) {
    Machine machine{deadline};
    machine.begin();
    const auto end = as<Machine::GiveUp>(
        machine.failed(fault(Errc::unavailable, "TRYAGAIN Multiple keys request"), start));
    ASSERT_TRUE(end);
    EXPECT_EQ(end->fault.error.code, Errc::unavailable);
}

TEST(ClusterRedirection, passes_other_errors_on_and_trusts_the_map) {
    for (const Errc code : {Errc::wrong_type, Errc::cancelled, Errc::denied}) {
        Machine machine{deadline};
        machine.begin();
        const auto end = as<Machine::GiveUp>(machine.failed(fault(code, "no"), start));
        ASSERT_TRUE(end);
        EXPECT_EQ(end->fault.error.code, code);
        EXPECT_FALSE(end->map_in_doubt);
    }
}

// Its address may be another server's by now.
TEST(ClusterRedirection, has_the_map_asked_for_where_a_server_is_not_what_it_was) {
    for (const Errc code : {Errc::denied, Errc::protocol}) {
        for (const bool elsewhere : {true, false}) {
            Machine machine{deadline};
            machine.begin();
            Fault other = fault(code, "no");
            other.refuses_client = code == Errc::denied;
            EXPECT_TRUE(as<Machine::RefreshMap>(machine.failed(other, start)));
            const auto settled = machine.map_settled(elsewhere, start);
            EXPECT_EQ(as<Machine::SendToMaster>(settled).has_value(), elsewhere);
            const auto end = as<Machine::GiveUp>(settled);
            ASSERT_EQ(end.has_value(), !elsewhere);
            if (!end) continue;
            EXPECT_EQ(end->fault.error.code, code);
            EXPECT_TRUE(end->map_in_doubt);
        }
    }
}

TEST(ClusterRedirection, refuses_to_follow_to_what_is_no_host) {
    Machine machine{deadline};
    machine.begin();
    EXPECT_TRUE(as<Machine::RefreshMap>(machine.failed(moved("a b:2"), start)));
    const auto end = as<Machine::GiveUp>(machine.map_settled(false, start));
    ASSERT_TRUE(end);
    EXPECT_EQ(end->fault.error.code, Errc::protocol);
    EXPECT_FALSE(end->fault.transient);
}

/// Sends the command round in circles; the pauses on the way, and how it ended.
struct Circle {
    std::vector<Clock::duration> pauses{};
    int sent = 0;
    std::optional<Machine::GiveUp> end{};
};
Circle run_in_circles(TimePoint until) {
    Circle circle;
    Machine machine{until};
    Machine::Action action = machine.begin();
    for (TimePoint now = start; !circle.end;) {
        if (const auto pause = as<Machine::Pause>(action)) {
            circle.pauses.push_back(pause->until - now);
            now = pause->until;
            action = machine.pause_over(now);
        } else if (const auto end = as<Machine::GiveUp>(action)) {
            circle.end = *end;
        } else if (as<Machine::RefreshMap>(action)) {
            action = machine.map_settled(true, now);
        } else {
            ++circle.sent;
            action = machine.failed(moved(circle.sent % 2 == 0 ? "a:1" : "b:2"), now);
        }
    }
    return circle;
}

TEST(ClusterRedirection, ends_where_the_servers_never_agree) {
    const Circle circle = run_in_circles(deadline);
    EXPECT_EQ(circle.sent, 9) << "the first time and eight redirections";
    EXPECT_EQ(circle.pauses, (std::vector<Clock::duration>{5ms, 10ms, 20ms, 20ms, 20ms}))
        << "from the fourth on";
    EXPECT_EQ(circle.end->fault.error.code, Errc::unavailable);
    EXPECT_TRUE(circle.end->fault.transient) << "they may agree later";
    EXPECT_TRUE(circle.end->map_in_doubt);
}

TEST(ClusterRedirection, ends_with_the_time) {
    const Circle circle = run_in_circles(start + 12ms);
    EXPECT_EQ(circle.pauses, (std::vector<Clock::duration>{5ms, 7ms}));
    EXPECT_EQ(circle.sent, 5);
    EXPECT_EQ(circle.end->fault.error.code, Errc::unavailable);

    Machine late{deadline};
    late.begin();
    EXPECT_TRUE(as<Machine::GiveUp>(late.failed(ask(), deadline)));
    Machine later{deadline};
    later.begin();
    later.failed(moved(), start);
    const auto end = as<Machine::GiveUp>(later.map_settled(true, deadline));
    ASSERT_TRUE(end);
    EXPECT_EQ(end->fault.error.code, Errc::unavailable);
    EXPECT_TRUE(end->map_in_doubt);
}

TEST(ClusterRedirection, is_over_once_an_earlier_redirection_ended_in_another_fault) {
    Machine machine{deadline};
    machine.begin();
    machine.failed(moved(), start);
    machine.map_settled(true, start);
    machine.failed(unreachable(), start);
    EXPECT_TRUE(goes_to_master(machine.map_settled(true, start))) << "not to the node it named";
}

}  // namespace
