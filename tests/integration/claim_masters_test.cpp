// Readers, writers and sets of locks where several masters decide, and not all of them answer or remember.

#include "granted_tools.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

using Config = Lock<Watchdog<Shared>>;

bool may_write(Config& lock) {
    return on_another_thread([&] { return lock.acquire({.wait = Wait::none()}).has_value(); });
}
bool may_read(Config& lock) {
    return on_another_thread(
        [&] { return lock.acquire_shared({.wait = Wait::none()}).has_value(); });
}

bool may_write_soon(Config& lock) {
    return eventually([&lock] { return may_write(lock); });
}
bool may_read_soon(Config& lock) {
    return eventually([&lock] { return may_read(lock); });
}

class ClaimsOverMasters : public ::testing::Test {
protected:
    ClientOptions options(std::chrono::milliseconds longest_lease = 0ms) const {
        ClientOptions options = options_for(servers_[0].uri(), 3s);
        options.uris = {servers_[0].uri(), servers_[1].uri(), servers_[2].uri()};
        options.node_timeout = 500ms;
        options.longest_lease = longest_lease;
        return options;
    }

    /// The same; for those who are answered by a majority unless a test sees to the contrary.
    ClientOptions patient_options() const {
        ClientOptions options = this->options();
        options.connect_timeout = 10s;
        options.command_timeout = 10s;
        options.node_timeout = 3s;
        return options;
    }

    [[nodiscard]] bool nothing_left() {
        return eventually([this] {
            return std::all_of(servers_.begin(), servers_.end(),
                               [](RedisServer& one) { return RawRedis{one}.keys().empty(); });
        });
    }

    std::array<RedisServer, 3> servers_;
};

TEST_F(ClaimsOverMasters, are_decided_by_a_majority) {
    Client client{patient_options()};
    Config lock{client, "job"};
    Client first{patient(servers_[0].uri())};
    Client second{patient(servers_[1].uri())};
    Held one = Config{first, "job"}.acquire_shared().value();
    Held two = Config{second, "job"}.acquire_shared().value();
    EXPECT_FALSE(may_write(lock));
    EXPECT_TRUE(may_read_soon(lock));
    let_go(two);
    EXPECT_TRUE(may_write_soon(lock)) << "at two of three nobody reads";
    let_go(one);
    EXPECT_TRUE(nothing_left());
}

TEST_F(ClaimsOverMasters, are_seen_and_removed_where_the_first_master_does_not_know_all) {
    Client holding{patient_options()};
    Client asking{patient_options()};
    Lock<Shared> held_lock{holding, "config", {.lease = 1h}};
    Lock<Shared> asked_lock{asking, "config"};
    RawRedis first{servers_[0]};
    {
        auto writer = held_lock.acquire();
        ASSERT_TRUE(writer) << writer.error().describe();
        first.del("config");
        EXPECT_TRUE(asked_lock.inspect().value().locked);
        EXPECT_EQ(asked_lock.force_unlock().value(), Forced::removed);
        EXPECT_FALSE(asked_lock.inspect().value().locked);
    }
    auto one = held_lock.acquire_shared({.owner = Owner::hold});
    ASSERT_TRUE(one) << one.error().describe();
    auto two = asked_lock.acquire_shared({.lease = 1h});
    ASSERT_TRUE(two) << two.error().describe();
    EXPECT_TRUE(eventually([&] { return first.command({"ZCARD", "config"}).integer == 3; }));
    first.command({"ZREM", "config", "1 " + two->token()});
    EXPECT_EQ(asked_lock.inspect().value().hold_count, 2U);
    EXPECT_EQ(asked_lock.force_unlock().value(), Forced::removed);
    EXPECT_FALSE(asked_lock.inspect().value().locked);
    EXPECT_FALSE(two->held());
    // What one master alone has, nobody holds.
    first.command({"ZADD", "config", "4000000000000000", "1 somebody", "-1", "shared"});
    EXPECT_FALSE(asked_lock.inspect().value().locked);
    first.del("config");
}

TEST_F(ClaimsOverMasters, exclude_each_other_while_one_of_three_is_frozen) {
    Client client{patient_options()};
    Client other{patient_options()};
    Config lock{client, "job"};
    Config others{other, "job"};
    ASSERT_TRUE(may_write_soon(lock) && may_write_soon(others)) << "all connections are there";
    servers_[1].freeze();
    Held reading = lock.acquire_shared({.wait = patience}).value();
    EXPECT_TRUE(
        on_another_thread([&] { return others.acquire_shared({.wait = patience}).has_value(); }));
    EXPECT_FALSE(may_write(others));
    let_go(reading);
    Held writing = others.acquire({.wait = patience}).value();
    EXPECT_FALSE(may_read(lock));
    ASSERT_TRUE(succeeds(writing.downgrade()));
    EXPECT_TRUE(
        on_another_thread([&] { return lock.acquire_shared({.wait = patience}).has_value(); }));
    EXPECT_FALSE(may_write(lock));
    let_go(writing);
    servers_[1].thaw();
    EXPECT_TRUE(nothing_left()) << "what the frozen one was asked meanwhile is undone";
}

// A writer's number is the greatest that a majority gave. The third master may have given a greater one, which
// readers meet that have that one in their majority.
TEST_F(ClaimsOverMasters, of_readers_have_numbers_between_those_of_two_writers) {
    using FencedConfig = Lock<Fenced<Watchdog<Shared>>>;
    Client client{patient_options()};
    FencedConfig lock{client, "job"};
    const auto read = [&lock] {
        Held held = lock.acquire_shared({.wait = patience}).value();
        const std::uint64_t fence = held.fence();
        let_go(held);
        return fence;
    };
    ASSERT_GE(read(), 0U);
    servers_[2].freeze();
    Held writing = lock.acquire({.wait = patience}).value();
    const std::uint64_t first = writing.fence();
    let_go(writing);
    EXPECT_EQ(read(), first);
    servers_[2].thaw();

    RawRedis third{servers_[2]};
    third.command({"SET", "redlatch:fence:{job}", std::to_string(first + 60'000'000)});
    servers_[1].freeze();
    const std::uint64_t greater = read();
    EXPECT_GE(greater, first + 60'000'000);
    servers_[1].thaw();

    servers_[2].freeze();
    writing = lock.acquire({.wait = patience}).value();
    EXPECT_GT(writing.fence(), greater) << "a majority has stored it before the reader had it";
    let_go(writing);
    servers_[2].thaw();
}

TEST_F(ClaimsOverMasters, never_meet_while_one_after_the_other_is_frozen) {
    Client client{options()};
    Client other{options()};
    std::atomic<int> readers{0};
    std::atomic<int> writers{0};
    std::atomic<int> sections{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i](const std::stop_token& stop) {
            Config lock{i % 2 == 0 ? client : other, "job"};
            while (!stop.stop_requested()) {
                const bool writes = i < 2 && sections % 3 == 0;
                const auto held = writes ? lock.acquire({.wait = patience})
                                         : lock.acquire_shared({.wait = patience});
                if (!held) continue;
                std::atomic<int>& mine = writes ? writers : readers;
                EXPECT_TRUE(++mine == 1 || !writes);
                EXPECT_EQ(writes ? readers : writers, 0);
                --mine;
                ++sections;
            }
        });
    }
    for (RedisServer& server : servers_) {
        server.freeze();
        const int before = sections;
        EXPECT_TRUE(eventually([&] { return sections > before + 6; }));
        server.thaw();
        EXPECT_TRUE(eventually([&] { return sections > before + 12; }));
    }
    for (std::jthread& thread : threads) thread.request_stop();
    threads.clear();
    EXPECT_TRUE(nothing_left());
}

TEST_F(ClaimsOverMasters, let_no_writer_in_beside_a_reader_whom_restarted_ones_have_forgotten) {
    constexpr auto longest = 4s;
    Client client{options(longest)};
    Client other{options(longest)};
    Lock<Shared> lock{client, "job", {.lease = longest}};
    Lock<Shared> others{other, "job", {.lease = longest}};
    auto reading = lock.acquire_shared({.wait = patience});
    ASSERT_TRUE(succeeds(reading)) << "when the servers are old enough";
    ASSERT_TRUE(succeeds(reading->extend(longest)));
    servers_[0].restart();
    servers_[1].restart();
    ASSERT_FALSE(RawRedis{servers_[0]}.exists("job"));
    bool overlap = false;
    EXPECT_TRUE(eventually([&] {
        const auto writing = others.acquire({.wait = 0s, .owner = Owner::hold});
        overlap = overlap || (writing && reading->held());
        return writing.has_value();
    }));
    EXPECT_FALSE(overlap);
}

TEST_F(ClaimsOverMasters, of_a_set_are_all_or_none_while_one_of_three_is_frozen) {
    Client client{patient_options()};
    Client other{patient_options()};
    LockSet<Watchdog<Simple>> set{client, {"a", "b"}};
    LockSet<Watchdog<Simple>> others{other, {"b", "c"}};
    for (LockSet<Watchdog<Simple>>* each : {&set, &others}) {
        ASSERT_TRUE(each->try_lock_for(patience)) << "all connections are there";
        each->unlock();
    }
    servers_[2].freeze();
    HeldSet held = set.acquire({.wait = patience}).value();
    Errc code{};
    EXPECT_TRUE(eventually([&] {  // the last answers may be late
        code = code_of(others.acquire({.wait = 100ms}));
        return code != Errc::unavailable && code != Errc::no_quorum;
    }));
    EXPECT_EQ(code, Errc::timed_out);
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    EXPECT_TRUE(others.try_lock_for(patience));
    others.unlock();
    servers_[2].thaw();
    EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace redlatch::test
