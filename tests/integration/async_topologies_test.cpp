// Asynchronous operations where several masters decide, in a Cluster, and over a failover.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "cluster_tools.hpp"
#include "failover_tools.hpp"
#include "granted_tools.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>

namespace redlatch::test {
namespace {

class AsyncMasters : public testing::Test {
protected:
    ClientOptions options() const {
        ClientOptions options{.connect_timeout = 10s, .command_timeout = 10s};
        options.uris = {a_.uri(), b_.uri(), c_.uri()};
        options.node_timeout = 2s;
        options.longest_lease = 0ms;
        return options;
    }

    int masters_with(std::string_view key) {
        return int{a_raw_.exists(key)} + int{b_raw_.exists(key)} + int{c_raw_.exists(key)};
    }

    /// On the connections on which it was asked for, so that no master hears of the release first.
    static void give_back(Held& held) {
        Outcome<Release> released;
        held.async_release(released.callback());
        EXPECT_EQ(released.get().value(), Release::released);
    }

    RedisServer a_;
    RedisServer b_;
    RedisServer c_;
    RawRedis a_raw_{a_};
    RawRedis b_raw_{b_};
    RawRedis c_raw_{c_};
    Client client_{options()};
    Client other_client_{options()};
};

TEST_F(AsyncMasters, lock_is_taken_and_released_at_a_majority) {
    Lock<Watchdog<Fenced<Simple>>> lock{client_, "key"};
    Held held = take(lock);
    EXPECT_TRUE(held.held());
    EXPECT_GT(held.fence(), 0U);
    EXPECT_GE(masters_with("key"), 2);
    Outcome<void> extended;
    held.async_extend(60s, extended.callback());
    EXPECT_TRUE(extended.get());
    Outcome<Release> released;
    held.async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    EXPECT_TRUE(eventually([&] { return masters_with("key") == 0; }));
}

TEST_F(AsyncMasters, waits_for_another_client) {
    Lock<Simple> theirs{other_client_, "key"};
    Lock<Simple> lock{client_, "key"};
    Result<Held> other = theirs.acquire();
    ASSERT_TRUE(other);
    Outcome<Held> tried;
    lock.async_acquire({.wait = Wait::none()}, {}, tried.callback());
    EXPECT_EQ(code_of(tried.get()), Errc::timed_out);
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback());
    EXPECT_TRUE(stays([&] { return !outcome.is_there(); }, 50ms));
    EXPECT_TRUE(other->release());
    EXPECT_TRUE(outcome.get());
}

TEST_F(AsyncMasters, stop_leaves_no_vote_behind) {
    Lock<Simple> lock{client_, "key"};
    int succeeded = 0;
    int cancelled = 0;
    const Stopwatch watch;
    const auto is_enough = [&](int rounds) {
        return (rounds >= 30 && succeeded > 0 && cancelled > 0) || watch.elapsed() > generous_limit;
    };
    for (int i = 0; !is_enough(i); ++i) {
        std::stop_source stop;
        Outcome<Held> outcome;
        lock.async_acquire({}, stop.get_token(), outcome.callback());
        if (i % 2 == 1) std::this_thread::sleep_for(i * 20us);
        stop.request_stop();
        const Errc code = code_of(outcome.get());
        ASSERT_TRUE(code == Errc{} || code == Errc::cancelled) << static_cast<int>(code);
        ++(code == Errc{} ? succeeded : cancelled);
    }
    EXPECT_GT(succeeded, 0);
    EXPECT_GT(cancelled, 0);
    EXPECT_TRUE(eventually([&] { return masters_with("key") == 0; }));
}

TEST_F(AsyncMasters, stop_ends_a_wait_though_a_majority_is_silent) {
    b_.freeze();
    c_.freeze();
    Client fresh{options()};  // whose commands may wait for 10 s
    Lock<Simple> lock{fresh, "key"};
    LockSet<Simple> set{fresh, {"one", "two"}};
    std::stop_source stop;
    Outcome<Held> outcome;
    Outcome<HeldSet> of_set;
    lock.async_acquire({}, stop.get_token(), outcome.callback());
    set.async_acquire({}, stop.get_token(), of_set.callback());
    EXPECT_TRUE(eventually([&] { return a_raw_.exists("key") && a_raw_.exists("one"); }));
    const Stopwatch watch;
    stop.request_stop();
    EXPECT_EQ(code_of(outcome.get()), Errc::cancelled);
    EXPECT_EQ(code_of(of_set.get()), Errc::cancelled);
    EXPECT_LT(watch.elapsed(), 5s);
    b_.thaw();
    c_.thaw();
}

TEST_F(AsyncMasters, readers_share_a_lock_and_a_writer_has_it_alone) {
    Lock<Watchdog<Fenced<Shared>>> lock{client_, "key"};
    Lock<Watchdog<Fenced<Shared>>> theirs{other_client_, "key"};
    const auto read_soon = [](auto& from) {
        Outcome<Held> outcome;
        from.async_acquire_shared({.wait = patience}, {}, outcome.callback());
        return outcome.get();
    };
    Result<Held> one = read_soon(lock);
    Result<Held> other = read_soon(theirs);
    ASSERT_TRUE(one && other);
    const auto before = one->fence();
    Outcome<Held> refused;
    theirs.async_acquire({.wait = Wait::none()}, {}, refused.callback());
    EXPECT_EQ(code_of(refused.get()), Errc::timed_out);
    Outcome<Held> writing;
    theirs.async_acquire({.wait = patience}, {}, writing.callback());
    give_back(*one);
    EXPECT_TRUE(stays([&] { return !writing.is_there(); }, 50ms));
    give_back(*other);
    Result<Held> writer = writing.get();
    ASSERT_TRUE(writer);
    EXPECT_GT(writer->fence(), before);
    give_back(*writer);
    EXPECT_TRUE(eventually([&] { return masters_with("key") == 0; }));
}

// A thread's release uses other connections than an operation's acquisition, and two of three may be enough.
TEST_F(AsyncMasters, release_by_a_thread_leaves_the_lock_with_no_master_that_it_has_not_reached) {
    ClientOptions unhurried = options();
    unhurried.command_timeout = 60s;
    for (int i = 0; i < 60; ++i) {
        Client client{unhurried};
        Lock<Simple> lock{client, "key"};
        Held held = take(lock);
        EXPECT_TRUE(is_outcome(held.release(), Release::released));
        EXPECT_TRUE(eventually([&] { return masters_with("key") == 0; }));
    }
}

TEST_F(AsyncMasters, one_that_is_silent_holds_up_nobody) {
    c_.freeze();
    Lock<Simple> lock{client_, "key"};
    Held held = take(lock);
    EXPECT_TRUE(held.held());
    Outcome<Release> released;
    held.async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    c_.thaw();
    EXPECT_TRUE(eventually([&] { return masters_with("key") == 0; }));
}

// The end of a nested hold is told to all masters. One that does not answer must not have the outer one released.
TEST_F(AsyncMasters, end_of_a_nested_hold_that_one_does_not_answer_leaves_the_outer_one) {
    ClientOptions hurried = options();
    hurried.command_timeout = 500ms;
    hurried.node_timeout = 200ms;
    Client client{hurried};
    Lock<Reentrant> lock{client, "key"};
    Held outer = take(lock);
    Outcome<Held> nested;
    outer.async_nest(nested.callback());
    Held inner = nested.get().value();
    c_.freeze();
    Outcome<Release> ended;
    inner.async_release(ended.callback());
    EXPECT_EQ(ended.get().value(), Release::still_held);
    EXPECT_TRUE(stays([&] { return a_raw_.exists("key") && b_raw_.exists("key"); }, 3s));
    EXPECT_TRUE(outer.held());
    c_.thaw();
    give_back(outer);
}

// ---- A Cluster

class AsyncCluster : public testing::Test {
protected:
    static constexpr auto lease = 6s;

    RawRedis look_at(std::size_t i) { return RawRedis{group_.server(i).tcp_uri()}; }

    [[nodiscard]] bool queues(const std::string& name) {
        RawRedis redis = look_at(0);
        return eventually([&] { return waiters(redis, name) == 1; });
    }

    ClusterGroup group_;
    Client client_{options_for(group_.uri(0), 10s)};
    Client other_{options_for(group_.uri(4), 10s)};
    const std::string name_ = name_on(0);
};

TEST_F(AsyncCluster, writer_that_waits_for_readers_goes_along_with_its_slot) {
    Lock<Watchdog<Fenced<Shared>>> lock{client_, name_, {.lease = lease}};
    Lock<Watchdog<Fenced<Shared>>> theirs{other_, name_, {.lease = lease}};
    Outcome<Held> outcome;
    lock.async_acquire_shared({}, {}, outcome.callback());
    Result<Held> reading = outcome.get();
    ASSERT_TRUE(reading);
    const auto before = reading->fence();
    Outcome<Held> writing;
    theirs.async_acquire({.wait = patience}, {}, writing.callback());
    ASSERT_TRUE(queues(name_));
    move_slot_of(group_, name_, 0, 1);
    EXPECT_TRUE(is_renewed(*reading));
    EXPECT_FALSE(writing.is_there());
    Outcome<Release> released;
    reading->async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    Result<Held> writer = writing.get();
    ASSERT_TRUE(writer);
    EXPECT_GT(writer->fence(), before);
    EXPECT_TRUE(look_at(1).exists(name_));
    let_go(*writer);
}

TEST_F(AsyncCluster, permits_are_had_where_their_slot_is_now) {
    Semaphore<> gpus{client_, name_, 3, {.lease = lease}};
    Semaphore<> theirs{other_, name_, 3, {.lease = lease}};
    Outcome<Held> two;
    gpus.async_take({.permits = 2}, {}, two.callback());
    Result<Held> held = two.get();
    ASSERT_TRUE(held);
    Outcome<Held> three;
    theirs.async_take({.permits = 3, .wait = patience}, {}, three.callback());
    ASSERT_TRUE(queues(name_));
    move_slot_of(group_, name_, 0, 1);
    EXPECT_TRUE(is_renewed(*held));
    Outcome<void> extended;
    held->async_extend(lease, extended.callback());
    EXPECT_TRUE(extended.get());
    let_go(*held);
    Result<Held> all = three.get();
    ASSERT_TRUE(all);
    EXPECT_EQ(theirs.inspect().value().taken, 3U);
    let_go(*all);
}

TEST_F(AsyncCluster, set_of_two_slots_is_waited_for_while_one_of_them_moves) {
    const std::string here = name_on(0, "a");
    const std::string there = name_on(2, "b");
    using Set = LockSet<Watchdog<Fenced<Simple>>>;
    Set set{client_, {here, there}, {.lease = lease}};
    Set theirs{other_, {there, here}, {.lease = lease}};
    Outcome<HeldSet> first;
    set.async_acquire({}, {}, first.callback());
    Result<HeldSet> held = first.get();
    ASSERT_TRUE(held);
    const auto before = held->fence(here);
    Outcome<HeldSet> next;
    theirs.async_acquire({.wait = patience}, {}, next.callback());
    ASSERT_TRUE(queues(here));
    move_slot_of(group_, here, 0, 1);
    EXPECT_FALSE(next.is_there());
    Outcome<Release> released;
    held->async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    Result<HeldSet> second = next.get();
    ASSERT_TRUE(second);
    EXPECT_GT(second->fence(here), before);
    EXPECT_TRUE(is_outcome(second->release(), Release::released));
}

// ---- A failover

using AsyncFailover = FailoverTest;

TEST_F(AsyncFailover, hold_that_a_replica_has_goes_on_and_waiters_follow_one_by_one) {
    Lock<Simple> lock{client_, "job", {.lease = 60s, .replicas = 1}};
    Lock<Simple> here{client_, "job", {.lease = 60s}};  // the new master has no replica
    Lock<Simple> there{other_, "job", {.lease = 60s}};
    Held held = take(lock);
    Outcome<Held> near;
    Outcome<Held> far;
    here.async_acquire({.wait = patience}, {}, near.callback());
    there.async_acquire({.wait = patience}, {}, far.callback());
    RawRedis first = look_at(group_.first());
    ASSERT_TRUE(eventually([&] { return waiters(first, "job") == 1; }));
    fail_over_with_all_keys();

    const auto is_extended = [&] {
        Outcome<void> extended;
        held.async_extend(60s, extended.callback());
        return extended.get().has_value();
    };
    EXPECT_TRUE(eventually(is_extended));
    EXPECT_EQ(look_at(group_.second()).get("job"), held.token());
    EXPECT_TRUE(stays([&] { return near.calls() + far.calls() == 0; }, 200ms));
    Outcome<Release> released;
    held.async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);

    ASSERT_TRUE(eventually([&] { return near.is_there() || far.is_there(); }));
    Outcome<Held>& next = near.is_there() ? near : far;
    Outcome<Held>& last = near.is_there() ? far : near;
    {
        const Result<Held> second = next.get();
        ASSERT_TRUE(second) << second.error().describe();
        EXPECT_TRUE(stays([&] { return !last.is_there(); }, 50ms));
        EXPECT_TRUE(second->held());
    }
    EXPECT_TRUE(succeeds(last.get()));
    EXPECT_TRUE(eventually([&] { return look_at(group_.second()).keys().empty(); }));
    EXPECT_EQ(near.calls(), 1);
    EXPECT_EQ(far.calls(), 1);
    EXPECT_EQ(released.calls(), 1);
}

}  // namespace
}  // namespace redlatch::test
