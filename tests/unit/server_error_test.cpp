#include <redlatch/net/server_error.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace {

using redlatch::Errc;
using redlatch::detail::classify_server_error;
using redlatch::detail::denies_command;
using redlatch::detail::denies_key;
using redlatch::detail::Fault;
using redlatch::detail::kind_of;
using redlatch::detail::plain_words;
using redlatch::detail::ReplyKind;
using redlatch::detail::without_quotation;

void expect_error(std::string_view text, Errc code, bool transient) {
    const auto [found_code, found_transient] = classify_server_error(text);
    EXPECT_EQ(found_code, code) << text;
    EXPECT_EQ(found_transient, transient) << text;
}

TEST(ServerError, states_that_pass_are_transient) {
    for (const std::string_view text : {
             "LOADING Redis is loading the dataset in memory",
             "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN "
             "NOSAVE.",
             "READONLY You can't write against a read only replica.",
             "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
             "OOM command not allowed when used memory > 'maxmemory'.",
             "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to "
             "persist to disk.",
             "NOREPLICAS Not enough good replicas to write.",
             "TRYAGAIN Multiple keys request during rehashing of slot",
             "CLUSTERDOWN The cluster is down",
             "UNBLOCKED force unblock from blocking operation, instance state changed "
             "(master -> replica?)",
             "UNKILLABLE Sorry the script already executed write commands against the dataset.",
             "ERR max number of clients reached",
             "ERR WAIT cannot be used with replica instances. Please also note that writes to "
             "replicas are just local and are not propagated.",
             "ERR Script attempted to access a non local key in a cluster node script: "
             "6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:1.",
             "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): "
             "@user_script:7: @user_script: 7: Lua script attempted to access a non local key in a "
             "cluster node ",
         }) {
        expect_error(text, Errc::unavailable, true);
    }
}

TEST(ServerError, closed_doors_are_permanent) {
    for (const std::string_view text : {
             "NOAUTH Authentication required.",
             "WRONGPASS invalid username-password pair or user is disabled.",
             "NOPERM this user has no permissions to run the 'set' command",
             "DENIED Redis is running in protected mode because protected mode is enabled",
             "ERR invalid password",
             "ERR Client sent AUTH, but no password is set",
             "ERR AUTH <password> called without any password configured for the default user.",
             "ERR The user executing the script can't run this command or subcommand script: "
             "6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:1.",
             "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): "
             "@user_script:1: The user executing the script can't run this command or subcommand",
             "ERR The user executing the script can't access at least one of the keys mentioned in "
             "the command arguments script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on "
             "@user_script:1.",
             "ERR ACL failure in script: User has no permissions to run the 'set' command",
             "ERR ACL failure in script: No permissions to access a key",
         }) {
        expect_error(text, Errc::denied, false);
    }
}

TEST(ServerError, wrong_type_is_its_own) {
    expect_error("WRONGTYPE Operation against a key holding the wrong kind of value",
                 Errc::wrong_type, false);
    expect_error(
        "WRONGTYPE Operation against a key holding the wrong kind of value script: "
        "6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:3.",
        Errc::wrong_type, false);
}

TEST(ServerError, bad_database_is_an_invalid_argument) {
    expect_error("ERR DB index is out of range", Errc::invalid_argument, false);
    expect_error("ERR invalid DB index", Errc::invalid_argument, false);
}

TEST(ServerError, word_alone_is_enough) {
    expect_error("LOADING", Errc::unavailable, true);
    expect_error("NOAUTH", Errc::denied, false);
    expect_error("WRONGTYPE", Errc::wrong_type, false);
}

/// Before 7.0: what the server itself raises inside a script keeps its dash.
TEST(ServerError, wrapped_with_a_dash_is_unwrapped) {
    const auto wrapped = [](std::string_view inner) {
        return "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): "
               "@user_script:4: @user_script: 4: -" +
               std::string{inner} + " ";
    };
    expect_error(wrapped("READONLY You can't write against a read only replica."),
                 Errc::unavailable, true);
    expect_error(wrapped("OOM command not allowed when used memory > 'maxmemory'."),
                 Errc::unavailable, true);
    expect_error(wrapped("MISCONF Errors writing to the AOF file"), Errc::unavailable, true);
    expect_error(wrapped("NOREPLICAS Not enough good replicas to write."), Errc::unavailable, true);
    expect_error(wrapped("MASTERDOWN Link with MASTER is down"), Errc::unavailable, true);
    expect_error(wrapped("CLUSTERDOWN The cluster is down"), Errc::unavailable, true);
    expect_error(wrapped("NOPERM this user has no permissions"), Errc::denied, false);
}

/// Before 7.0: what a command inside a script answers has lost its dash on the way.
TEST(ServerError, wrapped_without_a_dash_is_unwrapped) {
    expect_error(
        "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): "
        "@user_script:3: WRONGTYPE Operation against a key holding the wrong kind of value",
        Errc::wrong_type, false);
}

/// Before 7.0: what a script has caught, and answers. The place stands in front, and what the server itself raises
/// keeps its dash.
TEST(ServerError, caught_by_a_script_is_unwrapped) {
    expect_error("@user_script: 4: -READONLY You can't write against a read only replica. ",
                 Errc::unavailable, true);
    expect_error("@user_script: 4: -OOM command not allowed when used memory > 'maxmemory'. ",
                 Errc::unavailable, true);
    expect_error(
        "@user_script: 143: The user executing the script can't run this command or subcommand",
        Errc::denied, false);
    expect_error(
        "@user_script: 143: The user executing the script can't access at least one of the keys "
        "mentioned in the command arguments",
        Errc::denied, false);
    expect_error("@user_script: 1: Wrong number of args calling Redis command From Lua script",
                 Errc::protocol, false);
}

/// A script of ours names the key behind an error, and a lock's name may be anything.
TEST(ServerError, is_not_what_a_locks_name_says) {
    for (const std::string name :
         {"attempted to access a non local key", "ERR Script attempted to access a non local key",
          "a max number of clients", "a@user_script:1: -OOM x",
          "a script: b, on @user_script:1."}) {
        const std::string denied =
            "The user executing the script can't run this command or subcommand "
            "(redlatch:queue:{" +
            name + "})";
        expect_error("ERR " + denied, Errc::denied, false);
        expect_error("@user_script: 12: " + denied, Errc::denied, false);
        EXPECT_EQ(plain_words("@user_script: 12: " + denied), denied);
        EXPECT_EQ(plain_words("ERR " + denied), "ERR " + denied);
    }
}

TEST(ServerError, unknown_is_permanent_and_unexpected) {
    for (const std::string_view text : {
             "",
             " ",
             "ERR",
             "ERR ",
             "ERR unknown command 'EVALSHA'",
             "ERR syntax error",
             "ERR Protocol error: invalid bulk length",
             "ERR Error running script (call to f_0): @user_script:1: Script attempted to access "
             "nonexistent global variable 'x'",
             "CROSSSLOT Keys in request don't hash to the same slot",
             "MOVED 3999 127.0.0.1:6381",
             "ASK 3999 127.0.0.1:6381",
             "EXECABORT Transaction discarded because of previous errors.",
             "NOSCRIPT No matching script. Please use EVAL.",
             "WHATEVER comes next",
         }) {
        expect_error(text, Errc::protocol, false);
    }
}

TEST(ServerError, part_of_a_word_is_another_word) {
    expect_error("BUSYKEY Target key name already exists.", Errc::protocol, false);
    expect_error("BUSYGROUP Consumer Group name already exists", Errc::protocol, false);
    expect_error("LOADINGX", Errc::protocol, false);
    expect_error("loading lower case", Errc::protocol, false);
    expect_error("XWRONGTYPE", Errc::protocol, false);
}

TEST(ServerError, words_elsewhere_do_not_count) {
    expect_error("WHATEVER -READONLY inside", Errc::protocol, false);
    expect_error("ERR READONLYX is no word", Errc::protocol, false);
}

/// A lock's name may be any of these.
TEST(ServerError, quoted_arguments_do_not_count) {
    for (const std::string name :
         {"AUTH:session", "DB index", "max number of clients", "invalid password", "ACL failure",
          "a: -READONLY b", "a: LOADING b", "can't run this command", "access a key"}) {
        expect_error(
            "ERR unknown command 'EVALSHA', with args beginning with: 'a1' '1' '" + name + "' ",
            Errc::protocol, false);
    }
}

TEST(ServerError, of_an_acl_is_about_a_command_or_about_a_key) {
    for (const std::string_view text :
         {"NOPERM this user has no permissions to run the 'evalsha' command",
          "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
          "NOPERM User monkey has no permissions to run the 'evalsha' command",
          "ERR The user executing the script can't run this command or subcommand",
          "ERR ACL failure in script: User monkey has no permissions to run the 'hset' command"}) {
        EXPECT_TRUE(denies_command(text)) << text;
        EXPECT_FALSE(denies_key(text)) << text;
    }
    for (const std::string_view text :
         {"NOPERM this user has no permissions to access one of the keys used as arguments",
          "ERR The user executing the script can't access at least one of the keys mentioned in "
          "the command arguments",
          "NOPERM No permissions to access a key",
          "ERR ACL failure in script: No permissions to access a key"}) {
        EXPECT_TRUE(denies_key(text)) << text;
        EXPECT_FALSE(denies_command(text)) << text;
    }
    for (const std::string_view text :
         {"", "NOPERM No permissions to access a channel", "NOAUTH Authentication required."}) {
        EXPECT_FALSE(denies_command(text) || denies_key(text)) << text;
    }
}

TEST(ServerError, denial_in_a_handshake_names_the_command_and_quotes_nothing) {
    EXPECT_EQ(without_quotation("NOPERM 'secret' has no permissions to run it", "SELECT"),
              "NOPERM the ACL forbids SELECT");
}

TEST(ServerError, words_are_shown_without_where_in_a_script_they_were_said) {
    const std::string sha = "6b1bf486c81ceb7edf3c093f4c48582e38c0e791";
    const std::string at = " script: " + sha + ", on @user_script:37.";  // from 7.0 on
    const std::string wrapped = "ERR Error running script (call to f_" + sha + "): ";
    EXPECT_EQ(
        plain_words("ERR unknown command 'EVALSHA', with args beginning with: 'a1' '1' 'token' "),
        "ERR unknown command 'EVALSHA'");
    EXPECT_EQ(plain_words("OOM command not allowed" + at), "OOM command not allowed");
    EXPECT_EQ(plain_words("ERR The user can't run this command or subcommand" + at),
              "ERR The user can't run this command or subcommand");
    EXPECT_EQ(plain_words(wrapped + "@user_script:4: @user_script: 4: -READONLY You can't write. "),
              "READONLY You can't write. ");
    EXPECT_EQ(plain_words(wrapped + "@user_script:3: WRONGTYPE Operation against a key"),
              "WRONGTYPE Operation against a key");
    EXPECT_EQ(plain_words(wrapped + "@user_script:12: Script attempted to access 'x'"),
              "Script attempted to access 'x'");
    EXPECT_EQ(plain_words("@user_script: 4: -READONLY You can't write. "),
              "READONLY You can't write. ");
    EXPECT_EQ(plain_words("@user_script: 12: Unknown Redis command"), "Unknown Redis command");
    for (const std::string_view text :
         {"", "ERR", "@user_script:", "@user_script: 1", "@user_script: 1: ",
          "LATE 1700000000000000", "MOVED 3999 127.0.0.1:6381", "ERR script: broken",
          "ERR Error running script", "ERR Error running script (call to f_0): @user_script:",
          "ERR Error running script (call to f_0): @user_script:1: ", "on @user_script:1."}) {
        EXPECT_EQ(plain_words(text), text);
    }
}

TEST(ServerError, says_what_a_command_has_to_do_next) {
    const auto kind = [](std::string_view text) {
        const Errc code = classify_server_error(text).code;
        return kind_of(Fault{.error = {code, {}, {}, std::string{plain_words(text)}, {}}});
    };
    EXPECT_EQ(kind("NOSCRIPT No matching script. Please use EVAL."), ReplyKind::unknown_script);
    EXPECT_EQ(kind("ERR NOSCRIPT"), ReplyKind::error);
    EXPECT_EQ(kind("@user_script: 4: -READONLY You can't write against a read only replica. "),
              ReplyKind::not_master);
    EXPECT_EQ(kind("LATE 1700000000000001"), ReplyKind::late);
    EXPECT_EQ(kind("LATE"), ReplyKind::error) << "without a time there is nothing to correct";
    EXPECT_EQ(kind("READONLY You can't write against a read only replica."), ReplyKind::not_master);
    EXPECT_EQ(kind("MASTERDOWN Link with MASTER is down"), ReplyKind::not_master);
    EXPECT_EQ(kind("ERR Error running script (call to f_0): @user_script:1: -READONLY You can't"),
              ReplyKind::not_master);
    EXPECT_EQ(kind("MOVED 3999 127.0.0.1:6381"), ReplyKind::redirected);
    EXPECT_EQ(kind("ASK 3999 127.0.0.1:6381"), ReplyKind::redirected);
    EXPECT_EQ(kind("MOVED somewhere"), ReplyKind::error);
    EXPECT_EQ(kind("TRYAGAIN Multiple keys request during rehashing of slot"), ReplyKind::error);
    EXPECT_EQ(kind("NOPERM No permissions to access a key"), ReplyKind::denied);
    EXPECT_EQ(kind("LOADING Redis is loading the dataset in memory"), ReplyKind::error);
    EXPECT_EQ(kind("OOM command not allowed when used memory > 'maxmemory'."), ReplyKind::error);
}

}  // namespace
