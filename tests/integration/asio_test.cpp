// Asynchronous operations with Asio's completion tokens. Built twice, for standalone Asio and for Boost.Asio.

#include "async_tools.hpp"
#include "support/process.hpp"
#include "support/sanitizers.hpp"
#include <redlatch/asio.hpp>

#include <gtest/gtest.h>

#if defined(REDLATCH_BOOST_ASIO)
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#if defined(BOOST_ASIO_HAS_CO_AWAIT)
#define REDLATCH_TEST_ASIO_COROUTINES
#endif
#else
#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/compose.hpp>
#include <asio/detached.hpp>
#include <asio/execution/outstanding_work.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/require.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#if defined(ASIO_HAS_CO_AWAIT)
#define REDLATCH_TEST_ASIO_COROUTINES
#endif
#endif

#include <sys/resource.h>

#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace redlatch::test {

#if defined(REDLATCH_BOOST_ASIO)
namespace asio = boost::asio;
#endif

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

/// Whether `run()` returns.
bool runs_out(asio::io_context& io) {
    io.restart();
    io.run_for(generous_limit);
    return io.stopped();
}

/// The same executor, whose context has work as long as there is a copy of it.
template <class Executor>
auto with_work(const Executor& executor) {
    return asio::require(executor, asio::execution::outstanding_work.tracked);
}

/// A composed operation.
struct TakeAndRelease {
    Lock<Simple>& lock;
    std::unique_ptr<Held> held;
    template <class Self>
    void operator()(Self& self) {
        async_acquire(lock, {}, std::move(self));
    }
    template <class Self>
    void operator()(Self& self, Result<Held> result) {
        if (!result) return self.complete(false);
        held = std::make_unique<Held>(std::move(*result));
        Held& its = *held;
        async_release(its, std::move(self));
    }
    template <class Self>
    void operator()(Self& self, Result<Release> result) {
        self.complete(result && *result == Release::released);
    }
};

TEST_F(AsioTest, run_returns_after_a_composed_operation) {
    Lock<Simple> lock{client_, "key"};
    asio::io_context io;
    for (int i = 0; i < 2; ++i) {
        bool released = false;
        auto handler = [&](bool its) { released = its; };
        asio::async_compose<decltype(handler), void(bool)>(TakeAndRelease{lock, {}}, handler, io);
        ASSERT_TRUE(runs_out(io));
        EXPECT_TRUE(released);
    }
}

TEST_F(AsioTest, run_returns_after_an_operation_whose_executor_has_work) {
    Lock<Simple> lock{client_, "key"};
    const auto run = [&](auto executor_of) {
        asio::io_context io;
        for (int i = 0; i < 2; ++i) {
            std::optional<Result<Held>> result;
            async_acquire(lock, {}, asio::bind_executor(executor_of(io), [&](Result<Held> held) {
                              result.emplace(std::move(held));
                          }));
            ASSERT_TRUE(runs_out(io));
            EXPECT_TRUE(result && *result);
        }
    };
    using Any = asio::any_io_executor;
    run([](auto& io) { return with_work(io.get_executor()); });
    run([](auto& io) { return Any{with_work(io.get_executor())}; });
    run([](auto& io) { return asio::make_strand(with_work(io.get_executor())); });
    run([](auto& io) { return asio::make_strand(Any{io.get_executor()}); });
    run([](auto& io) { return Any{asio::make_strand(Any{with_work(io.get_executor())})}; });
}

TEST_F(AsioTest, strand_that_stalls_delays_no_other) {
    Lock<Simple> lock{client_, "key"};
    Lock<Simple> other{client_, "other"};
    const auto run = [&](auto strand_of) {
        std::promise<void> is_stalled;
        std::promise<void> goes_on;
        asio::thread_pool pool{2};
        async_acquire(lock, {.wait = 20s},
                      asio::bind_executor(strand_of(pool), [&](const Result<Held>& held) {
                          EXPECT_TRUE(held);
                          is_stalled.set_value();
                          EXPECT_EQ(goes_on.get_future().wait_for(generous_limit),
                                    std::future_status::ready);
                      }));
        EXPECT_EQ(is_stalled.get_future().wait_for(generous_limit), std::future_status::ready);
        async_acquire(other, {.wait = 20s},
                      asio::bind_executor(pool, [&](const Result<Held>& held) {
                          EXPECT_TRUE(held);
                          goes_on.set_value();
                      }));
        pool.join();
    };
    using Any = asio::any_io_executor;
    run([](auto& pool) { return asio::make_strand(pool); });
    run([](auto& pool) { return Any{asio::make_strand(pool)}; });
    run([](auto& pool) { return asio::make_strand(Any{pool.get_executor()}); });
    run([](auto& pool) { return Any{asio::make_strand(with_work(pool.get_executor()))}; });
    run([](auto& pool) { return Any{asio::make_strand(Any{asio::make_strand(pool)})}; });
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
    std::optional<Result<SemaphoreInfo>> info;
    async_inspect(semaphore, to(info));
    io.restart();
    io.run();
    ASSERT_TRUE(info && *info);
    EXPECT_EQ((*info)->taken, 2U);
    std::optional<Result<void>> downgraded;
    async_downgrade(**reading, to(downgraded));
    io.restart();
    io.run();
    ASSERT_TRUE(downgraded.has_value());
    EXPECT_EQ(code_of(*downgraded), Errc::not_held) << "it reads already";
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

    LockSet<Shared> read_set{client_, {"c", "d"}};
    LockSet<Shared> other_read_set{other_client_, {"d", "c"}};
    std::optional<Result<HeldSet>> reads;
    std::optional<Result<HeldSet>> other_reads;
    async_acquire_shared(read_set, {.wait = 20s}, to(reads));
    async_acquire_shared(other_read_set, {.wait = 20s}, to(other_reads));
    io.restart();
    io.run();
    EXPECT_TRUE(reads && *reads);
    EXPECT_TRUE(other_reads && *other_reads) << "both read";
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

/// Gives a lock back as it goes, such as a scope guard in a coroutine.
class GivesBack {
public:
    GivesBack(Held held, asio::io_context& io) : held_(std::move(held)), io_(&io) {}
    GivesBack(const GivesBack&) = delete;
    GivesBack& operator=(const GivesBack&) = delete;
    ~GivesBack() {
        async_release(held_, asio::bind_executor(*io_, [](const Result<Release>&) { FAIL(); }));
    }

private:
    Held held_;
    asio::io_context* io_;
};

TEST_F(AsioTest, release_begun_by_a_handler_that_its_context_destroys_goes_on) {
    Lock<Simple> first{client_, "first"};
    Lock<Simple> second{client_, "second"};
    Lock<Simple> taken{client_, "taken"};
    Lock<Simple> keeper{client_, "taken"};
    const Held holder = take(keeper);
    {
        asio::io_context io;
        asio::steady_timer timer{io, 1h};
        timer.async_wait([guard = std::make_unique<GivesBack>(take(first), io)](const auto&) {});
        async_acquire(taken, {},
                      asio::bind_executor(io, [guard = std::make_unique<GivesBack>(
                                                   take(second), io)](const Result<Held>&) {}));
        Lock<Simple> third{client_, "third"};
        asio::post(io, [guard = std::make_unique<GivesBack>(take(third), io)] {});
    }
    for (const std::string name : {"first", "second", "third"}) {
        EXPECT_TRUE(eventually([&] { return !redis_.exists(name); })) << name;
    }
}

TEST_F(AsioTest, first_release_of_a_context_may_be_begun_by_a_handler_that_it_destroys) {
    Lock<Simple> first{client_, "first"};
    Lock<Simple> second{client_, "second"};
    {
        asio::io_context io;
        asio::post(io, [guard = std::make_unique<GivesBack>(take(first), io)] {});
        asio::post(io, [guard = std::make_unique<GivesBack>(take(second), io)] {});
    }
    for (const std::string name : {"first", "second"}) {
        EXPECT_TRUE(eventually([&] { return !redis_.exists(name); })) << name;
    }
}

TEST_F(AsioTest, first_release_of_a_context_may_be_begun_by_a_timer_that_it_destroys) {
    Lock<Simple> lock{client_, "key"};
    {
        asio::io_context io;
        asio::steady_timer timer{io, 1h};
        timer.async_wait([guard = std::make_unique<GivesBack>(take(lock), io)](const auto&) {});
    }
    EXPECT_TRUE(eventually([&] { return !redis_.exists("key"); }));
}

/// What a client and all that goes on with it keep.
class KeptByClient {
public:
    explicit KeptByClient(const RedisServer& server)
        : client(std::in_place, [&] {
              ClientOptions options = patient(server.uri());
              options.observer = observer_;
              return options;
          }()) {}

    /// Whether nothing keeps the client; waits for that.
    bool end() {
        client.reset();
        return eventually([this] { return observer_.use_count() == 1; });
    }

private:
    const std::shared_ptr<Observer> observer_ = std::make_shared<Acquisitions>();

public:
    std::optional<Client> client;
};

/// While it lives, this process gets no descriptor any more.
class NoDescriptors {
public:
    NoDescriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit none{.rlim_cur = 3, .rlim_max = before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &none);
    }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;
    ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
    rlimit before_{};
};

TEST_F(AsioTest, release_that_cannot_be_waited_for_leaves_nothing_behind) {
#if defined(REDLATCH_TEST_ASAN)
    GTEST_SKIP() << "UBSan, which comes with ASan, looks at objects through a pipe of its own";
#endif
    KeptByClient kept{server_};
    asio::io_context io;
    const auto alive = std::make_shared<int>();
    int told = 0;
    const auto handler = [&] {
        return asio::bind_executor(io, [alive, &told](const Result<Release>& released) {
            EXPECT_EQ(code_of(released), Errc::unavailable);
            ++told;
        });
    };
    {
        Lock<Simple> lock{*kept.client, "key"};
        LockSet<Simple> set{*kept.client, {"a", "b"}};
        Held held = take(lock);
        Outcome<HeldSet> taken;
        set.async_acquire({}, {}, taken.callback());
        HeldSet both = std::move(taken.get()).value();
        const NoDescriptors none;
        async_release(held, handler());
        async_release(both, handler());
    }
    EXPECT_TRUE(eventually(
        [&] { return !redis_.exists("key") && !redis_.exists("a") && !redis_.exists("b"); }));
    EXPECT_TRUE(kept.end());
    EXPECT_EQ(told, 0) << "on its executor only";
    io.run();
    EXPECT_EQ(told, 2);
    EXPECT_EQ(alive.use_count(), 1);
}

#if defined(REDLATCH_TEST_ASIO_COROUTINES)
TEST_F(AsioTest, coroutine_hears_that_the_system_has_no_descriptor) {
#if defined(REDLATCH_TEST_ASAN)
    GTEST_SKIP() << "UBSan, which comes with ASan, looks at objects through a pipe of its own";
#endif
    Lock<Simple> lock{client_, "key"};
    std::optional<Result<Held>> acquired;
    std::optional<Result<Release>> released;
    Held held = take(lock);
    asio::io_context io;
    const auto use = [&]() -> asio::awaitable<void> {
        {
            const NoDescriptors none;
            acquired.emplace(co_await async_acquire(lock, {.wait = 0s}, asio::use_awaitable));
            released.emplace(co_await async_release(held, asio::use_awaitable));
        }
        EXPECT_EQ(code_of(*acquired), Errc::unavailable);
        EXPECT_NE(acquired->error().describe().find("Too many open files"), std::string::npos)
            << acquired->error().describe();
        EXPECT_EQ(code_of(*released), Errc::unavailable);
        acquired.emplace(co_await async_acquire(lock, {.wait = 20s}, asio::use_awaitable));
    };
    asio::co_spawn(io, use(), asio::detached);
    io.run();
    ASSERT_TRUE(released);
    EXPECT_TRUE(*acquired) << "as soon as there are some";
}
#endif

TEST_F(AsioTest, child_completes_what_is_its_own) {
    Lock<Simple> theirs{other_client_, "key"};
    std::optional<Result<Held>> other = theirs.acquire();
    Lock<Simple> lock{client_, "key"};
    Lock<Simple> free{client_, "free"};
    asio::io_context io;
    const auto alive = std::make_shared<int>();
    std::optional<Result<Held>> waited;
    std::optional<Result<Held>> posted;
    const auto to = [&io, &alive](auto& result) {
        return asio::bind_executor(
            io, [&result, alive](auto held) { result.emplace(std::move(held)); });
    };
    async_acquire(lock, {}, to(waited));
    ASSERT_TRUE(eventually([&] { return lock.inspect().value().waiters == 1; }));
    async_acquire(free, {}, to(posted));
    io.run_one();  // hears of what has completed: its handler is next
    ASSERT_FALSE(posted);
    ASSERT_TRUE(eventually([] { return other_threads_sleep(); }));

    io.notify_fork(asio::execution_context::fork_prepare);
    ChildProcess child{[&](LineChannel& parent) {
        io.notify_fork(asio::execution_context::fork_child);
        Lock<Simple> its{client_, "child"};
        std::optional<Result<Held>> held;
        async_acquire(its, {.wait = 20s}, asio::bind_executor(io, [&](Result<Held> result) {
                          held.emplace(std::move(result));
                      }));
        io.run_for(generous_limit);
        if (!io.stopped()) {
            parent.write_line("goes on");
        } else if (!held || !*held) {
            parent.write_line("has no lock");
        } else if (waited || posted) {
            parent.write_line("has its parent's");
        } else if (alive.use_count() != 1) {
            parent.write_line("keeps its parent's handlers");
        } else {
            parent.write_line("ok");
        }
        return 0;
    }};
    io.notify_fork(asio::execution_context::fork_parent);
    EXPECT_EQ(child.read_line(2 * generous_limit).value_or("no answer"), "ok");
    EXPECT_TRUE(child.wait());
    other.reset();
    io.run();
    EXPECT_TRUE(waited && *waited) << "the parent goes on";
    EXPECT_TRUE(posted && *posted);
}

TEST_F(AsioTest, child_that_ends_with_its_copy_of_a_context_takes_nothing_from_its_parent) {
    auto io = std::make_unique<asio::io_context>();
    const asio::steady_timer makes_the_reactor_first{*io};
    Lock<Simple> theirs{other_client_, "key"};
    std::optional<Result<Held>> other = theirs.acquire();
    Lock<Simple> lock{client_, "key"};
    std::optional<Result<Held>> waited;
    async_acquire(lock, {}, asio::bind_executor(*io, [&](Result<Held> held) {
                      waited.emplace(std::move(held));
                  }));
    ASSERT_TRUE(eventually([&] { return lock.inspect().value().waiters == 1; }));
    ASSERT_TRUE(eventually([] { return other_threads_sleep(); }));
    ChildProcess child{[&](LineChannel&) {
        io.reset();  // as where it ends by exit()
        return 0;
    }};
    EXPECT_TRUE(child.wait());
    other.reset();
    io->run_for(generous_limit);
    ASSERT_TRUE(waited && *waited);
    waited.reset();
    async_acquire(lock, {}, asio::bind_executor(*io, [&](Result<Held> held) {
                      waited.emplace(std::move(held));
                  }));
    io->restart();
    io->run_for(generous_limit);
    EXPECT_TRUE(waited && *waited) << "later";
}

#if defined(REDLATCH_TEST_ASIO_COROUTINES)

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

TEST_F(AsioTest, coroutine_takes_and_releases) {
    Lock<Simple> lock{client_, "key"};
    LockSet<Simple> set{client_, {"a", "b"}};
    asio::io_context io;
    int done = 0;
    const auto work = [&]() -> asio::awaitable<void> {
        auto held = co_await async_acquire(lock, {.wait = 20s}, asio::use_awaitable);
        auto both = co_await async_acquire(set, {.wait = 20s}, asio::use_awaitable);
        if (!held || !both) co_return;
        const auto extended = co_await async_extend(*held, 60s, asio::use_awaitable);
        const auto released = co_await async_release(*held, asio::use_awaitable);
        const auto both_released = co_await async_release(*both, asio::use_awaitable);
        if (extended && released.value() == Release::released &&
            both_released.value() == Release::released) {
            ++done;
        }
    };
    for (int i = 0; i < 10; ++i) asio::co_spawn(io, work(), asio::detached);
    io.run();
    EXPECT_EQ(done, 10);
}

TEST_F(AsioTest, release_that_its_token_never_begins_leaves_nothing_behind) {
    KeptByClient kept{server_};
    {
        Lock<Simple> lock{*kept.client, "key"};
        LockSet<Simple> set{*kept.client, {"a", "b"}};
        Held held = take(lock);
        Outcome<HeldSet> taken;
        set.async_acquire({}, {}, taken.callback());
        HeldSet both = std::move(taken.get()).value();
        { const auto never = async_release(held, asio::use_awaitable); }
        { const auto never = async_release(both, asio::use_awaitable); }
        { const auto never = async_acquire(lock, {}, asio::use_awaitable); }
        EXPECT_TRUE(eventually([&] {
            return !redis_.exists("key") && !redis_.exists("a") && !redis_.exists("b");
        })) << "a release begins at the call";
    }
    EXPECT_TRUE(kept.end());
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
