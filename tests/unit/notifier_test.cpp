#include "service_tools.hpp"
#include "support/no_more_threads.hpp"
#include "support/resources.hpp"
#include "support/wait.hpp"
#include <redlatch/service/notifier.hpp>

#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::CallbackThreads;
using detail::Hold;
using detail::Notifier;
using detail::Phase;
using detail::TimePoint;

/// Where callbacks wait until the test lets them go. Shared: a callback may outlive its test.
class Barrier {
public:
    void arrive_and_wait() {
        std::unique_lock lock{mutex_};
        ++arrived_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    bool wait_for_arrivals(int n, std::chrono::milliseconds limit = generous_limit) {
        std::unique_lock lock{mutex_};
        return changed_.wait_for(lock, limit, [&] { return arrived_ >= n; });
    }
    void open() {
        const std::lock_guard lock{mutex_};
        open_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int arrived_ = 0;
    bool open_ = false;
};

/// The holds that were declared run out, with the time of it.
class Losses {
public:
    Notifier::OnExpiry recorder() {
        return [this](const std::shared_ptr<Hold>& hold) {
            const std::lock_guard lock{mutex_};
            entries_.push_back({hold, Clock::now()});
        };
    }
    struct Entry {
        std::shared_ptr<Hold> hold;
        TimePoint at;
    };
    std::vector<Entry> entries() {
        const std::lock_guard lock{mutex_};
        return entries_;
    }
    bool wait_for(std::size_t n) {
        return eventually([this, n] { return entries().size() >= n; });
    }
    bool has(const std::shared_ptr<Hold>& hold) {
        const auto all = entries();
        return std::any_of(all.begin(), all.end(),
                           [&hold](const Entry& entry) { return entry.hold == hold; });
    }

private:
    std::mutex mutex_;
    std::vector<Entry> entries_;
};

void nobody(const std::shared_ptr<Hold>&) {}

TEST(Notifier, unused_does_nothing) {
    Notifier notifier{nobody};
}

TEST(Notifier, runs_a_callback_on_another_thread) {
    Notifier notifier{nobody};
    std::atomic<bool> elsewhere{false};
    const auto here = std::this_thread::get_id();
    notifier.post([&] { elsewhere = std::this_thread::get_id() != here; });
    EXPECT_TRUE(eventually([&] { return elsewhere.load(); }));
    notifier.close(generous_limit);
}

TEST(Notifier, runs_callbacks_in_order) {
    // "As a rule": a callback that loses the processor for 10 ms may be overtaken. One undisturbed
    // run shows the rule.
    std::vector<int> expected(200);
    std::iota(expected.begin(), expected.end(), 0);
    std::vector<int> order;
    for (int attempt = 0; attempt < 20 && order != expected; ++attempt) {
        order.clear();
        std::mutex mutex;
        Notifier notifier{nobody};
        for (const int i : expected) {
            notifier.post([&, i] {
                const std::lock_guard lock{mutex};
                order.push_back(i);
            });
        }
        notifier.close(generous_limit);
    }
    EXPECT_EQ(order, expected);
}

TEST(Notifier, blocking_callback_does_not_hold_up_a_hundred_others) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    std::atomic<int> done{0};
    notifier.post([barrier] { barrier->arrive_and_wait(); });
    for (int i = 0; i < 100; ++i) notifier.post([&done] { ++done; });
    EXPECT_TRUE(eventually([&] { return done == 100; }));
    barrier->open();
    notifier.close(generous_limit);
}

TEST(Notifier, seven_blocking_callbacks_do_not_hold_up_the_others) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    std::atomic<int> done{0};
    for (int i = 0; i < 7; ++i) {
        notifier.post([barrier] { barrier->arrive_and_wait(); });
        notifier.post([&done] { ++done; });
    }
    EXPECT_TRUE(barrier->wait_for_arrivals(7));
    EXPECT_TRUE(eventually([&] { return done == 7; }));
    barrier->open();
    notifier.close(generous_limit);
}

TEST(Notifier, goes_on_when_all_eight_threads_were_blocked) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    std::atomic<int> done{0};
    for (int i = 0; i < 8; ++i) {
        notifier.post([barrier] { barrier->arrive_and_wait(); });
    }
    EXPECT_TRUE(barrier->wait_for_arrivals(8));
    for (int i = 0; i < 100; ++i) notifier.post([&done] { ++done; });
    barrier->open();
    EXPECT_TRUE(eventually([&] { return done == 100; }));
    notifier.close(generous_limit);
}

TEST(Notifier, survives_what_callbacks_throw) {
    Notifier notifier{nobody};
    std::atomic<int> done{0};
    for (int i = 0; i < 10; ++i) {
        notifier.post([] { throw std::runtime_error{"a user's mistake"}; });
        notifier.post([] { throw 7; });
        notifier.post([&done] { ++done; });
    }
    EXPECT_TRUE(eventually([&] { return done == 10; }));
    notifier.close(generous_limit);
}

TEST(Notifier, callback_may_post_another) {
    Notifier notifier{nobody};
    std::atomic<bool> done{false};
    notifier.post([&] { notifier.post([&done] { done = true; }); });
    EXPECT_TRUE(eventually([&] { return done.load(); }));
    notifier.close(generous_limit);
}

TEST(Notifier, callbacks_take_no_signals) {
    Notifier notifier{nobody};
    std::atomic<int> blocked{-1};
    notifier.post([&blocked] {
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1 ? 1 : 0;
    });
    EXPECT_TRUE(eventually([&] { return blocked != -1; }));
    EXPECT_EQ(blocked, 1);
    notifier.close(generous_limit);

    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    EXPECT_EQ(sigismember(&mine, SIGTERM), 0) << "the caller's own mask is as it was";
}

TEST(Notifier, callback_is_destroyed_after_it_ran) {
    Notifier notifier{nobody};
    auto token = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = token;
    notifier.post([token = std::move(token)] {});
    EXPECT_TRUE(eventually([&] { return watch.expired(); }));
    notifier.close(generous_limit);
}

TEST(Notifier, close_lets_what_was_posted_run) {
    std::atomic<int> done{0};
    Notifier notifier{nobody};
    for (int i = 0; i < 1000; ++i) notifier.post([&done] { ++done; });
    notifier.close(generous_limit);
    EXPECT_EQ(done, 1000);
}

TEST(Notifier, close_waits_no_longer_than_its_bound) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    notifier.post([barrier] { barrier->arrive_and_wait(); });
    ASSERT_TRUE(barrier->wait_for_arrivals(1));
    const Stopwatch watch;
    notifier.close(50ms);
    EXPECT_GE(watch.elapsed(), 50ms);
    EXPECT_LT(watch.elapsed(), 10s);
    barrier->open();
}

TEST(Notifier, close_runs_what_stands_behind_a_callback_that_hangs) {
    const auto barrier = std::make_shared<Barrier>();
    const auto done = std::make_shared<std::atomic<int>>(0);
    for (int attempt = 0; attempt < 5; ++attempt) {
        Notifier notifier{nobody};
        notifier.post([barrier] { barrier->arrive_and_wait(); });
        notifier.post([done] { ++*done; });
        notifier.close(200ms);
        EXPECT_TRUE(eventually([&] { return *done == attempt + 1; }))
            << "a loss must be told even if an observer hangs";
        if (HasFailure()) break;
    }
    barrier->open();
}

TEST(Notifier, closed_takes_nothing_more) {
    Notifier notifier{nobody};
    notifier.close(1s);
    std::atomic<bool> ran{false};
    notifier.post([&ran] { ran = true; });
    notifier.watch(run_out_hold());
    notifier.close(1s);
    EXPECT_FALSE(ran);
}

TEST(Notifier, close_from_a_callback_does_not_wait_for_it) {
    Notifier notifier{nobody};
    std::atomic<bool> closed{false};
    notifier.post([&] {
        notifier.close(24h);
        closed = true;
    });
    EXPECT_TRUE(eventually([&] { return closed.load(); }));
}

TEST(Notifier, drops_what_it_may_when_too_much_waits) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    for (int i = 0; i < 8; ++i) {
        notifier.post([barrier] { barrier->arrive_and_wait(); });
    }
    ASSERT_TRUE(barrier->wait_for_arrivals(8));
    std::atomic<int> events{0};
    std::atomic<int> losses{0};
    for (int i = 0; i < 100'010; ++i) {
        notifier.post([&events] { ++events; });
    }
    notifier.post_loss([&losses] { ++losses; });
    barrier->open();
    notifier.close(60s);
    EXPECT_EQ(events, 100'000);
    EXPECT_EQ(losses, 1);
}

TEST(Notifier, drops_nothing_that_is_certain) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    for (int i = 0; i < 8; ++i) notifier.post([barrier] { barrier->arrive_and_wait(); });
    ASSERT_TRUE(barrier->wait_for_arrivals(8));
    while (notifier.post([] {})) {
    }
    const auto told = std::make_shared<std::atomic<int>>(0);
    notifier.post_certainly([told] { ++*told; });
    EXPECT_FALSE(notifier.post([told] { ++*told; }));
    notifier.close(0ms);
    notifier.post_certainly([told] { ++*told; });
    EXPECT_FALSE(notifier.post([told] { ++*told; }));
    EXPECT_EQ(*told, 0) << "all its threads are blocked";
    barrier->open();
    EXPECT_TRUE(eventually([&] { return *told == 2; }));
}

TEST(Notifier, tells_after_its_end_what_is_certain) {
    const auto told = std::make_shared<std::atomic<int>>(0);
    Notifier notifier{nobody};
    notifier.post([told] { ++*told; });
    notifier.close(generous_limit);
    EXPECT_EQ(*told, 1);
    notifier.post_certainly([told] { ++*told; });
    EXPECT_TRUE(eventually([&] { return *told == 2; }));
}

TEST(Notifier, tells_of_a_loss_though_all_threads_for_events_are_blocked) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    for (int i = 0; i < 8; ++i) notifier.post([barrier] { barrier->arrive_and_wait(); });
    ASSERT_TRUE(barrier->wait_for_arrivals(8));
    std::atomic<bool> told{false};
    notifier.post_loss([&told] { told = true; });
    EXPECT_TRUE(eventually([&] { return told.load(); }));
    barrier->open();
    notifier.close(generous_limit);
}

TEST(Notifier, tells_of_a_loss_before_a_backlog_of_slow_events) {
    const auto events = std::make_shared<std::atomic<int>>(0);
    std::atomic<int> events_before{-1};
    Notifier notifier{nobody};
    for (int i = 0; i < 50'000; ++i) {
        notifier.post([events] {
            std::this_thread::sleep_for(2ms);
            ++*events;
        });
    }
    notifier.post_loss([&] { events_before = events->load(); });
    ASSERT_TRUE(eventually([&] { return events_before >= 0; }));
    EXPECT_LT(events_before, 50'000);
}

TEST(Notifier, tells_of_each_loss_though_those_who_hear_of_the_others_hang) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    constexpr int many = 60;
    for (int i = 0; i < many; ++i) notifier.post_loss([barrier] { barrier->arrive_and_wait(); });
    EXPECT_TRUE(barrier->wait_for_arrivals(many));
    std::atomic<bool> told{false};
    notifier.post_loss([&told] { told = true; });
    EXPECT_TRUE(eventually([&] { return told.load(); }));
    barrier->open();
    notifier.close(generous_limit);
}

TEST(Notifier, keeps_one_thread_for_the_next_loss) {
    std::thread{[] {}}.join();  // with the first one, ThreadSanitizer starts one of its own
    Notifier notifier{nobody};
    const auto before = running_threads();
    const auto barrier = std::make_shared<Barrier>();
    for (int i = 0; i < 20; ++i) notifier.post_loss([barrier] { barrier->arrive_and_wait(); });
    ASSERT_TRUE(barrier->wait_for_arrivals(20));
    barrier->open();
    EXPECT_TRUE(eventually([&] { return running_threads() <= before + 2; })) << "and its own";
    notifier.close(generous_limit);
}

TEST(CallbackThreads, are_one_in_the_end_though_more_were_started_than_there_were_tasks_for) {
    std::thread{[] {}}.join();  // as above
    constexpr int many = 16;
    const auto threads = std::make_shared<CallbackThreads>(CallbackThreads::Kind::losses);
    const auto before = running_threads();
    const auto barrier = std::make_shared<Barrier>();
    TimePoint now = Clock::now();
    const auto post = [&](const CallbackThreads::Task& task) {
        for (int i = 0; i < many; ++i) EXPECT_TRUE(threads->post(task));
    };
    post([barrier] { barrier->arrive_and_wait(); });
    EXPECT_TRUE(eventually([&] {
        now += 1h;
        static_cast<void>(CallbackThreads::supervise(threads, now));
        return barrier->wait_for_arrivals(many, 10ms);
    }));
    post([] {});
    static_cast<void>(CallbackThreads::supervise(threads, now + 1h));  // as many threads again
    barrier->open();
    EXPECT_TRUE(eventually([&] { return running_threads() <= before + 1; }));
    threads->begin_to_close();
    EXPECT_TRUE(threads->wait_until_done(generous_limit));
}

TEST(Notifier, close_tells_of_every_loss_though_those_who_hear_hang) {
    const auto barrier = std::make_shared<Barrier>();
    constexpr int many = 20;
    {
        Notifier notifier{nobody};
        for (int i = 0; i < many; ++i) {
            notifier.post_loss([barrier] { barrier->arrive_and_wait(); });
        }
        notifier.close(0ms);
    }
    EXPECT_TRUE(barrier->wait_for_arrivals(many));
    barrier->open();
}

TEST(Notifier, closed_still_tells_of_a_loss) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    notifier.close(generous_limit);
    for (int i = 0; i < 3; ++i) notifier.post_loss([barrier] { barrier->arrive_and_wait(); });
    EXPECT_TRUE(barrier->wait_for_arrivals(3));
    barrier->open();
}

TEST(Notifier, tells_of_a_loss_though_the_system_has_no_thread_left) {
    Notifier notifier{nobody};
    notifier.prepare_for_loss();
    const NoMoreThreads none;
    for (int i = 0; i < 3; ++i) {
        std::atomic<bool> told{false};
        notifier.post_loss([&told] { told = true; });
        EXPECT_TRUE(eventually([&] { return told.load(); }));
    }
}

TEST(Notifier, tells_of_a_loss_as_soon_as_the_system_has_a_thread_again) {
    const auto barrier = std::make_shared<Barrier>();
    Notifier notifier{nobody};
    notifier.post_loss([barrier] { barrier->arrive_and_wait(); });
    ASSERT_TRUE(barrier->wait_for_arrivals(1));
    std::optional<NoMoreThreads> none{std::in_place};
    // Where the first thread was slow to wake, there is a second one, which waits for a loss.
    int losses = 1;
    do {
        notifier.post_loss([barrier] { barrier->arrive_and_wait(); });
        ++losses;
    } while (losses < 8 && barrier->wait_for_arrivals(losses, 100ms));
    EXPECT_FALSE(barrier->wait_for_arrivals(losses, 100ms));
    none.reset();
    EXPECT_TRUE(barrier->wait_for_arrivals(losses));
    barrier->open();
    notifier.close(generous_limit);
}

TEST(Notifier, watches_from_the_first_call_on_that_gets_a_thread) {
    Losses losses;
    Notifier notifier{losses.recorder()};
    const auto hold = taken_hold({.lease = 40ms});
    {
        const NoMoreThreads none;
        notifier.watch(hold);
        notifier.watch_on();
    }
    notifier.watch_on();
    ASSERT_TRUE(losses.wait_for(1));
    EXPECT_EQ(losses.entries()[0].hold, hold);
}

TEST(Notifier, tells_when_validity_ends) {
    Losses losses;
    Notifier notifier{losses.recorder()};
    const auto hold = taken_hold({.lease = 40ms});
    notifier.watch(hold);
    ASSERT_TRUE(losses.wait_for(1));
    EXPECT_EQ(losses.entries()[0].hold, hold);
    EXPECT_GE(losses.entries()[0].at, hold->valid_until());
}

TEST(Notifier, tells_at_once_of_a_hold_that_has_run_out) {
    Losses losses;
    Notifier notifier{losses.recorder()};
    notifier.watch(run_out_hold());
    EXPECT_TRUE(losses.wait_for(1));
}

TEST(Notifier, waits_on_when_validity_has_moved) {
    Losses losses;
    Notifier notifier{losses.recorder()};
    const auto hold = taken_hold({.lease = 3s});
    notifier.watch(hold);
    hold->confirm(Clock::now() + 100ms, 3s);
    ASSERT_TRUE(losses.wait_for(1));
    EXPECT_GE(losses.entries()[0].at, hold->valid_until());
    EXPECT_EQ(losses.entries().size(), 1U);
}

TEST(Notifier, sooner_end_is_not_missed_behind_a_later_one) {
    Losses losses;
    Notifier notifier{losses.recorder()};
    const auto late = taken_hold({.lease = 1h});
    const auto soon = taken_hold({.lease = 40ms});
    notifier.watch(late);
    notifier.watch(soon);
    ASSERT_TRUE(losses.wait_for(1));
    EXPECT_EQ(losses.entries()[0].hold, soon);
}

TEST(Notifier, forgets_what_is_unwatched) {
    Losses losses;
    Notifier notifier{losses.recorder()};
    const auto released = taken_hold({.lease = 3s});
    const auto other = taken_hold({.lease = 3100ms});
    notifier.watch(released);
    notifier.unwatch(*released);
    notifier.unwatch(*other);
    notifier.watch(other);
    ASSERT_TRUE(losses.wait_for(1));
    EXPECT_FALSE(losses.has(released));
    EXPECT_TRUE(losses.has(other));
}

TEST(Notifier, says_nothing_of_a_hold_that_ended_before) {
    Losses losses;
    Notifier notifier{losses.recorder()};
    const auto released = taken_hold({.lease = 3s});
    const auto lost = taken_hold({.lease = 3s});
    const auto other = taken_hold({.lease = 3100ms});
    for (const auto& hold : {released, lost, other}) notifier.watch(hold);
    released->advance(Phase::held, Phase::releasing);
    lost->advance(Phase::held, Phase::lost);
    ASSERT_TRUE(losses.wait_for(1));
    EXPECT_FALSE(losses.has(released));
    EXPECT_FALSE(losses.has(lost));
}

TEST(Notifier, tells_although_callbacks_hang) {
    const auto barrier = std::make_shared<Barrier>();
    Losses losses;
    Notifier notifier{losses.recorder()};
    for (int i = 0; i < 8; ++i) {
        notifier.post([barrier] { barrier->arrive_and_wait(); });
    }
    ASSERT_TRUE(barrier->wait_for_arrivals(8));
    notifier.watch(taken_hold({.lease = 40ms}));
    EXPECT_TRUE(losses.wait_for(1));
    barrier->open();
    notifier.close(generous_limit);
}

TEST(Notifier, tells_of_each_of_many_in_time) {
    Losses losses;
    Notifier notifier{losses.recorder()};
    for (int i = 0; i < 500; ++i) {
        notifier.watch(taken_hold({.lease = std::chrono::milliseconds{50 + i * 37 % 100}}));
    }
    ASSERT_TRUE(losses.wait_for(500));
    for (const auto& [hold, at] : losses.entries()) EXPECT_GE(at, hold->valid_until());
}

TEST(Notifier, watched_holds_are_let_go_at_close) {
    const auto hold = taken_hold();
    {
        Notifier notifier{nobody};
        notifier.watch(hold);
        EXPECT_GT(hold.use_count(), 1);
        notifier.close(1s);
    }
    EXPECT_EQ(hold.use_count(), 1);
}

}  // namespace
