// Asynchronous operations where several masters decide.

#include "async_tools.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <optional>
#include <utility>

namespace redlatch::test {
namespace {

class AsyncMasters : public testing::Test {
protected:
    ClientOptions options() const {
        ClientOptions options{.connect_timeout = 10s, .command_timeout = 10s};
        options.uris = {a_.uri(), b_.uri(), c_.uri()};
        options.node_timeout = 2s;
        options.longest_lease = 0ms;
        return options;
    }

    int masters_with(std::string_view key) {
        return int{a_raw_.exists(key)} + int{b_raw_.exists(key)} + int{c_raw_.exists(key)};
    }

    RedisServer a_;
    RedisServer b_;
    RedisServer c_;
    RawRedis a_raw_{a_};
    RawRedis b_raw_{b_};
    RawRedis c_raw_{c_};
    Client client_{options()};
    Client other_client_{options()};
};

TEST_F(AsyncMasters, lock_is_taken_and_released_at_a_majority) {
    Lock<Watchdog<Fenced<Simple>>> lock{client_, "key"};
    Held held = take(lock);
    EXPECT_TRUE(held.held());
    EXPECT_GT(held.fence(), 0U);
    EXPECT_GE(masters_with("key"), 2);
    Outcome<void> extended;
    held.async_extend(60s, extended.callback());
    EXPECT_TRUE(extended.get());
    Outcome<Release> released;
    held.async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    EXPECT_TRUE(eventually([&] { return masters_with("key") == 0; }));
}

TEST_F(AsyncMasters, waits_for_another_client) {
    Lock<Simple> theirs{other_client_, "key"};
    Lock<Simple> lock{client_, "key"};
    Result<Held> other = theirs.acquire();
    ASSERT_TRUE(other);
    Outcome<Held> tried;
    lock.async_acquire({.wait = Wait::none()}, {}, tried.callback());
    EXPECT_EQ(code_of(tried.get()), Errc::timed_out);
    Outcome<Held> outcome;
    lock.async_acquire({}, {}, outcome.callback());
    EXPECT_TRUE(stays([&] { return !outcome.is_there(); }, 50ms));
    EXPECT_TRUE(other->release());
    EXPECT_TRUE(outcome.get());
}

TEST_F(AsyncMasters, stop_leaves_no_vote_behind) {
    Lock<Simple> lock{client_, "key"};
    for (int i = 0; i < 30; ++i) {
        std::stop_source stop;
        Outcome<Held> outcome;
        lock.async_acquire({}, stop.get_token(), outcome.callback());
        if (i % 2 == 1) std::this_thread::sleep_for(i * 20us);
        stop.request_stop();
        const Errc code = code_of(outcome.get());
        EXPECT_TRUE(code == Errc{} || code == Errc::cancelled) << static_cast<int>(code);
    }
    EXPECT_TRUE(eventually([&] { return masters_with("key") == 0; }));
}

TEST_F(AsyncMasters, one_that_is_silent_holds_up_nobody) {
    c_.freeze();
    Lock<Simple> lock{client_, "key"};
    Held held = take(lock);
    EXPECT_TRUE(held.held());
    Outcome<Release> released;
    held.async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    c_.thaw();
    EXPECT_TRUE(eventually([&] { return masters_with("key") == 0; }));
}

}  // namespace
}  // namespace redlatch::test
