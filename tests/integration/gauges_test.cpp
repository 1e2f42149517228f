// How many hold and how many wait, by the observer: whatever happens, each beginning has one end, so that the
// numbers never drift.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include <redlatch/lock_set.hpp>
#include <redlatch/metrics.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

class Numbers : public Observer {
public:
    void wait_began(const WaitBegan&) override { ++waits_begun; }
    void wait_ended(const WaitEnded& event) override {
        const std::lock_guard lock{mutex_};
        outcomes_.push_back(code_of(event.outcome));
        tries += event.tries;
        ++waits_ended;
    }
    void hold_began(const HoldBegan&) override { ++holds_begun; }
    void hold_ended(const HoldEnded&) override { ++holds_ended; }
    void acquired(const Acquired&) override { ++acquisitions; }
    void released(const Released& event) override {
        if (event.outcome && *event.outcome == Release::expired) ++expired;
        ++releases;
    }
    void lost(const Lost&) override { ++losses; }

    /// How the waits have ended.
    std::vector<Errc> outcomes() {
        const std::lock_guard lock{mutex_};
        return outcomes_;
    }

    std::atomic<int> waits_begun{0};
    std::atomic<int> waits_ended{0};
    std::atomic<int> holds_begun{0};
    std::atomic<int> holds_ended{0};
    std::atomic<int> acquisitions{0};
    std::atomic<int> releases{0};
    std::atomic<int> expired{0};  ///< of the releases
    std::atomic<int> losses{0};
    std::atomic<unsigned> tries{0};  ///< of waits that have ended

private:
    std::mutex mutex_;
    std::vector<Errc> outcomes_;
};

class GaugesTest : public ::testing::Test {
protected:
    /// With another timeout than that of patient clients where a test waits for its end.
    ClientOptions options(std::chrono::milliseconds timeout = 10s) const {
        ClientOptions options = patient(server_.uri());
        options.command_timeout = timeout;
        options.observer = numbers_;
        return options;
    }

    void TearDown() override {
        client_.reset();
        other_client_.reset();
        EXPECT_TRUE(hold_and_wait(0, 0)) << "something has no end";
    }

    testing::AssertionResult numbers_become(int holds, int ended, int waits, int waits_ended) {
        Numbers& n = *numbers_;
        if (eventually([&] {
                return n.holds_begun == holds && n.holds_ended == ended && n.waits_begun == waits &&
                       n.waits_ended == waits_ended;
            })) {
            return testing::AssertionSuccess();
        }
        return testing::AssertionFailure()
               << n.holds_begun << " holds of which " << n.holds_ended << " are over, "
               << n.waits_begun << " waits of which " << n.waits_ended << " are over";
    }
    /// Whether so many hold and wait, and nobody has before.
    testing::AssertionResult are(int holders, int waiters) {
        return numbers_become(holders, 0, waiters, 0);
    }
    /// Whether so many have, and nobody does any more.
    testing::AssertionResult had(int holds, int waits) {
        return numbers_become(holds, holds, waits, waits);
    }

    /// The same, however many have waited.
    bool had(int holds) {
        return eventually([&] {
            const Numbers& n = *numbers_;
            return n.holds_begun == holds && n.holds_ended == holds &&
                   n.waits_begun == n.waits_ended;
        });
    }

    /// Whether so many do now, however often somebody has before.
    bool hold_and_wait(int holders, int waiters) {
        return eventually([&] {
            const Numbers& n = *numbers_;
            return n.holds_begun - n.holds_ended == holders &&
                   n.waits_begun - n.waits_ended == waiters;
        });
    }

    RedisServer server_;
    RawRedis redis_{server_};
    std::shared_ptr<Numbers> numbers_ = std::make_shared<Numbers>();
    std::optional<Client> client_{options()};
    std::optional<Client> other_client_{options()};
};

TEST_F(GaugesTest, count_a_holder_and_who_waits_in_its_process) {
    Lock<> lock{*client_, "job"};
    lock.lock();
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] { const std::lock_guard guard{lock}; });
    }
    EXPECT_TRUE(are(1, 2));
    lock.unlock();
    threads.clear();
    EXPECT_TRUE(had(3, 2));
    EXPECT_EQ(numbers_->outcomes(), (std::vector<Errc>{Errc{}, Errc{}}));
}

TEST_F(GaugesTest, count_who_waits_for_another_process) {
    for (const WaitStrategy strategy : {WaitStrategy::queued, WaitStrategy::polling}) {
        const int before = numbers_->holds_begun;
        Lock<> theirs{*other_client_, "job"};
        Lock<> lock{*client_, "job", {.wait_strategy = strategy}};
        theirs.lock();
        std::jthread waiter{[&] { const std::lock_guard guard{lock}; }};
        EXPECT_TRUE(numbers_become(before + 1, before, before / 2 + 1, before / 2));
        theirs.unlock();
        waiter.join();
        EXPECT_TRUE(had(before + 2, before / 2 + 1));
    }
}

TEST_F(GaugesTest, count_nobody_who_tries_once) {
    Lock<> theirs{*other_client_, "job"};
    Lock<> lock{*client_, "job"};
    const Held held = theirs.acquire().value();
    EXPECT_FALSE(lock.try_lock());
    EXPECT_FALSE(on_another_thread([&] { return theirs.try_lock(); }));
    Outcome<Held> outcome;
    lock.async_acquire({.wait = 0ms}, {}, outcome.callback());
    EXPECT_EQ(code_of(outcome.get()), Errc::timed_out);
    EXPECT_TRUE(are(1, 0));
}

TEST_F(GaugesTest, count_nobody_who_tries_once_behind_another_one) {
    Lock<> lock{*client_, "job"};
    server_.freeze();
    std::vector<std::future<bool>> tries;
    for (int i = 0; i < 4; ++i) {
        tries.push_back(in_background([&lock] { return lock.acquire({.wait = 0ms}).has_value(); }));
    }
    EXPECT_TRUE(stays([&] { return numbers_->waits_begun == 0; }, 50ms));
    server_.thaw();
    for (auto& one : tries) ASSERT_TRUE(finishes(one));
    EXPECT_EQ(numbers_->waits_begun, 0);
}

TEST_F(GaugesTest, end_waits_that_get_nothing) {
    Lock<> theirs{*other_client_, "job"};
    Lock<> lock{*client_, "job"};
    const Held held = theirs.acquire().value();
    const auto last_outcome_is = [&](Errc code) {
        const auto outcomes = numbers_->outcomes();
        return !outcomes.empty() && outcomes.back() == code;
    };
    int calls = 0;
    for (Lock<>* const wanted : {&lock, &theirs}) {
        // On a busy machine the first answer may come too late to wait on, or the last one not at all.
        EXPECT_TRUE(eventually([&] {
            ++calls;
            EXPECT_FALSE(wanted->acquire({.wait = 30ms, .owner = Owner::hold}));
            return last_outcome_is(Errc::timed_out);
        }));
        EXPECT_TRUE(hold_and_wait(1, 0));
        std::stop_source stop;
        const int before = numbers_->waits_begun;
        ++calls;
        {
            std::jthread waiter{[&] {
                const AcquireOptions unlimited{.stop = stop.get_token(), .owner = Owner::hold};
                EXPECT_EQ(code_of(wanted->acquire(unlimited)), Errc::cancelled);
            }};
            EXPECT_TRUE(eventually([&] { return numbers_->waits_begun == before + 1; }));
            stop.request_stop();
        }
        EXPECT_TRUE(eventually([&] { return last_outcome_is(Errc::cancelled); }));
    }
    const std::vector<Errc> expected{Errc::timed_out, Errc::cancelled, Errc::timed_out,
                                     Errc::cancelled};
    EXPECT_TRUE(hold_and_wait(1, 0));
    EXPECT_LE(numbers_->waits_begun, calls);
    std::vector<Errc> outcomes = numbers_->outcomes();
    std::erase(outcomes, Errc::unavailable);
    outcomes.erase(std::unique(outcomes.begin(), outcomes.end()), outcomes.end());
    EXPECT_EQ(outcomes, expected);
}

TEST_F(GaugesTest, end_waits_for_a_server_that_does_not_answer) {
    Lock<> lock{*client_, "job"};
    server_.stop();
    EXPECT_EQ(code_of(lock.acquire({.wait = 1s})), Errc::unavailable);
    EXPECT_TRUE(had(0, 1));
    EXPECT_EQ(numbers_->outcomes(), std::vector<Errc>{Errc::unavailable});
}

TEST_F(GaugesTest, count_no_wait_that_is_refused) {
    redis_.set("data", "value");
    redis_.command({"RPUSH", "list", "value"});
    Lock<Reentrant> wrong{*client_, "list"};
    EXPECT_EQ(code_of(wrong.acquire()), Errc::wrong_type);
    Lock<> lock{*client_, "job"};
    lock.lock();
    EXPECT_EQ(code_of(lock.acquire()), Errc::deadlock);
    EXPECT_TRUE(are(1, 0));
}

TEST_F(GaugesTest, end_with_the_client) {
    Lock<> theirs{*other_client_, "theirs"};
    std::optional<Result<Held>> held = theirs.acquire();
    Lock<> mine{*client_, "mine"};
    Lock<> wanted{*client_, "theirs"};
    mine.lock();
    std::vector<std::jthread> threads;
    for (Lock<>* const lock : {&mine, &wanted, &wanted}) {
        threads.emplace_back([lock] { EXPECT_EQ(code_of(lock->acquire()), Errc::cancelled); });
    }
    Outcome<Held> behind_mine;
    Outcome<Held> behind_theirs;
    mine.async_acquire({}, {}, behind_mine.callback());
    wanted.async_acquire({}, {}, behind_theirs.callback());
    EXPECT_TRUE(are(2, 5));
    client_.reset();
    threads.clear();
    EXPECT_EQ(code_of(behind_mine.get()), Errc::cancelled);
    EXPECT_EQ(code_of(behind_theirs.get()), Errc::cancelled);
    EXPECT_TRUE(numbers_become(2, 1, 5, 5));
    held.reset();
    EXPECT_TRUE(had(2, 5));
}

class Hanging : public Numbers {
public:
    void acquired(const Acquired&) override { is_open.wait(false); }

    std::atomic<bool> is_open{false};
};

TEST_F(GaugesTest, are_in_pairs_also_where_the_observer_hangs_for_longer_than_its_client_lives) {
    const auto hanging = std::make_shared<Hanging>();
    constexpr int rounds = 50;
    {
        Client client{{.uris = {server_.uri()}, .command_timeout = 200ms, .observer = hanging}};
        Lock<Simple> lock{client, "job"};
        for (int i = 0; i < rounds; ++i) const std::lock_guard guard{lock};
    }
    hanging->is_open = true;
    hanging->is_open.notify_all();
    ASSERT_TRUE(eventually([&] { return hanging.use_count() == 1; }));
    EXPECT_LT(hanging->holds_begun, rounds) << "most are dropped";
    EXPECT_EQ(hanging->holds_ended, hanging->holds_begun);
}

/// As `Metrics` where there is no memory for a label.
class Failing : public Numbers {
public:
    void hold_began(const HoldBegan& event) override {
        if (fails) throw std::bad_alloc{};
        Numbers::hold_began(event);
    }

    std::atomic<bool> fails{true};
};

TEST_F(GaugesTest, end_nothing_of_which_the_observer_could_not_take_the_beginning) {
    const auto failing = std::make_shared<Failing>();
    ClientOptions with_failing = options();
    with_failing.observer = failing;
    Client client{with_failing};
    Lock<Simple> lock{client, "job"};
    lock.lock();
    EXPECT_TRUE(eventually([&] { return failing->acquisitions == 1; }));
    lock.unlock();
    EXPECT_TRUE(eventually([&] { return failing->releases == 1; }));
    EXPECT_EQ(failing->holds_ended, 0);
    failing->fails = false;
    lock.lock();
    lock.unlock();
    EXPECT_TRUE(eventually([&] { return failing->holds_ended == 1; }));
}

TEST_F(GaugesTest, follow_a_lock_from_thread_to_thread) {
    constexpr int threads = 4;
    constexpr int rounds = 50;
    for (const ReleaseMode mode : {ReleaseMode::confirmed, ReleaseMode::sent}) {
        std::vector<std::jthread> all;
        for (Client* const client : {&*client_, &*client_, &*other_client_, &*other_client_}) {
            all.emplace_back([client, mode] {
                Lock<> lock{*client, "job", {.release_mode = mode}};
                for (int i = 0; i < rounds; ++i) {
                    const std::lock_guard guard{lock};
                }
            });
        }
    }
    EXPECT_TRUE(eventually([&] { return numbers_->holds_ended == 2 * threads * rounds; }));
    EXPECT_TRUE(had(2 * threads * rounds));
    EXPECT_TRUE(eventually([&] { return numbers_->releases == 2 * threads * rounds; }));
}

TEST_F(GaugesTest, follow_a_fenced_lock_from_thread_to_thread) {
    Lock<Watchdog<Fenced<Reentrant>>> lock{*client_, "job"};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 25; ++i) {
                const std::lock_guard guard{lock};
                const std::lock_guard nested{lock};
            }
        });
    }
    threads.clear();
    EXPECT_TRUE(had(100));
    EXPECT_TRUE(eventually([&] { return numbers_->acquisitions == 200; }));
}

TEST_F(GaugesTest, count_a_nest_as_one) {
    Lock<Reentrant> lock{*client_, "job"};
    lock.lock();
    lock.lock();
    Held outer = lock.acquire().value();
    Held inner = outer.nest().value();
    Outcome<Held> outcome;
    outer.async_nest(outcome.callback());
    std::optional<Held> last = outcome.get().value();
    EXPECT_TRUE(are(1, 0));
    EXPECT_EQ(outer.release().value(), Release::still_held);
    lock.unlock();
    lock.unlock();
    EXPECT_EQ(inner.release().value(), Release::still_held);
    EXPECT_TRUE(are(1, 0));
    last.reset();
    EXPECT_TRUE(had(1, 0));
}

TEST_F(GaugesTest, end_a_hold_with_a_nested_one_that_fails) {
    client_.emplace(options(2s));
    Lock<Reentrant> lock{*client_, "job"};
    Held outer = take(lock);
    server_.freeze();
    Outcome<Held> nested;
    Outcome<Release> released;
    outer.async_nest(nested.callback());
    outer.async_release(released.callback());
    EXPECT_EQ(code_of(nested.get()), Errc::unavailable);
    static_cast<void>(released.get());
    server_.thaw();
    EXPECT_TRUE(had(1));
}

TEST_F(GaugesTest, end_a_nest_that_is_lost_once) {
    Lock<Reentrant> lock{*client_, "job"};
    lock.lock();
    lock.lock();
    redis_.del("job");
    EXPECT_EQ(code_of(lock.acquire({.wait = 0ms})), Errc::lost);
    EXPECT_TRUE(had(1, 0));
    lock.unlock();
    lock.unlock();
    EXPECT_TRUE(eventually([&] { return numbers_->releases == 2; }));
    EXPECT_TRUE(had(1, 0));
}

TEST_F(GaugesTest, end_what_is_lost) {
    Lock<> watched{*client_, "watched", {.lease = 300ms}};
    Lock<Simple> fixed{*client_, "fixed", {.lease = 300ms}};
    Lock<Simple> removed{*client_, "removed"};
    Lock<Simple> forced{*client_, "forced"};
    for (auto* const lock : {&fixed, &removed, &forced}) lock->lock();
    watched.lock();
    redis_.del("watched");
    EXPECT_TRUE(numbers_become(4, 2, 0, 0)) << "one is gone, one has run out";
    EXPECT_TRUE(forced.force_unlock());
    forced.unlock();
    EXPECT_TRUE(numbers_become(4, 3, 0, 0));
    EXPECT_TRUE(eventually([&] { return numbers_->losses == 3; }));
    redis_.del("removed");
    removed.unlock();
    EXPECT_TRUE(had(4, 0)) << "an expired one that nobody had noticed";
    watched.unlock();
    fixed.unlock();
    EXPECT_TRUE(eventually([&] { return numbers_->releases == 4; }));
    EXPECT_TRUE(had(4, 0));
    EXPECT_EQ(numbers_->losses, 3);
}

TEST_F(GaugesTest, end_a_release_that_gets_no_answer) {
    client_.emplace(options(2s));
    for (const ReleaseMode mode : {ReleaseMode::confirmed, ReleaseMode::sent}) {
        Lock<> lock{*client_, "job", {.release_mode = mode}};
        const int before = numbers_->holds_begun;
        ASSERT_TRUE(lock.try_lock_for(10s));
        server_.stop();
        lock.unlock();
        EXPECT_TRUE(eventually([&] { return numbers_->holds_ended == before + 1; }));
        server_.start();
    }
    EXPECT_TRUE(had(2));
}

TEST_F(GaugesTest, give_a_waiter_what_its_holder_has_lost) {
    Lock<Simple> lock{*client_, "job"};
    const Held forgotten = lock.acquire({.lease = 3s, .owner = Owner::hold}).value();
    EXPECT_TRUE(lock.try_lock_for(generous_limit));
    EXPECT_TRUE(numbers_become(2, 1, 1, 1));
    lock.unlock();
    EXPECT_TRUE(had(2, 1));
}

TEST_F(GaugesTest, count_readers_and_writers) {
    Lock<Shared> lock{*client_, "book"};
    std::optional<Held> writer = lock.acquire({.owner = Owner::hold}).value();
    std::vector<std::jthread> readers;
    std::atomic<bool> go_on{false};
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] {
            const std::shared_lock reading{lock};
            const std::shared_lock nested{lock};
            EXPECT_TRUE(eventually([&] { return go_on.load(); }));
        });
    }
    EXPECT_TRUE(are(1, 3));
    EXPECT_TRUE(writer->downgrade());
    EXPECT_TRUE(numbers_become(4, 0, 3, 3));
    std::jthread next{[&] { const std::lock_guard writing{lock}; }};
    EXPECT_TRUE(numbers_become(4, 0, 4, 3));
    writer.reset();
    EXPECT_TRUE(numbers_become(4, 1, 4, 3));
    go_on = true;
    readers.clear();
    next.join();
    EXPECT_TRUE(had(5, 4));
}

TEST_F(GaugesTest, count_who_has_permits) {
    Semaphore<> permits{*client_, "gpus", 3};
    std::optional<Held> two = permits.take({.permits = 2}).value();
    permits.acquire();
    std::jthread waiter{[&] { EXPECT_TRUE(permits.take({.permits = 2}).has_value()); }};
    EXPECT_TRUE(are(2, 1));
    Outcome<Held> outcome;
    permits.async_take({.wait = 1s}, {}, outcome.callback());
    EXPECT_TRUE(was_in_vain(outcome.get()));
    EXPECT_TRUE(numbers_become(2, 0, 2, 1)) << "not how many permits";
    EXPECT_EQ(permits.release().value(), Release::released);
    two.reset();
    waiter.join();
    EXPECT_TRUE(had(3, 2));
}

TEST_F(GaugesTest, count_each_lock_of_a_set) {
    LockSet<> set{*client_, {"a", "b", "c"}};
    auto held = set.acquire();
    ASSERT_TRUE(held);
    EXPECT_TRUE(are(3, 0));
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_TRUE(had(3, 0));
    Outcome<HeldSet> outcome;
    set.async_acquire({}, {}, outcome.callback());
    std::optional<HeldSet> other = outcome.get().value();
    EXPECT_TRUE(numbers_become(6, 3, 0, 0));
    other.reset();
    EXPECT_TRUE(had(6, 0));
}

TEST_F(GaugesTest, end_what_a_set_gives_back) {
    Lock<> theirs{*other_client_, "c"};
    const Held held = theirs.acquire().value();
    LockSet<> set{*client_, {"a", "b", "c"}};
    EXPECT_EQ(code_of(set.acquire({.wait = 0ms})), Errc::timed_out);
    EXPECT_TRUE(numbers_become(3, 2, 0, 0));
    // What it gives back is released in the background: it may have to wait for that.
    EXPECT_TRUE(times_out([&] { return set.acquire({.wait = 50ms}); }));
    EXPECT_TRUE(hold_and_wait(1, 0));
    EXPECT_TRUE(times_out([&] {
        Outcome<HeldSet> outcome;
        set.async_acquire({.wait = 50ms}, {}, outcome.callback());
        return outcome.get();
    }));
    EXPECT_TRUE(hold_and_wait(1, 0));
    EXPECT_TRUE(eventually([&] { return numbers_->releases == numbers_->holds_begun - 1; }));
}

TEST_F(GaugesTest, leave_alone_what_a_set_was_nested_in) {
    Lock<> theirs{*other_client_, "b"};
    const Held held = theirs.acquire().value();
    Lock<Reentrant> outer{*client_, "a"};
    LockSet<Reentrant> set{*client_, {"a", "b"}};
    outer.lock();
    EXPECT_EQ(code_of(set.acquire({.wait = 0ms})), Errc::wrong_type) << "of the other one";
    EXPECT_TRUE(are(2, 0));
    EXPECT_TRUE(eventually([&] { return numbers_->releases == 1; }));
    outer.unlock();
    EXPECT_TRUE(numbers_become(2, 1, 0, 0));
}

TEST_F(GaugesTest, follow_a_ticket) {
    Lock<> lock{*client_, "job"};
    Lock<> theirs{*other_client_, "job"};
    const Ticket ticket = lock.acquire()->detach().value();
    EXPECT_TRUE(had(1, 0)) << "nobody holds it";
    auto adopted = theirs.adopt(ticket);
    EXPECT_TRUE(numbers_become(2, 1, 0, 0));
    EXPECT_EQ(code_of(lock.adopt(ticket)), Errc::lost);
    EXPECT_EQ(adopted->release().value(), Release::released);
    EXPECT_TRUE(had(2, 0));
    Held gone = lock.acquire().value();
    redis_.del("job");
    EXPECT_EQ(code_of(gone.detach()), Errc::lost);
    EXPECT_TRUE(had(3, 0));
}

TEST_F(GaugesTest, end_a_hold_whose_place_another_one_takes) {
    for (const bool released : {true, false}) {
        const int before = numbers_->holds_begun;
        std::optional<Client> client{options()};
        Lock<Simple> theirs{*other_client_, "job"};
        Lock<Simple> lock{*client, "job"};
        Lock<Simple> polling{*client, "job", {.wait_strategy = WaitStrategy::polling}};
        std::optional<Held> held = theirs.acquire().value();
        Outcome<Held> outcome;
        polling.async_acquire({}, {}, outcome.callback());
        EXPECT_TRUE(eventually([&] { return numbers_->waits_ended + 1 == numbers_->waits_begun; }));
        Held adopted = lock.adopt(held->detach().value(), Owner::hold).value();
        redis_.del("job");
        Held next = outcome.get().value();
        EXPECT_TRUE(eventually([&] { return numbers_->holds_ended == before + 1; }));
        if (released) {
            EXPECT_EQ(adopted.release().value(), Release::expired);
            EXPECT_TRUE(eventually([&] { return numbers_->holds_ended == before + 2; }));
        }
        client.reset();
        EXPECT_TRUE(eventually([&] { return numbers_->holds_ended == before + 3; }));
    }
    EXPECT_TRUE(had(6, 2));
}

TEST_F(GaugesTest, count_what_waits_without_a_thread) {
    Lock<> lock{*client_, "job"};
    Lock<> theirs{*other_client_, "job"};
    Held held = take(lock);
    Outcome<Held> behind;
    Outcome<Held> at_server;
    lock.async_acquire({}, {}, behind.callback());
    theirs.async_acquire({}, {}, at_server.callback());
    EXPECT_TRUE(are(1, 2));
    Outcome<Release> released;
    held.async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    { const Result<Held> next = behind.get(); }
    { const Result<Held> next = at_server.get(); }
    EXPECT_TRUE(had(3, 2));
}

TEST_F(GaugesTest, end_what_nobody_takes) {
    Lock<Simple> lock{*client_, "job", {.lease = 200ms}};
    Loop loop;
    Outcome<Held> late;
    lock.async_acquire({}, {}, late.callback(), &loop);
    EXPECT_TRUE(had(1, 0)) << "it has run out";
    ASSERT_TRUE(loop.run_until([&] { return late.is_there(); }));
    EXPECT_EQ(code_of(late.get()), Errc::lost);
    Outcome<Held> never;
    Outcome<Held> waits;
    {
        Loop discarded;
        lock.async_acquire({}, {}, never.callback(), &discarded);
        EXPECT_TRUE(eventually([&] { return numbers_->holds_begun == 2; }));
        lock.async_acquire({}, {}, waits.callback(), &discarded);
    }
    EXPECT_TRUE(lock.try_lock_for(10s));
    lock.unlock();
    EXPECT_TRUE(eventually([&] { return numbers_->holds_ended == numbers_->holds_begun; }));
}

TEST_F(GaugesTest, end_what_is_not_delivered_by_the_close) {
    Loop loop;
    Lock<> lock{*client_, "job"};
    LockSet<> set{*client_, {"a", "b"}};
    Outcome<Held> one;
    Outcome<HeldSet> two;
    lock.async_acquire({}, {}, one.callback(), &loop);
    set.async_acquire({}, {}, two.callback(), &loop);
    EXPECT_TRUE(are(3, 0));
    client_.reset();
    EXPECT_TRUE(had(3, 0));
    ASSERT_TRUE(loop.run_until([&] { return one.is_there() && two.is_there(); }));
    EXPECT_EQ(code_of(one.get()), Errc::cancelled);
    EXPECT_TRUE(had(3, 0));
}

TEST_F(GaugesTest, count_no_loss_and_no_expiry_of_what_nobody_has_had) {
    Loop stalls;
    Lock<Simple> lock{*client_, "job", {.lease = 100ms}};
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback(), &stalls);
    EXPECT_TRUE(eventually([&] { return numbers_->holds_begun == 1; }));
    EXPECT_TRUE(eventually([&] { return !lock.inspect().value().locked; }));
    ASSERT_TRUE(stalls.run_until([&] { return outcome.is_there(); }));
    EXPECT_EQ(code_of(outcome.get()), Errc::lost);
    client_.reset();  // what it had to tell is told
    EXPECT_TRUE(had(1));
    EXPECT_EQ(numbers_->losses, 0);
    EXPECT_EQ(numbers_->releases, 0);
}

TEST_F(GaugesTest, count_no_expiry_of_what_a_set_loses_while_it_waits) {
    Lock<> theirs{*other_client_, "b"};
    LockSet<> set{*client_, {"a", "b"}};
    for (const bool blocks : {true, false}) {
        const int before = numbers_->holds_begun;
        std::optional<Held> held = theirs.acquire().value();
        Outcome<HeldSet> outcome;
        std::jthread waiter;
        if (blocks) {
            waiter = std::jthread{[&] { outcome.callback()(set.acquire()); }};
        } else {
            set.async_acquire({}, {}, outcome.callback());
        }
        EXPECT_TRUE(hold_and_wait(2, 1));
        EXPECT_TRUE(Lock<>(*client_, "a").force_unlock());
        EXPECT_TRUE(eventually([&] { return numbers_->holds_begun == before + 3; }))
            << "it takes that one anew";
        held.reset();
        EXPECT_TRUE(outcome.get());
    }
    client_.reset();  // what it had to tell is told
    EXPECT_EQ(numbers_->expired, 0);
    EXPECT_EQ(numbers_->losses, 0);
}

TEST_F(GaugesTest, count_the_tries_of_a_wait_that_is_cancelled) {
    const Held theirs = Lock<Simple>{*other_client_, "job"}.acquire().value();
    Lock<Simple> lock{*client_, "job", {.wait_strategy = WaitStrategy::polling}};
    std::stop_source stop;
    auto waits = in_background([&] { return code_of(lock.acquire({.stop = stop.get_token()})); });
    ASSERT_TRUE(hold_and_wait(1, 1));
    stop.request_stop();
    EXPECT_EQ(waits.get(), Errc::cancelled);
    EXPECT_TRUE(eventually([&] { return numbers_->tries > 0; }));
}

TEST_F(GaugesTest, end_tries_that_are_stopped_anywhere) {
    Lock<> lock{*client_, "job"};
    Lock<> theirs{*other_client_, "job"};
    for (int i = 0; i < 60; ++i) {
        std::stop_source stop;
        Outcome<Held> ours;
        Outcome<Held> others;
        lock.async_acquire({}, stop.get_token(), ours.callback());
        theirs.async_acquire({}, stop.get_token(), others.callback());
        std::jthread blocking{[&] { static_cast<void>(lock.acquire({.stop = stop.get_token()})); }};
        std::this_thread::sleep_for((i % 10) * 50us);
        stop.request_stop();
        static_cast<void>(ours.get());
        static_cast<void>(others.get());
    }
    EXPECT_TRUE(lock.try_lock_for(10s));
    lock.unlock();
    EXPECT_TRUE(hold_and_wait(0, 0));
}

TEST_F(GaugesTest, count_where_several_masters_decide) {
    RedisServer second;
    RedisServer third;
    ClientOptions shared = options();
    shared.uris = {server_.uri(), second.uri(), third.uri()};
    shared.node_timeout = 10s;
    shared.longest_lease = 0ms;  // for so long a master has no vote after its start
    Client quorum{shared};
    Client other{shared};
    Lock<Watchdog<Fenced<Simple>>> lock{quorum, "job"};
    Lock<Watchdog<Fenced<Simple>>> theirs{other, "job"};
    lock.lock();
    EXPECT_FALSE(theirs.acquire({.wait = 100ms}));
    EXPECT_TRUE(hold_and_wait(1, 0));
    std::jthread waiter{[&] { const std::lock_guard guard{theirs}; }};
    EXPECT_TRUE(hold_and_wait(1, 1));
    lock.unlock();
    waiter.join();
    EXPECT_TRUE(hold_and_wait(0, 0));
    EXPECT_TRUE(had(2));
}

TEST_F(GaugesTest, are_what_metrics_print) {
    const auto metrics = std::make_shared<Metrics>();
    const auto prints = [&](const std::string& line) {
        return eventually(
            [&] { return metrics->prometheus().find("\n" + line + "\n") != std::string::npos; });
    };
    {
        ClientOptions with_metrics = options();
        with_metrics.observer = metrics;
        Client client{with_metrics};
        Lock<Simple> lock{client, "job"};
        lock.lock();
        std::jthread waiter{[&] { const std::lock_guard guard{lock}; }};
        EXPECT_TRUE(prints("redlatch_held 1"));
        EXPECT_TRUE(prints("redlatch_waiting 1"));
        redis_.del("job");
        lock.unlock();
        waiter.join();
        EXPECT_TRUE(prints("redlatch_hold_seconds_count 2")) << "also one that had expired";
    }
    EXPECT_TRUE(prints("redlatch_held 0"));
    EXPECT_TRUE(prints("redlatch_waiting 0"));
}

}  // namespace
}  // namespace redlatch::test
