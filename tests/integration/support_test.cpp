// The tests' own tools, shown to do what the other tests rely on.

#include "support/in_background.hpp"
#include "support/overlap_detector.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/wait.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

bool refuses(const std::string& address) {
    try {
        RawRedis{address}.ping();
        return false;
    } catch (const std::runtime_error&) {
        return true;
    }
}

TEST(Wait, EventuallySeesAChangeAndGivesUpAtItsLimit) {
    int calls = 0;
    EXPECT_TRUE(eventually([&] { return ++calls == 3; }));
    EXPECT_EQ(calls, 3);

    const Stopwatch watch;
    EXPECT_FALSE(eventually([] { return false; }, 30ms));
    EXPECT_GE(watch.elapsed(), 30ms);
}

TEST(RedisServer, AnswersOnItsSocketAndLeavesNothingBehind) {
    pid_t pid = 0;
    std::string folder;
    {
        const RedisServer server;
        pid = server.pid();
        folder = server.folder();
        RawRedis redis{server.uri()};
        redis.set("key", "value");
        EXPECT_EQ(redis.get("key"), "value");
        EXPECT_TRUE(process_alive(pid));
        EXPECT_EQ(redis.info("server").at("process_id"), std::to_string(pid));
    }
    EXPECT_FALSE(process_alive(pid));
    EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(RedisServer, AnswersOnALoopbackPortThatNobodyElseGets) {
    RedisServer server{{.tcp = true}};
    RedisServer other{{.tcp = true}};
    EXPECT_NE(server.port(), other.port());
    EXPECT_EQ(server.tcp_uri(), "redis://127.0.0.1:" + std::to_string(server.port()));
    RawRedis{server.tcp_uri()}.ping();

    const std::uint16_t port = server.port();
    server.stop();
    EXPECT_TRUE(refuses(server.tcp_uri()));
    server.start();
    EXPECT_EQ(server.port(), port);
    RawRedis{server.tcp_uri()}.ping();
}

TEST(RedisServer, AnswersOnIpv6) {
    if (!ipv6_available()) {
        return;  // nothing to see on a machine without it
    }
    const RedisServer server{{.ipv6 = true}};
    EXPECT_EQ(server.tcp_uri(), "redis://[::1]:" + std::to_string(server.port()));
    RawRedis{server.tcp_uri()}.ping();
}

TEST(RedisServer, RestartsEmptyUnlessAppendOnly) {
    RedisServer forgetful;
    RawRedis{forgetful}.set("key", "value");
    forgetful.restart();
    EXPECT_EQ(RawRedis{forgetful}.get("key"), std::nullopt);

    RedisServer lasting{{.append_only = true}};
    RawRedis{lasting}.set("key", "value");
    const pid_t before = lasting.pid();
    lasting.kill();
    EXPECT_FALSE(lasting.running());
    EXPECT_TRUE(refuses(lasting.uri()));
    lasting.start();
    EXPECT_NE(lasting.pid(), before);
    EXPECT_EQ(RawRedis{lasting}.get("key"), "value");
}

TEST(RedisServer, FrozenKeepsConnectionsButAnswersNothing) {
    RedisServer server;
    RawRedis impatient{server.uri()};
    RawRedis patient{server.uri()};
    impatient.ping();
    impatient.set_timeout(100ms);
    for (int round = 0; round < 3; ++round) {
        server.freeze();
        EXPECT_TRUE(server.running());
        RawRedis newcomer{server.uri(), 100ms};
        EXPECT_THROW(newcomer.ping(), std::runtime_error);
        server.thaw();
        patient.ping();
    }
    server.freeze();
    EXPECT_THROW(impatient.ping(), std::runtime_error);
    server.stop();
    EXPECT_FALSE(server.running());
}

TEST(RedisServer, TakesPasswordUsersAndConfiguration) {
    const RedisServer server{{.password = "pass \"word\\",
                              .acl = {"alice on >secret ~allowed:* +get"},
                              .config = {{"maxmemory", "12345678"}}}};
    RawRedis redis{server.uri()};
    EXPECT_TRUE(redis.command({"GET", "x"}).text.starts_with("NOAUTH"));
    EXPECT_THROW(redis.auth("wrong"), std::runtime_error);

    EXPECT_EQ(RawRedis{server}.command({"CONFIG", "GET", "maxmemory"}).elements.at(1).text,
              "12345678");
    redis.auth("alice", "secret");
    EXPECT_TRUE(redis.command({"GET", "allowed:x"}).is_nil());
    EXPECT_TRUE(redis.command({"GET", "x"}).text.starts_with("NOPERM"));
}

TEST(RedisServer, SaysWhyItDoesNotStart) {
    try {
        const RedisServer server{{.config = {{"no-such-setting", "1"}}}};
        FAIL() << "it started";
    } catch (const std::runtime_error& e) {
        EXPECT_NE(std::string{e.what()}.find("no-such-setting"), std::string::npos) << e.what();
    }
}

TEST(RedisServer, StartedOnAThreadThatEndsStaysAlive) {
    std::unique_ptr<RedisServer> server;
    std::thread{[&] { server = std::make_unique<RedisServer>(); }}.join();
    RawRedis{*server}.ping();
    const pid_t pid = server->pid();
    server.reset();
    EXPECT_FALSE(process_alive(pid));
}

TEST(RawRedis, IsBinarySafeAndReadsEveryShape) {
    const RedisServer server;
    RawRedis redis{server};
    const std::string binary = "a\0b\r\n{}"s;
    redis.set(binary, binary);
    EXPECT_EQ(redis.get(binary), binary);
    EXPECT_EQ(redis.keys(), std::vector<std::string>{binary});
    EXPECT_EQ(redis.get("absent"), std::nullopt);
    EXPECT_EQ(redis.get(""), std::nullopt);

    redis.command({"HSET", "hash", "f", "1", "g", "2"});
    EXPECT_EQ(redis.hgetall("hash"), (std::map<std::string, std::string>{{"f", "1"}, {"g", "2"}}));
    EXPECT_EQ(redis.type("hash"), "hash");
    EXPECT_EQ(redis.pttl("hash"), -1);
    EXPECT_EQ(redis.pttl("absent"), -2);
    EXPECT_TRUE(redis.exists("hash"));
    EXPECT_TRUE(redis.del("hash"));
    EXPECT_FALSE(redis.exists("hash"));
    EXPECT_THROW(redis.hgetall(binary), std::runtime_error);

    const RawReply nested = redis.command({"EVAL", "return {1, {'x', false}}", "0"});
    ASSERT_EQ(nested.elements.size(), 2U);
    EXPECT_EQ(nested.elements[0].integer, 1);
    EXPECT_EQ(nested.elements[1].elements.at(0).text, "x");
    EXPECT_TRUE(nested.elements[1].elements.at(1).is_nil());

    const auto replies = redis.pipeline({{"INCR", "n"}, {"INCR", "n"}, {"NONSENSE"}});
    ASSERT_EQ(replies.size(), 3U);
    EXPECT_EQ(replies[1].integer, 2);
    EXPECT_TRUE(replies[2].is_error());
    redis.flushall();
    EXPECT_TRUE(redis.keys().empty());
}

TEST(RawRedis, CountsCommandsAndListsConnections) {
    const RedisServer server;
    RawRedis redis{server};
    redis.command({"CLIENT", "SETNAME", "watcher"});
    redis.reset_stats();
    redis.command({"EVAL", "return redis.call('GET', 'x')", "0"});
    redis.command({"EVAL", "return 1", "0"});
    EXPECT_EQ(redis.command_calls("eval"), 2);
    EXPECT_EQ(redis.command_calls("get"), 1);
    EXPECT_EQ(redis.command_calls("evalsha"), 0);
    EXPECT_GT(redis.commands_processed(), 2);
    EXPECT_TRUE(eventually([&] { return redis.client_list().size() == 1; }));
    EXPECT_EQ(redis.client_list().at(0).at("name"), "watcher");
}

TEST(RawRedis, ThrowsInsteadOfSigpipe) {
    RedisServer server;
    RawRedis redis{server};
    server.kill();
    EXPECT_THROW(redis.ping(), std::runtime_error);
    EXPECT_THROW(redis.ping(), std::runtime_error);
}

TEST(ChildProcess, ForkedBodyTalksInLinesAndEndsWithItsCode) {
    const std::string seen = "the test's variables";
    ChildProcess child{[&](LineChannel& parent) {
        parent.write_line(seen);
        parent.write_line(parent.read_line().value_or("nothing") + "!");
        return 7;
    }};
    EXPECT_EQ(child.read_line(), seen);
    EXPECT_EQ(child.read_line(20ms), std::nullopt);
    EXPECT_TRUE(child.write_line("hello"));
    EXPECT_EQ(child.read_line(), "hello!");
    EXPECT_EQ(child.wait(), (ExitStatus{.code = 7}));
    EXPECT_EQ(child.read_line(), std::nullopt);
    EXPECT_FALSE(child.write_line("too late"));
}

TEST(ChildProcess, ThrowingBodyHasAnExitCodeOfItsOwn) {
    ChildProcess child{[](LineChannel&) -> int { throw std::runtime_error{"as planned"}; }};
    EXPECT_EQ(child.wait(), (ExitStatus{.code = ChildProcess::threw}));
}

TEST(ChildProcess, ExecutesProgramsWithArgumentsAndEnvironment) {
    ChildProcess shell =
        ChildProcess::exec("sh", {"-c", "read line; echo \"$line $1 $EXTRA\"; exit 3", "sh", "two"},
                           {{"EXTRA", "three"}});
    shell.write_line("one");
    EXPECT_EQ(shell.read_line(), "one two three");
    EXPECT_EQ(shell.wait(), (ExitStatus{.code = 3}));
    EXPECT_THROW((void)ChildProcess::exec("no-such-program"), std::system_error);
}

TEST(ChildProcess, ExecutedProgramInheritsNoDescriptors) {
    const std::string high = std::to_string(::fcntl(STDERR_FILENO, F_DUPFD, 77));
    const std::vector<std::string> script{
        "-c", "for i in $0 2; do ls -d /proc/$$/fd/$i 2>/dev/null; done", high};
    ChildProcess shell = ChildProcess::exec("sh", script);
    EXPECT_EQ(shell.read_line(), "/proc/" + std::to_string(shell.pid()) + "/fd/2");
    ::close(std::stoi(high));
}

TEST(ChildProcess, AllWorksWithoutStandardDescriptors) {
    ChildProcess closed{[](LineChannel& parent) {
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
            ::close(fd);
        }
        const RedisServer server;
        RawRedis{server}.ping();
        ChildProcess echo = ChildProcess::exec("cat");
        echo.write_line("hello");
        parent.write_line(echo.read_line().value_or("nothing"));
        return 0;
    }};
    EXPECT_EQ(closed.read_line(), "hello");
    EXPECT_EQ(closed.wait(), ExitStatus{});
}

TEST(ChildProcess, KilledFrozenThawed) {
    ChildProcess child{[](LineChannel& parent) {
        while (const auto line = parent.read_line()) {
            parent.write_line(*line);
        }
        return 0;
    }};
    child.write_line("one");
    EXPECT_EQ(child.read_line(), "one");
    child.freeze();
    child.write_line("two");
    EXPECT_EQ(child.read_line(50ms), std::nullopt);
    EXPECT_EQ(child.wait(0ms), std::nullopt);
    child.thaw();
    EXPECT_EQ(child.read_line(), "two");
    child.kill();
    EXPECT_EQ(child.wait(), (ExitStatus{.code = 0, .signal = SIGKILL}));
    EXPECT_FALSE(process_alive(child.pid()));
}

TEST(ChildProcess, DestructorEndsEvenAFrozenOne) {
    pid_t pid = 0;
    {
        ChildProcess child = ChildProcess::exec("sleep", {"1000"});
        pid = child.pid();
        child.freeze();
        EXPECT_TRUE(process_alive(pid));
    }
    EXPECT_FALSE(process_alive(pid));
}

TEST(ChildProcess, DiesWithItsParent) {
    // The middle process stands for a test program that is killed: with it go its forked child, its
    // executed child, its server, and the ones that it started on a thread that has ended.
    ChildProcess middle{[](LineChannel& test) {
        const RedisServer server;
        const auto sleeper = [](LineChannel& parent) { return parent.read_line(1h) ? 0 : 1; };
        const ChildProcess forked{sleeper};
        const ChildProcess executed = ChildProcess::exec("sleep", {"1000"});
        std::unique_ptr<ChildProcess> from_thread;
        std::thread{[&] { from_thread = std::make_unique<ChildProcess>(sleeper); }}.join();
        for (const pid_t pid : {server.pid(), forked.pid(), executed.pid(), from_thread->pid()}) {
            test.write_line(std::to_string(pid));
        }
        test.write_line(server.folder());
        test.read_line(1h);
        return 0;
    }};
    std::vector<pid_t> pids;
    for (int i = 0; i < 4; ++i) {
        pids.push_back(std::stoi(middle.read_line(60s).value_or("0")));
        EXPECT_TRUE(process_alive(pids.back()));
    }
    const std::string folder = middle.read_line().value_or("");
    middle.kill();
    for (const pid_t pid : pids) {
        EXPECT_TRUE(eventually([&] { return !process_alive(pid); })) << pid;
    }
    // A killed process cannot remove its folders.
    EXPECT_TRUE(folder.find("redlatch-") != std::string::npos);
    std::filesystem::remove_all(folder);
}

TEST(ChildProcess, ForkedWhileThreadsRunMayStartItsOwn) {
    std::promise<void> running;
    std::promise<void> done;
    std::thread idle{[&] {
        running.set_value();
        done.get_future().wait();
    }};
    running.get_future().wait();  // sanitizers do not survive a fork amid a thread's start
    ChildProcess child{[](LineChannel&) {
        int value = 0;
        std::thread{[&] { value = 5; }}.join();
        return value;
    }};
    EXPECT_EQ(child.wait(), (ExitStatus{.code = 5}));
    done.set_value();
    idle.join();
}

TEST(OverlapDetector, IsContentWithOneAfterTheOther) {
    const RedisServer server;
    OverlapDetector detector{server.socket_path(), "name"};
    OverlapDetector other{server.socket_path(), "name"};
    for (int i = 0; i < 20; ++i) {
        const OverlapDetector::Section section{i % 2 == 0 ? detector : other};
        EXPECT_EQ(detector.inside(), 1);
    }
    EXPECT_EQ(detector.overlaps(), 0);
    EXPECT_EQ(detector.sections(), 20);
    EXPECT_EQ(detector.counter(), 20);
    EXPECT_EQ(detector.inside(), 0);
}

TEST(OverlapDetector, SeesTwoInsideAndTheLostUpdate) {
    const RedisServer server;
    OverlapDetector first{server.socket_path(), "name"};
    OverlapDetector second{server.socket_path(), "name"};
    EXPECT_TRUE(first.enter());
    EXPECT_FALSE(second.enter());
    first.leave();
    second.leave();
    EXPECT_EQ(first.overlaps(), 1);
    EXPECT_EQ(first.sections(), 2);
    EXPECT_EQ(first.counter(), 1);
}

TEST(OverlapDetector, SeesProcessesWithoutALock) {
    const RedisServer server;
    const auto run = [&](LineChannel& parent) {
        OverlapDetector detector{server.socket_path(), "name"};
        parent.read_line();
        const Stopwatch watch;
        while (detector.overlaps() == 0 && watch.elapsed() < 20s) {
            const OverlapDetector::Section section{detector};
        }
        return 0;
    };
    ChildProcess one{run};
    ChildProcess two{run};
    one.write_line("go");
    two.write_line("go");
    EXPECT_EQ(one.wait(60s), ExitStatus{});
    EXPECT_EQ(two.wait(60s), ExitStatus{});
    OverlapDetector detector{server.socket_path(), "name"};
    EXPECT_GT(detector.overlaps(), 0);
    EXPECT_LT(detector.counter(), detector.sections());
}

TEST(OverlapDetector, ForgetsAKilledOne) {
    const RedisServer server;
    ChildProcess child{[&](LineChannel& parent) {
        OverlapDetector detector{server.socket_path(), "name"};
        detector.enter();
        parent.write_line("inside");
        parent.read_line(1h);
        return 0;
    }};
    EXPECT_EQ(child.read_line(), "inside");
    child.kill();
    child.wait();
    OverlapDetector detector{server.socket_path(), "name"};
    EXPECT_EQ(detector.inside(), 1);
    detector.forget_inside();
    EXPECT_TRUE(detector.enter());
    detector.leave();
    EXPECT_EQ(detector.counter(), 1);
}

// The proxy's faults, over both kinds of sockets on both sides.
class ProxyTest : public ::testing::TestWithParam<bool> {
protected:
    RedisServer server_{{.tcp = true}};
    RawRedis direct_{server_};
    Proxy proxy_{GetParam() ? server_.tcp_uri() : server_.uri(), {.tcp = GetParam()}};

    RawRedis through(std::chrono::milliseconds timeout = 20s) {
        return RawRedis{proxy_.uri(), timeout};
    }
};

std::string socket_kind(const ::testing::TestParamInfo<bool>& over_tcp) {
    return over_tcp.param ? "tcp" : "unix";
}

INSTANTIATE_TEST_SUITE_P(Over, ProxyTest, ::testing::Bool(), socket_kind);

TEST_P(ProxyTest, PassesAndCounts) {
    RawRedis redis = through();
    redis.set("key", std::string(1'000'000, 'x'));
    EXPECT_EQ(redis.get("key")->size(), 1'000'000U);
    EXPECT_GT(proxy_.counts().request_bytes, 1'000'000U);
    EXPECT_GT(proxy_.counts().reply_bytes, 1'000'000U);
    EXPECT_EQ(proxy_.counts().connections, 1);
    EXPECT_EQ(proxy_.counts().open, 1);
    { RawRedis second = through(); }
    EXPECT_TRUE(eventually([&] { return proxy_.counts().open == 1; }));
    EXPECT_TRUE(eventually([&] { return proxy_.counts().connections == 2; }));
}

TEST_P(ProxyTest, HoldsRepliesUntilPass) {
    RawRedis redis = through();
    proxy_.hold_replies();
    auto answer = in_background([&] { return redis.command({"INCR", "n"}); });
    EXPECT_TRUE(eventually([&] { return direct_.exists("n"); }));
    EXPECT_EQ(answer.wait_for(50ms), std::future_status::timeout);
    proxy_.pass();
    EXPECT_EQ(answer.get().integer, 1);
}

TEST_P(ProxyTest, DropsOneReplyAfterDelivery) {
    RawRedis redis = through();
    RawRedis bystander = through();
    bystander.ping();
    redis.ping();
    proxy_.drop_replies_once(1, "INCR");
    bystander.ping();
    EXPECT_THROW(redis.command({"INCR", "n"}), std::runtime_error);
    EXPECT_EQ(direct_.get("n"), "1");
    EXPECT_EQ(bystander.command({"INCR", "n"}).integer, 2);
    EXPECT_EQ(proxy_.counts().dropped_replies, 1);
}

TEST_P(ProxyTest, DeliversACopyWhenItIsTold) {
    RawRedis redis = through();
    proxy_.copy_once("INCR");
    EXPECT_THROW(proxy_.deliver_copy(), std::runtime_error);
    redis.ping();
    EXPECT_EQ(redis.command({"INCR", "n"}).integer, 1);
    EXPECT_EQ(redis.command({"INCRBY", "n", "10"}).integer, 11);
    EXPECT_EQ(proxy_.deliver_copy().integer, 12);
    EXPECT_EQ(redis.get("n"), "12");  // the client did not hear the copy's answer
    EXPECT_EQ(proxy_.deliver_copy().integer, 13);
}

TEST_P(ProxyTest, BlackHoleSwallowsAndKeepsConnections) {
    RawRedis redis = through();
    redis.ping();
    redis.set_timeout(100ms);
    proxy_.black_hole();
    EXPECT_THROW(redis.command({"INCR", "n"}), std::runtime_error);
    RawRedis newcomer = through(100ms);
    EXPECT_THROW(newcomer.ping(), std::runtime_error);
    EXPECT_TRUE(eventually([&] { return proxy_.counts().open == 2; }));
    proxy_.pass();
    through().ping();
    EXPECT_FALSE(direct_.exists("n"));
}

TEST_P(ProxyTest, PassWholeEndsWhatABlackHoleHasSwallowedSomethingOf) {
    RawRedis whole = through();
    RawRedis redis = through();
    whole.ping();
    redis.ping();
    redis.set_timeout(1s);  // for the answer to come to the proxy
    proxy_.black_hole(Way::replies);
    EXPECT_THROW(redis.command({"INCR", "n"}), std::runtime_error);
    EXPECT_TRUE(eventually([&] { return direct_.exists("n"); }));
    proxy_.pass_whole();
    EXPECT_EQ(proxy_.counts().open, 1);
    whole.ping();
    through().ping();
}

TEST_P(ProxyTest, BlackHoleOpensAfterSomeAnswers) {
    RawRedis redis = through();
    proxy_.black_hole_after(2, Way::replies);
    EXPECT_EQ(redis.command({"INCR", "n"}).integer, 1);
    EXPECT_EQ(redis.command({"INCR", "n"}).integer, 2);
    redis.set_timeout(100ms);
    EXPECT_THROW(redis.command({"INCR", "n"}), std::runtime_error);
    EXPECT_TRUE(eventually([&] { return direct_.get("n") == "3"; }));
    proxy_.pass();
    through().ping();
    proxy_.black_hole_after(1);
    RawRedis other = through();
    other.ping();
    other.set_timeout(100ms);
    EXPECT_THROW(other.command({"INCR", "n"}), std::runtime_error);
    EXPECT_EQ(direct_.get("n"), "3");
}

TEST_P(ProxyTest, CutEndsConnectionsAlsoThoseThatAForkedChildHasInherited) {
    RawRedis redis = through();
    redis.ping();
    ChildProcess child{[](LineChannel& parent) { return parent.read_line(1h) ? 0 : 1; }};
    proxy_.cut();
    EXPECT_EQ(proxy_.counts().open, 0);
    const Stopwatch watch;
    EXPECT_THROW(redis.ping(), std::runtime_error);
    EXPECT_LT(watch.elapsed(), 10s);
    through().ping();
}

TEST_P(ProxyTest, RefusesNewConnectionsOnly) {
    RawRedis redis = through();
    redis.ping();
    proxy_.refuse();
    EXPECT_TRUE(refuses(proxy_.uri()));
    redis.ping();
    proxy_.pass();
    through().ping();
    proxy_.refuse();
    proxy_.cut();
    EXPECT_THROW(redis.ping(), std::runtime_error);
    EXPECT_TRUE(refuses(proxy_.uri()));
}

TEST_P(ProxyTest, TricklesReplies) {
    RawRedis redis = through();
    direct_.set("key", std::string(20, 'x'));
    proxy_.trickle(2, 10ms);
    const Stopwatch watch;
    EXPECT_EQ(redis.get("key")->size(), 20U);  // 27 bytes with the frame: 14 pieces
    EXPECT_GE(watch.elapsed(), 130ms);
    proxy_.trickle(1, 1h);
    RawRedis impatient = through(100ms);
    EXPECT_THROW(impatient.ping(), std::runtime_error);
}

TEST_P(ProxyTest, DelaysAndDeliversRequestsOfClientsThatHaveGone) {
    RawRedis redis = through();
    redis.ping();
    proxy_.delay(40ms);
    const Stopwatch watch;
    redis.ping();
    EXPECT_GE(watch.elapsed(), 80ms);

    proxy_.delay_requests(1h);
    {
        RawRedis ghost = through(50ms);
        EXPECT_THROW(ghost.command({"INCR", "ghost"}), std::runtime_error);
    }
    EXPECT_TRUE(eventually([&] { return proxy_.counts().open == 2; }));
    EXPECT_FALSE(direct_.exists("ghost"));
    proxy_.pass();
    EXPECT_TRUE(eventually([&] { return direct_.exists("ghost"); }));
    EXPECT_TRUE(eventually([&] { return proxy_.counts().open == 1; }));
}

TEST_P(ProxyTest, DelaysVaryAndKeepTheOrder) {
    RawRedis redis = through();
    redis.ping();
    proxy_.delay(30ms, 30ms, Way::requests);
    const std::vector<RawRedis::Command> commands(20, {"INCR", "n"});
    const Stopwatch watch;
    long long last = 0;
    for (const RawReply& reply : redis.pipeline(commands)) EXPECT_EQ(reply.integer, ++last);
    for (int i = 0; i < 10; ++i) redis.command({"INCR", "n"});
    EXPECT_LT(watch.elapsed(), 20s);
    EXPECT_GE(watch.elapsed(), 30ms);  // eleven delays of 0 to 60 ms
    EXPECT_EQ(direct_.get("n"), "30");
}

TEST_P(ProxyTest, HoldsRequestsAndDeliversThoseOfClientsThatHaveGone) {
    proxy_.hold_requests();
    {
        RawRedis ghost = through(50ms);
        EXPECT_THROW(ghost.command({"INCR", "ghost"}), std::runtime_error);
    }
    EXPECT_FALSE(direct_.exists("ghost"));
    proxy_.pass();
    EXPECT_TRUE(eventually([&] { return direct_.exists("ghost"); }));
    EXPECT_TRUE(eventually([&] { return proxy_.counts().open == 0; }));
}

TEST_P(ProxyTest, BlackHoleInOneDirectionLetsTheOtherPass) {
    RawRedis redis = through();
    redis.ping();
    redis.set_timeout(100ms);
    proxy_.black_hole(Way::replies);
    EXPECT_THROW(redis.command({"INCR", "n"}), std::runtime_error);
    EXPECT_TRUE(eventually([&] { return direct_.get("n") == "1"; }));
    proxy_.pass();
    RawRedis listener = through();
    listener.command({"SUBSCRIBE", "news"});
    proxy_.black_hole(Way::requests);
    direct_.command({"PUBLISH", "news", "read this"});
    EXPECT_EQ(listener.next().elements.back().text, "read this");
    RawRedis mute = through(100ms);
    EXPECT_THROW(mute.command({"INCR", "n"}), std::runtime_error);
    EXPECT_EQ(direct_.get("n"), "1");
}

TEST_P(ProxyTest, StallReadsNothingUntilPass) {
    RawRedis redis = through();
    redis.ping();
    proxy_.stall(Way::requests);
    auto answer = in_background([&] { return redis.command({"INCR", "n"}); });
    EXPECT_EQ(answer.wait_for(50ms), std::future_status::timeout);
    EXPECT_FALSE(direct_.exists("n"));
    EXPECT_EQ(proxy_.counts().open, 1);
    proxy_.pass();
    EXPECT_EQ(answer.get().integer, 1);

    proxy_.stall(Way::replies);
    answer = in_background([&] { return redis.command({"INCR", "n"}); });
    EXPECT_TRUE(eventually([&] { return direct_.get("n") == "2"; }));
    EXPECT_EQ(answer.wait_for(50ms), std::future_status::timeout);
    proxy_.pass();
    EXPECT_EQ(answer.get().integer, 2);
}

TEST_P(ProxyTest, StallSeesNoEnd) {
    {
        RawRedis redis = through();
        redis.ping();
        proxy_.stall();
    }
    EXPECT_EQ(proxy_.counts().open, 1);
    proxy_.pass();
    EXPECT_TRUE(eventually([&] { return proxy_.counts().open == 0; }));
}

TEST_P(ProxyTest, HalfCloseEndsOneDirection) {
    RawRedis redis = through();
    redis.ping();
    proxy_.half_close(Way::replies);
    EXPECT_THROW(redis.command({"INCR", "n"}), std::runtime_error);
    EXPECT_TRUE(eventually([&] { return direct_.get("n") == "1"; }));
    EXPECT_EQ(proxy_.counts().open, 1);

    RawRedis other = through();
    other.ping();
    proxy_.half_close(Way::requests);
    EXPECT_THROW(other.command({"INCR", "n"}), std::runtime_error);
    EXPECT_EQ(direct_.get("n"), "1");
    through().ping();
}

TEST_P(ProxyTest, ResetEndsConnectionsByAnAbort) {
    RawRedis redis = through();
    redis.ping();
    proxy_.reset();
    EXPECT_EQ(proxy_.counts().open, 0);
    try {
        redis.ping();
        ADD_FAILURE() << "the connection is still there";
    } catch (const std::runtime_error& error) {
        const std::string what = error.what();
        EXPECT_TRUE(!GetParam() || what.find("reset") != std::string::npos) << what;
    }
    through().ping();
}

TEST_P(ProxyTest, TricklesRequests) {
    RawRedis redis = through();
    redis.ping();
    proxy_.trickle(1, 5ms, Way::requests);
    const Stopwatch watch;
    EXPECT_EQ(redis.command({"INCR", "n"}).integer, 1);  // 21 bytes
    EXPECT_GE(watch.elapsed(), 95ms);
}

TEST_P(ProxyTest, ShowsAServersEndToItsClients) {
    RawRedis redis = through();
    redis.ping();
    server_.kill();
    EXPECT_THROW(redis.ping(), std::runtime_error);
    EXPECT_TRUE(refuses(proxy_.uri()));
    server_.start();
    through().ping();
}

TEST_P(ProxyTest, EndsWithRepliesStillKept) {
    proxy_.hold_replies();
    RawRedis redis = through(50ms);
    EXPECT_THROW(redis.ping(), std::runtime_error);
}

}  // namespace
}  // namespace redlatch::test
