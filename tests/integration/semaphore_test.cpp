// Permits that processes share: how many there are, who gets them and in which order, and what gives them back.

#include "busy_machine.hpp"
#include "lock_test.hpp"
#include "support/process.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

class SemaphoreTest : public LockTest {
protected:
    long long waiting() { return redis_.command({"ZCARD", "redlatch:queue:{gpus}"}).integer; }
    [[nodiscard]] bool waits(std::size_t number) {
        return are_queued("redlatch:queue:{gpus}", number);
    }

    Semaphore<> semaphore_{client_, "gpus", 3};
    Semaphore<> other_{other_client_, "gpus", 3};
};

TEST_F(SemaphoreTest, there_are_as_many_permits_as_it_was_made_with) {
    EXPECT_TRUE(semaphore_.try_acquire());
    EXPECT_TRUE(other_.try_acquire());
    EXPECT_TRUE(semaphore_.try_acquire());
    EXPECT_FALSE(semaphore_.try_acquire());
    EXPECT_FALSE(other_.try_acquire());
    EXPECT_EQ(semaphore_.release().value(), Release::released);
    EXPECT_TRUE(other_.try_acquire());
}

TEST_F(SemaphoreTest, a_forked_child_gives_back_what_it_has_acquired_itself) {
    semaphore_.acquire();
    ChildProcess child{[this](LineChannel& parent) {
        const bool none = semaphore_.release().value() == Release::not_held;
        const bool own = semaphore_.try_acquire() && semaphore_.inspect()->taken == 2 &&
                         semaphore_.release().value() == Release::released &&
                         semaphore_.inspect()->taken == 1;
        parent.write_line(none && own ? "ok" : "wrong");
        return 0;
    }};
    EXPECT_EQ(child.read_line(), "ok");
    EXPECT_TRUE(child.wait());
    EXPECT_EQ(semaphore_.release().value(), Release::released);
}

TEST_F(SemaphoreTest, all_that_are_asked_for_are_taken_or_none) {
    auto two = semaphore_.take({.permits = 2});
    ASSERT_TRUE(two);
    EXPECT_EQ(code_of(other_.take({.permits = 2, .wait = Wait::none()})), Errc::timed_out);
    EXPECT_EQ(semaphore_.inspect()->taken, 2U);
    auto one = other_.take({.wait = Wait::none()});
    EXPECT_TRUE(one);
    EXPECT_EQ(two->release().value(), Release::released);
    EXPECT_TRUE(other_.take({.permits = 2, .wait = Wait::none()}));
}

TEST_F(SemaphoreTest, who_wants_several_is_served_before_those_behind) {
    auto first = semaphore_.take({.permits = 2});
    auto second = in_background([&] { return other_.take({.permits = 2}); });
    ASSERT_TRUE(waits(1));
    auto third = in_background([&] { return semaphore_.take(); });
    ASSERT_TRUE(waits(2)) << "there is one left, and it stands behind";
    first->release().value();
    EXPECT_TRUE(second.get());
    EXPECT_TRUE(third.get());
}

TEST_F(SemaphoreTest, who_gives_up_lets_those_behind_it_in) {
    auto two = semaphore_.take({.permits = 2});
    std::stop_source enough;
    auto greedy =
        in_background([&] { return other_.take({.permits = 2, .stop = enough.get_token()}); });
    ASSERT_TRUE(waits(1));
    auto modest = in_background([&] { return semaphore_.take(); });
    ASSERT_TRUE(waits(2));
    enough.request_stop();
    EXPECT_EQ(code_of(greedy.get()), Errc::cancelled);
    EXPECT_TRUE(modest.get());
}

TEST_F(SemaphoreTest, every_form_of_waiting_gets_what_comes_back) {
    auto all = semaphore_.take({.permits = 3});
    const auto soon = std::chrono::steady_clock::now() + 60s;
    std::vector<std::future<bool>> waiters;
    waiters.push_back(in_background([&] { return other_.acquire(), true; }));
    waiters.push_back(in_background([&] { return other_.try_acquire_for(60s); }));
    waiters.push_back(in_background([&] { return other_.try_acquire_until(soon); }));
    ASSERT_TRUE(waits(3));
    EXPECT_TRUE(times_out([&] { return semaphore_.try_acquire_for(20ms); }));
    all->release().value();
    for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());
    EXPECT_EQ(other_.release(2).value(), Release::released);
    // Who has given up may still be leaving the queue.
    EXPECT_TRUE(eventually([&] { return semaphore_.inspect()->taken == 1U; }));
}

TEST_F(SemaphoreTest, a_waiter_is_told_by_whoever_gives_back) {
    std::vector<Result<Held>> all;
    for (int i = 0; i < 3; ++i) all.push_back(semaphore_.take());
    auto waiter = in_background([&] { return other_.take({.wait = 60s}); });
    ASSERT_TRUE(waits(1));
    EXPECT_EQ(all[1]->release().value(), Release::released);
    EXPECT_TRUE(waiter.get());
    EXPECT_EQ(waiting(), 0);
}

TEST_F(SemaphoreTest, threads_of_one_client_have_permits_at_the_same_time) {
    std::atomic<int> inside{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            semaphore_.acquire();
            ++inside;
            EXPECT_TRUE(eventually([&] { return inside == 3; }));
            EXPECT_EQ(semaphore_.release().value(), Release::released);
        });
    }
}

TEST_F(SemaphoreTest, never_more_than_there_are_have_permits) {
    std::atomic<int> inside{0};
    std::atomic<int> most{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
            Semaphore<>& semaphore = i % 2 == 0 ? semaphore_ : other_;
            for (int round = 0; round < 20; ++round) {
                semaphore.acquire();
                const int now = ++inside;
                for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
                }
                --inside;
                semaphore.release().value();
            }
        });
    }
    threads.clear();
    EXPECT_LE(most, 3);
    EXPECT_EQ(semaphore_.inspect()->taken, 0U);
}

TEST_F(SemaphoreTest, any_thread_gives_a_permit_back) {
    semaphore_.acquire();
    EXPECT_EQ(on_another_thread([&] { return semaphore_.release().value(); }), Release::released);
    EXPECT_EQ(other_.inspect()->taken, 0U);
}

TEST_F(SemaphoreTest, giving_back_makes_no_permit_that_nobody_had) {
    EXPECT_EQ(semaphore_.release().value(), Release::not_held);
    semaphore_.acquire();
    EXPECT_EQ(semaphore_.release(2).value(), Release::not_held) << "one of two";
    EXPECT_EQ(semaphore_.inspect()->taken, 0U);
    auto taken = semaphore_.take();
    EXPECT_EQ(semaphore_.release().value(), Release::not_held) << "what was taken is its own";
    EXPECT_TRUE(taken->held());
    EXPECT_EQ(code_of(semaphore_.release(0)), Errc::invalid_argument);
}

TEST_F(SemaphoreTest, lost_permits_are_given_back_first) {
    Semaphore<Permits> plain{client_, "plain", 3, {.lease = 100ms}};
    plain.acquire();
    ASSERT_TRUE(eventually([&] { return plain.inspect()->taken == 0; }));
    Semaphore<Permits> longer{client_, "plain", 3};
    longer.acquire();
    EXPECT_EQ(plain.release().value(), Release::expired);
    EXPECT_EQ(longer.release().value(), Release::released);
}

TEST_F(SemaphoreTest, its_end_gives_back_what_it_acquired) {
    {
        Semaphore<> scope{client_, "gpus", 3};
        scope.acquire();
        scope.acquire();
        EXPECT_EQ(other_.inspect()->taken, 2U);
    }
    EXPECT_EQ(other_.inspect()->taken, 0U);
}

TEST_F(SemaphoreTest, giving_back_many_takes_one_command_timeout) {
    Client impatient{{.uris = {server_.uri()}, .command_timeout = 300ms}};
    std::optional<Semaphore<>> scope{std::in_place, impatient, "gpus", 128};
    for (int i = 0; i < 128; ++i) scope->acquire();
    server_.freeze();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(scope->release(64));
    scope.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "and not 64 times as long";
    server_.thaw();
}

TEST_F(SemaphoreTest, a_dead_holder_blocks_no_longer_than_its_own_lease) {
    Semaphore<Permits> dead{client_, "two", 2, {.lease = 300ms}};
    Semaphore<Permits> live{other_client_, "two", 2, {.lease = 60s}};
    auto lasting = live.take();
    auto forgotten = dead.take();
    ASSERT_TRUE(forgotten);
    auto next = live.take({.wait = 60s});
    ASSERT_TRUE(next) << "when the shorter one is over";
    EXPECT_TRUE(lasting->held());
    EXPECT_FALSE(forgotten->held());
}

TEST_F(SemaphoreTest, a_watchdog_renews_each_permit) {
    Semaphore<> watched{client_, "watched", 2, {.lease = 6s}};
    auto one = watched.take();
    auto two = watched.take();
    EXPECT_TRUE(is_renewed(*one) && is_renewed(*two));
    EXPECT_TRUE(one->held() && two->held());
    EXPECT_FALSE(watched.try_acquire());
    EXPECT_EQ(one->release().value(), Release::released);
}

TEST_F(SemaphoreTest, a_deleted_key_is_a_loss) {
    Semaphore<> watched{client_, "watched", 2, {.lease = 300ms}};
    auto one = watched.take();
    const std::stop_token lost = one->lost();
    redis_.del("watched");
    EXPECT_TRUE(fires(lost));
    EXPECT_EQ(one->release().value(), Release::expired);
    EXPECT_EQ(watched.inspect()->taken, 0U);
}

TEST_F(SemaphoreTest, extending_makes_one_acquisition_last_longer) {
    Semaphore<Permits> plain{client_, "plain", 1, {.lease = 10s}};
    auto one = plain.take();
    EXPECT_TRUE(one->extend(60s));
    EXPECT_GT(one->remaining(), 30s);
}

TEST_F(SemaphoreTest, what_needs_a_lock_of_its_own_is_refused) {
    auto one = semaphore_.take();
    EXPECT_EQ(code_of(one->nest()), Errc::invalid_argument);
    EXPECT_TRUE(one->held());
    EXPECT_EQ(code_of(one->detach()), Errc::invalid_argument);
    EXPECT_THROW((Semaphore<>{client_, "gpus", 3, {.min_hold = 1s}}), LockError);
}

TEST_F(SemaphoreTest, more_permits_wake_those_who_wait) {
    auto all = semaphore_.take({.permits = 3});
    auto waiter = in_background([&] { return other_.take({.wait = 60s}); });
    ASSERT_TRUE(waits(1));
    ASSERT_TRUE(semaphore_.set_permits(4));
    EXPECT_TRUE(waiter.get());
    EXPECT_EQ(other_.inspect()->permits, 4U);
}

TEST_F(SemaphoreTest, fewer_permits_take_none_away_and_let_nobody_in) {
    auto two = semaphore_.take({.permits = 2});
    ASSERT_TRUE(other_.set_permits(1));
    EXPECT_TRUE(two->extend(30s));
    EXPECT_FALSE(semaphore_.try_acquire());
    two->release().value();
    EXPECT_TRUE(semaphore_.try_acquire());
    EXPECT_FALSE(other_.try_acquire());
}

TEST_F(SemaphoreTest, none_closes_it_until_there_are_some_again) {
    ASSERT_TRUE(semaphore_.set_permits(0));
    EXPECT_FALSE(other_.try_acquire());
    auto waiter = in_background([&] { return other_.take({.wait = 60s}); });
    ASSERT_TRUE(waits(1));
    ASSERT_TRUE(semaphore_.set_permits(1));
    EXPECT_TRUE(waiter.get());
}

TEST_F(SemaphoreTest, a_setting_that_lets_nobody_in_lasts_while_somebody_asks) {
    ASSERT_TRUE(semaphore_.set_permits(0));
    redis_.command({"PEXPIRE", "redlatch:permits:{gpus}", "60000"});
    EXPECT_FALSE(other_.try_acquire());
    EXPECT_GT(redis_.pttl("redlatch:permits:{gpus}"), 24 * 3600 * 1000);
}

TEST_F(SemaphoreTest, who_wants_more_than_are_left_stands_in_nobodys_way) {
    ASSERT_TRUE(semaphore_.set_permits(2));
    std::stop_source enough;
    auto greedy =
        in_background([&] { return other_.take({.permits = 3, .stop = enough.get_token()}); });
    ASSERT_TRUE(waits(1));
    EXPECT_TRUE(semaphore_.try_acquire());
    EXPECT_TRUE(semaphore_.take({.wait = 60s}));
    enough.request_stop();
    EXPECT_EQ(code_of(greedy.get()), Errc::cancelled);
    EXPECT_TRUE(waits(0));
}

TEST_F(SemaphoreTest, clients_with_different_numbers_go_by_their_own) {
    Semaphore<> more{other_client_, "gpus", 5};
    auto three = semaphore_.take({.permits = 3});
    EXPECT_FALSE(semaphore_.try_acquire());
    EXPECT_TRUE(more.try_acquire());
    EXPECT_TRUE(more.try_acquire());
    EXPECT_FALSE(more.try_acquire());
    three->release().value();
    EXPECT_TRUE(semaphore_.try_acquire());
    EXPECT_FALSE(semaphore_.try_acquire()) << "three of three are taken";
}

TEST_F(SemaphoreTest, a_setting_counts_for_all_whatever_number_they_bring) {
    Semaphore<> more{other_client_, "gpus", 8};
    ASSERT_TRUE(semaphore_.set_permits(1));
    EXPECT_TRUE(more.try_acquire());
    EXPECT_FALSE(more.try_acquire());
    EXPECT_FALSE(semaphore_.try_acquire());
    ASSERT_TRUE(more.set_permits(5));
    auto two = semaphore_.take({.permits = 2});
    ASSERT_TRUE(two);
    EXPECT_TRUE(semaphore_.take({.permits = 2}));
    ASSERT_TRUE(semaphore_.set_permits(3));
    EXPECT_FALSE(more.try_acquire());
}

TEST_F(SemaphoreTest, an_operator_takes_back_what_one_owner_has) {
    auto two = semaphore_.take({.permits = 2});
    auto one = semaphore_.take();
    ASSERT_TRUE(two && one);
    auto waiting = in_background([&] { return other_.take({.permits = 2}); });
    ASSERT_TRUE(waits(1));
    EXPECT_EQ(other_.force_release(two->token()).value(), Forced::removed);
    EXPECT_TRUE(waiting.get());
    EXPECT_TRUE(one->extend(20s)) << "only that one";
    EXPECT_EQ(other_.force_release(two->token()).value(), Forced::absent);
    EXPECT_EQ(code_of(two->extend(20s)), Errc::lost);
    EXPECT_EQ(code_of(other_.force_release("")), Errc::invalid_argument);
}

TEST_F(SemaphoreTest, an_operator_takes_back_what_any_of_many_has) {
    Semaphore<Permits> crowd{client_, "crowd", 1000, {.lease = 60s}};
    std::vector<Held> taken;
    for (int i = 0; i < 250; ++i) taken.push_back(crowd.take().value());
    Held one = crowd.take({.lease = 1h}).value();
    Held three = crowd.take({.permits = 3, .lease = 2h}).value();
    ASSERT_EQ(crowd.inspect().value().holders.size(), 200U) << "so many are shown";
    Semaphore<Permits> theirs{other_client_, "crowd", 1000};
    EXPECT_EQ(theirs.force_release(one.token()).value(), Forced::removed);
    EXPECT_EQ(theirs.force_release(three.token()).value(), Forced::removed);
    EXPECT_EQ(theirs.force_release(three.token()).value(), Forced::absent);
    EXPECT_EQ(crowd.inspect().value().taken, 250U);
    EXPECT_EQ(theirs.force_release(taken.front().token() + "x").value(), Forced::absent);
    EXPECT_EQ(crowd.inspect().value().taken, 250U);
}

TEST_F(SemaphoreTest, a_holder_in_the_process_learns_at_once_that_it_was_taken_from) {
    auto two = semaphore_.take({.permits = 2});
    auto one = semaphore_.take();
    ASSERT_TRUE(two && one);
    EXPECT_EQ(semaphore_.force_release(two->token()).value(), Forced::removed);
    EXPECT_EQ(two->state(), HoldState::lost);
    EXPECT_TRUE(one->held());
    EXPECT_TRUE(semaphore_.take({.permits = 2, .wait = Wait::none()}));
}

TEST_F(SemaphoreTest, the_token_of_another_lock_takes_that_from_nobody) {
    Lock<Simple> lock{client_, "name"};
    const auto held = lock.acquire();
    Semaphore<> cpus{client_, "cpus", 3};
    const auto elsewhere = cpus.take();
    ASSERT_TRUE(held && elsewhere);
    EXPECT_EQ(semaphore_.force_release(held->token()).value(), Forced::absent);
    EXPECT_EQ(semaphore_.force_release(elsewhere->token()).value(), Forced::absent);
    EXPECT_TRUE(held->held());
    EXPECT_TRUE(elsewhere->held());
}

TEST_F(SemaphoreTest, inspect_tells_who_has_how_many) {
    auto two = semaphore_.take({.permits = 2});
    const SemaphoreInfo info = other_.inspect().value();
    EXPECT_EQ(info.permits, 3U);
    EXPECT_EQ(info.taken, 2U);
    EXPECT_EQ(info.waiters, 0U);
    ASSERT_EQ(info.holders.size(), 1U);
    EXPECT_EQ(info.holders[0].owner, two->token());
    EXPECT_EQ(info.holders[0].weight, 2U);
    EXPECT_GT(info.holders[0].ttl, 15s);
    EXPECT_LE(info.holders[0].ttl, 30s);
}

TEST_F(SemaphoreTest, inspect_counts_more_than_it_shows) {
    Semaphore<> crowd{client_, "crowd", 1000};
    std::vector<Held> taken;
    for (int i = 0; i < 210; ++i) taken.push_back(crowd.take({.permits = 2}).value());
    const SemaphoreInfo info = crowd.inspect().value();
    EXPECT_EQ(info.taken, 420U);
    EXPECT_EQ(info.holders.size(), 200U);
}

TEST_F(SemaphoreTest, bad_input_is_refused_before_any_command) {
    Client nowhere{"unix:///nowhere"};
    const auto code_of_making = [&](const std::string& name, std::ptrdiff_t permits) {
        try {
            const Semaphore<> made{nowhere, name, permits};
            return Errc{};
        } catch (const LockError& error) {
            return error.error().code;
        }
    };
    EXPECT_EQ(code_of_making("s", -1), Errc::invalid_argument);
    EXPECT_EQ(code_of_making("s", Semaphore<>::max() + 1), Errc::invalid_argument);
    EXPECT_EQ(code_of_making("", 1), Errc::invalid_argument);
    Semaphore<> semaphore{nowhere, "s", 2};
    EXPECT_EQ(code_of(semaphore.take({.permits = 0})), Errc::invalid_argument);
    EXPECT_EQ(code_of(semaphore.take({.permits = 3})), Errc::invalid_argument);
    EXPECT_EQ(code_of(semaphore.take({.lease = Lease{1ms}})), Errc::invalid_argument);
    EXPECT_EQ(code_of(semaphore.set_permits(-1)), Errc::invalid_argument);
}

TEST_F(SemaphoreTest, several_masters_are_refused_with_the_reason) {
    Client several{"redis://a", "redis://b", "redis://c"};
    for (const LockOptions& options : {LockOptions{}, LockOptions{.lease = 24h}}) {
        try {
            const Semaphore<> semaphore{several, "s", 2, options};
            FAIL();
        } catch (const LockError& error) {
            EXPECT_EQ(error.error().code, Errc::invalid_argument);
            EXPECT_NE(error.error().message.find("majorities"), std::string::npos);
        }
    }
}

TEST_F(SemaphoreTest, a_lock_and_a_semaphore_of_one_name_refuse_each_other) {
    Lock<> lock{other_client_, "gpus"};
    Lock<Reentrant> reentrant{other_client_, "gpus"};
    semaphore_.acquire();
    EXPECT_EQ(code_of(lock.acquire({.wait = Wait::none()})), Errc::wrong_type);
    EXPECT_EQ(code_of(reentrant.acquire({.wait = Wait::none()})), Errc::wrong_type);
    semaphore_.release().value();
    lock.lock();
    EXPECT_EQ(code_of(semaphore_.take({.wait = Wait::none()})), Errc::wrong_type);
    lock.unlock();
    redis_.command({"ZADD", "gpus", "1", "somebody's data"});
    EXPECT_EQ(code_of(semaphore_.take({.wait = Wait::none()})), Errc::wrong_type);
}

TEST_F(SemaphoreTest, what_is_left_behind_expires) {
    ASSERT_TRUE(semaphore_.set_permits(1));
    semaphore_.acquire();
    EXPECT_TRUE(times_out([&] { return other_.try_acquire_for(20ms); }));
    EXPECT_TRUE(times_out(
        [&] { return other_.try_acquire_until(std::chrono::steady_clock::now() + 20ms); }));
    // Who has given up may still be leaving the queue: a key may be gone already.
    for (const std::string& key : redis_.keys()) EXPECT_NE(redis_.pttl(key), -1) << key;
    semaphore_.release().value();
    EXPECT_TRUE(eventually(
        [&] { return redis_.keys() == std::vector<std::string>{"redlatch:permits:{gpus}"}; }));
}

TEST_F(SemaphoreTest, the_end_of_the_client_gives_everything_back) {
    std::optional<Client> client{std::in_place, patient(server_.uri())};
    Semaphore<> semaphore{*client, "gpus", 3};
    auto held = semaphore.take({.permits = 2});
    semaphore.acquire();
    const std::stop_token lost = held->lost();
    client.reset();
    EXPECT_TRUE(lost.stop_requested());
    EXPECT_EQ(other_.inspect()->taken, 0U);
    EXPECT_EQ(code_of(semaphore.take()), Errc::cancelled);
}

TEST_F(SemaphoreTest, a_thousand_permits_are_renewed) {
    Semaphore<> many{client_, "many", 1'000, {.lease = 9s}};
    std::vector<Held> all;
    for (int i = 0; i < 1'000; ++i) all.push_back(many.take().value());
    EXPECT_EQ(code_of(many.take({.wait = Wait::none()})), Errc::timed_out);
    EXPECT_TRUE(is_renewed(all.front()) && is_renewed(all.back()) && is_renewed(all.front()));
    EXPECT_TRUE(std::ranges::all_of(all, [](const Held& held) { return held.held(); }));
}

}  // namespace
}  // namespace redlatch::test
