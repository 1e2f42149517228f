// A program that is told to end by a signal, as systemd, Docker and Kubernetes do it, and frees its locks on the way.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <csignal>
#include <cstdio>
#include <stop_token>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

constexpr const char* name = "import:orders";

void import_one() {
    std::this_thread::sleep_for(5ms);
}

void import_orders(redlatch::Client& redis, std::stop_token stop) {
    redlatch::Lock<> lock{redis, name};
    const auto held = lock.acquire({.stop = stop});
    while (held && !stop.stop_requested()) import_one();
}

void serve(const std::string& uri) {
    // [shutdown]
    sigset_t ends{};  // blocked before there is a second thread, as threads inherit it
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);

    redlatch::Client redis{uri};
    std::jthread worker{[&](std::stop_token stop) { import_orders(redis, stop); }};

    int signal = 0;
    sigwait(&ends, &signal);
    worker.request_stop();  // ends the work, and a wait for a lock too
    worker.join();
    // [shutdown]
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client elsewhere{uri};  // stands for another process
        redlatch::Lock<> lock{elsewhere, name};
        std::jthread system{[&lock, program = pthread_self()] {
            while (!lock.inspect().value().locked) std::this_thread::sleep_for(5ms);
            std::printf("the import runs; the system ends the program\n");
            pthread_kill(program, SIGTERM);  // this thread is older than the mask
        }};
        serve(uri);
        example::require(!lock.inspect().value().locked, "the lock is free at once");
        std::printf("the lock is free\n");
    });
}
