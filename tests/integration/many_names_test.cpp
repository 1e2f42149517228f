// A thousand names at once in one client: few connections, one renewal thread, nothing left over.

#include "lock_test.hpp"
#include "support/lock_table_view.hpp"
#include "support/resources.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

constexpr std::size_t max_connections = 6;
// Renewal has one of its own, and so have the messages for waiters.
constexpr std::ptrdiff_t most_connections = max_connections + 2;
constexpr int threads = 10;
constexpr int names_of_a_thread = 100;
constexpr std::size_t names = threads * names_of_a_thread;

template <class Policy>
class ManyNames : public LockTest {
protected:
    std::ptrdiff_t connections() {
        const auto all = redis_.client_list();
        return std::count_if(all.begin(), all.end(),
                             [](const auto& c) { return c.at("name") == "many"; });
    }

    ClientOptions options_{.uris = {server_.uri()},
                           .connect_timeout = 10s,
                           .command_timeout = 10s,
                           .client_name = "many",
                           .max_connections = max_connections};
};
TYPED_TEST_SUITE(ManyNames, AllPolicies);

TYPED_TEST(ManyNames, are_held_at_once_by_few_connections) {
    const auto descriptors = open_descriptors();
    {
        Client client{this->options_};
        std::vector<std::unique_ptr<Lock<TypeParam>>> locks;
        std::vector<Held> holds(names);
        for (std::size_t i = 0; i < names; ++i) {
            locks.push_back(std::make_unique<Lock<TypeParam>>(client, "name:" + std::to_string(i)));
        }
        EXPECT_EQ(known_locks(client), 0U) << "handles alone cost nothing";
        const auto for_each_name = [](auto action) {
            std::vector<std::jthread> running;
            for (std::size_t t = 0; t < threads; ++t) {
                running.emplace_back([=] {
                    for (std::size_t i = t; i < names; i += threads) action(i);
                });
            }
        };
        for_each_name([&](std::size_t i) { holds[i] = locks[i]->acquire().value(); });
        EXPECT_EQ(this->redis_.keys().size(), names);
        EXPECT_TRUE(
            std::all_of(holds.begin(), holds.end(), [](const Held& held) { return held.held(); }));
        EXPECT_LE(this->connections(), most_connections);
        for_each_name(
            [&](std::size_t i) { EXPECT_EQ(holds[i].release().value(), Release::released) << i; });
        EXPECT_TRUE(this->redis_.keys().empty());
        EXPECT_EQ(known_locks(client), 0U);
    }
    EXPECT_TRUE(eventually([&] { return this->connections() == 0; }));
    EXPECT_EQ(open_descriptors(), descriptors);
}

TYPED_TEST(ManyNames, are_freed_by_the_end_of_the_client) {
    {
        Client client{this->options_};
        std::vector<std::unique_ptr<Lock<TypeParam>>> locks;
        for (std::size_t i = 0; i < names; ++i) {
            locks.push_back(std::make_unique<Lock<TypeParam>>(client, "name:" + std::to_string(i)));
            locks.back()->lock();
        }
        EXPECT_EQ(this->redis_.keys().size(), names);
    }
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(ManyNames, do_not_block_each_other) {
    constexpr int waiting = 30;
    Client client{this->options_};
    Lock<TypeParam> elsewhere{this->other_client_, "held"};
    elsewhere.lock();
    std::vector<std::unique_ptr<Lock<TypeParam>>> locks;
    std::atomic<int> had{0};
    {
        std::vector<std::jthread> waiters;
        for (int i = 0; i < waiting; ++i) {  // far more than connections
            locks.push_back(std::make_unique<Lock<TypeParam>>(client, "held"));
            waiters.emplace_back([&had, &lock = *locks.back()] {
                const std::lock_guard guard{lock};
                ++had;
            });
        }
        for (int i = 0; i < 50; ++i) {
            Lock<TypeParam> free{client, "free:" + std::to_string(i)};
            EXPECT_TRUE(free.try_lock_for(generous_limit));
        }
        EXPECT_EQ(had, 0);
        elsewhere.unlock();
    }
    EXPECT_EQ(had, waiting);
    EXPECT_TRUE(this->redis_.keys().empty());
    EXPECT_LE(this->connections(), most_connections);
}

TYPED_TEST(ManyNames, waited_for_at_once_are_all_had) {
    constexpr int waiting = 40;
    Client client{this->options_};
    std::vector<std::unique_ptr<Lock<TypeParam>>> held;
    std::vector<std::unique_ptr<Lock<TypeParam>>> locks;
    std::atomic<int> had{0};
    {
        std::vector<std::jthread> waiters;
        for (int i = 0; i < waiting; ++i) {
            const std::string name = "name:" + std::to_string(i);
            held.push_back(std::make_unique<Lock<TypeParam>>(this->other_client_, name));
            held.back()->lock();
            locks.push_back(std::make_unique<Lock<TypeParam>>(client, name));
            waiters.emplace_back([&had, &lock = *locks.back()] {
                if (!lock.try_lock_for(60s)) return;
                ++had;
                lock.unlock();
            });
        }
        for (const auto& lock : held) lock->unlock();
    }
    EXPECT_EQ(had, waiting);
    EXPECT_TRUE(this->redis_.keys().empty());
    EXPECT_LE(this->connections(), most_connections);
}

}  // namespace
}  // namespace redlatch::test
