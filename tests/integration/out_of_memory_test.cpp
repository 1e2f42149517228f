// The thread that calls has no memory to give. An asynchronous call throws, and nothing was sent. A blocking one throws
// or ends the program, and leaves no lock that nobody has.

#include "async_tools.hpp"
#include "support/own_new.hpp"
#include "support/waiting_thread.hpp"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// How many allocations of this thread succeed before one fails; negative: all of them.
thread_local int successes = -1;
thread_local bool fails_for_good = false;  // as opposed to one allocation alone
thread_local int failures = 0;

void fail_where_it_is_time() {
    if (successes == 0) {
        ++failures;
        if (!fails_for_good) successes = -1;
        throw std::bad_alloc{};
    }
    if (successes > 0) --successes;
}

/// Before which of its allocations this thread is cancelled; negative: before none.
thread_local int cancelled_after = -1;

void cancel_where_it_is_time() {
    if (cancelled_after == 0) ::pthread_cancel(::pthread_self());
    if (cancelled_after >= 0) --cancelled_after;
}

}  // namespace

namespace redlatch::test {
namespace {

/// While it lives, so many allocations of this thread succeed, and then one fails, or each.
class Failing {
public:
    explicit Failing(int fails_after, bool for_good = false) {
        failures = 0;
        fails_for_good = for_good;
        successes = fails_after;
    }
    Failing(const Failing&) = delete;
    Failing& operator=(const Failing&) = delete;
    ~Failing() { successes = -1; }

    static bool has_failed() { return failures > 0; }
};

/// Has allocations of `call` fail, each in turn. False where it has thrown.
template <class Call>
bool returns(int fails_after, bool for_good, Call call) {
    try {
        const Failing failing{fails_after, for_good};
        call();
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

class OutOfMemory : public LockTest {
protected:
    OutOfMemory() {
        Lock<Simple> first{client_, "first"};
        Held held = take(first);  // there is an engine from now on
        EXPECT_EQ(held.release().value(), Release::released);
    }

    void SetUp() override {
        if (!has_own_new) GTEST_SKIP() << "the sanitizer has an operator new of its own";
        before_allocation = &fail_where_it_is_time;
    }
    void TearDown() override { before_allocation = nullptr; }

    /// Has each of the allocations fail that `begin(outcome)` makes on this thread, one at a time; after each failure
    /// `as_before()` must hold. Gives the outcome of the call that had all of them.
    template <class T, class Begin, class AsBefore>
    Result<T> fail_each_allocation(Begin begin, AsBefore as_before) {
        for (int fails_after = 0;; ++fails_after) {
            for (const bool for_good : {true, false}) {
                Outcome<T> outcome;
                if (returns(fails_after, for_good, [&] { begin(outcome); })) {
                    EXPECT_FALSE(Failing::has_failed()) << "a failure was swallowed";
                    EXPECT_GT(fails_after, 0) << "no allocation can fail";
                    return outcome.get();
                }
                EXPECT_TRUE(as_before()) << "allocation " << fails_after;
                EXPECT_FALSE(outcome.is_there());
            }
        }
    }

    /// The same for a client's first asynchronous call, which `begin(lock, held, outcome, executor)` makes. It
    /// may say that it has got no thread instead. `held`: of another lock, and already there.
    template <class T, class Begin>
    void fail_each_allocation_of_a_first_call(Begin begin) {
        for (const bool for_good : {true, false}) {
            Client client{patient(server_.uri())};
            Lock<Reentrant> lock{client, "a name that no string has room for within itself"};
            Lock<Reentrant> other{client, "another name that is as long as that of the other one"};
            Held held = other.acquire({.owner = Owner::hold}).value();
            Loop loop;
            int refused = 0;
            for (int fails_after = 0;; ++fails_after) {
                Outcome<T> outcome;
                if (!returns(fails_after, for_good, [&] { begin(lock, held, outcome, loop); }))
                    continue;
                const bool failed = Failing::has_failed();
                ASSERT_TRUE(loop.run_until([&] { return outcome.is_there(); }));
                const Result<T> result = outcome.get();
                EXPECT_EQ(result.has_value(), !failed);
                if (!failed) break;
                EXPECT_EQ(code_of(result), Errc::unavailable);
                ++refused;
            }
            EXPECT_GT(refused, 0);
        }
    }

    bool nothing_is_there() { return redis_.keys().empty(); }

    std::stop_source stop_;
};

TEST_F(OutOfMemory, nothing_is_asked_for) {
    Lock<> lock{client_, "job"};
    const auto held = fail_each_allocation<Held>(
        [&](auto& outcome) { lock.async_acquire({}, stop_.get_token(), outcome.callback()); },
        [&] { return nothing_is_there(); });
    EXPECT_TRUE(held);
}

TEST_F(OutOfMemory, nothing_is_read) {
    Lock<Shared> lock{client_, "job"};
    const auto held = fail_each_allocation<Held>(
        [&](auto& outcome) {
            lock.async_acquire_shared({}, stop_.get_token(), outcome.callback());
        },
        [&] { return nothing_is_there(); });
    EXPECT_TRUE(held);
}

TEST_F(OutOfMemory, no_permit_is_taken) {
    Semaphore<> semaphore{client_, "pool", 4};
    const auto held = fail_each_allocation<Held>(
        [&](auto& outcome) {
            semaphore.async_take({.permits = 2}, stop_.get_token(), outcome.callback());
        },
        [&] { return nothing_is_there(); });
    EXPECT_TRUE(held);
}

TEST_F(OutOfMemory, what_is_held_stays_as_it_is) {
    Lock<> lock{client_, "job", {.lease = 60s}};
    Held held = take(lock);
    EXPECT_TRUE(fail_each_allocation<void>(
        [&](auto& outcome) { held.async_extend(80s, outcome.callback()); },
        [&] { return held.held() && held.remaining() <= 60s && redis_.pttl("job") <= 60'000; }));
    EXPECT_GT(held.remaining(), 60s);
}

TEST_F(OutOfMemory, nothing_of_a_set_is_asked_for) {
    LockSet<> set{client_, {"a", "b", "c"}};
    const auto held = fail_each_allocation<HeldSet>(
        [&](auto& outcome) { set.async_acquire({}, stop_.get_token(), outcome.callback()); },
        [&] { return nothing_is_there(); });
    EXPECT_TRUE(held);
}

TEST_F(OutOfMemory, nothing_of_a_set_is_extended) {
    LockSet<> set{client_, {"a", "b", "c"}, {.lease = 60s}};
    Outcome<HeldSet> outcome;
    set.async_acquire({}, {}, outcome.callback());
    HeldSet held = std::move(outcome.get()).value();
    EXPECT_TRUE(fail_each_allocation<void>(
        [&](auto& told) { held.async_extend(80s, told.callback()); },
        [&] {
            return held.held() && held.remaining() <= 60s && redis_.pttl("a") <= 60'000 &&
                   redis_.pttl("c") <= 60'000;
        }));
    EXPECT_GT(held.remaining(), 60s);
}

TEST_F(OutOfMemory, nothing_is_nested) {
    Lock<Watchdog<Reentrant>> lock{client_, "job"};
    Held outer = take(lock);
    std::vector<Held> inner;
    for (std::size_t count = 1; count < 6; ++count) {
        auto nested = fail_each_allocation<Held>(
            [&](auto& outcome) { outer.async_nest(outcome.callback()); },
            [&] { return outer.held() && lock.inspect().value().hold_count == count; });
        ASSERT_TRUE(nested);
        inner.push_back(*std::move(nested));
    }
    EXPECT_EQ(outer.release().value(), Release::still_held);
    while (inner.size() > 1) {
        EXPECT_EQ(inner.back().release().value(), Release::still_held);
        inner.pop_back();
    }
    EXPECT_EQ(inner.front().release().value(), Release::released);
}

TEST_F(OutOfMemory, first_call_of_a_client_throws_or_says_that_it_got_no_thread) {
    fail_each_allocation_of_a_first_call<Held>(
        [&](auto& lock, Held&, auto& outcome, Executor& executor) {
            lock.async_acquire({}, stop_.get_token(), outcome.callback(), &executor);
        });
    fail_each_allocation_of_a_first_call<LockInfo>(
        [](auto& lock, Held&, auto& outcome, Executor& executor) {
            lock.async_inspect(outcome.callback(), &executor);
        });
    fail_each_allocation_of_a_first_call<void>(
        [](auto&, Held& held, auto& outcome, Executor& executor) {
            held.async_extend(80s, outcome.callback(), &executor);
        });
    fail_each_allocation_of_a_first_call<Held>(
        [](auto&, Held& held, auto& outcome, Executor& executor) {
            held.async_nest(outcome.callback(), &executor);
        });
}

TEST_F(OutOfMemory, call_that_is_refused_at_once_completes_with_the_next_one) {
    Client client{patient(server_.uri())};
    Lock<> lock{client, "job"};
    for (int fails_after = 0;; ++fails_after) {
        Outcome<Held> refused;
        constexpr bool for_good = true;
        if (!returns(fails_after, for_good,
                     [&] { lock.async_acquire({.lease = 1ms}, {}, refused.callback()); })) {
            continue;
        }
        const bool failed = Failing::has_failed();
        if (failed) {  // there was no thread for it to complete on
            Outcome<LockInfo> next;
            lock.async_inspect(next.callback());
            EXPECT_TRUE(next.get());
        }
        EXPECT_EQ(code_of(refused.get()), Errc::invalid_argument);
        if (!failed) break;
    }
}

TEST_F(OutOfMemory, what_is_awaited_needs_no_more_than_it_has) {
    Lock<> lock{client_, "job"};
    auto acquiring = lock.async_acquire({}, stop_.get_token());
    Outcome<Held> outcome;
    const auto coroutine = [](AsyncResult<Held> awaited, Outcome<Held>& told) -> Detached {
        fails_for_good = false;
        successes = 0;
        auto held = co_await awaited;
        told.callback()(std::move(held));
    };
    coroutine(std::move(acquiring), outcome);
    EXPECT_EQ(std::exchange(successes, -1), 0) << "nothing was allocated";
    EXPECT_TRUE(outcome.get());
}

TEST_F(OutOfMemory, loss_of_a_set_is_told_by_a_later_call) {
    for (int fails_after = 0;; ++fails_after) {
        LockSet<> set{client_, {"a", "b", "c"}};
        HeldSet held = std::move(set.acquire()).value();
        const bool returned = returns(fails_after, false, [&] { (void)held.lost(); });
        const std::stop_token lost = held.lost();
        Client other{server_.uri()};
        EXPECT_TRUE(Lock<>(other, "c").force_unlock());
        EXPECT_EQ(code_of(held.extend(1min)), Errc::lost);
        EXPECT_TRUE(eventually([&] { return lost.stop_requested(); })) << fails_after;
        if (returned) break;
    }
}

/// A call ends a whole process where there is no memory for what it has to know.
class OutOfMemoryOfAProcess : public OutOfMemory {
protected:
    void SetUp() override {
#if defined(REDLATCH_TEST_ASAN)
        GTEST_SKIP() << "another thread may have locked the sanitizer's allocator at the fork";
#endif
        OutOfMemory::SetUp();
    }

    /// What `call` returns in a child; nothing where that has ended the child.
    template <class Call>
    static std::optional<int> in_a_child(Call call) {
        const ::pid_t child = ::fork();
        if (child == 0) {
            ::close(STDERR_FILENO);  // std::terminate says that there was no memory
            ::_exit(call());
        }
        int status = 0;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
        EXPECT_EQ(WTERMSIG(status), SIGABRT);
        return std::nullopt;
    }
};

/// A client that asks three masters: each of its calls awaits three answers.
class OutOfMemoryBetweenAnswers : public OutOfMemoryOfAProcess {
protected:
    enum Ended : int { done, thrown, mixed_up };

    ClientOptions options() const {
        ClientOptions options = patient(server_.uri());
        options.uris = {server_.uri(), second_.uri(), third_.uri()};
        options.node_timeout = 10s;
        options.longest_lease = 0ms;
        return options;
    }

    /// A `try_lock()` of which one allocation fails, and one of what somebody else has.
    Ended try_both(int fails_after) {
        Client client{options()};
        Lock<Simple>{client, "first"}.acquire().value().release().value();
        Lock<Simple> free{client, "free", {.lease = 100ms}};
        Lock<Simple> taken{client, "taken"};
        bool has_failed = false;
        const bool has_returned = returns(fails_after, false, [&] { (void)free.try_lock(); });
        has_failed = Failing::has_failed();
        if (taken.try_lock()) return mixed_up;
        return has_returned && !has_failed ? done : thrown;
    }

    RedisServer second_;
    RedisServer third_;
};

TEST_F(OutOfMemoryBetweenAnswers, no_answer_is_taken_for_another_one) {
    Client other{options()};
    Lock<> lock{other, "taken"};
    lock.lock();
    int times_thrown = 0;
    for (int fails_after = 0;; ++fails_after) {
        const auto ended = in_a_child([&] { return try_both(fails_after); });
        EXPECT_NE(ended, mixed_up) << "allocation " << fails_after;
        if (ended == thrown) ++times_thrown;
        if (ended == done) break;
    }
    EXPECT_GT(times_thrown, 0);
}

class OutOfMemoryInASet : public OutOfMemoryOfAProcess {
protected:
    enum Ended : int { done, thrown, left_behind };

    Ended lock_both(int fails_after, bool for_good) {
        Client client{patient(server_.uri(), std::make_shared<Observer>())};
        Lock<>{client, "first"}.acquire().value().release().value();
        LockSet<> set{client, std::vector<std::string>{"a", "b"}, {.lease = 5min}};
        const bool has_returned = returns(fails_after, for_good, [&] { set.lock(); });
        if (has_returned) return Failing::has_failed() ? thrown : done;
        if (for_good) return thrown;  // what could not be released lasts for its lease
        const auto are_free = [this] { return !redis_.exists("a") && !redis_.exists("b"); };
        return eventually(are_free) ? thrown : left_behind;
    }
};

TEST_F(OutOfMemoryInASet, what_was_taken_is_given_back) {
    for (const bool for_good : {false, true}) {
        int times_thrown = 0;
        int times_aborted = 0;
        for (int fails_after = 0;; ++fails_after) {
            redis_.command({"DEL", "a", "b"});  // of a process that has ended
            const auto ended = in_a_child([&] { return lock_both(fails_after, for_good); });
            EXPECT_NE(ended, left_behind) << "allocation " << fails_after;
            if (!ended) ++times_aborted;
            if (ended == thrown) ++times_thrown;
            if (ended == done) break;
        }
        EXPECT_GT(times_thrown, times_aborted) << for_good;
    }
}

/// A thread whose call throws, and that ends what it has besides.
class OutOfMemoryInACall : public OutOfMemoryOfAProcess {
protected:
    enum Ended : int { done, thrown, left_behind };

    /// The lock has a lease that nobody outlasts.
    Ended end(bool has_failed) {
        const auto is_free = [this] { return !redis_.exists("job"); };
        if (!eventually(is_free)) return left_behind;
        return has_failed ? thrown : done;
    }

    Ended nest(int fails_after) {
        Client client{patient(server_.uri())};
        Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 5min}};
        lock.lock();
        const bool nests = returns(fails_after, false, [&] { lock.lock(); });
        const bool has_failed = Failing::has_failed();
        if (nests) lock.unlock();
        lock.unlock();
        return end(has_failed);
    }

    /// The thread that waits tries once more where its call has thrown.
    Ended hand_over(int fails_after) {
        Client client{patient(server_.uri())};
        Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 5min}};
        const bool has_failed = hand_over(lock, lock, fails_after, [&](bool has_it) {
            if (!has_it) lock.lock();
            lock.unlock();
        });
        return end(has_failed);
    }

    /// The thread that waits has a `min_hold`, and does not try again.
    Ended hand_over_with_min_hold(int fails_after) {
        Client client{patient(server_.uri())};
        Lock<> first{client, "job", {.lease = 5min}};
        Lock<> second{client, "job", {.lease = 5min, .min_hold = 4min}};
        bool has_got_it = false;
        const bool has_failed = hand_over(first, second, fails_after, [&](bool has_it) {
            has_got_it = has_it;
            if (has_it) second.unlock();
        });
        return has_got_it ? (has_failed ? thrown : done) : end(has_failed);
    }

    /// All allocations of the thread that waits fail from one on: none is left for the release. The lock is
    /// free in this process again when its lease is over.
    Ended hand_over_without_memory(int fails_after) {
        Client client{patient(server_.uri())};
        Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 500ms}};
        bool is_free = false;
        const bool has_failed = hand_over(
            lock, lock, fails_after,
            [&](bool has_it) {
                if (has_it) lock.unlock();
                is_free = lock.acquire({.wait = 20s}).has_value();
            },
            true);
        if (!is_free) return left_behind;
        return has_failed ? thrown : done;
    }

    /// Has an allocation of a `lock()` fail that waits for the first one's end, or all from one on. Whether one has
    /// failed.
    template <class Lock, class Then>
    static bool hand_over(Lock& first, Lock& second, int fails_after, Then then,
                          bool for_good = false) {
        first.lock();
        bool has_failed = false;
        WaitingThread thread{[&] {
            before_allocation = &fail_where_it_is_time;
            const bool has_it = returns(fails_after, for_good, [&] { second.lock(); });
            has_failed = Failing::has_failed();
            then(has_it);
        }};
        thread.wait_until_asleep();
        first.unlock();
        thread.join();
        return has_failed;
    }

    /// A thread is cancelled as its `lock()` makes one of its allocations.
    Ended cancel(int after) {
        Client client{patient(server_.uri())};
        Lock<Watchdog<Reentrant>> lock{client, "job", {.lease = 5min}};
        bool has_it = false;
        std::thread thread{[&] {
            before_allocation = &cancel_where_it_is_time;
            cancelled_after = after;
            lock.lock();
            before_allocation = nullptr;
            ::pthread_testcancel();
            has_it = true;
            lock.unlock();
        }};
        thread.join();
        return has_it ? done : thrown;
    }

    /// Has each allocation of `call` fail in a process of its own, that has to end well or by the failure.
    template <class Call>
    void expect_nothing_left_behind(Call call) {
        int times_thrown = 0;
        for (int fails_after = 0;; ++fails_after) {
            redis_.command({"DEL", "job"});  // of a process that has ended
            const auto ended = in_a_child([&] { return call(fails_after); });
            EXPECT_NE(ended, left_behind) << "allocation " << fails_after;
            if (ended == thrown) ++times_thrown;
            if (ended == done) break;
        }
        EXPECT_GT(times_thrown, 0);
    }
};

TEST_F(OutOfMemoryInACall, nested_lock_leaves_the_outer_hold_to_its_own_end) {
    expect_nothing_left_behind([this](int fails_after) { return nest(fails_after); });
}

TEST_F(OutOfMemoryInACall, what_was_handed_over_is_given_back) {
    expect_nothing_left_behind([this](int fails_after) { return hand_over(fails_after); });
}

TEST_F(OutOfMemoryInACall, what_was_handed_over_is_left_to_its_lease_where_nothing_can_be_sent) {
    expect_nothing_left_behind(
        [this](int fails_after) { return hand_over_without_memory(fails_after); });
}

TEST_F(OutOfMemoryInACall, what_was_handed_over_is_given_back_before_its_min_hold) {
    expect_nothing_left_behind(
        [this](int fails_after) { return hand_over_with_min_hold(fails_after); });
}

TEST_F(OutOfMemoryInACall, a_thread_that_is_cancelled_instead_ends_and_not_the_program) {
    for (int after = 0;; ++after) {
        redis_.command({"DEL", "job"});  // of a thread that has ended
        const auto ended = in_a_child([&] { return cancel(after); });
        ASSERT_TRUE(ended) << "allocation " << after;
        if (ended == done) break;
    }
}

class OutOfMemoryOfEvents : public OutOfMemoryOfAProcess {
protected:
    enum Ended : int { done, failed, still_counted };

    class Holders : public Observer {
    public:
        void hold_began(const HoldBegan&) override { ++now; }
        void hold_ended(const HoldEnded&) override { --now; }

        std::atomic<int> now{0};
    };

    /// What the observer counts when a `try_lock()` of which one allocation fails is over, and its client too.
    Ended lock_once(int fails_after) {
        const auto holders = std::make_shared<Holders>();
        bool has_failed = false;
        {
            Client client{patient(server_.uri(), holders)};
            Lock<Simple>{client, "first"}.acquire().value().release().value();
            Lock<Simple> lock{client, "job"};
            static_cast<void>(returns(fails_after, false, [&] { (void)lock.try_lock(); }));
            has_failed = Failing::has_failed();
        }
        if (holders->now != 0) return still_counted;
        return has_failed ? failed : done;
    }
};

TEST_F(OutOfMemoryOfEvents, each_hold_that_was_told_of_has_its_end) {
    int times_failed = 0;
    for (int fails_after = 0;; ++fails_after) {
        redis_.del("job");  // of a process that has ended
        const auto ended = in_a_child([&] { return lock_once(fails_after); });
        EXPECT_NE(ended, still_counted) << "allocation " << fails_after;
        if (ended == failed) ++times_failed;
        if (ended == done) break;
    }
    EXPECT_GT(times_failed, 0);
}

template <class Policy>
class OutOfMemoryInAChild : public OutOfMemoryOfAProcess {
protected:
    enum Ended : int { done, swallowed, thrown, left_behind };

    /// What becomes of a `try_lock()` of which one allocation fails. What it has left behind lasts for its lease. The
    /// connection is there, and has not run the policy's script yet, where that is not of `Simple`.
    Ended try_lock(const std::string& name, int fails_after) {
        Client client{patient(server_.uri(), std::make_shared<Observer>())};
        Lock<>{client, "first"}.acquire().value().release().value();
        bool has_returned = false;
        bool has_failed = false;
        {
            Lock<Policy> lock{client, name, {.lease = 5min}};
            has_returned = returns(fails_after, false, [&] { (void)lock.try_lock(); });
            has_failed = Failing::has_failed();
        }
        if (has_returned && !has_failed) return done;
        if (!eventually([&] { return redis_.pttl(name) < 0; })) return left_behind;
        return has_returned ? swallowed : thrown;
    }
};
using OutOfMemoryPolicies = ::testing::Types<Watchdog<Simple>, Reentrant, Fenced<Simple>, Shared>;
TYPED_TEST_SUITE(OutOfMemoryInAChild, OutOfMemoryPolicies);

TYPED_TEST(OutOfMemoryInAChild, blocking_call_leaves_no_lock_that_nobody_has) {
    int times_thrown = 0;
    int times_swallowed = 0;
    for (int fails_after = 0;; ++fails_after) {
        const std::string name = "job" + std::to_string(fails_after);
        const auto outcome = this->in_a_child([&] { return this->try_lock(name, fails_after); });
        if (!outcome) continue;
        EXPECT_NE(outcome, this->left_behind) << "allocation " << fails_after;
        if (outcome == this->thrown) ++times_thrown;
        if (outcome == this->swallowed) ++times_swallowed;
        if (outcome == this->done) break;
    }
    EXPECT_GT(times_thrown, 0);
    // That the connection has run the script need not be noted, and the observer need not hear of the lock.
    EXPECT_GT(times_swallowed, 0);
    EXPECT_LE(times_swallowed, 4);
}

}  // namespace
}  // namespace redlatch::test
