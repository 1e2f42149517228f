#include <redlatch/core/command.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace {

using redlatch::detail::Command;
using redlatch::detail::CommandStep;
using redlatch::detail::CommandTraits;
using redlatch::detail::ConnectionFailure;
using redlatch::detail::KeyAccess;
using redlatch::detail::ReplyKind;
using redlatch::detail::ReplyUse;

using enum CommandStep::Next;

constexpr CommandTraits script{.is_script = true, .can_omit_keys = true, .script_known = true};
constexpr CommandTraits new_script{.is_script = true, .can_omit_keys = true};
constexpr CommandTraits idle_script{
    .is_script = true, .can_omit_keys = true, .reused = true, .script_known = true};
constexpr CommandTraits plain{};

constexpr ConnectionFailure hung_up{.disconnected = true, .maybe_executed = true};
constexpr ConnectionFailure hung_up_before{.disconnected = true};
constexpr ConnectionFailure timed_out{.maybe_executed = true};

/// One that has been sent.
Command sent(const CommandTraits& traits, ReplyUse use = ReplyUse::awaited) {
    Command command{use};
    EXPECT_TRUE(command.connected(traits));
    return command;
}

CommandTraits with(CommandTraits traits, KeyAccess keys) {
    traits.keys = keys;
    return traits;
}

constexpr std::array all_uses{ReplyUse::awaited, ReplyUse::may_be_left, ReplyUse::left};

struct Row {
    ReplyKind kind;
    CommandStep::Next first;        ///< for a script, when it comes for the first time
    CommandStep::Next second;       ///< and when it comes again
    CommandStep::Next first_plain;  ///< for a plain command
    bool drops;
    bool leaves;
};

constexpr std::array rows{
    Row{ReplyKind::value, deliver, deliver, deliver, false, false},
    Row{ReplyKind::misshapen, fail, fail, fail, true, false},
    Row{ReplyKind::unknown_script, send, fail, fail, false, false},
    Row{ReplyKind::late, send, fail, send, false, false},
    Row{ReplyKind::denied, send, fail, fail, false, false},
    Row{ReplyKind::not_master, fail, fail, fail, false, true},
    Row{ReplyKind::redirected, redirect, redirect, redirect, false, false},
    Row{ReplyKind::error, fail, fail, fail, false, false},
};

TEST(CommandMachine, judges_each_kind_of_answer) {
    for (const Row& row : rows) {
        SCOPED_TRACE(static_cast<int>(row.kind));
        Command command = sent(script);
        const CommandStep step = command.answered(row.kind);
        EXPECT_EQ(step.next, row.first);
        EXPECT_EQ(step.drop_connection, row.drops);
        EXPECT_EQ(step.leave_server, row.leaves);
        EXPECT_EQ(command.answered(row.kind).next, row.second);
        EXPECT_EQ(sent(plain).answered(row.kind).next, row.first_plain);
    }
}

TEST(CommandMachine, repeats_nothing_for_a_sender_that_does_not_wait) {
    for (const Row& row : rows) {
        SCOPED_TRACE(static_cast<int>(row.kind));
        const CommandStep step = sent(script, ReplyUse::left).answered(row.kind);
        EXPECT_EQ(step.next, row.kind == ReplyKind::value ? deliver : fail);
        EXPECT_EQ(step.drop_connection, row.drops);
    }
}

TEST(CommandMachine, repeats_nothing_once_its_sender_has_left) {
    Command command = sent(idle_script, ReplyUse::may_be_left);
    command.leave();
    EXPECT_EQ(command.answered(ReplyKind::unknown_script).next, fail);
    EXPECT_EQ(command.answered(ReplyKind::late).next, fail);
    EXPECT_EQ(command.answered(ReplyKind::denied).next, fail);
    EXPECT_EQ(command.answered(ReplyKind::redirected).next, fail);
    EXPECT_EQ(command.failed(hung_up).next, fail);
}

TEST(CommandMachine, sends_a_script_whole_where_the_server_does_not_know_it) {
    Command command = sent(script);
    EXPECT_FALSE(command.form().whole);
    command.answered(ReplyKind::unknown_script);
    EXPECT_TRUE(command.form().whole);
    EXPECT_FALSE(command.form().first_key_only);
}

TEST(CommandMachine, sends_a_new_script_whole_where_its_answer_may_be_left) {
    EXPECT_FALSE(sent(new_script, ReplyUse::awaited).form().whole);
    EXPECT_TRUE(sent(new_script, ReplyUse::may_be_left).form().whole);
    EXPECT_FALSE(sent(script, ReplyUse::may_be_left).form().whole);
    EXPECT_FALSE(sent(plain, ReplyUse::may_be_left).form().whole);
}

TEST(CommandMachine, does_not_send_a_new_script_whose_answer_nobody_waits_for) {
    EXPECT_FALSE(Command{ReplyUse::left}.connected(new_script));
    EXPECT_TRUE(Command{ReplyUse::left}.connected(script));
    EXPECT_TRUE(Command{ReplyUse::left}.connected(plain));
}

TEST(CommandMachine, omits_the_keys_that_the_acl_denies) {
    Command command = sent(script);
    EXPECT_FALSE(command.form().first_key_only);
    command.answered(ReplyKind::denied);
    EXPECT_TRUE(command.form().first_key_only);
    EXPECT_FALSE(command.form().whole);
    EXPECT_TRUE(sent(with(script, KeyAccess::first_only)).form().first_key_only);
}

TEST(CommandMachine, asks_for_doubtful_keys_only_where_it_can_repeat) {
    for (const ReplyUse use : all_uses) {
        const Command command = sent(with(script, KeyAccess::doubtful), use);
        EXPECT_EQ(command.form().first_key_only, use != ReplyUse::awaited);
    }
}

TEST(CommandMachine, omits_no_key_that_a_script_needs) {
    const CommandTraits all_needed{.is_script = true, .keys = KeyAccess::first_only};
    EXPECT_FALSE(sent(all_needed).form().first_key_only);
    EXPECT_EQ(sent(all_needed).answered(ReplyKind::denied).next, fail);
}

TEST(CommandMachine, repeats_for_each_reason_once) {
    Command command = sent(script);
    EXPECT_EQ(command.answered(ReplyKind::late).next, send);
    EXPECT_EQ(command.answered(ReplyKind::unknown_script).next, send);
    EXPECT_EQ(command.answered(ReplyKind::denied).next, send);
    EXPECT_TRUE(command.form().whole && command.form().first_key_only);
    for (const ReplyKind kind : {ReplyKind::late, ReplyKind::unknown_script, ReplyKind::denied}) {
        EXPECT_EQ(command.answered(kind).next, fail);
    }
    EXPECT_FALSE(command.unclear()) << "an error in answer says that nothing was executed";
}

TEST(CommandMachine, goes_out_once_more_where_an_idle_connection_had_died) {
    for (const ReplyUse use : {ReplyUse::awaited, ReplyUse::may_be_left}) {
        Command command = sent(idle_script, use);
        EXPECT_FALSE(command.reconnected());
        EXPECT_EQ(command.failed(hung_up).next, reconnect);
        EXPECT_TRUE(command.reconnected());
        EXPECT_TRUE(command.connected(script));
        EXPECT_EQ(command.answered(ReplyKind::value).next, deliver);
    }
}

TEST(CommandMachine, goes_out_once_more_at_most) {
    Command command = sent(idle_script);
    command.failed(hung_up);
    EXPECT_TRUE(command.connected(idle_script));
    EXPECT_EQ(command.failed(hung_up).next, fail);
}

TEST(CommandMachine, blames_the_server_for_a_new_connection_that_dies) {
    EXPECT_EQ(sent(script).failed(hung_up).next, fail);
}

TEST(CommandMachine, is_not_repeated_after_a_time_out) {
    for (const CommandTraits& traits : {script, idle_script}) {
        Command command = sent(traits);
        EXPECT_EQ(command.failed(timed_out).next, fail);
        EXPECT_TRUE(command.unclear());
    }
}

TEST(CommandMachine, connects_once_more_where_the_connection_broke_in_its_handshake) {
    Command command{ReplyUse::awaited};
    EXPECT_EQ(command.failed(hung_up_before).next, reconnect);
    EXPECT_EQ(command.failed(hung_up_before).next, fail);
    EXPECT_FALSE(command.unclear());
    EXPECT_EQ(Command{ReplyUse::awaited}.failed({}).next, fail) << "nobody is there";
}

TEST(CommandMachine, repeats_for_each_reason_once_more_on_another_connection) {
    Command command = sent(idle_script);
    command.answered(ReplyKind::late);
    command.answered(ReplyKind::unknown_script);
    command.answered(ReplyKind::denied);
    command.failed(hung_up);
    EXPECT_TRUE(command.connected(script));
    EXPECT_FALSE(command.form().whole || command.form().first_key_only);
    EXPECT_EQ(command.answered(ReplyKind::late).next, send);
    EXPECT_EQ(command.answered(ReplyKind::unknown_script).next, send);
    EXPECT_EQ(command.answered(ReplyKind::denied).next, send);
}

TEST(CommandMachine, is_unclear_exactly_where_a_sending_may_have_been_executed) {
    Command clear = sent(idle_script);
    clear.failed(hung_up_before);
    EXPECT_FALSE(clear.unclear());

    Command unclear = sent(idle_script);
    unclear.failed(hung_up);
    EXPECT_TRUE(unclear.unclear());
    unclear.connected(script);
    unclear.answered(ReplyKind::error);
    EXPECT_TRUE(unclear.unclear()) << "the first sending still is";

    Command unsent = sent(idle_script);
    unsent.failed(hung_up);
    EXPECT_EQ(unsent.failed(hung_up_before).next, fail);
    EXPECT_TRUE(unsent.unclear()) << "even where the second connection could not be made";

    for (const Row& row : rows) {
        Command answered = sent(script);
        answered.answered(row.kind);
        EXPECT_EQ(answered.unclear(), row.kind == ReplyKind::misshapen);
    }
}

TEST(CommandMachine, ends_whatever_comes) {
    std::vector<Command> commands{sent(idle_script)};
    for (std::size_t depth = 0; depth < 9 && !commands.empty(); ++depth) {
        std::vector<Command> open;
        for (const Command& command : commands) {
            for (const Row& row : rows) {
                Command next = command;
                if (next.answered(row.kind).next == send) open.push_back(next);
            }
            Command next = command;
            if (next.failed(hung_up).next == reconnect && next.connected(idle_script)) {
                open.push_back(next);
            }
        }
        commands = open;
    }
    EXPECT_TRUE(commands.empty());
}

}  // namespace
