#pragma once

#include "fault_tools.hpp"
#include "lock_test.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

// What the tests of waiting in the server's queue have in common.

namespace redlatch::test {

/// How long a waiter of these tests waits: for ever, but that a test that fails comes to an end.
inline constexpr std::chrono::seconds patience{60};

/// What a lock of the policy looks like to the server.
template <class Policy>
inline constexpr bool is_hash =
    std::is_same_v<Policy, Reentrant> || std::is_same_v<Policy, Watchdog<Reentrant>>;

/// How many wait at the server; seen without any command of the library's.
inline long long waiters(RawRedis& redis, const std::string& key = "job") {
    return redis.command({"ZCARD", "redlatch:queue:{" + key + "}"}).integer;
}

[[nodiscard]] inline bool queue_grows_to(RawRedis& redis, long long count) {
    return eventually([&] { return waiters(redis) == count; });
}

/// How many scripts clients have run, by either command.
inline long long scripts_run(RawRedis& redis) {
    return redis.command_calls("evalsha") + redis.command_calls("eval");
}

/// Whether nobody asks the server again and again any more: whoever waits will be told.
[[nodiscard]] inline bool settles(RawRedis& redis) {
    return eventually([&] {
        const long long before = scripts_run(redis);
        return stays([&] { return scripts_run(redis) == before; }, 250ms);
    });
}

/// Somebody else's lock, as other clients take it.
template <class Policy>
void take_as_foreigner(RawRedis& redis, std::chrono::milliseconds lease = 60s,
                       const std::string& token = "foreign") {
    const std::string ttl = std::to_string(lease.count());
    if (is_hash<Policy>) {
        redis.command({"HSET", "job", token, "1"});
        redis.command({"PEXPIRE", "job", ttl});
    } else {
        redis.command({"SET", "job", token, "PX", ttl});
    }
}

/// Waits for the lock on a thread of its own.
template <class Policy>
std::future<Result<Held>> start_waiting(Client& client, AcquireOptions options = {.wait = patience},
                                        LockOptions lock_options = {}) {
    return in_background([&client, options, lock_options] {
        Lock<Policy> lock{client, "job", lock_options};
        return lock.acquire(options);
    });
}

/// The same, and returns once it stands in the queue, behind all others.
template <class Policy>
std::future<Result<Held>> enqueue(RawRedis& redis, Client& client,
                                  AcquireOptions options = {.wait = patience},
                                  LockOptions lock_options = {}) {
    const long long before = waiters(redis);
    auto waiter = start_waiting<Policy>(client, options, lock_options);
    EXPECT_TRUE(queue_grows_to(redis, before + 1));
    return waiter;
}

template <class Policy>
Held take(Client& client, LockOptions options = {}) {
    return Lock<Policy>{client, "job", options}.acquire({.wait = patience}).value();
}

/// Ends a hold that nobody else has ended.
inline void let_go(Held& held) {
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
}
inline void let_go(Result<Held> held) {
    ASSERT_TRUE(succeeds(held));
    let_go(*held);
}

/// Makes the client hear messages, if it may: it does so from its first wait on.
template <class Policy>
void teach_to_listen(RawRedis& redis, Client& client, Client& holder) {
    Held held = take<Policy>(holder);
    auto waiter = enqueue<Policy>(redis, client);
    EXPECT_TRUE(settles(redis));
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
}

/// Whether a waiter hears of its lock by the message alone, and asks the server no more. It may ask in between from
/// time to time, so that some tries are had.
inline bool is_told(RawRedis& redis, Client& holder, Client& client) {
    for (int round = 0; round < 5; ++round) {
        Held held = take<Simple>(holder);
        auto waiter = enqueue<Simple>(redis, client);
        EXPECT_TRUE(settles(redis));
        const long long before = scripts_run(redis);
        let_go(held);
        if (!finishes(waiter)) return false;
        const bool asked = scripts_run(redis) > before + 1;  // which is the release
        let_go(waiter.get());
        if (!asked) return true;
    }
    return false;
}

/// Numbers in the order in which they were told.
class Order {
public:
    void add(int number) {
        const std::lock_guard lock{mutex_};
        numbers_.push_back(number);
    }
    std::vector<int> numbers() {
        const std::lock_guard lock{mutex_};
        return numbers_;
    }

private:
    std::mutex mutex_;
    std::vector<int> numbers_;
};

}  // namespace redlatch::test
