// The thread that begins an asynchronous call has no memory to give: the call throws, and nothing was sent.

#include "async_tools.hpp"
#include "support/sanitizers.hpp"

#include <cstdlib>
#include <new>
#include <optional>
#include <stop_token>
#include <utility>

namespace {

/// How many allocations of this thread succeed before one fails, once; negative: all of them.
thread_local int successes = -1;

}  // namespace

// ThreadSanitizer's library has these operators, too, and no others can be linked beside them.
#if defined(REDLATCH_TEST_TSAN)
constexpr bool fails_allocations = false;
#else
constexpr bool fails_allocations = true;

namespace {

void* allocate(std::size_t size) {
    if (successes >= 0 && successes-- == 0) throw std::bad_alloc{};
    void* const memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) throw std::bad_alloc{};
    return memory;
}

}  // namespace

void* operator new(std::size_t size) {
    return allocate(size);
}
void* operator new[](std::size_t size) {
    return allocate(size);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}

#endif

namespace redlatch::test {
namespace {

class OutOfMemory : public LockTest {
protected:
    OutOfMemory() {
        Lock<Simple> first{client_, "first"};
        Held held = take(first);  // there is an engine from now on
        EXPECT_EQ(held.release().value(), Release::released);
    }

    void SetUp() override {
        if (!fails_allocations) GTEST_SKIP() << "the sanitizer has an operator new of its own";
    }

    /// Has each of the allocations fail that `begin(outcome)` makes on this thread, one at a time; after each failure
    /// `as_before()` must hold. Gives the outcome of the call that had all of them.
    template <class T, class Begin, class AsBefore>
    Result<T> fail_each_allocation(Begin begin, AsBefore as_before) {
        for (int fails_after = 0;; ++fails_after) {
            Outcome<T> outcome;
            successes = fails_after;
            try {
                begin(outcome);
                const bool had_all = std::exchange(successes, -1) >= 0;
                EXPECT_TRUE(had_all) << "a failure was swallowed";
                EXPECT_GT(fails_after, 0) << "no allocation can fail";
                return outcome.get();
            } catch (const std::bad_alloc&) {
                successes = -1;
            }
            EXPECT_TRUE(as_before()) << "allocation " << fails_after;
            EXPECT_FALSE(outcome.is_there());
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

TEST_F(OutOfMemory, what_is_awaited_needs_no_more_than_it_has) {
    Lock<> lock{client_, "job"};
    auto acquiring = lock.async_acquire({}, stop_.get_token());
    Outcome<Held> outcome;
    const auto coroutine = [](AsyncResult<Held> awaited, Outcome<Held>& told) -> Detached {
        successes = 0;
        auto held = co_await awaited;
        told.callback()(std::move(held));
    };
    coroutine(std::move(acquiring), outcome);
    EXPECT_EQ(std::exchange(successes, -1), 0) << "nothing was allocated";
    EXPECT_TRUE(outcome.get());
}

}  // namespace
}  // namespace redlatch::test
