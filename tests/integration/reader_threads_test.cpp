// Threads of one process that read at the same time: one claim at the server for all of them.

#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

using Config = Lock<Shared>;

/// A thread that reads, and does what it is told meanwhile.
class Reader {
public:
    explicit Reader(Config& lock) : lock_(&lock) {
        EXPECT_TRUE(run([](Config& own) { return own.try_lock_shared_for(60s); }));
    }

    bool run(std::function<bool(Config&)> task) {
        std::packaged_task<bool()> call{[this, task = std::move(task)] { return task(*lock_); }};
        auto result = call.get_future();
        {
            const std::lock_guard guard{mutex_};
            calls_.push_back(std::move(call));
        }
        calls_changed_.notify_one();
        return result.get();
    }
    bool holds() {
        return run([](Config& lock) { return lock.held(); });
    }
    std::chrono::milliseconds remaining() {
        std::chrono::milliseconds left{};
        run([&](Config& lock) {
            left = lock.remaining();
            return true;
        });
        return left;
    }
    Release ends() {
        Release outcome{};
        run([&](Config& lock) {
            outcome = lock.release_shared().value();
            return true;
        });
        return outcome;
    }

private:
    void work(const std::stop_token& stop) {
        std::unique_lock guard{mutex_};
        while (calls_changed_.wait(guard, stop, [this] { return !calls_.empty(); })) {
            auto call = std::move(calls_.front());
            calls_.erase(calls_.begin());
            guard.unlock();
            call();
            guard.lock();
        }
    }

    Config* lock_;
    std::mutex mutex_;
    std::condition_variable_any calls_changed_;
    std::vector<std::packaged_task<bool()>> calls_;
    std::jthread thread_{[this](const std::stop_token& stop) { work(stop); }};
};

class ReaderThreads : public LockTest {
protected:
    std::size_t holders() { return lock_.inspect()->holders.size(); }
    bool others_can_write() { return other_.acquire({.wait = Wait::none()}).has_value(); }
    std::string token() { return lock_.inspect()->holders.at(0).owner; }

    std::vector<std::unique_ptr<Reader>> start(std::size_t number) {
        std::vector<std::unique_ptr<Reader>> readers;
        for (std::size_t i = 0; i < number; ++i) readers.push_back(std::make_unique<Reader>(lock_));
        return readers;
    }

    Config lock_{client_, "config", {.lease = 60s}};
    Config other_{other_client_, "config", {.lease = 60s}};
};

TEST_F(ReaderThreads, share_one_claim_that_the_last_of_them_releases) {
    auto readers = start(8);
    EXPECT_EQ(holders(), 1U);
    while (readers.size() > 1) {
        EXPECT_EQ(readers.front()->ends(), Release::released);
        readers.erase(readers.begin());
        EXPECT_TRUE(readers.front()->holds());
        EXPECT_FALSE(others_can_write());
    }
    EXPECT_EQ(readers.front()->ends(), Release::released);
    EXPECT_TRUE(others_can_write());
    EXPECT_FALSE(lock_.inspect()->locked);
}

TEST_F(ReaderThreads, end_no_lock_delay_of_another_one) {
    Config lock{client_, "config", {.lease = 3s, .lock_delay = 60s}};
    Reader loses{lock};
    Reader goes_on{lock};
    std::stop_token lost;
    ASSERT_TRUE(loses.run([&](Config& own) {
        lost = own.lost();
        return own.held();
    }));
    ASSERT_TRUE(goes_on.run([](Config& own) { return own.extend(60s).has_value(); }));
    EXPECT_EQ(holders(), 1U) << "they share a claim";
    ASSERT_TRUE(fires(lost));
    EXPECT_EQ(goes_on.ends(), Release::released);
    EXPECT_FALSE(others_can_write()) << "the one that has lost it may still be at work";
    EXPECT_EQ(loses.ends(), Release::expired);
    EXPECT_TRUE(eventually([&] { return others_can_write(); })) << "nobody is at work any more";
}

TEST_F(ReaderThreads, ask_only_now_and_then) {
    const Reader stays{lock_};
    redis_.reset_stats();
    const auto begin = std::chrono::steady_clock::now();
    constexpr int rounds = 500;
    for (int i = 0; i < rounds; ++i) {
        const std::shared_lock reading{lock_};
    }
    const auto passed = std::chrono::steady_clock::now() - begin;
    // A claim of its own would be two for each. One question in five milliseconds, and some more.
    EXPECT_LE(redis_.command_calls("evalsha") + redis_.command_calls("eval"), passed / 5ms + 2);
    EXPECT_EQ(holders(), 1U);
}

TEST_F(ReaderThreads, go_past_no_writer_for_long) {
    Reader first{lock_};
    auto writer = in_background([&] { return other_.acquire(); });
    ASSERT_TRUE(are_queued("redlatch:queue:{config}", 1));
    ASSERT_TRUE(eventually([&] {
        const bool joined = lock_.try_lock_shared();
        if (joined) lock_.unlock_shared();
        return !joined;
    }));
    EXPECT_FALSE(lock_.try_lock_shared());
    EXPECT_EQ(first.ends(), Release::released);
    EXPECT_TRUE(writer.get());
}

TEST_F(ReaderThreads, go_past_no_writer_of_their_own_at_all) {
    for (int round = 0; round < 20; ++round) {
        Reader first{lock_};
        auto writer = in_background([&] { return lock_.try_lock_for(60s) && lock_.release(); });
        ASSERT_TRUE(are_queued("redlatch:queue:{config}", 1));
        EXPECT_FALSE(lock_.try_lock_shared());
        first.ends();
        EXPECT_TRUE(writer.get());
    }
}

/// A client whose waiting calls are counted.
class WaitingReaderThreads : public ReaderThreads {
protected:
    static constexpr int crowd = 16;

    static ClientOptions counted(ClientOptions options, const std::shared_ptr<Waits>& waits) {
        options.observer = waits;
        return options;
    }

    /// Who is in when `crowd` of them are.
    [[nodiscard]] bool are_in(int number) {
        return eventually([&] { return inside_ == number; });
    }
    [[nodiscard]] bool wait(int number) {
        return eventually([&] { return waits_->number == number; });
    }

    std::jthread reader(std::chrono::nanoseconds patience = 120s) {
        return std::jthread{[this, patience] {
            const auto reading = readers_.acquire_shared({.wait = patience});
            if (!reading) return;
            ++inside_;
            EXPECT_TRUE(eventually([&] { return over_.load(); }, 3 * generous_limit));
            EXPECT_TRUE(readers_.held());
        }};
    }
    std::vector<std::jthread> readers(int number) {
        std::vector<std::jthread> threads;
        for (int i = 0; i < number; ++i) threads.push_back(reader());
        return threads;
    }

    std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
    Client counted_client_{counted(patient(server_.uri()), waits_)};
    Config readers_{counted_client_, "config", {.lease = 60s}};
    std::atomic<int> inside_{0};
    std::atomic<bool> over_{false};
};

TEST_F(WaitingReaderThreads, have_one_place_and_get_in_with_one_grant) {
    auto writing = other_.acquire();
    ASSERT_TRUE(writing);
    auto threads = readers(crowd);
    ASSERT_TRUE(wait(crowd));
    ASSERT_TRUE(are_queued("redlatch:queue:{config}", 1));
    redis_.reset_stats();
    writing->release().value();
    ASSERT_TRUE(are_in(crowd));
    // The release has granted it. A busy machine may have let the one in front look again before that, a few times.
    EXPECT_LT(redis_.command_calls("evalsha") + redis_.command_calls("eval"), crowd);
    EXPECT_EQ(redis_.command({"ZCARD", "redlatch:queue:{config}"}).integer, 0);
    EXPECT_EQ(holders(), 1U);
    EXPECT_FALSE(others_can_write());
    redis_.reset_stats();
    over_ = true;
    threads.clear();
    EXPECT_EQ(redis_.command_calls("evalsha") + redis_.command_calls("eval"), 1);
    EXPECT_TRUE(others_can_write());
}

TEST_F(WaitingReaderThreads, pass_their_place_on_when_the_one_in_front_gives_up) {
    auto writing = other_.acquire();
    ASSERT_TRUE(writing);
    auto front = reader(4s);  // long enough for the others to come
    ASSERT_TRUE(are_queued("redlatch:queue:{config}", 1));
    const auto place = redis_.command({"ZRANGE", "redlatch:queue:{config}", "0", "-1"}).elements;
    auto threads = readers(3);
    ASSERT_TRUE(wait(4));
    front.join();
    const auto later = redis_.command({"ZRANGE", "redlatch:queue:{config}", "0", "-1"}).elements;
    ASSERT_EQ(later.size(), 1U);
    EXPECT_EQ(later.at(0).text, place.at(0).text);
    writing->release().value();
    EXPECT_TRUE(are_in(3));
    EXPECT_EQ(holders(), 1U);
    over_ = true;
}

TEST_F(WaitingReaderThreads, that_come_behind_a_writer_of_their_process_get_in_after_it) {
    auto writing = other_.acquire();
    ASSERT_TRUE(writing);
    auto before = readers(3);
    ASSERT_TRUE(wait(3));
    ASSERT_TRUE(are_queued("redlatch:queue:{config}", 1));
    std::atomic<int> seen{-1};
    auto writer = in_background([&] {
        const std::lock_guard own{readers_};
        seen = inside_.load();
    });
    ASSERT_TRUE(wait(4));
    ASSERT_TRUE(are_queued("redlatch:queue:{config}", 2));
    auto behind = readers(3);
    ASSERT_TRUE(wait(7));
    ASSERT_TRUE(are_queued("redlatch:queue:{config}", 3)) << "the readers, the writer, the readers";
    writing->release().value();
    ASSERT_TRUE(are_in(3));
    over_ = true;
    ASSERT_TRUE(finishes(writer));
    EXPECT_EQ(seen, 3);
    EXPECT_TRUE(are_in(6));
}

TEST_F(ReaderThreads, that_ask_keep_no_claim_of_a_dead_one_from_a_writer) {
    Config brief{client_, "config", {.lease = 3s}};  // long enough for the writer to come
    Reader hangs{brief};
    auto writer = in_background([&] { return other_.acquire({.wait = 60s}); });
    ASSERT_TRUE(are_queued("redlatch:queue:{config}", 1));
    std::vector<std::jthread> others;
    while (writer.wait_for(20ms) == std::future_status::timeout && others.size() < 500) {
        others.emplace_back([&] {
            if (brief.try_lock_shared_for(60s)) brief.unlock_shared();
        });
    }
    EXPECT_LT(others.size(), 500U) << "each has asked, and waits behind the writer";
    auto writing = writer.get();
    ASSERT_TRUE(writing);
    EXPECT_EQ(hangs.ends(), Release::expired);
    writing->release().value();
}

TEST_F(ReaderThreads, all_lose_what_somebody_has_removed) {
    auto readers = start(3);
    auto beside = other_.acquire_shared();
    EXPECT_EQ(lock_
                  .force_unlock(token() == beside->token() ? lock_.inspect()->holders.at(1).owner
                                                           : token())
                  .value(),
              Forced::removed);
    for (const auto& reader : readers) EXPECT_FALSE(reader->holds());
    EXPECT_TRUE(beside->held());
    beside->release().value();
    EXPECT_TRUE(others_can_write());
    for (const auto& reader : readers) EXPECT_EQ(reader->ends(), Release::expired);
}

TEST_F(ReaderThreads, hear_that_their_claim_is_gone_when_one_of_them_asks) {
    auto readers = start(2);
    redis_.del("config");
    ASSERT_TRUE(eventually([&] {
        const std::shared_lock asks{lock_};
        return !readers.front()->holds();
    }));
    EXPECT_FALSE(readers.back()->holds());
    EXPECT_TRUE(others_can_write());
}

TEST_F(ReaderThreads, end_each_with_its_own_lease) {
    Config brief{client_, "config", {.lease = 6s}};
    Reader leaks{brief};
    ASSERT_TRUE(eventually([&] { return leaks.remaining() < 3s; }));
    Reader later{brief};
    EXPECT_GT(later.remaining(), leaks.remaining());
    EXPECT_EQ(holders(), 1U);
    EXPECT_TRUE(eventually([&] { return !leaks.holds(); }));
    EXPECT_EQ(leaks.ends(), Release::expired);
    EXPECT_EQ(later.ends(), Release::released) << "it came three seconds later";
    EXPECT_TRUE(others_can_write());
}

TEST_F(ReaderThreads, give_back_at_the_end_of_the_last_what_another_has_extended) {
    Config brief{client_, "config", {.lease = 5s}};
    Reader leaks{brief};
    {
        Reader extends{brief};
        ASSERT_EQ(holders(), 1U);
        EXPECT_TRUE(extends.run([](Config& lock) { return lock.extend(60s).has_value(); }));
        EXPECT_EQ(extends.ends(), Release::released);
    }
    EXPECT_GT(lock_.inspect()->ttl.value(), 20s);
    EXPECT_TRUE(other_.try_lock_for(20s)) << "nobody reads any more";
    EXPECT_FALSE(leaks.holds());
    other_.unlock();
}

TEST_F(ReaderThreads, that_are_watched_are_renewed_as_long_as_any) {
    Lock<Watchdog<Shared>> watched{client_, "config", {.lease = 5s}};
    std::atomic<bool> over{false};
    auto stays = in_background([&] {
        const std::shared_lock reading{watched};
        return eventually([&] { return over.load(); }, 3 * generous_limit);
    });
    ASSERT_TRUE(eventually([&] { return holders() == 1; }));
    for (int i = 0; i < 3; ++i) {
        const std::shared_lock reading{watched};
        EXPECT_TRUE(is_renewed(watched));
        EXPECT_EQ(holders(), 1U);
    }
    EXPECT_FALSE(others_can_write());
    over = true;
    ASSERT_TRUE(finishes(stays));
    EXPECT_TRUE(stays.get());
    EXPECT_TRUE(eventually([&] { return others_can_write(); }));
}

TEST_F(ReaderThreads, that_come_later_than_a_lease_go_on_with_a_watched_claim) {
    constexpr auto lease = 1500ms;
    Lock<Watchdog<Shared>> watched{client_, "config", {.lease = lease}};
    const std::shared_lock first{watched};
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(eventually([&] { return std::chrono::steady_clock::now() - begin > 2 * lease; }));
    auto second = in_background([&] {
        const std::shared_lock beside{watched};
        return holders();
    });
    ASSERT_TRUE(finishes(second));
    EXPECT_EQ(second.get(), 1U);
}

TEST_F(ReaderThreads, that_are_watched_are_renewed_with_one_command_for_all) {
    constexpr auto lease = 6s;
    constexpr int readers = 16;
    Lock<Watchdog<Shared>> watched{client_, "config", {.lease = lease}};
    const std::shared_lock reading{watched};
    std::atomic<int> began{0};
    std::atomic<int> renewed{0};
    std::atomic<bool> over{false};
    std::vector<std::jthread> threads;
    for (int i = 0; i < readers; ++i) {
        threads.emplace_back([&] {
            const std::shared_lock beside{watched};
            ++began;
            if (is_renewed(watched)) ++renewed;
            EXPECT_TRUE(eventually([&] { return over.load(); }, 3 * generous_limit));
        });
    }
    ASSERT_TRUE(eventually([&] { return began == readers; }));
    EXPECT_EQ(holders(), 1U);
    redis_.reset_stats();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(eventually([&] { return renewed == readers; }));
    EXPECT_TRUE(is_renewed(watched) && is_renewed(watched));
    const auto calls = redis_.command_calls("evalsha") + redis_.command_calls("eval");
    const auto passed = std::chrono::steady_clock::now() - begin;
    // Sixteen times as many with one for each.
    EXPECT_GE(calls, 1);
    EXPECT_LE(calls, passed / (lease / 4) + 4);
    over = true;
}

TEST_F(ReaderThreads, that_are_watched_are_all_told_once_that_their_claim_is_gone) {
    constexpr std::size_t readers = 8;
    Lock<Watchdog<Shared>> watched{client_, "config", {.lease = 5s}};
    std::array<std::atomic<int>, readers> told{};
    std::atomic<std::size_t> began{0};
    std::atomic<bool> over{false};
    std::vector<std::future<Release>> outcomes;
    for (std::atomic<int>& mine : told) {
        outcomes.push_back(in_background([&] {
            watched.lock_shared();
            const std::stop_callback lost{watched.lost(), [&mine] { ++mine; }};
            // Only a renewal can tell of the loss then, and not the end of validity.
            EXPECT_TRUE(succeeds(watched.extend(10min)));
            ++began;
            EXPECT_TRUE(eventually([&] { return over.load(); }, 3 * generous_limit));
            EXPECT_EQ(watched.state(), HoldState::lost);
            return watched.release_shared().value();
        }));
    }
    ASSERT_TRUE(eventually([&] { return began == readers; }));
    EXPECT_EQ(holders(), 1U);
    EXPECT_TRUE(std::ranges::all_of(told, [](const auto& times) { return times == 0; }));
    redis_.del("config");
    EXPECT_TRUE(eventually(
        [&] { return std::ranges::all_of(told, [](const auto& times) { return times > 0; }); }));
    EXPECT_TRUE(others_can_write());
    over = true;
    for (auto& outcome : outcomes) {
        ASSERT_TRUE(finishes(outcome));
        EXPECT_EQ(outcome.get(), Release::expired);
    }
    EXPECT_TRUE(std::ranges::all_of(told, [](const auto& times) { return times == 1; }));
    EXPECT_FALSE(redis_.exists("config"));
}

TEST_F(ReaderThreads, in_crowds_exclude_writers_and_leave_nothing) {
    std::atomic<int> readers{0};
    std::atomic<bool> writes{false};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
            Config& lock = i % 2 == 0 ? lock_ : other_;
            for (int round = 0; round < 150; ++round) {
                if (i < 2 && round % 10 == 0) {
                    const std::lock_guard writing{lock};
                    EXPECT_FALSE(writes.exchange(true));
                    EXPECT_EQ(readers, 0);
                    writes = false;
                } else {
                    const std::shared_lock reading{lock};
                    ++readers;
                    EXPECT_FALSE(writes);
                    --readers;
                }
            }
        });
    }
    threads.clear();
    EXPECT_TRUE(eventually([&] { return !lock_.inspect()->locked; }));
    EXPECT_TRUE(others_can_write());
}

TEST_F(ReaderThreads, have_fencing_tokens_of_the_last_writer) {
    Lock<Fenced<Shared>> store{client_, "store", {.lease = 60s}};
    auto writing = store.acquire();
    const std::uint64_t written = writing->fence();
    writing->release().value();
    const std::shared_lock reading{store};
    const auto beside = in_background([&] {
                            const std::shared_lock also{store};
                            return store.fence();
                        }).get();
    EXPECT_EQ(beside, written);
}

}  // namespace
}  // namespace redlatch::test
