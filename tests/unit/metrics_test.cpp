// What `Metrics` makes of events, and that its text is what Prometheus reads. That the events come is the
// subject of tests/integration.

#include "support/process.hpp"
#include "support/socket.hpp"
#include "support/temp_folder.hpp"
#include <redlatch/metrics.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;

/// A sample's value, by its name with labels.
std::string value(const Metrics& metrics, const std::string& name) {
    std::istringstream lines{metrics.prometheus()};
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(name + " ")) return line.substr(name.size() + 1);
    }
    return "absent";
}

std::size_t count_of(const std::string& part, const std::string& text) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

/// What `promtool check metrics` says to the text; nothing where it has nothing to say.
std::string complaints(const std::string& text) {
    const TempFolder folder;
    std::ofstream{folder.file("in")} << text;
    const UniqueFd in{::open(folder.file("in").c_str(), O_RDONLY | O_CLOEXEC)};
    const UniqueFd out{
        ::open(folder.file("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR)};
    const char* const program = std::getenv("REDLATCH_PROMTOOL");
    auto promtool = spawn({.argv = {program != nullptr ? program : "promtool", "check", "metrics"},
                           .input = in.get(),
                           .output = out.get(),
                           .error = out.get()});
    const auto status = promtool.wait();
    if (!status) return "it takes too long";
    std::ifstream said{folder.file("out")};
    std::string all{std::istreambuf_iterator<char>{said}, {}};
    if (!status->success() && all.empty()) all = "it failed";
    return all;
}

Errc refused(MetricsOptions options) {
    try {
        const Metrics metrics{std::move(options)};
    } catch (const LockError& e) {
        EXPECT_NE(e.error().message.find("MetricsOptions::"), std::string::npos) << e.what();
        return e.error().code;
    }
    return {};
}

/// `order` for `order:4711`.
std::string prefix(std::string_view lock) {
    return std::string{lock.substr(0, lock.find(':'))};
}

/// Everything that can happen to a lock, once or more.
void let_all_happen(Metrics& metrics, const std::string& lock) {
    metrics.acquired({lock, 2ms, 1});
    metrics.timed_out({lock, 1s, 7});
    for (const Release outcome :
         {Release::released, Release::still_held, Release::expired, Release::not_held}) {
        metrics.released({lock, 40ms, outcome});
    }
    metrics.released({lock, 40ms, Unexpected{Error{Errc::unclear, lock, {}, {}, {}}}});
    metrics.wait_began({lock});
    metrics.wait_ended({lock, 2ms, {}});
    metrics.wait_began({lock});
    metrics.hold_began({lock});
    metrics.hold_ended({lock, 40ms});
    metrics.hold_began({lock});
    metrics.renewed({lock, 1s});
    metrics.lost({lock, 10min});
    metrics.error({Errc::unavailable, lock, "node", "no answer", {}});
    metrics.reconnected({"node"});
    metrics.warning({"node", "evicts"});
}

TEST(Metrics, sorts_what_takes_its_time_into_buckets) {
    Metrics metrics{{.wait_buckets = {0.0001, 0.1, 2.5}}};
    for (const auto waited : std::vector<std::chrono::nanoseconds>{
             0ns, 100us, 100001ns, 99ms, 100ms, 101ms, 2500ms, 2501ms, 24h, -1ns}) {
        metrics.acquired({"job", waited, 1});
    }
    EXPECT_EQ(value(metrics, R"(redlatch_wait_seconds_bucket{le="0.0001"})"), "3");
    EXPECT_EQ(value(metrics, R"(redlatch_wait_seconds_bucket{le="0.1"})"), "6");
    EXPECT_EQ(value(metrics, R"(redlatch_wait_seconds_bucket{le="2.5"})"), "8");
    EXPECT_EQ(value(metrics, R"(redlatch_wait_seconds_bucket{le="+Inf"})"), "10");
    EXPECT_EQ(value(metrics, "redlatch_wait_seconds_count"), "10");
    EXPECT_EQ(value(metrics, "redlatch_wait_seconds_sum"), "86405.301200001");
    EXPECT_EQ(value(metrics, "redlatch_hold_seconds_count"), "0");
}

TEST(Metrics, has_buckets_from_a_tenth_of_a_millisecond_to_minutes) {
    const std::string text = Metrics{}.prometheus();
    for (const char* const name : {"wait", "hold"}) {
        const std::string bucket = std::string{"redlatch_"} + name + "_seconds_bucket{le=\"";
        EXPECT_EQ(count_of(bucket, text), 15U);
        EXPECT_NE(text.find(bucket + "0.0001\"}"), std::string::npos) << text;
        EXPECT_NE(text.find(bucket + "300\"}"), std::string::npos) << text;
    }
}

TEST(Metrics, may_have_no_bucket) {
    Metrics metrics{{.hold_buckets = {}}};
    metrics.hold_ended({"job", 1500ms});
    EXPECT_EQ(value(metrics, R"(redlatch_hold_seconds_bucket{le="+Inf"})"), "1");
    EXPECT_EQ(value(metrics, "redlatch_hold_seconds_sum"), "1.500000000");
}

TEST(Metrics, knows_how_many_hold_and_how_many_wait) {
    Metrics metrics;
    for (int i = 0; i < 3; ++i) {
        metrics.wait_began({"job"});
        metrics.hold_began({"job"});
    }
    EXPECT_EQ(value(metrics, "redlatch_held"), "3");
    EXPECT_EQ(value(metrics, "redlatch_waiting"), "3");
    metrics.wait_ended({"job", 1s, {}});
    EXPECT_EQ(value(metrics, "redlatch_tries_total"), "0");
    metrics.wait_ended({"job", 1s, Unexpected{Error{Errc::cancelled, "job", {}, {}, {}}}, 7});
    EXPECT_EQ(value(metrics, "redlatch_tries_total"), "7");
    metrics.hold_ended({"job", 1s});
    EXPECT_EQ(value(metrics, "redlatch_held"), "2");
    EXPECT_EQ(value(metrics, "redlatch_waiting"), "1");
    EXPECT_EQ(value(metrics, "redlatch_hold_seconds_count"), "1");
}

TEST(Metrics, take_an_end_that_comes_before_its_beginning) {
    Metrics metrics;
    metrics.hold_ended({"job", 1s});
    EXPECT_EQ(value(metrics, "redlatch_held"), "0") << "never less than nothing";
    metrics.hold_began({"job"});
    metrics.hold_began({"job"});
    EXPECT_EQ(value(metrics, "redlatch_held"), "1");
}

TEST(Metrics, begin_anew_in_a_forked_child_with_what_there_is_now) {
    Metrics metrics;
    metrics.hold_began({"job"});
    metrics.wait_began({"job"});
    ChildProcess child{[&](LineChannel&) {
        const bool none =
            value(metrics, "redlatch_held") == "0" && value(metrics, "redlatch_waiting") == "0";
        metrics.hold_began({"other"});
        return none && value(metrics, "redlatch_held") == "1" ? 0 : 1;
    }};
    EXPECT_EQ(child.wait(), ExitStatus{});
    EXPECT_EQ(value(metrics, "redlatch_held"), "1");
}

TEST(Metrics, refuses_buckets_that_are_none) {
    using Limits = std::numeric_limits<double>;
    for (const std::vector<double>& bad :
         std::vector<std::vector<double>>{{0},
                                          {-1},
                                          {1, 1},
                                          {2, 1},
                                          {0.1, Limits::infinity()},
                                          {Limits::quiet_NaN()},
                                          {1, Limits::quiet_NaN()}}) {
        EXPECT_EQ(refused({.wait_buckets = bad}), Errc::invalid_argument);
        EXPECT_EQ(refused({.hold_buckets = bad}), Errc::invalid_argument);
    }
    EXPECT_EQ(refused({.wait_buckets = {Limits::denorm_min(), Limits::max()}}), Errc{});
}

TEST(Metrics, refuses_a_number_of_labels_that_is_none) {
    EXPECT_EQ(refused({.label = prefix, .max_labels = 0}), Errc::invalid_argument);
    EXPECT_EQ(refused({.label = prefix, .max_labels = 10'001}), Errc::invalid_argument);
    EXPECT_EQ(refused({.label = prefix, .max_labels = 10'000}), Errc{});
    EXPECT_EQ(refused({.max_labels = 0}), Errc{}) << "there are none anyway";
}

TEST(Metrics, has_no_label_for_a_lock_unless_it_is_told_one) {
    Metrics metrics;
    let_all_happen(metrics, "order:1");
    const std::string text = metrics.prometheus();
    EXPECT_EQ(text.find("lock="), std::string::npos) << text;
    EXPECT_EQ(text.find("order"), std::string::npos) << text;
}

TEST(Metrics, counts_each_label_apart) {
    Metrics metrics{{.label = prefix}};
    metrics.acquired({"order:1", 1ms, 1});
    metrics.acquired({"order:2", 1ms, 2});
    metrics.acquired({"stock:1", 1ms, 4});
    metrics.lost({"stock:1", 1s});
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="order"})"), "3");
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="stock"})"), "4");
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="other"})"), "0");
    EXPECT_EQ(value(metrics, R"(redlatch_wait_seconds_bucket{lock="order",le="0.001"})"), "2");
    EXPECT_EQ(value(metrics, R"(redlatch_lost_total{lock="stock"})"), "1");
    EXPECT_EQ(value(metrics, R"(redlatch_releases_total{lock="stock",outcome="expired"})"), "0");
}

TEST(Metrics, counts_under_other_what_comes_beyond_the_last_label) {
    Metrics metrics{{.label = prefix, .max_labels = 2}};
    for (const char* const lock : {"other", "a", "b", "c", "a", "d", "b", "c"}) {
        metrics.acquired({lock, 1ms, 1});
    }
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="a"})"), "2");
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="b"})"), "2");
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="other"})"), "4");
    EXPECT_EQ(count_of("\nredlatch_tries_total{", metrics.prometheus()), 3U);
}

TEST(Metrics, refuses_a_beginning_where_there_is_no_memory_for_its_label) {
    Metrics metrics{{.label = [](std::string_view) -> std::string { throw std::bad_alloc{}; }}};
    EXPECT_THROW(metrics.hold_began({"job"}), std::bad_alloc);
}

TEST(Metrics, counts_under_other_where_the_label_function_throws) {
    Metrics metrics{
        {.label = [](std::string_view) -> std::string { throw std::runtime_error{"no label"}; }}};
    metrics.acquired({"job", 1ms, 5});
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="other"})"), "5");
}

TEST(Metrics, agrees_on_one_label_whoever_comes_first) {
    constexpr int threads = 8;
    constexpr int locks = 50;
    constexpr int rounds = 20;
    Metrics metrics{{.label = prefix, .max_labels = 25}};
    std::atomic<int> ready{0};
    {
        std::vector<std::jthread> all;
        for (int i = 0; i < threads; ++i) {
            all.emplace_back([&] {
                for (++ready; ready < threads;) std::this_thread::yield();
                for (int n = 0; n < locks * rounds; ++n) {
                    metrics.acquired({std::to_string(n % locks), 1ms, 1});
                }
            });
        }
    }
    const std::string text = metrics.prometheus();
    EXPECT_EQ(count_of("\nredlatch_tries_total{", text), 26U);
    const std::string each = "} " + std::to_string(threads * rounds) + "\n";
    const auto tries = text.find("\nredlatch_tries_total{");
    const auto end = text.find("# ", tries);
    EXPECT_EQ(count_of(each, text.substr(tries, end - tries)), 25U) << "none was in two places";
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="other"})"),
              std::to_string(25 * threads * rounds));
}

TEST(Metrics, escapes_labels) {
    Metrics metrics{{.label = [](std::string_view lock) { return std::string{lock}; }}};
    metrics.acquired({"a\\b\"c\nd", 1ms, 1});
    EXPECT_EQ(value(metrics, R"(redlatch_tries_total{lock="a\\b\"c\nd"})"), "1");
}

TEST(Metrics, replaces_in_labels_what_is_no_utf8) {
    const std::vector<std::pair<std::string, std::string>> cases{
        {"plain \x7f", "plain \x7f"},
        {"\xc3\xbc \xe2\x82\xac \xf0\x9f\x94\x92", "\xc3\xbc \xe2\x82\xac \xf0\x9f\x94\x92"},
        {std::string(1, '\0'), "?"},
        {"\x80", "?"},
        {"a\xff"
         "b",
         "a?b"},
        {"\xc3", "?"},                    // the end is missing
        {"\xe2\x82", "??"},               //
        {"\xf0\x9f\x94z", "???z"},        //
        {"\xc0\xaf", "??"},               // '/' in a longer form
        {"\xe0\x80\xaf", "???"},          //
        {"\xf0\x80\x80\xaf", "????"},     //
        {"\xed\xa0\x80", "???"},          // half of a pair
        {"\xf4\x90\x80\x80", "????"},     // beyond U+10FFFF
        {"\xf5\x80\x80\x80", "????"},     //
        {"\xed\x9f\xbf", "\xed\x9f\xbf"}  // just before the halves
    };
    for (const auto& [lock, shown] : cases) {
        Metrics metrics{{.label = [](std::string_view name) { return std::string{name}; }}};
        metrics.acquired({lock, 1ms, 1});
        std::string expected;
        for (const char c : shown) c == '?' ? expected.append("\xef\xbf\xbd") : expected += c;
        EXPECT_EQ(value(metrics, "redlatch_tries_total{lock=\"" + expected + "\"}"), "1")
            << testing::PrintToString(lock);
    }
}

TEST(Metrics, counts_names_that_look_alike_as_one) {
    Metrics metrics{{.label = [](std::string_view name) { return std::string{name}; }}};
    metrics.acquired({"\xff", 1ms, 1});
    metrics.acquired({"\xfe", 1ms, 1});
    EXPECT_EQ(value(metrics, "redlatch_tries_total{lock=\"\xef\xbf\xbd\"}"), "2");
}

TEST(Metrics, print_what_promtool_finds_nothing_wrong_with) {
    Metrics plain;
    let_all_happen(plain, "job");
    Metrics labelled{{.label = [](std::string_view lock) { return std::string{lock}; }}};
    for (const char* const lock : {"job", "", "a b", "q\"\\\n", "\xff", "\xc3\xbc", "\r\t\x01"}) {
        let_all_happen(labelled, lock);
    }
    labelled.acquired({std::string(3, '\0'), 1ms, 1});
    try {
        EXPECT_EQ(complaints(Metrics{}.prometheus()), "");
        EXPECT_EQ(complaints(plain.prometheus()), "");
        EXPECT_EQ(complaints(labelled.prometheus()), "");
        EXPECT_NE(complaints("# TYPE redlatch_tries counter\nredlatch_tries 1\n"), "");
        EXPECT_NE(complaints("redlatch_tries_total{lock=\"a\nb\"} 1\n"), "");
    } catch (const std::system_error& e) {
        GTEST_SKIP() << "no promtool to ask: .ci/promtool fetches one (" << e.what() << ")";
    }
}

}  // namespace
