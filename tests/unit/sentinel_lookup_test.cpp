#include <redlatch/core/sentinel_lookup.hpp>
#include <redlatch/core/sentinel_service.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace std::chrono_literals;

using Machine = SentinelLookup;
using Kind = SentinelAnswer::Kind;

constexpr TimePoint start{1h};
constexpr TimePoint deadline = start + 400ms;

SentinelAnswer names(const std::string& host, const std::string& port = "6379") {
    return {Kind::address, host, port};
}
Fault fault(Errc code, const std::string& message, const std::string& node = {}) {
    return {.error = {code, {}, node, message, {}}, .transient = code == Errc::unavailable};
}
const Fault silent = fault(Errc::unavailable, "no answer in time");
const Fault replica = fault(Errc::unavailable, "READONLY the server is a replica", "old:1");

std::optional<std::size_t> asked(const Machine::Action& action) {
    const auto* const ask = get_if<Machine::Ask>(&action);
    return ask == nullptr ? std::nullopt : std::optional{ask->sentinel};
}
std::optional<ServerAddress> tried(const Machine::Action& action) {
    const auto* const attempt = get_if<Machine::TryMaster>(&action);
    return attempt == nullptr ? std::nullopt : std::optional{attempt->master};
}
std::optional<Fault> end(const Machine::Action& action) {
    const auto* const give_up = get_if<Machine::GiveUp>(&action);
    return give_up == nullptr ? std::nullopt : std::optional{give_up->fault};
}

TEST(SentinelLookup, takes_the_first_answer_for_the_master) {
    Machine machine{"service", 1, 3, deadline};
    EXPECT_EQ(asked(machine.begin(start)), 1U);
    EXPECT_EQ(tried(machine.answered(names("h", "7000"), "s", start)), (ServerAddress{"h", 7000}));
    EXPECT_EQ(machine.asked_last(), 1U);
}

TEST(SentinelLookup, asks_all_in_turn) {
    Machine machine{"service", 1, 3, deadline};
    EXPECT_EQ(asked(machine.begin(start)), 1U);
    EXPECT_EQ(asked(machine.failed(silent, "s", start)), 2U);
    EXPECT_EQ(asked(machine.failed(silent, "s", start)), 0U);
    EXPECT_EQ(machine.asked_last(), 0U);
    EXPECT_TRUE(end(machine.failed(silent, "s", start)));
}

TEST(SentinelLookup, gives_each_half_of_the_time_that_is_left) {
    Machine machine{"service", 0, 3, deadline};
    EXPECT_EQ(get<Machine::Ask>(machine.begin(start)).until, start + 200ms);
    const auto next = machine.failed(silent, "s", start + 10ms);
    EXPECT_EQ(get<Machine::Ask>(next).until, start + 205ms);
    Machine many{"service", 0, 64, deadline};
    EXPECT_EQ(get<Machine::Ask>(many.begin(start)).until, start + 200ms)
        << "however many there are";
    Machine patient{"service", 0, 1, TimePoint::max()};
    EXPECT_EQ(get<Machine::Ask>(patient.begin(start)).until, start + 500ms);
}

TEST(SentinelLookup, gives_up_with_what_all_sentinels_said) {
    Machine machine{"ser\nvice", 0, 2, deadline};
    machine.begin(start);
    machine.failed(silent, "s1", start);
    const auto fault = end(machine.answered({Kind::unknown_service}, "s2", start));
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error.code, Errc::unavailable);
    EXPECT_TRUE(fault->transient) << "the silent one may know it";
    EXPECT_EQ(fault->error.node, "service ser\\x0avice");
    ASSERT_EQ(fault->error.causes.size(), 2U);
    EXPECT_EQ(fault->error.causes[0].node, "s1");
    EXPECT_EQ(fault->error.causes[1].node, "s2");
    EXPECT_EQ(fault->error.causes[1].message, "this Sentinel knows no service 'ser\\x0avice'");
}

TEST(SentinelLookup, blames_no_sentinel_that_it_has_no_time_to_ask) {
    Machine early{"service", 0, 2, deadline};
    const auto nobody = end(early.begin(deadline));
    ASSERT_TRUE(nobody);
    EXPECT_EQ(nobody->error.code, Errc::unavailable);
    EXPECT_TRUE(nobody->transient);
    EXPECT_EQ(nobody->error.message, "no time is left to ask for the master");
    EXPECT_TRUE(nobody->error.causes.empty());
    Machine late{"service", 0, 2, deadline};
    static_cast<void>(late.begin(start));
    const auto one = end(late.failed(fault(Errc::denied, "NOAUTH"), "s", deadline));
    ASSERT_TRUE(one);
    EXPECT_EQ(one->error.code, Errc::unavailable) << "the other one may know";
    EXPECT_EQ(one->error.causes.size(), 1U);
}

TEST(SentinelLookup, may_succeed_later_where_all_are_silent) {
    Machine machine{"service", 0, 2, deadline};
    machine.begin(start);
    machine.failed(silent, "s1", start);
    const auto fault = end(machine.failed(silent, "s2", start));
    ASSERT_TRUE(fault);
    EXPECT_TRUE(fault->transient);
}

TEST(SentinelLookup, is_over_for_good_where_no_sentinel_knows_the_service) {
    Machine machine{"service", 0, 2, deadline};
    machine.begin(start);
    machine.answered({Kind::unknown_service}, "s1", start);
    const auto fault = end(machine.answered({Kind::unknown_service}, "s2", start));
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error.code, Errc::invalid_argument);
    EXPECT_FALSE(fault->transient);
}

TEST(SentinelLookup, is_not_over_for_good_where_reasons_differ) {
    Machine machine{"service", 0, 2, deadline};
    machine.begin(start);
    machine.answered({Kind::unknown_service}, "s1", start);
    const auto end_of_it = end(machine.failed(fault(Errc::denied, "NOAUTH"), "s2", start));
    ASSERT_TRUE(end_of_it);
    EXPECT_EQ(end_of_it->error.code, Errc::unavailable);
    EXPECT_TRUE(end_of_it->transient);
}

TEST(SentinelLookup, believes_no_address_that_cannot_be) {
    for (const SentinelAnswer& answer : {names("a b"), names(""), names("h", "0"), names("h", "x"),
                                         names("h", "65536"), SentinelAnswer{Kind::unreadable}}) {
        Machine machine{"service", 0, 1, deadline};
        machine.begin(start);
        const auto fault = end(machine.answered(answer, "s", start));
        ASSERT_TRUE(fault) << answer.host << ":" << answer.port;
        EXPECT_EQ(fault->error.code, Errc::protocol);
    }
}

TEST(SentinelLookup, asks_on_where_the_one_named_is_a_replica) {
    Machine machine{"service", 0, 3, deadline};
    machine.begin(start);
    EXPECT_EQ(tried(machine.answered(names("old"), "s", start)), (ServerAddress{"old", 6379}));
    EXPECT_EQ(asked(machine.is_replica(replica, start)), 1U);
    EXPECT_EQ(asked(machine.answered(names("old"), "s", start)), 2U) << "it is not tried twice";
    EXPECT_EQ(tried(machine.answered(names("new"), "s", start)), (ServerAddress{"new", 6379}));
}

TEST(SentinelLookup, tells_of_the_replica_where_nobody_knows_better) {
    Machine machine{"service", 0, 2, deadline};
    machine.begin(start);
    machine.answered(names("old"), "s", start);
    machine.is_replica(replica, start);
    const auto fault = end(machine.failed(silent, "s", start));
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error.message, replica.error.message);
    EXPECT_EQ(fault->error.node, "old:1");
}

/// The Sentinel that a search begins with.
std::optional<std::size_t> first_of(const SentinelService& service) {
    return asked(service.look_up(deadline).begin(start));
}

TEST(SentinelService, begins_with_the_sentinel_that_helped_last) {
    SentinelService service{"service", 3};
    EXPECT_EQ(first_of(service), 0U);
    service.helped(2);
    EXPECT_EQ(first_of(service), 2U);
}

TEST(SentinelService, begins_with_another_one_where_the_master_it_named_is_of_no_use) {
    SentinelService service{"service", 3};
    service.helped(2);
    service.misled(2);
    EXPECT_EQ(first_of(service), 0U);
    service.misled(0);
    EXPECT_EQ(first_of(service), 1U);
}

TEST(SentinelService, begins_with_another_one_where_a_search_found_no_master) {
    SentinelService service{"service", 3};
    service.found_none(0);
    EXPECT_EQ(first_of(service), 1U);
    service.found_none(0);
    EXPECT_EQ(first_of(service), 1U) << "that search had begun before";
    service.found_none(1);
    service.found_none(2);
    EXPECT_EQ(first_of(service), 0U);
}

TEST(SentinelService, tells_a_master_that_moved_from_one_that_stayed) {
    using Arrival = SentinelService::Arrival;
    SentinelService service{"service", 1};
    EXPECT_FALSE(service.master());
    EXPECT_EQ(service.arrive({"a", 1}), Arrival::first);
    EXPECT_EQ(service.arrive({"a", 1}), Arrival::same);
    EXPECT_EQ(service.arrive({"a", 2}), Arrival::moved);
    EXPECT_EQ(service.arrive({"b", 2}), Arrival::moved);
    EXPECT_EQ(service.master(), (ServerAddress{"b", 2}));
}

TEST(SentinelService, goes_back_by_no_search_that_is_older_than_what_is_known) {
    using Arrival = SentinelService::Arrival;
    SentinelService service{"service", 1};
    const auto before_all = service.look_up(start);
    EXPECT_EQ(service.arrive({"a", 1}, before_all), Arrival::first);
    const auto old_search = service.look_up(start);
    EXPECT_EQ(service.arrive({"b", 2}), Arrival::moved);
    EXPECT_EQ(service.arrive({"a", 1}, old_search), Arrival::outdated);
    EXPECT_EQ(service.master(), (ServerAddress{"b", 2}));
    EXPECT_EQ(service.arrive({"b", 2}, old_search), Arrival::same);
    EXPECT_EQ(service.arrive({"a", 1}, service.look_up(start)), Arrival::moved);
}

TEST(SentinelService, understands_news_about_itself) {
    const SentinelService service{"mine", 1};
    EXPECT_EQ(service.switched("mine 10.0.0.1 6379 10.0.0.2 6380"),
              (ServerAddress{"10.0.0.2", 6380}));
    for (const std::string message :
         {"", "mine", "mine a 1 b", "mine a 1 b x", "mine a 1 b 0", "yours a 1 b 2",
          "minemine a 1 b 2", "mine a 1 b 2 3", " mine a 1 b 2"}) {
        const auto master = service.switched(message);
        const bool ignores_what_follows = message == "mine a 1 b 2 3";
        EXPECT_EQ(master.has_value(), ignores_what_follows) << message;
    }
}

}  // namespace
