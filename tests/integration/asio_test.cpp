// Asynchronous operations with Asio's completion tokens.

#include "async_tools.hpp"
#include <redlatch/asio.hpp>

#include <gtest/gtest.h>

#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace redlatch::test {
namespace {

using AsioTest = LockTest;

TEST_F(AsioTest, handler_runs_in_the_context_and_gives_it_work) {
    Lock<Simple> lock{client_, "key"};
    asio::io_context io;
    std::optional<Result<Held>> result;
    std::thread::id thread;
    async_acquire(lock, {}, asio::bind_executor(io, [&](Result<Held> held) {
                      thread = std::this_thread::get_id();
                      result.emplace(std::move(held));
                  }));
    EXPECT_TRUE(stays([&] { return !result; }, 20ms));
    io.run();
    ASSERT_TRUE(result);
    EXPECT_TRUE(*result);
    EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST_F(AsioTest, all_calls_take_a_token) {
    Lock<Reentrant> lock{client_, "key"};
    asio::io_context io;
    std::optional<Result<Held>> held;
    std::optional<Result<Held>> inner;
    std::optional<Result<LockInfo>> info;
    std::optional<Result<void>> extended;
    std::optional<Result<Release>> released;
    const auto to = [&io](auto& result) {
        return asio::bind_executor(io,
                                   [&result](auto outcome) { result.emplace(std::move(outcome)); });
    };
    const auto run = [&io] {
        io.restart();
        io.run();
    };
    async_acquire(lock, {.lease = 10s}, to(held));
    run();
    ASSERT_TRUE(held && *held);
    async_nest(**held, to(inner));
    run();
    ASSERT_TRUE(inner && *inner);
    async_inspect(lock, to(info));
    run();
    ASSERT_TRUE(info && *info);
    EXPECT_EQ((*info)->hold_count, 2U);
    async_extend(**held, 60s, to(extended));
    run();
    ASSERT_TRUE(extended && *extended);
    EXPECT_GT((*held)->remaining(), 30s);
    async_release(**held, to(released));
    run();
    ASSERT_TRUE(released && *released);
    EXPECT_EQ(**released, Release::still_held);
}

TEST_F(AsioTest, readers_permits_and_sets_take_a_token) {
    Lock<Shared> lock{client_, "key"};
    Semaphore<> semaphore{client_, "permits", 3};
    asio::io_context io;
    std::optional<Result<Held>> reading;
    std::optional<Result<Held>> permits;
    LockSet<Simple> set{client_, {"a", "b"}};
    std::optional<Result<HeldSet>> both;
    std::optional<Result<void>> extended;
    std::optional<Result<Release>> released;
    const auto to = [&io](auto& result) {
        return asio::bind_executor(io,
                                   [&result](auto outcome) { result.emplace(std::move(outcome)); });
    };
    async_acquire_shared(lock, {.wait = 20s}, to(reading));
    async_take(semaphore, {.permits = 2}, to(permits));
    io.run();
    ASSERT_TRUE(reading && *reading);
    EXPECT_FALSE(lock.try_lock());
    ASSERT_TRUE(permits && *permits);
    EXPECT_EQ(semaphore.inspect().value().taken, 2U);
    async_acquire(set, {.wait = 20s}, to(both));
    io.restart();
    io.run();
    ASSERT_TRUE(both && *both);
    async_extend(**both, 60s, to(extended));
    io.restart();
    io.run();
    ASSERT_TRUE(extended && *extended);
    EXPECT_GT((*both)->remaining(), 30s);
    async_release(**both, to(released));
    io.restart();
    io.run();
    ASSERT_TRUE(released && *released);
    EXPECT_EQ(**released, Release::released);
}

TEST_F(AsioTest, slot_cancels_the_wait) {
    Lock<Simple> theirs{other_client_, "key"};
    const Result<Held> other = theirs.acquire();
    Lock<Simple> lock{client_, "key"};
    asio::io_context io;
    asio::cancellation_signal cancel;
    std::optional<Result<Held>> result;
    async_acquire(
        lock, {},
        asio::bind_cancellation_slot(cancel.slot(), asio::bind_executor(io, [&](Result<Held> held) {
                                         result.emplace(std::move(held));
                                     })));
    ASSERT_TRUE(eventually([&] { return lock.inspect().value().waiters == 1; }));
    cancel.emit(asio::cancellation_type::terminal);
    io.run();
    ASSERT_TRUE(result);
    EXPECT_EQ(code_of(*result), Errc::cancelled);
}

TEST_F(AsioTest, context_may_go_first) {
    Lock<Simple> keeper{client_, "key"};
    Lock<Simple> lock{client_, "key"};
    const auto alive = std::make_shared<int>();
    std::optional<Held> holder = take(keeper);
    {
        asio::io_context io;
        async_acquire(lock, {}, asio::bind_executor(io, [alive](const Result<Held>&) { FAIL(); }));
        Lock<Simple> free{client_, "free"};
        async_acquire(free, {}, asio::bind_executor(io, [alive](const Result<Held>&) { FAIL(); }));
        ASSERT_TRUE(eventually([&] { return redis_.exists("free"); }));
    }
    EXPECT_EQ(alive.use_count(), 1)
        << "handlers are destroyed while there is a context to refer to";
    EXPECT_TRUE(eventually([&] { return !redis_.exists("free"); })) << "nobody keeps it";
    holder.reset();
    EXPECT_TRUE(lock.try_lock_for(20s)) << "nor the other one";
    lock.unlock();
}

#if defined(ASIO_HAS_CO_AWAIT)

TEST_F(AsioTest, context_destroys_a_coroutine_that_waits) {
    Lock<Simple> theirs{other_client_, "key"};
    std::optional<Result<Held>> other = theirs.acquire();
    Lock<Simple> lock{client_, "key"};
    const auto alive = std::make_shared<int>();
    {
        asio::io_context io;
        const auto wait = [](Lock<Simple>& its, std::shared_ptr<int>) -> asio::awaitable<void> {
            static_cast<void>(co_await async_acquire(its, {}, asio::use_awaitable));
            ADD_FAILURE();
        };
        asio::co_spawn(io, wait(lock, alive), asio::detached);
        while (theirs.inspect().value().waiters == 0) io.run_one_for(1ms);
    }
    EXPECT_EQ(alive.use_count(), 1);
    other.reset();
    EXPECT_TRUE(lock.try_lock_for(20s));
    lock.unlock();
}

#endif

TEST_F(AsioTest, client_may_go_first) {
    asio::io_context io;
    std::optional<Client> client{std::in_place, server_.uri()};
    Lock<Simple> theirs{other_client_, "key"};
    const Result<Held> other = theirs.acquire();
    Lock<Simple> lock{*client, "key"};
    std::optional<Result<Held>> result;
    async_acquire(lock, {}, asio::bind_executor(io, [&](Result<Held> held) {
                      result.emplace(std::move(held));
                  }));
    client.reset();
    io.run();
    ASSERT_TRUE(result);
    EXPECT_EQ(code_of(*result), Errc::cancelled);
}

TEST_F(AsioTest, what_a_handler_throws_comes_out_of_run) {
    Lock<Simple> lock{client_, "key"};
    asio::io_context io;
    async_acquire(lock, {}, asio::bind_executor(io, [](const Result<Held>&) {
                      throw std::runtime_error{"from a handler"};
                  }));
    EXPECT_THROW(io.run(), std::runtime_error);
}

TEST_F(AsioTest, completes_in_a_thread_pool_and_as_a_future) {
    Lock<Simple> lock{client_, "key"};
    asio::thread_pool pool{2};
    for (int i = 0; i < 20; ++i) {
        auto future = async_acquire(lock, {.wait = 20s},
                                    asio::bind_executor(asio::make_strand(pool), asio::use_future));
        Result<Held> held = future.get();
        ASSERT_TRUE(held);
        EXPECT_EQ(async_release(*held, asio::use_future).get().value(), Release::released);
    }
    pool.join();
}

}  // namespace
}  // namespace redlatch::test
