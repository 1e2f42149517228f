// Jobs share the GPUs of a pool: each has one to itself, or several at once. An operator adds some while it is
// in use.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        std::atomic<int> busy{0};
        std::atomic<int> most{0};
        std::atomic<int> done{0};
        const auto compute = [&](int number) {
            const int now = busy += number;
            for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
            }
            std::this_thread::sleep_for(20ms);
            busy -= number;
            ++done;
        };
        const auto train = [&] { compute(1); };
        const auto train_on_two = [&] { compute(2); };

        // [semaphore]
        redlatch::Semaphore<> gpus{redis, "gpus", 4};
        // [semaphore]
        std::vector<std::jthread> jobs;
        for (int i = 0; i < 6; ++i) {
            jobs.emplace_back([&] {
                // [semaphore]
                if (gpus.try_acquire_for(10s)) {  // one of them
                    train();
                    (void)gpus.release();
                }
                // [semaphore]
            });
            jobs.emplace_back([&] {
                // [semaphore]
                if (auto two = gpus.take({.permits = 2})) train_on_two();  // both or none
                // [semaphore]
            });
        }
        jobs.clear();
        std::printf("%d jobs, at most %d of 4 GPUs at once\n", done.load(), most.load());
        example::require(done == 12 && most <= 4, "every job had its GPUs to itself");

        // [semaphore]
        gpus.set_permits(6).value();  // from now on, for all clients
        // [semaphore]
        std::vector<redlatch::Held> six;
        for (int i = 0; i < 6; ++i) six.push_back(gpus.take().value());
        example::require(!gpus.try_acquire(), "there are six now");
    });
}
