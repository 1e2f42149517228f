// The reentrant lock that tells Redisson's waiters when it is free.

#include "granted_tools.hpp"

#include <string>
#include <vector>

namespace redlatch::test {
namespace {

/// Sleeps as a waiter of Redisson's does, until a message comes on the lock's channel.
class RedissonWaiter {
public:
    RedissonWaiter(const RedisServer& server, const std::string& channel,
                   const std::string& subscribe = "SUBSCRIBE")
        : redis_(server) {
        redis_.command({subscribe, channel});
    }

    /// "0" says that the lock is free.
    std::string hears() {
        const RawReply message = redis_.next();
        return message.elements.size() == 3 ? message.elements[2].text : "no message";
    }

    bool hears_nothing() {
        redis_.set_timeout(200ms);
        try {
            redis_.next();
            return false;
        } catch (const std::runtime_error&) {
            return true;
        }
    }

private:
    RawRedis redis_;
};

class RedissonReentrantLock : public LockTest {
protected:
    const std::string channel_ = "redisson_lock__channel:{job}";
    Lock<RedissonReentrant> lock_{client_, "job"};
};

TEST_F(RedissonReentrantLock, tells_once_that_it_is_free) {
    RedissonWaiter waiter{server_, channel_};
    lock_.lock();
    lock_.lock();
    EXPECT_TRUE(is_outcome(lock_.release(), Release::still_held));
    EXPECT_TRUE(is_outcome(lock_.release(), Release::released));
    EXPECT_EQ(waiter.hears(), "0");
    EXPECT_FALSE(redis_.exists("job"));
    EXPECT_TRUE(waiter.hears_nothing()) << "not of the nested one";
}

TEST_F(RedissonReentrantLock, tells_it_in_every_way_to_end_a_hold) {
    RedissonWaiter waiter{server_, channel_};
    lock_.lock();
    lock_.unlock();
    EXPECT_EQ(waiter.hears(), "0");
    {
        Lock<Watchdog<RedissonReentrant>> other{
            other_client_, "job", {.release_mode = ReleaseMode::sent}};
        for (int i = 0; i < 3; ++i) {
            other.lock();
            other.unlock();
            EXPECT_EQ(waiter.hears(), "0");
        }
    }
    lock_.lock();
    Lock<RedissonReentrant> operators{other_client_, "job"};
    EXPECT_EQ(operators.force_unlock().value(), Forced::removed);
    EXPECT_EQ(waiter.hears(), "0");
}

TEST_F(RedissonReentrantLock, tells_nothing_where_one_of_ours_comes_next) {
    RedissonWaiter theirs{server_, channel_};
    Held held = take<RedissonReentrant>(client_);
    auto ours = enqueue<RedissonReentrant>(redis_, other_client_);
    EXPECT_TRUE(settles(redis_)) << "it can be told, too";
    let_go(held);
    ASSERT_TRUE(finishes(ours));
    auto next = ours.get();
    ASSERT_TRUE(succeeds(next));
    EXPECT_TRUE(theirs.hears_nothing());
}

TEST_F(RedissonReentrantLock, tells_when_it_is_released_that_it_is_kept_for_its_min_hold) {
    RedissonWaiter waiter{server_, channel_};
    Lock<RedissonReentrant> lock{client_, "job", {.lease = 10min, .min_hold = 1min}};
    lock.lock();
    lock.unlock();
    EXPECT_EQ(waiter.hears(), "0") << "it would sleep for the lease";
    EXPECT_LE(redis_.pttl("job"), 60'000) << "what the waiter sees when it looks again";
    EXPECT_GT(redis_.pttl("job"), 0);
}

TEST_F(RedissonReentrantLock, tells_nothing_that_is_not_so) {
    RedissonWaiter waiter{server_, channel_};
    Held held = take<RedissonReentrant>(client_);
    redis_.del("job");
    redis_.command({"HSET", "job", "theirs:1", "1"});
    EXPECT_TRUE(is_outcome(held.release(), Release::expired));
    EXPECT_TRUE(waiter.hears_nothing());
    EXPECT_EQ(redis_.hgetall("job").size(), 1U);
}

TEST_F(RedissonReentrantLock, tells_it_on_the_channel_of_a_name_with_a_brace) {
    for (const std::string name : {"{tag}job", "a{b"}) {
        RedissonWaiter waiter{server_, "redisson_lock__channel:" + name};
        let_go(Lock<RedissonReentrant>{client_, name}.acquire());
        EXPECT_EQ(waiter.hears(), "0") << name;
    }
}

TEST_F(RedissonReentrantLock, tells_it_on_the_sharded_channel_too) {
    if (redis_server_version() < redis_7) GTEST_SKIP() << "the server has no sharded channels";
    RedissonWaiter waiter{server_, channel_, "SSUBSCRIBE"};
    lock_.lock();
    lock_.unlock();
    EXPECT_EQ(waiter.hears(), "0");
}

TEST_F(RedissonReentrantLock, is_released_where_publishing_is_forbidden) {
    redis_.command({"ACL", "SETUSER", "alice", "on", ">secret", "~*", "+@all", "-publish"});
    if (redis_server_version() >= redis_7) redis_.command({"ACL", "SETUSER", "alice", "-spublish"});
    Client client{patient("unix://alice:secret@" + server_.socket_path())};
    let_go(Lock<RedissonReentrant>{client, "job"}.acquire());
    EXPECT_FALSE(redis_.exists("job"));
}

TEST_F(RedissonReentrantLock, is_one_lock_with_reentrant_locks_of_its_name) {
    Lock<Reentrant> plain{client_, "job"};
    RedissonWaiter waiter{server_, channel_};
    lock_.lock();
    EXPECT_FALSE((Lock<Reentrant>{other_client_, "job"}.try_lock()));
    EXPECT_FALSE(on_another_thread([&] { return plain.try_lock(); }));
    lock_.unlock();
    EXPECT_EQ(waiter.hears(), "0");
    EXPECT_TRUE(plain.try_lock());
}

}  // namespace
}  // namespace redlatch::test
