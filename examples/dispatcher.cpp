// A thread takes a lock for each job and passes it to a worker. The lock belongs to the job, not to the
// thread: the next job waits until the worker has finished this one.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        redlatch::Lock<redlatch::Reentrant> lock{redis, "account:42"};

        std::atomic<int> at_work{0};
        std::atomic<bool> alone{true};
        int done = 0;
        const auto work = [&] {
            if (++at_work != 1) alone = false;
            std::this_thread::sleep_for(20ms);
            ++done;
            --at_work;
        };
        std::vector<std::jthread> workers;

        for (int job = 0; job < 5; ++job) {
            // [owner]
            redlatch::Held held = lock.acquire({.owner = redlatch::Owner::hold}).value();
            workers.emplace_back([&work, held = std::move(held)] { work(); });
            // [owner]
        }
        workers.clear();
        std::printf("%d jobs, one after the other: %s\n", done, alone ? "yes" : "no");
        example::require(alone && done == 5, "no job ran beside another");
    });
}
