#pragma once

// What the integration tests of locks have in common.

#include "support/in_background.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/wait.hpp"
#include <redlatch/redlatch.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <ostream>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch {

// For messages of failed expectations.

inline void PrintTo(Errc code, std::ostream* out) {
    *out << (code == Errc{} ? "no error" : make_error_code(code).message());
}

inline void PrintTo(Release outcome, std::ostream* out) {
    constexpr std::array names{"released", "still_held", "expired", "not_held"};
    *out << names.at(static_cast<std::size_t>(outcome));
}

inline void PrintTo(HoldState state, std::ostream* out) {
    constexpr std::array names{"none", "held", "uncertain", "lost"};
    *out << names.at(static_cast<std::size_t>(state));
}

}  // namespace redlatch

namespace redlatch::test {

using namespace std::chrono_literals;

/// For clients whose commands are answered unless the test sees to the contrary: a busy machine may keep an
/// answer back for longer than the default allows.
inline ClientOptions patient(const std::string& uri) {
    return {.uris = {uri}, .connect_timeout = 10s, .command_timeout = 10s};
}

/// The same with an observer.
inline ClientOptions patient(const std::string& uri, std::shared_ptr<Observer> observer) {
    ClientOptions options = patient(uri);
    options.observer = std::move(observer);
    return options;
}

/// Counts the calls that have begun to wait, also those behind a thread of their own process.
class Waits : public Observer {
public:
    void wait_began(const WaitBegan&) override { ++number; }

    /// Whether there were so many by now; waits for it.
    [[nodiscard]] bool become(int count) {
        return eventually([&] { return number >= count; });
    }

    std::atomic<int> number{0};
};

/// A server of the case's own, a look behind the scenes, and two clients that know nothing of each
/// other.
class LockTest : public ::testing::Test {
protected:
    /// Waits until so many are in a queue, and the server can tell each of them: who has just come to wait for the
    /// first time is passed over until it listens.
    [[nodiscard]] bool are_queued(const std::string& queue, std::size_t number) {
        return eventually([&] {
            const auto waiters = redis_.command({"ZRANGE", queue, "0", "-1"}).elements;
            std::set<std::string> channels;
            for (const RawReply& waiter : waiters) {
                channels.insert("redlatch:client:" + waiter.text.substr(0, 32));
            }
            return waiters.size() == number &&
                   std::ranges::all_of(channels, [this](const std::string& channel) {
                       return redis_.command({"PUBSUB", "NUMSUB", channel}).elements.at(1).integer >
                              0;
                   });
        });
    }

    RedisServer server_;
    RawRedis redis_{server_};
    Client client_{patient(server_.uri())};
    Client other_client_{patient(server_.uri())};
};

/// The same, and a client whose calls that wait are counted.
class CountedWaits : public LockTest {
protected:
    std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
    Client counted_{patient(server_.uri(), waits_)};
};

// `AllPolicies` is each policy, for what all of them have to do alike. `EveryPolicy` has those with scripts
// or fields of their own, too. Sanitizers look at the C++: as few as have all its parts are enough for them.
#ifdef REDLATCH_TEST_SANITIZED
using AllPolicies = ::testing::Types<Simple, Watchdog<Reentrant>>;
using EveryPolicy =
    ::testing::Types<Simple, Watchdog<Reentrant>, Fenced<Reentrant>, RedissonReentrant>;
#else
using AllPolicies = ::testing::Types<Simple, Reentrant, Watchdog<Simple>, Watchdog<Reentrant>>;
using EveryPolicy =
    ::testing::Types<Simple, Reentrant, Watchdog<Simple>, Watchdog<Reentrant>, Fenced<Simple>,
                     Fenced<Reentrant>, RedissonReentrant, Watchdog<RedissonReentrant>>;
#endif

/// What went wrong; `Errc{}` where nothing did.
template <class T>
Errc code_of(const Result<T>& result) {
    return result ? Errc{} : result.error().code;
}

/// Runs `action` on a thread of its own and returns what it returns.
template <class Action>
auto on_another_thread(Action action) {
    return in_background(std::move(action)).get();
}

/// Whether `condition` holds all the time for so long.
template <class Condition>
[[nodiscard]] bool stays(Condition condition, std::chrono::nanoseconds time) {
    return !eventually([&] { return !condition(); }, time);
}

/// Counts the locks that its client acquires.
class Acquisitions : public Observer {
public:
    void acquired(const Acquired&) noexcept override { ++number; }

    std::atomic<int> number{0};
};

/// Whether the token is told to stop; waits for it.
[[nodiscard]] inline bool fires(const std::stop_token& token) {
    return eventually([&] { return token.stop_requested(); });
}

/// Whether somebody who knows nothing of this library can take the lock by the well-known form.
inline bool foreign_set(RawRedis& redis, std::string_view key, std::string_view token = "foreign",
                        std::chrono::milliseconds lease = 60s) {
    const std::string ttl = std::to_string(lease.count());
    return !redis.command({"SET", key, token, "NX", "PX", ttl}).is_nil();
}

}  // namespace redlatch::test
