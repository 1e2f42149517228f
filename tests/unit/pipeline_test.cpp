#include "other_end.hpp"
#include <redlatch/net/pipeline.hpp>

#include <gtest/gtest.h>

#include <poll.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;

/// A pipeline, and the other end of its connection.
class PipelineOf : public ::testing::Test, protected test::OtherEnd {
protected:
    using Pipeline = detail::Pipeline<int>;

    /// Which command has been answered, and what; an empty text where nothing has come.
    std::string next() {
        auto answered = pipeline_.next_answer();
        if (!answered) return "fault";
        if (!*answered) return {};
        const auto& [order, reply] = **answered;
        const std::string what = reply ? std::to_string(reply->view().integer().value_or(-1))
                                       : reply.error().error.message;
        return std::to_string(order) + ": " + what;
    }

    Pipeline pipeline_{connect()};
};

TEST_F(PipelineOf, commands_sends_them_without_an_answer_to_those_before) {
    EXPECT_TRUE(pipeline_.idle());
    pipeline_.add("one ", 1);
    pipeline_.add("two ", 2);
    ASSERT_TRUE(pipeline_.flush());
    EXPECT_EQ(sent(), "one two ");
    pipeline_.add("three", 3);
    ASSERT_TRUE(pipeline_.flush());
    EXPECT_EQ(sent(), "three");
    EXPECT_EQ(next(), "") << "which does not wait";
    EXPECT_FALSE(pipeline_.idle());
}

TEST_F(PipelineOf, commands_matches_answers_in_their_order) {
    for (const int order : {1, 2, 3}) pipeline_.add("command", order);
    answer(":10\r\n-ERR no\r\n:3");
    EXPECT_EQ(next(), "1: 10");
    EXPECT_EQ(next(), "2: ERR no") << "an error is an answer too";
    EXPECT_EQ(next(), "") << "half of one is none";
    answer("0\r\n");
    EXPECT_EQ(next(), "3: 30");
    EXPECT_TRUE(pipeline_.idle());
}

TEST_F(PipelineOf, commands_waits_to_write_what_was_added_behind_a_flush) {
    ASSERT_TRUE(pipeline_.flush());
    EXPECT_EQ(pipeline_.more_to_come().events & POLLOUT, 0);
    pipeline_.add("command", 1);
    EXPECT_NE(pipeline_.more_to_come().events & POLLOUT, 0);
    ASSERT_TRUE(pipeline_.flush());
    EXPECT_EQ(pipeline_.more_to_come().events & POLLOUT, 0);
}

TEST_F(PipelineOf, commands_gives_back_those_that_will_have_no_answer) {
    for (const int order : {1, 2, 3}) pipeline_.add("command", order);
    answer(":1\r\n");
    hang_up();
    EXPECT_EQ(next(), "1: 1");
    EXPECT_EQ(next(), "fault");
    EXPECT_EQ(pipeline_.take_unanswered(), (std::vector{2, 3}));
    EXPECT_TRUE(pipeline_.idle());
}

TEST_F(PipelineOf, commands_blocks_for_no_server_that_does_not_read) {
    const std::string command(100'000, 'x');
    for (int i = 0; i < 50; ++i) {
        pipeline_.add(command, i);
        ASSERT_TRUE(pipeline_.flush());
    }
    EXPECT_TRUE(pipeline_.more_to_come().events & POLLOUT);
    std::size_t arrived = 0;
    while (arrived < 50 * command.size()) {
        const std::string some = sent();
        ASSERT_EQ(some.find_first_not_of('x'), std::string::npos);
        arrived += some.size();
        ASSERT_TRUE(pipeline_.flush());
    }
    EXPECT_FALSE(pipeline_.more_to_come().events & POLLOUT);
}

TEST_F(PipelineOf, commands_knows_since_when_it_waits_for_an_answer) {
    using detail::TimePoint;
    EXPECT_EQ(pipeline_.oldest(), TimePoint::max());
    const TimePoint before = Clock::now();
    pipeline_.add("command", 1);
    const TimePoint after = Clock::now();
    pipeline_.add("command", 2);
    EXPECT_GE(pipeline_.oldest(), before);
    EXPECT_LE(pipeline_.oldest(), after) << "the first";
    answer(":1\r\n");
    EXPECT_EQ(next(), "1: 1");
    EXPECT_GE(pipeline_.oldest(), after) << "the second";
}

}  // namespace
