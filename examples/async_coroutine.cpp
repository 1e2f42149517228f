// Fifty coroutines sell forty coupons, and none of them has a thread while it waits.

#include "own_redis.hpp"
#include "task.hpp"
#include <redlatch/redlatch.hpp>

#include <cstdio>
#include <latch>
#include <stop_token>

using namespace std::chrono_literals;

namespace {

struct Shop {
    int coupons = 40;  // guarded by the lock
    int sold = 0;      // likewise
};

// [coroutine]
Task buy(redlatch::Lock<>& lock, Shop& shop, std::stop_token stop, std::latch& done) {
    redlatch::Result<redlatch::Held> held = co_await lock.async_acquire({.wait = 1min}, stop);
    if (held) {
        if (shop.coupons > 0) {
            --shop.coupons;
            ++shop.sold;
        }
        (void)co_await held->async_release();
    } else {
        std::printf("%s\n", held.error().describe().c_str());
    }
    done.count_down();
}
// [coroutine]

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        constexpr int buyers = 50;
        Shop shop;
        std::latch done{buyers};
        std::stop_source shutdown;
        redlatch::Client redis{uri};
        redlatch::Lock<> lock{redis, "coupons"};
        for (int i = 0; i < buyers; ++i) buy(lock, shop, shutdown.get_token(), done);
        done.wait();
        std::printf("%d coupons sold to %d buyers\n", shop.sold, buyers);
        example::require(shop.sold == 40 && shop.coupons == 0, "each coupon is sold once");
    });
}
