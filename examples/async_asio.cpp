// Locks in a program that runs on Asio: coroutines with a deadline by a timer, and cancellation.

#include "own_redis.hpp"
#include <redlatch/asio.hpp>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>
#include <cstdio>

using namespace std::chrono_literals;

namespace {

// [asio]
asio::awaitable<void> order(redlatch::Lock<>& lock, int& orders) {
    auto held = co_await redlatch::async_acquire(lock, {.wait = 1min}, asio::use_awaitable);
    if (!held) co_return;
    asio::steady_timer work{co_await asio::this_coro::executor, 1ms};
    co_await work.async_wait(asio::use_awaitable);  // the hold is `held`, whichever thread goes on
    ++orders;
    (void)co_await redlatch::async_release(*held, asio::use_awaitable);
}
// [asio]

/// `||` cancels the loser.
asio::awaitable<void> impatient(redlatch::Lock<>& lock, bool& gave_up) {
    using namespace asio::experimental::awaitable_operators;
    asio::steady_timer timer{co_await asio::this_coro::executor, 50ms};
    const auto first = co_await (redlatch::async_acquire(lock, {}, asio::use_awaitable) ||
                                 timer.async_wait(asio::use_awaitable));
    gave_up = first.index() == 1;
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        redlatch::Lock<> orders_lock{redis, "orders"};
        redlatch::Lock<> busy{redis, "busy"};
        const redlatch::Held taken = busy.acquire().value();

        asio::io_context io;
        int orders = 0;
        bool gave_up = false;
        for (int i = 0; i < 40; ++i) asio::co_spawn(io, order(orders_lock, orders), asio::detached);
        asio::co_spawn(io, impatient(busy, gave_up), asio::detached);
        io.run();
        std::printf("%d orders; the impatient one %s\n", orders,
                    gave_up ? "gave up after 50 ms" : "got the lock");
        example::require(orders == 40 && gave_up, "all orders are served, and one gives up");
        example::require(busy.inspect().value().waiters == 0, "nothing is left behind");
    });
}
