// Work that stops itself when its lock is lost. Any lock with a lease can be lost: the server may
// restart empty, an operator may remove it, the process may be paused for longer than the lease.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <cstdio>

using namespace std::chrono_literals;

namespace {

enum class End { done, lock_lost };

End work_under(redlatch::Lock<>& lock, int parts) {
    const auto work_on = [](int) { std::this_thread::sleep_for(20ms); };
    // [lost_lock]
    redlatch::Held held = lock.acquire().value();  // throws what was wrong, if anything was
    const std::stop_token lost = held.lost();
    for (int part = 0; part < parts; ++part) {
        if (lost.stop_requested()) return End::lock_lost;  // leave the rest to the next holder
        work_on(part);
    }
    return End::done;
    // [lost_lock]
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        redlatch::Client elsewhere{uri};  // stands for another process
        redlatch::Lock<> lock{redis, "import:orders", {.lease = 3s}};

        example::require(work_under(lock, 5) == End::done, "work ends when nothing happens");

        std::jthread operator_console{[&] {
            std::this_thread::sleep_for(200ms);
            redlatch::Lock<> same{elsewhere, "import:orders"};
            const auto outcome = same.force_unlock();
            std::printf("operator: %s\n", outcome && *outcome == redlatch::Forced::removed
                                              ? "removed somebody's lock"
                                              : "there was no lock to remove");
        }};
        const auto began = redlatch::Clock::now();
        const End end = work_under(lock, 500);  // would take ten seconds
        const auto took =
            std::chrono::duration_cast<std::chrono::milliseconds>(redlatch::Clock::now() - began);
        std::printf("worker: stopped after %d ms\n", static_cast<int>(took.count()));
        example::require(end == End::lock_lost, "the work hears that the lock is lost");
        example::require(took < 9s, "it hears of it in time");
    });
}
