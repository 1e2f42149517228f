// The parts of the laboratory, each by itself.

#include "injector.hpp"
#include "laboratory.hpp"
#include "plan.hpp"
#include "run_folder.hpp"
#include "standstill_watch.hpp"
#include "store.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/temp_folder.hpp"
#include "support/wait.hpp"
#include "wall_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

namespace redlatch::test::fault {
namespace {

using namespace std::chrono_literals;

TEST(Plan, survives_the_way_through_an_argument) {
    ClientPlan plan{.servers = {"unix:///a b", "unix:///c"},
                    .store = "store",
                    .history = "history",
                    .seed = 18446744073709551615U,
                    .subject = "reused token",
                    .threads = 50,
                    .coroutines = 77,
                    .names = 51,
                    .command_timeout = {52ms, 66ms},
                    .only_fences = true,
                    .trusts_masters = true,
                    .slow_observer = true,
                    .closes = true,
                    .habits = {.lease = {53ms, 54ms},
                               .wait = {55ms, 56ms},
                               .work = {57ms, 58ms},
                               .no_wait = 59,
                               .polls = 60,
                               .nests = 61,
                               .extends = 62,
                               .at_the_end = 63,
                               .listens = 64,
                               .lingers = 65,
                               .hangs = 67,
                               .shares = 68,
                               .mixes = 69,
                               .endless = 70,
                               .brief = {71ms, 72ms},
                               .briefly = 73,
                               .lasting = {74ms, 75ms},
                               .lastingly = 76,
                               .reads = 81,
                               .downgrades = 82,
                               .cancels = 78,
                               .abandons = 79,
                               .stalls = 80}};
    EXPECT_EQ(plan_from_text(to_text(plan)), plan) << to_text(plan);
}

TEST(StandstillWatch, writes_down_how_long_an_idle_server_had_no_time) {
    const TempFolder folder;
    RedisServer server;
    const StandstillWatch watch{folder.file("machine.jsonl"), server.uri()};
    server.freeze();
    std::this_thread::sleep_for(500ms);
    const Time thawed = now();
    server.thaw();
    const auto is_noted = [&] {
        return std::ranges::any_of(frozen_spans(read_history(folder.path()), 1), [&](Span span) {
            return span.begin < thawed && thawed < span.end;
        });
    };
    EXPECT_TRUE(eventually(is_noted));
}

TEST(WallClockShim, steps_the_time_of_a_server_and_nobody_elses) {
    const TempFolder folder;
    WallClock clock{folder.file("offset")};
    RedisServer server{{.env = clock.env()}};
    RawRedis redis{server};
    const auto ahead = [&redis] {
        const long long seconds = std::stoll(redis.command({"TIME"}).elements.at(0).text);
        return std::chrono::seconds{seconds} -
               std::chrono::floor<std::chrono::seconds>(store_time());
    };
    EXPECT_LE(std::chrono::abs(ahead()), 5s);
    redis.command({"SET", "key", "value", "PX", "60000"});
    clock.set(90s);
    EXPECT_LE(std::chrono::abs(ahead() - 90s), 5s);
    EXPECT_FALSE(redis.exists("key"));
    clock.set(-3600s);
    EXPECT_LE(std::chrono::abs(ahead() + 3600s), 5s);
    redis.command({"SET", "key", "value", "PX", "60000"});
    EXPECT_LE(redis.pttl("key"), 60000);
    clock.set(0s);
    EXPECT_FALSE(redis.exists("key"));
}

class StoreTest : public ::testing::Test {
protected:
    RedisServer server_;
    Store store_{server_.uri()};
};

TEST_F(StoreTest, counts_writes_and_keeps_a_log) {
    EXPECT_EQ(store_.read("a"), 0);
    EXPECT_EQ(store_.write({.lock = "a", .process = 7, .hold = 9, .read = 0, .at = 5ms}),
              "accepted");
    EXPECT_EQ(store_.write({.lock = "b", .read = 0}), "accepted");
    EXPECT_EQ(store_.read("a"), 1);
    const History log = store_.log();
    ASSERT_EQ(log.size(), 2U);
    EXPECT_EQ(log[0].lock, "a");
    EXPECT_EQ(log[0].process, 7);
    EXPECT_EQ(log[0].hold, 9U);
    EXPECT_EQ(log[0].at, 5ms);
    EXPECT_EQ(log[0].outcome, "accepted");
    EXPECT_EQ(log[0].counts.at("wrote"), 1);
    EXPECT_EQ(log[1].counts.at("order"), 1);
}

TEST_F(StoreTest, refuses_what_comes_late) {
    EXPECT_EQ(store_.write({.lock = "a", .not_after = store_time() + 1h}), "accepted");
    EXPECT_EQ(store_.write({.lock = "a", .read = 1, .not_after = store_time() - 1ms}), "late");
    EXPECT_EQ(store_.read("a"), 1);
}

TEST_F(StoreTest, refuses_what_is_stale) {
    EXPECT_EQ(store_.write({.lock = "a", .fence = 9007199254740991}), "accepted");
    EXPECT_EQ(store_.write({.lock = "a", .fence = 9007199254740990, .read = 1}), "stale");
    EXPECT_EQ(store_.write({.lock = "a", .fence = 9007199254740991, .read = 1}), "accepted");
    EXPECT_EQ(store_.write({.lock = "b", .fence = 5}), "accepted");
    EXPECT_EQ(store_.log().at(1).outcome, "stale");
    EXPECT_EQ(store_.log().at(0).fence, 9007199254740991U);
}

TEST(RunFolder, goes_unless_it_is_kept) {
    std::string path;
    {
        const RunFolder folder{"test"};
        path = folder.path();
        EXPECT_TRUE(std::filesystem::exists(path));
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    {
        RunFolder folder{"test"};
        path = folder.path();
        folder.keep();
    }
    EXPECT_TRUE(std::filesystem::exists(path));
    std::filesystem::remove_all(path);
}

// After each kind of fault all is as before: the server has its rights, its memory and its clock back,
// and the client goes on.
TEST(Faults, begin_and_end) {
    const RunFolder folder{"test"};
    ClientPlan client;
    client.subject = "library";
    client.threads = 1;
    Laboratory laboratory{
        {.folder = folder.path(), .faults = FaultClass::outside, .stations = 1, .client = client}};
    Dice dice{1};
    for (const Fault& fault : all_faults()) {
        SCOPED_TRACE(fault.name);
        const auto end = fault.begin(laboratory, {.duration = 30ms}, dice);
        std::this_thread::sleep_for(30ms);
        if (end) end();
        RawRedis redis{laboratory.station(0).links.at(0)->uri(), 20s};
        EXPECT_FALSE(redis.command({"SET", "key", "value"}).is_error());
        EXPECT_FALSE(redis.command({"EVAL", "return redis.call('TIME')", "0"}).is_error());
        EXPECT_TRUE(redis.del("key"));
        EXPECT_TRUE(laboratory.station(0).client->running());
    }
    EXPECT_TRUE(laboratory.stop_clients(20s).empty());
}

TEST(Injector, writes_down_what_it_does) {
    const RunFolder folder{"test"};
    ClientPlan client;
    client.subject = "library";
    client.threads = 1;
    Laboratory laboratory{{.folder = folder.path(), .stations = 1, .client = client}};
    Injector injector{laboratory,
                      folder.path() + "/faults.jsonl",
                      {.seed = 3,
                       .pause = {1ms, 5ms},
                       .only = {"delay", "forget scripts", "stall"},
                       .except = {"stall"}}};
    injector.storm(300ms);
    EXPECT_TRUE(laboratory.stop_clients(20s).empty());
    long long begun = 0;
    for (const Call& call : calls_of(read_history(folder.path()))) {
        // The laboratory itself writes down where the machine gave nobody time.
        if (call.invoke.op != Op::fault || call.invoke.outcome == standstill) continue;
        ++begun;
        EXPECT_TRUE(call.invoke.outcome == "delay" || call.invoke.outcome == "forget scripts");
        ASSERT_TRUE(call.completion);
        EXPECT_LE(call.invoke.at, call.completion->at);
    }
    EXPECT_GT(injector.made().at("forget scripts"), 0);
    EXPECT_EQ(begun, injector.made().at("delay") + injector.made().at("forget scripts"));
    EXPECT_THROW((Injector{laboratory, folder.path() + "/x.jsonl", {.only = {"no such"}}}),
                 std::runtime_error);
}

}  // namespace
}  // namespace redlatch::test::fault
