#include <redlatch/completion_queue.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace redlatch;

/// Notes what becomes of it.
class Noted final : public Executor::Task {
public:
    Noted(std::string& log, char name, std::function<void()> then = {})
        : log_(&log), name_(name), then_(std::move(then)) {}
    void run() noexcept override {
        *log_ += name_;
        if (then_) then_();
    }
    void discard() noexcept override {
        *log_ += '-';
        *log_ += name_;
    }

private:
    std::string* log_;
    char name_;
    std::function<void()> then_;
};

bool is_readable(const CompletionQueue& queue) {
    pollfd entry{.fd = queue.descriptor(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
}

TEST(CompletionQueue, runs_what_was_posted_in_order_and_once) {
    CompletionQueue queue;
    std::string log;
    Noted a{log, 'a'};
    Noted b{log, 'b'};
    queue.post(a);
    queue.post(b);
    EXPECT_EQ(log, "") << "not inside post";
    EXPECT_EQ(queue.run_ready(), 2U);
    EXPECT_EQ(queue.run_ready(), 0U);
    EXPECT_EQ(log, "ab");
}

TEST(CompletionQueue, takes_a_chain_of_tasks_behind_those_that_wait) {
    CompletionQueue queue;
    std::string log;
    Noted a{log, 'a'};
    Noted b{log, 'b'};
    Noted c{log, 'c'};
    Noted d{log, 'd'};
    queue.post(a);
    b.next = &c;
    queue.post_chain(b);
    queue.post(d);
    EXPECT_TRUE(is_readable(queue));
    EXPECT_EQ(queue.run_ready(), 4U);
    EXPECT_EQ(log, "abcd");
    EXPECT_FALSE(is_readable(queue));
}

TEST(CompletionQueue, that_is_gone_discards_a_chain_of_tasks) {
    std::string log;
    Noted a{log, 'a'};
    Noted b{log, 'b'};
    const std::shared_ptr<Executor> shared = CompletionQueue{}.share();
    a.next = &b;
    shared->post_chain(a);
    EXPECT_EQ(log, "-a-b");
}

TEST(CompletionQueue, descriptor_is_readable_while_something_waits) {
    CompletionQueue queue;
    std::string log;
    EXPECT_FALSE(is_readable(queue));
    Noted a{log, 'a'};
    queue.post(a);
    EXPECT_TRUE(is_readable(queue));
    queue.run_ready();
    EXPECT_FALSE(is_readable(queue));
    queue.post(a);
    EXPECT_TRUE(is_readable(queue)) << "a second time too";
    queue.run_ready();
}

TEST(CompletionQueue, what_is_posted_by_a_task_is_left_for_the_next_call) {
    CompletionQueue queue;
    std::string log;
    Noted b{log, 'b'};
    Noted a{log, 'a', [&] { queue.post(b); }};
    queue.post(a);
    EXPECT_EQ(queue.run_ready(), 1U);
    EXPECT_EQ(log, "a");
    EXPECT_TRUE(is_readable(queue));
    EXPECT_EQ(queue.run_ready(), 1U);
    EXPECT_EQ(log, "ab");
}

TEST(CompletionQueue, destructor_discards_what_is_pending) {
    std::string log;
    Noted a{log, 'a'};
    { CompletionQueue{}.post(a); }
    EXPECT_EQ(log, "-a");
}

TEST(CompletionQueue, discards_what_comes_when_it_is_gone) {
    std::string log;
    Noted a{log, 'a'};
    std::optional<CompletionQueue> queue{std::in_place};
    const std::shared_ptr<Executor> shared = queue->share();
    queue.reset();
    shared->post(a);
    EXPECT_EQ(log, "-a");
}

TEST(CompletionQueue, has_no_descriptor_any_more_when_it_is_gone) {
    std::optional<CompletionQueue> queue{std::in_place};
    const std::shared_ptr<Executor> shared = queue->share();  // as an operation keeps it
    const int descriptor = queue->descriptor();
    EXPECT_NE(::fcntl(descriptor, F_GETFD), -1);
    queue.reset();
    EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);
}

TEST(CompletionQueue, takes_tasks_of_many_threads) {
    constexpr int threads = 4;
    constexpr int each = 1000;
    CompletionQueue queue;
    std::string log;
    std::deque<Noted> tasks;
    for (int i = 0; i < threads * each; ++i) tasks.emplace_back(log, 'x');
    std::vector<std::jthread> posters;
    for (int t = 0; t < threads; ++t) {
        posters.emplace_back([&, t] {
            for (int i = 0; i < each; ++i)
                queue.post(tasks[static_cast<std::size_t>(t * each + i)]);
        });
    }
    while (log.size() < tasks.size()) {
        pollfd entry{.fd = queue.descriptor(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
        queue.run_ready();
    }
    EXPECT_EQ(log.size(), tasks.size());
}

TEST(CompletionQueue, inherited_one_runs_nothing_and_discards_what_is_posted) {
    std::string log;
    Noted a{log, 'a'};
    Noted b{log, 'b'};
    CompletionQueue queue;
    queue.post(a);
    const pid_t child = ::fork();
    if (child == 0) {
        queue.post(b);
        const bool nothing = queue.run_ready() == 0;
        queue.~CompletionQueue();
        ::_exit(nothing && log == "-b" ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(is_readable(queue)) << "the child has taken nothing away";
    EXPECT_EQ(queue.run_ready(), 1U);
    EXPECT_EQ(log, "a");
}

}  // namespace
