// Three processes with 5,000 coroutines each want coupons: 15,000 waiters on three threads. Buying is not
// atomic, on purpose; the lock sees to it that no coupon is sold twice.

#include "own_redis.hpp"
#include "plain_redis.hpp"
#include "task.hpp"
#include <redlatch/redlatch.hpp>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr int processes = 3;
constexpr int buyers = 5000;  // in each
constexpr int coupons = 12'000;

/// The shop's data, over a plain connection: it knows of no lock.
class Shop {
public:
    explicit Shop(const std::string& uri) : redis_(uri) {}

    void open() {
        redis_.command({"SET", "stock", std::to_string(coupons)});
        redis_.command({"DEL", "sold"});
    }
    void sell_one() {
        const int stock = number({"GET", "stock"});
        if (stock == 0) return;
        redis_.command({"SET", "stock", std::to_string(stock - 1)});
        redis_.command({"SADD", "sold", std::to_string(stock)});
        ++sold_;
    }
    int sold_here() const { return sold_; }
    int different_coupons_sold() {
        return static_cast<int>(redis_.command({"SCARD", "sold"})->integer);
    }

private:
    int number(const std::vector<std::string>& command) {
        return std::atoi(redis_.command(command)->str);
    }

    example::PlainRedis redis_;
    int sold_ = 0;
};

Task buy(redlatch::Lock<>& lock, Shop& shop, int& left) {
    redlatch::Result<redlatch::Held> held = co_await lock.async_acquire();
    if (held) {
        shop.sell_one();
        (void)co_await held->async_release();
    }
    --left;
}

/// One thread for all its buyers. Writes how many coupons it has sold.
void run_process(const std::string& uri, int result) {
    Shop shop{uri};
    redlatch::CompletionQueue queue;
    redlatch::Client redis{redlatch::ClientOptions{.uris = {uri}, .completions = &queue}};
    redlatch::Lock<> lock{redis, "coupons"};
    int left = buyers;
    for (int i = 0; i < buyers; ++i) buy(lock, shop, left);
    while (left > 0) {
        pollfd ready{.fd = queue.descriptor(), .events = POLLIN, .revents = 0};
        ::poll(&ready, 1, -1);
        queue.run_ready();
    }
    const int sold = shop.sold_here();
    if (::write(result, &sold, sizeof sold) != sizeof sold) std::perror("write");
}

::pid_t start_process(const std::string& uri, int result) {
    const ::pid_t parent = ::getpid();
    const ::pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    run_process(uri, result);
    ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        Shop shop{uri};
        shop.open();
        int result[2] = {};
        example::require(::pipe(result) == 0, "there is a pipe");
        const auto began = redlatch::Clock::now();
        std::vector<::pid_t> children;
        for (int i = 0; i < processes; ++i) children.push_back(start_process(uri, result[1]));
        int sold = 0;
        for (const ::pid_t child : children) {
            int status = -1;
            ::waitpid(child, &status, 0);
            example::require(status == 0, "every process ends well");
            int here = 0;
            if (::read(result[0], &here, sizeof here) == sizeof here) sold += here;
            std::printf("one process has sold %d\n", here);
        }
        const std::chrono::duration<double> took = redlatch::Clock::now() - began;
        std::printf("%d coupons to %d waiters on %d threads in %.1f s\n", sold, processes * buyers,
                    processes, took.count());
        example::require(sold == coupons && shop.different_coupons_sold() == coupons,
                         "each coupon is sold once");
    });
}
