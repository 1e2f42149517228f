// A job that takes longer than the lease. Lock<> is Lock<Watchdog<Simple>>: the watchdog renews the
// lease every third of it, so the lease does not say how long the job may take, but how long others
// wait if this process dies.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        redlatch::Client elsewhere{uri};  // stands for another process
        redlatch::Lock<> rival{elsewhere, "report:monthly"};
        int refused = 0;
        const auto write_a_page = [&] {
            std::this_thread::sleep_for(400ms);
            if (!rival.try_lock()) ++refused;
        };

        // [watchdog]
        redlatch::Lock<> lock{redis, "report:monthly", {.lease = 2s}};
        std::lock_guard scope{lock};
        for (int page = 0; page < 15; ++page) write_a_page();  // takes three leases
        // [watchdog]

        std::printf(
            "held for 6 s with a lease of 2 s, %d ms of validity left; "
            "a rival was refused %d times\n",
            static_cast<int>(lock.remaining().count()), refused);
        example::require(lock.held(), "the lock is still held");
        example::require(refused == 15, "nobody else had it meanwhile");
    });
}
