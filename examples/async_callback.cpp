// Callbacks, completed on a queue that the program has anyway: everything happens on its one thread.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <condition_variable>
#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

namespace {

// [executor]
/// Any event loop has one like it.
class JobQueue final : public redlatch::Executor {
public:
    void post(Executor::Task& task) noexcept override {
        const std::lock_guard lock{mutex_};
        *end_ = &task;
        end_ = &task.next;
        ready_.notify_one();
    }

    void run_one() {
        std::unique_lock lock{mutex_};
        ready_.wait(lock, [this] { return first_ != nullptr; });
        Task* const task = first_;
        first_ = task->next;
        if (first_ == nullptr) end_ = &first_;
        lock.unlock();
        task->run();
    }

private:
    std::mutex mutex_;
    std::condition_variable ready_;
    Task* first_ = nullptr;
    Task** end_ = &first_;
};
// [executor]

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        JobQueue queue;  // outlives all that completes on it
        redlatch::Client redis{uri};
        redlatch::Lock<redlatch::Fenced<redlatch::Simple>> lock{redis, "job"};

        constexpr int jobs = 20;
        int left = jobs;
        std::uint64_t last_fence = 0;
        bool rising = true;
        for (int i = 0; i < jobs; ++i) {
            const auto work = [&](redlatch::Result<redlatch::Held> held) {
                --left;
                if (!held) return;
                rising = rising && held->fence() > last_fence;
                last_fence = held->fence();
            };  // `held` ends here: its release is sent, and nobody waits for that
            lock.async_acquire({.wait = 1min}, {}, work, &queue);
        }
        while (left > 0) queue.run_one();
        std::printf("%d jobs, one after the other, the last one with fencing token %llu\n", jobs,
                    static_cast<unsigned long long>(last_fence));
        example::require(rising && last_fence != 0, "each job has a greater fencing token");
    });
}
