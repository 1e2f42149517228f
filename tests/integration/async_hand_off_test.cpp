// A lock that passes on inside a process, to an acquisition that waits without a thread: the thread that releases it
// goes on with that acquisition, and the engine has no part in it.

#include "async_tools.hpp"
#include "fault_tools.hpp"
#include "on_engine.hpp"
#include "support/lock_table_view.hpp"
#include "support/own_new.hpp"
#include <redlatch/core/handoff.hpp>
#include <redlatch/service/shared_client.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

// A thread is made to pause in the middle of a release, at any of its allocations.

thread_local int allocations_until_pause = 0;
std::atomic<bool> pauses{false};
std::atomic<bool> may_go_on{false};

void pause_where_it_is_time() {
    if (allocations_until_pause-- != 0) return;
    pauses = true;
    // Not for ever: it may have a mutex that the others need.
    const Stopwatch watch;
    while (!may_go_on && watch.elapsed() < 100ms) std::this_thread::yield();
}

Coroutine acquire_on(Lock<Simple>& lock, Executor& executor, std::optional<Result<Held>>& result,
                     std::stop_token stop = {}) {
    result.emplace(co_await lock.async_acquire({.wait = 60s}, std::move(stop)).via(executor));
}

class AsyncHandOff : public LockTest {
protected:
    /// What was begun before has come to rest on the engine.
    void let_engine_rest() {
        on_engine(engine(), [] {});
    }

    detail::Engine& engine() { return detail::Access::shared(client_)->session().engine(); }

    void expect_nothing_is_left() {
        EXPECT_TRUE(eventually([&] { return known_locks(client_) == 0; }));
        EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
    }

    Lock<Simple> lock_{client_, "key", {.lease = 60s, .local_handoffs = 1'000'000}};
};

bool is_ready(const CompletionQueue& queue) {
    pollfd entry{.fd = queue.descriptor(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
}

TEST_F(AsyncHandOff, has_completed_when_the_release_returns) {
    Loop loop;
    std::optional<Held> holder = take(lock_);
    std::optional<Result<Held>> first;
    std::optional<Result<Held>> second;
    const Coroutine one = acquire_on(lock_, loop, first);
    let_engine_rest();
    const Coroutine other = acquire_on(lock_, loop, second);
    let_engine_rest();
    EXPECT_FALSE(is_ready(loop));
    {
        std::latch engine_is_busy{1};
        std::latch engine_may_go_on{1};
        const std::jthread keeps_it_busy{[&] {
            on_engine(engine(), [&] {
                engine_is_busy.count_down();
                engine_may_go_on.wait();
            });
        }};
        engine_is_busy.wait();
        EXPECT_TRUE(is_outcome(holder->release(), Release::released));
        EXPECT_TRUE(is_ready(loop));
        engine_may_go_on.count_down();
    }
    EXPECT_EQ(loop.run_ready(), 1U);
    ASSERT_TRUE(first && *first);
    EXPECT_TRUE((*first)->held());
    EXPECT_EQ(redis_.get("key"), (*first)->token());
    EXPECT_FALSE(second);
    EXPECT_FALSE(is_ready(loop));

    // Its destructor hands it on as well, by a command if the last one is some time ago.
    first.reset();
    ASSERT_TRUE(loop.run_until([&] { return second.has_value(); }));
    ASSERT_TRUE(*second);
    EXPECT_TRUE(is_outcome((*second)->release(), Release::released));
    let_engine_rest();
    expect_nothing_is_left();
}

TEST_F(AsyncHandOff, by_a_thread_reaches_a_coroutine_in_its_turn) {
    Loop loop;
    lock_.lock();
    std::optional<Result<Held>> result;
    const Coroutine coroutine = acquire_on(lock_, loop, result);
    let_engine_rest();
    lock_.unlock();
    ASSERT_TRUE(loop.run_until([&] { return result.has_value(); }));
    ASSERT_TRUE(*result);
    EXPECT_TRUE(is_outcome((*result)->release(), Release::released));
    expect_nothing_is_left();
}

/// One of the program's, whose mutex that may have when it releases a lock.
class ProgramsExecutor final : public Executor {
public:
    void post(Task& task) noexcept override {
        const std::lock_guard lock{mutex_};
        tasks_.push_back(&task);
        posted_by_ = std::this_thread::get_id();
    }
    std::size_t run() {
        std::vector<Task*> tasks;
        {
            const std::lock_guard lock{mutex_};
            tasks.swap(tasks_);
        }
        for (Task* const task : tasks) task->run();
        return tasks.size();
    }
    std::thread::id posted_by() {
        const std::lock_guard lock{mutex_};
        return posted_by_;
    }

private:
    std::mutex mutex_;
    std::vector<Task*> tasks_;
    std::thread::id posted_by_;
};

TEST_F(AsyncHandOff, calls_nothing_of_the_programs_inside_a_release) {
    ProgramsExecutor executor;
    std::optional<Held> holder = take(lock_);
    std::optional<Result<Held>> result;
    const Coroutine coroutine = acquire_on(lock_, executor, result);
    let_engine_rest();
    EXPECT_TRUE(is_outcome(holder->release(), Release::released));
    EXPECT_TRUE(eventually([&] { return executor.run() > 0; }));
    EXPECT_NE(executor.posted_by(), std::this_thread::get_id());
    ASSERT_TRUE(result && *result);
    result.reset();
    expect_nothing_is_left();
}

/// A release that pauses at one of its allocations, while the client closes.
struct PausedRelease {
    bool began_soon = false;  // soon enough to hand the lock on without a command
    bool paused = false;
    int calls = 0;
    Errc told{};
};

PausedRelease close_amid_release(const ClientOptions& options, int allocation) {
    pauses = may_go_on = false;
    PausedRelease round;
    Outcome<Held> next;
    std::optional<Client> client{std::in_place, options};
    Lock<Simple> lock{*client, "key", {.lease = 60s, .local_handoffs = 100}};
    { const std::lock_guard connects{lock}; }
    const Stopwatch since_news;
    Held holder = std::move(lock.acquire({.owner = Owner::hold})).value();
    std::atomic<bool> has_waiter{false};
    std::atomic<bool> released{false};
    std::thread releaser{[&] {
        while (!has_waiter) std::this_thread::yield();
        round.began_soon = since_news.elapsed() < detail::longest_without_news / 2;
        allocations_until_pause = allocation;
        before_allocation = &pause_where_it_is_time;
        (void)holder.release();
        before_allocation = nullptr;
        released = true;
    }};
    lock.async_acquire({.wait = 2s}, {}, next.callback());
    on_engine(detail::Access::shared(*client)->session().engine(), [] {});
    has_waiter = true;
    EXPECT_TRUE(eventually([&] { return pauses || released; }));
    round.paused = pauses;
    client.reset();
    may_go_on = true;
    releaser.join();
    if (eventually([&] { return next.is_there(); })) round.told = code_of(next.get());
    round.calls = next.calls();
    return round;
}

TEST_F(AsyncHandOff, completes_once_where_the_client_closes_in_its_middle) {
    if (!has_own_new) GTEST_SKIP() << "the sanitizer has an operator new of its own";
    int paused = 0;
    for (int allocation = 0; allocation < 16; ++allocation) {
        PausedRelease round;
        for (int tries = 0; tries < 50 && !round.began_soon; ++tries) {
            round = close_amid_release(patient(server_.uri()), allocation);
            ASSERT_EQ(round.calls, 1) << "allocation " << allocation;
            EXPECT_TRUE(round.told == Errc{} || round.told == Errc::cancelled)
                << "allocation " << allocation;
        }
        paused += round.paused ? 1 : 0;
    }
    EXPECT_GT(paused, 1);
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

/// Who is given up is passed over by whoever gives it the lock, and needs no stack for that.
TEST_F(AsyncHandOff, goes_past_all_who_are_given_up_meanwhile) {
    constexpr std::size_t crowd = 3000;
    for (int round = 0; round < 5; ++round) {
        std::optional<Held> holder = take(lock_);
        Loop loop;
        std::deque<std::optional<Result<Held>>> results;
        std::deque<Coroutine> coroutines;
        for (std::size_t i = 0; i < crowd; ++i) {
            coroutines.push_back(acquire_on(lock_, loop, results.emplace_back()));
        }
        Outcome<Held> last;
        lock_.async_acquire({}, {}, last.callback());
        let_engine_rest();
        std::jthread releaser{[&] { holder.reset(); }};
        while (!coroutines.empty()) coroutines.pop_front();
        // One may have completed before it was given up.
        ASSERT_TRUE(loop.run_until([&] { return last.is_there(); }));
        EXPECT_TRUE(last.get());
        EXPECT_TRUE(std::ranges::none_of(results, [](const auto& one) { return one.has_value(); }));
    }
    expect_nothing_is_left();
}

/// Stops, deadlines, hand-overs, threads and coroutines, at once.
TEST_F(AsyncHandOff, ends_each_acquisition_once_whatever_meets_it) {
    constexpr int threads = 4;
    constexpr int rounds = 150;
    struct Told {
        std::atomic<int> calls{0};
        std::stop_source stop;
    };
    std::deque<Told> told(threads * rounds);
    std::atomic<int> inside{0};
    std::atomic<int> had{0};
    std::vector<std::jthread> busy;
    for (int t = 0; t < threads; ++t) {
        busy.emplace_back([&, t] {
            for (int i = 0; i < rounds; ++i) {
                Told& mine = told[static_cast<std::size_t>(t * rounds + i)];
                const auto wait = i % 5 == 0 ? Wait{500us} : Wait{60s};
                lock_.async_acquire({.wait = wait}, mine.stop.get_token(),
                                    [&](const Result<Held>& held) {
                                        ++mine.calls;
                                        if (!held) return;
                                        ++had;
                                        EXPECT_EQ(++inside, 1);
                                        --inside;
                                    });
                if (i % 3 == 0) std::this_thread::yield();
                if (i % 4 == 1) mine.stop.request_stop();
                if (i % 7 != 0) continue;
                // A busy machine may not answer in time: that is an error, and no lock.
                if (const Result<Held> held = lock_.acquire({.wait = 1ms})) {
                    EXPECT_EQ(++inside, 1);
                    --inside;
                }
            }
        });
    }
    busy.clear();
    EXPECT_TRUE(eventually(
        [&] { return std::ranges::all_of(told, [](const Told& one) { return one.calls > 0; }); }));
    expect_nothing_is_left();
    EXPECT_TRUE(std::ranges::all_of(told, [](const Told& one) { return one.calls == 1; }));
    EXPECT_GT(had, 0);
}

}  // namespace
}  // namespace redlatch::test
