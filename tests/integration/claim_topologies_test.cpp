// Readers, writers, permits and sets of locks while their keys go to another server: a slot of a Cluster that moves,
// a failover.

#include "busy_machine.hpp"
#include "cluster_tools.hpp"
#include "failover_tools.hpp"
#include "granted_tools.hpp"
#include "support/cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <string>

namespace redlatch::test {
namespace {

using Config = Lock<Watchdog<Shared>>;
using Store = Lock<Watchdog<Fenced<Shared>>>;

template <class Handle>
std::future<Result<Held>> start_reading(Handle& lock) {
    return in_background([&lock] { return lock.acquire_shared({.wait = patience}); });
}
template <class Handle>
std::future<Result<Held>> start_writing(Handle& lock) {
    return in_background([&lock] { return lock.acquire({.wait = patience}); });
}
std::future<Result<Held>> start_taking(Semaphore<>& semaphore, std::ptrdiff_t permits) {
    return in_background(
        [&semaphore, permits] { return semaphore.take({.permits = permits, .wait = patience}); });
}

// ---- A Cluster

class ClaimsInACluster : public ::testing::Test {
protected:
    static constexpr auto lease = 6s;

    RawRedis look_at(std::size_t i) { return RawRedis{group_.server(i).tcp_uri()}; }

    /// Somebody in the queue of a lock, as its master sees it.
    [[nodiscard]] bool queues(std::size_t master, const std::string& name) {
        RawRedis redis = look_at(master);
        return eventually([&] { return waiters(redis, name) == 1; });
    }

    ClusterGroup group_;
    Client client_{options_for(group_.uri(0), 10s)};
    Client other_{options_for(group_.uri(4), 10s)};
    const std::string name_ = name_on(0);
};

TEST_F(ClaimsInACluster, readers_and_a_writer_behind_them_go_along_with_their_slot) {
    Config lock{client_, name_, {.lease = lease}};
    Config others{other_, name_, {.lease = lease}};
    Held one = lock.acquire_shared().value();
    Held two = others.acquire_shared().value();
    auto writer = start_writing(others);
    ASSERT_TRUE(queues(0, name_));
    move_slot_of(group_, name_, 0, 1);
    EXPECT_TRUE(is_renewed(one) && is_renewed(two));
    EXPECT_TRUE(succeeds(one.extend(lease)));
    EXPECT_EQ(lock.inspect().value().holders.size(), 2U);
    let_go(one);
    EXPECT_FALSE(finishes(writer, 50ms));
    let_go(two);
    ASSERT_TRUE(finishes(writer));
    auto writing = writer.get();
    ASSERT_TRUE(succeeds(writing));
    EXPECT_TRUE(fails_with(lock.acquire_shared({.wait = Wait::none()}), Errc::timed_out));
    EXPECT_TRUE(look_at(1).exists(name_));
    let_go(*writing);
}

TEST_F(ClaimsInACluster, a_writer_lets_readers_in_where_its_slot_is_now) {
    Store lock{client_, name_, {.lease = lease}};
    Store others{other_, name_, {.lease = lease}};
    Held writing = lock.acquire().value();
    auto reader = start_reading(others);
    ASSERT_TRUE(queues(0, name_));
    move_slot_of(group_, name_, 0, 1);
    ASSERT_TRUE(succeeds(writing.downgrade()));
    ASSERT_TRUE(finishes(reader));
    auto reading = reader.get();
    ASSERT_TRUE(succeeds(reading));
    EXPECT_EQ(reading->fence(), writing.fence()) << "the fencing token has moved too";
    EXPECT_TRUE(is_renewed(writing) && is_renewed(*reading));
    let_go(writing);
    let_go(*reading);
    EXPECT_GT(others.acquire({.wait = patience}).value().fence(), writing.fence());
}

TEST_F(ClaimsInACluster, permits_and_their_number_go_along_with_their_slot) {
    Semaphore<> gpus{client_, name_, 5, {.lease = lease}};
    Semaphore<> others{other_, name_, 5, {.lease = lease}};
    ASSERT_TRUE(succeeds(gpus.set_permits(3)));
    Held two = gpus.take({.permits = 2}).value();
    auto waiter = start_taking(others, 2);
    ASSERT_TRUE(queues(0, name_));
    move_slot_of(group_, name_, 0, 1);
    EXPECT_TRUE(is_renewed(two));
    const SemaphoreInfo info = others.inspect().value();
    EXPECT_EQ(info.permits, 3U);
    EXPECT_EQ(info.taken, 2U);
    EXPECT_EQ(info.waiters, 1U);
    EXPECT_TRUE(succeeds(others.set_permits(4)));
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
    let_go(two);
}

TEST_F(ClaimsInACluster, a_claim_whose_keys_are_in_two_places_is_kept_and_waited_for) {
    const unsigned slot = detail::slot_of(name_);
    Client client{
        options_for(group_.uri(0), 3s)};  // for so long an extension is tried again and again
    Config lock{client, name_, {.lease = 60s}};
    Config others{other_, name_, {.lease = 60s}};
    Held reading = lock.acquire_shared().value();
    auto writer = start_writing(others);
    ASSERT_TRUE(queues(0, name_));
    group_.begin_to_move(slot, 0, 1);
    group_.move_key("redlatch:queue:{" + name_ + "}", 0, 1);
    Result<Held> refused = Held{};
    EXPECT_TRUE(eventually([&] {  // an answer may come too late
        refused = lock.acquire_shared({.wait = 200ms, .owner = Owner::hold});
        return code_of(refused) != Errc::unavailable || speaks_of(refused.error(), "TRYAGAIN");
    }));
    ASSERT_TRUE(fails_with(refused, Errc::unavailable));
    EXPECT_TRUE(speaks_of(refused.error(), "TRYAGAIN")) << refused.error().describe();
    EXPECT_TRUE(succeeds(reading.extend(60s))) << "about the lock's own key";
    EXPECT_TRUE(reading.held()) << "nobody has said that it is lost";
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    EXPECT_TRUE(succeeds(reading.extend(60s)));
    let_go(reading);
    ASSERT_TRUE(finishes(writer));
    let_go(writer.get());
}

TEST_F(ClaimsInACluster, claims_are_renewed_and_extended_while_their_slot_moves) {
    const unsigned slot = detail::slot_of(name_);
    Store lock{client_, name_, {.lease = lease}};
    Config elsewhere{other_, name_, {.lease = lease}};
    Held reading = lock.acquire_shared().value();
    Held beside = elsewhere.acquire_shared({.owner = Owner::hold}).value();
    group_.begin_to_move(slot, 0, 1);  // without a queue, not all of their keys are there
    EXPECT_TRUE(is_renewed(reading) && is_renewed(reading) && is_renewed(beside));
    EXPECT_TRUE(succeeds(reading.extend(lease)));
    group_.move_key(name_, 0, 1);
    EXPECT_TRUE(is_renewed(reading) && is_renewed(reading) && is_renewed(beside));
    EXPECT_TRUE(succeeds(reading.extend(lease)));
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    EXPECT_TRUE(is_renewed(reading) && is_renewed(beside));
    let_go(reading);
    let_go(beside);
}

TEST_F(ClaimsInACluster, permits_are_renewed_and_extended_while_their_slot_moves) {
    const unsigned slot = detail::slot_of(name_);
    Semaphore<> gpus{client_, name_, 5, {.lease = lease}};
    ASSERT_TRUE(succeeds(gpus.set_permits(3)));
    Held two = gpus.take({.permits = 2}).value();
    group_.begin_to_move(slot, 0, 1);
    EXPECT_TRUE(is_renewed(two) && is_renewed(two));
    group_.move_key(name_, 0, 1);
    EXPECT_TRUE(is_renewed(two) && is_renewed(two));
    EXPECT_TRUE(succeeds(two.extend(lease)));
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    EXPECT_TRUE(is_renewed(two));
    let_go(two);
}

TEST_F(ClaimsInACluster, a_waiter_goes_on_where_claims_end_while_their_slot_moves) {
    const auto journal = std::make_shared<Journal>();
    ClientOptions options = options_for(group_.uri(4), 10s);
    options.observer = journal;
    Client watched{options};
    Semaphore<Permits> gpus{
        client_, name_, 2, {.lease = 3s}};  // long enough for the waiter to come
    Semaphore<> others{watched, name_, 2, {.lease = lease}};
    ASSERT_TRUE(succeeds(gpus.set_permits(2)));
    Held longer = gpus.take({.lease = 60s}).value();  // the key lives for so long
    Held held = gpus.take().value();
    let_go(longer);
    auto waiter = start_taking(others, 2);
    ASSERT_TRUE(queues(0, name_));
    const unsigned slot = detail::slot_of(name_);
    group_.begin_to_move(slot, 0, 1);
    // The script that finds the claim over deletes the key, and may not come back to it.
    EXPECT_TRUE(eventually([&] {
        const auto errors = journal->errors();
        return finishes(waiter, 0ms) || std::any_of(errors.begin(), errors.end(), [](auto& error) {
                   return speaks_of(error, "non local key");
               });
    }));
    EXPECT_FALSE(finishes(waiter, 100ms));
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
}

TEST_F(ClaimsInACluster,
       waiters_keep_their_places_where_a_claim_is_released_while_their_slot_moves) {
    Client third{options_for(group_.uri(0), 10s)};
    Semaphore<> gpus{client_, name_, 1, {.lease = lease}};
    Semaphore<> others{other_, name_, 1, {.lease = lease}};
    Semaphore<> thirds{third, name_, 1, {.lease = lease}};
    ASSERT_TRUE(succeeds(gpus.set_permits(1)));
    Held held = gpus.take().value();
    RawRedis redis = look_at(0);
    auto first = start_taking(others, 1);
    ASSERT_TRUE(eventually([&] { return waiters(redis, name_) == 1; }));
    auto second = start_taking(thirds, 1);
    ASSERT_TRUE(eventually([&] { return waiters(redis, name_) == 2; }));
    const unsigned slot = detail::slot_of(name_);
    group_.begin_to_move(slot, 0, 1);
    let_go(held);
    EXPECT_EQ(waiters(redis, name_), 2);
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    // The other server passes over whose client does not listen there yet.
    ASSERT_TRUE(eventually([&] { return finishes(first, 0ms) || finishes(second, 0ms); }));
    auto& one = finishes(first, 0ms) ? first : second;
    auto& other = &one == &first ? second : first;
    let_go(one.get());
    ASSERT_TRUE(finishes(other));
    let_go(other.get());
}

// It takes its place along: the queue's key is gone, and nobody may read it again.
TEST_F(ClaimsInACluster, the_only_waiter_leaves_in_time_while_its_slot_moves) {
    Semaphore<> gpus{client_, name_, 1, {.lease = lease}};
    Semaphore<> others{other_, name_, 1, {.lease = lease}};
    ASSERT_TRUE(succeeds(gpus.set_permits(1)));
    Held held = gpus.take().value();
    RawRedis redis = look_at(0);
    auto waiter = in_background([&] { return others.take({.wait = 2s}); });
    ASSERT_TRUE(eventually([&] { return waiters(redis, name_) == 1; }));
    const unsigned slot = detail::slot_of(name_);
    group_.begin_to_move(slot, 0, 1);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(was_in_vain(waiter.get()));
    EXPECT_TRUE(eventually([&] { return waiters(redis, name_) == 0; }));
    group_.move_keys(slot, 0, 1);
    group_.finish_move(slot, 0, 1);
    let_go(held);
}

TEST_F(ClaimsInACluster, a_set_of_two_slots_is_held_while_one_of_them_moves) {
    const std::string here = name_on(0, "a");
    const std::string there = name_on(2, "b");
    LockSet<Watchdog<Fenced<Simple>>> set{client_, {here, there}, {.lease = lease}};
    LockSet<Watchdog<Fenced<Simple>>> others{other_, {there, here}, {.lease = lease}};
    HeldSet held = set.acquire().value();
    auto next = in_background([&] { return others.acquire({.wait = patience}); });
    ASSERT_TRUE(queues(0, here));
    move_slot_of(group_, here, 0, 1);
    EXPECT_TRUE(eventually([&] { return held.remaining() < lease - 1s; }));
    EXPECT_TRUE(eventually([&] { return held.remaining() > lease - 1s; })) << "both are renewed";
    EXPECT_TRUE(succeeds(held.extend(lease)));
    const auto last = held.fence(here);
    EXPECT_GT(last, 0U);
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    ASSERT_TRUE(finishes(next));
    auto theirs = next.get();
    ASSERT_TRUE(succeeds(theirs));
    EXPECT_GT(theirs->fence(here), last);
    EXPECT_TRUE(is_outcome(theirs->release(), Release::released));
}

// ---- A failover

using ClaimsOverAFailover = FailoverTest;

TEST_F(ClaimsOverAFailover, readers_and_permits_that_a_replica_has_go_on_and_waiters_are_served) {
    const LockOptions acknowledged{.lease = 60s, .replicas = 1};
    Config lock{client_, "config", acknowledged};
    Config others{other_, "config", {.lease = 60s}};
    Semaphore<> gpus{client_, "gpus", 2, acknowledged};
    Held reading = lock.acquire_shared({.wait = patience}).value();
    Held permits = gpus.take({.permits = 2, .wait = patience}).value();
    auto writer = start_writing(others);
    Semaphore<> other_gpus{other_, "gpus", 2, {.lease = 60s}};
    auto taker = start_taking(other_gpus, 1);
    RawRedis first = look_at(group_.first());
    for (const std::string name : {"config", "gpus"}) {
        ASSERT_TRUE(eventually([&] { return waiters(first, name) == 1; }));
    }
    fail_over_with_all_keys();
    EXPECT_TRUE(eventually([&] { return reading.extend(60s).has_value(); }));
    EXPECT_TRUE(eventually([&] { return permits.extend(60s).has_value(); }));
    EXPECT_FALSE(finishes(writer, 50ms));
    EXPECT_FALSE(finishes(taker, 50ms));
    let_go(reading);
    let_go(permits);
    ASSERT_TRUE(finishes(writer, 30s));
    let_go(writer.get());
    ASSERT_TRUE(finishes(taker, 30s));
    let_go(taker.get());
}

TEST_F(ClaimsOverAFailover, a_set_goes_on_and_is_given_back_as_a_whole) {
    LockSet<Watchdog<Simple>> set{client_, {"a", "b"}, {.lease = 60s, .replicas = 1}};
    HeldSet held = set.acquire({.wait = patience}).value();
    fail_over_with_all_keys();
    EXPECT_TRUE(eventually([&] { return held.extend(60s).has_value(); }));
    EXPECT_FALSE((LockSet<Simple>{other_, {"b", "c"}}.try_lock()));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    EXPECT_TRUE(eventually([&] { return look_at(group_.second()).keys().empty(); }));
}

}  // namespace
}  // namespace redlatch::test
