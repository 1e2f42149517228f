// A link, and the other end of its connections.

#include "other_end.hpp"
#include "service_tools.hpp"
#include <redlatch/net/link.hpp>

#include <gtest/gtest.h>

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace redlatch::test;
using namespace std::chrono_literals;

class ALink : public ::testing::Test, protected OtherEnd {
protected:
    struct Told final : LinkCommand {
        Told(ALink& its, std::string what, const Script* text)
            : test(&its), name(std::move(what)), script(text) {}

        Call call(bool again) const override {
            if (script != nullptr) return {*script, {name}, {}};
            return Call::plain({again ? "AGAIN" : "DO", name}, shape);
        }
        TimePoint answer_by() const noexcept override { return TimePoint::max(); }
        void ended(Expected<Reply, Fault>&& reply, CommandStep::Next) noexcept override {
            std::string& to = is_abandoned() ? test->late_ : test->answers_;
            to += name + "=";
            if (reply) {
                replicas = reply->replicas;
                replicas_wanted = reply->replicas_wanted;
                to += std::to_string(reply->view().integer().value_or(-1));
            } else {
                to += std::string{reply.error().maybe_executed ? "unclear" : "not done"};
                last_fault = reply.error().error;
            }
            to += " ";
        }

        ALink* test;
        std::string name;
        const Script* script;
        ReplyShape shape = ReplyShape::integer;
        Error last_fault{};
        std::int64_t replicas = -1;
        std::int64_t replicas_wanted = -1;
    };

    ALink() { connect(link_); }

    Told& add(std::string name, CommandRank rank = CommandRank::usual, std::string_view token = {},
              const Script* script = nullptr) {
        Told& command = commands_.emplace_back(*this, std::move(name), script);
        link_.add(command, rank, token);
        return command;
    }

    void connect(Link& link) { link.connected(OtherEnd::connect()); }

    /// What commands were told since it was asked last.
    std::string told() { return std::exchange(answers_, {}); }
    std::string told_late() { return std::exchange(late_, {}); }

    static int count(std::string_view text, std::string_view part) {
        int times = 0;
        for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
        return times;
    }

    std::atomic<int> asked_{0};
    Node node_{std::make_unique<RefusingDialer>(asked_),
               {.command_timeout = 1s, .max_connections = 1},
               {}};
    std::deque<Told> commands_;
    std::string answers_;
    std::string late_;
    Link link_{node_, {.command_timeout = 1s}};
};

TEST_F(ALink, writes_all_that_there_is_in_one_go_and_matches_the_answers) {
    add("a");
    add("b");
    EXPECT_FALSE(link_.write());
    EXPECT_EQ(count(sent(), "DO"), 2);
    answer(":1\r\n:2\r\n");
    link_.read();
    EXPECT_EQ(told(), "a=1 b=2 ");
}

TEST_F(ALink, lets_no_more_be_written_at_a_time_than_the_limits_say) {
    Link narrow{node_, {.command_timeout = 1s, .written = 1000, .bytes = 30}};
    connect(narrow);
    for (const char* name : {"a", "b", "c"}) {
        narrow.add(commands_.emplace_back(*this, name, nullptr), CommandRank::usual, {});
    }
    EXPECT_TRUE(narrow.write()) << "there is more for the next turn";
    EXPECT_EQ(count(sent(), "DO"), 2);
    EXPECT_FALSE(narrow.write());
    EXPECT_EQ(count(sent(), "DO"), 1);
}

TEST_F(ALink, blocks_for_no_server_that_does_not_read) {
    const std::string name(100'000, 'x');
    for (int i = 0; i < 30; ++i) add(name);
    while (link_.write()) {
    }
    EXPECT_NE(link_.awaits().events & POLLOUT, 0);
    std::size_t arrived = 0;
    while ((link_.awaits().events & POLLOUT) != 0 || link_.has_unwritten()) {
        arrived += sent().size();
        link_.write();
    }
    arrived += sent().size();
    EXPECT_GT(arrived, 30 * name.size());
}

TEST_F(ALink, takes_answers_that_come_byte_by_byte) {
    add("a");
    add("b");
    link_.write();
    for (const char byte : std::string{":1\r\n:2\r\n"}) {
        answer({&byte, 1});
        link_.read();
    }
    EXPECT_EQ(told(), "a=1 b=2 ");
}

TEST_F(ALink, does_not_know_what_became_of_what_is_written_wherever_it_is_cut) {
    const std::string answers = ":1\r\n:22\r\n:3\r\n";
    for (std::size_t bytes = 0; bytes <= answers.size(); ++bytes) {
        SCOPED_TRACE(bytes);
        for (const char* name : {"a", "b", "c"}) add(name);
        link_.write();
        answer(answers.substr(0, bytes));
        add("d");
        hang_up();
        link_.read();
        EXPECT_FALSE(link_.is_connected());
        const std::string a = bytes >= 4 ? "a=1 " : "a=unclear ";
        const std::string b = bytes >= 9 ? "b=22 " : "b=unclear ";
        const std::string c = bytes >= 13 ? "c=3 " : "c=unclear ";
        EXPECT_EQ(told(), a + b + c);
        connect(link_);
        link_.write();
        EXPECT_EQ(count(sent(), "DO"), 1) << "the next connection takes what was unwritten";
        link_.break_off({});
        told();
        connect(link_);
    }
}

TEST_F(ALink, breaks_off_at_garbage_at_any_place) {
    const std::string answers = ":1\r\n:2\r\n";
    for (std::size_t place = 0; place < answers.size(); ++place) {
        SCOPED_TRACE(place);
        std::string garbled = answers;
        garbled[place] = '?';
        add("a");
        add("b");
        link_.write();
        answer(garbled);
        link_.read();
        link_.pass_time(
            link_.gone_at());  // of an end of line that is not there the rest is awaited
        const bool first_is_whole = place >= 4;
        EXPECT_EQ(told(), first_is_whole ? "a=1 b=unclear " : "a=unclear b=unclear ");
        EXPECT_FALSE(link_.is_connected());
        connect(link_);
    }
}

TEST_F(ALink, breaks_off_at_an_answer_of_another_shape_and_at_one_to_nothing) {
    add("a");
    Told& b = add("b");
    link_.write();
    answer("+OK\r\n:2\r\n");
    link_.read();
    EXPECT_EQ(told(), "a=unclear b=unclear ") << "answers and commands do not match any more";
    EXPECT_EQ(b.last_fault.code, Errc::protocol);
    connect(link_);
    answer(":1\r\n");
    link_.read();
    EXPECT_FALSE(link_.is_connected());
}

TEST_F(ALink, gives_up_a_server_that_is_silent_and_not_before) {
    add("a");
    EXPECT_EQ(link_.gone_at(), TimePoint::max());
    link_.write();
    const TimePoint gone = link_.gone_at();
    link_.pass_time(gone - 1ns);
    EXPECT_TRUE(link_.is_connected());
    link_.pass_time(gone);
    EXPECT_FALSE(link_.is_connected());
    EXPECT_EQ(told(), "a=unclear ");
    EXPECT_TRUE(link_.take_fault());
    EXPECT_FALSE(link_.take_fault());
}

TEST_F(ALink, gives_up_a_server_that_freezes_at_any_byte_as_if_it_had_not_begun_that_answer) {
    const std::string answers = ":1\r\n:22\r\n:3\r\n";
    for (std::size_t bytes = 0; bytes < answers.size(); ++bytes) {
        SCOPED_TRACE(bytes);
        for (const char* name : {"a", "b", "c"}) add(name);
        link_.write();
        const std::size_t whole = bytes >= 9 ? 9 : bytes >= 4 ? 4 : 0;
        answer(answers.substr(0, whole));
        link_.read();
        const TimePoint gone = link_.gone_at();
        answer(answers.substr(whole, bytes - whole));
        link_.read();
        EXPECT_EQ(link_.gone_at(), gone) << "a part of an answer buys no time";
        link_.pass_time(gone - 1ns);
        EXPECT_TRUE(link_.is_connected());
        link_.pass_time(gone);
        EXPECT_FALSE(link_.is_connected());
        const std::string a = whole >= 4 ? "a=1 " : "a=unclear ";
        const std::string b = whole >= 9 ? "b=22 " : "b=unclear ";
        EXPECT_EQ(told(), a + b + "c=unclear ");
        connect(link_);
    }
}

TEST_F(ALink, has_the_answer_to_what_was_abandoned_told_late) {
    Told& a = add("a");
    add("b");
    link_.write();
    EXPECT_TRUE(link_.abandon(a));
    answer(":1\r\n:2\r\n");
    link_.read();
    EXPECT_EQ(told(), "b=2 ");
    EXPECT_EQ(told_late(), "a=1 ");
}

TEST_F(ALink, takes_out_what_is_unwritten_of_a_token_that_is_released) {
    Told& stale = add("a", CommandRank::extension, "t");
    add("b", CommandRank::usual, "u");
    add("r", CommandRank::release, "t");
    EXPECT_EQ(told(), "") << "at once";
    link_.write();
    EXPECT_EQ(told(), "a=not done ");
    EXPECT_EQ(stale.last_fault.code, Errc::cancelled);
    EXPECT_EQ(count(sent(), "DO"), 2);
}

TEST_F(ALink, sends_a_script_whole_to_each_connection_until_it_has_run_there) {
    const Script script{"return 1"};
    const auto add_script = [&] { return &add("k", CommandRank::usual, {}, &script); };
    add_script();
    add_script();
    link_.write();
    EXPECT_EQ(count(sent(), "EVALSHA"), 1) << "the second";
    answer("-OOM no\r\n-NOSCRIPT no\r\n");
    link_.read();
    EXPECT_EQ(told(), "k=not done ");
    link_.write();
    std::string text = sent();
    EXPECT_EQ(count(text, "EVALSHA"), 0) << "what did not know it is sent whole";
    EXPECT_EQ(count(text, "EVAL"), 1);
    answer(":1\r\n");
    link_.read();
    EXPECT_EQ(told(), "k=1 ");
    add_script();
    link_.write();
    EXPECT_EQ(count(sent(), "EVALSHA"), 1);
    link_.break_off({});
    told();
    connect(link_);
    add_script();
    link_.write();
    text = sent();
    EXPECT_EQ(count(text, "EVALSHA"), 0);
    answer("-OOM no\r\n");
    link_.read();
    add_script();
    link_.write();
    EXPECT_EQ(count(sent(), "EVALSHA"), 0) << "it was refused unseen";
}

TEST_F(ALink, sends_an_asking_in_front_and_takes_its_answer_for_nobodys) {
    Told& a = commands_.emplace_back(*this, "a", nullptr);
    a.asking = true;
    link_.add(a, CommandRank::usual, {});
    add("b");
    link_.write();
    const std::string text = sent();
    EXPECT_LT(text.find("ASKING"), text.find("DO"));
    EXPECT_EQ(count(text, "ASKING"), 1);
    answer("+OK\r\n:1\r\n:2\r\n");
    link_.read();
    EXPECT_EQ(told(), "a=1 b=2 ");
}

class ALinkForReplicas : public ALink {
protected:
    /// An order for a lock.
    Told& add_to(Link& link, std::string name) {
        Told& command = commands_.emplace_back(*this, std::move(name), nullptr);
        command.shape = ReplyShape::ok_or_nil;
        link.add(command, CommandRank::usual, {});
        return command;
    }
};

TEST_F(ALinkForReplicas, writes_one_wait_behind_what_there_is_and_nothing_more_until_its_answer) {
    Link link{node_, {.command_timeout = 1s}, Replicas{1}};
    connect(link);
    add_to(link, "a");
    add_to(link, "b");
    EXPECT_FALSE(link.write());
    std::string text = sent();
    EXPECT_EQ(count(text, "DO"), 2);
    EXPECT_EQ(count(text, "WAIT\r\n$1\r\n1\r\n"), 1);
    add_to(link, "c");
    EXPECT_FALSE(link.write());
    answer("+OK\r\n$-1\r\n");
    link.read();
    EXPECT_EQ(told(), "b=-1 ") << "that is not ours: nobody has to have it";
    EXPECT_FALSE(link.write());
    EXPECT_EQ(sent(), "");
    answer(":1\r\n");
    link.read();
    EXPECT_EQ(told(), "a=-1 ");
    link.write();
    EXPECT_EQ(count(sent(), "DO"), 1);
    link.break_off(detail::unanswered_fault());  // its WAIT destroys itself with its end
}

TEST_F(ALinkForReplicas, counts_the_replicas_where_all_have_to_have_it) {
    Link link{node_, {.command_timeout = 1s}, Replicas::all()};
    connect(link);
    for (const char* there : {"2", "0"}) {
        add_to(link, "a");
        link.write();
        EXPECT_EQ(count(sent(), "WAIT"), 0);
        const std::string info = std::string{"role:master\r\nconnected_slaves:"} + there + "\r\n";
        answer("+OK\r\n$" + std::to_string(info.size()) + "\r\n" + info + "\r\n");
        link.read();
        if (there[0] == '2') {
            EXPECT_EQ(told(), "");
            link.write();
            EXPECT_EQ(count(sent(), "WAIT\r\n$1\r\n2\r\n"), 1);
            answer(":2\r\n");
            link.read();
        }
        EXPECT_EQ(told(), "a=-1 ");
    }
}

TEST_F(ALinkForReplicas, tells_that_none_have_it_where_its_time_is_over_before_they_answer) {
    Link link{node_, {.command_timeout = 1s}, Replicas{2}};
    connect(link);
    Told& a = add_to(link, "a");
    add_to(link, "b");
    link.write();
    EXPECT_FALSE(link.end_unacknowledged(a)) << "it is not known whether it was taken";
    answer("+OK\r\n+OK\r\n");
    link.read();
    EXPECT_EQ(told(), "");
    EXPECT_TRUE(link.end_unacknowledged(a));
    EXPECT_EQ(told(), "a=-1 ");
    EXPECT_EQ(a.replicas, 0);
    EXPECT_EQ(a.replicas_wanted, 2);
    answer(":2\r\n");
    link.read();
    EXPECT_EQ(told(), "b=-1 ");
    EXPECT_EQ(commands_.back().replicas, 2);
}

TEST_F(ALinkForReplicas, tells_nothing_of_what_is_written_once_more_before_its_answer) {
    Link link{node_, {.command_timeout = 1s}, Replicas::all()};
    connect(link);
    add_to(link, "first");
    link.write();
    answer("+OK\r\n$18\r\nconnected_slaves:0\r\n");
    link.read();
    EXPECT_EQ(told(), "first=-1 ");
    Told& a = add_to(link, "a");
    link.write();
    sent();
    answer("+OK\r\n");
    link.read();
    hang_up();
    link.read();
    EXPECT_EQ(told(), "") << "the connection may have been dead";
    connect(link);
    add_to(link, "b");
    link.write();
    EXPECT_EQ(count(sent(), "AGAIN"), 1);
    EXPECT_FALSE(link.end_unacknowledged(a));
    EXPECT_TRUE(link.abandon(a));
    answer("+OK\r\n$-1\r\n");
    link.read();
    EXPECT_EQ(told(), "b=-1 ") << "that of b, and not of a";
    EXPECT_EQ(commands_.back().replicas, 0);
    link.break_off({});
}

TEST_F(ALinkForReplicas, does_not_know_what_became_of_it_where_it_breaks_before_the_answer) {
    Link link{node_, {.command_timeout = 1s}, Replicas{1}};
    connect(link);
    add_to(link, "a");
    Told& b = add_to(link, "b");
    link.write();
    answer("+OK\r\n+OK\r\n");
    link.read();
    EXPECT_TRUE(link.abandon(b));
    hang_up();
    link.read();
    EXPECT_EQ(told(), "a=unclear ");
    EXPECT_EQ(told_late(), "b=unclear ");
    connect(link);
    link.write();
    EXPECT_EQ(sent(), "") << "nothing of the link's own either";
}

TEST_F(ALink, leaves_a_server_that_is_a_replica) {
    add("a");
    link_.write();
    answer("-READONLY no\r\n");
    link_.read();
    EXPECT_EQ(told(), "a=not done ");
    add("b");
    link_.write();
    EXPECT_FALSE(link_.is_connected());
    EXPECT_TRUE(link_.has_unwritten());
}

TEST_F(ALink, takes_no_answer_to_one_command_for_the_fault_of_another) {
    add("a");
    link_.write();
    sent();
    answer("-WRONGTYPE that of a\r\n");
    hang_up();
    Told& b = add("b");
    link_.write();  // before anybody reads
    link_.not_connected({});
    EXPECT_NE(told().find("b="), std::string::npos);
    EXPECT_EQ(b.last_fault.code, Errc::unavailable) << b.last_fault.message;
}

TEST_F(ALink, sends_what_may_have_met_a_dead_connection_once_more_and_otherwise) {
    add("a");
    link_.write();
    answer(":1\r\n");
    link_.read();
    add("b");
    link_.write();
    sent();
    hang_up();
    link_.read();
    EXPECT_EQ(told(), "a=1 ");
    connect(link_);
    link_.write();
    EXPECT_EQ(count(sent(), "AGAIN"), 1);
    answer(":2\r\n");
    link_.read();
    EXPECT_EQ(told(), "b=2 ");
}

TEST_F(ALink, ends_what_is_unwritten_where_there_is_no_connection) {
    link_.break_off({});
    add("a");
    EXPECT_FALSE(link_.write());
    link_.not_connected({});
    EXPECT_EQ(told(), "a=not done ");
    EXPECT_FALSE(link_.has_unwritten());
}

TEST_F(ALink, ends_nothing_that_came_after_a_failed_attempt_to_connect_had_begun) {
    link_.break_off({});
    add("a");
    const TimePoint begun = Clock::now();
    add("b");
    link_.not_connected({}, begun);
    EXPECT_EQ(told(), "a=not done ");
    connect(link_);
    link_.write();
    answer(":1\r\n");
    link_.read();
    EXPECT_EQ(told(), "b=1 ");
    add("c");
    link_.break_off({});
    link_.not_connected({}, Clock::now());
    EXPECT_EQ(told(), "c=not done ");
}

TEST_F(ALink, says_whether_a_command_only_waits_for_its_turn_while_others_get_answers) {
    Link narrow{node_, {.command_timeout = 1s, .written = 1}};
    connect(narrow);
    Told& a = commands_.emplace_back(*this, "a", nullptr);
    Told& b = commands_.emplace_back(*this, "b", nullptr);
    Told& c = commands_.emplace_back(*this, "c", nullptr);
    for (Told* const each : {&a, &b, &c}) narrow.add(*each, CommandRank::usual, {});
    narrow.write();
    EXPECT_FALSE(narrow.is_behind_others(b, Clock::now())) << "nothing has been answered yet";
    answer(":1\r\n");
    narrow.read();
    narrow.write();
    const TimePoint now = Clock::now();
    EXPECT_FALSE(narrow.is_behind_others(a, now)) << "it has ended";
    EXPECT_FALSE(narrow.is_behind_others(b, now)) << "it is written";
    EXPECT_TRUE(narrow.is_behind_others(c, now));
    EXPECT_FALSE(narrow.is_behind_others(c, now + 1s)) << "the server is silent";
    narrow.break_off({});
    EXPECT_FALSE(narrow.is_behind_others(c, now)) << "there is no connection";
    narrow.not_connected({});
}

}  // namespace
