// Blocking calls of a client with `Connections::shared`: they go over the link of the asynchronous ones.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "cluster_tools.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "replicas_tools.hpp"
#include "support/no_more_threads.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "wrong_policy.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

ClientOptions sharing(ClientOptions options) {
    options.connections = Connections::shared;
    return options;
}

/// A server, a client whose calls reach it over a proxy, and one that has nothing to do with either.
class SharedConnections : public LockTest {
protected:
    /// The link is there, and the server knows the scripts.
    template <class Policy = Simple>
    void warm_up() {
        Lock<Policy> lock{shared_, "warm"};
        ASSERT_TRUE(lock.try_lock(60s, 30s));
        ASSERT_TRUE(is_outcome(lock.release(), Release::released));
    }

    Proxy proxy_{server_.uri()};
    Client shared_{sharing(patient(proxy_.uri()))};
};

// ------------------------------------------------------------------------------- doing their job

template <class Policy>
class SharedConnectionsOf : public SharedConnections {};

using Policies = ::testing::Types<Simple, Reentrant, Watchdog<Simple>, Fenced<Reentrant>,
                                  RedissonReentrant, Shared, Watchdog<Fenced<Shared>>>;
TYPED_TEST_SUITE(SharedConnectionsOf, Policies, );

TYPED_TEST(SharedConnectionsOf, every_call_does_what_it_says) {
    Lock<TypeParam> lock{this->shared_, "job"};
    Lock<TypeParam> other{this->other_client_, "job"};
    ASSERT_TRUE(lock.try_lock());
    EXPECT_FALSE(other.try_lock());
    EXPECT_TRUE(succeeds(lock.extend(60s)));
    EXPECT_GT(this->redis_.pttl("job") + lock.remaining().count(), 100'000);
    const auto seen = lock.inspect();
    ASSERT_TRUE(succeeds(seen));
    EXPECT_TRUE(seen->locked);
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    EXPECT_TRUE(other.try_lock());
    EXPECT_TRUE(times_out([&] { return lock.acquire({.wait = 20ms}); }));
    auto waiting = in_background([&] { return lock.acquire({.wait = 60s}); });
    ASSERT_TRUE(this->are_queued("redlatch:queue:{job}", 1));
    EXPECT_TRUE(is_outcome(other.release(), Release::released));
    ASSERT_TRUE(finishes(waiting));
    auto held = waiting.get();
    ASSERT_TRUE(succeeds(held));
    const auto removed = other.force_unlock();
    ASSERT_TRUE(succeeds(removed));
    EXPECT_EQ(*removed, Forced::removed);
    EXPECT_TRUE(is_outcome(held->release(), Release::expired));
}

TYPED_TEST(SharedConnectionsOf, threads_exclude_each_other) {
    constexpr int threads = 8;
    constexpr int rounds = 50;
    int counter = 0;  // not atomic on purpose
    std::atomic<int> failed{0};
    {
        std::vector<std::jthread> all;
        for (int t = 0; t < threads; ++t) {
            all.emplace_back([&, t] {
                Lock<TypeParam> lock{t % 2 == 0 ? this->shared_ : this->other_client_, "job"};
                for (int i = 0; i < rounds; ++i) {
                    lock.lock();
                    ++counter;
                    if (!lock.release()) ++failed;
                }
            });
        }
    }
    EXPECT_EQ(counter, threads * rounds);
    EXPECT_EQ(failed, 0);
}

TEST_F(SharedConnections, the_whole_family_goes_over_them) {
    ASSERT_TRUE(succeeds(shared_.ping()));
    Semaphore<> permits{shared_, "seats", 2};
    auto two = permits.take({.permits = 2});
    ASSERT_TRUE(succeeds(two));
    EXPECT_FALSE(permits.try_acquire());
    EXPECT_TRUE(is_outcome(two->release(), Release::released));
    EXPECT_TRUE(succeeds(permits.set_permits(3)));

    LockSet<> set{shared_, {"a", "b"}};
    auto both = set.acquire({.wait = 60s});
    ASSERT_TRUE(succeeds(both));
    EXPECT_TRUE(is_outcome(both->release(), Release::released));

    Lock<Shared> readers{shared_, "book"};
    readers.lock();
    EXPECT_TRUE(succeeds(readers.downgrade()));
    readers.unlock_shared();

    Lock<Reentrant> nested{shared_, "nested"};
    nested.lock();
    nested.lock();
    EXPECT_EQ(nested.inspect()->hold_count, 2U);
    EXPECT_TRUE(is_outcome(nested.release(), Release::still_held));
    EXPECT_TRUE(is_outcome(nested.release(), Release::released));

    Lock<Simple> lock{shared_, "given"};
    auto held = lock.acquire();
    ASSERT_TRUE(succeeds(held));
    const auto ticket = held->detach();
    ASSERT_TRUE(succeeds(ticket));
    auto adopted = lock.adopt(*ticket);
    ASSERT_TRUE(succeeds(adopted));
    EXPECT_TRUE(is_outcome(adopted->release(), Release::released));
}

TEST_F(SharedConnections, many_threads_have_one) {
    constexpr int threads = 64;
    std::atomic<int> failed{0};
    {
        std::latch all_hold{threads};
        std::vector<std::jthread> all;
        for (int t = 0; t < threads; ++t) {
            all.emplace_back([&, t] {
                Lock<Simple> lock{shared_, "job:" + std::to_string(t)};
                for (int i = 0; i < 20; ++i) {
                    lock.lock();
                    if (i == 10) all_hold.arrive_and_wait();
                    if (!lock.release()) ++failed;
                }
            });
        }
    }
    EXPECT_EQ(failed, 0);
    EXPECT_EQ(proxy_.counts().connections, 1);
}

TEST_F(SharedConnections, are_those_of_asynchronous_calls) {
    Lock<Simple> lock{shared_, "job"};
    { const Held held = take(lock); }
    lock.lock();
    auto released = lock.release();
    EXPECT_TRUE(is_outcome(released, Release::released));
    EXPECT_EQ(proxy_.counts().connections, 1);
}

TEST_F(SharedConnections, a_lock_passes_between_threads_and_operations) {
    constexpr int each = 200;
    int counter = 0;  // not atomic on purpose
    std::atomic<int> ended{0};
    std::atomic<int> failed{0};
    Lock<Simple> lock{shared_, "job"};
    const auto use = [](Lock<Simple>& its, int& count, std::atomic<int>& done,
                        std::atomic<int>& wrong) -> Detached {
        for (int i = 0; i < each; ++i) {
            Result<Held> held = co_await its.async_acquire({.wait = 60s});
            if (held) ++count;
            if (!held || !co_await held->async_release()) ++wrong;
        }
        ++done;
    };
    for (int i = 0; i < 4; ++i) use(lock, counter, ended, failed);
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                for (int i = 0; i < each; ++i) {
                    lock.lock();
                    ++counter;
                    lock.unlock();
                }
            });
        }
    }
    ASSERT_TRUE(eventually([&] { return ended == 4; }));
    EXPECT_EQ(failed, 0);
    EXPECT_EQ(counter, 8 * each);
    EXPECT_FALSE(redis_.exists("job"));
}

TEST_F(SharedConnections, a_release_that_is_only_sent_elsewhere_has_freed_the_lock_here) {
    Lock<Simple> lock{shared_, "job", {.release_mode = ReleaseMode::sent}};
    lock.lock();
    lock.unlock();
    EXPECT_FALSE(redis_.exists("job"));
    EXPECT_EQ(proxy_.counts().connections, 1);
}

TEST_F(SharedConnections, scripts_of_the_users_own_break_none) {
    warm_up();
    Lock<Wrong> wrong{shared_, "wrong"};
    wrong.lock();
    EXPECT_TRUE(fails_with(wrong.extend(30s), Errc::protocol));
    const int before = proxy_.counts().connections;
    warm_up();
    EXPECT_EQ(proxy_.counts().connections, before);
    wrong.unlock();
}

// ------------------------------------------------------------------------------- several servers

TEST(SharedConnectionsOfACluster, follow_a_slot_that_moves) {
    ClusterGroup group;
    Client client{sharing(patient(group.uri(0)))};
    const std::string name = name_on(0);
    Lock<Reentrant> moved{client, name};
    Lock<Simple> other{client, name_on(1)};
    ASSERT_TRUE(moved.try_lock(60s, 60s));
    ASSERT_TRUE(other.try_lock(60s, 60s));
    const unsigned slot = detail::slot_of(name);
    group.begin_to_move(slot, 0, 1);
    group.move_keys(slot, 0, 1);
    EXPECT_TRUE(succeeds(moved.extend(60s))) << "by ASK";
    group.finish_move(slot, 0, 1);
    EXPECT_TRUE(is_outcome(moved.release(), Release::released)) << "by MOVED";
    EXPECT_TRUE(is_outcome(other.release(), Release::released));
}

TEST(SharedConnectionsOfSeveralMasters, are_those_of_the_pool) {
    const RedisServer a;
    const RedisServer b;
    const RedisServer c;
    ClientOptions options = sharing(patient(a.uri()));
    options.uris = {a.uri(), b.uri(), c.uri()};
    options.node_timeout = 5s;
    options.longest_lease = 0s;
    Client client{options};
    Lock<Simple> lock{client, "job"};
    ASSERT_TRUE(lock.try_lock(60s, 60s));
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

class SharedConnectionsWithReplica : public WithReplica {};

TEST_F(SharedConnectionsWithReplica, wait_for_it) {
    Client client{sharing(patient(server_.uri()))};
    Lock<Simple> lock{client, "job", {.replicas = 1}};
    ASSERT_TRUE(lock.try_lock(60s, 60s));
    EXPECT_TRUE(replica_redis_.exists("job"));
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    replica_.stop();
    EXPECT_TRUE(is_not_replicated(lock.acquire({.wait = 500ms})));
    EXPECT_TRUE(eventually([this] { return !redis_.exists("job"); }));
}

// ------------------------------------------------------------------------------- what goes wrong

TEST_F(SharedConnections, a_lost_answer_is_asked_for_again) {
    warm_up<Reentrant>();
    Lock<Reentrant> lock{shared_, "job"};
    proxy_.drop_replies_once();
    ASSERT_TRUE(lock.try_lock(60s, 30s));
    EXPECT_EQ(lock.inspect()->hold_count, 1U);
    proxy_.drop_replies_once();
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    EXPECT_FALSE(redis_.exists("job"));
}

TEST_F(SharedConnections, threads_go_on_behind_a_connection_that_breaks) {
    constexpr int threads = 8;
    std::atomic<bool> stop{false};
    std::atomic<int> sections{0};
    std::atomic<int> failed{0};
    {
        std::vector<std::jthread> all;
        for (int t = 0; t < threads; ++t) {
            all.emplace_back([&, t] {
                Lock<Simple> lock{shared_, "job:" + std::to_string(t)};
                while (!stop) {
                    lock.lock();
                    ++sections;
                    if (auto released = lock.release(); !released) ++failed;
                }
            });
        }
        for (int i = 0; i < 10; ++i) {
            const int before = sections;
            EXPECT_TRUE(eventually([&] { return sections > before + threads; }));
            proxy_.cut();
        }
        stop = true;
    }
    EXPECT_EQ(failed, 0);
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

/// With a time for one command that can be waited for.
class ImpatientSharedConnections : public SharedConnections {
protected:
    Client impatient_{sharing(options_for(proxy_.uri()))};
    Lock<Simple> lock_{impatient_, "job"};

    void SetUp() override {
        ASSERT_TRUE(eventually([this] { return impatient_.ping().has_value(); }));
    }

    /// Whether one try has it; not, where no answer came in time.
    bool tries() {
        bool had = false;
        return !thrown_by([&] { had = lock_.try_lock(0s, 30s); }) && had;
    }
};

TEST_F(ImpatientSharedConnections, every_call_ends_by_its_deadline) {
    ASSERT_TRUE(eventually([this] { return tries(); }));
    proxy_.black_hole();
    const Stopwatch watch;
    EXPECT_FALSE(lock_.extend(30s));
    EXPECT_FALSE(lock_.inspect());
    EXPECT_FALSE(impatient_.ping());
    EXPECT_FALSE(lock_.release());
    Lock<Simple> other{impatient_, "other"};
    EXPECT_TRUE(fails_with(other.acquire({.wait = 0s}), Errc::unavailable));
    EXPECT_LT(watch.elapsed(), 5 * command_timeout + slack);
    proxy_.pass_whole();
}

TEST_F(SharedConnections, a_call_has_its_own_time_though_another_ones_is_over) {
    ClientOptions options = options_for(server_.uri(), 4s);
    Client client{sharing(options)};
    ASSERT_TRUE(succeeds(client.ping()));
    Lock<Simple> lock{client, "job"};
    server_.freeze();
    auto first = in_background([&] { return client.ping(); });
    EXPECT_EQ(first.wait_for(3s), std::future_status::timeout);
    auto second = in_background([&] { return lock.inspect(); });
    auto third = in_background([&] { return lock.acquire({.wait = 0s}); });
    EXPECT_TRUE(fails_with(first.get(), Errc::unavailable));
    server_.thaw();
    EXPECT_TRUE(succeeds(second.get()));
    EXPECT_TRUE(succeeds(third.get()));
}

TEST_F(ImpatientSharedConnections, a_refused_connection_is_an_error_at_once) {
    proxy_.refuse();
    proxy_.cut();
    const Result<Held> held = lock_.acquire({.wait = 0s});
    EXPECT_TRUE(fails_with(held, Errc::unavailable));
    EXPECT_FALSE(speaks_of(held.error(), "the server had not answered by then"))
        << held.error().describe();
}

TEST_F(SharedConnections, a_stop_token_ends_a_wait_for_an_answer) {
    warm_up();
    Lock<Simple> lock{shared_, "job"};
    std::stop_source stop;
    proxy_.hold_replies();
    auto acquired = in_background([&] { return lock.acquire({.stop = stop.get_token()}); });
    ASSERT_TRUE(eventually([this] { return redis_.exists("job"); }));
    const Stopwatch watch;
    stop.request_stop();
    ASSERT_TRUE(finishes(acquired));
    EXPECT_LT(watch.elapsed(), 9s) << "sooner than command_timeout";
    EXPECT_TRUE(fails_with(acquired.get(), Errc::cancelled));
    proxy_.pass();
    EXPECT_TRUE(eventually([this] { return !redis_.exists("job"); }));
}

TEST_F(ImpatientSharedConnections, what_an_abandoned_try_has_taken_is_given_back) {
    proxy_.hold_replies();
    EXPECT_TRUE(fails_with(lock_.acquire({.wait = 0s}), Errc::unavailable));
    proxy_.pass();
    EXPECT_TRUE(eventually([this] { return !redis_.exists("job"); }));
    EXPECT_TRUE(eventually([this] { return tries(); }));
}

TEST_F(ImpatientSharedConnections, a_late_try_takes_nothing_for_good) {
    proxy_.hold_requests();
    EXPECT_TRUE(fails_with(lock_.acquire({.wait = 0s}), Errc::unavailable));
    proxy_.pass();
    EXPECT_TRUE(eventually(
        [this] { return tries() && redis_.exists("job") && lock_.release().has_value(); }));
    EXPECT_TRUE(eventually([this] { return !redis_.exists("job"); }));
}

TEST_F(SharedConnections, of_two_that_adopt_one_ticket_one_has_it_and_the_other_one_is_told) {
    Lock<Simple> lock{shared_, "job"};
    const Ticket ticket = Lock<Simple>{other_client_, "job"}.acquire()->detach().value();
    proxy_.hold_replies();  // nothing is written before the connection is there
    const auto adopt = [&] { return lock.adopt(ticket, Owner::hold); };
    auto first = in_background(adopt);
    auto second = in_background(adopt);
    ASSERT_TRUE(eventually([this] { return proxy_.counts().connections == 1; }));
    std::this_thread::sleep_for(100ms);  // where one comes later, this shows less
    proxy_.pass();
    ASSERT_TRUE(finishes(first));
    ASSERT_TRUE(finishes(second));
    const auto one = first.get();
    const auto other = second.get();
    ASSERT_NE(one.has_value(), other.has_value());
    EXPECT_TRUE(fails_with(one ? other : one, Errc::lost));
}

TEST_F(SharedConnections, calls_end_when_the_client_does) {
    Lock<Simple> taken{other_client_, "taken"};
    taken.lock();
    auto client = std::make_unique<Client>(sharing(patient(proxy_.uri())));
    Lock<Simple> queued{*client, "taken"};
    Lock<Simple> asking{*client, "job"};
    { const auto warm = asking.acquire(); }
    auto waits = in_background([&] { return queued.acquire(); });
    ASSERT_TRUE(are_queued("redlatch:queue:{taken}", 1));
    proxy_.hold_replies();
    auto asks = in_background([&] { return asking.acquire(); });
    ASSERT_TRUE(eventually([this] { return redis_.exists("job"); }));
    auto closed = in_background([&] { client.reset(); });
    EXPECT_EQ(asks.wait_for(generous_limit), std::future_status::ready);
    proxy_.pass();
    ASSERT_EQ(closed.wait_for(generous_limit), std::future_status::ready);
    EXPECT_TRUE(fails_with(asks.get(), Errc::cancelled));
    EXPECT_TRUE(fails_with(waits.get(), Errc::cancelled));
    EXPECT_TRUE(fails_with(asking.acquire(), Errc::cancelled));
    EXPECT_TRUE(eventually([this] { return !redis_.exists("job"); }));
}

TEST_F(SharedConnections, an_engine_that_has_to_release_itself_goes_on) {
    Lock<Simple> lock{shared_, "job"};
    Outcome<Held> tried;
    ASSERT_TRUE(is_outcome(take(lock).release(), Release::released)) << "and its answer was read";
    const NoMoreThreads none;
    std::stop_source stop;
    proxy_.hold_replies();
    lock.async_acquire({}, stop.get_token(), tried.callback());
    ASSERT_TRUE(eventually([this] { return redis_.exists("job"); }));
    stop.request_stop();
    EXPECT_TRUE(eventually([this] { return proxy_.counts().connections == 2; }));
    proxy_.pass();
    EXPECT_TRUE(eventually([this] { return !redis_.exists("job"); }));
    EXPECT_EQ(code_of(tried.get()), Errc::cancelled);
    ASSERT_TRUE(lock.try_lock(60s, 30s));
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(SharedConnections, a_forked_child_has_its_own) {
    Lock<Simple> parents{shared_, "parents"};
    ASSERT_TRUE(parents.try_lock(60s, 30s));
    ChildProcess child{[this](LineChannel& parent) {
        Lock<Simple> lock{shared_, "childs"};
        Lock<Simple> excluded{shared_, "parents"};
        const bool fine =
            lock.try_lock(60s, 30s) && !excluded.try_lock() && lock.release().has_value();
        parent.write_line(fine ? "ok" : "wrong");
        return 0;
    }};
    EXPECT_EQ(child.read_line(), "ok");
    EXPECT_TRUE(child.wait().has_value());
    EXPECT_TRUE(parents.held());
    EXPECT_TRUE(is_outcome(parents.release(), Release::released));
    EXPECT_TRUE(eventually([this] { return redis_.keys().empty(); }));
}

}  // namespace
}  // namespace redlatch::test
