// A lock that passes from thread to thread inside one process: without a command, or by one that gives
// it to the next thread's token.

#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/proxy.hpp"
#include <redlatch/policy/lua.hpp>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

/// How long the server will keep the lock.
template <class Policy>
std::chrono::milliseconds held_ttl(Lock<Policy>& lock) {
    return lock.inspect().value().ttl.value_or(0ms);
}

template <class Policy>
class HandOff : public CountedWaits {
protected:
    /// Commands that lock or unlock, as the server counts them.
    long long lock_commands() {
        return redis_.command_calls("evalsha") + redis_.command_calls("eval");
    }
};
TYPED_TEST_SUITE(HandOff, AllPolicies);

TYPED_TEST(HandOff, of_short_sections_costs_next_to_no_commands) {
    constexpr int threads = 4;
    constexpr int rounds = 500;
    std::atomic<int> inside{0};
    std::atomic<int> overlaps{0};
    std::vector<std::jthread> workers;
    for (int i = 0; i < threads; ++i) {
        workers.emplace_back([&] {
            Lock<TypeParam> lock{this->client_, "job"};
            for (int round = 0; round < rounds; ++round) {
                lock.lock();
                if (++inside != 1) ++overlaps;
                --inside;
                lock.unlock();
            }
        });
    }
    workers.clear();
    EXPECT_EQ(overlaps, 0);
    EXPECT_LT(this->lock_commands(), threads * rounds) << "half of what it costs without";
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(HandOff, tells_the_truth_to_each_holder) {
    Lock<TypeParam> lock{this->counted_, "job", {.lease = 30s}};
    Held first = lock.acquire().value();
    const std::string token{first.token()};
    auto next = in_background([&] { return lock.acquire(); });
    ASSERT_TRUE(this->waits_->become(1));
    const std::stop_token lost = first.lost();

    EXPECT_EQ(first.release().value(), Release::released);
    EXPECT_FALSE(first.held());
    EXPECT_EQ(first.remaining(), 0ms);
    EXPECT_EQ(first.state(), HoldState::none);
    EXPECT_FALSE(lost.stop_requested()) << "a normal end is no loss";
    EXPECT_EQ(code_of(first.extend(10s)), Errc::not_held);
    EXPECT_EQ(first.release().value(), Release::not_held);

    Result<Held> second = next.get();
    ASSERT_TRUE(succeeds(second));
    EXPECT_TRUE(second->held());
    EXPECT_EQ(second->state(), HoldState::held);
    EXPECT_LE(second->remaining(), 30s);
    EXPECT_GT(second->remaining(), 15s);
    EXPECT_EQ(lock.inspect().value().owner, second->token());
    EXPECT_FALSE(lost.stop_requested());
    EXPECT_EQ(second->release().value(), Release::released);
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(HandOff, over_many_leases_keeps_each_holder_valid) {
    constexpr std::chrono::milliseconds lease = 5s;  // half of it is over on no busy machine
    constexpr int threads = 3;
    constexpr int rounds = 10;
    std::atomic<int> bad{0};
    std::atomic<int> sections{0};
    std::vector<std::jthread> workers;
    for (int i = 0; i < threads; ++i) {
        workers.emplace_back([&] {
            Lock<TypeParam> lock{this->client_, "job", {.lease = lease}};
            for (int round = 0; round < rounds; ++round) {
                Held held = lock.acquire().value();
                // The server may keep the key longer, never shorter.
                const auto before = Clock::now();
                const auto remaining = held.remaining();
                const auto ttl = held_ttl(lock);
                if (before + remaining > Clock::now() + ttl + 1ms) ++bad;
                if (remaining < lease / 2) ++bad;
                std::this_thread::sleep_for(lease / 20);
                if (!held.held()) ++bad;
                if (held.release().value() != Release::released) ++bad;
                ++sections;
            }
        });
    }
    workers.clear();
    EXPECT_EQ(sections, threads * rounds);
    EXPECT_EQ(bad, 0);
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(HandOff, with_another_lease_goes_through_the_server) {
    Lock<TypeParam> lock{this->counted_, "job", {.lease = 10s}};
    Held first = lock.acquire().value();
    // It gives the lock back so soon that the next one could have it in memory, were the lease the same.
    auto brief = in_background([&] { return lock.acquire().value().release(); });
    ASSERT_TRUE(this->waits_->become(1));
    auto next = in_background([&] { return lock.acquire({.lease = 60s}); });
    ASSERT_TRUE(this->waits_->become(2));
    EXPECT_TRUE(is_outcome(first.release(), Release::released));
    EXPECT_TRUE(is_outcome(brief.get(), Release::released));
    Held second = next.get().value();
    EXPECT_GT(second.remaining(), 50s);
    EXPECT_GT(this->redis_.pttl("job"), 50'000);
}

TYPED_TEST(HandOff, gives_way_to_others_who_wait) {
    constexpr unsigned limit = 2;
    std::atomic<bool> stop{false};
    std::atomic<int> sections{0};
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
        workers.emplace_back([&] {
            Lock<TypeParam> lock{this->client_, "job", {.local_handoffs = limit}};
            while (!stop) {
                lock.lock();
                ++sections;
                std::this_thread::sleep_for(2ms);
                lock.unlock();
            }
        });
    }
    ASSERT_TRUE(eventually([&] { return sections > 20; }));
    Lock<TypeParam> other{this->other_client_, "job"};
    other.acquire().value().release().value();  // subscribes
    constexpr int rounds = 10;
    int long_rounds = 0;
    for (int round = 0; round < rounds; ++round) {
        const int before = sections;
        Held held = other.acquire().value();
        // What passes until the process is told, and then at most `limit` more. On a busy machine it takes its time
        // to be asked for the lock, but not each time.
        if (sections - before > 12) ++long_rounds;
        EXPECT_TRUE(stays([&, during = sections.load()] { return sections == during; }, 10ms));
    }
    EXPECT_LE(long_rounds, rounds / 2);
    stop = true;
    workers.clear();
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(HandOff, starves_no_other_process_that_polls) {
    const LockOptions polling{.wait_strategy = WaitStrategy::polling,
                              .local_handoffs = 3,
                              .backoff = {.min = 1ms, .max = 2ms}};
    std::atomic<bool> stop{false};
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
        workers.emplace_back([&] {
            Lock<TypeParam> lock{this->client_, "job", polling};
            while (!stop) {
                lock.lock();
                lock.unlock();
            }
        });
    }
    Lock<TypeParam> other{this->other_client_, "job", polling};
    for (int round = 0; round < 5; ++round) {
        auto held = other.acquire({.wait = 60s});
        EXPECT_TRUE(succeeds(held));
    }
    stop = true;
}

using LocalHandOff = CountedWaits;

TEST_F(LocalHandOff, of_nested_holds_gives_way_to_others_who_wait) {
    std::atomic<bool> stop{false};
    std::atomic<int> sections{0};
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
        workers.emplace_back([&] {
            Lock<Reentrant> lock{client_, "job"};
            while (!stop) {
                lock.lock();
                lock.lock();  // which gives the lock its lease anew each time
                ++sections;
                lock.unlock();
                lock.unlock();
            }
        });
    }
    ASSERT_TRUE(eventually([&] { return sections > 20; }));
    Lock<Reentrant> other{other_client_, "job"};
    for (int round = 0; round < 5; ++round) {
        const auto began = Clock::now();
        EXPECT_TRUE(succeeds(other.acquire({.wait = 60s})));
        EXPECT_LT(Clock::now() - began, 20s);
    }
    stop = true;
}

TEST_F(LocalHandOff, ends_the_renewal_where_the_next_hold_is_not_watched) {
    Lock<Watchdog<Simple>> watched{counted_, "job", {.lease = 300ms}};
    Lock<Simple> plain{counted_, "job", {.lease = 300ms}};
    Held first = watched.acquire().value();
    auto next = in_background([&] { return plain.acquire(); });
    ASSERT_TRUE(waits_->become(1));
    static_cast<void>(first.release());
    Held second = next.get().value();
    EXPECT_TRUE(fires(second.lost()));
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

TEST_F(LocalHandOff, begins_the_renewal_where_the_next_hold_is_watched) {
    Lock<Simple> plain{counted_, "job", {.lease = 6s}};
    Lock<Watchdog<Simple>> watched{counted_, "job", {.lease = 6s}};
    Held first = plain.acquire().value();
    auto next = in_background([&] { return watched.acquire(); });
    ASSERT_TRUE(waits_->become(1));
    static_cast<void>(first.release());
    Held second = next.get().value();
    EXPECT_TRUE(stays([&] { return second.held(); }, 7s));
}

TEST_F(LocalHandOff, of_a_lost_lock_does_not_happen) {
    Lock<Reentrant> lock{counted_, "job", {.lease = 10s}};
    Held first = lock.acquire().value();
    auto next = in_background([&] { return lock.acquire(); });
    ASSERT_TRUE(waits_->become(1));
    redis_.del("job");
    EXPECT_EQ(code_of(first.extend(10s)), Errc::lost);
    Held second = next.get().value();
    EXPECT_EQ(lock.inspect().value().owner, second.token()) << "it was taken anew";
}

TEST_F(LocalHandOff, after_nesting_leaves_a_plain_hold) {
    Lock<Reentrant> lock{counted_, "job", {.lease = 10s}};
    lock.lock();
    lock.lock();
    lock.unlock();
    auto next = in_background([&] { return lock.acquire(); });
    ASSERT_TRUE(waits_->become(1));
    lock.unlock();
    Held second = next.get().value();
    EXPECT_EQ(lock.inspect().value().hold_count, 1U);
    EXPECT_EQ(second.release().value(), Release::released);
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

/// Behind a proxy, to lose the answer to the command that moves a lock on.
class MoveFault : public ::testing::Test {
protected:
    RedisServer server_;
    RawRedis redis_{server_};
    Proxy proxy_{server_.uri()};
    std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
    Client client_{patient(proxy_.uri(), waits_)};
};

TEST_F(MoveFault, that_loses_the_answer_leaves_nobody_with_two_locks_and_nobody_without) {
    redis_.command({"SCRIPT", "LOAD", lua::on_string().move.source()});
    for (int round = 1; round <= 5; ++round) {
        Lock<Simple> lock{client_, "job", {.lease = 10s}};
        Held first = lock.acquire().value();
        auto next = in_background([&] { return lock.acquire({.wait = 20s}); });
        ASSERT_TRUE(waits_->become(round));
        std::this_thread::sleep_for(50ms);  // from now on it takes a command to pass the lock on
        proxy_.drop_replies_once(1, std::string{lua::on_string().move.sha()});
        EXPECT_TRUE(is_outcome(first.release(), Release::released));
        EXPECT_EQ(proxy_.counts().dropped_replies, round);
        auto second = next.get();
        ASSERT_TRUE(succeeds(second));
        EXPECT_EQ(redis_.get("job").value_or(""), second->token());
        EXPECT_TRUE(is_outcome(second->release(), Release::released));
    }
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

}  // namespace
}  // namespace redlatch::test
