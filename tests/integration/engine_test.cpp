// The engine and its link, with orders of the tests' own.

#include "engine_tools.hpp"
#include "fault_tools.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/wait.hpp"
#include <redlatch/redlatch.hpp>

#include <gtest/gtest.h>

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::CommandRank;
using detail::saturating_add;

class AnEngine : public ::testing::Test {
protected:
    explicit AnEngine(std::chrono::milliseconds timeout = 10s)
        : session_(detail::check_client(options_for(proxy_.uri(), timeout)).value()) {}

    detail::Engine& engine() { return session_.engine(); }

    template <class... Orders>
    void submit(const Orders&... orders) {
        on_engine(engine(), [&] { (engine().submit(orders), ...); });
    }

    std::string answer(const OrderPtr& what) {
        submit(what);
        const Outcome outcome = what->wait();
        return outcome.answered() ? outcome.value : outcome.fault.error.message;
    }

    RedisServer server_;
    RawRedis redis_{server_};
    Proxy proxy_{server_.uri()};
    detail::Session session_;
};

TEST_F(AnEngine, carries_out_an_order) {
    const auto before = Clock::now();
    const OrderPtr set = order({"SET", "a", "1"});
    EXPECT_EQ(answer(set), "OK");
    EXPECT_EQ(redis_.get("a"), "1");
    EXPECT_GE(set->wait().sent, before);
    EXPECT_LE(set->wait().sent, Clock::now());
    EXPECT_EQ(answer(order({"GET", "b"})), "nil");
}

TEST_F(AnEngine, gives_each_order_its_own_answer) {
    std::vector<OrderPtr> orders;
    for (int i = 0; i < 3000; ++i) orders.push_back(order({"ECHO", std::to_string(i)}));
    on_engine(engine(), [&] {
        for (const OrderPtr& each : orders) engine().submit(each);
    });
    for (int i = 0; i < 3000; ++i) {
        EXPECT_EQ(orders[static_cast<std::size_t>(i)]->wait().value, std::to_string(i));
    }
    EXPECT_EQ(proxy_.counts().connections, 1);
}

TEST_F(AnEngine, tells_what_the_server_refuses) {
    const OrderPtr wrong = order({"SET", "a"});
    EXPECT_NE(answer(wrong).find("wrong number of arguments"), std::string::npos);
    EXPECT_FALSE(wrong->wait().fault.maybe_executed);
    EXPECT_EQ(answer(order({"SET", "a", "1"})), "OK") << "the link goes on";
}

TEST_F(AnEngine, sends_a_script_as_a_whole_first_and_by_its_name_then) {
    const Script script{"return redis.call('INCR', KEYS[1])"};
    std::vector<OrderPtr> orders{order(script, "n"), order(script, "n"), order(script, "n")};
    submit(orders[0], orders[1], orders[2]);
    for (const OrderPtr& each : orders) EXPECT_TRUE(each->wait().answered());
    EXPECT_EQ(redis_.get("n"), "3");
    const std::string stats = redis_.command({"INFO", "commandstats"}).text;
    EXPECT_NE(stats.find("cmdstat_eval:calls=1,"), std::string::npos) << stats;
    EXPECT_NE(stats.find("cmdstat_evalsha:calls=2,"), std::string::npos) << stats;
}

TEST_F(AnEngine, sends_a_script_once_more_that_the_server_has_forgotten) {
    const Script script{"return redis.call('INCR', KEYS[1])"};
    EXPECT_EQ(answer(order(script, "n")), "1");
    redis_.command({"SCRIPT", "FLUSH"});
    EXPECT_EQ(answer(order(script, "n")), "2");
}

TEST_F(AnEngine, keeps_an_order_no_longer_than_until_its_deadline) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    proxy_.hold_replies();
    const Stopwatch watch;
    const OrderPtr late = order({"SET", "a", "1"}, 2s);  // to be written by then
    submit(late);
    const Outcome outcome = late->wait();
    EXPECT_GE(watch.elapsed(), 2s);
    EXPECT_EQ(outcome.fault.error.code, Errc::unavailable);
    EXPECT_TRUE(outcome.fault.maybe_executed);
    EXPECT_FALSE(outcome.fault.error.node.empty());
    EXPECT_TRUE(late->late().empty());

    proxy_.pass();
    ASSERT_TRUE(eventually([&] { return late->late().size() == 1; }));
    EXPECT_EQ(late->late().front().value, "OK") << "its answer comes late";
    EXPECT_EQ(late->late().front().sent, outcome.sent);
    EXPECT_EQ(late->times_told(), 1);
    EXPECT_EQ(answer(order({"GET", "a"})), "1") << "and the link lives";
    EXPECT_EQ(proxy_.counts().connections, 1);
}

/// More than a link has unanswered at a time: what comes behind them waits for its turn.
TEST_F(AnEngine, gives_an_order_that_waits_behind_others_its_time_anew_where_it_has_some_left) {
    ASSERT_EQ(answer(order({"PING"})), "PONG") << "it gets answers";
    proxy_.hold_replies();
    std::vector<OrderPtr> before;
    for (int i = 0; i < 1024; ++i) before.push_back(order({"PING"}));
    const OrderPtr patient = order({"SET", "a", "1"}, 500ms);
    const OrderPtr strict = order({"SET", "b", "1"}, 500ms);
    patient->time.give_up_at = saturating_add(Clock::now(), generous_limit);
    on_engine(engine(), [&] {
        for (const OrderPtr& each : before) engine().submit(each);
        engine().submit(patient);
        engine().submit(strict);
    });
    const Outcome outcome = strict->wait();
    EXPECT_EQ(outcome.fault.error.code, Errc::unavailable);
    EXPECT_FALSE(outcome.fault.maybe_executed);
    EXPECT_FALSE(patient->is_told());
    proxy_.pass();
    EXPECT_EQ(patient->wait().value, "OK");
    EXPECT_FALSE(redis_.exists("b"));
}

TEST_F(AnEngine, counts_an_answer_that_came_while_its_thread_was_busy) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    proxy_.hold_replies();
    const OrderPtr set = order({"SET", "a", "1"}, 3s);
    submit(set);
    ASSERT_TRUE(eventually([&] { return redis_.exists("a"); }));
    on_engine(engine(), [&] {
        proxy_.pass();
        std::this_thread::sleep_until(set->time.answer_by + 1s);
    });
    EXPECT_EQ(set->wait().value, "OK");
}

std::atomic<bool> is_kept{false};
std::atomic<bool> may_go_on{false};

/// As where the process is stopped: the thread hears of the answer after its time is over, and is not told of it.
TEST_F(AnEngine, counts_an_answer_that_came_while_its_thread_was_stopped) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = [](int) {
        is_kept = true;
        while (!may_go_on) ::usleep(1000);
    };
    ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
    ::pthread_t thread{};
    on_engine(engine(), [&] {
        thread = ::pthread_self();
        sigset_t told{};
        ::sigemptyset(&told);
        ::sigaddset(&told, SIGUSR1);
        ::pthread_sigmask(SIG_UNBLOCK, &told, nullptr);
    });
    proxy_.hold_replies();
    const OrderPtr set = order({"SET", "a", "1"}, 3s);
    submit(set);
    ASSERT_TRUE(eventually([&] { return redis_.exists("a"); }));
    ASSERT_EQ(::pthread_kill(thread, SIGUSR1), 0);
    EXPECT_TRUE(eventually([] { return is_kept.load(); }));
    proxy_.pass();
    std::this_thread::sleep_until(set->time.answer_by + 1s);
    may_go_on = true;
    EXPECT_EQ(set->wait().value, "OK");
    ::sigaction(SIGUSR1, &before, nullptr);
}

class EngineTaskOf final : public detail::EngineTask {
public:
    void run() noexcept override {
        if (action) action();
    }
    std::function<void()> action{};
};

/// More than run in one turn of the thread.
TEST_F(AnEngine, looks_for_answers_between_many_tasks) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    const OrderPtr set = order({"SET", "a", "1"});
    bool told_in_time = false;
    std::deque<EngineTaskOf> tasks(5000);
    tasks.front().action = [&] { engine().submit(set); };
    for (std::size_t i = tasks.size() / 2; i + 1 < tasks.size(); ++i) {
        tasks[i].action = [&] {
            if (!set->is_told()) std::this_thread::sleep_for(1ms);
        };
    }
    tasks.back().action = [&] { told_in_time = set->is_told(); };
    on_engine(engine(), [&] {
        for (EngineTaskOf& task : tasks) engine().post(task);
    });
    EXPECT_EQ(set->wait().value, "OK");
    on_engine(engine(), [] {});  // runs after all of them
    EXPECT_TRUE(told_in_time);
}

TEST_F(AnEngine, tells_an_abandoned_order_only_of_a_late_answer) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    proxy_.hold_replies();
    const OrderPtr given_up = order({"SET", "a", "1"});
    const OrderPtr other = order({"GET", "a"});
    submit(given_up, other);
    ASSERT_TRUE(eventually([&] { return redis_.exists("a"); }));
    bool maybe_executed = false;
    on_engine(engine(), [&] { maybe_executed = engine().abandon(*given_up); });
    EXPECT_TRUE(maybe_executed);
    proxy_.pass();
    EXPECT_EQ(other->wait().value, "1");
    EXPECT_EQ(given_up->times_told(), 0);
    ASSERT_EQ(given_up->late().size(), 1U);
    EXPECT_EQ(given_up->late().front().value, "OK");
}

TEST_F(AnEngine, never_sends_what_is_abandoned_at_once) {
    const OrderPtr given_up = order({"SET", "a", "1"});
    bool maybe_executed = true;
    on_engine(engine(), [&] {
        engine().submit(given_up);
        maybe_executed = engine().abandon(*given_up);
    });
    EXPECT_FALSE(maybe_executed);
    EXPECT_EQ(answer(order({"EXISTS", "a"})), "0");
    EXPECT_EQ(given_up->times_told(), 0);
    EXPECT_TRUE(given_up->late().empty());
    EXPECT_EQ(given_up.use_count(), 1) << "forgotten";
}

TEST_F(AnEngine, takes_out_what_another_link_has_not_written_of_a_token_that_is_released) {
    const int policy = 0;
    const auto over_its_link = [&](OrderPtr made) {
        made->own = &policy;
        return made;
    };
    ASSERT_EQ(answer(over_its_link(order({"PING"}))), "PONG");
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    EXPECT_EQ(proxy_.counts().connections, 2);

    const auto stale =
        over_its_link(std::make_shared<TestOrder>(TestOrder::Words{"SET", "a", "1"}, "its token"));
    const auto release = std::make_shared<TestOrder>(TestOrder::Words{"DEL", "b"}, "its token");
    release->rank = CommandRank::release;
    submit(stale, release);
    EXPECT_EQ(release->wait().value, "0");
    EXPECT_EQ(stale->wait().fault.error.code, Errc::cancelled);
    EXPECT_FALSE(stale->wait().fault.maybe_executed);
    EXPECT_FALSE(redis_.exists("a"));
}

TEST_F(AnEngine, forgets_an_order_that_was_answered) {
    const OrderPtr ping = order({"PING"});
    EXPECT_EQ(answer(ping), "PONG");
    EXPECT_TRUE(eventually([&] { return ping.use_count() == 1; }));
    on_engine(engine(), [&] { EXPECT_FALSE(engine().abandon(*ping)); });
}

TEST_F(AnEngine, says_why_it_cannot_connect) {
    proxy_.refuse();
    const OrderPtr ping = order({"PING"});
    EXPECT_NE(answer(ping).find("connect"), std::string::npos);
    EXPECT_EQ(ping->wait().fault.error.code, Errc::unavailable);
    EXPECT_FALSE(ping->wait().fault.maybe_executed);
    proxy_.pass();
    EXPECT_EQ(answer(order({"PING"})), "PONG");
}

TEST_F(AnEngine, does_not_know_what_became_of_orders_whose_link_was_cut) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    proxy_.hold_replies();
    const OrderPtr one = order({"INCR", "n"});
    submit(one);
    ASSERT_TRUE(eventually([&] { return redis_.get("n") == "1"; }));
    proxy_.cut();
    proxy_.pass();
    EXPECT_TRUE(one->wait().answered()) << "nothing had been heard since the link lay idle";
    EXPECT_TRUE(one->asked_again);

    proxy_.hold_replies();
    const OrderPtr two = order({"INCR", "m"}, 2s);  // to be written by then
    submit(two);
    two->wait();
    proxy_.cut();
    ASSERT_TRUE(eventually([&] { return two->late().size() == 1; }));
    EXPECT_FALSE(two->late().front().answered()) << "none will ever come";
    EXPECT_FALSE(two->asked_again) << "nothing is sent again that was given up";
    proxy_.pass();
    EXPECT_EQ(answer(order({"PING"})), "PONG");
}

TEST_F(AnEngine, connects_anew_where_the_server_has_become_a_replica_and_a_master_again) {
    ASSERT_EQ(answer(order({"SET", "a", "1"})), "OK");
    redis_.command({"REPLICAOF", "127.0.0.1", "1"});
    EXPECT_NE(answer(order({"SET", "a", "2"})).find("READONLY"), std::string::npos);
    redis_.command({"REPLICAOF", "NO", "ONE"});
    EXPECT_EQ(answer(order({"SET", "a", "3"})), "OK") << "though nothing but that happens";
    EXPECT_EQ(proxy_.counts().connections, 2);
}

class AnEngineInAHurry : public AnEngine {
protected:
    AnEngineInAHurry() : AnEngine(4s) {}
};

TEST_F(AnEngineInAHurry, gives_up_a_link_to_a_server_that_is_silent) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    proxy_.black_hole();
    const OrderPtr swallowed = order({"INCR", "n"});
    const Stopwatch watch;
    submit(swallowed);
    EXPECT_EQ(swallowed->wait().fault.error.code, Errc::unavailable);
    EXPECT_TRUE(swallowed->wait().fault.maybe_executed);
    EXPECT_GE(watch.elapsed(), 3900ms);
    EXPECT_LT(watch.elapsed(), generous_limit) << "long before its own deadline";
    proxy_.pass();
    EXPECT_EQ(answer(order({"PING"})), "PONG") << "over another one";
    EXPECT_EQ(redis_.get("n"), std::nullopt) << "nothing was sent again";
}

TEST_F(AnEngine, goes_on_where_a_forked_child_has_its_sockets) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    ChildProcess child{[](LineChannel& parent) {
        parent.read_line();
        return 0;
    }};
    proxy_.cut();
    EXPECT_EQ(answer(order({"PING"})), "PONG");
    EXPECT_EQ(answer(order({"SET", "a", "1"})), "OK");
    EXPECT_EQ(proxy_.counts().connections, 2);
    child.write_line("end");
}

TEST_F(AnEngine, runs_what_was_posted_before_it_closes_and_fails_all_orders) {
    ASSERT_EQ(answer(order({"PING"})), "PONG");
    proxy_.hold_replies();
    const OrderPtr written = order({"SET", "a", "1"});
    submit(written);
    ASSERT_TRUE(eventually([&] { return redis_.exists("a"); }));
    const OrderPtr last = order({"PING"});
    struct Task final : detail::EngineTask {
        void run() noexcept override { engine->submit(what); }
        detail::Engine* engine;
        OrderPtr what;
    } task;
    task.engine = &engine();
    task.what = last;
    ASSERT_TRUE(engine().post(task));
    engine().close();
    EXPECT_EQ(written->wait().fault.error.code, Errc::cancelled);
    EXPECT_TRUE(written->wait().fault.maybe_executed);
    EXPECT_EQ(last->wait().fault.error.code, Errc::cancelled);
    EXPECT_FALSE(engine().post(task)) << "nothing runs any more";
    EXPECT_FALSE(engine().start());
}

TEST_F(AnEngine, that_was_never_started_closes_too) {
    engine().close();
    EXPECT_FALSE(engine().start());
    EXPECT_EQ(proxy_.counts().connections, 0);
}

TEST_F(AnEngine, runs_timers_when_they_are_due) {
    struct Timer final : detail::EngineTimer {
        void expired(detail::TimePoint now) noexcept override { at = now; }
        std::atomic<detail::TimePoint> at{};
    };
    Timer soon;
    Timer never;
    const auto due = Clock::now() + 30ms;
    on_engine(engine(), [&] {
        engine().set_timer(soon, due);
        engine().set_timer(never, due);
        engine().clear_timer(never);
    });
    ASSERT_TRUE(eventually([&] { return soon.at.load() != detail::TimePoint{}; }));
    EXPECT_GE(soon.at.load(), due);
    EXPECT_EQ(never.at.load(), detail::TimePoint{});
}

class AnImpatientEngine : public AnEngine {
protected:
    AnImpatientEngine() : AnEngine(2s) {}
};

TEST_F(AnImpatientEngine, fails_no_order_with_an_attempt_to_connect_that_began_before_it_came) {
    server_.freeze();
    const OrderPtr first = order({"PING"});
    const OrderPtr later = order({"PING"});
    submit(first);
    submit(later);  // at a later turn
    EXPECT_EQ(first->wait().fault.error.code, Errc::unavailable);
    EXPECT_FALSE(later->is_told());
    server_.thaw();
    EXPECT_EQ(later->wait().value, "PONG");
}

}  // namespace
