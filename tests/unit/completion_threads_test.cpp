#include "support/wait.hpp"
#include <redlatch/service/completion_threads.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using detail::CompletionThreads;

class Calls final : public Executor::Task {
public:
    explicit Calls(std::function<void()> function) : function_(std::move(function)) {}
    void run() noexcept override { function_(); }
    void discard() noexcept override { ADD_FAILURE() << "discarded"; }

private:
    std::function<void()> function_;
};

/// The threads, whose callbacks have all returned at the end of a test.
struct Threads {
    std::shared_ptr<CompletionThreads> threads = std::make_shared<CompletionThreads>();
    ~Threads() { threads->close(); }
    CompletionThreads* operator->() const { return threads.get(); }
};

TEST(CompletionThreads, run_tasks_in_order_on_another_thread) {
    const Threads threads;
    std::mutex mutex;
    std::vector<int> order;
    std::set<std::thread::id> on;
    std::latch done{100};
    std::deque<Calls> tasks;
    for (int i = 0; i < 100; ++i) {
        tasks.emplace_back([&, i] {
            {
                const std::lock_guard lock{mutex};
                order.push_back(i);
                on.insert(std::this_thread::get_id());
            }
            done.count_down();
        });
        threads->post(tasks.back());
    }
    done.wait();
    const std::lock_guard lock{mutex};
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_FALSE(on.contains(std::this_thread::get_id()));
}

TEST(CompletionThreads, one_that_takes_long_does_not_hold_up_the_next) {
    const Threads threads;
    std::latch free{1};
    std::latch all{CompletionThreads::most_threads};
    std::deque<Calls> tasks;
    for (std::size_t i = 0; i + 1 < CompletionThreads::most_threads; ++i) {
        tasks.emplace_back([&] {
            free.wait();
            all.count_down();
        });
    }
    std::atomic<bool> ran{false};
    tasks.emplace_back([&] {
        ran = true;
        all.count_down();
    });
    for (auto& task : tasks) threads->post(task);
    EXPECT_TRUE(eventually([&] { return ran.load(); }))
        << "the last of eight, beside seven that block";
    free.count_down();
    all.wait();
}

TEST(CompletionThreads, what_was_posted_runs_after_close_too) {
    std::latch free{1};
    std::latch done{3};
    std::deque<Calls> tasks;
    tasks.emplace_back([&] {
        free.wait();
        done.count_down();
    });
    for (int i = 0; i < 2; ++i) tasks.emplace_back([&] { done.count_down(); });
    {
        const Threads threads;
        for (auto& task : tasks) threads->post(task);
    }
    free.count_down();
    done.wait();
}

TEST(CompletionThreads, what_comes_after_close_runs_too) {
    std::latch done{2};
    Calls first{[&] { done.count_down(); }};
    Calls second{[&] { done.count_down(); }};
    const Threads threads;
    threads->post(first);
    threads->close();
    threads->post(second);
    done.wait();
}

TEST(CompletionThreads, first_task_may_come_after_close) {
    std::latch done{1};
    Calls task{[&] { done.count_down(); }};
    const Threads threads;
    threads->close();
    threads->post(task);
    done.wait();
    EXPECT_TRUE(eventually([&] { return threads.threads.use_count() == 1; })) << "its thread ends";
}

}  // namespace
