// The simple lock is the string key with a token and a time to live that every other client knows.

#include "busy_machine.hpp"
#include "lock_test.hpp"

#include <mutex>
#include <set>
#include <thread>

namespace redlatch::test {
namespace {

using SimpleLock = LockTest;

TEST_F(SimpleLock, is_a_string_of_its_name_with_the_token_and_a_ttl) {
    Lock<Simple> lock{client_, "order:pay", {.lease = 30s}};
    const Held held = lock.acquire().value();
    EXPECT_EQ(redis_.keys(), std::vector<std::string>{"order:pay"});
    EXPECT_EQ(redis_.type("order:pay"), "string");
    EXPECT_EQ(redis_.get("order:pay"), held.token());
    EXPECT_GT(redis_.pttl("order:pay"), 10'000);
    EXPECT_LE(redis_.pttl("order:pay"), 30'000);
    EXPECT_LE(held.remaining(), 30s);
}

TEST_F(SimpleLock, leaves_nothing_behind) {
    Lock<Simple> lock{client_, "job"};
    EXPECT_EQ(lock.acquire().value().release().value(), Release::released);
    { const std::lock_guard guard{lock}; }
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(SimpleLock, has_a_new_token_for_each_acquisition) {
    Lock<Simple> lock{client_, "job"};
    Lock<Simple> other{other_client_, "job"};
    std::set<std::string> tokens;
    for (int i = 0; i < 10; ++i) {
        tokens.insert(lock.acquire().value().token());
        tokens.insert(other.acquire().value().token());
        on_another_thread([&] { return tokens.insert(lock.acquire().value().token()).second; });
    }
    EXPECT_EQ(tokens.size(), 30U);
    EXPECT_FALSE(tokens.contains(""));
}

TEST_F(SimpleLock, takes_its_name_as_bytes) {
    using namespace std::string_literals;
    for (const std::string& name : {"a\0b"s, "line\r\nbreak"s, "with space"s, "{braces}"s, "}{"s,
                                    "%s%n"s, "\xff\xfe"s, std::string(1024, 'x')}) {
        Lock<Simple> lock{client_, name};
        const Held held = lock.acquire().value();
        EXPECT_EQ(redis_.keys(), std::vector<std::string>{name});
        EXPECT_EQ(redis_.get(name), held.token());
    }
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(SimpleLock, is_excluded_by_a_foreign_client) {
    ASSERT_TRUE(foreign_set(redis_, "job"));
    Lock<Simple> lock{client_, "job"};
    EXPECT_FALSE(lock.try_lock());
    EXPECT_TRUE(times_out([&] { return lock.try_lock_for(30ms); }));
    EXPECT_EQ(redis_.get("job"), "foreign");
    auto waiter = in_background([&] { return lock.try_lock_for(generous_limit); });
    redis_.del("job");
    EXPECT_TRUE(waiter.get());
}

TEST_F(SimpleLock, excludes_a_foreign_client) {
    Lock<Simple> lock{client_, "job"};
    lock.lock();
    EXPECT_FALSE(foreign_set(redis_, "job"));
    lock.unlock();
    EXPECT_TRUE(foreign_set(redis_, "job"));
}

TEST_F(SimpleLock, waits_for_a_foreign_lease_to_run_out) {
    ASSERT_TRUE(foreign_set(redis_, "job", "foreign", 3s));
    Lock<Simple> lock{client_, "job"};
    EXPECT_FALSE(lock.try_lock());
    EXPECT_TRUE(lock.try_lock_for(generous_limit));
    EXPECT_NE(redis_.get("job"), "foreign");
}

TEST_F(SimpleLock, waits_for_a_foreign_lock_without_an_end) {
    redis_.set("job", "for ever");
    Lock<Simple> lock{client_, "job"};
    EXPECT_FALSE(lock.try_lock());
    EXPECT_TRUE(times_out([&] { return lock.acquire({.wait = 30ms}); }));
    EXPECT_EQ(redis_.get("job"), "for ever");
    EXPECT_EQ(redis_.pttl("job"), -1);
}

TEST_F(SimpleLock, release_after_a_foreign_delete_says_expired) {
    Lock<Simple> lock{client_, "job"};
    lock.lock();
    redis_.del("job");
    EXPECT_EQ(lock.release().value(), Release::expired);
    Held held = lock.acquire().value();
    redis_.del("job");
    EXPECT_EQ(held.release().value(), Release::expired);
}

TEST_F(SimpleLock, never_deletes_what_somebody_else_took_meanwhile) {
    Lock<Simple> lock{client_, "job", {.lease = 200ms}};
    Held held = lock.acquire().value();
    ASSERT_TRUE(eventually([&] { return foreign_set(redis_, "job"); }));
    EXPECT_FALSE(held.held());
    EXPECT_EQ(code_of(held.extend(10s)), Errc::lost);
    EXPECT_EQ(held.release().value(), Release::expired);
    EXPECT_EQ(redis_.get("job"), "foreign");
    EXPECT_GT(redis_.pttl("job"), 30'000);
}

TEST_F(SimpleLock, never_deletes_what_replaced_it_within_its_lease) {
    Lock<Simple> lock{client_, "job"};
    Held held = lock.acquire().value();
    redis_.set("job", "somebody");
    EXPECT_EQ(held.release().value(), Release::expired);
    EXPECT_EQ(redis_.get("job"), "somebody");
}

TEST_F(SimpleLock, is_had_by_the_next_one_when_its_lease_has_run_out) {
    Lock<Simple> lock{client_, "job", {.lease = 200ms}};
    Lock<Simple> elsewhere{other_client_, "job"};
    Lock<Simple> beside{client_, "job"};
    Held held = lock.acquire().value();
    const Held next = elsewhere.acquire({.wait = generous_limit}).value();
    EXPECT_FALSE(held.held()) << "validity ends before the server lets go";
    EXPECT_EQ(held.release().value(), Release::expired);
    EXPECT_EQ(redis_.get("job"), next.token());
    EXPECT_TRUE(times_out([&] { return beside.acquire({.wait = 20ms}); }));
}

TEST_F(SimpleLock, forgotten_blocks_threads_here_no_longer_than_others) {
    Lock<Simple> lock{client_, "job", {.lease = 200ms}};
    Held forgotten = lock.acquire().value();
    const Stopwatch watch;
    const std::string next = on_another_thread([&] {
        return Lock<Simple>{client_, "job"}.acquire({.wait = generous_limit}).value().token();
    });
    EXPECT_LT(watch.elapsed(), generous_limit);
    EXPECT_NE(next, forgotten.token());
    EXPECT_EQ(forgotten.release().value(), Release::expired);
}

TEST_F(SimpleLock, cannot_be_taken_twice_by_a_thread) {
    Lock<Simple> lock{client_, "job"};
    Lock<Simple> handle{client_, "job"};
    const std::lock_guard guard{lock};
    EXPECT_FALSE(lock.try_lock());
    EXPECT_FALSE(handle.try_lock_for(20ms));
    EXPECT_EQ(code_of(handle.acquire()), Errc::deadlock);
    for (const Wait wait : {Wait::none(), Wait{20ms}}) {
        const auto refused = handle.acquire({.wait = wait});
        ASSERT_EQ(code_of(refused), Errc::timed_out);
        EXPECT_TRUE(refused.error().message.starts_with("held by the calling thread itself"))
            << refused.error().message;
    }
    EXPECT_TRUE(lock.held());
}

TEST_F(SimpleLock, extend_lengthens_and_never_shortens) {
    Lock<Simple> lock{client_, "job", {.lease = 10s}};
    Held held = lock.acquire().value();
    EXPECT_TRUE(held.extend(60s));
    EXPECT_GT(held.remaining(), 30s);
    EXPECT_GT(redis_.pttl("job"), 30'000);
    EXPECT_TRUE(held.extend(1s));
    EXPECT_GT(held.remaining(), 30s);
    EXPECT_GT(redis_.pttl("job"), 30'000);
}

TEST_F(SimpleLock, extend_never_takes_a_lost_one_again) {
    Lock<Simple> lock{client_, "job"};
    Held held = lock.acquire().value();
    redis_.del("job");
    EXPECT_EQ(code_of(held.extend(10s)), Errc::lost);
    EXPECT_FALSE(redis_.exists("job"));
    EXPECT_EQ(held.state(), HoldState::lost);
    EXPECT_EQ(code_of(held.extend(10s)), Errc::lost);
}

TEST_F(SimpleLock, inspect_tells_who_holds_it) {
    Lock<Simple> lock{client_, "job"};
    EXPECT_FALSE(lock.inspect().value().locked);
    {
        const Held held = lock.acquire().value();
        const LockInfo info = Lock<Simple>{other_client_, "job"}.inspect().value();
        EXPECT_TRUE(info.locked);
        EXPECT_EQ(info.owner, held.token());
        EXPECT_EQ(info.hold_count, 1U);
        ASSERT_TRUE(info.ttl);
        EXPECT_GT(*info.ttl, 10s);
    }
    redis_.set("job", "foreign");
    EXPECT_EQ(lock.inspect().value().owner, "foreign");
    EXPECT_FALSE(lock.inspect().value().ttl);
}

TEST_F(SimpleLock, force_unlock_removes_anybodys_lock) {
    Lock<Simple> lock{client_, "job"};
    EXPECT_EQ(lock.force_unlock().value(), Forced::absent);
    const Held held = Lock<Simple>{other_client_, "job"}.acquire().value();
    EXPECT_EQ(lock.force_unlock().value(), Forced::removed);
    EXPECT_FALSE(redis_.exists("job"));
    EXPECT_TRUE(lock.try_lock());
}

TEST_F(SimpleLock, force_unlock_is_noticed_at_once_by_a_holder_of_the_same_client) {
    Lock<Simple> lock{client_, "job"};
    Held held = lock.acquire().value();
    const std::stop_token lost = held.lost();
    EXPECT_EQ(lock.force_unlock().value(), Forced::removed);
    EXPECT_EQ(held.state(), HoldState::lost);
    EXPECT_TRUE(fires(lost));
    EXPECT_EQ(held.release().value(), Release::expired);
}

}  // namespace
}  // namespace redlatch::test
