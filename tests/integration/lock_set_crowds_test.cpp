// Sets of locks among others: crowds of processes that name their locks in other orders, single locks, clients that
// know nothing of this library, and many names.

#include "busy_machine.hpp"
#include "granted_tools.hpp"
#include "support/overlap_detector.hpp"
#include "support/process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

// No client here before the children are made: a fork should find one thread.
class CrowdOfSets : public ::testing::Test {
protected:
    static constexpr int rounds = 12;

    /// Two threads that take those locks again and again, together or, where there is one, by itself. Ends with 0
    /// where they have always had them alone.
    ChildProcess make_child(std::vector<std::string> names) {
        return ChildProcess{[this, names = std::move(names)](LineChannel& parent) {
            if (!parent.read_line(patience)) return 1;
            Client client{patient(server_.uri())};
            std::vector<std::jthread> threads;
            for (int i = 0; i < 2; ++i) threads.emplace_back([&] { pass_through(client, names); });
            return 0;
        }};
    }

    void pass_through(Client& client, const std::vector<std::string>& names) {
        std::deque<OverlapDetector> detectors;
        for (const std::string& name : names) {
            detectors.emplace_back(server_.socket_path(), name, std::chrono::microseconds{100});
        }
        const auto look = [&] {
            for (OverlapDetector& detector : detectors) detector.enter();
            for (OverlapDetector& detector : detectors) detector.leave();
        };
        LockSet<Simple> set{client, names};
        Lock<Simple> single{client, names.front()};
        for (int round = 0; round < rounds; ++round) {
            if (names.size() == 1) {
                const Held held = single.acquire({.wait = patience}).value();
                look();
            } else {
                const HeldSet held = set.acquire({.wait = patience}).value();
                look();
            }
        }
    }

    void run(const std::vector<std::vector<std::string>>& all) {
        std::vector<ChildProcess> children;
        for (const auto& names : all) children.push_back(make_child(names));
        for (ChildProcess& child : children) EXPECT_TRUE(child.write_line("go"));
        for (ChildProcess& child : children) EXPECT_EQ(child.wait(100s), ExitStatus{});
        std::map<std::string, int> expected;
        for (const auto& names : all) {
            for (const std::string& name : names) expected[name] += 2 * rounds;
        }
        for (const auto& [name, sections] : expected) {
            SCOPED_TRACE(name);
            OverlapDetector detector{server_.socket_path(), name};
            EXPECT_EQ(detector.overlaps(), 0);
            EXPECT_EQ(detector.sections(), sections);
            EXPECT_EQ(detector.counter(), sections);
            EXPECT_FALSE(redis_.exists(name));
        }
    }

    RedisServer server_;
    RawRedis redis_{server_};
};

TEST_F(CrowdOfSets, in_three_processes_and_orders_waits_in_no_circle) {
    run({{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}});
}

TEST_F(CrowdOfSets, goes_with_sets_of_other_sizes_and_with_single_locks) {
    run({{"a", "b", "c"}, {"c", "b"}, {"b"}, {"a", "d"}, {"c"}});
}

using SetAmongOthers = LockTest;

TEST_F(SetAmongOthers, lets_no_foreign_client_in_while_it_waits) {
    LockSet<Simple> set{client_, {"a", "b"}};
    auto other = Lock<Simple>{other_client_, "b"}.acquire();
    auto held = in_background([&] { return set.acquire({.wait = patience}); });
    ASSERT_TRUE(are_queued("redlatch:queue:{b}", 1));
    EXPECT_FALSE(foreign_set(redis_, "a"));
    EXPECT_FALSE(foreign_set(redis_, "b"));
    let_go(other.value());
    EXPECT_FALSE(foreign_set(redis_, "b")) << "it was given to the set";
    ASSERT_TRUE(finishes(held));
    HeldSet both = held.get().value();
    EXPECT_FALSE(foreign_set(redis_, "a"));
    EXPECT_TRUE(is_outcome(both.release(), Release::released));
    EXPECT_TRUE(foreign_set(redis_, "a") && foreign_set(redis_, "b"));
}

TEST_F(SetAmongOthers, waits_for_a_foreign_client_and_keeps_what_it_has_meanwhile) {
    LockSet<Watchdog<Simple>> set{client_, {"a", "b"}};
    ASSERT_TRUE(foreign_set(redis_, "b"));
    auto held = in_background([&] { return set.acquire({.wait = patience}); });
    ASSERT_TRUE(eventually([&] { return waiters(redis_, "b") == 1; }));
    EXPECT_FALSE(foreign_set(redis_, "a"));
    EXPECT_FALSE(finishes(held, 50ms));
    redis_.del("b");
    ASSERT_TRUE(finishes(held));
    HeldSet both = held.get().value();
    EXPECT_FALSE(foreign_set(redis_, "b"));
    EXPECT_TRUE(is_outcome(both.release(), Release::released));
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(SetAmongOthers, takes_and_gives_back_thirty_two_names_whatever_their_order) {
    std::vector<std::string> names;
    for (int i = 0; i < 32; ++i) names.push_back("name:" + std::to_string(i));
    const std::vector<std::string> backwards{names.rbegin(), names.rend()};
    LockSet<Watchdog<Fenced<Simple>>> set{client_, names};
    LockSet<Watchdog<Fenced<Simple>>> others{other_client_, backwards};
    auto held = set.acquire({.wait = patience});
    ASSERT_TRUE(succeeds(held));
    auto next = in_background([&] { return others.acquire({.wait = patience}); });
    ASSERT_TRUE(eventually([&] { return waiters(redis_, "name:0") == 1; }));
    for (const std::string& name : names) {
        EXPECT_TRUE(redis_.exists(name));
        EXPECT_EQ(std::to_string(held->fence(name)), redis_.get("redlatch:fence:{" + name + "}"));
    }
    EXPECT_TRUE(succeeds(held->extend(60s)));
    const std::uint64_t last = held->fence(names.back());
    EXPECT_TRUE(is_outcome(held->release(), Release::released));
    ASSERT_TRUE(finishes(next));
    auto theirs = next.get();
    ASSERT_TRUE(succeeds(theirs));
    EXPECT_GT(theirs->fence(names.back()), last);
    EXPECT_TRUE(is_outcome(theirs->release(), Release::released));
    for (const std::string& name : names) EXPECT_FALSE(redis_.exists(name));
}

TEST_F(SetAmongOthers, of_which_the_last_is_taken_leaves_none_of_thirty_two) {
    std::vector<std::string> names;
    for (int i = 10; i < 42; ++i) names.push_back("name:" + std::to_string(i));
    const auto other = Lock<Simple>{other_client_, names.back()}.acquire();
    LockSet<Simple> set{client_, names};
    EXPECT_FALSE(set.try_lock());
    EXPECT_TRUE(times_out([&] { return set.acquire({.wait = 50ms}); }));
    EXPECT_TRUE(eventually([&] { return redis_.keys() == std::vector{names.back()}; }));
}

TEST_F(SetAmongOthers, is_lost_where_one_is_deleted_and_gives_the_others_to_who_waits) {
    LockSet<Watchdog<Simple>> set{client_, {"a", "b"}, {.lease = 6s}};
    auto held = set.acquire();
    auto next = in_background([&] {
        return LockSet<Simple>{other_client_, {"b", "c"}}.acquire({.wait = patience});
    });
    ASSERT_TRUE(are_queued("redlatch:queue:{b}", 1));
    redis_.del("a");
    EXPECT_TRUE(fires(held->lost()));
    EXPECT_TRUE(is_outcome(held->release(), Release::expired));
    ASSERT_TRUE(finishes(next));
    EXPECT_TRUE(succeeds(next.get()));
}

}  // namespace
}  // namespace redlatch::test
