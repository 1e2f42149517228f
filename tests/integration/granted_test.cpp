// Who waits for a lock of another process has a place in a queue, and is given the lock by its
// release. Two clients in one process are as good as two processes here.

#include "busy_machine.hpp"
#include "granted_tools.hpp"
#include "support/proxy.hpp"

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

/// Less than it takes where it takes for ever, and more than a busy machine stands still for.
constexpr auto soon = 10s;

template <class Policy>
class Granted : public LockTest {
protected:
    Held hold() { return take<Policy>(client_); }

    std::future<Result<Held>> enqueue_other(AcquireOptions options = {.wait = patience},
                                            LockOptions lock_options = {}) {
        return enqueue<Policy>(redis_, other_client_, options, lock_options);
    }

    /// Options for a client that counts its waits.
    ClientOptions counting(const std::shared_ptr<Waits>& waits) {
        ClientOptions options = patient(server_.uri());
        options.observer = waits;
        return options;
    }

    /// Both clients hear messages, and know that the lock is wanted.
    void teach_both() {
        teach_to_listen<Policy>(redis_, other_client_, client_);
        teach_to_listen<Policy>(redis_, client_, other_client_);
    }

    void expect_nothing_left() {
        EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }))
            << testing::PrintToString(redis_.keys());
    }

    std::uint64_t inspected_waiters() {
        return Lock<Policy>{client_, "job"}.inspect().value().waiters;
    }
};
TYPED_TEST_SUITE(Granted, AllPolicies);

TYPED_TEST(Granted, lock_comes_with_the_release) {
    Proxy proxy{this->server_.uri()};
    Client client{patient(proxy.uri())};
    for (int round = 0; round < 5; ++round) {
        Held held = this->hold();
        auto waiter = enqueue<TypeParam>(this->redis_, client);
        if (round == 0) {
            ASSERT_TRUE(settles(this->redis_));
        }
        proxy.hold_requests();  // who is told has nothing to ask
        let_go(held);
        ASSERT_TRUE(finishes(waiter));
        proxy.pass();
        auto granted = waiter.get();
        ASSERT_TRUE(succeeds(granted));
        const auto info = Lock<TypeParam>{this->client_, "job"}.inspect().value();
        EXPECT_EQ(info.owner, granted->token());
        EXPECT_EQ(info.hold_count, 1U);
        let_go(*granted);
    }
    this->expect_nothing_left();
}

TYPED_TEST(Granted, wait_costs_one_command_and_the_release_another) {
    this->teach_both();
    constexpr int rounds = 20;
    const long long before = scripts_run(this->redis_);
    const long long whole_before = this->redis_.command_calls("eval");
    Held held = this->hold();
    const Stopwatch watch;
    for (int round = 0; round < rounds; ++round) {
        Client& client = round % 2 == 0 ? this->other_client_ : this->client_;
        auto waiter = enqueue<TypeParam>(this->redis_, client);
        let_go(held);
        ASSERT_TRUE(finishes(waiter));
        held = waiter.get().value();
    }
    let_go(held);
    const long long calls = scripts_run(this->redis_) - before;
    EXPECT_GE(calls, 2 * rounds + 2);
    // On a machine so slow that a wait takes a second, the waiter asks once more.
    EXPECT_LE(calls, 2 * rounds + 2 + watch.elapsed() / 1s);
    EXPECT_EQ(this->redis_.command_calls("eval"), whole_before);
    this->expect_nothing_left();
}

TYPED_TEST(Granted, locks_go_to_clients_in_the_order_of_their_coming) {
    constexpr int count = 6;
    Held held = this->hold();
    EXPECT_EQ(this->inspected_waiters(), 0U);
    std::deque<Client> clients;
    Order order;
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
        Client& client = clients.emplace_back(patient(this->server_.uri()));
        threads.emplace_back([&client, &order, i] {
            Lock<TypeParam> lock{client, "job"};
            const std::lock_guard guard{lock};
            order.add(i);
        });
        ASSERT_TRUE(queue_grows_to(this->redis_, i + 1));
        EXPECT_EQ(this->inspected_waiters(), static_cast<std::uint64_t>(i + 1));
    }
    ASSERT_TRUE(this->are_queued("redlatch:queue:{job}", count));
    let_go(held);
    threads.clear();
    EXPECT_EQ(order.numbers(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(this->inspected_waiters(), 0U);
    this->expect_nothing_left();
}

TYPED_TEST(Granted, lock_is_never_free_while_somebody_queues) {
    Held held = this->hold();
    auto waiter = this->enqueue_other();
    ASSERT_TRUE(settles(this->redis_));
    let_go(held);
    // The owner is another one already, in the same step.
    EXPECT_TRUE(this->redis_.exists("job"));
    EXPECT_FALSE(Lock<TypeParam>(this->client_, "job").try_lock());
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

TYPED_TEST(Granted, forced_unlock_serves_the_next_waiter) {
    Held held = this->hold();
    auto waiter = this->enqueue_other();
    ASSERT_TRUE(settles(this->redis_));
    Client operators{patient(this->server_.uri())};
    EXPECT_EQ(Lock<TypeParam>(operators, "job").force_unlock().value(), Forced::removed);
    EXPECT_TRUE(this->redis_.exists("job")) << "it is the waiter's, in the same step";
    ASSERT_TRUE(finishes(waiter));
    auto granted = waiter.get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_TRUE(is_outcome(held.release(), Release::expired));
    EXPECT_TRUE(granted->held());
    let_go(*granted);
    this->expect_nothing_left();
}

TYPED_TEST(Granted, queue_leaves_no_channel_behind_when_clients_end) {
    {
        Client one{patient(this->server_.uri())};
        Client two{patient(this->server_.uri())};
        Held held = take<TypeParam>(one);
        auto waiter = enqueue<TypeParam>(this->redis_, two);
        ASSERT_TRUE(settles(this->redis_));
        EXPECT_EQ(this->redis_.command({"PUBSUB", "CHANNELS"}).elements.size(), 1U);
        let_go(held);
        ASSERT_TRUE(finishes(waiter));
        EXPECT_TRUE(succeeds(waiter.get()));
    }
    EXPECT_TRUE(eventually([&] {
        return this->redis_.command({"PUBSUB", "CHANNELS"}).elements.empty();
    }));
    this->expect_nothing_left();
}

TYPED_TEST(Granted, queue_always_expires) {
    Held held = this->hold();
    auto waiter = this->enqueue_other();
    for (const char* key : {"redlatch:queue:{job}", "redlatch:waiters:{job}"}) {
        EXPECT_TRUE(eventually([&] { return this->redis_.exists(key); })) << key;
        EXPECT_GT(this->redis_.pttl(key), 0) << key;
        EXPECT_LE(this->redis_.pttl(key), 60'000) << key;
    }
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
}

TYPED_TEST(Granted, lock_may_have_any_name) {
    using namespace std::string_literals;
    Proxy proxy{this->server_.uri()};
    Client client{patient(proxy.uri())};
    teach_to_listen<TypeParam>(this->redis_, client, this->client_);
    for (const std::string& name : {"{user}:job"s, "two words"s, "line\r\nend"s, "nul\0nul"s, "{"s,
                                    "}{"s, "{}"s, "\xff\xfe"s, std::string(1024, 'x')}) {
        Lock<TypeParam> lock{this->client_, name};
        Held held = lock.acquire().value();
        auto waiter = in_background([&] {
            return Lock<TypeParam>{client, name}.acquire({.wait = patience});
        });
        EXPECT_TRUE(eventually([&] { return lock.inspect().value().waiters == 1; }));
        proxy.hold_requests();  // who is told has nothing to ask
        let_go(held);
        ASSERT_TRUE(finishes(waiter)) << name;
        proxy.pass();
        let_go(waiter.get());
        this->expect_nothing_left();
    }
}

TYPED_TEST(Granted, queues_of_two_databases_are_apart) {
    Proxy proxy{this->server_.uri()};
    Client elsewhere{patient(this->server_.uri() + "?db=3")};
    Client waiting_elsewhere{patient(proxy.uri() + "?db=3")};
    RawRedis redis_elsewhere{this->server_};
    redis_elsewhere.select(3);
    Held held = this->hold();
    Held held_elsewhere = take<TypeParam>(elsewhere);
    auto waiter = this->enqueue_other();
    auto waiter_elsewhere = enqueue<TypeParam>(redis_elsewhere, waiting_elsewhere);
    ASSERT_TRUE(settles(this->redis_));
    proxy.hold_requests();  // who is told has nothing to ask
    let_go(held_elsewhere);
    ASSERT_TRUE(finishes(waiter_elsewhere));
    proxy.pass();
    EXPECT_EQ(waiter.wait_for(100ms), std::future_status::timeout);
    let_go(waiter_elsewhere.get());
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
    EXPECT_TRUE(eventually([&] { return redis_elsewhere.keys().empty(); }));
    this->expect_nothing_left();
}

TYPED_TEST(Granted, many_dead_places_hold_up_nobody_for_long) {
    for (int i = 0; i < 100; ++i) {
        const std::string token = std::string(32, 'd') + ":host:1:" + std::to_string(i);
        this->redis_.command({"ZADD", "redlatch:queue:{job}", std::to_string(i + 1), token});
        this->redis_.command({"HSET", "redlatch:waiters:{job}", token,
                              is_hash<TypeParam> ? "h 30000 1 1 0" : "s 30000 1 1 0"});
    }
    take_as_foreigner<TypeParam>(this->redis_);
    auto waiter = this->enqueue_other();
    const Stopwatch watch;
    this->redis_.del("job");
    ASSERT_TRUE(finishes(waiter));
    EXPECT_LT(watch.elapsed(), soon);
    let_go(waiter.get());
    this->expect_nothing_left();
}

TYPED_TEST(Granted, release_goes_on_until_it_comes_to_a_living_one) {
    // More than one run of a script looks at.
    this->teach_both();
    for (const ReleaseMode mode : {ReleaseMode::confirmed, ReleaseMode::sent}) {
        Held held = take<TypeParam>(this->client_, {.release_mode = mode});
        std::vector<RawRedis::Command> dead;
        for (int i = 0; i < 10'200; ++i) {
            const std::string token = std::string(32, 'd') + ":host:1:" + std::to_string(i);
            dead.push_back({"ZADD", "redlatch:queue:{job}", std::to_string(i + 1), token});
            dead.push_back({"HSET", "redlatch:waiters:{job}", token,
                            is_hash<TypeParam> ? "h 30000 1 1 0" : "s 30000 1 1 0"});
        }
        this->redis_.pipeline(dead);
        auto waiter = this->enqueue_other();
        EXPECT_TRUE(settles(this->redis_));
        if (mode == ReleaseMode::confirmed) {
            let_go(held);
            EXPECT_TRUE(this->redis_.exists("job")) << "nobody was served";
        } else {
            { const Held ends = std::move(held); }
            EXPECT_TRUE(eventually([&] { return this->redis_.exists("job"); }));
        }
        ASSERT_TRUE(finishes(waiter));
        let_go(waiter.get());
        this->expect_nothing_left();
    }
}

TYPED_TEST(Granted, wait_that_ended_tells_who_has_the_lock) {
    ClientOptions options_of_named = patient(this->server_.uri());
    options_of_named.client_name = "web-3:4711";
    Client named{options_of_named};
    Held held = take<TypeParam>(named);
    const auto message = [](Client& client, const AcquireOptions& options,
                            const LockOptions& lock_options = {}) {
        std::string told;
        EXPECT_TRUE(times_out([&] {
            auto result = Lock<TypeParam>{client, "job", lock_options}.acquire(options);
            told = result ? std::string{} : result.error().message;
            return result;
        }));
        return told;
    };
    EXPECT_EQ(message(this->client_, {.wait = 0s}), "held by web-3:4711");
    for (const WaitStrategy strategy : {WaitStrategy::queued, WaitStrategy::polling}) {
        const std::string told =
            message(this->client_, {.wait = 1500ms}, {.wait_strategy = strategy});
        EXPECT_TRUE(told.starts_with("held by web-3:4711 after ")) << told;
        EXPECT_TRUE(told.ends_with(" tries")) << told;
    }
    auto here = in_background([&] { return message(named, {.wait = 0s}); });
    EXPECT_EQ(here.get(), "held, or waited for, in this process");
    let_go(held);
    take_as_foreigner<TypeParam>(this->redis_, 60s, "8743c9c0-0795-4907");
    EXPECT_EQ(message(this->client_, {.wait = 0s}),
              "held by another kind of client (token '8743c9c0…')");
    this->redis_.command({"PERSIST", "job"});
    const std::string endless = message(this->client_, {.wait = 100ms});
    EXPECT_TRUE(endless.ends_with("; its key has no end, and stays until somebody deletes it"))
        << endless;
}

// ------------------------------------------------------------------- holders of another kind

TYPED_TEST(Granted, waiter_behind_a_foreign_holder_asks_often) {
    take_as_foreigner<TypeParam>(this->redis_);
    auto waiter = this->enqueue_other();
    // Who is to be told asks every second or two.
    const long long before = scripts_run(this->redis_);
    EXPECT_TRUE(eventually([&] { return scripts_run(this->redis_) >= before + 25; }));
    EXPECT_EQ(waiter.wait_for(0s), std::future_status::timeout);
    this->redis_.del("job");
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
    this->expect_nothing_left();
}

TYPED_TEST(Granted, waiters_behind_a_foreign_holder_keep_their_order) {
    take_as_foreigner<TypeParam>(this->redis_);
    auto first = this->enqueue_other();
    auto second = enqueue<TypeParam>(this->redis_, this->client_);
    // Who does not listen yet is passed over.
    ASSERT_TRUE(eventually([this] {
        const RawReply channels = this->redis_.command({"PUBSUB", "CHANNELS", "redlatch:client:*"});
        return channels.elements.size() == 2;
    }));
    this->redis_.del("job");
    ASSERT_TRUE(finishes(first));
    EXPECT_EQ(second.wait_for(300ms), std::future_status::timeout);
    let_go(first.get());
    ASSERT_TRUE(finishes(second));
    EXPECT_TRUE(succeeds(second.get()));
}

TYPED_TEST(Granted, waiter_notices_a_key_that_was_deleted_by_hand) {
    Held held = this->hold();
    auto waiter = this->enqueue_other();
    ASSERT_TRUE(settles(this->redis_));
    const Stopwatch watch;
    this->redis_.del("job");
    ASSERT_TRUE(finishes(waiter));
    EXPECT_LT(watch.elapsed(), 2s + 5s);  // those behind the first ones ask in up to 10 s
    auto granted = waiter.get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_TRUE(is_outcome(held.release(), Release::expired));
    EXPECT_TRUE(granted->held());
}

TYPED_TEST(Granted, waiter_has_the_lock_soon_after_a_lease_that_ran_out) {
    constexpr auto lease = 1500ms;
    // The token of a process of ours that died: nobody renews, nobody releases.
    take_as_foreigner<TypeParam>(this->redis_, lease, std::string(32, 'a') + ":host:1:1");
    const Stopwatch watch;
    auto waiter = start_waiting<TypeParam>(this->other_client_);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_LT(watch.elapsed(), lease + 5s);
    EXPECT_TRUE(succeeds(waiter.get()));
}

// ------------------------------------------------------------------------------ leaving

TYPED_TEST(Granted, waiter_leaves_the_queue_at_its_deadline) {
    constexpr auto wait = 3s;  // long enough for the next one to come
    Held held = this->hold();
    const Stopwatch watch;
    auto leaver = this->enqueue_other({.wait = wait});
    Client third{patient(this->server_.uri())};
    auto next = enqueue<TypeParam>(this->redis_, third);
    EXPECT_TRUE(was_in_vain(leaver.get()));
    EXPECT_GE(watch.elapsed(), wait - 1ms);
    EXPECT_LT(watch.elapsed(), wait + soon);
    EXPECT_TRUE(queue_grows_to(this->redis_, 1));
    ASSERT_TRUE(settles(this->redis_));

    let_go(held);
    EXPECT_TRUE(this->redis_.exists("job")) << "it is the next one's, in the same step";
    ASSERT_TRUE(finishes(next));
    let_go(next.get());
    this->expect_nothing_left();
}

TYPED_TEST(Granted, waiter_leaves_the_queue_when_it_is_cancelled) {
    Held held = this->hold();
    std::stop_source stop;
    auto leaver = this->enqueue_other({.wait = patience, .stop = stop.get_token()});
    Client third{patient(this->server_.uri())};
    auto next = enqueue<TypeParam>(this->redis_, third);
    ASSERT_TRUE(settles(this->redis_));
    const Stopwatch watch;
    stop.request_stop();
    EXPECT_TRUE(fails_with(leaver.get(), Errc::cancelled));
    EXPECT_LT(watch.elapsed(), 50ms + soon);
    EXPECT_TRUE(queue_grows_to(this->redis_, 1));

    let_go(held);
    EXPECT_TRUE(this->redis_.exists("job")) << "it is the next one's, in the same step";
    ASSERT_TRUE(finishes(next));
    let_go(next.get());
    this->expect_nothing_left();
}

TYPED_TEST(Granted, last_waiter_to_leave_leaves_nothing) {
    const Held held = this->hold();
    auto leaver = this->enqueue_other({.wait = 3s});
    EXPECT_TRUE(was_in_vain(leaver.get()));
    EXPECT_TRUE(eventually([&] { return this->redis_.keys() == std::vector<std::string>{"job"}; }));
    EXPECT_EQ(this->inspected_waiters(), 0U);
    EXPECT_EQ(this->redis_.command({"EXISTS", "job"}).integer, 1);
}

TYPED_TEST(Granted, tries_that_do_not_wait_take_no_place) {
    const Held held = this->hold();
    Lock<TypeParam> lock{this->other_client_, "job"};
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(lock.try_lock());
    EXPECT_EQ(this->redis_.keys(), std::vector<std::string>{"job"});
}

TYPED_TEST(Granted, place_is_inherited_by_the_next_thread_of_the_process) {
    const auto waits = std::make_shared<Waits>();
    Client waiting{this->counting(waits)};
    Held held = this->hold();
    auto front = enqueue<TypeParam>(this->redis_, waiting, {.wait = 4s});
    auto heir = start_waiting<TypeParam>(waiting);
    ASSERT_TRUE(eventually([&] { return waits->number == 2; }));
    Client third{patient(this->server_.uri())};
    auto behind = enqueue<TypeParam>(this->redis_, third);
    EXPECT_TRUE(was_in_vain(front.get()));
    EXPECT_TRUE(stays([&] { return waiters(this->redis_) == 2; }, 200ms));
    ASSERT_TRUE(settles(this->redis_));

    let_go(held);
    ASSERT_TRUE(finishes(heir));
    EXPECT_EQ(behind.wait_for(200ms), std::future_status::timeout);
    let_go(heir.get());
    ASSERT_TRUE(finishes(behind));
    let_go(behind.get());
    this->expect_nothing_left();
}

TYPED_TEST(Granted, place_is_inherited_from_a_thread_that_was_cancelled) {
    Held held = this->hold();
    const auto waits = std::make_shared<Waits>();
    Client waiting{this->counting(waits)};
    std::stop_source stop;
    auto front =
        enqueue<TypeParam>(this->redis_, waiting, {.wait = patience, .stop = stop.get_token()});
    auto heir = start_waiting<TypeParam>(waiting);
    ASSERT_TRUE(eventually([&] { return waits->number == 2; }));
    Client third{patient(this->server_.uri())};
    auto behind = enqueue<TypeParam>(this->redis_, third);
    stop.request_stop();
    EXPECT_TRUE(fails_with(front.get(), Errc::cancelled));
    ASSERT_TRUE(settles(this->redis_));

    let_go(held);
    ASSERT_TRUE(finishes(heir));
    EXPECT_EQ(behind.wait_for(200ms), std::future_status::timeout);
    let_go(heir.get());
    ASSERT_TRUE(finishes(behind));
    let_go(behind.get());
    this->expect_nothing_left();
}

TYPED_TEST(Granted, heir_of_a_place_gets_its_own_lease) {
    const auto waits = std::make_shared<Waits>();
    Client waiting{this->counting(waits)};
    Held held = this->hold();
    auto front = enqueue<TypeParam>(this->redis_, waiting, {.wait = 4s, .lease = 50s});
    auto heir = start_waiting<TypeParam>(waiting, {.wait = patience, .lease = 20s});
    ASSERT_TRUE(eventually([&] { return waits->number == 2; }));
    EXPECT_TRUE(was_in_vain(front.get()));
    ASSERT_TRUE(settles(this->redis_));
    let_go(held);
    ASSERT_TRUE(finishes(heir));
    auto granted = heir.get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_LE(granted->remaining(), 20s);
    EXPECT_LE(this->redis_.pttl("job"), 20'000);
    EXPECT_GT(granted->remaining(), 8s);
}

TYPED_TEST(Granted, leaving_just_when_the_lock_comes_loses_nothing) {
    this->teach_both();
    std::minstd_rand random{7};
    for (int round = 0; round < 60; ++round) {
        Held held = this->hold();
        std::stop_source stop;
        auto leaver = this->enqueue_other({.wait = patience, .stop = stop.get_token()});
        auto releasing = in_background([&] { return held.release(); });
        std::this_thread::sleep_for(std::chrono::microseconds{random() % 400});
        stop.request_stop();
        EXPECT_TRUE(is_outcome(releasing.get(), Release::released));
        auto result = leaver.get();
        if (result) {
            let_go(*result);
        } else {
            EXPECT_TRUE(fails_with(result, Errc::cancelled));
        }
        ASSERT_TRUE(eventually([&] { return this->redis_.keys().empty(); })) << round;
    }
}

TYPED_TEST(Granted, closing_a_client_just_when_the_lock_comes_loses_nothing) {
    std::minstd_rand random{7};
    for (int round = 0; round < 15; ++round) {
        Held held = this->hold();
        auto closing = std::make_unique<Client>(patient(this->server_.uri()));
        auto leaver = enqueue<TypeParam>(this->redis_, *closing);
        auto releasing = in_background([&] { return held.release(); });
        std::this_thread::sleep_for(std::chrono::microseconds{random() % 400});
        closing.reset();
        EXPECT_TRUE(is_outcome(releasing.get(), Release::released));
        auto result = leaver.get();
        if (result) {
            EXPECT_FALSE(result->held());
        } else {
            EXPECT_TRUE(fails_with(result, Errc::cancelled));
        }
        ASSERT_TRUE(eventually([&] { return this->redis_.keys().empty(); }, 15s)) << round;
    }
}

TYPED_TEST(Granted, closing_a_client_ends_its_waits_and_gives_up_its_place) {
    Held held = this->hold();
    const auto waits = std::make_shared<Waits>();
    auto closing = std::make_unique<Client>(this->counting(waits));
    auto front = enqueue<TypeParam>(this->redis_, *closing);
    auto behind = start_waiting<TypeParam>(*closing);
    ASSERT_TRUE(eventually([&] { return waits->number == 2; }));
    const Stopwatch watch;
    closing.reset();
    EXPECT_LT(watch.elapsed(), soon);  // and not until they have waited long enough
    EXPECT_TRUE(fails_with(front.get(), Errc::cancelled));
    EXPECT_TRUE(fails_with(behind.get(), Errc::cancelled));
    EXPECT_TRUE(queue_grows_to(this->redis_, 0));
    let_go(held);
    this->expect_nothing_left();
}

// ------------------------------------------------------------------------- what is held then

TYPED_TEST(Granted, hold_ends_no_later_than_the_servers_key) {
    this->teach_both();
    for (const auto lease : {10s, 30s, 100s}) {
        Held held = this->hold();
        auto waiter = this->enqueue_other({.wait = patience, .lease = lease});
        let_go(held);
        ASSERT_TRUE(finishes(waiter));
        auto granted = waiter.get();
        ASSERT_TRUE(succeeds(granted));
        const long long ttl = this->redis_.pttl("job");
        const auto remaining = granted->remaining();
        EXPECT_LE(remaining, lease - lease / 100);
        EXPECT_LE(remaining.count(), ttl);
        EXPECT_GT(remaining, lease / 2);
        let_go(*granted);
    }
}

TYPED_TEST(Granted, hold_counts_from_the_servers_grant_when_the_message_is_late) {
    constexpr auto late = 1000ms;
    Proxy proxy{this->server_.uri()};
    Client client{options_for(proxy.uri(), 10s)};
    Held held = this->hold();
    auto waiter = enqueue<TypeParam>(this->redis_, client);
    ASSERT_TRUE(settles(this->redis_));
    proxy.delay_replies(late);
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    auto granted = waiter.get();
    ASSERT_TRUE(succeeds(granted));
    const long long ttl = this->redis_.pttl("job");
    const auto remaining = granted->remaining();
    EXPECT_LE(remaining, 30s - late);
    EXPECT_LE(remaining.count(), ttl);
    EXPECT_GT(remaining, 10s);
    proxy.pass();
}

TYPED_TEST(Granted, hold_is_none_when_the_message_took_longer_than_the_lease) {
    Proxy proxy{this->server_.uri()};
    Client client{options_for(proxy.uri(), 10s)};
    Held held = this->hold();
    auto waiter = enqueue<TypeParam>(this->redis_, client, {.wait = patience, .lease = 400ms});
    ASSERT_TRUE(settles(this->redis_));
    proxy.delay_replies(700ms);
    let_go(held);
    EXPECT_EQ(waiter.wait_for(1200ms), std::future_status::timeout);
    proxy.pass();
    ASSERT_TRUE(finishes(waiter));
    auto granted = waiter.get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_LE(granted->remaining(), 400ms);
}

TYPED_TEST(Granted, hold_leaves_the_lock_delay_to_the_server) {
    this->teach_both();
    Held held = this->hold();
    auto waiter = this->enqueue_other({.wait = patience, .lease = 30s}, {.lock_delay = 60s});
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    auto granted = waiter.get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_LE(granted->remaining(), 30s);
    EXPECT_GT(this->redis_.pttl("job"), 60'000);
    EXPECT_LE(this->redis_.pttl("job"), 90'000);
}

TYPED_TEST(Granted, hold_can_be_extended_and_lost_like_any_other) {
    Held held = this->hold();
    auto waiter = this->enqueue_other();
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    auto granted = waiter.get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_TRUE(succeeds(granted->extend(100s)));
    EXPECT_GT(this->redis_.pttl("job"), 60'000);
    const auto lost = granted->lost();
    this->redis_.del("job");
    EXPECT_TRUE(fails_with(granted->extend(100s), Errc::lost));
    EXPECT_TRUE(fires(lost));
}

template <class Policy>
class GrantedNest : public Granted<Policy> {};
using NestingPolicies = ::testing::Types<Reentrant, Watchdog<Reentrant>>;
TYPED_TEST_SUITE(GrantedNest, NestingPolicies);

TYPED_TEST(GrantedNest, counts_its_holds) {
    Held held = this->hold();
    Lock<TypeParam> lock{this->other_client_, "job"};
    auto nested = in_background([&] {
        lock.lock();
        lock.lock();
        EXPECT_TRUE(lock.try_lock());
        EXPECT_EQ(this->redis_.hgetall("job").begin()->second, "3");
        EXPECT_TRUE(is_outcome(lock.release(), Release::still_held));
        EXPECT_TRUE(is_outcome(lock.release(), Release::still_held));
        EXPECT_TRUE(lock.held());
        return lock.release();
    });
    EXPECT_TRUE(eventually([&] { return lock.inspect().value().waiters == 1; }));
    let_go(held);
    ASSERT_TRUE(finishes(nested));
    EXPECT_TRUE(is_outcome(nested.get(), Release::released));
    this->expect_nothing_left();
}

TYPED_TEST(GrantedNest, goes_to_the_next_waiter_with_its_last_hold) {
    Held held = this->hold();
    Lock<TypeParam> inner{this->client_, "job"};
    Held nested = inner.acquire().value();
    auto waiter = this->enqueue_other();
    EXPECT_TRUE(is_outcome(held.release(), Release::still_held));
    EXPECT_EQ(waiter.wait_for(200ms), std::future_status::timeout);
    let_go(nested);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(succeeds(waiter.get()));
}

template <class Policy>
class GrantedWatch : public Granted<Policy> {};
using WatchingPolicies = ::testing::Types<Watchdog<Simple>, Watchdog<Reentrant>>;
TYPED_TEST_SUITE(GrantedWatch, WatchingPolicies);

TYPED_TEST(GrantedWatch, renews_the_hold) {
    auto journal = std::make_shared<Journal>();
    ClientOptions options = patient(this->server_.uri());
    options.observer = journal;
    Client client{options};
    teach_to_listen<TypeParam>(this->redis_, client, this->client_);
    Held held = this->hold();
    auto waiter = enqueue<TypeParam>(this->redis_, client, {.wait = patience, .lease = 6s});
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    auto granted = waiter.get();
    ASSERT_TRUE(succeeds(granted));
    const int before = journal->renewals();
    EXPECT_TRUE(stays([&] { return granted->held() && this->redis_.exists("job"); }, 7s));
    EXPECT_TRUE(eventually([&] { return journal->renewals() >= before + 2; }));
    let_go(*granted);
    this->expect_nothing_left();
}

using GrantedHeir = Granted<Simple>;

TEST_F(GrantedHeir, of_an_unwatched_place_is_watched) {
    const auto waits = std::make_shared<Waits>();
    Client waiting{counting(waits)};
    Held held = take<Simple>(client_);
    auto front = enqueue<Simple>(redis_, waiting, {.wait = 4s});
    auto heir = start_waiting<Watchdog<Simple>>(waiting, {.wait = patience, .lease = 6s});
    ASSERT_TRUE(eventually([&] { return waits->number == 2; }));
    EXPECT_TRUE(was_in_vain(front.get()));
    let_go(held);
    ASSERT_TRUE(finishes(heir));
    auto granted = heir.get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_TRUE(stays([&] { return granted->held() && redis_.exists("job"); }, 7s));
    let_go(*granted);
}

// ------------------------------------------------------------------------------- polling

TYPED_TEST(Granted, polling_takes_no_place) {
    Held held = this->hold();
    auto poller = start_waiting<TypeParam>(this->other_client_, {.wait = patience},
                                           {.wait_strategy = WaitStrategy::polling});
    EXPECT_TRUE(stays([&] { return waiters(this->redis_) == 0; }, 400ms));
    EXPECT_EQ(this->inspected_waiters(), 0U);
    EXPECT_EQ(this->redis_.command({"PUBSUB", "CHANNELS"}).elements.size(), 0U);
    const Stopwatch watch;
    let_go(held);
    ASSERT_TRUE(finishes(poller));
    EXPECT_LT(watch.elapsed(), soon);
    let_go(poller.get());
    this->expect_nothing_left();
}

TYPED_TEST(Granted, polling_overtakes_nobody_who_queues) {
    constexpr LockOptions greedy{.wait_strategy = WaitStrategy::polling,
                                 .backoff = {.min = 1ms, .max = 2ms}};
    Held held = this->hold();
    Order order;
    Client polling{patient(this->server_.uri())};
    std::deque<Client> clients;
    std::vector<std::jthread> threads;
    const auto pass = [&order](Client& client, LockOptions options, int number) {
        Lock<TypeParam> lock{client, "job", options};
        const std::lock_guard guard{lock};
        order.add(number);
        std::this_thread::sleep_for(20ms);  // for the poller to try
    };
    threads.emplace_back([&] { pass(polling, greedy, 99); });
    for (int i = 0; i < 3; ++i) {
        Client& client = clients.emplace_back(patient(this->server_.uri()));
        threads.emplace_back([&, i] { pass(client, {}, i); });
        ASSERT_TRUE(queue_grows_to(this->redis_, i + 1));
    }
    ASSERT_TRUE(this->are_queued("redlatch:queue:{job}", 3));
    let_go(held);
    threads.clear();
    EXPECT_EQ(order.numbers(), (std::vector<int>{0, 1, 2, 99}));
    this->expect_nothing_left();
}

}  // namespace
}  // namespace redlatch::test
