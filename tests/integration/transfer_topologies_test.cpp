// What keeps a lock while nobody holds it, a tombstone of `min_hold` or a ticket of `detach()`, while its keys go to
// another server: a slot of a Cluster that moves, a failover.

#include "busy_machine.hpp"
#include "cluster_tools.hpp"
#include "failover_tools.hpp"
#include "granted_tools.hpp"
#include "support/cluster.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace redlatch::test {
namespace {

/// Whose a lock is, in the server's words.
std::string owner_in(RawRedis redis, const std::string& name) {
    const std::string type = redis.type(name);
    if (type == "hash") return redis.hgetall(name).begin()->first;
    return type == "string" ? redis.get(name).value_or("") : "";
}

// ---- A Cluster

class KeptInACluster : public ::testing::Test {
protected:
    RawRedis look_at(std::size_t i) { return RawRedis{group_.server(i).tcp_uri()}; }

    template <class Policy>
    void expect_tombstone_to_go_along(const std::string& name) {
        Lock<Policy> lock{client_, name, {.lease = 10s, .min_hold = 1h}};
        Lock<Policy> others{other_, name};
        Held held = lock.acquire().value();
        const std::string tombstone = held.token() + ":min_hold";
        let_go(held);
        const unsigned slot = detail::slot_of(name);
        group_.begin_to_move(slot, 0, 1);
        EXPECT_FALSE(others.acquire({.wait = 50ms})) << "not before it has moved";
        group_.move_key(name, 0, 1);
        EXPECT_FALSE(others.acquire({.wait = 50ms})) << "nor where it has";
        group_.move_keys(slot, 0, 1);
        group_.finish_move(slot, 0, 1);
        EXPECT_TRUE(times_out([&] { return lock.acquire({.wait = Wait::none()}); }));
        EXPECT_TRUE(times_out([&] { return others.acquire({.wait = Wait::none()}); }));
        EXPECT_EQ(owner_in(look_at(1), name), tombstone);
        EXPECT_GT(look_at(1).pttl(name), 3'000'000);
        EXPECT_EQ(others.force_unlock(tombstone).value(), Forced::removed);
        EXPECT_TRUE(succeeds(others.acquire({.wait = patience})));
    }

    template <class Policy>
    void expect_ticket_to_go_along(const std::string& name) {
        Held held = Lock<Policy>{client_, name, {.lease = 60s}}.acquire().value();
        const auto ticket = held.detach();
        ASSERT_TRUE(succeeds(ticket));
        move_slot_of(group_, name, 0, 1);
        EXPECT_EQ(owner_in(look_at(1), name), ticket->text());
        Lock<Policy> theirs{other_, name};
        auto adopted = theirs.adopt(*ticket);
        ASSERT_TRUE(succeeds(adopted));
        EXPECT_TRUE(fails_with(Lock<Policy>(client_, name).adopt(*ticket), Errc::lost));
        EXPECT_EQ(owner_in(look_at(1), name), adopted->token());
        let_go(*adopted);
        EXPECT_FALSE(look_at(1).exists(name));
    }

    ClusterGroup group_;
    Client client_{options_for(group_.uri(0), 10s)};
    Client other_{options_for(group_.uri(4), 10s)};
    const std::string name_ = name_on(0);
};

TEST_F(KeptInACluster, a_tombstone_goes_along_with_its_slot) {
    expect_tombstone_to_go_along<Simple>(name_on(0, "string"));
    expect_tombstone_to_go_along<Fenced<Reentrant>>(name_on(0, "hash"));
}

TEST_F(KeptInACluster, a_waiter_has_the_lock_at_the_end_of_a_tombstone_that_has_moved) {
    constexpr auto min_hold = 700ms;
    Lock<Reentrant> lock{client_, name_, {.lease = 60s, .min_hold = min_hold}};
    const Stopwatch watch;
    Held held = lock.acquire().value();
    auto waiter = in_background([&] {
        auto next = Lock<Reentrant>{other_, name_}.acquire({.wait = patience});
        return next ? watch.elapsed() : 0ns;
    });
    RawRedis before = look_at(0);
    EXPECT_TRUE(eventually([&] { return waiters(before, name_) == 1; }));
    let_go(held);
    move_slot_of(group_, name_, 0, 1);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_GE(waiter.get(), min_hold);
    EXPECT_TRUE(eventually([&] { return !look_at(1).exists(name_); }));
}

TEST_F(KeptInACluster, a_ticket_is_adopted_where_its_slot_is_now) {
    expect_ticket_to_go_along<Fenced<Simple>>(name_on(0, "string"));
    expect_ticket_to_go_along<Reentrant>(name_on(0, "hash"));
}

TEST_F(KeptInACluster, a_ticket_stays_while_its_slot_moves_and_is_adopted_then) {
    const unsigned slot = detail::slot_of(name_);
    Lock<Fenced<Simple>> lock{client_, name_, {.lease = 60s}};
    Held held = lock.acquire().value();
    const auto fence = held.fence();
    const auto ticket = held.detach();
    ASSERT_TRUE(succeeds(ticket));
    Client brief{options_for(group_.uri(0), 200ms)};
    group_.begin_to_move(slot, 0, 1);
    for (const bool has_moved : {false, true}) {
        if (has_moved) group_.move_key(name_, 0, 1);
        const auto refused = Lock<Fenced<Simple>>{brief, name_}.adopt(*ticket);
        EXPECT_TRUE(fails_with(refused, Errc::unavailable)) << has_moved;
    }
    Lock<Fenced<Simple>> theirs{other_, name_};
    auto adopting = in_background([&] { return theirs.adopt(*ticket, Owner::hold); });
    EXPECT_FALSE(finishes(adopting, 50ms));
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    ASSERT_TRUE(finishes(adopting));
    auto adopted = adopting.get();
    ASSERT_TRUE(succeeds(adopted));
    EXPECT_GT(adopted->fence(), fence);
    EXPECT_TRUE(fails_with(lock.adopt(*ticket), Errc::lost));
    EXPECT_EQ(owner_in(look_at(1), name_), adopted->token());
    let_go(*adopted);
    EXPECT_FALSE(look_at(1).exists(name_));
}

// ---- A failover

class KeptOverAFailover : public FailoverTest {
protected:
    /// Whether the replica says the same of the lock as the master; waits for that.
    [[nodiscard]] bool replica_knows(const std::string& name) {
        const std::string owner = owner_in(look_at(group_.first()), name);
        return !owner.empty() &&
               eventually([&] { return owner_in(look_at(group_.second()), name) == owner; });
    }
};

TEST_F(KeptOverAFailover, tombstones_and_tickets_that_the_replica_has_are_kept) {
    Lock<Simple> job{client_, "job", {.lease = 60s, .min_hold = 1h, .replicas = 1}};
    Lock<Reentrant> given{client_, "given", {.lease = 60s, .replicas = 1}};
    Held done = job.acquire({.wait = patience}).value();
    Held away = given.acquire({.wait = patience}).value();
    const std::string tombstone = done.token() + ":min_hold";
    let_go(done);
    const auto ticket = away.detach();
    ASSERT_TRUE(succeeds(ticket));
    ASSERT_TRUE(replica_knows("job") && replica_knows("given"));
    fail_over();

    Lock<Simple> jobs{other_, "job"};
    EXPECT_TRUE(times_out([&] { return jobs.acquire({.wait = Wait::none()}); }));
    EXPECT_EQ(owner_in(look_at(group_.second()), "job"), tombstone);
    EXPECT_EQ(jobs.force_unlock(tombstone).value(), Forced::removed);
    Lock<Reentrant> taken{other_, "given"};
    auto adopted = taken.adopt(*ticket);
    ASSERT_TRUE(succeeds(adopted));
    EXPECT_TRUE(fails_with(given.adopt(*ticket), Errc::lost));
    EXPECT_TRUE(succeeds(adopted->extend(60s)));
    let_go(*adopted);
    EXPECT_TRUE(eventually([&] { return look_at(group_.second()).keys().empty(); }));
}

TEST_F(KeptOverAFailover, an_adoption_that_the_replica_has_acknowledged_counts) {
    Lock<Fenced<Simple>> lock{client_, "job", {.lease = 60s, .replicas = 1}};
    Lock<Fenced<Simple>> theirs{other_, "job", {.lease = 60s, .replicas = 1}};
    Held held = lock.acquire({.wait = patience}).value();
    const auto ticket = held.detach();
    ASSERT_TRUE(succeeds(ticket));
    auto adopted = theirs.adopt(*ticket);
    ASSERT_TRUE(succeeds(adopted));
    fail_over();
    EXPECT_TRUE(eventually([&] { return adopted->extend(60s).has_value(); }));
    EXPECT_EQ(owner_in(look_at(group_.second()), "job"), adopted->token());
    EXPECT_TRUE(fails_with(lock.adopt(*ticket), Errc::lost));
    EXPECT_TRUE(adopted->held());
    let_go(*adopted);
    EXPECT_FALSE(look_at(group_.second()).exists("job"));
}

}  // namespace
}  // namespace redlatch::test
