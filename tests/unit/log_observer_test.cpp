// One line for each event, whatever the names are.

#include <redlatch/log_observer.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;

class LogObserverTest : public ::testing::Test {
protected:
    /// The lines since the last call.
    std::vector<std::string> lines() { return std::exchange(lines_, {}); }
    std::string line() {
        const auto all = lines();
        return all.size() == 1 ? all.front() : std::to_string(all.size()) + " lines";
    }

    std::vector<std::string> lines_;
    LogObserver log_{[this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(LogObserverTest, makes_a_line_of_each_event) {
    log_.wait_began({"order:4711"});
    EXPECT_EQ(line(), R"(event=wait_began lock="order:4711")");
    log_.acquired({"order:4711", 12400us, 3});
    EXPECT_EQ(line(), R"(event=acquired lock="order:4711" waited=12.400ms tries=3)");
    log_.timed_out({"order:4711", 2s, 7});
    EXPECT_EQ(line(), R"(event=timed_out lock="order:4711" waited=2000.000ms tries=7)");
    log_.released({"order:4711", 1500us, Release::released});
    EXPECT_EQ(line(), R"(event=released lock="order:4711" held_for=1.500ms outcome=released)");
    log_.renewed({"order:4711", 29s});
    EXPECT_EQ(line(), R"(event=renewed lock="order:4711" remaining=29000.000ms)");
    log_.lost({"order:4711", 3ms});
    EXPECT_EQ(line(), R"(event=lost lock="order:4711" held_for=3.000ms)");
    log_.reconnected({"127.0.0.1:6379"});
    EXPECT_EQ(line(), R"(event=reconnected node="127.0.0.1:6379")");
    log_.warning({"127.0.0.1:6379", "it evicts keys"});
    EXPECT_EQ(line(), R"(event=warning node="127.0.0.1:6379" message="it evicts keys")");
}

TEST_F(LogObserverTest, says_what_went_wrong) {
    const Error error{Errc::unavailable, "job", "/run/redis.sock", "no answer", {}};
    const std::string text =
        R"-(code=unavailable error="no usable answer in time: no answer (lock 'job' on /run/redis.sock)")-";
    log_.error(error);
    EXPECT_EQ(line(), R"(event=error lock="job" node="/run/redis.sock" )" + text);
    log_.error({Errc::denied, {}, {}, {}, {}});
    EXPECT_EQ(line(), R"(event=error code=denied error="access denied")");
    log_.released({"job", 1ms, Unexpected{error}});
    EXPECT_EQ(line(), R"(event=released lock="job" held_for=1.000ms )" + text);
    log_.wait_ended({"job", 1ms, Unexpected{error}});
    EXPECT_EQ(line(), R"(event=wait_ended lock="job" waited=1.000ms )" + text);
}

TEST_F(LogObserverTest, says_nothing_twice) {
    log_.hold_began({"job"});
    log_.hold_ended({"job", 1s});
    log_.wait_ended({"job", 1s, {}});
    log_.wait_ended({"job", 1s, Unexpected{Error{Errc::timed_out, "job", {}, {}, {}}}});
    EXPECT_TRUE(lines().empty());
}

TEST_F(LogObserverTest, makes_one_line_of_any_name) {
    const std::string name{"a\nevent=lost lock=\"b\"\\ \0\r\t\x1b[31m\xc3\xbc", 33};
    const std::string shown = R"("a\x0aevent=lost lock=\"b\"\\ \x00\x0d\x09\x1b[31m\xc3\xbc")";
    log_.lost({name, 0ms});
    EXPECT_EQ(line(), "event=lost lock=" + shown + " held_for=0.000ms");
    log_.error({Errc::protocol, name, name, name, {{Errc::denied, name, name, name, {}}}});
    log_.warning({name, name});
    log_.reconnected({name});
    log_.wait_ended({name, 1s, Unexpected{Error{Errc::cancelled, name, {}, name, {}}}});
    for (const std::string& line : lines()) {
        for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
        EXPECT_NE(line.find(shown.substr(1, 30)), std::string::npos) << line;
    }
}

TEST_F(LogObserverTest, shows_a_name_in_one_form_wherever_it_stands) {
    const std::string name{"a\n\"b\"\\"};
    log_.error({Errc::lost, name, {}, {}, {{Errc::denied, name, "node", {}, {}}}});
    EXPECT_EQ(
        line(),
        R"-(event=error lock="a\x0a\"b\"\\" code=lost error="the lock was lost (lock 'a\x0a\"b\"\\'); )-"
        R"-(access denied (lock 'a\x0a\"b\"\\' on node)")-");
}

TEST_F(LogObserverTest, needs_a_function) {
    try {
        const LogObserver log{LogObserver::Write{}};
        ADD_FAILURE() << "accepted";
    } catch (const LockError& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
    }
}

TEST_F(LogObserverTest, shows_no_time_below_a_microsecond_and_none_below_zero) {
    log_.acquired({"job", 1999ns, 1});
    EXPECT_EQ(line(), R"(event=acquired lock="job" waited=0.001ms tries=1)");
    log_.acquired({"job", -5s, 1});
    EXPECT_EQ(line(), R"(event=acquired lock="job" waited=0.000ms tries=1)");
    log_.acquired({"job", 100h, 1});
    EXPECT_EQ(line(), R"(event=acquired lock="job" waited=360000000.000ms tries=1)");
}

}  // namespace
