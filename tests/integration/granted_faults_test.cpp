// The queue when things break: processes that die or stop, connections that end, messages that get
// lost, servers that start again, and users who may not do everything.

#include "granted_tools.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"

#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

/// Who is told, or asks often, has the lock in less; who asks by himself as others do needs longer as a rule. A busy
/// machine may need longer too, but not always.
constexpr auto at_once = 900ms;

/// The longest time for which the first in the queue leave it at waiting.
constexpr auto recheck_in_front = 2s;

/// How much later that may be on a busy machine. Those further behind ask in 5 to 10 s.
constexpr auto more_slack = 5s;

// ------------------------------------------------------------------------------ processes

// No client here before the children are made: a fork should find one thread.
template <class Policy>
class GrantedProcess : public ::testing::Test {
protected:
    /// A process that asks for the lock when it is told to, says when it has it, and gives it back
    /// when it is told to.
    ChildProcess make_contender(std::chrono::milliseconds lease = 30s) {
        return ChildProcess{[this, lease](LineChannel& parent) {
            if (!parent.read_line(patience)) return 1;
            Client client{patient(server_.uri())};
            Lock<Policy> lock{client, "job", {.lease = lease}};
            Held held = lock.acquire().value();
            parent.write_line(held.held() ? "has it" : "has nothing");
            static_cast<void>(parent.read_line(patience));
            const auto released = held.release();
            return released && *released == Release::released ? 0 : 2;
        }};
    }

    static void make_holder(ChildProcess& child) {
        child.write_line("ask");
        ASSERT_EQ(child.read_line(), "has it");
    }

    void make_waiter(ChildProcess& child) {
        const long long before = waiters(redis_);
        child.write_line("ask");
        ASSERT_TRUE(queue_grows_to(redis_, before + 1));
    }

    static void expect_end(ChildProcess& child) {
        child.write_line("end");
        EXPECT_EQ(child.wait(), ExitStatus{});
    }

    bool channels_become(std::size_t count) {
        return eventually([&] {
            return redis_.command({"PUBSUB", "CHANNELS"}).elements.size() == count;
        });
    }

    RedisServer server_;
    RawRedis redis_{server_};
};
TYPED_TEST_SUITE(GrantedProcess, AllPolicies);

TYPED_TEST(GrantedProcess, is_served_in_the_order_of_coming) {
    constexpr int count = 4;
    ChildProcess holder = this->make_contender();
    std::vector<ChildProcess> children;
    for (int i = 0; i < count; ++i) children.push_back(this->make_contender());
    this->make_holder(holder);
    for (ChildProcess& child : children) this->make_waiter(child);
    EXPECT_TRUE(this->channels_become(count)) << "who does not listen yet is passed over";
    this->expect_end(holder);
    for (ChildProcess& child : children) {
        EXPECT_EQ(child.read_line(), "has it");
        this->expect_end(child);
    }
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(GrantedProcess, that_was_killed_in_the_queue_is_skipped_at_once) {
    ChildProcess holder = this->make_contender();
    ChildProcess victim = this->make_contender();
    ChildProcess other_victim = this->make_contender();
    ChildProcess next = this->make_contender();
    this->make_holder(holder);
    this->make_waiter(victim);
    this->make_waiter(other_victim);
    this->make_waiter(next);
    ASSERT_TRUE(settles(this->redis_));
    victim.kill();
    other_victim.kill();
    EXPECT_TRUE(this->channels_become(1));
    this->expect_end(holder);
    EXPECT_TRUE(this->redis_.exists("job")) << "it is the next one's, in the same step";
    EXPECT_EQ(next.read_line(), "has it");
    this->expect_end(next);
    // The dead keep nobody out, and are forgotten by themselves.
    EXPECT_FALSE(this->redis_.exists("job"));
    for (const std::string& key : this->redis_.keys()) EXPECT_GT(this->redis_.pttl(key), 0) << key;
}

TYPED_TEST(GrantedProcess, that_was_killed_while_it_held_the_lock_costs_its_lease) {
    constexpr auto lease = 4s;  // long enough for two to come
    ChildProcess holder = this->make_contender(lease);
    ChildProcess first = this->make_contender();
    ChildProcess second = this->make_contender();
    this->make_holder(holder);
    const Stopwatch watch;
    this->make_waiter(first);
    this->make_waiter(second);
    holder.kill();
    EXPECT_EQ(first.read_line(), "has it");
    EXPECT_LT(watch.elapsed(), lease + recheck_in_front + more_slack);
    ASSERT_TRUE(settles(this->redis_));
    this->expect_end(first);
    EXPECT_TRUE(this->redis_.exists("job")) << "it is the second one's, in the same step";
    EXPECT_EQ(second.read_line(), "has it");
    this->expect_end(second);
}

TYPED_TEST(GrantedProcess, that_was_killed_with_a_granted_lock_costs_its_lease) {
    constexpr auto lease = 3s;
    ChildProcess holder = this->make_contender();
    ChildProcess victim = this->make_contender(lease);
    ChildProcess next = this->make_contender();
    this->make_holder(holder);
    this->make_waiter(victim);
    this->make_waiter(next);
    ASSERT_TRUE(settles(this->redis_));
    const Stopwatch watch;
    holder.write_line("end");
    ASSERT_EQ(victim.read_line(), "has it");
    victim.kill();
    EXPECT_EQ(next.read_line(), "has it");
    EXPECT_LT(watch.elapsed(), lease + recheck_in_front + more_slack);
    this->expect_end(next);
}

template <class Policy>
class StoppedProcess : public GrantedProcess<Policy> {};
using Shapes = ::testing::Types<Simple, Reentrant>;
TYPED_TEST_SUITE(StoppedProcess, Shapes);

TYPED_TEST(StoppedProcess, in_the_queue_delays_the_next_and_holds_nothing_afterwards) {
    constexpr auto lease = 3s;
    ChildProcess holder = this->make_contender();
    ChildProcess victim = this->make_contender(lease);
    ChildProcess next = this->make_contender();
    this->make_holder(holder);
    this->make_waiter(victim);
    this->make_waiter(next);
    ASSERT_TRUE(settles(this->redis_));
    victim.freeze();
    const Stopwatch watch;
    this->expect_end(holder);
    EXPECT_EQ(next.read_line(), "has it");
    EXPECT_LT(watch.elapsed(), lease + recheck_in_front + more_slack);
    // Its message waited for it, but its time is over.
    victim.thaw();
    EXPECT_EQ(victim.read_line(500ms), std::nullopt);
    this->expect_end(next);
    EXPECT_EQ(victim.read_line(), "has it");
    this->expect_end(victim);
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

template <class Policy>
class ForkedWaiter : public LockTest {};
TYPED_TEST_SUITE(ForkedWaiter, Shapes);

TYPED_TEST(ForkedWaiter, has_a_place_of_its_own_behind_its_parents) {
    Held held = take<TypeParam>(this->other_client_);
    auto waiter = enqueue<TypeParam>(this->redis_, this->client_);
    ASSERT_TRUE(settles(this->redis_));
    ChildProcess child{[this](LineChannel& parent) {
        Lock<TypeParam> lock{this->client_, "job"};
        auto own = lock.acquire({.wait = patience});
        parent.write_line(own ? "has it" : own.error().describe());
        static_cast<void>(parent.read_line(patience));
        return own && own->release().value() == Release::released ? 0 : 1;
    }};
    ASSERT_TRUE(queue_grows_to(this->redis_, 2));
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_EQ(child.read_line(200ms), std::nullopt);
    let_go(waiter.get());
    EXPECT_EQ(child.read_line(), "has it");
    child.write_line("end");
    EXPECT_EQ(child.wait(), ExitStatus{});
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(ForkedWaiter, that_dies_leaves_its_parents_place_alone) {
    Held held = take<TypeParam>(this->other_client_);
    auto waiter = enqueue<TypeParam>(this->redis_, this->client_);
    ASSERT_TRUE(settles(this->redis_));
    ChildProcess child{[this](LineChannel&) {
        static_cast<void>(Lock<TypeParam>{this->client_, "job"}.acquire({.wait = patience}));
        return 0;
    }};
    ASSERT_TRUE(queue_grows_to(this->redis_, 2));
    child.kill();
    EXPECT_TRUE(child.wait());
    let_go(held);
    EXPECT_TRUE(this->redis_.exists("job")) << "it is the parent's, in the same step";
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
}

// ---------------------------------------------------------------------------- connections

/// One client holds the lock, another one behind a proxy waits for it.
template <class Policy>
class GrantedLink : public ::testing::Test {
protected:
    /// What the one behind the proxy gives a command.
    static constexpr auto timeout = 2s;

    std::future<Result<Held>> enqueue_and_settle(AcquireOptions options = {.wait = patience}) {
        auto waiter = enqueue<Policy>(redis_, waiting_, options);
        EXPECT_TRUE(settles(redis_));
        return waiter;
    }

    bool channels_become(std::size_t count) {
        return eventually([&] {
            return redis_.command({"PUBSUB", "CHANNELS"}).elements.size() == count;
        });
    }

    RedisServer server_;
    RawRedis redis_{server_};
    Proxy proxy_{server_.uri()};
    Client holding_{patient(server_.uri())};
    Client waiting_{options_for(proxy_.uri(), timeout)};
};
TYPED_TEST_SUITE(GrantedLink, AllPolicies);

TYPED_TEST(GrantedLink, subscription_that_was_killed_comes_back) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    for (int i = 0; i < 2; ++i) {
        this->redis_.command({"CLIENT", "KILL", "TYPE", "pubsub"});
        EXPECT_TRUE(this->channels_become(1));
        EXPECT_TRUE(settles(this->redis_));
    }
    this->proxy_.hold_requests();  // who is told has nothing to ask
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    this->proxy_.pass();
    let_go(waiter.get());
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(GrantedLink, release_right_behind_a_killed_subscription_is_noticed) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    this->redis_.command({"CLIENT", "KILL", "TYPE", "pubsub"});
    const Stopwatch watch;
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_LT(watch.elapsed(), recheck_in_front + more_slack);
    let_go(waiter.get());
}

TYPED_TEST(GrantedLink, release_while_the_waiter_was_cut_off_is_noticed) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    this->proxy_.refuse();
    this->proxy_.cut();
    EXPECT_TRUE(this->channels_become(0));
    let_go(held);
    EXPECT_FALSE(this->redis_.exists("job"));  // nobody is there who could be given it
    EXPECT_EQ(waiters(this->redis_), 1);       // but he keeps his place
    EXPECT_EQ(waiter.wait_for(200ms), std::future_status::timeout);
    const Stopwatch watch;
    this->proxy_.pass();
    ASSERT_TRUE(finishes(waiter));
    EXPECT_LT(watch.elapsed(), recheck_in_front + more_slack);
    let_go(waiter.get());
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(GrantedLink, waiter_that_is_cut_off_holds_nobody_up) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    Client third{patient(this->server_.uri())};
    auto next = enqueue<TypeParam>(this->redis_, third);
    ASSERT_TRUE(settles(this->redis_));
    this->proxy_.refuse();
    this->proxy_.cut();
    EXPECT_TRUE(this->channels_become(1));
    let_go(held);
    EXPECT_TRUE(this->redis_.exists("job")) << "it is the next one's, in the same step";
    ASSERT_TRUE(finishes(next));
    this->proxy_.pass();
    EXPECT_EQ(waiter.wait_for(100ms), std::future_status::timeout);
    let_go(next.get());
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
}

TYPED_TEST(GrantedLink, message_that_got_lost_costs_one_more_question) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    this->proxy_.black_hole();
    let_go(held);
    EXPECT_TRUE(this->redis_.exists("job"));  // it is the waiter's
    EXPECT_EQ(waiters(this->redis_), 0);
    EXPECT_EQ(waiter.wait_for(100ms), std::future_status::timeout);
    const Stopwatch watch;
    this->proxy_.pass();
    ASSERT_TRUE(finishes(waiter));
    EXPECT_LT(watch.elapsed(), recheck_in_front + this->timeout + more_slack);
    let_go(waiter.get());
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(GrantedLink, place_that_was_asked_for_too_late_is_not_given) {
    Client patient{options_for(this->proxy_.uri(), 3s)};
    teach_to_listen<TypeParam>(this->redis_, patient, this->holding_);
    Held held = take<TypeParam>(this->holding_);
    this->proxy_.delay_requests(1s);
    const auto result = start_waiting<TypeParam>(patient, {.wait = 300ms, .lease = 100s}).get();
    EXPECT_FALSE(result.has_value());
    // What he had sent before arrives.
    ASSERT_TRUE(
        eventually([&] { return this->redis_.info("errorstats").contains("errorstat_LATE"); }));
    EXPECT_EQ(this->redis_.keys(), std::vector<std::string>{"job"});
    let_go(held);
    Lock<TypeParam> lock{this->holding_, "job"};
    EXPECT_TRUE(lock.try_lock());
    EXPECT_TRUE(stays([&] { return lock.inspect().value().locked; }, 500ms));
}

TYPED_TEST(GrantedLink, scripts_that_the_server_forgot_are_sent_again) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    this->redis_.script_flush();
    this->proxy_.hold_requests();  // who is told has nothing to ask
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    this->proxy_.pass();
    this->redis_.script_flush();
    let_go(waiter.get());
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(GrantedLink, waiters_go_on_when_the_queue_is_deleted) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    this->redis_.command({"DEL", "redlatch:queue:{job}", "redlatch:waiters:{job}"});
    EXPECT_TRUE(queue_grows_to(this->redis_, 1));  // by the next question
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
}

TYPED_TEST(GrantedLink, waiters_go_on_when_half_of_the_queue_is_deleted) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    this->redis_.del("redlatch:waiters:{job}");
    const Stopwatch watch;
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_LT(watch.elapsed(), recheck_in_front + more_slack);
    let_go(waiter.get());
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(GrantedLink, waiters_go_on_when_everything_is_deleted) {
    const Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    const Stopwatch watch;
    this->redis_.flushall();
    ASSERT_TRUE(finishes(waiter));
    EXPECT_LT(watch.elapsed(), recheck_in_front + more_slack);
    let_go(waiter.get());
}

TYPED_TEST(GrantedLink, waiter_gives_up_in_time_though_it_is_cut_off) {
    Held held = take<TypeParam>(this->holding_);
    const Stopwatch watch;
    auto waiter = this->enqueue_and_settle({.wait = 4s});
    this->proxy_.black_hole();
    const auto result = waiter.get();
    EXPECT_FALSE(result.has_value());
    EXPECT_LT(watch.elapsed(), 4s + 10s);
    // Nobody told the server. It finds out before it gives away the lock for good.
    this->proxy_.pass();
    let_go(held);
    EXPECT_TRUE(Lock<TypeParam>(this->holding_, "job").try_lock_for(15s));
}

TYPED_TEST(GrantedLink, frozen_server_keeps_the_places) {
    Held held = take<TypeParam>(this->holding_);
    auto waiter = this->enqueue_and_settle();
    this->server_.freeze();
    EXPECT_EQ(waiter.wait_for(1s), std::future_status::timeout);
    this->server_.thaw();
    EXPECT_EQ(waiters(this->redis_), 1);
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
}

// ------------------------------------------------------------------------ a server's restart

template <class Policy>
class GrantedRestart : public ::testing::Test {};
TYPED_TEST_SUITE(GrantedRestart, AllPolicies);

TYPED_TEST(GrantedRestart, without_the_data_lets_waiters_have_the_lock) {
    RedisServer server;
    Client holding{patient(server.uri())};
    Client waiting{patient(server.uri())};
    Client third{patient(server.uri())};
    std::vector<std::future<Result<Held>>> all;
    Held held = take<TypeParam>(holding);
    {
        RawRedis redis{server};
        all.push_back(enqueue<TypeParam>(redis, waiting));
        all.push_back(enqueue<TypeParam>(redis, third));
        EXPECT_TRUE(settles(redis));
    }
    const Stopwatch watch;
    server.restart();
    // Which of them is first now is open.
    ASSERT_TRUE(eventually([&] { return finishes(all[0], 0ms) || finishes(all[1], 0ms); }));
    EXPECT_LT(watch.elapsed(), recheck_in_front + more_slack + slack);
    const std::size_t first = finishes(all[0], 0ms) ? 0 : 1;
    EXPECT_FALSE(finishes(all[1 - first], 100ms));
    let_go(all[first].get());
    ASSERT_TRUE(finishes(all[1 - first]));
    let_go(all[1 - first].get());
    RawRedis redis{server};
    EXPECT_TRUE(eventually([&] { return redis.keys().empty(); }));
}

TYPED_TEST(GrantedRestart, with_the_data_keeps_the_places) {
    RedisServer server{{.append_only = true}};
    Client holding{patient(server.uri())};
    Client waiting{patient(server.uri())};
    Held held = take<TypeParam>(holding);
    auto waiter = [&] {
        RawRedis redis{server};
        auto started = enqueue<TypeParam>(redis, waiting);
        EXPECT_TRUE(settles(redis));
        return started;
    }();
    server.restart();
    RawRedis redis{server};
    EXPECT_EQ(waiters(redis), 1);
    EXPECT_TRUE(held.held());
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
    EXPECT_TRUE(eventually([&] { return redis.keys().empty(); }));
}

// --------------------------------------------------------------------------------- messages

/// Messages that no release has sent, on a client's own channel.
class GrantedMessage : public LockTest {
protected:
    void SetUp() override { teach_to_listen<Simple>(redis_, client_, other_client_); }

    void tell(const std::string& message) {
        const auto channels = redis_.command({"PUBSUB", "CHANNELS"});
        ASSERT_EQ(channels.elements.size(), 1U);
        const auto heard = redis_.command({"PUBLISH", channels.elements[0].text, message});
        EXPECT_EQ(heard.integer, 1);
    }

    std::string grant_of(const std::string& token, char key_type) {
        const auto time = redis_.command({"TIME"});
        const std::string micros = time.elements[0].text + "999999";
        return "100000 " + micros + " " + redis_.info("server").at("run_id") + " " + key_type +
               " 0 " + std::to_string(token.size()) + " " + token + "job";
    }

    /// Whether the client still hears that a lock is its own, and does not have to ask. On a busy machine it may ask
    /// first, but not each time.
    bool is_told() { return test::is_told(redis_, other_client_, client_); }

    std::string token_of_client() {
        return Lock<Simple>{client_, "other"}.acquire().value().token() + "9";
    }
};

TEST_F(GrantedMessage, for_a_token_that_nobody_goes_by_gives_the_lock_back) {
    const std::string token = token_of_client();
    foreign_set(redis_, "job", token, 100s);
    tell(grant_of(token, 's'));
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
    // Another one: the release of the first may not have been answered yet.
    const std::string other = token_of_client();
    redis_.command({"HSET", "job", other, "1"});
    tell(grant_of(other, 'h'));
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

TEST_F(GrantedMessage, for_a_token_that_nobody_goes_by_serves_the_next_waiter) {
    int asked = 0;
    constexpr int rounds = 3;
    for (int round = 0; round < rounds; ++round) {
        const std::string token = token_of_client();
        foreign_set(redis_, "job", token, 100s);
        auto waiter = enqueue<Simple>(redis_, other_client_);
        ASSERT_TRUE(settles(redis_));
        const auto channel = redis_.command({"PUBSUB", "CHANNELS", "*" + token.substr(0, 32)});
        ASSERT_EQ(channel.elements.size(), 1U);
        const long long before = scripts_run(redis_);
        redis_.command({"PUBLISH", channel.elements[0].text, grant_of(token, 's')});
        ASSERT_TRUE(finishes(waiter));
        if (scripts_run(redis_) > before + 1) ++asked;  // behind what gives the lock back
        let_go(waiter.get());
    }
    EXPECT_LT(asked, rounds) << "on a busy machine it may ask first, but not each time";
}

TEST_F(GrantedMessage, about_a_present_hold_changes_nothing) {
    Held held = take<Simple>(client_);
    for (int i = 0; i < 3; ++i) tell(grant_of(held.token(), 's'));
    EXPECT_TRUE(stays([&] { return redis_.get("job") == held.token(); }, 300ms));
    EXPECT_LE(held.remaining(), 30s);
    let_go(held);
}

TEST_F(GrantedMessage, about_a_past_hold_harms_nobody) {
    const std::string token = [&] { return take<Simple>(client_).token(); }();
    Held held = take<Simple>(client_);
    tell(grant_of(token, 's'));
    EXPECT_TRUE(stays([&] { return redis_.get("job") == held.token(); }, 300ms));
    EXPECT_TRUE(held.held());
    let_go(held);
}

TEST_F(GrantedMessage, that_makes_no_sense_is_ignored) {
    Held held = take<Simple>(other_client_);
    auto waiter = enqueue<Simple>(redis_, client_);
    ASSERT_TRUE(settles(redis_));
    using namespace std::string_literals;
    for (const std::string& message :
         {""s, " "s, "?"s, "1 2 3"s, "1 2 - s 99999999999999999999 x"s, "1 2 - s -1 xy"s,
          "99999999999999999999 1 - s 1 xy"s, "1 1 - x 1 xy"s, "1 1 - s 2 xy"s, "\0\0\0"s,
          "1 1 - s 1 "s + std::string(100'000, 'x')}) {
        tell(message);
    }
    EXPECT_EQ(waiter.wait_for(200ms), std::future_status::timeout);
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
    EXPECT_TRUE(is_told());
}

// ------------------------------------------------------------------------------------- ACL

/// What a user may not do, and how soon a waiter gets what is released then.
struct Restriction {
    std::string name;
    std::string rules;
    std::chrono::milliseconds soon;
    friend std::ostream& operator<<(std::ostream& out, const Restriction& restriction) {
        return out << restriction.name;
    }
};

class GrantedAcl : public testing::TestWithParam<Restriction> {
protected:
    ClientOptions options() const {
        ClientOptions options = options_for("unix://alice:secret@" + server_.socket_path(), 10s);
        options.observer = journal_;
        return options;
    }

    RedisServer server_{{.acl = {"alice on >secret " + GetParam().rules}}};
    RawRedis redis_{server_};
    std::shared_ptr<Journal> journal_ = std::make_shared<Journal>();
    Client holding_{options()};
    Client first_{options()};
    Client second_{options()};

    template <class Policy>
    void expect_served_in_order() {
        if (acl_rules(GetParam().rules) == "~* +@all") {
            GTEST_SKIP() << "the server has no ACL of channels";
        }
        int late = 0;
        // The second time, the clients know what they may not do.
        for (int round = 0; round < 2; ++round) {
            Held held = take<Policy>(holding_);
            auto first = enqueue<Policy>(redis_, first_);
            auto second = enqueue<Policy>(redis_, second_);
            EXPECT_EQ(second.wait_for(200ms), std::future_status::timeout);
            const Stopwatch watch;
            let_go(held);
            ASSERT_TRUE(finishes(first));
            if (watch.elapsed() >= GetParam().soon) ++late;
            EXPECT_EQ(second.wait_for(150ms), std::future_status::timeout);
            const Stopwatch since_release;
            let_go(first.get());
            ASSERT_TRUE(finishes(second));
            if (since_release.elapsed() >= GetParam().soon) ++late;
            let_go(second.get());
            EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
        }
        EXPECT_LE(late, 1) << "of four: a client that is not told is late in both rounds";
        EXPECT_EQ(journal_->errors().size(), 0U);
    }
};

INSTANTIATE_TEST_SUITE_P(
    Without, GrantedAcl,
    testing::Values(Restriction{"subscribe", "~* +@all -subscribe", at_once},
                    Restriction{"publish", "~* +@all -publish", at_once},
                    Restriction{"pubsub", "~* +@all -pubsub", at_once},
                    Restriction{"channels", "~* resetchannels +@all", at_once},
                    Restriction{"info", "~* +@all -info", at_once},
                    Restriction{"all_of_them", "~* resetchannels +@all -@pubsub -info", at_once}),
    [](const auto& restriction) { return restriction.param.name; });

TEST_P(GrantedAcl, strings_go_to_waiters_in_order) {
    expect_served_in_order<Simple>();
}

TEST_P(GrantedAcl, hashes_go_to_waiters_in_order) {
    expect_served_in_order<Watchdog<Reentrant>>();
}

TEST(GrantedAgain, once_a_client_that_was_refused_may_listen) {
    RedisServer server{{.acl = {"alice on >secret ~* +@all"}}};
    RawRedis redis{server};
    const ClientOptions options =
        options_for("unix://alice:secret@" + server.socket_path(), generous_limit);
    Client other{options};
    Client client{options};
    const auto listen = [&](std::size_t clients) {
        return eventually([&] {
            return redis.command({"PUBSUB", "CHANNELS"}).elements.size() == clients;
        });
    };
    ASSERT_TRUE(is_told(redis, other, client));
    ASSERT_TRUE(is_told(redis, client, other));
    ASSERT_TRUE(listen(2));
    for (const std::string denied : {"off", "-subscribe"}) {
        redis.command({"ACL", "SETUSER", "alice", denied});
        redis.command({"ACL", "LOG", "RESET"});
        redis.command({"CLIENT", "KILL", "USER", "alice"});
        ASSERT_TRUE(eventually([&] {
            return !redis.command({"ACL", "LOG"}).elements.empty() && listen(0);
        })) << denied;
        redis.command({"ACL", "SETUSER", "alice", "on", "+subscribe"});
        ASSERT_TRUE(listen(2)) << "soon: " << denied;
        EXPECT_TRUE(is_told(redis, other, client)) << denied;
        EXPECT_TRUE(is_told(redis, client, other)) << denied;
    }
}

class KeyAcl : public testing::TestWithParam<Restriction> {
protected:
    template <class Policy>
    void expect_all_served() {
        if (GetParam().rules.find('%') != std::string::npos && redis_server_version() < redis_7) {
            GTEST_SKIP()
                << "the server does not tell keys that are read from those that are written";
        }
        RedisServer server{{.acl = {"alice on >secret " + GetParam().rules}}};
        RawRedis redis{server};
        auto journal = std::make_shared<Journal>();
        ClientOptions options = options_for("unix://alice:secret@" + server.socket_path(), 10s);
        options.observer = journal;
        Client holding{options};
        Client waiting{options};
        Client third{options};
        for (int round = 0; round < 2; ++round) {
            Held held = take<Policy>(holding);
            auto one = start_waiting<Policy>(waiting);
            auto two = start_waiting<Policy>(third);
            EXPECT_EQ(two.wait_for(200ms), std::future_status::timeout);
            EXPECT_EQ(redis.keys(), std::vector<std::string>{"job"});
            let_go(held);
            ASSERT_TRUE(eventually([&] { return finishes(one, 0ms) || finishes(two, 0ms); }));
            auto& first = finishes(one, 0ms) ? one : two;
            auto& second = &first == &one ? two : one;
            EXPECT_FALSE(finishes(second, 150ms));
            let_go(first.get());
            ASSERT_TRUE(finishes(second));
            let_go(second.get());
            EXPECT_TRUE(eventually([&] { return redis.keys().empty(); }));
        }
        EXPECT_EQ(journal->errors().size(), 0U);
    }
};

INSTANTIATE_TEST_SUITE_P(
    Of, KeyAcl,
    testing::Values(Restriction{"the_lock_alone", "~job* +@all", {}},
                    Restriction{"the_lock_and_to_read_others", "~job* %R~* +@all", {}}),
    [](const auto& restriction) { return restriction.param.name; });

TEST_P(KeyAcl, makes_waiters_of_a_string_poll) {
    expect_all_served<Simple>();
}

TEST_P(KeyAcl, makes_waiters_of_a_hash_poll) {
    expect_all_served<Watchdog<Reentrant>>();
}

TEST(GrantedAclOfOne, without_the_run_id_a_grant_costs_one_more_command) {
    RedisServer server{{.acl = {"alice on >secret ~* +@all -info"}}};
    RawRedis redis{server};
    const std::string uri = "unix://alice:secret@" + server.socket_path();
    Client one{patient(uri)};
    Client two{patient(uri)};
    teach_to_listen<Simple>(redis, one, two);
    teach_to_listen<Simple>(redis, two, one);
    constexpr int rounds = 10;
    const long long before = scripts_run(redis);
    Held held = take<Simple>(one);
    const Stopwatch watch;
    for (int round = 0; round < rounds; ++round) {
        auto waiter = enqueue<Simple>(redis, round % 2 == 0 ? two : one);
        let_go(held);
        ASSERT_TRUE(finishes(waiter));
        held = waiter.get().value();
    }
    let_go(held);
    const long long calls = scripts_run(redis) - before;
    EXPECT_GE(calls, 3 * rounds + 2);
    EXPECT_LE(calls, 3 * rounds + 2 + watch.elapsed() / 1s);
}

// A script could not tell whether it is alive, and would give a dead one the lock.
TEST(GrantedAclOfOne, waiter_that_may_not_count_subscribers_asks_by_itself) {
    RedisServer server{{.acl = {"alice on >secret ~* +@all -pubsub"}}};
    RawRedis redis{server};
    const std::string uri = "unix://alice:secret@" + server.socket_path();
    Client one{patient(uri)};
    Client two{patient(uri)};
    Held held = take<Simple>(one);
    auto waiter = enqueue<Simple>(redis, two);
    const auto asks = [&redis] {
        const auto waiters = redis.hgetall("redlatch:waiters:{job}");
        return waiters.size() == 1 && waiters.begin()->second.ends_with(" 0 0");
    };
    EXPECT_TRUE(eventually(asks)) << "as it was refused";
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
}

TEST(GrantedAclOfOne, holder_that_may_not_publish_still_gives_the_lock_to_the_first) {
    RedisServer server{{.acl = {"mute on >secret ~* +@all -publish"}}};
    RawRedis redis{server};
    Client mute{patient("unix://mute:secret@" + server.socket_path())};
    Client waiting{patient(server.uri())};
    Client third{patient(server.uri())};
    Held held = take<Simple>(mute);
    auto first = enqueue<Simple>(redis, waiting);
    auto second = enqueue<Simple>(redis, third);
    ASSERT_TRUE(settles(redis));
    const Stopwatch watch;
    let_go(held);
    EXPECT_TRUE(redis.exists("job"));
    ASSERT_TRUE(finishes(first));
    EXPECT_LT(watch.elapsed(), recheck_in_front + more_slack);
    EXPECT_FALSE(finishes(second, 100ms));
    let_go(first.get());
    ASSERT_TRUE(finishes(second));
    let_go(second.get());
}

}  // namespace
}  // namespace redlatch::test
