// What completes in a turn of a thread is handed over at its end: in order, once, by that thread.

#include <redlatch/async/in_place.hpp>
#include <redlatch/async/joint_call.hpp>
#include <redlatch/net/completion_batch.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;

using detail::AsyncCallFor;
using detail::Completion;
using detail::CompletionBatch;

/// Writes its number down where it is handed over.
class Numbered final : public Completion {
public:
    Numbered(std::vector<int>& log, int number, std::function<void()> then = {})
        : log_(&log), number_(number), then_(std::move(then)) {}

    void run() noexcept override { ADD_FAILURE() << "run by the batch"; }
    void discard() noexcept override { ADD_FAILURE() << "discarded by the batch"; }
    void hand_over() noexcept override {
        log_->push_back(number_);
        // As an operation does that is gone when it has completed.
        const auto then = std::exchange(then_, nullptr);
        if (then) then();
    }

private:
    std::vector<int>* log_;
    int number_;
    std::function<void()> then_;
};

using Log = std::vector<int>;

TEST(CompletionBatch, hands_over_at_the_end_of_a_turn_in_order_and_once) {
    Log log;
    Numbered one{log, 1};
    Numbered two{log, 2};
    Numbered three{log, 3};
    CompletionBatch batch;
    batch.add(one);
    batch.add(two);
    EXPECT_EQ(log, Log{}) << "not before";
    batch.hand_over();
    EXPECT_EQ(log, (Log{1, 2}));
    batch.hand_over();
    EXPECT_EQ(log, (Log{1, 2})) << "once";
    batch.add(three);
    batch.add(one);
    batch.hand_over();
    EXPECT_EQ(log, (Log{1, 2, 3, 1})) << "the next turn";
}

TEST(CompletionBatch, without_a_completion_does_nothing) {
    CompletionBatch batch;
    batch.hand_over();
}

TEST(CompletionBatch, hands_over_what_is_left_when_it_ends) {
    Log log;
    Numbered one{log, 1};
    Numbered two{log, 2};
    {
        CompletionBatch batch;
        batch.add(one);
        batch.hand_over();
        batch.add(two);
    }
    EXPECT_EQ(log, (Log{1, 2}));
}

TEST(CompletionBatch, hands_over_in_the_same_turn_what_completes_meanwhile) {
    Log log;
    CompletionBatch batch;
    Numbered last{log, 4};
    Numbered inner{log, 3, [&] { batch.add(last); }};
    Numbered one{log, 1, [&] { batch.add(inner); }};
    Numbered two{log, 2};
    batch.add(one);
    batch.add(two);
    batch.hand_over();
    EXPECT_EQ(log, (Log{1, 2, 3, 4})) << "behind what came before";
}

TEST(CompletionBatch, completion_may_be_gone_when_it_is_handed_over) {
    Log log;
    CompletionBatch batch;
    Numbered two{log, 2};
    auto one = std::make_unique<std::optional<Numbered>>();
    one->emplace(log, 1, [&] { one->reset(); });
    batch.add(**one);
    batch.add(two);
    batch.hand_over();
    EXPECT_EQ(log, (Log{1, 2}));
    EXPECT_FALSE(one->has_value());
}

TEST(CompletionBatch, completion_may_complete_once_more_when_it_is_handed_over) {
    Log log;
    CompletionBatch batch;
    Numbered two{log, 2};
    Numbered* again = nullptr;
    Numbered one{log, 1, [&] { batch.add(*again); }};
    again = &one;
    batch.add(one);
    batch.add(two);
    batch.hand_over();
    EXPECT_EQ(log, (Log{1, 2, 1}));
}

TEST(CompletionBatch, may_be_handed_over_within_a_completion) {
    Log log;
    CompletionBatch batch;
    Numbered one{log, 1, [&] { batch.hand_over(); }};
    Numbered two{log, 2};
    Numbered three{log, 3};
    batch.add(one);
    batch.add(two);
    batch.add(three);
    batch.hand_over();
    EXPECT_EQ(log, (Log{1, 2, 3})) << "nothing is locked, nothing comes twice";
}

/// Writes down what is posted together.
class ChainExecutor final : public Executor {
public:
    void post(Task& task) noexcept override { chains_.push_back({&task}); }
    void post_chain(Task& first) noexcept override {
        chains_.emplace_back();
        for (Task* task = &first; task != nullptr; task = task->next) {
            chains_.back().push_back(task);
        }
    }
    const std::vector<std::vector<Task*>>& chains() const { return chains_; }

private:
    std::vector<std::vector<Task*>> chains_;
};

/// Posts itself, with what is linked behind it.
class Posted final : public Completion {
public:
    explicit Posted(Executor& executor) : executor_(&executor) {}
    void run() noexcept override { ADD_FAILURE() << "run by the batch"; }
    void discard() noexcept override { ADD_FAILURE() << "discarded by the batch"; }
    const Executor* executor() const noexcept override { return executor_; }
    void hand_over() noexcept override { executor_->post_chain(*this); }

private:
    Executor* executor_;
};

TEST(CompletionBatch, hands_an_executor_all_at_once_what_comes_for_it_in_a_row) {
    using Chain = std::vector<Executor::Task*>;
    ChainExecutor one;
    ChainExecutor other;
    Posted first{one};
    Posted second{one};
    Posted third{other};
    Posted fourth{one};
    CompletionBatch batch;
    for (Posted* const posted : {&first, &second, &third, &fourth}) batch.add(*posted);
    batch.hand_over();
    EXPECT_EQ(one.chains(), (std::vector<Chain>{{&first, &second}, {&fourth}}));
    EXPECT_EQ(other.chains(), (std::vector<Chain>{{&third}}));
}

TEST(Executor, that_knows_of_no_chain_is_posted_each_task_of_it) {
    std::vector<Executor::Task*> posted;
    class OneByOne final : public Executor {
    public:
        explicit OneByOne(std::vector<Task*>& posted) : posted_(&posted) {}
        void post(Task& task) noexcept override {
            posted_->push_back(&task);
            task.next = &task;  // as it likes
        }

    private:
        std::vector<Task*>* posted_;
    } executor{posted};
    Posted first{executor};
    Posted second{executor};
    first.next = &second;
    executor.post_chain(first);
    EXPECT_EQ(posted, (std::vector<Executor::Task*>{&first, &second}));
}

TEST(Executor, that_knows_of_no_chain_gets_tasks_that_nothing_is_linked_behind) {
    class Linking final : public Executor {
    public:
        void post(Task& task) noexcept override {
            EXPECT_EQ(task.next, nullptr);
            *end_ = &task;
            end_ = &task.next;
        }

    private:
        Task* first_ = nullptr;
        Task** end_ = &first_;
    } executor;
    Posted first{executor};
    Posted second{executor};
    Posted third{executor};
    CompletionBatch batch;
    for (Posted* const posted : {&first, &second, &third}) batch.add(*posted);
    batch.hand_over();
}

TEST(CompletionBatch, is_known_on_its_own_thread_as_long_as_it_lives) {
    EXPECT_EQ(CompletionBatch::of_this_thread(), nullptr);
    {
        CompletionBatch batch;
        EXPECT_EQ(CompletionBatch::of_this_thread(), &batch);
        std::jthread other{[] {
            EXPECT_EQ(CompletionBatch::of_this_thread(), nullptr);
            CompletionBatch own;
            EXPECT_EQ(CompletionBatch::of_this_thread(), &own);
        }};
        other.join();
        EXPECT_EQ(CompletionBatch::of_this_thread(), &batch);
        batch.hand_over();
        EXPECT_EQ(CompletionBatch::of_this_thread(), &batch) << "for further turns";
    }
    EXPECT_EQ(CompletionBatch::of_this_thread(), nullptr);
}

TEST(CompletionBatch, hands_over_on_its_own_thread) {
    Log log;
    std::thread::id on;
    std::thread::id own;
    Numbered one{log, 1, [&] { on = std::this_thread::get_id(); }};
    std::jthread{[&] {
        own = std::this_thread::get_id();
        CompletionBatch batch;
        batch.add(one);
    }}.join();
    EXPECT_EQ(on, own);
}

TEST(CompletionBatch, takes_nothing_more_when_it_ends) {
    Log log;
    bool there = true;
    Numbered one{log, 1, [&] { there = CompletionBatch::of_this_thread() != nullptr; }};
    {
        CompletionBatch batch;
        batch.add(one);
    }
    EXPECT_FALSE(there) << "what completes in there hands itself over";
}

// ---- The calls that complete

/// Keeps what is posted until it is told to run it.
class LaterExecutor final : public Executor {
public:
    void post(Task& task) noexcept override { tasks_.push_back(&task); }
    std::size_t size() const { return tasks_.size(); }
    void run_all() {
        for (Task* const task : std::exchange(tasks_, {})) task->run();
    }

private:
    std::vector<Task*> tasks_;
};

/// One that has shut down.
class GoneExecutor final : public Executor {
public:
    void post(Task& task) noexcept override { task.discard(); }
};

struct Counts {
    int begun = 0;
    int cancelled = 0;
    int taken = 0;
    int dropped = 0;
    int destroyed = 0;
    bool operator==(const Counts&) const = default;
};

/// Completes where the test says so.
class TestCall final : public AsyncCallFor<void> {
public:
    explicit TestCall(Counts& counts) : counts_(&counts) {}
    ~TestCall() override { ++counts_->destroyed; }

    Result<void> take() noexcept override {
        ++counts_->taken;
        return {};
    }
    void complete() { finish(); }
    using AsyncCall::complete_on_default;

private:
    void begin() noexcept override { ++counts_->begun; }
    void cancel() noexcept override { ++counts_->cancelled; }
    void drop() noexcept override { ++counts_->dropped; }

    Counts* counts_;
};

class CallInATurn : public testing::Test {
protected:
    /// A call that was started, and goes on with `take()`.
    TestCall& begun() {
        auto call = std::make_shared<TestCall>(counts_);
        call->complete_on(executor_);
        const auto done = [](const Result<void>&) {};
        call->await(std::make_unique<detail::CallWith<void, decltype(done)>>(done));
        call->start();
        return *call;
    }

    LaterExecutor executor_;
    Counts counts_;
};

TEST_F(CallInATurn, is_posted_at_its_end_and_completes_once) {
    {
        CompletionBatch batch;
        begun().complete();
        begun().complete();
        EXPECT_EQ(executor_.size(), 0U);
        batch.hand_over();
        EXPECT_EQ(executor_.size(), 2U);
        EXPECT_EQ(counts_.taken, 0) << "never inside the turn";
    }
    EXPECT_EQ(executor_.size(), 2U);
    executor_.run_all();
    EXPECT_EQ(counts_.taken, 2);
    EXPECT_EQ(counts_.dropped, 0);
    EXPECT_EQ(counts_.destroyed, 2);
}

TEST_F(CallInATurn, is_posted_at_once_on_a_thread_without_turns) {
    CompletionBatch batch;
    std::jthread{[this] { begun().complete(); }}.join();
    EXPECT_EQ(executor_.size(), 1U);
    executor_.run_all();
    EXPECT_EQ(counts_.taken, 1);
}

TEST_F(CallInATurn, that_is_abandoned_before_its_end_is_dropped_once) {
    {
        CompletionBatch batch;
        TestCall& call = begun();
        call.complete();
        call.abandon();
        EXPECT_EQ(counts_.dropped, 1) << "its executor may not run for long";
        EXPECT_EQ(counts_.destroyed, 0);
    }
    executor_.run_all();
    EXPECT_EQ(counts_.taken, 0);
    EXPECT_EQ(counts_.dropped, 1);
    EXPECT_EQ(counts_.destroyed, 1);
}

TEST_F(CallInATurn, that_completes_when_nobody_waits_any_more_is_dropped_and_not_posted) {
    CompletionBatch batch;
    TestCall& call = begun();
    call.abandon();
    call.complete();
    batch.hand_over();
    EXPECT_EQ(executor_.size(), 0U);
    EXPECT_EQ(counts_.dropped, 1);
    EXPECT_EQ(counts_.destroyed, 1);
}

TEST_F(CallInATurn, begins_once) {
    TestCall& call = begun();
    call.start();
    EXPECT_EQ(counts_.begun, 1);
    call.complete();
    executor_.run_all();
}

TEST_F(CallInATurn, whose_executor_has_gone_is_discarded_once_and_not_by_who_posts) {
    GoneExecutor gone;
    const auto threads = std::make_shared<LaterExecutor>();
    const auto users = std::make_shared<int>();
    const auto call = std::make_shared<TestCall>(counts_);
    call->complete_on(gone);
    call->complete_on_default({threads, threads});
    using Done = std::function<void(const Result<void>&)>;
    call->await(std::make_unique<detail::CallWith<void, Done>>([users](const auto&) {}));
    call->start();
    call->complete();
    EXPECT_EQ(users.use_count(), 2) << "its callback is there";
    ASSERT_EQ(threads->size(), 1U);
    threads->run_all();
    EXPECT_EQ(users.use_count(), 1);
    EXPECT_EQ(counts_.taken, 0);
    EXPECT_EQ(counts_.dropped, 1);
    EXPECT_EQ(threads->size(), 0U);
}

TEST_F(CallInATurn, of_the_parent_does_nothing_in_a_forked_child) {
    TestCall& posted = begun();
    posted.complete();
    TestCall& waiting = begun();
    const auto made = std::make_shared<TestCall>(counts_);
    const Counts before = counts_;
    const pid_t child = ::fork();
    if (child == 0) {
        executor_.run_all();
        posted.discard();
        waiting.abandon();
        made->start();
        ::_exit(counts_ == before ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    waiting.complete();
    executor_.run_all();
    EXPECT_EQ(counts_.taken, 2) << "in the parent both complete";
}

TEST_F(CallInATurn, inside_another_call_goes_on_within_the_turn) {
    CompletionBatch batch;
    TestCall& outer = begun();
    auto inner = std::make_shared<TestCall>(counts_);
    inner->complete_on(detail::InPlace::executor());
    const auto go_on = [&outer](const Result<void>&) { outer.complete(); };
    inner->await(std::make_unique<detail::CallWith<void, decltype(go_on)>>(go_on));
    inner->start();
    inner->complete();
    inner.reset();
    batch.hand_over();
    EXPECT_EQ(executor_.size(), 1U) << "the outer one, of the same turn";
    executor_.run_all();
    EXPECT_EQ(counts_.taken, 2);
    EXPECT_EQ(counts_.destroyed, 2);
}

}  // namespace
