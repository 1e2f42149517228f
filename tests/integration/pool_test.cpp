// Which of a client's threads dial, and which wait for a connection, where the server is away or its places are few.

#include "fault_tools.hpp"
#include "support/redis_server.hpp"
#include "support/waiting_thread.hpp"
#include <redlatch/net/node.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using detail::Fault;
using detail::Limit;

/// Dials a server, and does as if that were away, or far.
class FeignedDialer final : public detail::Dialer {
public:
    static constexpr int forever = std::numeric_limits<int>::max();

    explicit FeignedDialer(const RedisServer& server) : dialer_(endpoint_of(server), options()) {}

    /// Tries that begin from now on fail, those behind the first `at_once` of all when they `end`.
    void be_away(int at_once = forever) {
        at_once_ = at_once;
        is_away_ = true;
    }
    void end(int number = forever) { at_once_ = number; }
    void be_back() { is_away_ = false; }
    /// How long a connection takes.
    void be_far(std::chrono::milliseconds time) { time_ = time; }

    /// How many tries there were.
    int dialled() const { return dialled_; }
    /// Which one of them was the last one of the thread that made this.
    int dialled_here() const { return dialled_here_; }

    std::string name() const override { return dialer_.name(); }
    Expected<detail::Connection, Fault> open(const Limit& limit) override {
        const int number = ++dialled_;
        if (std::this_thread::get_id() == maker_) dialled_here_ = number;
        if (is_away_) {
            EXPECT_TRUE(eventually([&] { return number <= at_once_; }));
            return Unexpected{detail::io_fault("it is away")};
        }
        const std::chrono::milliseconds time = time_;
        std::this_thread::sleep_for(std::min<Clock::duration>(time, limit.left()));
        if (limit.left() <= 0s) return Unexpected{detail::unanswered_fault()};
        return dialer_.open(Limit::in(generous_limit));
    }

private:
    static detail::Endpoint endpoint_of(const RedisServer& server) {
        detail::Endpoint endpoint;
        endpoint.transport = detail::Endpoint::Transport::unix_socket;
        endpoint.path = server.socket_path();
        return endpoint;
    }
    detail::DialOptions options() {
        return {"somebody", generous_limit, nullptr, {}, &resolver_, {}};
    }

    detail::Resolver resolver_;
    detail::DirectDialer dialer_;
    std::atomic<bool> is_away_{false};
    std::atomic<int> at_once_{0};
    std::atomic<std::chrono::milliseconds> time_{0ms};
    const std::thread::id maker_ = std::this_thread::get_id();
    std::atomic<int> dialled_{0};
    std::atomic<int> dialled_here_{0};
};

class PoolTurns : public ::testing::Test {
protected:
    /// `places`: of the pool that it makes.
    detail::Pool& pool(std::size_t places) {
        auto dialer = std::make_unique<FeignedDialer>(server_);
        dialer_ = dialer.get();
        return pool_.emplace(std::move(dialer), places, 0us);
    }

    /// A thread that waits for a connection, and gives it back.
    std::unique_ptr<WaitingThread> borrower(std::optional<Fault>& fault) {
        return std::make_unique<WaitingThread>([this, &fault] {
            const auto loan = pool_->borrow(Limit::in(generous_limit));
            if (!loan) fault = loan.error();
        });
    }

    RedisServer server_;
    std::optional<detail::Pool> pool_;
    FeignedDialer* dialer_ = nullptr;
};

// A wait of a millisecond has 50 ms for an answer. Such threads would take the turn again and again.
TEST_F(PoolTurns, are_of_a_thread_with_time_enough_though_many_with_too_little_come_and_go) {
    int dialled = 0;
    for (int round = 0; round < 5; ++round) {
        detail::Pool& pool = this->pool(1000);
        dialer_->be_away();
        ASSERT_FALSE(pool.borrow(Limit::in(generous_limit)));
        std::atomic<bool> over{false};
        std::vector<std::jthread> hurried;
        for (int i = 0; i < 100; ++i) {
            hurried.emplace_back([&] {
                while (!over) static_cast<void>(pool.borrow(Limit::in(30ms)));
            });
        }
        dialer_->be_far(60ms);
        dialer_->be_back();
        const int before = dialer_->dialled();
        EXPECT_TRUE(eventually([&] { return pool.borrow(Limit::in(10s)).has_value(); }));
        dialled += dialer_->dialled_here() - before;
        over = true;
    }
    EXPECT_LE(dialled, 50) << "two or three in each round, and more where this thread stood still";
}

TEST_F(PoolTurns, that_others_had_in_vain_end_no_wait_for_a_connection_that_is_in_use) {
    detail::Pool& pool = this->pool(2);
    auto in_use = std::make_optional(pool.borrow(Limit::in(generous_limit)));
    ASSERT_TRUE(in_use->has_value());
    dialer_->be_away();
    ASSERT_FALSE(pool.borrow(Limit::in(generous_limit)));
    dialer_->be_away(2);
    std::vector<std::optional<Fault>> faults(4);
    std::vector<std::unique_ptr<WaitingThread>> threads;
    for (std::optional<Fault>& fault : faults) {
        threads.push_back(borrower(fault));
        if (threads.size() == 1) {
            ASSERT_TRUE(eventually([&] { return dialer_->dialled() == 3; }));
        } else {
            threads.back()->wait_until_asleep();
        }
    }
    dialer_->end(4);  // that one, and the next one at once
    ASSERT_TRUE(eventually([&] { return threads[1]->done(); }));
    threads[3]->wait_until_asleep();
    in_use.reset();
    threads[3]->join();
    dialer_->end();
    for (int i = 0; i < 3; ++i) threads[static_cast<std::size_t>(i)]->join();
    EXPECT_TRUE(faults[0]);
    EXPECT_TRUE(faults[1]);
    EXPECT_FALSE(faults[3]) << faults[3]->error.describe();
}

TEST_F(PoolTurns, that_last_leave_the_next_thread_its_own_in_time) {
    const auto is_in_time = [this] {
        detail::Pool& pool = this->pool(3);
        const auto in_use = pool.borrow(Limit::in(generous_limit));
        EXPECT_TRUE(in_use);
        dialer_->be_away(2);
        EXPECT_FALSE(pool.borrow(Limit::in(generous_limit)));
        std::array<std::optional<Fault>, 4> faults;
        const auto one = borrower(faults[0]);
        const auto other = borrower(faults[1]);
        EXPECT_TRUE(eventually([&] { return dialer_->dialled() == 4; }));
        const auto first = borrower(faults[2]);
        const auto second = borrower(faults[3]);
        first->wait_until_asleep();
        second->wait_until_asleep();
        const Stopwatch watch;
        dialer_->end(4);  // there are two places: one of the two dials
        EXPECT_TRUE(eventually([&] { return dialer_->dialled() == 6; }));
        const auto elapsed = watch.elapsed();
        dialer_->end();
        for (const auto* const thread : {&one, &other, &first, &second}) (*thread)->join();
        return elapsed < 700ms;  // not before it looks by itself, once a second
    };
    EXPECT_TRUE(is_in_time() || is_in_time() || is_in_time()) << "a machine may stand still";
}

TEST_F(PoolTurns, that_last_are_no_connections_in_use) {
    detail::Pool& pool = this->pool(1);
    dialer_->be_away(0);
    std::optional<Fault> fault;
    const auto dials = borrower(fault);
    ASSERT_TRUE(eventually([&] { return dialer_->dialled() == 1; }));
    const auto waited = pool.borrow(Limit::in(10ms));
    ASSERT_FALSE(waited);
    EXPECT_FALSE(speaks_of(waited.error().error, "in use")) << waited.error().error.describe();
    EXPECT_TRUE(waited.error().in_client) << "it says nothing of the server";
    dialer_->end();
    dials->join();
    EXPECT_TRUE(fault);
}

}  // namespace
}  // namespace redlatch::test
