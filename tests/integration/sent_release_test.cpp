// Locks whose unlock only sends: nobody waits for the answer, and yet nothing is left undone.

#include "fault_tools.hpp"
#include "support/overlap_detector.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;

constexpr LockOptions sent{.release_mode = ReleaseMode::sent};

class SentRelease : public testing::Test {
protected:
    /// What the client gives a command: more than a busy machine needs.
    static constexpr std::chrono::milliseconds patience{2000};

    explicit SentRelease(std::chrono::milliseconds timeout = patience)
        : client{std::in_place, through_proxy(timeout)} {
        // The first release on a connection is confirmed: it shows that the server knows the script.
        get_through(Lock<Simple>{*client, "other"});
        get_through(Lock<Reentrant>{*client, "another"});
        // So that their events are not overtaken by those that follow.
        EXPECT_TRUE(eventually([&] { return journal->releases().size() == confirmed; }));
    }

    template <class Policy>
    static void get_through(Lock<Policy>&& lock) {
        const std::lock_guard guard{lock};
    }

    ClientOptions through_proxy(std::chrono::milliseconds timeout) {
        ClientOptions options = options_for(proxy.uri(), timeout);
        options.observer = journal;
        return options;
    }

    bool is_free(const std::string& name) {
        return eventually([&] { return !raw.exists(name); });
    }

    /// What the observer heard of a release, counted from those that were confirmed.
    std::optional<Result<Release>> outcome_of(std::size_t release = 0) {
        const std::size_t index = confirmed + release;
        if (!eventually([&] { return journal->releases().size() > index; })) return std::nullopt;
        return journal->releases().at(index);
    }

    static constexpr std::size_t confirmed = 2;

    RedisServer server;
    Proxy proxy{server.uri()};
    RawRedis raw{server};
    std::shared_ptr<Journal> journal = std::make_shared<Journal>();
    std::optional<Client> client;
};

class PatientSentRelease : public SentRelease {
protected:
    PatientSentRelease() : SentRelease{1h} {}

    /// Ends a hold while no answer comes back.
    template <class End>
    void expect_not_to_wait(End end) {
        proxy.hold_replies();
        auto done = in_background(end);
        EXPECT_TRUE(finishes(done));
        EXPECT_TRUE(is_free("job"));
        proxy.pass();
        done.wait();
    }
};

TEST_F(PatientSentRelease, unlock_does_not_wait) {
    Lock<Simple> lock{*client, "job", sent};
    expect_not_to_wait([&] {
        proxy.pass();
        lock.lock();
        proxy.hold_replies();
        lock.unlock();
    });
}

TEST_F(PatientSentRelease, end_of_a_hold_does_not_wait) {
    Lock<Reentrant> lock{*client, "job", sent};
    auto held = std::make_optional(lock.acquire().value());
    expect_not_to_wait([&] { held.reset(); });
}

TEST_F(PatientSentRelease, end_of_a_moved_hold_does_not_wait) {
    Lock<Simple> lock{*client, "job", sent};
    Held held;
    held = lock.acquire().value();
    auto moved = std::make_optional(std::move(held));
    expect_not_to_wait([&] { moved.reset(); });
}

TEST_F(PatientSentRelease, end_of_a_handle_does_not_wait) {
    std::optional<Lock<Simple>> lock{std::in_place, *client, "job", sent};
    lock->lock();
    expect_not_to_wait([&] { lock.reset(); });
}

TEST_F(PatientSentRelease, watched_hold_does_not_wait) {
    Lock<> lock{*client, "job", sent};
    auto held = std::make_optional(lock.acquire().value());
    expect_not_to_wait([&] { held.reset(); });
}

TEST_F(SentRelease, release_waits_for_the_answer) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    proxy.hold_replies();
    EXPECT_TRUE(fails_with(lock.release(), Errc::unclear));
    proxy.pass();
}

TEST_F(SentRelease, next_command_follows_on_the_same_connection) {
    Lock<Simple> lock{*client, "job", sent};
    constexpr int rounds = 100;
    for (int i = 0; i < rounds; ++i) {
        EXPECT_TRUE(lock.try_lock());
        lock.unlock();
    }
    EXPECT_TRUE(is_free("job"));
    // A machine that stands still for a while leaves the answer to another thread, which then has the connection.
    EXPECT_LT(proxy.counts().connections, 5);
    for (std::size_t i = 0; i < rounds; ++i) {
        const auto outcome = outcome_of(i);
        ASSERT_TRUE(outcome);
        EXPECT_TRUE(is_outcome(*outcome, Release::released)) << i;
    }
}

TEST_F(SentRelease, answer_is_read_though_no_command_follows) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    lock.unlock();
    const auto outcome = outcome_of();
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(is_outcome(*outcome, Release::released));
}

TEST_F(SentRelease, loss_is_told) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    raw.del("job");
    lock.unlock();
    const auto outcome = outcome_of();
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(is_outcome(*outcome, Release::expired));
}

TEST_F(SentRelease, late_one_is_told_though_the_server_has_kept_the_lock) {
    LockOptions delayed = sent;
    delayed.lease = 200ms;
    delayed.lock_delay = 60s;
    Lock<Simple> lock{*client, "job", delayed};
    for (std::size_t i = 0; i < 20; ++i) {
        lock.lock();
        while (lock.held()) continue;  // so that no timer has declared the loss yet
        lock.unlock();
        const auto outcome = outcome_of(i);
        ASSERT_TRUE(outcome);
        EXPECT_TRUE(is_outcome(*outcome, Release::expired));
    }
}

TEST_F(SentRelease, nested_hold_is_told_at_once) {
    Lock<Reentrant> lock{*client, "job", sent};
    lock.lock();
    lock.lock();
    lock.unlock();
    EXPECT_TRUE(lock.held());
    EXPECT_TRUE(raw.exists("job"));
    lock.unlock();
    EXPECT_FALSE(lock.held());
    EXPECT_TRUE(is_free("job"));
    const auto inner = outcome_of(0);
    const auto outer = outcome_of(1);
    ASSERT_TRUE(inner && outer);
    EXPECT_TRUE(is_outcome(*inner, Release::still_held));
    EXPECT_TRUE(is_outcome(*outer, Release::released));
}

TEST_F(SentRelease, script_that_the_server_forgot_is_sent_again) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    raw.script_flush();
    lock.unlock();
    EXPECT_TRUE(is_free("job"));
    const auto outcome = outcome_of();
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(fails_with(*outcome, Errc::unclear));
}

TEST_F(SentRelease, request_that_never_arrived_is_sent_again) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    proxy.delay_requests(1h);
    lock.unlock();
    EXPECT_TRUE(raw.exists("job"));
    proxy.cut();
    proxy.delay_requests(0ms);
    EXPECT_TRUE(is_free("job"));
    const auto outcome = outcome_of();
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(fails_with(*outcome, Errc::unclear));
}

TEST_F(SentRelease, lost_answer_harms_nobody) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    proxy.drop_replies_once();
    lock.unlock();
    const auto outcome = outcome_of();
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(fails_with(*outcome, Errc::unclear));
    EXPECT_TRUE(lock.try_lock_for(10s));
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
}

TEST_F(SentRelease, frozen_server_gets_it_later) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    proxy.black_hole();
    lock.unlock();
    const auto outcome = outcome_of();
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(fails_with(*outcome, Errc::unclear));
    proxy.pass();
    EXPECT_TRUE(is_free("job"));
}

TEST_F(SentRelease, closing_the_client_waits_for_answers) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    proxy.delay_replies(50ms);
    lock.unlock();
    client.reset();
    ASSERT_TRUE(eventually([&] { return journal->releases().size() == confirmed + 1; }));
    EXPECT_TRUE(is_outcome(journal->releases().back(), Release::released));
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(SentRelease, closing_the_client_is_bounded) {
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    proxy.black_hole();
    lock.unlock();
    const Stopwatch closing;
    client.reset();
    EXPECT_LT(closing.elapsed(), 4 * patience + slack);
}

TEST_F(SentRelease, waiter_elsewhere_is_granted_the_lock) {
    Client elsewhere{options_for(server.uri(), 10s)};
    Lock<Simple> lock{*client, "job", sent};
    lock.lock();
    auto waiter = in_background([&] {
        Lock<Simple> theirs{elsewhere, "job"};
        return theirs.try_lock_for(generous_limit);
    });
    ASSERT_TRUE(eventually([&] { return raw.exists("redlatch:queue:{job}"); }));
    lock.unlock();
    EXPECT_TRUE(waiter.get());
}

TEST_F(SentRelease, threads_exclude_each_other) {
    constexpr int threads = 4;
    constexpr int rounds = 150;
    Client elsewhere{options_for(server.uri(), 10s)};
    {
        std::vector<std::jthread> crowd;
        for (int i = 0; i < threads; ++i) {
            crowd.emplace_back([&, i] {
                OverlapDetector detector{server.socket_path(), "sections", 0us};
                Lock<Simple> lock{i % 2 == 0 ? *client : elsewhere, "job", sent};
                Lock<Reentrant> own{i % 2 == 0 ? *client : elsewhere, std::to_string(i), sent};
                for (int round = 0; round < rounds; ++round) {
                    const std::scoped_lock both{lock, own};
                    const OverlapDetector::Section section{detector};
                }
            });
        }
    }
    OverlapDetector detector{server.socket_path(), "sections"};
    EXPECT_EQ(detector.overlaps(), 0);
    EXPECT_EQ(detector.counter(), threads * rounds);
    EXPECT_TRUE(is_free("job"));
    for (int i = 0; i < threads; ++i) EXPECT_TRUE(is_free(std::to_string(i)));
}

/// How often the calling thread has gone to sleep.
long sleeps_of_this_thread() {
    rusage usage{};
    EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

TEST_F(SentRelease, answers_are_looked_for_without_sleep_where_that_is_wanted) {
    constexpr int rounds = 4;
    // So that no answer is there before anybody looks.
    proxy.delay_replies(6ms);
    const auto sleeps_with = [&](std::chrono::microseconds busy_wait) {
        ClientOptions options = options_for(proxy.uri(), patience);
        options.busy_wait = busy_wait;
        Client busy{options};
        get_through(Lock<Simple>{busy, "job"});
        const long before = sleeps_of_this_thread();
        for (int i = 0; i < rounds; ++i) get_through(Lock<Simple>{busy, "job"});
        return sleeps_of_this_thread() - before;
    };
    // Each round has two answers. A busy machine may need longer for some, but not always.
    EXPECT_TRUE(eventually([&] { return sleeps_with(10ms) < 2; }));
    EXPECT_TRUE(eventually([&] { return sleeps_with(0ms) >= rounds; })) << "what it saves";
}

TEST_F(SentRelease, answers_that_come_later_than_anybody_looks_without_sleep_are_waited_for) {
    ClientOptions options = through_proxy(patience);
    options.busy_wait = 200us;
    Client busy{options};
    Lock<Simple> lock{busy, "job", sent};
    for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(lock.try_lock());
        lock.unlock();
    }
    proxy.delay_replies(30ms);
    EXPECT_TRUE(lock.try_lock());
    EXPECT_TRUE(is_outcome(lock.release(), Release::released));
    proxy.black_hole();
    EXPECT_TRUE(fails_with(lock.inspect(), Errc::unavailable));
    proxy.pass();
}

}  // namespace
}  // namespace redlatch::test
