// `LockSet` of shared locks: all written, or all read.

#include "busy_machine.hpp"
#include "lock_test.hpp"
#include <redlatch/lock_set.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

template <class Policy>
class SetOfShared : public LockTest {
protected:
    bool is_free(const char* name) {
        return eventually([&] { return !Lock<Policy>(client_, name).inspect().value().locked; });
    }
    bool is_written(const char* name) {
        const auto info = Lock<Policy>(client_, name).inspect().value();
        return info.locked && info.holders.at(0).writes;
    }
    std::size_t readers(const char* name) {
        const auto info = Lock<Policy>(client_, name).inspect().value();
        return info.locked && !is_written(name) ? info.holders.size() : 0;
    }
    bool waits(Lock<Policy>& lock) {
        return eventually([&] { return lock.inspect().value().waiters == 1; });
    }

    LockSet<Policy> set_{client_, {"b", "a"}};
    LockSet<Policy> other_set_{other_client_, {"a", "b"}};
    Lock<Policy> a_{other_client_, "a"};
    Lock<Policy> b_{other_client_, "b"};
};
using SharedPolicies = ::testing::Types<Shared, Watchdog<Shared>, Watchdog<Fenced<Shared>>>;
TYPED_TEST_SUITE(SetOfShared, SharedPolicies);

TYPED_TEST(SetOfShared, is_written_by_one_alone) {
    auto held = this->set_.acquire();
    ASSERT_TRUE(held.has_value()) << held.error().describe();
    for (auto* const lock : {&this->a_, &this->b_}) {
        EXPECT_FALSE(lock->try_lock());
        EXPECT_FALSE(lock->try_lock_shared());
    }
    EXPECT_FALSE(this->other_set_.try_lock_shared());
    EXPECT_TRUE(held->held());
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_TRUE(this->is_free("a") && this->is_free("b"));
}

TYPED_TEST(SetOfShared, is_read_by_several) {
    auto held = this->set_.acquire_shared();
    ASSERT_TRUE(held.has_value()) << held.error().describe();
    auto beside = this->other_set_.acquire_shared();
    ASSERT_TRUE(beside.has_value()) << beside.error().describe();
    for (const char* const name : {"a", "b"}) EXPECT_EQ(this->readers(name), 2U);
    for (auto* const lock : {&this->a_, &this->b_}) {
        EXPECT_EQ(code_of(lock->acquire({.wait = Wait::none(), .owner = Owner::hold})),
                  Errc::timed_out);
    }
    EXPECT_TRUE(held->held());
    EXPECT_EQ(held->state(), HoldState::held);
    EXPECT_GT(held->remaining(), 20s);
    EXPECT_TRUE(held->extend(90s).has_value());
    EXPECT_GT(held->remaining(), 60s);
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_FALSE(held->held());
    EXPECT_TRUE(beside->held());
    EXPECT_EQ(beside->release().value(), Release::released);
    EXPECT_TRUE(this->is_free("a") && this->is_free("b"));
}

TYPED_TEST(SetOfShared, is_read_as_a_whole_or_not_at_all) {
    auto writer = this->b_.acquire();
    EXPECT_FALSE(this->set_.try_lock_shared());
    EXPECT_TRUE(times_out([&] { return this->set_.try_lock_shared_for(20ms); }));
    EXPECT_TRUE(times_out([&] { return this->set_.try_lock_shared(20ms, 10s); }));
    EXPECT_TRUE(times_out(
        [&] { return this->set_.try_lock_shared_until(std::chrono::steady_clock::now() + 20ms); }));
    EXPECT_TRUE(times_out([&] { return this->set_.acquire_shared({.wait = 20ms}); }));
    EXPECT_TRUE(this->is_free("a"));
    EXPECT_TRUE(this->is_written("b"));
    static_cast<void>(writer->release());
    EXPECT_TRUE(eventually([&] { return this->set_.try_lock_shared(); }));
    this->set_.unlock_shared();
    EXPECT_TRUE(this->is_free("a") && this->is_free("b"));
}

TYPED_TEST(SetOfShared, works_with_the_standard_guards) {
    { const std::lock_guard writing{this->set_}; }
    {
        const std::shared_lock reading{this->set_, 30s};
        ASSERT_TRUE(reading.owns_lock());
        EXPECT_EQ(this->readers("a"), 1U);
        EXPECT_EQ(this->readers("b"), 1U);
    }
    EXPECT_TRUE(this->is_free("a") && this->is_free("b"));
}

TYPED_TEST(SetOfShared, ends_at_its_end_what_any_thread_reads) {
    std::optional<LockSet<TypeParam>> forgetful{std::in_place, this->client_,
                                                std::vector<std::string>{"a", "b"}};
    forgetful->lock_shared();
    in_background([&] {
        forgetful->lock_shared();
        forgetful->lock_shared();
    }).get();
    ASSERT_GE(this->readers("a"), 1U);
    forgetful.reset();
    EXPECT_TRUE(this->is_free("a") && this->is_free("b"));
}

TYPED_TEST(SetOfShared, waits_for_each_of_them_in_order) {
    auto writer = this->b_.acquire();
    auto held = in_background([&] { return this->set_.acquire_shared(); });
    ASSERT_TRUE(this->waits(this->b_));
    EXPECT_EQ(this->readers("a"), 1U) << "taken in the order of their bytes";
    static_cast<void>(writer->release());
    EXPECT_TRUE(held.get()->held());
}

TYPED_TEST(SetOfShared, renews_those_before_while_it_waits_and_has_whole_leases_in_the_end) {
    LockSet<TypeParam> set{this->client_, {"a", "b"}, {.lease = 8s}};
    auto writer = this->b_.acquire();
    auto held = in_background([&] { return set.acquire_shared(); });
    const auto ttl_of_a = [&] { return this->a_.inspect().value().ttl.value_or(0ms); };
    ASSERT_TRUE(eventually([&] { return ttl_of_a() > 0ms && ttl_of_a() < 7000ms; }));
    ASSERT_TRUE(eventually([&] { return ttl_of_a() > 7200ms; })) << "renewed";
    static_cast<void>(writer->release());
    auto all = held.get();
    ASSERT_TRUE(all.has_value()) << all.error().describe();
    EXPECT_GT(all->remaining(), 4s);
}

TYPED_TEST(SetOfShared, begins_anew_where_one_is_lost_while_another_is_waited_for) {
    LockSet<TypeParam> set{this->client_, {"a", "b"}, {.lease = 6s}};
    auto writer = this->b_.acquire();
    auto held = in_background([&] { return set.acquire_shared(); });
    ASSERT_TRUE(this->waits(this->b_));
    const auto first = this->a_.inspect().value().holders.at(0).owner;
    this->redis_.del("a");
    ASSERT_TRUE(eventually([&] {
        const auto info = this->a_.inspect().value();
        return info.locked && info.holders.at(0).owner != first;
    })) << "by another token";
    static_cast<void>(writer->release());
    EXPECT_TRUE(held.get()->held());
}

TYPED_TEST(SetOfShared, is_lost_with_the_first_that_is_read) {
    auto held = this->set_.acquire_shared();
    const std::stop_token lost = held->lost();
    EXPECT_EQ((Lock<TypeParam>{this->client_, "b"}.force_unlock().value()), Forced::removed);
    EXPECT_TRUE(fires(lost));
    EXPECT_EQ(held->state(), HoldState::lost);
    EXPECT_EQ(held->release().value(), Release::expired);
    EXPECT_TRUE(this->is_free("a") && this->is_free("b"));
}

TYPED_TEST(SetOfShared, is_cancelled_by_a_stop) {
    const auto writer = this->b_.acquire();
    std::stop_source stop;
    auto held = in_background(
        [&] { return code_of(this->set_.acquire_shared({.stop = stop.get_token()})); });
    ASSERT_TRUE(this->waits(this->b_));
    stop.request_stop();
    EXPECT_EQ(held.get(), Errc::cancelled);
    EXPECT_TRUE(this->is_free("a"));
}

TYPED_TEST(SetOfShared, nests_in_what_its_thread_holds) {
    Lock<TypeParam> a{this->client_, "a"};
    {
        const std::lock_guard writing{a};
        const std::shared_lock reading{this->set_};
        EXPECT_TRUE(this->is_written("a"));
        EXPECT_EQ(this->readers("b"), 1U);
    }
    {
        const std::shared_lock outer{a};
        const std::shared_lock reading{this->set_};
        EXPECT_EQ(this->readers("a"), 1U);
    }
    const std::lock_guard writing{this->set_};
    const std::shared_lock reading{this->set_};
    EXPECT_TRUE(this->is_written("a") && this->is_written("b"));
}

TYPED_TEST(SetOfShared, is_not_written_by_the_thread_that_reads_one_of_them) {
    Lock<TypeParam> b{this->client_, "b"};
    const std::shared_lock reading{b};
    EXPECT_EQ(code_of(this->set_.acquire()), Errc::deadlock);
    EXPECT_FALSE(this->set_.try_lock());
    EXPECT_FALSE(this->set_.try_lock_for(60s)) << "at once";
    EXPECT_THROW(this->set_.lock(), LockError);
    EXPECT_TRUE(this->is_free("a"));
    EXPECT_TRUE(b.held());
}

TYPED_TEST(SetOfShared, reads_on_where_the_writing_ends_first) {
    this->set_.lock();
    this->set_.lock_shared();
    this->set_.unlock();
    EXPECT_EQ(this->readers("a"), 1U);
    EXPECT_EQ(this->readers("b"), 1U);
    this->set_.unlock_shared();
    EXPECT_TRUE(this->is_free("a") && this->is_free("b"));
}

TYPED_TEST(SetOfShared, is_read_without_a_thread_that_waits) {
    auto writer = this->b_.acquire();
    std::promise<Result<HeldSet>> done;
    this->set_.async_acquire_shared({.wait = 60s}, {},
                                    [&](Result<HeldSet> all) { done.set_value(std::move(all)); });
    ASSERT_TRUE(this->waits(this->b_));
    EXPECT_EQ(this->readers("a"), 1U);
    static_cast<void>(writer->release());
    auto held = done.get_future().get();
    ASSERT_TRUE(held.has_value()) << held.error().describe();
    EXPECT_EQ(this->readers("b"), 1U);
    EXPECT_TRUE(this->other_set_.try_lock_shared_for(60s));
    this->other_set_.unlock_shared();
    std::promise<Result<Release>> over;
    held->async_release([&](Result<Release> outcome) { over.set_value(std::move(outcome)); });
    EXPECT_EQ(over.get_future().get().value(), Release::released);
    EXPECT_TRUE(this->is_free("a") && this->is_free("b"));
}

using SetsOfShared = LockTest;

TEST_F(SetsOfShared, of_one_process_read_with_one_claim_of_each) {
    LockSet<Shared> set{client_, {"a", "b"}, {.lease = 60s}};
    const std::shared_lock reading{set};
    in_background([&] {
        const std::shared_lock also{set};
        for (const char* const name : {"a", "b"}) {
            EXPECT_EQ((Lock<Shared>{client_, name}.inspect().value().holders.size()), 1U);
        }
    }).get();
}

TEST_F(SetsOfShared, have_the_fencing_tokens_of_the_last_writers) {
    LockSet<Fenced<Shared>> set{client_, {"a", "b"}};
    auto writing = set.acquire();
    const std::uint64_t a = writing->fence("a");
    const std::uint64_t b = writing->fence("b");
    static_cast<void>(writing->release());
    const auto reading = set.acquire_shared();
    EXPECT_EQ(reading->fence("a"), a);
    EXPECT_EQ(reading->fence("b"), b);
}

TEST_F(SetsOfShared, in_crowds_exclude_writers_and_wait_in_no_circle) {
    const std::vector<std::vector<std::string>> orders{{"a", "b", "c"}, {"c", "b"}, {"b", "a"}};
    std::atomic<int> readers{0};
    std::atomic<bool> writes{false};
    std::atomic<int> done{0};
    constexpr int rounds = 40;
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 6; ++i) {
        threads.emplace_back([&, i] {
            LockSet<Shared> set{
                i % 2 == 0 ? client_ : other_client_, orders[i % orders.size()], {.lease = 60s}};
            for (int round = 0; round < rounds; ++round) {
                if (round % 4 == 0) {
                    const std::lock_guard writing{set};
                    EXPECT_FALSE(writes.exchange(true)) << "b is in all of them";
                    EXPECT_EQ(readers, 0);
                    writes = false;
                } else {
                    const std::shared_lock reading{set};
                    ++readers;
                    EXPECT_FALSE(writes);
                    --readers;
                }
                ++done;
            }
        });
    }
    threads.clear();
    EXPECT_EQ(done, 6 * rounds);
    for (const char* const name : {"a", "b", "c"}) {
        EXPECT_TRUE(
            eventually([&] { return !Lock<Shared>(client_, name).inspect().value().locked; }));
    }
}

}  // namespace
}  // namespace redlatch::test
