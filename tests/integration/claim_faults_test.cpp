// Readers, writers and permits when things break: processes that die, a stream of readers in several of them, users
// who may not do everything, keys that are somebody else's.

#include "granted_tools.hpp"
#include "support/process.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using Config = Lock<Watchdog<Shared>>;

// ------------------------------------------------------------------------------ processes

// No client here before the children are made: a fork should find one thread.
class ClaimingProcess : public ::testing::Test {
protected:
    static constexpr auto brief = 4s;  // long enough for others to come

    using Take = std::function<Result<Held>(Client&)>;

    /// A process that takes something when it is told to, says when it has it, and gives it back when it is told
    /// to.
    ChildProcess make_child(Take take) {
        return ChildProcess{[this, take = std::move(take)](LineChannel& parent) {
            if (!parent.read_line(patience)) return 1;
            Client client{patient(server_.uri())};
            Held held = take(client).value();
            parent.write_line(held.held() ? "has it" : "has nothing");
            static_cast<void>(parent.read_line(patience));
            const auto released = held.release();
            return released && *released == Release::released ? 0 : 2;
        }};
    }

    static void make_holder(ChildProcess& child) {
        child.write_line("take");
        ASSERT_EQ(child.read_line(), "has it");
    }

    RedisServer server_;
    RawRedis redis_{server_};
};

TEST_F(ClaimingProcess, that_was_killed_while_it_read_costs_writers_its_own_lease) {
    ChildProcess victim = make_child([](Client& client) {
        return Config{client, "job", {.lease = brief}}.acquire_shared();
    });
    make_holder(victim);
    Client client{patient(server_.uri())};
    Client other{patient(server_.uri())};
    Lock<Shared> lock{client, "job", {.lease = 10min}};
    Lock<Shared> writers{other, "job", {.lease = 10min}};
    Held beside = lock.acquire_shared().value();
    auto writer = in_background([&] { return writers.acquire({.wait = patience}); });
    ASSERT_TRUE(queue_grows_to(redis_, 1));
    victim.kill();
    EXPECT_TRUE(eventually([&] { return lock.inspect().value().holders.size() == 1; }));
    EXPECT_TRUE(beside.held()) << "the lease of another reader runs on";
    EXPECT_FALSE(finishes(writer, 50ms));
    let_go(beside);
    ASSERT_TRUE(finishes(writer)) << "and the dead one's does not run with it";
    let_go(writer.get());
}

TEST_F(ClaimingProcess, that_was_killed_while_it_wrote_costs_readers_its_own_lease) {
    ChildProcess victim = make_child([](Client& client) {
        return Config{client, "job", {.lease = brief}}.acquire();
    });
    make_holder(victim);
    Client client{patient(server_.uri())};
    Client other{patient(server_.uri())};
    Config lock{client, "job", {.lease = 10min}};
    Config others{other, "job", {.lease = 10min}};
    auto first = in_background([&] { return lock.acquire_shared({.wait = patience}); });
    auto second = in_background([&] { return others.acquire_shared({.wait = patience}); });
    ASSERT_TRUE(queue_grows_to(redis_, 2));
    victim.kill();
    ASSERT_TRUE(finishes(first));
    ASSERT_TRUE(finishes(second));
    EXPECT_TRUE(first.get().has_value() && second.get().has_value());
}

TEST_F(ClaimingProcess, that_was_killed_while_it_waited_to_write_holds_no_reader_up) {
    ChildProcess victim = make_child([](Client& client) {
        return Config{client, "job", {.lease = 10min}}.acquire();
    });
    Client client{patient(server_.uri())};
    Client other{patient(server_.uri())};
    Config lock{client, "job", {.lease = 10min}};
    Config others{other, "job", {.lease = 10min}};
    Held reading = lock.acquire_shared().value();
    victim.write_line("take");
    ASSERT_TRUE(queue_grows_to(redis_, 1));
    ASSERT_TRUE(eventually([&] {
        return redis_.command({"PUBSUB", "CHANNELS"}).elements.size() == 1;
    })) << "it can be told";
    auto reader = in_background([&] { return others.acquire_shared({.wait = patience}); });
    ASSERT_TRUE(queue_grows_to(redis_, 2)) << "it came behind the one that lives";
    victim.kill();
    ASSERT_TRUE(finishes(reader));
    auto beside = reader.get();
    ASSERT_TRUE(succeeds(beside));
    EXPECT_TRUE(reading.held());
    EXPECT_TRUE(on_another_thread([&] { return lock.try_lock_shared_for(patience); }));
    let_go(*beside);
}

TEST_F(ClaimingProcess, that_was_killed_gives_its_permits_back_with_its_lease) {
    ChildProcess victim = make_child([](Client& client) {
        return Semaphore<>{client, "job", 3, {.lease = brief}}.take({.permits = 2});
    });
    make_holder(victim);
    Client client{patient(server_.uri())};
    Semaphore<> gpus{client, "job", 3, {.lease = 10min}};
    Held one = gpus.take().value();
    auto waiter = in_background([&] { return gpus.take({.permits = 2, .wait = patience}); });
    ASSERT_TRUE(queue_grows_to(redis_, 1));
    victim.kill();
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
    let_go(one);
}

TEST_F(ClaimingProcess, and_its_like_never_have_more_permits_than_there_are) {
    constexpr int rounds = 15;
    const auto body = [this](LineChannel& parent) {
        if (!parent.read_line(patience)) return 1;
        Client client{patient(server_.uri())};
        Semaphore<> gpus{client, "job", 3};
        std::atomic<bool> too_many{false};
        std::vector<std::jthread> threads;
        for (std::ptrdiff_t permits : {1, 2}) {
            threads.emplace_back([&, permits] {
                RawRedis redis{server_};
                const std::string weight = std::to_string(permits);
                for (int round = 0; round < rounds; ++round) {
                    const Held held = gpus.take({.permits = permits}).value();
                    if (redis.command({"INCRBY", "inside", weight}).integer > 3) too_many = true;
                    redis.command({"DECRBY", "inside", weight});
                }
            });
        }
        threads.clear();
        return too_many ? 2 : 0;
    };
    std::vector<ChildProcess> children;
    for (int i = 0; i < 4; ++i) children.emplace_back(body);
    for (ChildProcess& child : children) EXPECT_TRUE(child.write_line("go"));
    for (ChildProcess& child : children) EXPECT_EQ(child.wait(100s), ExitStatus{});
    EXPECT_FALSE(redis_.exists("job"));
}

/// Processes whose threads read again and again, and count how often they got in.
class StreamOfReaders : public ClaimingProcess {
protected:
    static constexpr int processes = 3;
    static constexpr int threads = 2;
    static constexpr int readers = processes * threads;

    ChildProcess make_reader() {
        return ChildProcess{[this](LineChannel& parent) {
            if (!parent.read_line(patience)) return 1;
            Client client{patient(server_.uri())};
            Config lock{client, "job"};
            std::vector<std::jthread> all;
            for (int i = 0; i < threads; ++i) {
                all.emplace_back([&](const std::stop_token& stop) {
                    RawRedis redis{server_};
                    while (!stop.stop_requested()) {
                        const Held held = lock.acquire_shared().value();
                        redis.command({"INCR", "reads"});
                    }
                });
            }
            static_cast<void>(parent.read_line(patience));
            return 0;
        }};
    }
    long long reads() { return std::stoll(redis_.get("reads").value_or("0")); }
    [[nodiscard]] bool reads_grow_to(long long count) {
        return eventually([&] { return reads() >= count; });
    }
    /// Nobody reads but the one who does not let go, and a writer and each process have a place. A process may have
    /// two: a reader that found the claim ended with which it wanted to go on contends alone.
    bool all_wait_behind(Config& lock) {
        return waiters(redis_) > processes && lock.inspect().value().holders.size() == 1U;
    }
};

// What is counted is who got in, whatever time that took.
TEST_F(StreamOfReaders, lets_no_reader_overtake_a_writer_and_all_in_together_behind_it) {
    std::vector<ChildProcess> children;
    for (int i = 0; i < processes; ++i) children.push_back(make_reader());
    for (ChildProcess& child : children) child.write_line("read");
    Client client{patient(server_.uri())};
    Client other{patient(server_.uri())};
    Config lock{client, "job"};
    Config writers{other, "job"};
    for (int round = 0; round < 3; ++round) {
        Held reading = lock.acquire_shared({.wait = patience}).value();
        ASSERT_TRUE(reads_grow_to(reads() + 50)) << "they stream";
        auto writer = in_background([&] { return writers.acquire({.wait = patience}); });
        ASSERT_TRUE(eventually([&] { return all_wait_behind(lock); }));
        const long long before = reads();
        let_go(reading);
        ASSERT_TRUE(finishes(writer));
        auto held = writer.get();
        ASSERT_TRUE(succeeds(held));
        EXPECT_EQ(reads(), before);
        EXPECT_GE(waiters(redis_), processes);
        let_go(*held);
        EXPECT_TRUE(reads_grow_to(before + readers));
    }
    for (ChildProcess& child : children) child.write_line("end");
    for (ChildProcess& child : children) EXPECT_EQ(child.wait(), ExitStatus{});
}

TEST_F(StreamOfReaders, lets_a_writer_in_behind_those_alone_who_were_in_when_it_came) {
    std::vector<ChildProcess> children;
    for (int i = 0; i < processes; ++i) children.push_back(make_reader());
    for (ChildProcess& child : children) child.write_line("read");
    Client client{patient(server_.uri())};
    Config lock{client, "job"};
    ASSERT_TRUE(reads_grow_to(50)) << "they stream";
    for (int round = 0; round < 10; ++round) {
        const auto writing = lock.acquire({.wait = patience});
        ASSERT_TRUE(succeeds(writing)) << "nothing holds them up but it";
        const long long before = reads();
        EXPECT_EQ(lock.inspect().value().holders.size(), 1U);
        EXPECT_EQ(reads(), before);
    }
    for (ChildProcess& child : children) child.write_line("end");
    for (ChildProcess& child : children) EXPECT_EQ(child.wait(), ExitStatus{});
}

// ----------------------------------------------------------------------------- permissions

/// A user who may not do everything.
class DeniedClaims : public ::testing::Test {
protected:
    void allow(const std::string& rule) {
        const RawReply done = redis_.command({"ACL", "SETUSER", "alice", rule});
        EXPECT_FALSE(done.is_error()) << done.text;
    }

    static testing::AssertionResult is_denied(const std::optional<Error>& error,
                                              const std::vector<std::string>& patterns) {
        auto result = is_error(error, Errc::denied);
        for (const std::string& pattern : patterns) {
            if (result && !speaks_of(*error, " ~" + pattern)) {
                result = testing::AssertionFailure()
                         << error->describe() << " says nothing of " << pattern;
            }
        }
        return result;
    }
    template <class T>
    static testing::AssertionResult is_denied(const Result<T>& result,
                                              const std::vector<std::string>& patterns = {}) {
        if (result) return testing::AssertionFailure() << "it succeeded";
        return is_denied(std::optional{result.error()}, patterns);
    }

    const std::vector<std::string> of_shared_{"redlatch:queue:*", "redlatch:waiters:*",
                                              "redlatch:fence:*"};
    const std::vector<std::string> of_permits_{"redlatch:queue:*", "redlatch:waiters:*",
                                               "redlatch:permits:*"};

    RedisServer server_{{.acl = {"alice on >secret ~job* +@all"}}};
    RawRedis redis_{server_};
    Client client_{options_for("unix://alice:secret@" + server_.socket_path(), 10s)};
    Config lock_{client_, "job"};
    Semaphore<> gpus_{client_, "job:gpus", 3};
};

TEST_F(DeniedClaims, without_companion_keys_are_told_at_once_which_ones_and_leave_nothing) {
    EXPECT_TRUE(is_denied(lock_.acquire_shared(), of_shared_));
    EXPECT_TRUE(is_denied(lock_.acquire(), of_shared_));
    EXPECT_TRUE(is_denied(thrown_by([this] { lock_.lock_shared(); }), of_shared_));
    EXPECT_TRUE(is_denied(thrown_by([this] { lock_.lock(); }), of_shared_));
    EXPECT_TRUE(is_denied(lock_.inspect(), of_shared_));
    EXPECT_TRUE(is_denied(lock_.force_unlock(), of_shared_));
    EXPECT_TRUE(is_denied(gpus_.take(), of_permits_));
    EXPECT_TRUE(is_denied(thrown_by([this] { gpus_.acquire(); }), of_permits_));
    EXPECT_TRUE(is_denied(gpus_.set_permits(5), of_permits_));
    EXPECT_TRUE(is_denied(gpus_.inspect(), of_permits_));
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(DeniedClaims, that_lose_companion_keys_meanwhile_are_told_too_and_end_with_their_lease) {
    allow("~redlatch:*");
    Lock<Shared> brief{client_, "job", {.lease = 10s}};
    Held writing = brief.acquire().value();
    Held permits = Semaphore<Permits>{client_, "job:gpus", 3, {.lease = 10s}}.take().value();
    allow("resetkeys");
    allow("~job*");
    EXPECT_TRUE(is_denied(writing.extend(60s), of_shared_));
    EXPECT_TRUE(writing.held()) << "nobody has said that it is lost";
    EXPECT_TRUE(is_denied(writing.downgrade(), of_shared_));
    EXPECT_TRUE(is_denied(writing.release(), of_shared_));
    EXPECT_TRUE(is_denied(permits.extend(60s), of_permits_));
    EXPECT_TRUE(is_denied(permits.release(), of_permits_));
    EXPECT_TRUE(eventually([this] { return redis_.keys().empty(); }));
}

TEST_F(DeniedClaims, that_may_not_become_a_readers_any_more_stay_a_writers) {
    allow("~redlatch:*");
    Held writing = lock_.acquire({.lease = 10min}).value();
    allow("-zadd");
    EXPECT_TRUE(is_denied(writing.downgrade()));
    EXPECT_TRUE(writing.held());
    Client other{options_for(server_.uri(), 10s)};
    EXPECT_FALSE((Lock<Shared>{other, "job"}.try_lock_shared()));
    EXPECT_TRUE(is_outcome(writing.release(), Release::released));
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(DeniedClaims, without_a_command_are_told_at_once_and_leave_nothing) {
    allow("~redlatch:*");
    for (const std::string command :
         {"zadd", "zscore", "pexpire", "zcard", "time", "exists", "evalsha"}) {
        SCOPED_TRACE(command);
        allow("-" + command);
        EXPECT_TRUE(is_denied(lock_.acquire_shared()));
        EXPECT_TRUE(is_denied(lock_.acquire()));
        EXPECT_TRUE(is_denied(gpus_.take({.permits = 2})));
        EXPECT_TRUE(redis_.keys().empty());
        allow("+" + command);
        EXPECT_TRUE(succeeds(lock_.acquire_shared()));
        EXPECT_TRUE(succeeds(gpus_.take({.permits = 2})));
    }
}

TEST_F(DeniedClaims, without_messages_are_waited_for_by_asking) {
    allow("~redlatch:*");
    for (const std::string command : {"publish", "subscribe", "pubsub"}) {
        SCOPED_TRACE(command);
        allow("-" + command);
        Client other{patient(server_.uri())};
        Config others{other, "job"};
        Held writing = others.acquire({.wait = patience}).value();
        auto reader = in_background([this] { return lock_.acquire_shared({.wait = patience}); });
        ASSERT_TRUE(queue_grows_to(redis_, 1));
        let_go(writing);
        ASSERT_TRUE(finishes(reader));
        let_go(reader.get());
        allow("+" + command);
    }
}

// ------------------------------------------------------------------- keys of somebody else

/// A key that is something else than a lock of this kind.
class OccupiedClaims : public LockTest, public ::testing::WithParamInterface<RawRedis::Command> {
protected:
    void occupy(const std::string& key) {
        RawRedis::Command write = GetParam();
        write.insert(write.begin() + 1, key);
        ASSERT_FALSE(redis_.command(write).is_error());
        key_ = key;
        dump_ = redis_.command({"DUMP", key}).text;
    }
    bool untouched() {
        return redis_.command({"DUMP", key_}).text == dump_ && redis_.pttl(key_) == -1;
    }

    std::string key_;
    std::string dump_;
    Config lock_{client_, "job"};
    Semaphore<> gpus_{client_, "job", 3};
};

INSTANTIATE_TEST_SUITE_P(By, OccupiedClaims,
                         ::testing::Values(RawRedis::Command{"SET", "data"},
                                           RawRedis::Command{"RPUSH", "data"},
                                           RawRedis::Command{"SADD", "data"},
                                           RawRedis::Command{"HSET", "data", "1"},
                                           RawRedis::Command{"ZADD", "1", "data"},
                                           RawRedis::Command{"XADD", "*", "data", "1"}),
                         [](const auto& write) { return write.param.front(); });

TEST_P(OccupiedClaims, are_refused_by_every_operation_and_leave_the_data_alone) {
    occupy("job");
    EXPECT_EQ(code_of(lock_.acquire_shared()), Errc::wrong_type);
    EXPECT_EQ(code_of(lock_.acquire()), Errc::wrong_type);
    EXPECT_EQ(code_of(lock_.inspect()), Errc::wrong_type);
    EXPECT_EQ(code_of(lock_.force_unlock()), Errc::wrong_type);
    EXPECT_EQ(code_of(lock_.force_unlock("somebody")), Errc::wrong_type);
    EXPECT_EQ(code_of(gpus_.take({.permits = 2})), Errc::wrong_type);
    EXPECT_EQ(code_of(gpus_.inspect()), Errc::wrong_type);
    EXPECT_EQ(code_of(gpus_.set_permits(5)), Errc::wrong_type);
    EXPECT_EQ(code_of(gpus_.force_release("somebody")), Errc::wrong_type);
    EXPECT_TRUE(untouched());
    EXPECT_EQ(redis_.keys(), std::vector<std::string>{"job"});
}

TEST_P(OccupiedClaims, that_are_overwritten_while_held_are_an_error_and_not_somebodys_data) {
    Held writing = lock_.acquire().value();
    redis_.del("job");
    occupy("job");
    EXPECT_EQ(code_of(writing.extend(60s)), Errc::wrong_type);
    EXPECT_EQ(code_of(writing.downgrade()), Errc::wrong_type);
    EXPECT_EQ(code_of(writing.release()), Errc::wrong_type);
    EXPECT_TRUE(untouched());
}

TEST_P(OccupiedClaims, with_companions_of_somebody_else_are_still_given_back) {
    for (const std::string companion : {"redlatch:queue:{job}", "redlatch:waiters:{job}"}) {
        const bool is_ours =
            GetParam().front() == (companion.find("queue") != companion.npos ? "ZADD" : "HSET");
        if (is_ours) continue;
        SCOPED_TRACE(companion);
        Held writing = lock_.acquire().value();
        occupy(companion);
        EXPECT_EQ(code_of(Config(other_client_, "job").acquire_shared({.wait = 20s})),
                  Errc::wrong_type);
        EXPECT_TRUE(succeeds(writing.extend(60s)));
        let_go(writing);
        EXPECT_FALSE(redis_.exists("job"));
        EXPECT_TRUE(untouched());
        redis_.flushall();
    }
}

}  // namespace
}  // namespace redlatch::test
