// `lost()`: told of a loss, or of what must be taken for one, by the time that validity ends.

#include "lock_test.hpp"
#include "support/lock_table_view.hpp"
#include "support/proxy.hpp"
#include <redlatch/policy/lua.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using LostLock = LockTest;

TEST_F(LostLock, fires_when_a_watched_key_is_deleted) {
    Lock<> lock{client_, "job", {.lease = 4s}};
    lock.lock();
    const std::stop_token lost = lock.lost();
    EXPECT_FALSE(lost.stop_requested());
    const auto before = lock.remaining();
    redis_.del("job");
    EXPECT_TRUE(fires(lost));
    EXPECT_EQ(lock.state(), HoldState::lost);
    EXPECT_EQ(lock.remaining(), 0ms) << "though " << before.count() << " ms were left";
    EXPECT_EQ(lock.release().value(), Release::expired);
}

TEST_F(LostLock, fires_when_a_fixed_lease_runs_out) {
    for (const auto lease : {100ms, 300ms}) {
        Lock<Simple> lock{client_, "job", {.lease = lease}};
        const Stopwatch watch;
        const Held held = lock.acquire({.wait = generous_limit}).value();
        std::atomic<bool> held_when_told{true};
        const std::stop_token lost = held.lost();
        const std::stop_callback told{lost, [&] { held_when_told = held.held(); }};
        EXPECT_FALSE(lost.stop_requested() && held.held());
        ASSERT_TRUE(eventually([&] { return !held_when_told; }));
        EXPECT_GE(watch.elapsed(), lease * 98 / 100 - 2ms) << "not before the end of validity";
        EXPECT_LT(watch.elapsed(), lease + 15s);
        EXPECT_EQ(held.state(), HoldState::lost);
    }
}

TEST_F(LostLock, is_released_by_its_holder_where_somebody_has_made_the_key_last_longer) {
    for (const bool in_time : {true, false}) {
        Lock<Simple> lock{client_, "job", {.lease = 300ms}};
        Held held = lock.acquire({.wait = generous_limit}).value();
        redis_.command({"PERSIST", "job"});
        if (!in_time) {
            EXPECT_TRUE(eventually([&] { return !held.held(); }));
        }
        static_cast<void>(held.release());
        EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
    }
}

TEST_F(LostLock, is_free_for_the_next_one_though_the_server_would_keep_it_for_longer) {
    ASSERT_TRUE(foreign_set(redis_, "job"));
    Lock<Simple> lock{client_, "job", {.lease = 500ms}};
    auto waiter = in_background([&] { return lock.acquire(); });
    const std::string queue = "redlatch:queue:{job}";
    ASSERT_TRUE(eventually([&] { return redis_.command({"ZCARD", queue}).integer == 1; }));
    const std::string token = redis_.command({"ZRANGE", queue, "0", "0"}).elements.at(0).text;
    redis_.del(queue);
    // As if one with that lease had passed the place on, the server had not heard of it before the lock
    // was released, and the message had been lost.
    redis_.command({"SET", "job", token, "PX", "3600000"});
    const Held held = waiter.get().value();
    EXPECT_LE(held.remaining(), 500ms);
    ASSERT_TRUE(eventually([&] { return !held.held(); }));
    EXPECT_TRUE(lock.try_lock_for(generous_limit));
}

TEST_F(LostLock, fires_for_a_reentrant_nest_as_a_whole) {
    Lock<Reentrant> lock{client_, "job", {.lease = 3s}};
    const Held outer = lock.acquire().value();
    const Held inner = lock.acquire().value();
    const std::stop_token lost = outer.lost();
    EXPECT_TRUE(fires(inner.lost()));
    EXPECT_TRUE(fires(lost));
}

// The client would wait for half a minute for an answer: it must be the clock that tells.
TEST_F(LostLock, fires_by_the_end_of_validity_though_the_server_is_frozen) {
    for (const bool watched : {false, true}) {
        Client client{{.uris = {server_.uri()}, .command_timeout = 30s}};
        Lock<Simple> fixed{client, "fixed", {.lease = 500ms}};
        Lock<> renewed{client, "watched", {.lease = 500ms}};
        Held held = (watched ? renewed.acquire() : fixed.acquire()).value();
        const std::stop_token lost = held.lost();
        server_.freeze();
        const Stopwatch watch;
        EXPECT_TRUE(fires(lost));
        EXPECT_LT(watch.elapsed(), 500ms + 12s);
        EXPECT_FALSE(held.held());
        EXPECT_EQ(held.state(), HoldState::lost);
        server_.thaw();
        EXPECT_EQ(held.release().value(), Release::expired);
    }
}

TEST_F(LostLock, fires_though_the_server_has_gone) {
    Lock<> lock{client_, "job", {.lease = 4s}};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    server_.kill();
    EXPECT_TRUE(held.held()) << "nothing is known yet";
    EXPECT_FALSE(lost.stop_requested());
    EXPECT_TRUE(fires(lost));
    EXPECT_FALSE(held.held());
}

TEST_F(LostLock, does_not_fire_on_a_normal_release) {
    Lock<Simple> lock{client_, "job", {.lease = 3s}};
    Lock<> watched{client_, "watched", {.lease = 3s}};
    std::stop_token tokens[2];
    {
        const Held one = lock.acquire().value();
        const Held two = watched.acquire().value();
        tokens[0] = one.lost();
        tokens[1] = two.lost();
    }
    EXPECT_TRUE(
        stays([&] { return !tokens[0].stop_requested() && !tokens[1].stop_requested(); }, 3500ms));
}

TEST_F(LostLock, does_not_fire_while_a_fixed_lease_is_extended) {
    Lock<Simple> lock{client_, "job", {.lease = 3s}};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    ASSERT_TRUE(held.extend(60s));
    EXPECT_TRUE(stays([&] { return held.held() && !lost.stop_requested(); }, 3500ms));
}

TEST_F(LostLock, has_fired_already_without_a_hold) {
    Lock<> lock{client_, "job"};
    EXPECT_TRUE(lock.lost().stop_requested());
    EXPECT_TRUE(Held{}.lost().stop_requested());
    Held held = lock.acquire().value();
    EXPECT_FALSE(held.lost().stop_requested());
    EXPECT_TRUE(on_another_thread([&] { return lock.lost().stop_requested(); }));
    EXPECT_EQ(held.release().value(), Release::released);
    EXPECT_TRUE(held.lost().stop_requested());
    EXPECT_TRUE(lock.lost().stop_requested());
}

TEST_F(LostLock, tells_late_subscribers_at_once) {
    Lock<Simple> lock{client_, "job", {.lease = 100ms}};
    const Held held = lock.acquire().value();
    ASSERT_TRUE(eventually([&] { return !held.held(); }));
    EXPECT_TRUE(held.lost().stop_requested()) << "nobody had asked before";

    Lock<> watched{client_, "watched"};
    Held other = watched.acquire().value();
    const std::stop_token early = other.lost();
    redis_.del("watched");
    EXPECT_EQ(code_of(other.extend(30s)), Errc::lost);
    EXPECT_TRUE(fires(early));
    bool told = false;
    const std::stop_callback late{other.lost(), [&] { told = true; }};
    EXPECT_TRUE(told);
}

TEST_F(LostLock, runs_callbacks_on_a_thread_of_the_clients) {
    Lock<> lock{client_, "job"};
    Held held = lock.acquire().value();
    std::atomic<std::thread::id> teller{};
    const std::stop_callback told{held.lost(), [&] { teller = std::this_thread::get_id(); }};
    redis_.del("job");
    EXPECT_EQ(code_of(held.extend(30s)), Errc::lost);
    EXPECT_TRUE(eventually([&] { return teller.load() != std::thread::id{}; }));
    EXPECT_NE(teller.load(), std::this_thread::get_id());
}

TEST_F(LostLock, is_told_on_time_though_another_callback_hangs) {
    Lock<> first{client_, "first"};
    Lock<Simple> second{client_, "second", {.lease = 300ms}};
    Held hanging = first.acquire().value();
    std::atomic<bool> hangs{false};
    std::atomic<bool> go_on{false};
    std::optional<std::stop_callback<std::function<void()>>> callback;
    callback.emplace(hanging.lost(), [&] {
        hangs = true;
        while (!go_on) std::this_thread::sleep_for(1ms);
    });
    EXPECT_EQ(first.force_unlock().value(), Forced::removed);
    ASSERT_TRUE(eventually([&] { return hangs.load(); }));
    const Held held = second.acquire().value();
    EXPECT_TRUE(fires(held.lost()));
    go_on = true;
}

TEST_F(LostLock, lets_a_callback_use_locks) {
    Lock<> lock{client_, "job"};
    Lock<> rescue{client_, "rescue"};
    Held held = lock.acquire().value();
    std::atomic<bool> rescued{false};
    const std::stop_callback told{held.lost(), [&] {
                                      const std::lock_guard guard{rescue};
                                      rescued = held.release().value() == Release::expired;
                                  }};
    EXPECT_EQ(lock.force_unlock().value(), Forced::removed);
    EXPECT_TRUE(eventually([&] { return rescued.load(); }));
}

/// Hangs in the calls of one member until it is told to go on.
class HangingObserver : public Observer {
public:
    explicit HangingObserver(std::string member) : member_(std::move(member)) {}

    void acquired(const Acquired&) override { called("acquired"); }
    void timed_out(const TimedOut&) override { called("timed_out"); }
    void released(const Released&) override { called("released"); }
    void renewed(const Renewed&) override { called("renewed"); }
    void lost(const Lost&) override { called("lost"); }
    void error(const Error&) override { called("error"); }
    void reconnected(const Reconnected&) override { called("reconnected"); }
    void warning(const Warning&) override { called("warning"); }
    void wait_began(const WaitBegan&) override { called("wait_began"); }
    void wait_ended(const WaitEnded&) override { called("wait_ended"); }
    void hold_began(const HoldBegan&) override { called("hold_began"); }
    void hold_ended(const HoldEnded&) override { called("hold_ended"); }

    void hang() {
        ++hanging;
        while (!go_on) std::this_thread::sleep_for(1ms);
    }

    std::atomic<int> hanging{0};
    std::atomic<bool> go_on{false};

private:
    void called(const char* member) {
        if (member == member_) hang();
    }

    const std::string member_;
};

using StopCallback = std::stop_callback<std::function<void()>>;

/// Everything of a user's that the client calls, hanging eight times at once and more: that many
/// threads call observers at most.
class LostBesideHanging : public ::testing::TestWithParam<std::string> {
protected:
    ~LostBesideHanging() override { observer_->go_on = true; }

    static constexpr int enough = 9;

    /// Does what makes the client call it, once.
    void cause_a_call(int number) {
        const std::string member = GetParam();
        const std::string key = "other:" + std::to_string(number);
        if (member == "acquired" || member == "released" || member.starts_with("hold_")) {
            Lock<Simple> lock{client_, key};
            const std::lock_guard guard{lock};
        } else if (member.starts_with("wait_")) {
            Lock<Simple> lock{client_, key};
            const Held held = lock.acquire({.owner = Owner::hold}).value();
            ASSERT_EQ(code_of(lock.acquire({.wait = 20ms})), Errc::timed_out);
        } else if (member == "timed_out") {
            ASSERT_TRUE(foreign_set(redis_, key));
            Lock<Simple> lock{client_, key};
            ASSERT_FALSE(lock.try_lock());
        } else if (member == "renewed") {
            Lock<> lock{client_, key, {.lease = 3s}};
            helds_.push_back(lock.acquire().value());
        } else if (member == "lost") {
            Lock<Simple> lock{client_, key, {.lease = 50ms}};
            helds_.push_back(lock.acquire().value());
        } else if (member == "error") {
            redis_.command({"RPUSH", key, "data"});
            Lock<Simple> lock{client_, key};
            ASSERT_EQ(code_of(lock.inspect()), Errc::wrong_type);
        } else if (member == "reconnected" || member == "warning") {
            server_.stop();
            ASSERT_FALSE(client_.ping());
            server_.start();
            ASSERT_TRUE(client_.ping());
        } else {
            Lock<Simple> lock{client_, key};
            helds_.push_back(lock.acquire().value());
            const auto hang = [observer = observer_] { observer->hang(); };
            callbacks_.push_back(std::make_unique<StopCallback>(helds_.back().lost(), hang));
            redis_.del(key);
            ASSERT_EQ(code_of(helds_.back().extend(60s)), Errc::lost);
        }
    }

    RedisServer server_{{.config = {{"maxmemory", "100mb"}, {"maxmemory-policy", "allkeys-lru"}}}};
    RawRedis redis_{server_};
    std::shared_ptr<HangingObserver> observer_ = std::make_shared<HangingObserver>(GetParam());
    Client client_{{.uris = {server_.uri()},
                    .connect_timeout = 10s,
                    .command_timeout = 10s,
                    .observer = observer_}};
    std::vector<Held> helds_;
    std::vector<std::unique_ptr<StopCallback>> callbacks_;
};

TEST_P(LostBesideHanging, fires_by_the_end_of_validity) {
    for (int i = 0; i < enough; ++i) {
        cause_a_call(i);
        ASSERT_FALSE(HasFatalFailure());
    }
    ASSERT_TRUE(eventually([&] { return observer_->hanging >= 8; })) << observer_->hanging;
    Lock<Simple> fixed{client_, "fixed", {.lease = 300ms}};
    Lock<> watched{client_, "watched"};
    const Held to_run_out = fixed.acquire().value();
    Held to_be_deleted = watched.acquire().value();
    const std::stop_token lost[] = {to_run_out.lost(), to_be_deleted.lost()};
    RawRedis{server_}.del("watched");
    EXPECT_EQ(code_of(to_be_deleted.extend(60s)), Errc::lost);
    ASSERT_TRUE(fires(lost[1])) << "it is known";
    ASSERT_TRUE(fires(lost[0])) << "its validity has ended";
}

INSTANTIATE_TEST_SUITE_P(Calls, LostBesideHanging,
                         ::testing::Values("acquired", "timed_out", "released", "renewed", "lost",
                                           "error", "reconnected", "warning", "wait_began",
                                           "wait_ended", "hold_began", "hold_ended",
                                           "stop_callback"),
                         [](const auto& member) { return member.param; });

class LateAnswer : public LockTest {
protected:
    /// Both scripts are known, so that one answer is all that is waited for.
    LateAnswer() {
        redis_.command({"SCRIPT", "LOAD", lua::on_string().extend.source()});
        redis_.command({"SCRIPT", "LOAD", lua::on_hash().nest.source()});
    }

    Proxy proxy_{server_.uri()};
    Client slow_client_{{.uris = {proxy_.uri()}, .command_timeout = 20s}};
};

TEST_F(LateAnswer, to_an_extension_revives_nothing_and_leaves_no_key) {
    Lock<Simple> lock{slow_client_, "job", {.lease = 4s}};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    proxy_.hold_replies();
    auto extension = in_background([&] { return code_of(held.extend(std::chrono::hours{1})); });
    EXPECT_TRUE(eventually([&] { return redis_.pttl("job") > 60'000; }));
    EXPECT_TRUE(fires(lost));
    proxy_.pass();
    EXPECT_EQ(extension.get(), Errc::lost);
    EXPECT_EQ(held.state(), HoldState::lost);
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); })) << "others wait for nobody";
}

TEST_F(LateAnswer, to_an_extension_of_a_hold_that_was_passed_on_leaves_the_next_holder_alone) {
    std::optional<Client> client{std::in_place,
                                 ClientOptions{.uris = {proxy_.uri()}, .command_timeout = 20s}};
    Lock<Simple> lock{*client, "job", {.lease = 20s}};
    Held held = lock.acquire().value();
    proxy_.hold_replies();
    auto extension = in_background([&] { return code_of(held.extend(40s)); });
    EXPECT_TRUE(eventually([&] { return redis_.pttl("job") > 20'000; }));
    // As another thread passes it on in memory, under its token; to force that takes luck with times.
    ASSERT_TRUE(end_in_memory(*client, "job"));
    proxy_.pass();
    EXPECT_EQ(extension.get(), Errc::not_held) << "not lost, but released by somebody else";
    client.reset();  // carries out what was left for the background
    EXPECT_TRUE(redis_.exists("job")) << "the next holder's";
}

TEST_F(LateAnswer, to_an_extension_that_was_given_up_leaves_no_key_behind) {
    Client hasty{{.uris = {proxy_.uri()}, .command_timeout = 1s}};
    Lock<Simple> lock{hasty, "job", {.lease = 4s}};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    proxy_.hold_replies();
    EXPECT_EQ(code_of(held.extend(std::chrono::hours{1})), Errc::unavailable);
    EXPECT_TRUE(eventually([&] { return redis_.pttl("job") > 60'000; }));
    EXPECT_TRUE(fires(lost));
    proxy_.pass();
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

TEST_F(LateAnswer, to_a_nested_acquire_revives_nothing_and_leaves_no_key) {
    Lock<Reentrant> lock{slow_client_, "job", {.lease = 4s}};
    std::promise<std::stop_token> outer_lost;
    auto nested = in_background([&] {
        const Held outer = lock.acquire().value();
        outer_lost.set_value(outer.lost());
        proxy_.hold_replies();
        return code_of(lock.acquire({.lease = std::chrono::hours{1}}));
    });
    const std::stop_token lost = outer_lost.get_future().get();
    EXPECT_TRUE(eventually([&] { return redis_.pttl("job") > 60'000; }));
    EXPECT_TRUE(fires(lost));
    proxy_.pass();
    EXPECT_EQ(nested.get(), Errc::lost);
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

}  // namespace
}  // namespace redlatch::test
