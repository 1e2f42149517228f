// Each outcome of a release, brought about by what brings it about in life.

#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

class ReleaseOutcome : public testing::Test {
protected:
    ClientOptions through_proxy() {
        ClientOptions options = options_for(proxy.uri(), 2s);
        options.observer = journal;
        return options;
    }

    /// As an unlock tells it, which returns nothing.
    void expect_told_to_observer(Errc code) {
        const auto told = [&] {
            const auto releases = journal->releases();
            return !releases.empty() && !releases.back() && releases.back().error().code == code;
        };
        EXPECT_TRUE(eventually(told));
    }

    RedisServer server;
    Proxy proxy{server.uri()};
    RawRedis raw{server};
    std::shared_ptr<Journal> journal = std::make_shared<Journal>();
    Client client{through_proxy()};
};

TEST_F(ReleaseOutcome, released_when_the_key_was_ours) {
    Lock<Simple> lock{client, "job"};
    lock.lock();
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(ReleaseOutcome, still_held_when_a_nest_goes_on) {
    Lock<Reentrant> lock{client, "job"};
    lock.lock();
    lock.lock();
    EXPECT_TRUE(is_outcome(lock.release(), Release::still_held));
    EXPECT_TRUE(raw.exists("job"));
}

TEST_F(ReleaseOutcome, expired_when_the_lease_ran_out) {
    Lock<Simple> lock{client, "job", {.lease = 50ms}};
    lock.lock();
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
    EXPECT_FALSE(lock.held());
    EXPECT_TRUE(is_outcome(lock.release(), Release::expired));
}

TEST_F(ReleaseOutcome, expired_when_the_key_was_removed_and_taken_by_another) {
    Lock<Simple> lock{client, "job"};
    lock.lock();
    raw.set("job", "another's");
    EXPECT_TRUE(is_outcome(lock.release(), Release::expired));
    EXPECT_EQ(raw.get("job"), "another's");
}

TEST_F(ReleaseOutcome, expired_of_a_nest_whose_key_was_removed) {
    Lock<Reentrant> lock{client, "job"};
    lock.lock();
    lock.lock();
    raw.del("job");
    EXPECT_TRUE(is_outcome(lock.release(), Release::expired));
    EXPECT_EQ(lock.state(), HoldState::lost);
    EXPECT_TRUE(is_outcome(lock.release(), Release::expired));
    EXPECT_TRUE(is_outcome(lock.release(), Release::not_held));
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(ReleaseOutcome, expired_without_a_server_when_validity_had_ended_before) {
    Lock<Simple> lock{client, "job", {.lease = 50ms}};
    lock.lock();
    server.stop();
    EXPECT_TRUE(eventually([&] { return !lock.held(); }));
    EXPECT_TRUE(is_outcome(lock.release(), Release::expired));
}

TEST_F(ReleaseOutcome, not_held_when_there_was_nothing_to_release) {
    Lock<Simple> lock{client, "job"};
    EXPECT_TRUE(is_outcome(lock.release(), Release::not_held));
    lock.lock();
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    EXPECT_TRUE(is_outcome(lock.release(), Release::not_held));
    Held held = lock.acquire().value();
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    EXPECT_TRUE(is_outcome(held.release(), Release::not_held));
    EXPECT_TRUE(is_outcome(Held{}.release(), Release::not_held));
}

TEST_F(ReleaseOutcome,
       unclear_when_the_lock_was_moved_to_a_thread_that_left_and_then_nothing_is_heard) {
    const auto waits = std::make_shared<Waits>();
    ClientOptions options = options_for(proxy.uri(), 6s);
    options.observer = waits;
    Client patient{options};
    Lock<Simple> lock{patient, "job", {.lease = 60s}};
    Held held = lock.acquire().value();
    std::stop_source source;
    auto next = in_background([&] { return lock.acquire({.stop = source.get_token()}); });
    ASSERT_TRUE(eventually([&] { return waits->number == 1; }));
    std::this_thread::sleep_for(50ms);  // from now on it takes a command to pass the lock on
    const std::string token = held.token();
    proxy.delay_replies(3s);
    auto released = in_background([&] { return held.release(); });
    EXPECT_TRUE(eventually([&] { return raw.get("job") != token; }));
    proxy.black_hole(Way::requests);
    source.request_stop();
    EXPECT_TRUE(fails_with(next.get(), Errc::cancelled));
    EXPECT_TRUE(fails_with(released.get(), Errc::unclear));
    EXPECT_TRUE(raw.exists("job"));
    proxy.pass();
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }, 2 * generous_limit));
}

TEST_F(ReleaseOutcome, unclear_when_no_answer_ever_comes) {
    Lock<Simple> lock{client, "job"};
    lock.lock();
    lock.unlock();  // the server knows the script now
    lock.lock();
    proxy.hold_replies();
    const auto released = lock.release();
    EXPECT_TRUE(fails_with(released, Errc::unclear));
    EXPECT_EQ(released.error().key, "job");
    EXPECT_FALSE(released.error().causes.empty());
    EXPECT_EQ(lock.state(), HoldState::none);
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
    expect_told_to_observer(Errc::unclear);
}

TEST_F(ReleaseOutcome, unclear_when_the_answer_was_lost_and_validity_ended_meanwhile) {
    Client patient{options_for(proxy.uri(), 10s)};
    Lock<Simple> lock{patient, "job", {.lease = 3s}};
    lock.lock();
    // The first answer is lost; the second one comes when the lease is over.
    proxy.drop_replies_once(1, "EVAL");
    proxy.delay_replies(2s);
    EXPECT_TRUE(fails_with(lock.release(), Errc::unclear));
}

TEST_F(ReleaseOutcome, unclear_is_settled_in_the_background) {
    Lock<Simple> lock{client, "job"};
    lock.lock();
    proxy.black_hole();
    EXPECT_TRUE(fails_with(lock.release(), Errc::unclear));
    EXPECT_TRUE(raw.exists("job"));
    proxy.pass();
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));  // its lease is 30 s
}

TEST_F(ReleaseOutcome, unavailable_when_it_was_certainly_not_sent) {
    // New connections are refused, and the old one is closed where both sides see it.
    Lock<Simple> lock{client, "job"};
    lock.lock();
    proxy.refuse();
    proxy.cut();
    EXPECT_TRUE(eventually([&] { return proxy.counts().open == 0; }));
    const auto released = lock.release();
    EXPECT_FALSE(released.has_value());
    EXPECT_TRUE(released.error().code == Errc::unavailable ||
                released.error().code == Errc::unclear)
        << released.error().describe();
    EXPECT_TRUE(raw.exists("job"));
    EXPECT_EQ(lock.state(), HoldState::none);
    proxy.pass();
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
}

TEST_F(ReleaseOutcome, unavailable_when_no_connection_could_be_made) {
    Client fresh{options_for(proxy.uri(), 2s)};
    Lock<Simple> lock{fresh, "job"};
    lock.lock();
    raw.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    EXPECT_TRUE(eventually([&] { return proxy.counts().open == 0; }));
    server.stop();
    const auto released = lock.release();
    EXPECT_FALSE(released.has_value());
    EXPECT_TRUE(eventually([&] { return lock.state() == HoldState::none; }));
}

TEST_F(ReleaseOutcome, denied_when_the_acl_forbids_the_script) {
    Lock<Simple> lock{client, "job"};
    lock.lock();
    raw.command({"ACL", "SETUSER", "default", "-evalsha", "-eval"});
    EXPECT_TRUE(fails_with(lock.release(), Errc::denied));
    EXPECT_TRUE(raw.exists("job"));
    raw.command({"ACL", "SETUSER", "default", "+@all"});
}

TEST_F(ReleaseOutcome, an_unlock_tells_the_observer_and_throws_nothing) {
    Lock<Simple> lock{client, "job"};
    lock.lock();
    server.freeze();
    lock.unlock();
    server.thaw();
    expect_told_to_observer(Errc::unclear);
}

TEST_F(ReleaseOutcome, a_failed_release_lets_the_next_thread_try) {
    Lock<Simple> lock{client, "job", {.lease = 10s}};
    lock.lock();
    // With another lease, so that the lock has to pass through the server.
    auto next = in_background([&] { return lock.acquire({.lease = 11s}); });
    server.freeze();
    EXPECT_FALSE(lock.release().has_value());
    server.thaw();
    ASSERT_TRUE(finishes(next));
    EXPECT_TRUE(succeeds(next.get()));
}

}  // namespace
}  // namespace redlatch::test
