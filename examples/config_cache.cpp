// Many read a configuration, and one writes it now and then: whoever has written it reads on, and no other
// writer gets in between.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// What all share: two values that belong together.
struct Configuration {
    std::atomic<int> version{1};
    std::atomic<int> checksum{-1};

    bool is_whole() const { return version == -checksum; }
    void change() {
        ++version;
        std::this_thread::sleep_for(5ms);
        checksum = -version;
    }
};

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        Configuration shared;
        std::atomic<int> broken{0};
        std::atomic<int> reads{0};
        const auto use = [&] {
            if (!shared.is_whole()) ++broken;
            ++reads;
        };
        const auto update = [&] { shared.change(); };

        // [shared]
        redlatch::Lock<redlatch::Watchdog<redlatch::Shared>> config{redis, "config:prod"};
        // [shared]
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                for (int round = 0; round < 10; ++round) {
                    // [shared]
                    {
                        std::shared_lock reading{config};  // many at a time
                        use();
                    }
                    // [shared]
                }
            });
        }
        threads.emplace_back([&] {
            for (int round = 0; round < 5; ++round) {
                // [shared]
                if (auto held = config.acquire({.wait = 10s})) {  // one alone
                    update();
                    (void)held->downgrade();  // others read along from here, and nobody writes
                    use();
                }
                // [shared]
            }
        });
        threads.clear();
        std::printf("%d reads, %d of a configuration that was half written\n", reads.load(),
                    broken.load());
        example::require(broken == 0 && reads == 45, "nobody reads beside a writer");
    });
}
