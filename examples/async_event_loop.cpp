// The program has an event loop of its own, here plain epoll: a CompletionQueue is one more descriptor in it.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

using namespace std::chrono_literals;

namespace {

void watch(int loop, int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    example::require(::epoll_ctl(loop, EPOLL_CTL_ADD, descriptor, &event) == 0,
                     "epoll takes a descriptor");
}

int read_ticks(int ticks) {
    std::uint64_t expirations = 0;
    return ::read(ticks, &expirations, sizeof expirations) > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        const int loop = ::epoll_create1(EPOLL_CLOEXEC);
        const int ticks = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        itimerspec each{};
        each.it_value.tv_nsec = each.it_interval.tv_nsec = 1'000'000;
        ::timerfd_settime(ticks, 0, &each, nullptr);
        watch(loop, ticks);

        constexpr int orders = 100;
        int ended = 0;
        int done = 0;
        int ticked = 0;
        // [loop]
        redlatch::CompletionQueue queue;
        redlatch::Client redis{redlatch::ClientOptions{.uris = {uri}, .completions = &queue}};
        redlatch::Lock<> lock{redis, "orders"};
        watch(loop, queue.descriptor());

        for (int i = 0; i < orders; ++i) {
            lock.async_acquire({.wait = 1min}, {}, [&](redlatch::Result<redlatch::Held> held) {
                ++ended;
                if (held) ++done;
            });
        }
        while (ended < orders) {  // also those that got no lock, or no server
            epoll_event event{};
            if (::epoll_wait(loop, &event, 1, -1) != 1) continue;
            if (event.data.fd == queue.descriptor()) queue.run_ready();
            if (event.data.fd == ticks) ticked += read_ticks(ticks);  // the loop's other work
        }
        // [loop]
        std::printf("%d orders on one thread, which saw %d ticks meanwhile\n", done, ticked);
        ::close(ticks);
        ::close(loop);
        example::require(done == orders, "all orders are done");
    });
}
