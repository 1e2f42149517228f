// Shared locks: the table of who may do what, in which order, and what ends.

#include "busy_machine.hpp"
#include "lock_test.hpp"

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

using Config = Lock<Watchdog<Shared>>;

class SharedTest : public LockTest {
protected:
    [[nodiscard]] bool waits(std::size_t number) {
        return are_queued("redlatch:queue:{config}", number);
    }
    std::size_t holders() { return lock_.inspect()->holders.size(); }
    static bool others_can_read(Config& lock) {
        return on_another_thread(
            [&] { return lock.acquire_shared({.wait = Wait::none()}).has_value(); });
    }
    static bool others_can_write(Config& lock) {
        return on_another_thread([&] { return lock.acquire({.wait = Wait::none()}).has_value(); });
    }

    Config lock_{client_, "config"};
    Config other_{other_client_, "config"};
};

TEST_F(SharedTest, many_read_at_the_same_time) {
    std::atomic<int> inside{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) {
        threads.emplace_back([&, i] {
            Config& lock = i % 2 == 0 ? lock_ : other_;
            const std::shared_lock reading{lock};
            ++inside;
            EXPECT_TRUE(eventually([&] { return inside == 6; }));
        });
    }
    threads.clear();
    EXPECT_FALSE(lock_.inspect()->locked);
}

TEST_F(SharedTest, one_writes_alone) {
    const std::unique_lock writing{lock_};
    EXPECT_FALSE(others_can_read(lock_));
    EXPECT_FALSE(others_can_read(other_));
    EXPECT_FALSE(others_can_write(lock_));
    EXPECT_FALSE(others_can_write(other_));
}

TEST_F(SharedTest, nobody_writes_beside_a_reader) {
    const std::shared_lock reading{lock_};
    EXPECT_TRUE(others_can_read(lock_));
    EXPECT_TRUE(others_can_read(other_));
    EXPECT_FALSE(others_can_write(lock_));
    EXPECT_FALSE(others_can_write(other_));
}

TEST_F(SharedTest, writers_of_all_threads_and_clients_exclude_each_other) {
    int count = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) {
        threads.emplace_back([&, i] {
            Config& lock = i % 2 == 0 ? lock_ : other_;
            for (int round = 0; round < 10; ++round) {
                const std::scoped_lock writing{lock};
                const int before = count;
                std::this_thread::yield();
                count = before + 1;
            }
        });
    }
    threads.clear();
    EXPECT_EQ(count, 60);
}

TEST_F(SharedTest, tries_take_what_becomes_free_in_time) {
    auto held = other_.acquire_shared();
    auto writing = in_background(
        [&] { return lock_.try_lock_for(60s) && lock_.release().value() == Release::released; });
    ASSERT_TRUE(waits(1));
    EXPECT_FALSE(lock_.try_lock_for(20ms));
    EXPECT_FALSE(lock_.try_lock_until(std::chrono::steady_clock::now() + 20ms));
    EXPECT_FALSE(lock_.try_lock(20ms, 10s));
    held->release().value();
    EXPECT_TRUE(writing.get());
    held = other_.acquire();
    auto reading = in_background([&] {
        return lock_.try_lock_shared_for(60s) &&
               lock_.release_shared().value() == Release::released;
    });
    ASSERT_TRUE(waits(1));
    EXPECT_TRUE(times_out([&] { return lock_.try_lock_shared_for(20ms); }));
    EXPECT_TRUE(times_out(
        [&] { return lock_.try_lock_shared_until(std::chrono::steady_clock::now() + 20ms); }));
    EXPECT_TRUE(times_out([&] { return lock_.try_lock_shared(20ms, 10s); }));
    held->release().value();
    EXPECT_TRUE(reading.get());
    EXPECT_TRUE(waits(0));
}

TEST_F(SharedTest, a_reader_that_comes_behind_a_waiting_writer_waits) {
    std::shared_lock reading{lock_};
    auto writer = in_background([&] { return other_.acquire(); });
    ASSERT_TRUE(waits(1));
    // For some moments the process does not know of the writer.
    EXPECT_TRUE(eventually([&] { return !others_can_read(lock_); }));
    auto reader = in_background([&] { return lock_.acquire_shared(); });
    ASSERT_TRUE(waits(2));
    reading.unlock();
    auto wrote = writer.get();
    ASSERT_TRUE(wrote);
    EXPECT_EQ(reader.wait_for(0s), std::future_status::timeout);
    EXPECT_EQ(wrote->release().value(), Release::released);
    EXPECT_TRUE(reader.get());
}

TEST_F(SharedTest, readers_in_a_row_get_in_together) {
    std::unique_lock writing{lock_};
    std::vector<std::future<Result<Held>>> readers;
    for (Config* lock : {&lock_, &other_}) {
        readers.push_back(in_background([lock] { return lock->acquire_shared(); }));
    }
    ASSERT_TRUE(waits(2));
    writing.unlock();
    std::vector<Held> all;
    for (auto& reader : readers) all.push_back(reader.get().value());
    EXPECT_EQ(holders(), 2U);
}

TEST_F(SharedTest, writers_and_rows_of_readers_get_in_in_the_order_of_their_coming) {
    auto first = lock_.acquire();
    const auto wait = [this](std::size_t place, Config& lock, bool reads) {
        auto waiter = in_background(
            [&lock, reads] { return reads ? lock.acquire_shared() : lock.acquire(); });
        EXPECT_TRUE(waits(place));
        return waiter;
    };
    Client third_client{patient(server_.uri())};
    Config third{third_client, "config"};
    auto reader_1 = wait(1, lock_, true);
    auto reader_2 = wait(2, other_, true);
    auto writer = wait(3, other_, false);
    auto reader_3 = wait(4, third, true);
    first->release().value();
    auto one = reader_1.get();
    auto two = reader_2.get();
    ASSERT_TRUE(one && two);
    EXPECT_TRUE(waits(2));
    one->release().value();
    EXPECT_TRUE(waits(2));
    two->release().value();
    auto wrote = writer.get();
    ASSERT_TRUE(wrote);
    EXPECT_TRUE(waits(1));
    wrote->release().value();
    EXPECT_TRUE(reader_3.get());
}

TEST_F(SharedTest, a_writer_that_gives_up_lets_those_behind_it_in) {
    const std::shared_lock reading{lock_};
    std::stop_source enough;
    auto writer =
        in_background([&] { return code_of(other_.acquire({.stop = enough.get_token()})); });
    ASSERT_TRUE(waits(1));
    auto brief =
        in_background([&] { return times_out([&] { return lock_.acquire({.wait = 300ms}); }); });
    auto reader = in_background([&] { return other_.acquire_shared(); });
    enough.request_stop();
    EXPECT_EQ(writer.get(), Errc::cancelled);
    EXPECT_TRUE(brief.get());
    EXPECT_TRUE(reader.get());
}

TEST_F(SharedTest, a_nested_read_passes_the_queue_and_costs_no_command) {
    lock_.lock_shared();
    auto writer = in_background([&] { return other_.acquire(); });
    ASSERT_TRUE(waits(1));
    const auto scripts = [this] {
        return redis_.command_calls("eval") + redis_.command_calls("evalsha");
    };
    const long long before = scripts();
    for (int i = 0; i < 100; ++i) {  // far more than the waiter asks meanwhile
        lock_.lock_shared();
        EXPECT_TRUE(lock_.try_lock_shared());
        lock_.unlock_shared();
        EXPECT_EQ(lock_.release_shared().value(), Release::still_held);
    }
    EXPECT_LT(scripts() - before, 50);
    EXPECT_EQ(lock_.release_shared().value(), Release::released);
    EXPECT_TRUE(writer.get());
}

TEST_F(SharedTest, the_thread_that_writes_may_write_and_read_too) {
    lock_.lock();
    EXPECT_TRUE(lock_.try_lock());
    lock_.lock_shared();
    EXPECT_EQ(holders(), 1U);
    lock_.unlock_shared();
    EXPECT_EQ(lock_.release().value(), Release::still_held);
    EXPECT_FALSE(others_can_read(other_));
    EXPECT_EQ(lock_.release().value(), Release::released);
    EXPECT_TRUE(others_can_write(other_));
}

TEST_F(SharedTest, writing_that_nests_ends_or_becomes_reading_as_a_whole) {
    lock_.lock();
    lock_.lock();
    EXPECT_EQ(lock_.release_shared().value(), Release::not_held) << "nothing is read";
    EXPECT_EQ(lock_.release().value(), Release::still_held);
    lock_.lock();
    ASSERT_TRUE(lock_.downgrade());
    EXPECT_TRUE(others_can_read(other_));
    EXPECT_EQ(lock_.release().value(), Release::not_held) << "nothing is written";
    EXPECT_EQ(lock_.release_shared().value(), Release::still_held);
    EXPECT_FALSE(others_can_write(other_));
    EXPECT_EQ(lock_.release_shared().value(), Release::released);
    EXPECT_TRUE(others_can_write(other_));
}

TEST_F(SharedTest, who_ends_its_writing_and_still_reads_is_a_reader) {
    lock_.lock();
    lock_.lock_shared();
    lock_.unlock();
    EXPECT_TRUE(lock_.held());
    EXPECT_TRUE(others_can_read(other_));
    EXPECT_FALSE(others_can_write(other_));
    EXPECT_FALSE(others_can_write(lock_));
    EXPECT_EQ(lock_.release().value(), Release::not_held);
    EXPECT_EQ(lock_.release_shared().value(), Release::released);
    EXPECT_TRUE(others_can_write(other_));
}

TEST_F(SharedTest, downgrade_lets_readers_in_and_writers_not) {
    lock_.lock();
    auto reader = in_background([&] { return other_.acquire_shared(); });
    ASSERT_TRUE(waits(1));
    ASSERT_TRUE(lock_.downgrade());
    EXPECT_TRUE(reader.get());
    EXPECT_FALSE(others_can_write(other_));
    EXPECT_EQ(code_of(lock_.downgrade()), Errc::not_held) << "it reads already";
    EXPECT_EQ(lock_.release_shared().value(), Release::released);
    EXPECT_EQ(code_of(lock_.downgrade()), Errc::not_held);
}

TEST_F(SharedTest, downgrade_leaves_no_gap_for_a_writer_in_the_queue) {
    lock_.lock();
    std::atomic<bool> writes{false};
    auto writer = in_background([&] {
        auto held = other_.acquire();
        writes = true;
        return held;
    });
    ASSERT_TRUE(waits(1));
    ASSERT_TRUE(lock_.downgrade());
    EXPECT_TRUE(stays([&] { return !writes && redis_.exists("config"); }, 200ms));
    EXPECT_EQ(lock_.release_shared().value(), Release::released);
    EXPECT_TRUE(writer.get());
}

TEST_F(SharedTest, a_held_is_downgraded_and_released) {
    auto held = lock_.acquire();
    ASSERT_TRUE(held->downgrade());
    EXPECT_TRUE(others_can_read(other_));
    EXPECT_TRUE(held->extend(30s));
    EXPECT_TRUE(others_can_read(other_)) << "an extension leaves it a reader";
    EXPECT_EQ(held->release().value(), Release::released);
    Lock<> plain{client_, "plain"};
    EXPECT_EQ(code_of(plain.acquire()->downgrade()), Errc::invalid_argument);
}

TEST_F(SharedTest, a_downgraded_hold_is_renewed_as_a_reader) {
    Config quick{client_, "quick", {.lease = 6s}};
    Config beside{other_client_, "quick"};
    auto held = quick.acquire();
    ASSERT_TRUE(held->downgrade());
    auto reading = beside.acquire_shared();
    EXPECT_TRUE(is_renewed(*held));
    EXPECT_TRUE(held->held());
    EXPECT_EQ(held->release().value(), Release::released);
}

TEST_F(SharedTest, the_thread_that_reads_cannot_write) {
    lock_.lock_shared();
    EXPECT_THROW(lock_.lock(), LockError);
    EXPECT_FALSE(lock_.try_lock());
    EXPECT_FALSE(lock_.try_lock_for(1h)) << "at once";
    EXPECT_EQ(code_of(lock_.acquire({.wait = 1h})), Errc::deadlock);
    lock_.unlock_shared();
    lock_.lock();
    lock_.downgrade().value();
    EXPECT_EQ(code_of(lock_.acquire({.wait = 1h})), Errc::deadlock);
    lock_.unlock_shared();
    EXPECT_TRUE(lock_.try_lock());
}

TEST_F(SharedTest, unlocking_what_is_not_held_does_nothing) {
    EXPECT_EQ(lock_.release_shared().value(), Release::not_held);
    lock_.lock_shared();
    EXPECT_EQ(lock_.release().value(), Release::not_held);
    on_another_thread([&] {
        EXPECT_EQ(lock_.release_shared().value(), Release::not_held);
        return 0;
    });
    EXPECT_EQ(lock_.release_shared().value(), Release::released);
}

TEST_F(SharedTest, ending_what_is_free_or_held_by_others_does_nothing) {
    const auto does_nothing = [this] {
        lock_.unlock();
        lock_.unlock_shared();
        EXPECT_EQ(lock_.release().value(), Release::not_held);
        EXPECT_EQ(lock_.release_shared().value(), Release::not_held);
        EXPECT_EQ(code_of(lock_.downgrade()), Errc::not_held);
        EXPECT_EQ(code_of(lock_.extend(10s)), Errc::not_held);
    };
    does_nothing();
    for (Config* lock : {&lock_, &other_}) {
        auto reading = on_another_thread([lock] { return lock->acquire_shared(); });
        does_nothing();
        EXPECT_TRUE(reading->extend(20s));
        reading->release().value();
        auto writing = on_another_thread([lock] { return lock->acquire(); });
        does_nothing();
        EXPECT_TRUE(writing->extend(20s));
        EXPECT_FALSE(others_can_read(other_)) << "it has not become a reader";
        writing->release().value();
    }
}

TEST_F(SharedTest, each_reader_ends_with_its_own_lease) {
    Lock<Shared> brief{client_, "config", {.lease = 300ms}};
    auto lasting = other_.acquire_shared();
    auto ending = brief.acquire_shared();
    EXPECT_TRUE(fires(ending->lost()));
    EXPECT_TRUE(eventually([this] { return holders() == 1; }));
    EXPECT_TRUE(lasting->extend(30s));
    EXPECT_FALSE(others_can_write(lock_));
    EXPECT_EQ(code_of(ending->extend(30s)), Errc::lost);
    EXPECT_EQ(ending->release().value(), Release::expired);
}

TEST_F(SharedTest, a_key_whose_end_somebody_has_taken_away_lasts_as_long_as_its_last_reader) {
    Lock<Shared> lock{client_, "config", {.lease = 1h}};
    Lock<Shared> other{other_client_, "config"};
    const Held held = lock.acquire_shared().value();
    for (const char* const command : {"PERSIST", "EXPIRE"}) {
        std::vector<std::string> line{command, "config"};
        if (line.front() == "EXPIRE") line.emplace_back("60");
        redis_.command(line);
        EXPECT_TRUE(other.acquire_shared({.lease = 20s}).value().held());
        EXPECT_GT(redis_.pttl("config"), 3'000'000);
        EXPECT_LE(redis_.pttl("config"), 3'600'000);
    }
}

TEST_F(SharedTest, a_writer_whose_lease_is_over_blocks_nobody_and_becomes_no_reader) {
    Lock<Shared> brief{client_, "config", {.lease = 300ms}};
    auto ended = brief.acquire();
    auto reader = in_background([&] { return other_.acquire_shared(); });
    auto reading = reader.get();
    ASSERT_TRUE(reading);
    EXPECT_EQ(code_of(ended->downgrade()), Errc::lost);
    EXPECT_EQ(code_of(ended->extend(30s)), Errc::lost);
    EXPECT_EQ(ended->release().value(), Release::expired);
    EXPECT_EQ(holders(), 1U);
    EXPECT_TRUE(reading->held());
}

TEST_F(SharedTest, a_dead_reader_blocks_writers_no_longer_than_its_lease) {
    Lock<Shared> dying{client_, "config", {.lease = 300ms}};
    auto forgotten = dying.acquire_shared();
    auto lasting = other_.acquire_shared();
    lasting->release().value();
    EXPECT_TRUE(other_.acquire({.wait = 60s}));
    EXPECT_FALSE(forgotten->held());
    EXPECT_EQ(forgotten->release().value(), Release::expired);
}

TEST_F(SharedTest, a_deleted_key_is_a_loss_for_readers) {
    Config quick{client_, "quick", {.lease = 300ms}};
    auto reading = quick.acquire_shared();
    const std::stop_token lost = reading->lost();
    redis_.del("quick");
    EXPECT_TRUE(fires(lost));
}

TEST_F(SharedTest, the_end_of_a_handle_ends_what_was_read_through_it) {
    {
        Config scope{client_, "config"};
        scope.lock_shared();
        std::jthread{[&] { scope.lock_shared(); }}.join();
        EXPECT_EQ(holders(), 1U) << "one claim for both";
        EXPECT_FALSE(others_can_write(other_));
    }
    EXPECT_FALSE(lock_.inspect()->locked);
}

TEST_F(SharedTest, the_end_of_a_handle_that_many_read_through_takes_one_command_timeout) {
    Client impatient{{.uris = {server_.uri()}, .command_timeout = 300ms}};
    std::optional<Config> scope{std::in_place, impatient, "config"};
    for (int i = 0; i < 60; ++i) std::jthread{[&] { scope->lock_shared(); }}.join();
    server_.freeze();
    const auto start = std::chrono::steady_clock::now();
    scope.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "and not sixty times as long";
    server_.thaw();
}

TEST_F(SharedTest, unlocking_ends_what_is_held_before_what_was_lost) {
    Lock<Shared> lock{client_, "brief", {.lease = 100ms}};
    lock.lock_shared();
    ASSERT_TRUE(eventually([&] { return !lock.held(); }));
    lock.lock(10s);
    lock.lock_shared();
    EXPECT_EQ(lock.release_shared().value(), Release::still_held);
    EXPECT_EQ(lock.release().value(), Release::released);
    EXPECT_EQ(lock.release_shared().value(), Release::expired);
}

TEST_F(SharedTest, a_hold_of_its_own_reads_beside_its_thread) {
    auto reading = lock_.acquire_shared({.owner = Owner::hold});
    EXPECT_FALSE(lock_.held());
    EXPECT_TRUE(lock_.try_lock_shared());
    EXPECT_EQ(holders(), 2U);
    EXPECT_EQ(on_another_thread([&] { return reading->release().value(); }), Release::released);
    EXPECT_TRUE(lock_.held());
}

TEST_F(SharedTest, fencing_tokens_rise_with_writers_and_readers_share_them) {
    using Store = Lock<Watchdog<Fenced<Shared>>>;
    Store mine{client_, "store"};
    Store theirs{other_client_, "store"};
    auto writing = mine.acquire();
    const std::uint64_t first = writing->fence();
    EXPECT_GT(first, 0U);
    writing->release().value();
    auto reading = mine.acquire_shared();
    auto beside = theirs.acquire_shared();
    EXPECT_EQ(reading->fence(), first);
    EXPECT_EQ(beside->fence(), first);
    reading->release().value();
    beside->release().value();
    auto next = theirs.acquire();
    const std::uint64_t second = next->fence();
    EXPECT_GT(second, first);
    ASSERT_TRUE(next->downgrade());
    EXPECT_EQ(next->fence(), second) << "what it wrote has that number";
    EXPECT_EQ(mine.acquire_shared()->fence(), second);
}

TEST_F(SharedTest, inspect_tells_all_holders) {
    auto one = lock_.acquire_shared();
    auto two = other_.acquire_shared();
    const LockInfo info = lock_.inspect().value();
    EXPECT_TRUE(info.locked);
    EXPECT_EQ(info.hold_count, 2U);
    ASSERT_EQ(info.holders.size(), 2U);
    EXPECT_FALSE(info.holders[0].writes);
    EXPECT_GT(info.ttl.value(), 15s);
    one->release().value();
    two->release().value();
    auto writing = lock_.acquire();
    EXPECT_TRUE(other_.inspect()->holders.at(0).writes);
    EXPECT_EQ(other_.inspect()->owner, writing->token());
}

TEST_F(SharedTest, force_unlock_removes_one_or_all) {
    auto one = lock_.acquire_shared();
    auto two = other_.acquire_shared();
    EXPECT_EQ(lock_.force_unlock(two->token()).value(), Forced::removed);
    EXPECT_EQ(lock_.force_unlock(two->token()).value(), Forced::absent);
    EXPECT_EQ(holders(), 1U);
    EXPECT_EQ(lock_.force_unlock().value(), Forced::removed);
    EXPECT_EQ(lock_.force_unlock().value(), Forced::absent);
    EXPECT_TRUE(others_can_write(other_));
}

TEST_F(SharedTest, force_unlock_removes_all_of_a_crowd) {
    std::vector<Held> crowd;
    for (int i = 0; i < 450; ++i) {
        crowd.push_back(other_.acquire_shared({.owner = Owner::hold}).value());
    }
    ASSERT_EQ(lock_.inspect()->hold_count, 450U);
    EXPECT_EQ(lock_.force_unlock().value(), Forced::removed);
    EXPECT_EQ(holders(), 0U);
    EXPECT_TRUE(others_can_write(lock_));
}

/// More than one run of a release lets in, and each has a place of its own. What each acquires ends at once.
class AsyncCrowd {
public:
    static constexpr std::size_t size = 400;

    explicit AsyncCrowd(Config& lock) {
        for (std::size_t i = 0; i < size; ++i) {
            lock.async_acquire_shared({}, {}, [this](Result<Held> held) {
                EXPECT_TRUE(held);
                ++served_;
            });
        }
    }
    ~AsyncCrowd() {
        EXPECT_TRUE(eventually([this] { return served_ == size; }));
    }

private:
    std::atomic<std::size_t> served_{0};
};

TEST_F(SharedTest, a_lost_hold_has_expired_however_many_wait) {
    Held writing = lock_.acquire().value();
    const AsyncCrowd crowd{other_};
    ASSERT_TRUE(waits(AsyncCrowd::size));
    redis_.del("config");
    EXPECT_EQ(writing.release().value(), Release::expired);
}

TEST_F(SharedTest, force_unlock_of_one_who_has_gone_finds_it_absent_however_many_wait) {
    Client third{patient(server_.uri())};
    const Held writing = Config{third, "config"}.acquire().value();
    const AsyncCrowd crowd{other_};
    ASSERT_TRUE(waits(AsyncCrowd::size));
    redis_.del("config");
    EXPECT_EQ(lock_.force_unlock(writing.token()).value(), Forced::absent);
}

TEST_F(SharedTest, force_unlock_tells_holders_in_the_process_at_once) {
    auto reading = lock_.acquire_shared({.owner = Owner::hold});
    auto other = lock_.acquire_shared({.owner = Owner::hold});
    EXPECT_EQ(lock_.force_unlock(reading->token()).value(), Forced::removed);
    EXPECT_EQ(reading->state(), HoldState::lost);
    EXPECT_TRUE(other->held());
    EXPECT_EQ(lock_.force_unlock().value(), Forced::removed);
    EXPECT_EQ(other->state(), HoldState::lost);
    auto writing = lock_.acquire({.wait = Wait::none(), .owner = Owner::hold});
    ASSERT_TRUE(writing);
    EXPECT_EQ(lock_.force_unlock().value(), Forced::removed);
    EXPECT_EQ(writing->state(), HoldState::lost);
}

TEST_F(SharedTest, force_unlock_removes_no_waiter) {
    auto writing = lock_.acquire();
    std::optional<Result<Held>> second;
    std::jthread waiter{[&] { second = other_.acquire(); }};
    ASSERT_TRUE(waits(1));
    const std::string token =
        redis_.command({"ZRANGE", "redlatch:queue:{config}", "0", "0"}).elements.at(0).text;
    EXPECT_EQ(lock_.force_unlock(token).value(), Forced::absent);
    EXPECT_TRUE(waits(1));
    EXPECT_EQ(lock_.force_unlock(writing->token()).value(), Forced::removed);
    waiter.join();
    EXPECT_EQ(second->value().token(), token);
}

TEST_F(SharedTest, a_guard_reads_or_says_why_not) {
    {
        const SharedGuard reading{lock_, generous_limit};
        ASSERT_TRUE(reading);
        EXPECT_TRUE(others_can_read(other_));
    }
    const std::unique_lock writing{other_};
    EXPECT_TRUE(times_out([&]() -> Result<void> {
        const SharedGuard refused{lock_, 20ms};
        if (refused) return {};
        return Unexpected{refused.error()};
    }));
}

TEST_F(SharedTest, other_kinds_of_locks_on_the_name_refuse_and_are_refused) {
    Lock<> plain{other_client_, "config"};
    Semaphore<> semaphore{other_client_, "config", 3};
    lock_.lock_shared();
    EXPECT_EQ(code_of(plain.acquire({.wait = Wait::none()})), Errc::wrong_type);
    EXPECT_EQ(code_of(semaphore.take({.wait = Wait::none()})), Errc::wrong_type);
    lock_.unlock_shared();
    semaphore.acquire();
    EXPECT_EQ(code_of(lock_.acquire_shared({.wait = Wait::none()})), Errc::wrong_type);
}

TEST_F(SharedTest, what_a_lock_of_its_own_can_do_is_refused) {
    auto writing = lock_.acquire();
    EXPECT_EQ(code_of(writing->detach()), Errc::invalid_argument);
    EXPECT_TRUE(writing->nest());
    EXPECT_THROW((Config{client_, "config", {.min_hold = 1s}}), LockError);
}

TEST_F(SharedTest, nothing_is_left_behind) {
    {
        const std::shared_lock reading{lock_};
        EXPECT_TRUE(times_out([&] { return other_.try_lock_for(20ms); }));
    }
    // Who has given up may still be leaving the queue.
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

}  // namespace
}  // namespace redlatch::test
