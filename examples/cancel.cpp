// A wait that ends when somebody else says so: at shutdown, or when the user presses "cancel".

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        redlatch::Client elsewhere{uri};  // stands for another process
        redlatch::Lock<> rival{elsewhere, "printer"};
        redlatch::Lock<> lock{redis, "printer"};
        const std::lock_guard taken{rival};

        bool printed = false;
        const auto print_document = [&] { printed = true; };
        redlatch::Errc reason{};

        // [cancel]
        std::jthread worker{[&](std::stop_token stop) {
            auto held = lock.acquire({.wait = 1min, .stop = stop});
            if (held) {
                print_document();
            } else {
                reason = held.error().code;  // redlatch::Errc::cancelled
            }
        }};
        // [cancel]

        std::this_thread::sleep_for(300ms);
        const auto asked = redlatch::Clock::now();
        worker.request_stop();
        worker.join();
        const auto took = redlatch::Clock::now() - asked;
        std::printf("the wait ended %.1f ms after it was cancelled\n",
                    std::chrono::duration<double, std::milli>(took).count());
        example::require(!printed && reason == redlatch::Errc::cancelled, "the wait was cancelled");
        example::require(took < 20s, "it ended long before its minute was over");
    });
}
