#include <redlatch/core/command_queue.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <string>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace std::chrono_literals;

class ACommandQueue : public ::testing::Test {
protected:
    struct Entry final : QueuedCommand {
        explicit Entry(std::string what) : name(std::move(what)) {}
        std::string name;
    };

    Entry& add(std::string name, CommandRank rank = CommandRank::usual,
               std::string_view token = {}) {
        Entry& entry = entries_.emplace_back(std::move(name));
        queue_.add(entry, rank, token);
        return entry;
    }
    /// While there is no connection.
    void add_at(TimePoint now, std::string name) {
        queue_.add(entries_.emplace_back(std::move(name)), CommandRank::usual, {}, now);
    }

    /// Writes all that may be written.
    std::string write(std::size_t bytes_of_each = 1) {
        std::string names;
        std::size_t bytes = 0;
        while (QueuedCommand* const next = queue_.next_to_write(bytes)) {
            next->command.connected({.reused = queue_.is_reused()});
            queue_.written(*next, now_);
            names += name_of(next);
            bytes += bytes_of_each;
        }
        return names;
    }

    std::string answer() { return name_of(queue_.answered(now_)); }

    std::string take_failed() {
        std::string names;
        while (QueuedCommand* const failed = queue_.take_failed()) names += name_of(failed);
        return names;
    }

    static std::string name_of(QueuedCommand* command) {
        return command == nullptr ? "-" : static_cast<Entry*>(command)->name;
    }

    static constexpr ConnectionFailure gone{.disconnected = true, .maybe_executed = true};

    std::deque<Entry> entries_;
    TimePoint now_{1h};
    CommandQueue queue_{{.command_timeout = 100ms, .written = 4, .bytes = 10}};
};

TEST_F(ACommandQueue, writes_in_order_and_matches_answers_in_that_order) {
    for (const char* name : {"a", "b", "c"}) add(name);
    EXPECT_TRUE(queue_.has_unwritten());
    EXPECT_FALSE(queue_.has_written());
    EXPECT_EQ(write(), "abc");
    EXPECT_FALSE(queue_.has_unwritten());
    EXPECT_TRUE(queue_.has_written());
    EXPECT_EQ(answer(), "a");
    add("d");
    EXPECT_EQ(write(), "d");
    EXPECT_EQ(answer(), "b");
    EXPECT_EQ(answer(), "c");
    EXPECT_EQ(answer(), "d");
    EXPECT_EQ(answer(), "-") << "none is due";
}

TEST_F(ACommandQueue, writes_releases_and_extensions_first) {
    add("a");
    add("r", CommandRank::release, "1");
    add("x", CommandRank::extension, "2");
    add("b");
    EXPECT_EQ(write(), "rxab");
}

TEST_F(ACommandQueue, has_so_many_written_at_a_time) {
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) add(name);
    EXPECT_EQ(write(), "abcd");
    EXPECT_EQ(write(), "");
    EXPECT_EQ(answer(), "a");
    EXPECT_EQ(write(), "e");
    queue_.abandon(entries_[1]);
    EXPECT_EQ(write(), "") << "one that was given up has its place until it is answered";
}

TEST_F(ACommandQueue, writes_so_many_bytes_at_a_time) {
    for (const char* name : {"a", "b", "c"}) add(name);
    EXPECT_EQ(write(6), "ab") << "the last one may be longer";
    EXPECT_EQ(write(20), "c") << "one always goes";
    for (const char* name : {"d", "e", "f"}) add(name);
    EXPECT_EQ(answer(), "a");
    EXPECT_EQ(answer(), "b");
    EXPECT_EQ(write(5), "de") << "as many as are allowed";
}

TEST_F(ACommandQueue, takes_out_what_is_unwritten_of_a_token_before_its_release) {
    add("a", CommandRank::usual, "mine");
    EXPECT_EQ(write(), "a");
    add("b", CommandRank::usual, "mine");
    add("x", CommandRank::extension, "mine");
    add("c", CommandRank::usual, "other");
    Entry& again = add("d", CommandRank::usual, "mine");
    queue_.repeat(*queue_.answered(now_));
    add("r", CommandRank::release, "mine");
    EXPECT_TRUE(again.is_withdrawn());
    EXPECT_FALSE(entries_[3].is_withdrawn());
    EXPECT_EQ(write(), "rc");
    EXPECT_EQ(take_failed(), "bxda");
}

TEST_F(ACommandQueue, looks_only_at_what_may_be_of_that_token) {
    constexpr int count = 100'000;
    std::vector<std::string> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back("token " + std::to_string(i));
    for (const std::string& token : tokens) add({}, CommandRank::usual, token);
    for (const std::string& token : tokens) queue_.withdraw(token + " of another");
    for (const std::string& token : tokens) queue_.withdraw(token);
    EXPECT_FALSE(queue_.has_unwritten());
}

TEST_F(ACommandQueue, takes_it_out_also_where_nothing_was_ever_written) {
    add("a", CommandRank::usual, "mine");
    add("r", CommandRank::release, "mine");
    EXPECT_EQ(write(), "r");
}

TEST_F(ACommandQueue, takes_it_out_where_the_release_goes_elsewhere) {
    add("a", CommandRank::usual, "mine");
    add("b", CommandRank::usual, "other");
    queue_.withdraw("mine");
    EXPECT_EQ(take_failed(), "a");
    EXPECT_EQ(write(), "b");
}

TEST_F(ACommandQueue, leaves_a_release_alone_when_an_extension_of_its_token_comes) {
    add("r", CommandRank::release, "mine");
    add("x", CommandRank::extension, "mine");
    EXPECT_EQ(write(), "rx");
}

TEST_F(ACommandQueue, writes_once_more_before_all_others_what_is_repeated) {
    add("a");
    add("b");
    EXPECT_EQ(write(), "ab");
    add("r", CommandRank::release, "1");
    queue_.repeat(*queue_.answered(now_));
    queue_.repeat(*queue_.answered(now_));
    EXPECT_EQ(write(), "abr");
}

TEST_F(ACommandQueue, forgets_what_is_abandoned_before_it_was_written) {
    Entry& a = add("a", CommandRank::usual, "t");
    add("b");
    EXPECT_FALSE(queue_.abandon(a));
    EXPECT_FALSE(queue_.abandon(a)) << "twice";
    add("r", CommandRank::release, "t");
    EXPECT_EQ(write(), "rb");
    EXPECT_EQ(take_failed(), "");
}

TEST_F(ACommandQueue, keeps_what_is_abandoned_once_it_was_written) {
    Entry& a = add("a");
    add("b");
    EXPECT_EQ(write(), "ab");
    EXPECT_TRUE(queue_.abandon(a));
    EXPECT_TRUE(a.is_abandoned());
    EXPECT_EQ(answer(), "a") << "the answer that comes first is its";
    EXPECT_EQ(answer(), "b");
    EXPECT_FALSE(queue_.abandon(a)) << "it has its answer";
    Entry& never_added = entries_.emplace_back("never");
    EXPECT_FALSE(queue_.abandon(never_added));
    EXPECT_FALSE(never_added.is_abandoned());
    EXPECT_FALSE(never_added.is_unwritten());
}

TEST_F(ACommandQueue, repeats_nothing_of_what_is_abandoned) {
    Entry& a = add("a");
    EXPECT_EQ(write(), "a");
    queue_.abandon(a);
    queue_.answered(now_);
    EXPECT_EQ(a.command.answered(ReplyKind::late).next, CommandStep::Next::fail);
}

TEST_F(ACommandQueue, gives_back_what_was_written_when_the_connection_goes) {
    for (const char* name : {"a", "b", "c", "d", "e"}) add(name);
    EXPECT_EQ(write(), "abcd");
    answer();
    queue_.abandon(entries_[1]);
    queue_.disconnected(gone);
    EXPECT_EQ(take_failed(), "bcd");
    EXPECT_TRUE(entries_[2].command.unclear());
    EXPECT_FALSE(queue_.has_written());
    EXPECT_EQ(queue_.gone_at(), TimePoint::max());
    EXPECT_EQ(write(), "e") << "over the next one";
    EXPECT_FALSE(entries_[4].command.unclear());
}

TEST_F(ACommandQueue, gives_back_what_is_unwritten_where_there_will_be_no_connection) {
    Entry& a = add("a");
    add("b");
    add("x", CommandRank::extension);
    queue_.not_connected(TimePoint::max());
    EXPECT_FALSE(queue_.has_unwritten());
    EXPECT_FALSE(queue_.abandon(a)) << "before it was given back";
    EXPECT_EQ(take_failed(), "xb");
    EXPECT_FALSE(entries_[1].command.unclear());
}

TEST_F(ACommandQueue, keeps_what_came_after_an_attempt_to_connect_began_for_the_next_one) {
    add("before");
    add_at(now_ - 1ms, "waiting");
    add_at(now_, "beginning");
    add_at(now_ + 1ms, "later");
    queue_.not_connected(now_);
    EXPECT_EQ(take_failed(), "beforewaitingbeginning");
    EXPECT_TRUE(queue_.has_unwritten());
    EXPECT_EQ(write(), "later");
}

TEST_F(ACommandQueue, knows_whether_answers_come) {
    EXPECT_FALSE(queue_.gets_answers(now_));
    add("a");
    add("b");
    write();
    EXPECT_FALSE(queue_.gets_answers(now_));
    answer();
    EXPECT_TRUE(queue_.gets_answers(now_ + 99ms));
    EXPECT_FALSE(queue_.gets_answers(now_ + 100ms));
}

TEST_F(ACommandQueue, takes_out_what_is_unwritten_of_a_token_among_any_number_of_others) {
    constexpr std::size_t count = 5000;
    std::deque<std::string> tokens;
    for (std::size_t i = 0; i < count; ++i) {
        add("a", CommandRank::usual, tokens.emplace_back("owner:" + std::to_string(i)));
    }
    for (std::size_t i = 0; i < count; ++i) {
        add("r", CommandRank::release, tokens[i]);
        ASSERT_EQ(take_failed(), "a");
        ASSERT_TRUE(entries_[i].is_withdrawn());
    }
}

TEST_F(ACommandQueue, writes_once_more_what_may_have_met_a_connection_that_was_dead) {
    add("a");
    write();
    answer();
    EXPECT_TRUE(queue_.is_reused());
    add("b");
    add("c");
    EXPECT_EQ(write(), "bc");
    queue_.abandon(entries_[2]);
    queue_.disconnected(gone);
    EXPECT_FALSE(queue_.is_reused());
    EXPECT_EQ(take_failed(), "c") << "nobody waits for it";
    EXPECT_EQ(write(), "b");
    EXPECT_TRUE(entries_[1].command.unclear());
    queue_.disconnected(gone);
    EXPECT_EQ(take_failed(), "b") << "not for ever";
}

TEST_F(ACommandQueue, is_not_reused_once_an_answer_shows_that_the_server_is_there) {
    add("a");
    EXPECT_FALSE(queue_.is_reused()) << "it is new";
    write();
    answer();
    add("b");
    add("c");
    write();
    EXPECT_TRUE(queue_.is_reused());
    answer();
    EXPECT_FALSE(queue_.is_reused());
    answer();
    EXPECT_TRUE(queue_.is_reused());
}

TEST_F(ACommandQueue, tells_of_what_was_abandoned_before_it_was_written_a_second_time) {
    add("a");
    write();
    answer();
    Entry& b = add("b");
    write();
    queue_.disconnected(gone);
    EXPECT_TRUE(queue_.abandon(b)) << "the first sending may be carried out";
    EXPECT_EQ(write(), "");
    EXPECT_EQ(take_failed(), "b") << "and nobody will ever know";
}

TEST_F(ACommandQueue, keeps_what_is_held_until_it_is_taken_or_the_connection_goes) {
    for (const char* name : {"a", "b", "c"}) add(name);
    write();
    for (int i = 0; i < 3; ++i) queue_.hold(*queue_.answered(now_));
    EXPECT_TRUE(queue_.has_held());
    EXPECT_TRUE(queue_.abandon(entries_[1])) << "it has been carried out";
    EXPECT_EQ(name_of(queue_.take_held()), "a");
    queue_.disconnected({.maybe_executed = true});
    EXPECT_FALSE(queue_.has_held());
    EXPECT_EQ(take_failed(), "bc");
    EXPECT_TRUE(entries_[2].command.unclear());
}

TEST_F(ACommandQueue, gives_the_connection_up_after_so_long_without_an_answer) {
    EXPECT_EQ(queue_.gone_at(), TimePoint::max());
    add("a");
    EXPECT_EQ(queue_.gone_at(), TimePoint::max()) << "nothing is written";
    write();
    EXPECT_EQ(queue_.gone_at(), now_ + 100ms);
    now_ += 30ms;
    add("b");
    write();
    EXPECT_EQ(queue_.gone_at(), now_ + 70ms) << "by the oldest";
    now_ += 30ms;
    answer();
    EXPECT_EQ(queue_.gone_at(), now_ + 100ms) << "by the last answer";
    answer();
    EXPECT_EQ(queue_.gone_at(), TimePoint::max());
    now_ += 1h;
    add("c");
    write();
    EXPECT_EQ(queue_.gone_at(), now_ + 100ms) << "it owed nothing before";
}

TEST_F(ACommandQueue, writes_once_more_what_has_not_waited_as_long_as_it_may) {
    add("a");
    write();
    now_ += 30ms;
    add("b");
    add("c");
    write();
    queue_.abandon(entries_[1]);
    now_ += 70ms;
    ASSERT_EQ(queue_.gone_at(), now_);
    queue_.timed_out(now_);
    EXPECT_EQ(take_failed(), "ab") << "nobody waits for one of them any more";
    EXPECT_EQ(write(), "c");
    EXPECT_TRUE(entries_[2].command.unclear()) << "the first sending may be carried out";
    now_ += 60ms;
    add("d");
    write();
    now_ += 40ms;
    queue_.timed_out(now_);
    EXPECT_EQ(take_failed(), "c") << "once";
    EXPECT_EQ(write(), "d");
}

TEST_F(ACommandQueue, begins_anew_on_the_connection_behind_one_that_was_given_up) {
    add("a");
    write();
    answer();
    add("b");
    write();
    EXPECT_TRUE(queue_.is_reused());
    now_ += 100ms;
    queue_.timed_out(now_);
    EXPECT_FALSE(queue_.is_reused());
}

TEST_F(ACommandQueue, repeats_nothing_at_a_server_that_answers_slowly) {
    for (const char* name : {"a", "b", "c", "d"}) add(name);
    write();
    for (int i = 0; i < 3; ++i) {
        now_ += 90ms;
        answer();
    }
    add("e");
    write();
    now_ += 30ms;
    ASSERT_EQ(queue_.gone_at(), now_);
    queue_.timed_out(now_);
    EXPECT_EQ(take_failed(), "de");
    EXPECT_EQ(write(), "");
}

TEST_F(ACommandQueue, gives_the_connection_up_where_answers_trickle_in) {
    for (const char* name : {"a", "b", "c", "d"}) add(name);
    write();
    const TimePoint written = now_;
    for (int i = 0; i < 3; ++i) {
        now_ += 90ms;
        answer();
    }
    EXPECT_EQ(queue_.gone_at(), written + 300ms) << "the oldest has waited three times as long";
}

TEST_F(ACommandQueue, knows_when_a_command_was_sent_first) {
    Entry& a = add("a");
    EXPECT_EQ(a.sent(), TimePoint::min());
    write();
    const TimePoint first = now_;
    now_ += 10ms;
    queue_.repeat(*queue_.answered(now_));
    write();
    EXPECT_EQ(a.sent(), first);
    EXPECT_EQ(a.written_at(), now_);
    EXPECT_EQ(queue_.gone_at(), now_ + 100ms);
}

}  // namespace
