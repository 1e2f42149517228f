// Commands that arrive when nobody waits for their answer any more.

#include "granted_tools.hpp"
#include "support/proxy.hpp"
#include <redlatch/core/server_clock.hpp>
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/scripts.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

namespace redlatch::test {
namespace {

/// A client whose requests can be made to take their time.
class LateCommand : public ::testing::Test {
protected:
    static constexpr auto timeout = 2s;
    static constexpr auto too_late = timeout + 1s;

    ClientOptions through_proxy() {
        ClientOptions options = options_for(proxy_.uri(), timeout);
        options.observer = waits_;
        return options;
    }

    /// When it returns, the next one waits, and it takes a command to pass the lock on.
    std::future<Result<Held>> start_next() {
        const int before = waits_->number;
        auto next = start_waiting<Simple>(client_);
        EXPECT_TRUE(eventually([&] { return waits_->number > before; }));
        std::this_thread::sleep_for(50ms);
        return next;
    }

    /// The server knows the scripts, and the client has a connection.
    template <class Policy>
    void warm_up() {
        Lock<Policy> lock{client_, "warm"};
        ASSERT_TRUE(lock.try_lock());
        lock.unlock();
    }

    void expect_found_late(int count) {
        const auto found = [this] {
            const auto errors = redis_.info("errorstats");
            const auto late = errors.find("errorstat_LATE");
            return late == errors.end() ? std::string{} : late->second;
        };
        const std::string expected = "count=" + std::to_string(count);
        EXPECT_TRUE(eventually([&] { return found() == expected; })) << found();
    }

    RedisServer server_;
    RawRedis redis_{server_};
    Proxy proxy_{server_.uri()};
    std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
    Client client_{through_proxy()};
};

TEST_F(LateCommand, takes_no_lock) {
    warm_up<Reentrant>();
    const long long taken = redis_.command_calls("hset");
    proxy_.delay_requests(too_late);
    Lock<Reentrant> lock{client_, "job"};
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 0s}), Errc::unavailable));
    expect_found_late(1);
    EXPECT_EQ(redis_.command_calls("hset"), taken);
    proxy_.pass();
}

TEST_F(LateCommand, takes_no_place_in_the_queue) {
    warm_up<Reentrant>();
    take_as_foreigner<Reentrant>(redis_);
    const long long placed = redis_.command_calls("zadd");
    proxy_.delay_requests(too_late);
    Lock<Reentrant> lock{client_, "job"};
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 100ms}), Errc::unavailable));
    expect_found_late(1);
    EXPECT_EQ(redis_.command_calls("zadd"), placed);
    proxy_.pass();
}

TEST_F(LateCommand, moves_no_lock) {
    redis_.command({"SCRIPT", "LOAD", std::string{lua::on_string().move.source()}});
    Held held = take<Simple>(client_);
    auto next = start_next();
    const long long moved = redis_.command_calls("set");
    proxy_.delay_requests(too_late);
    EXPECT_TRUE(fails_with(held.release(), Errc::unclear));
    expect_found_late(1);
    EXPECT_EQ(redis_.command_calls("set"), moved);
    proxy_.pass();
    ASSERT_TRUE(finishes(next));
    let_go(next.get());
}

TEST_F(LateCommand, that_is_not_later_than_its_answer_is_waited_for_is_carried_out) {
    warm_up<Reentrant>();
    proxy_.delay_requests(timeout / 10);
    Lock<Reentrant> lock{client_, "job"};
    ASSERT_TRUE(lock.try_lock());
    EXPECT_EQ(redis_.info("errorstats").count("errorstat_LATE"), 0U);
    proxy_.pass();
}

TEST_F(LateCommand, of_a_plain_set_is_undone_by_the_last_release) {
    warm_up<Simple>();
    Lock<Simple> lock{client_, "job"};
    proxy_.delay_requests(too_late);
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 0s}), Errc::unavailable));
    EXPECT_TRUE(eventually([&] { return redis_.command_calls("set") == 2; }));
    proxy_.pass();
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

TEST_F(LateCommand, of_a_plain_set_is_undone_also_where_the_lock_was_moved_on) {
    warm_up<Simple>();
    proxy_.copy_once("NX");
    proxy_.drop_replies_once(1, "NX");
    Held held = take<Simple>(client_);  // by a second try: what became of the first is not known
    auto next = start_next();
    const std::string token = held.token();
    let_go(held);
    ASSERT_TRUE(finishes(next));
    let_go(next.get());
    proxy_.deliver_copy();
    EXPECT_EQ(redis_.get("job").value_or(""), token);
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

TEST_F(LateCommand, of_a_server_that_stood_still_takes_no_lock) {
    warm_up<Reentrant>();
    Lock<Reentrant> lock{client_, "job"};
    server_.freeze();
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 0s}), Errc::unavailable));
    std::this_thread::sleep_for(2 * detail::late_margin);
    server_.thaw();
    expect_found_late(1);
    EXPECT_EQ(redis_.command_calls("hset"), 1) << "by the warm-up";
}

}  // namespace
}  // namespace redlatch::test
