// The reentrant lock: a hash of the owner's token and its hold count, nested by thread.

#include "lock_test.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

class ReentrantLock : public LockTest {
protected:
    /// The one field of the lock's hash, and its count.
    std::pair<std::string, std::string> field() {
        const auto fields = redis_.hgetall("job");
        if (fields.size() != 1) return {};
        return *fields.begin();
    }
    std::string count() { return field().second; }

    Lock<Reentrant> lock_{client_, "job"};
};

TEST_F(ReentrantLock, is_a_hash_of_its_name_from_token_to_count) {
    const Held held = lock_.acquire().value();
    EXPECT_EQ(redis_.type("job"), "hash");
    EXPECT_EQ(field(), std::make_pair(held.token(), std::string{"1"}));
    EXPECT_GT(redis_.pttl("job"), 10'000);
    EXPECT_LE(redis_.pttl("job"), 30'000);
}

TEST_F(ReentrantLock, counts_nested_holds_and_is_free_at_zero) {
    lock_.lock();
    EXPECT_EQ(count(), "1");
    EXPECT_TRUE(lock_.try_lock());
    EXPECT_EQ(count(), "2");
    EXPECT_TRUE(lock_.try_lock_for(generous_limit));
    EXPECT_EQ(count(), "3");
    EXPECT_EQ(lock_.release().value(), Release::still_held);
    EXPECT_EQ(count(), "2");
    EXPECT_TRUE(lock_.try_lock());
    EXPECT_EQ(count(), "3");
    EXPECT_EQ(lock_.release().value(), Release::still_held);
    EXPECT_EQ(lock_.release().value(), Release::still_held);
    EXPECT_TRUE(lock_.held());
    EXPECT_EQ(lock_.release().value(), Release::released);
    EXPECT_FALSE(lock_.held());
    EXPECT_EQ(lock_.release().value(), Release::not_held);
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(ReentrantLock, nests_through_any_handle_of_the_client) {
    Lock<Reentrant> handle{client_, "job"};
    const std::lock_guard outer{lock_};
    const std::string token = field().first;
    const std::lock_guard inner{handle};
    EXPECT_EQ(field(), std::make_pair(token, std::string{"2"}));
    EXPECT_TRUE(handle.held());
}

TEST_F(ReentrantLock, has_one_token_for_a_nest_and_a_new_one_for_the_next) {
    std::string before;
    {
        const Held outer = lock_.acquire().value();
        const Held inner = lock_.acquire().value();
        EXPECT_EQ(outer.token(), inner.token());
        before = outer.token();
    }
    const Held next = lock_.acquire().value();
    EXPECT_NE(next.token(), before);
}

TEST_F(ReentrantLock, sets_the_count_absolutely) {
    const Held outer = lock_.acquire().value();
    redis_.command({"HSET", "job", outer.token(), "41"});
    const Held inner = lock_.acquire().value();
    EXPECT_EQ(count(), "2");
}

TEST_F(ReentrantLock, is_freed_by_the_last_release_whatever_its_count) {
    Held held = lock_.acquire().value();
    redis_.command({"HSET", "job", held.token(), "41"});
    EXPECT_EQ(held.release().value(), Release::released);
    EXPECT_FALSE(redis_.exists("job"));
}

TEST_F(ReentrantLock, is_never_shortened_by_a_nested_lease) {
    Held outer = lock_.acquire({.lease = 60s}).value();
    {
        const Held inner = lock_.acquire({.lease = 100ms}).value();
        EXPECT_GT(redis_.pttl("job"), 30'000);
        EXPECT_GT(inner.remaining(), 30s);
    }
    EXPECT_GT(redis_.pttl("job"), 30'000) << "nor by the end of the nested hold";
    EXPECT_GT(outer.remaining(), 30s);
    EXPECT_TRUE(outer.extend(100ms));
    EXPECT_GT(redis_.pttl("job"), 30'000);
}

TEST_F(ReentrantLock, is_lengthened_by_a_nested_lease) {
    const Held outer = lock_.acquire({.lease = 10s}).value();
    const Held inner = lock_.acquire({.lease = 60s}).value();
    EXPECT_GT(redis_.pttl("job"), 30'000);
    EXPECT_GT(outer.remaining(), 30s);
    EXPECT_GT(inner.remaining(), 30s);
}

TEST_F(ReentrantLock, is_not_lengthened_by_a_nested_call_that_was_stopped_before) {
    std::stop_source stop;
    stop.request_stop();
    for (const auto kind : {Connections::pooled, Connections::shared}) {
        ClientOptions options = patient(server_.uri());
        options.connections = kind;
        Client client{options};
        Lock<Reentrant> lock{client, "job"};
        const Held outer = lock.acquire({.lease = 10s}).value();
        const auto inner = lock.acquire({.lease = 1h, .stop = stop.get_token()});
        EXPECT_EQ(code_of(inner), Errc::cancelled);
        EXPECT_LE(redis_.pttl("job"), 10'000);
        EXPECT_EQ(lock.inspect().value().hold_count, 1U);
    }
}

TEST_F(ReentrantLock, lets_holds_of_a_nest_end_in_any_order) {
    Held first = lock_.acquire().value();
    Held second = lock_.acquire().value();
    Held third = lock_.acquire().value();
    EXPECT_EQ(first.release().value(), Release::still_held);
    EXPECT_EQ(count(), "2");
    EXPECT_TRUE(second.held());
    EXPECT_TRUE(third.held());
    EXPECT_EQ(third.release().value(), Release::still_held);
    EXPECT_EQ(count(), "1");
    EXPECT_FALSE(on_another_thread([&] { return lock_.try_lock(); }));
    EXPECT_EQ(second.release().value(), Release::released);
    EXPECT_FALSE(redis_.exists("job"));
    EXPECT_EQ(first.release().value(), Release::not_held);
}

TEST_F(ReentrantLock, mixes_unlock_and_held) {
    Held outer = lock_.acquire().value();
    lock_.lock();
    EXPECT_EQ(lock_.release().value(), Release::still_held);
    EXPECT_EQ(lock_.release().value(), Release::not_held) << "a Held is ended by itself only";
    EXPECT_TRUE(lock_.held());
    EXPECT_EQ(outer.release().value(), Release::released);
}

TEST_F(ReentrantLock, makes_another_thread_wait_until_the_outermost_end) {
    lock_.lock();
    lock_.lock();
    EXPECT_FALSE(on_another_thread([&] { return lock_.try_lock(); }));
    EXPECT_EQ(on_another_thread([&] { return code_of(lock_.acquire({.wait = 20ms})); }),
              Errc::timed_out);
    std::atomic<bool> had{false};
    std::jthread waiter{[&] {
        const std::lock_guard guard{lock_};
        had = true;
    }};
    lock_.unlock();
    EXPECT_TRUE(stays([&] { return !had; }, 50ms));
    lock_.unlock();
    EXPECT_TRUE(eventually([&] { return had.load(); }));
}

TEST_F(ReentrantLock, makes_another_client_wait_until_the_outermost_end) {
    Lock<Reentrant> elsewhere{other_client_, "job"};
    lock_.lock();
    lock_.lock();
    EXPECT_FALSE(elsewhere.try_lock()) << "the same thread, but another client";
    lock_.unlock();
    EXPECT_FALSE(elsewhere.try_lock());
    lock_.unlock();
    EXPECT_TRUE(elsewhere.try_lock());
}

TEST_F(ReentrantLock, excludes_redissons_lock_of_the_same_shape) {
    redis_.command({"HSET", "job", "some-uuid:1", "1"});
    redis_.command({"PEXPIRE", "job", "60000"});
    EXPECT_FALSE(lock_.try_lock());
    EXPECT_EQ(count(), "1");
    redis_.del("job");
    EXPECT_TRUE(lock_.try_lock());
}

TEST_F(ReentrantLock, is_not_handed_from_a_thread_that_ended_to_a_later_one) {
    std::thread{[&] { lock_.lock(); }}.join();
    const std::string token = field().first;
    // New threads tend to get the id of one that has just ended.
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(on_another_thread([&] { return lock_.try_lock() || lock_.held(); }));
    }
    EXPECT_EQ(field(), std::make_pair(token, std::string{"1"}));
}

TEST_F(ReentrantLock, of_a_thread_that_ended_is_free_after_its_lease) {
    std::thread{[&] { lock_.lock(Lease{200ms}); }}.join();
    EXPECT_TRUE(lock_.try_lock_for(generous_limit));
    EXPECT_EQ(count(), "1");
}

TEST_F(ReentrantLock, nested_acquire_after_a_loss_at_the_server_says_lost) {
    Held outer = lock_.acquire().value();
    redis_.del("job");
    const auto inner = lock_.acquire();
    EXPECT_EQ(code_of(inner), Errc::lost);
    EXPECT_FALSE(redis_.exists("job")) << "a lost lock is never taken again by nesting";
    EXPECT_EQ(outer.state(), HoldState::lost);
    EXPECT_TRUE(outer.lost().stop_requested());
    EXPECT_EQ(outer.release().value(), Release::expired);
    EXPECT_TRUE(lock_.try_lock()) << "the next one is a new acquisition";
    EXPECT_EQ(count(), "1");
}

TEST_F(ReentrantLock, nested_acquire_never_joins_another_owner) {
    Held outer = lock_.acquire().value();
    redis_.del("job");
    Lock<Reentrant> elsewhere{other_client_, "job"};
    const Held next = elsewhere.acquire().value();
    EXPECT_EQ(code_of(lock_.acquire()), Errc::lost);
    EXPECT_EQ(field(), std::make_pair(next.token(), std::string{"1"}));
    EXPECT_EQ(outer.release().value(), Release::expired);
    EXPECT_EQ(field(), std::make_pair(next.token(), std::string{"1"}));
}

TEST_F(ReentrantLock, nested_release_after_a_loss_at_the_server_says_expired) {
    lock_.lock();
    lock_.lock();
    redis_.del("job");
    EXPECT_EQ(lock_.release().value(), Release::expired);
    EXPECT_EQ(lock_.state(), HoldState::lost);
    EXPECT_EQ(lock_.release().value(), Release::expired);
    EXPECT_EQ(lock_.state(), HoldState::none);
    EXPECT_FALSE(redis_.exists("job"));
}

TEST_F(ReentrantLock, whose_lease_ran_out_is_acquired_anew) {
    Held old = lock_.acquire({.lease = 100ms}).value();
    ASSERT_TRUE(eventually([&] { return !old.held(); }));
    const Held next = lock_.acquire({.wait = generous_limit}).value();
    EXPECT_NE(next.token(), old.token());
    EXPECT_EQ(field(), std::make_pair(next.token(), std::string{"1"}));
    EXPECT_EQ(old.release().value(), Release::expired);
    EXPECT_EQ(count(), "1");
}

TEST_F(ReentrantLock, nests_deeply_in_many_threads) {
    constexpr int threads = 4;
    constexpr int depth = 20;
    int unguarded = 0;
    {
        std::vector<std::jthread> running;
        for (int t = 0; t < threads; ++t) {
            running.emplace_back([&] {
                std::vector<std::unique_ptr<std::lock_guard<Lock<Reentrant>>>> nest;
                for (int i = 0; i < depth; ++i) {
                    nest.push_back(std::make_unique<std::lock_guard<Lock<Reentrant>>>(lock_));
                    ++unguarded;
                }
            });
        }
    }
    EXPECT_EQ(unguarded, threads * depth);
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(ReentrantLock, inspect_tells_the_hold_count) {
    const Held outer = lock_.acquire().value();
    const Held inner = lock_.acquire().value();
    const LockInfo info = Lock<Reentrant>{other_client_, "job"}.inspect().value();
    EXPECT_TRUE(info.locked);
    EXPECT_EQ(info.owner, outer.token());
    EXPECT_EQ(info.hold_count, 2U);
    EXPECT_TRUE(info.ttl);
}

TEST_F(ReentrantLock, force_unlock_ends_a_whole_nest) {
    lock_.lock();
    lock_.lock();
    EXPECT_EQ((Lock<Reentrant>{other_client_, "job"}.force_unlock().value()), Forced::removed);
    EXPECT_FALSE(redis_.exists("job"));
    EXPECT_EQ(lock_.release().value(), Release::expired);
    EXPECT_EQ(lock_.release().value(), Release::expired);
}

}  // namespace
}  // namespace redlatch::test
