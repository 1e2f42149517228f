// The observer hears of everything, and can harm nothing. `Metrics` counts what it hears.

#include "async_tools.hpp"
#include "lock_test.hpp"
#include "support/resources.hpp"
#include "support/socket.hpp"
#include <redlatch/metrics.hpp>

#include <hiredis/hiredis.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

/// Writes down everything.
class Recorder : public Observer {
public:
    void acquired(const Acquired& event) override {
        note("acquired " + event.key, acquired_, event);
    }
    void timed_out(const TimedOut& event) override {
        note("timed_out " + event.key, timed_out_, event);
    }
    void released(const Released& event) override {
        note("released " + event.key, released_, event);
    }
    void renewed(const Renewed& event) override { note("renewed " + event.key, renewed_, event); }
    void lost(const Lost& event) override { note("lost " + event.key, lost_, event); }
    void error(const Error& error) override { note("error " + error.key, errors_, error); }
    void reconnected(const Reconnected& event) override {
        note("reconnected " + event.node, reconnected_, event);
    }
    void warning(const Warning& event) override {
        note("warning " + event.message, warnings_, event);
    }

    /// All events in order; waits for `count` of them.
    std::vector<std::string> log(std::size_t count) {
        EXPECT_TRUE(eventually([&] { return copy(log_).size() >= count; }));
        return copy(log_);
    }
    /// The events of one kind; waits for `count` of them.
    std::vector<Acquired> acquired(std::size_t count) { return all(acquired_, count); }
    std::vector<TimedOut> timed_out(std::size_t count) { return all(timed_out_, count); }
    std::vector<Released> released(std::size_t count) { return all(released_, count); }
    std::vector<Renewed> renewed(std::size_t count) { return all(renewed_, count); }
    std::vector<Lost> lost(std::size_t count) { return all(lost_, count); }
    std::vector<Error> errors(std::size_t count) { return all(errors_, count); }
    std::vector<Reconnected> reconnected(std::size_t count) { return all(reconnected_, count); }
    std::vector<Warning> warnings(std::size_t count) { return all(warnings_, count); }

private:
    template <class Event>
    void note(std::string line, std::vector<Event>& events, const Event& event) {
        const std::lock_guard lock{mutex_};
        log_.push_back(std::move(line));
        events.push_back(event);
    }
    template <class T>
    std::vector<T> copy(const std::vector<T>& events) {
        const std::lock_guard lock{mutex_};
        return events;
    }
    template <class T>
    std::vector<T> all(const std::vector<T>& events, std::size_t count) {
        EXPECT_TRUE(eventually([&] { return copy(events).size() >= count; }));
        return copy(events);
    }

    std::mutex mutex_;
    std::vector<std::string> log_;
    std::vector<Acquired> acquired_;
    std::vector<TimedOut> timed_out_;
    std::vector<Released> released_;
    std::vector<Renewed> renewed_;
    std::vector<Lost> lost_;
    std::vector<Error> errors_;
    std::vector<Reconnected> reconnected_;
    std::vector<Warning> warnings_;
};

class ObserverTest : public ::testing::Test {
protected:
    /// With another timeout than that of patient clients where a test waits for its end.
    ClientOptions options(std::shared_ptr<Observer> observer,
                          std::chrono::milliseconds timeout = 10s) const {
        return with(std::move(observer), server_.uri(), timeout);
    }
    static ClientOptions with(std::shared_ptr<Observer> observer, const std::string& uri,
                              std::chrono::milliseconds timeout = 10s) {
        ClientOptions options = patient(uri);
        options.command_timeout = timeout;
        options.observer = std::move(observer);
        return options;
    }

    RedisServer server_;
    RawRedis redis_{server_};
    std::shared_ptr<Recorder> seen_ = std::make_shared<Recorder>();
};

class ObserverHears : public ObserverTest {
protected:
    Client client_{options(seen_)};
};

TEST_F(ObserverHears, of_an_acquisition_and_its_release_in_order) {
    const std::vector<std::string> expected{"acquired job", "released job", "acquired job",
                                            "released job", "acquired job", "released job"};
    // "As a rule": an event whose thread loses the processor for 10 ms may be overtaken. One undisturbed
    // run shows the rule.
    std::vector<std::string> log;
    for (int attempt = 0; attempt < 20 && log != expected; ++attempt) {
        seen_ = std::make_shared<Recorder>();
        Client client{options(seen_)};
        Lock<Simple> lock{client, "job"};
        for (int i = 0; i < 3; ++i) {
            const std::lock_guard guard{lock};
        }
        log = seen_->log(6);
    }
    EXPECT_EQ(log, expected);
    const auto acquired = seen_->acquired(3).front();
    EXPECT_EQ(acquired.key, "job");
    EXPECT_EQ(acquired.tries, 1U);
    EXPECT_GT(acquired.waited, 0ns);
    EXPECT_LT(acquired.waited, 10s);
    const auto released = seen_->released(3).front();
    EXPECT_EQ(released.outcome.value(), Release::released);
    EXPECT_GT(released.held_for, 0ns);
    EXPECT_LT(released.held_for, 10s);
}

TEST_F(ObserverHears, of_a_server_that_may_evict_a_lock_once_for_each_of_its_starts) {
    for (const char* const policy : {"allkeys-lru", "volatile-ttl"}) {
        SCOPED_TRACE(policy);
        RedisServer server{{.config = {{"maxmemory", "100mb"}, {"maxmemory-policy", policy}}}};
        const auto seen = std::make_shared<Recorder>();
        Client client{with(seen, server.uri())};
        Lock<> lock{client, "job"};
        Lock<> other{client, "job:2"};
        const auto lock_both = [&] {
            lock.lock();
            other.lock();
            other.unlock();
            lock.unlock();
        };
        lock_both();
        const auto warning = seen->warnings(1).front();
        EXPECT_EQ(warning.node, server.socket_path());
        EXPECT_NE(warning.message.find(policy), std::string::npos) << warning.message;
        server.restart();
        lock_both();
        seen->warnings(2);
        lock_both();
        seen->acquired(6);
        EXPECT_EQ(seen->warnings(2).size(), 2U);
    }
}

TEST_F(ObserverHears, of_no_eviction_where_there_is_none) {
    for (const auto& [size, policy] : {std::pair{"0", "allkeys-lru"}, {"100mb", "noeviction"}}) {
        RedisServer server{{.config = {{"maxmemory", size}, {"maxmemory-policy", policy}}}};
        const auto seen = std::make_shared<Recorder>();
        Client client{with(seen, server.uri())};
        Lock<Simple> lock{client, "job"};
        lock.lock();
        lock.unlock();
        seen->released(1);
        EXPECT_TRUE(seen->warnings(0).empty());
    }
}

/// Servers that hear nothing: each has said its words already, and says no more.
class DeafServers {
public:
    redisContext* connect(const std::string& words) {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        EXPECT_EQ(::write(ends[1], words.data(), words.size()), std::ssize(words));
        ::shutdown(ends[1], SHUT_WR);
        const std::lock_guard lock{mutex_};
        ends_.emplace_back(ends[1]);
        return redisConnectFd(ends[0]);
    }

private:
    std::mutex mutex_;
    std::vector<UniqueFd> ends_;
};

TEST_F(ObserverHears, nothing_of_eviction_where_asking_for_it_breaks_the_connection) {
    const std::string greeting = "$11\r\nrun_id:abcd\r\n$0\r\n\r\n*2\r\n$1\r\n1\r\n$1\r\n0\r\n";
    DeafServers servers;
    std::atomic<int> connections{0};
    const auto connect = [&](std::chrono::milliseconds) {
        return servers.connect(++connections == 1 ? greeting : greeting + "*2\r\n:1\r\n:30000\r\n");
    };
    Client client{{.factories = {{.connect = connect}},
                   .connect_timeout = 10s,
                   .command_timeout = 10s,
                   .observer = std::make_shared<Recorder>()}};
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(lock.try_lock_for(10s));
    EXPECT_EQ(connections, 2) << "the second one is not asked";
}

TEST_F(ObserverHears, how_long_and_how_often_was_tried) {
    ASSERT_TRUE(foreign_set(redis_, "job"));
    Lock<Simple> lock{client_, "job"};
    EXPECT_FALSE(lock.try_lock());
    const auto once = seen_->timed_out(1).back();
    EXPECT_EQ(once.key, "job");
    EXPECT_EQ(once.tries, 1U);
    // On a busy machine a wait may end before there was a second answer, or without one to its last try.
    std::size_t waits = 1;
    EXPECT_TRUE(eventually([&] {
        const Errc code = code_of(lock.acquire({.wait = 200ms}));
        if (code == Errc::unavailable) return false;
        EXPECT_EQ(code, Errc::timed_out);
        return seen_->timed_out(++waits).back().tries > 2;
    }));
    const auto often = seen_->timed_out(waits).back();
    EXPECT_GE(often.waited, 200ms);
    EXPECT_LT(often.waited, 10s);

    auto waiter = in_background([&] { return lock.try_lock_for(generous_limit); });
    EXPECT_TRUE(eventually([&] { return redis_.exists("redlatch:queue:{job}"); }));
    EXPECT_EQ(waiter.wait_for(100ms), std::future_status::timeout);
    redis_.del("job");
    EXPECT_TRUE(waiter.get());
    const auto acquired = seen_->acquired(1).front();
    EXPECT_GE(acquired.waited, 100ms);
    EXPECT_GT(acquired.tries, 1U);
}

TEST_F(ObserverHears, of_nested_holds) {
    Lock<Reentrant> lock{client_, "job"};
    lock.lock();
    lock.lock();
    lock.unlock();
    EXPECT_EQ(seen_->released(1).size(), 1U);  // told before the next one
    lock.unlock();
    const auto acquired = seen_->acquired(2);
    EXPECT_EQ(acquired.size(), 2U);
    EXPECT_EQ(acquired.back().tries, 1U) << "a nested hold asks the server too";
    const auto released = seen_->released(2);
    ASSERT_EQ(released.size(), 2U);
    EXPECT_EQ(released.front().outcome.value(), Release::still_held);
    EXPECT_EQ(released.back().outcome.value(), Release::released);
}

TEST_F(ObserverHears, what_became_of_a_release) {
    Client client{options(seen_, 3s)};  // a release is tried for so long
    Lock<Simple> lock{client, "job"};
    lock.lock();
    redis_.del("job");
    lock.unlock();
    EXPECT_EQ(seen_->released(1).back().outcome.value(), Release::expired);
    lock.lock();
    server_.stop();
    lock.unlock();
    EXPECT_EQ(code_of(seen_->released(2).back().outcome), Errc::unavailable);
}

TEST_F(ObserverHears, of_renewals) {
    Lock<> lock{client_, "job", {.lease = 4s}};
    lock.lock();
    const auto renewed = seen_->renewed(3);
    for (const auto& event : renewed) {
        EXPECT_EQ(event.key, "job");
        EXPECT_GT(event.remaining, 0ns);
        EXPECT_LE(event.remaining, 4s);
    }
}

TEST_F(ObserverHears, of_a_loss_once) {
    Lock<> watched{client_, "watched", {.lease = 300ms}};
    Lock<Simple> fixed{client_, "fixed", {.lease = 300ms}};
    watched.lock();
    redis_.del("watched");
    EXPECT_EQ(seen_->lost(1).back().key, "watched");
    EXPECT_GT(seen_->lost(1).back().held_for, 0ns);
    fixed.lock();
    EXPECT_EQ(seen_->lost(2).back().key, "fixed") << "though nobody asked for lost()";
    EXPECT_GT(seen_->lost(2).back().held_for, 250ms);
    watched.unlock();
    fixed.unlock();
    for (const auto& event : seen_->released(2)) {
        EXPECT_EQ(event.outcome.value(), Release::expired);
    }
    EXPECT_EQ(seen_->lost(2).size(), 2U);
}

TEST_F(ObserverHears, of_errors_with_key_and_node) {
    redis_.command({"RPUSH", "job", "data"});
    Lock<Simple> lock{client_, "job"};
    EXPECT_EQ(code_of(lock.acquire()), Errc::wrong_type);
    const Error wrong_type = seen_->errors(1).back();
    EXPECT_EQ(wrong_type.code, Errc::wrong_type);
    EXPECT_EQ(wrong_type.key, "job");
    EXPECT_EQ(wrong_type.node, server_.socket_path());
    EXPECT_NE(wrong_type.message.find("WRONGTYPE"), std::string::npos);
    EXPECT_EQ(code_of(lock.inspect()), Errc::wrong_type);
    EXPECT_EQ(seen_->errors(2).back().code, Errc::wrong_type);
    EXPECT_EQ(code_of(lock.force_unlock()), Errc::wrong_type);
    EXPECT_EQ(seen_->errors(3).back().code, Errc::wrong_type);
}

TEST_F(ObserverHears, of_a_server_that_went_and_came_back) {
    Lock<Simple> lock{client_, "job"};
    EXPECT_TRUE(lock.inspect());
    server_.stop();
    EXPECT_EQ(code_of(lock.inspect()), Errc::unavailable);
    EXPECT_EQ(seen_->errors(1).front().code, Errc::unavailable);
    server_.start();
    EXPECT_TRUE(lock.inspect());
    EXPECT_EQ(seen_->reconnected(1).front().node, server_.socket_path());
    EXPECT_TRUE(lock.inspect());
    EXPECT_EQ(seen_->log(2).back(), "reconnected " + server_.socket_path());
}

TEST_F(ObserverHears, of_no_return_of_a_server_that_turns_the_client_away) {
    const Lock<Simple> lock{client_, "job"};
    const auto look = [&lock] {
        Outcome<LockInfo> info;
        lock.async_inspect(info.callback());
        return info.get();
    };
    EXPECT_TRUE(look());
    redis_.command({"CONFIG", "SET", "requirepass", "secret"});
    redis_.command({"CLIENT", "KILL", "TYPE", "normal"});  // all but this one
    EXPECT_TRUE(eventually([&] { return code_of(look()) == Errc::denied; }));
    EXPECT_TRUE(stays([&] { return seen_->reconnected(0).empty(); }, 50ms));
    redis_.command({"CONFIG", "SET", "requirepass", ""});
    EXPECT_TRUE(eventually([&] { return look().has_value(); }));
    EXPECT_EQ(seen_->reconnected(1).size(), 1U);
}

TEST_F(ObserverHears, of_a_release_by_who_holds_nothing) {
    Lock<Simple> free{client_, "free"};
    Lock<> others{client_, "others"};
    Lock<Reentrant> wrong{client_, "wrong"};
    const Held held = others.acquire().value();
    wrong.lock();
    const auto release_all = [&] {
        free.unlock();
        others.unlock();
        wrong.unlock();
        EXPECT_EQ(others.release().value(), Release::not_held);
    };
    on_another_thread([&] { return release_all(), true; });
    const auto released = seen_->released(4);
    std::multiset<std::string> keys;
    for (const auto& event : released) {
        keys.insert(event.key);
        EXPECT_EQ(event.outcome.value(), Release::not_held);
        EXPECT_EQ(event.held_for, 0ns);
    }
    EXPECT_EQ(keys, (std::multiset<std::string>{"free", "others", "others", "wrong"}));
    EXPECT_TRUE(held.held());
    EXPECT_TRUE(wrong.held());
}

TEST_F(ObserverHears, nothing_of_what_did_not_happen) {
    Lock<Simple> lock{client_, "job"};
    EXPECT_EQ(Held{}.release().value(), Release::not_held);
    EXPECT_TRUE(lock.inspect());
    const std::lock_guard guard{lock};
    EXPECT_EQ(seen_->log(1), std::vector<std::string>{"acquired job"});
}

TEST_F(ObserverTest, hears_all_before_the_clients_end) {
    {
        Client client{options(seen_)};
        Lock<Simple> lock{client, "job"};
        for (int i = 0; i < 100; ++i) {
            const std::lock_guard guard{lock};
        }
    }
    EXPECT_EQ(seen_->log(0).size(), 200U);
}

TEST_F(ObserverTest, may_be_shared_by_clients) {
    Client one{options(seen_)};
    Client two{options(seen_)};
    Lock<> first{one, "job"};
    Lock<> second{two, "job"};
    { const std::lock_guard guard{first}; }
    { const std::lock_guard guard{second}; }
    EXPECT_EQ(seen_->acquired(2).size(), 2U);
}

/// Throws whatever it is told. The end of what it threw at is not told: so it hears the ends in silence about the
/// beginnings, or has it the other way round.
class Thrower : public Observer {
public:
    explicit Thrower(bool at_beginnings) : at_beginnings_(at_beginnings) {}

    void acquired(const Acquired&) override { fail(); }
    void timed_out(const TimedOut&) override { fail(); }
    void released(const Released&) override { fail(); }
    void renewed(const Renewed&) override { throw 1; }
    void lost(const Lost&) override { fail(); }
    void error(const Error&) override { fail(); }
    void reconnected(const Reconnected&) override { fail(); }
    void warning(const Warning&) override { fail(); }
    void wait_began(const WaitBegan&) override { begin(); }
    void wait_ended(const WaitEnded&) override { fail(); }
    void hold_began(const HoldBegan&) override { begin(); }
    void hold_ended(const HoldEnded&) override { fail(); }

    std::atomic<int> thrown{0};

private:
    void begin() {
        if (at_beginnings_) fail();
    }
    void fail() {
        ++thrown;
        throw std::runtime_error{"an observer's own trouble"};
    }

    const bool at_beginnings_;
};

TEST_F(ObserverTest, that_throws_harms_nobody) {
    redis_.command({"CONFIG", "SET", "maxmemory", "100mb"});
    redis_.command({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
    redis_.set("data", "value");
    for (const bool at_beginnings : {true, false}) {
        const auto thrower = std::make_shared<Thrower>(at_beginnings);
        Client client{options(thrower)};
        Lock<> lock{client, "job", {.lease = 6s}};
        Lock<Reentrant> wrong{client, "data"};
        for (int i = 0; i < 5; ++i) {
            Held held = lock.acquire().value();
            EXPECT_FALSE(on_another_thread([&] { return lock.try_lock_for(20ms); }));
            EXPECT_EQ(code_of(wrong.acquire()), Errc::wrong_type);
            EXPECT_EQ(held.release().value(), Release::released);
        }
        Held held = lock.acquire().value();
        redis_.del("job");
        EXPECT_TRUE(fires(held.lost()));
        // The last hold and, each time, a hold, a wait, an error; beginnings or ends, and outcomes; one warning.
        EXPECT_TRUE(eventually([&] { return thrower->thrown == 5 * 6 + 3 + 1; }))
            << thrower->thrown;
    }
}

/// Blocks in `acquired` of "slow" until it is told to go on.
class Blocker : public Recorder {
public:
    using Recorder::acquired;
    void acquired(const Acquired& event) override {
        if (event.key == "slow") {
            ++blocked;
            while (!go_on) std::this_thread::sleep_for(1ms);
            --blocked;
        }
        Recorder::acquired(event);
    }
    std::atomic<int> blocked{0};
    std::atomic<bool> go_on{false};
};

TEST_F(ObserverTest, that_blocks_holds_up_neither_locks_nor_other_events) {
    const auto blocker = std::make_shared<Blocker>();
    {
        Client client{options(blocker)};
        Lock<> slow{client, "slow"};
        Lock<> quick{client, "quick"};
        { const std::lock_guard guard{slow}; }
        ASSERT_TRUE(eventually([&] { return blocker->blocked == 1; }));
        for (int i = 0; i < 3; ++i) {
            const std::lock_guard guard{quick};
        }
        EXPECT_EQ(blocker->acquired(3).back().key, "quick") << "told by another thread";
        { const std::lock_guard guard{slow}; }
        EXPECT_TRUE(eventually([&] { return blocker->blocked == 2; }));
        Held held = quick.acquire().value();
        redis_.del("quick");
        EXPECT_EQ(code_of(held.extend(10s)), Errc::lost);
        EXPECT_TRUE(fires(held.lost()));
        blocker->go_on = true;
        EXPECT_EQ(blocker->acquired(6).size(), 6U);
    }
    EXPECT_EQ(blocker->blocked, 0);
}

TEST_F(ObserverTest, that_blocks_for_ever_holds_up_the_end_of_its_client_for_a_bounded_time) {
    const auto blocker = std::make_shared<Blocker>();
    std::optional<Client> client{std::in_place, options(blocker, 500ms)};
    Lock<> slow{*client, "slow"};
    { const std::lock_guard guard{slow}; }
    ASSERT_TRUE(eventually([&] { return blocker->blocked == 1; }));
    const Stopwatch watch;
    client.reset();
    EXPECT_LT(watch.elapsed(), 3 * 500ms + 10s);
    EXPECT_EQ(blocker->blocked, 1);
    blocker->go_on = true;
    EXPECT_TRUE(eventually([&] { return blocker->blocked == 0; })) << "its thread is left behind";
}

/// Takes a lock whenever it hears of another one.
class Locker : public Observer {
public:
    void released(const Released& event) override {
        if (event.key != "job") return;
        { const std::lock_guard guard{*mine}; }
        ++taken;  // the test may end then
    }
    Lock<>* mine = nullptr;
    std::atomic<int> taken{0};
};

TEST_F(ObserverTest, may_use_locks_itself) {
    const auto locker = std::make_shared<Locker>();
    {
        Client client{options(locker)};
        Lock<> mine{client, "observers"};
        Lock<> lock{client, "job"};
        locker->mine = &mine;
        for (int i = 0; i < 3; ++i) {
            const std::lock_guard guard{lock};
        }
        EXPECT_TRUE(eventually([&] { return locker->taken == 3; }));
    }
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(ObserverTest, that_is_absent_costs_no_thread) {
    const auto before = running_threads();
    Client client{options(nullptr)};
    Lock<Simple> lock{client, "job"};
    Lock<Reentrant> nested{client, "nested"};
    const std::lock_guard guard{lock};
    const std::lock_guard outer{nested};
    const std::lock_guard inner{nested};
    EXPECT_EQ(running_threads(), before);
}

std::multiset<std::string> names_of_threads() {
    std::multiset<std::string> names;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        std::ifstream file{task.path() / "comm"};
        std::string name;
        if (std::getline(file, name)) names.insert(name);
    }
    return names;
}

TEST_F(ObserverTest, sees_threads_whose_names_say_what_they_do) {
    Client client{options(std::make_shared<Observer>())};
    Client other{options(nullptr)};
    Lock<Watchdog<Simple>> watched{client, "watched"};
    const auto held = watched.acquire();
    const std::stop_token lost = held->lost();
    Lock<Watchdog<Simple>> wanted{other, "watched"};
    Errc refused{};
    EXPECT_TRUE(eventually([&] {  // who got an answer too late to wait on does not listen
        refused = code_of(wanted.acquire({.wait = 50ms}));
        return refused == Errc{} || names_of_threads().contains("redlatch listen");
    }));
    EXPECT_NE(refused, Errc{});
    Lock<Simple> sent{client, "sent", {.release_mode = ReleaseMode::sent}};
    { const std::lock_guard guard{sent}; }
    sent.async_inspect([](const Result<LockInfo>&) {});
    const std::set<std::string> expected{"redlatch drain",  "redlatch engine", "redlatch events",
                                         "redlatch listen", "redlatch losses", "redlatch notify",
                                         "redlatch renew",  "redlatch resume"};
    EXPECT_TRUE(eventually([&] { return std::ranges::includes(names_of_threads(), expected); }))
        << ::testing::PrintToString(names_of_threads());
}

TEST_F(ObserverTest, sees_one_engine_from_the_first_asynchronous_call_on) {
    const auto engines = [] { return names_of_threads().count("redlatch engine"); };
    Client client{options(nullptr)};
    Lock<Simple> lock{client, "job"};
    { const std::lock_guard guard{lock}; }
    EXPECT_EQ(engines(), 0U);
    std::atomic<int> looked{0};
    for (int i = 0; i < 100; ++i) lock.async_inspect([&](const Result<LockInfo>&) { ++looked; });
    EXPECT_TRUE(eventually([&] { return looked == 100; }));
    EXPECT_EQ(engines(), 1U);
}

class MetricsTest : public ObserverTest {
protected:
    /// A counter's value, by its name with labels.
    std::string value(const std::string& name) const {
        std::istringstream lines{metrics_->prometheus()};
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with(name + " ")) return line.substr(name.size() + 1);
        }
        return "absent";
    }
    testing::AssertionResult becomes(const std::string& name, const std::string& expected) const {
        if (eventually([&] { return value(name) == expected; })) return testing::AssertionSuccess();
        return testing::AssertionFailure() << name << " is " << value(name);
    }

    std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
    Client client_{options(metrics_)};
};

TEST_F(MetricsTest, prints_every_metric_in_the_text_format) {
    const std::regex comment{R"(# (HELP|TYPE) redlatch_[a-z_]+ .+)"};
    const std::regex sample{
        R"re(redlatch_[a-z_]+(\{[a-z]+="[a-zI0-9_.+]+"\})? [0-9]+(\.[0-9]+)?)re"};
    const std::string text = metrics_->prometheus();
    EXPECT_TRUE(text.ends_with("\n"));
    std::istringstream lines{text};
    std::string described;
    int samples = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("# TYPE ")) described = line.substr(7, line.find(' ', 7) - 7);
        if (line.starts_with("#")) {
            EXPECT_TRUE(std::regex_match(line, comment)) << line;
            continue;
        }
        ++samples;
        EXPECT_TRUE(std::regex_match(line, sample)) << line;
        EXPECT_TRUE(line.starts_with(described)) << line << " stands below " << described;
    }
    EXPECT_GT(samples, 10);
}

TEST_F(MetricsTest, counts_servers_that_may_evict_a_lock) {
    RedisServer server{{.config = {{"maxmemory", "100mb"}, {"maxmemory-policy", "allkeys-lru"}}}};
    Client client{with(metrics_, server.uri())};
    ASSERT_TRUE(client.ping().has_value());
    EXPECT_TRUE(becomes("redlatch_warnings_total", "1"));
}

TEST_F(MetricsTest, counts_what_happens) {
    Lock<> lock{client_, "job", {.lease = 4s}};
    Lock<Reentrant> nested{client_, "nested"};
    EXPECT_EQ(value("redlatch_wait_seconds_count"), "0");

    lock.lock();
    EXPECT_FALSE(on_another_thread([&] { return lock.try_lock(); }));
    EXPECT_TRUE(becomes("redlatch_wait_seconds_count", "1"));
    EXPECT_TRUE(becomes("redlatch_timed_out_total", "1"));
    EXPECT_TRUE(eventually([&] { return std::stoi(value("redlatch_renewed_total")) >= 2; }));
    lock.unlock();
    EXPECT_TRUE(becomes("redlatch_releases_total{outcome=\"released\"}", "1"));
    EXPECT_TRUE(becomes("redlatch_hold_seconds_count", "1"));
    EXPECT_GT(std::stod(value("redlatch_hold_seconds_sum")), 0.1);

    Held held = lock.acquire().value();
    redis_.del("job");
    EXPECT_TRUE(becomes("redlatch_lost_total", "1"));
    EXPECT_EQ(held.release().value(), Release::expired);
    EXPECT_TRUE(becomes("redlatch_releases_total{outcome=\"expired\"}", "1"));
    EXPECT_TRUE(becomes("redlatch_hold_seconds_count", "2")) << "a lost hold has ended once";

    lock.unlock();
    EXPECT_TRUE(becomes("redlatch_releases_total{outcome=\"not_held\"}", "1"));
    EXPECT_EQ(value("redlatch_hold_seconds_count"), "2") << "nothing was held";

    redis_.set("nested", "data");
    EXPECT_EQ(code_of(nested.acquire()), Errc::wrong_type);
    EXPECT_TRUE(becomes("redlatch_errors_total{code=\"wrong_type\"}", "1"));

    server_.stop();
    EXPECT_EQ(code_of(lock.inspect()), Errc::unavailable);
    EXPECT_TRUE(
        eventually([&] { return value("redlatch_errors_total{code=\"unavailable\"}") != "0"; }));
    server_.start();
    EXPECT_TRUE(lock.inspect());
    EXPECT_TRUE(becomes("redlatch_reconnected_total", "1"));
    EXPECT_EQ(value("redlatch_wait_seconds_count"), "2");
}

}  // namespace
}  // namespace redlatch::test
