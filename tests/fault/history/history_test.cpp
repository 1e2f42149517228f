#include "history.hpp"

#include "../checkers/story.hpp"
#include "holds.hpp"
#include "recorder.hpp"
#include "support/temp_folder.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test::fault {
namespace {

using namespace std::chrono_literals;

TEST(Event, survives_the_way_through_a_line) {
    Event event;
    event.at = 123456789ns;
    event.op = Op::extend;
    event.stage = Stage::fail;
    event.process = 42;
    event.thread = 43;
    event.call = 7;
    event.lock = "a \"quoted\"\n name";
    event.policy = "Watchdog<Reentrant>";
    event.hold = 3;
    event.token = "token";
    event.fence = 9007199254740991;
    event.limit = 5s;
    event.held = false;
    event.valid_until = 6s;
    event.valid_at_most = 7s;
    event.outcome = "lost";
    event.detail = "it ended";
    event.counts = {{"keys", -1}};
    const std::string line = to_line(event);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(to_line(from_line(line)), line);
    EXPECT_EQ(from_line(line).lock, event.lock);
    EXPECT_EQ(from_line(line).held, false);
    EXPECT_EQ(from_line(line).valid_at_most, 7s);
    EXPECT_EQ(from_line(line).counts, event.counts);
}

TEST(Event, writes_no_empty_fields) {
    EXPECT_EQ(to_line({.at = 1ns}), R"({"at":1,"op":"acquire","stage":"invoke"})");
}

TEST(Event, refuses_other_lines) {
    EXPECT_THROW(static_cast<void>(from_line("")), std::runtime_error);
    EXPECT_THROW(static_cast<void>(from_line("{}")), std::runtime_error);
    EXPECT_THROW(static_cast<void>(from_line(R"({"at":1,"op":"acqu)")), std::runtime_error);
    EXPECT_THROW(static_cast<void>(from_line(R"({"at":1,"op":"acquire","stage":"ok","hold":"x"})")),
                 std::runtime_error);
}

TEST(Recorder, keeps_events_of_threads_apart_and_drops_a_cut_line) {
    const TempFolder folder;
    {
        Recorder recorder{folder.file("1.jsonl")};
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&recorder] {
                for (int n = 0; n < 100; ++n) {
                    recorder.write({.call = recorder.next_number(), .detail = "x"});
                }
            });
        }
    }
    std::ofstream{folder.file("1.jsonl"), std::ios::app} << R"({"at":12)";
    std::ofstream{folder.file("other.txt")} << "no history";
    const History history = read_history(folder.path());
    ASSERT_EQ(history.size(), 400U);
    EXPECT_EQ(history.front().process, ::getpid());
    EXPECT_TRUE(std::ranges::is_sorted(history, {}, &Event::at));
    std::ofstream{folder.file("2.jsonl")} << "nonsense\n";
    EXPECT_THROW(static_cast<void>(read_history(folder.path())), std::runtime_error);
}

TEST(Spans, merge_and_cover) {
    const std::vector<Span> spans{{5ns, 7ns}, {1ns, 3ns}, {3ns, 4ns}, {6ns, 9ns}, {8ns, 8ns}};
    EXPECT_EQ(merged(spans), (std::vector<Span>{{1ns, 4ns}, {5ns, 9ns}}));
    EXPECT_EQ(covered({2ns, 6ns}, spans), 3ns);
    EXPECT_EQ(covered({10ns, 20ns}, spans), 0ns);
}

TEST(Calls, are_paired_within_their_process) {
    Story story;
    story.waits(1, 0, 30, 100).waits(2, 5, 0, 100).fault("delay", 1, 2);
    const std::vector<Call> calls = calls_of(story.history());
    ASSERT_EQ(calls.size(), 3U);
    EXPECT_EQ(calls[0].completion->at, 30ms);
    EXPECT_EQ(calls[1].completion->at, 2ms);
    EXPECT_FALSE(calls[2].completion);
}

TEST(Holds, end_with_the_last_of_their_releases) {
    Story story;
    story.takes({.process = 1, .from = 3, .to = 5, .valid = 100, .policy = "Reentrant"});
    story.nests(1, 1, 6, 7, 110);
    story.releases(1, 1, 10, 12, "still_held").releases(1, 1, 20, 25);
    story.waits(2, 0, 90, 90);
    const std::vector<HoldRecord> holds = holds_of(story.history());
    ASSERT_EQ(holds.size(), 1U);
    EXPECT_EQ(holds[0].invoked, 3ms);
    EXPECT_EQ(holds[0].acquired, 5ms);
    EXPECT_EQ(holds[0].relied_on, (std::vector<Span>{{5ms, 20ms}}));
    EXPECT_EQ(holds[0].valid_until, 110ms);
    EXPECT_EQ(holds[0].valid_at_most, 112ms);
    ASSERT_TRUE(holds[0].release_end);
    EXPECT_EQ(holds[0].release_end->at, 25ms);
}

TEST(Faults, know_whom_they_hit) {
    Story story;
    story.fault("freeze client", 1, 5, 7).fault("freeze client", 8, 9, 6);
    story.fault_at("kill client", 20, 6);
    EXPECT_EQ(frozen_spans(story.history(), 7), (std::vector<Span>{{1ms, 5ms}}));
    story.fault(standstill, 30, 34, 1);
    EXPECT_EQ(frozen_spans(story.history(), 7), (std::vector<Span>{{1ms, 5ms}, {30ms, 34ms}}));
    EXPECT_EQ(killed_at(story.history(), 6), 20ms);
    EXPECT_FALSE(killed_at(story.history(), 7));
}

}  // namespace
}  // namespace redlatch::test::fault
