// `LockSet`: several locks taken and held as one.

#include "busy_machine.hpp"
#include "granted_tools.hpp"
#include "lock_test.hpp"
#include "support/proxy.hpp"
#include <redlatch/lock_set.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

template <class Policy>
class SetOf : public LockTest {
protected:
    LockSet<Policy> set_{client_, {"b", "a"}};
    Lock<Policy> a_{other_client_, "a"};
    Lock<Policy> b_{other_client_, "b"};

    bool nothing_left() {
        return eventually([&] { return redis_.keys().empty(); });
    }
};
TYPED_TEST_SUITE(SetOf, AllPolicies);

TYPED_TEST(SetOf, holds_all_its_locks) {
    auto held = this->set_.acquire();
    ASSERT_TRUE(held.has_value()) << held.error().describe();
    EXPECT_EQ(this->redis_.keys(), (std::vector<std::string>{"a", "b"}));
    EXPECT_FALSE(this->a_.try_lock());
    EXPECT_FALSE(this->b_.try_lock());
    EXPECT_TRUE(held->held());
    EXPECT_EQ(held->state(), HoldState::held);
    EXPECT_GT(held->remaining(), 20s);
    EXPECT_FALSE(held->lost().stop_requested());
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_TRUE(this->redis_.keys().empty());
    EXPECT_FALSE(held->held());
    EXPECT_EQ(held->state(), HoldState::none);
    EXPECT_EQ(held->remaining(), 0ms);
    EXPECT_TRUE(held->lost().stop_requested());
    EXPECT_EQ(held->release().value(), Release::not_held);
    EXPECT_EQ(code_of(held->extend(10s)), Errc::not_held);
}

TYPED_TEST(SetOf, is_held_by_all_or_by_none) {
    const auto other = this->b_.acquire();
    EXPECT_FALSE(this->set_.try_lock());
    EXPECT_TRUE(times_out([&] { return this->set_.try_lock_for(20ms); }));
    EXPECT_TRUE(times_out([&] { return this->set_.acquire({.wait = 20ms}); }));
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("a"); }));
    EXPECT_EQ(this->redis_.type("b") == "none", false);
}

TYPED_TEST(SetOf, that_was_refused_has_given_back_what_it_took) {
    for (int round = 0; round < 20; ++round) {
        auto other = this->b_.acquire();
        ASSERT_TRUE(other);
        ASSERT_FALSE(this->set_.try_lock());
        EXPECT_FALSE(this->redis_.exists("a"));
        static_cast<void>(other->release());
        const auto again = this->set_.acquire({.wait = 0s});
        EXPECT_TRUE(again) << again.error().describe();
    }
}

TYPED_TEST(SetOf, works_with_the_standard_guards) {
    { const std::lock_guard scope{this->set_}; }
    {
        const std::unique_lock scope{this->set_, 30s};
        ASSERT_TRUE(scope.owns_lock());
        EXPECT_TRUE(this->redis_.exists("a") && this->redis_.exists("b"));
    }
    EXPECT_TRUE(this->redis_.keys().empty());
    {
        LockSet<TypeParam> forgetful{this->client_, std::vector<std::string>{"a", "c"}};
        forgetful.lock();
        EXPECT_TRUE(this->redis_.exists("c"));
    }
    EXPECT_TRUE(this->redis_.keys().empty()) << "what nobody unlocked";
}

TYPED_TEST(SetOf, waits_for_each_of_them) {
    auto other = this->b_.acquire();
    auto held = in_background([&] { return this->set_.acquire(); });
    ASSERT_TRUE(eventually([&] { return this->b_.inspect().value().waiters == 1; }));
    EXPECT_TRUE(this->redis_.exists("a")) << "taken in the order of their bytes";
    static_cast<void>(other->release());
    EXPECT_TRUE(held.get()->held());
}

TYPED_TEST(SetOf, renews_those_before_while_it_waits_and_has_whole_leases_in_the_end) {
    LockSet<TypeParam> set{this->client_, {"a", "b"}, {.lease = 8s}};
    auto other = this->b_.acquire();
    auto held = in_background([&] { return set.acquire(); });
    ASSERT_TRUE(eventually([&] {
        const auto ttl = this->redis_.pttl("a");
        return ttl > 0 && ttl < 7000;
    }));
    ASSERT_TRUE(eventually([&] { return this->redis_.pttl("a") > 7200; })) << "renewed";
    static_cast<void>(other->release());
    auto all = held.get();
    ASSERT_TRUE(all.has_value()) << all.error().describe();
    EXPECT_GT(all->remaining(), 4s);
}

TYPED_TEST(SetOf, begins_anew_where_one_is_lost_while_another_is_waited_for) {
    LockSet<TypeParam> set{this->client_, {"a", "b"}, {.lease = 6s}};
    auto other = this->b_.acquire();
    auto held = in_background([&] { return set.acquire(); });
    ASSERT_TRUE(eventually([&] { return this->b_.inspect().value().waiters == 1; }));
    const std::string first = this->a_.inspect().value().owner;
    this->redis_.del("a");
    ASSERT_TRUE(eventually([&] {
        const auto owner = this->a_.inspect().value().owner;
        return !owner.empty() && owner != first;
    })) << "by another token";
    static_cast<void>(other->release());
    EXPECT_TRUE(held.get()->held());
}

TYPED_TEST(SetOf, is_lost_with_the_first_of_them) {
    auto held = this->set_.acquire();
    const std::stop_token lost = held->lost();
    EXPECT_EQ((Lock<TypeParam>{this->client_, "b"}.force_unlock().value()), Forced::removed);
    EXPECT_TRUE(fires(lost));
    EXPECT_FALSE(held->held());
    EXPECT_EQ(held->state(), HoldState::lost);
    EXPECT_EQ(held->remaining(), 0ms);
    EXPECT_EQ(code_of(held->extend(10s)), Errc::lost);
    EXPECT_EQ(held->release().value(), Release::expired);
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(SetOf, lasts_longer_where_all_do) {
    auto held = this->set_.acquire();
    EXPECT_TRUE(held->extend(90s).has_value());
    EXPECT_GT(held->remaining(), 60s);
    EXPECT_EQ(code_of(held->extend(1ms)), Errc::invalid_argument);
}

TYPED_TEST(SetOf, is_cancelled_by_a_stop) {
    const auto other = this->b_.acquire();
    std::stop_source stop;
    auto held =
        in_background([&] { return code_of(this->set_.acquire({.stop = stop.get_token()})); });
    ASSERT_TRUE(eventually([&] { return this->b_.inspect().value().waiters == 1; }));
    stop.request_stop();
    EXPECT_EQ(held.get(), Errc::cancelled);
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("a"); }));
}

TYPED_TEST(SetOf, may_be_released_by_any_thread_and_outlives_its_set) {
    auto set = std::make_unique<LockSet<TypeParam>>(this->client_,
                                                    std::initializer_list<LockName>{"a", "b"});
    auto held = set->acquire({.owner = Owner::hold});
    set.reset();
    HeldSet moved = *std::move(held);
    EXPECT_TRUE(moved.held());
    on_another_thread([&] { return moved.release().value(); });
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(SetOf, that_is_given_up_leaves_no_tombstone) {
    const auto other = this->b_.acquire();
    LockSet<TypeParam> set{this->client_, {"a", "b"}, {.min_hold = 1h}};
    EXPECT_FALSE(set.try_lock());
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("a"); }));
}

TYPED_TEST(SetOf, with_a_min_hold_leaves_a_tombstone_of_each) {
    LockSet<TypeParam> set{this->client_, {"a", "b"}, {.min_hold = 1h}};
    { const std::lock_guard scope{set}; }
    for (const char* const name : {"a", "b"}) {
        EXPECT_TRUE(
            Lock<TypeParam>(this->client_, name).inspect().value().owner.ends_with(":min_hold"));
    }
}

using LocksAsOne = LockTest;

TEST_F(LocksAsOne, wait_for_each_other_in_no_circle) {
    constexpr int rounds = 40;
    std::atomic<int> inside{0};
    std::atomic<int> done{0};
    const std::vector<std::vector<std::string>> orders{
        {"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"c", "b"}};
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
            LockSet<Simple> set{i % 2 == 0 ? client_ : other_client_, orders[i % orders.size()]};
            for (int round = 0; round < rounds; ++round) {
                const auto held = set.acquire({.wait = 60s});
                if (!held) return;
                EXPECT_EQ(++inside, 1) << "b is in all of them";
                --inside;
                ++done;
            }
        });
    }
    threads.clear();
    EXPECT_EQ(done, 8 * rounds);
}

TEST_F(LocksAsOne, nest_in_what_their_thread_holds) {
    Lock<Reentrant> a{client_, "a"};
    LockSet<Reentrant> set{client_, {"a", "b"}};
    const std::lock_guard outer{a};
    auto held = set.acquire();
    ASSERT_TRUE(held.has_value());
    EXPECT_EQ(a.inspect().value().hold_count, 2U);
    EXPECT_EQ(held->release().value(), Release::still_held);
    EXPECT_FALSE(redis_.exists("b"));
    EXPECT_TRUE(a.held());
}

TEST_F(LocksAsOne, leave_the_renewal_of_what_they_nest_in) {
    Lock<Watchdog<Reentrant>> a{client_, "a", {.lease = 6s}};
    LockSet<Watchdog<Reentrant>> set{client_, {"a", "b"}, {.lease = 6s}};
    const std::lock_guard outer{a};
    set.lock();
    set.unlock();
    EXPECT_TRUE(is_renewed(a));
    const auto other = Lock<Reentrant>{other_client_, "b"}.acquire();
    EXPECT_FALSE(set.try_lock());
    EXPECT_TRUE(is_renewed(a));
}

TEST_F(LocksAsOne, are_renewed_also_where_they_nest_in_what_is_not) {
    Lock<Reentrant> a{client_, "a", {.lease = 6s}};
    LockSet<Watchdog<Reentrant>> set{client_, {"a", "b"}, {.lease = 6s}};
    const std::lock_guard outer{a};
    const auto held = set.acquire();
    ASSERT_TRUE(held.has_value());
    // What is left of the least counts: once it is more for one of them, next time for the other.
    EXPECT_TRUE(is_renewed(*held) && is_renewed(*held));
    EXPECT_TRUE(held->held());
}

TEST_F(LocksAsOne, end_by_max_hold_also_where_they_nest_in_what_is_not_renewed) {
    Lock<Reentrant> a{client_, "a", {.lease = 3s}};
    LockSet<Watchdog<Reentrant>> set{client_, {"a", "b"}, {.lease = 3s, .max_hold = 3500ms}};
    const Held outer = a.acquire().value();
    const auto held = set.acquire();
    ASSERT_TRUE(held.has_value());
    EXPECT_TRUE(fires(outer.lost()));
}

TEST_F(LocksAsOne, that_wait_renew_nothing_that_they_nest_in) {
    Lock<Reentrant> a{client_, "a", {.lease = 2s}};
    LockSet<Reentrant> set{client_, {"a", "b"}, {.lease = 2s}};
    const auto other = Lock<Watchdog<Reentrant>>{other_client_, "b"}.acquire();
    const Held outer = a.acquire().value();
    const Errc code = code_of(set.acquire({.wait = 4s}));
    EXPECT_TRUE(code == Errc::timed_out || code == Errc::unavailable)
        << "the second where a busy machine's last answer is late: " << make_error_code(code);
    EXPECT_EQ(outer.state(), HoldState::lost) << "its own lease is long over";
}

TEST_F(LocksAsOne, are_never_taken_by_somebody_where_the_server_was_slow) {
    LockSet<Simple> set{client_, {"a", "b"}};
    EXPECT_TRUE(succeeds(client_.ping()));
    server_.freeze();
    auto acquired = in_background([&] { return set.acquire({.wait = 100ms}); });
    std::this_thread::sleep_for(120ms);  // between the deadline and the last answer that counts
    server_.thaw();
    ASSERT_TRUE(finishes(acquired));
    const auto held = acquired.get();
    EXPECT_TRUE(held || code_of(held) == Errc::unavailable) << held.error().describe();
}

TEST_F(LocksAsOne, are_a_deadlock_where_their_thread_holds_one_already) {
    Lock<Simple> b{client_, "b"};
    LockSet<Simple> set{client_, {"a", "b"}};
    const std::lock_guard outer{b};
    EXPECT_EQ(code_of(set.acquire()), Errc::deadlock);
    EXPECT_FALSE(redis_.exists("a"));
    EXPECT_TRUE(b.held());
}

TEST_F(LocksAsOne, have_a_fencing_token_each) {
    LockSet<Fenced<Simple>> set{client_, {"a", "b"}};
    const auto held = set.acquire();
    EXPECT_EQ(std::to_string(held->fence("a")), redis_.get("redlatch:fence:{a}"));
    EXPECT_EQ(std::to_string(held->fence("b")), redis_.get("redlatch:fence:{b}"));
    EXPECT_EQ(held->fence("c"), 0U);
}

TEST_F(LocksAsOne, with_bad_names_are_refused_before_any_io) {
    const auto refused = [&](const std::vector<std::string>& names) {
        try {
            const LockSet<> set{client_, names};
        } catch (const LockError& error) {
            return error.error().code == Errc::invalid_argument;
        }
        return false;
    };
    EXPECT_TRUE(refused({}));
    EXPECT_TRUE(refused({"a", "b", "a"}));
    EXPECT_TRUE(refused({"a", ""}));
    EXPECT_TRUE(refused({"redlatch:a"}));
    EXPECT_EQ(client_.ping().has_value(), true);
}

TEST_F(LocksAsOne, are_released_within_one_command_timeout) {
    Proxy proxy{server_.uri()};
    Client far{{.uris = {proxy.uri()}, .command_timeout = 500ms}};
    std::vector<std::string> names;
    for (int i = 0; i < 32; ++i) names.push_back("name:" + std::to_string(i));
    LockSet<Simple> set{far, names};
    auto held = set.acquire();
    ASSERT_TRUE(held.has_value()) << held.error().describe();
    proxy.black_hole();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(held->release().has_value());
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "and not 32 times as long";
}

TEST_F(LocksAsOne, are_tried_once_within_one_command_timeout) {
    Proxy proxy{server_.uri()};
    Client far{{.uris = {proxy.uri()}, .command_timeout = 1s}};
    ASSERT_TRUE(eventually([&] { return far.ping().has_value(); }));
    LockSet<Simple> set{far, {"a", "b", "c", "d", "e", "f"}};
    proxy.delay_replies(300ms);
    EXPECT_EQ(code_of(set.acquire({.wait = Wait::none()})), Errc::unavailable);
    proxy.pass();
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
    EXPECT_TRUE(eventually([&] { return set.acquire({.wait = Wait::none()}).has_value(); }));
}

TEST_F(LocksAsOne, leave_no_tombstone_where_their_client_is_closed_meanwhile) {
    const auto other = Lock<Simple>{client_, "b"}.acquire();
    std::optional<Client> client{std::in_place, patient(server_.uri())};
    const std::vector<std::string> names{"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7",
                                         "a8", "a9", "aa", "ab", "ac", "ad", "ae", "af"};
    std::vector<std::future<Errc>> waiting;
    for (const std::string& name : names) {
        waiting.push_back(in_background([&client, &name] {
            LockSet<Simple> set{*client, std::vector{name, std::string{"b"}}, {.min_hold = 1h}};
            return code_of(set.acquire());
        }));
    }
    for (const std::string& name : names) {
        ASSERT_TRUE(eventually([&] { return redis_.exists(name); }));
    }
    ASSERT_TRUE(are_queued("redlatch:queue:{b}", 1));
    client.reset();
    for (auto& one : waiting) EXPECT_EQ(one.get(), Errc::cancelled);
    EXPECT_TRUE(eventually([&] { return redis_.keys() == std::vector<std::string>{"b"}; }))
        << "nobody has had the others";
}

/// A set whose client is gone while somebody who was told of its loss takes his time.
class LocksOfAClosedClient : public LockTest {
protected:
    LocksOfAClosedClient() {
        brief_.reset();
        told_.get_future().wait();
    }

    template <class Call>
    void expect_end_of(Call call) {
        const auto done = in_background(std::move(call));
        EXPECT_EQ(done.wait_for(20s), std::future_status::ready);
        go_on_.set_value();
    }

    std::optional<Client> brief_{std::in_place,
                                 ClientOptions{.uris = {server_.uri()}, .command_timeout = 100ms}};
    std::optional<HeldSet> held_{LockSet<Simple>{*brief_, {"a", "b"}}.acquire().value()};
    std::promise<void> told_;
    std::promise<void> go_on_;
    std::stop_callback<std::function<void()>> hangs_{held_->lost(), [this] {
                                                         told_.set_value();
                                                         go_on_.get_future().wait();
                                                     }};
};

TEST_F(LocksOfAClosedClient, are_released_though_a_callback_hangs) {
    expect_end_of([this] { EXPECT_EQ(held_->release().value(), Release::expired); });
}

TEST_F(LocksOfAClosedClient, are_destroyed_though_a_callback_hangs) {
    expect_end_of([this] { held_.reset(); });
}

TEST_F(LocksOfAClosedClient, are_destroyed_by_a_forked_child_though_a_callback_hangs) {
    const ::pid_t child = ::fork();
    if (child == 0) {
        held_.reset();
        ::_exit(0);
    }
    const bool ended = eventually([&] { return ::waitpid(child, nullptr, WNOHANG) == child; });
    EXPECT_TRUE(ended);
    if (!ended) {
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
    }
    go_on_.set_value();
}

TEST_F(LocksAsOne, hear_a_stop_while_the_first_are_given_a_full_lease) {
    Proxy proxy{server_.uri()};
    const auto acquisitions = std::make_shared<Acquisitions>();
    Client far{{.uris = {proxy.uri()}, .command_timeout = 60s, .observer = acquisitions}};
    LockSet<Simple> set{far, {"a", "b"}, {.lease = 5min}};
    auto other = Lock<Simple>{client_, "b"}.acquire();
    std::stop_source stop;
    auto held = in_background([&] { return code_of(set.acquire({.stop = stop.get_token()})); });
    ASSERT_TRUE(are_queued("redlatch:queue:{b}", 1));
    std::this_thread::sleep_for(100ms);  // until a is to be given a full lease
    proxy.black_hole(Way::requests);
    static_cast<void>(other->release());
    ASSERT_TRUE(eventually([&] { return acquisitions->number == 2; })) << "by a message";
    stop.request_stop();
    EXPECT_EQ(held.wait_for(20s), std::future_status::ready);
    proxy.pass_whole();
    EXPECT_EQ(held.get(), Errc::cancelled);
    EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
}

}  // namespace
}  // namespace redlatch::test
