// At most one holder at a time: in threads, in processes, through any mixture of handles.

#include "lock_test.hpp"
#include "support/overlap_detector.hpp"
#include "support/process.hpp"

#include <mutex>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

constexpr LockOptions eager{.backoff = {.min = 1ms, .max = 8ms}};

/// Passes `rounds` times through the detector with the lock held, by one of the ways to take it.
template <class Policy>
void pass_through(Lock<Policy>& lock, OverlapDetector& detector, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        if (i % 2 == 0) {
            const std::lock_guard guard{lock};
            const OverlapDetector::Section section{detector};
        } else {
            const Held held = lock.acquire().value();
            const OverlapDetector::Section section{detector};
        }
    }
}

void expect_exact(const RedisServer& server, long long sections) {
    OverlapDetector detector{server.socket_path(), "sections"};
    EXPECT_EQ(detector.overlaps(), 0);
    EXPECT_EQ(detector.sections(), sections);
    EXPECT_EQ(detector.counter(), sections);
}

// No client here before the children are made: a fork should find one thread.
template <class Policy>
class Exclusion : public ::testing::Test {
protected:
    RedisServer server_;
    RawRedis redis_{server_};

    /// The token that the server has; for a hash its field. Empty where the lock is free.
    std::string owner() {
        if (redis_.type("job") != "hash") return redis_.get("job").value_or("");
        const auto fields = redis_.hgetall("job");
        return fields.empty() ? "" : fields.begin()->first;
    }

    void run_threads(Client& client, int count, int rounds) {
        std::vector<std::jthread> threads;
        for (int i = 0; i < count; ++i) {
            threads.emplace_back([this, &client, rounds] {
                OverlapDetector detector{server_.socket_path(), "sections"};
                Lock<Policy> lock{client, "job", eager};
                pass_through(lock, detector, rounds);
            });
        }
    }
};
TYPED_TEST_SUITE(Exclusion, AllPolicies);

TYPED_TEST(Exclusion, holds_between_threads_with_a_handle_each) {
    constexpr int threads = 6;
    constexpr int rounds = 80;
    {
        Client client{patient(this->server_.uri())};
        this->run_threads(client, threads, rounds);
    }
    expect_exact(this->server_, threads * rounds);
    EXPECT_FALSE(this->redis_.exists("job"));
}

TYPED_TEST(Exclusion, holds_between_threads_that_share_a_handle) {
    constexpr int count = 4;
    constexpr int rounds = 80;
    Client client{patient(this->server_.uri())};
    Lock<TypeParam> lock{client, "job", eager};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < count; ++i) {
            threads.emplace_back([&] {
                OverlapDetector detector{this->server_.socket_path(), "sections"};
                pass_through(lock, detector, rounds);
            });
        }
    }
    expect_exact(this->server_, count * rounds);
}

TYPED_TEST(Exclusion, holds_between_clients_of_one_process) {
    constexpr int threads = 2;
    constexpr int rounds = 60;
    {
        Client one{patient(this->server_.uri())};
        Client two{patient(this->server_.uri())};
        std::jthread first{[&] { this->run_threads(one, threads, rounds); }};
        std::jthread second{[&] { this->run_threads(two, threads, rounds); }};
    }
    expect_exact(this->server_, 2 * threads * rounds);
}

TYPED_TEST(Exclusion, holds_between_processes_with_threads) {
    constexpr int processes = 4;
    constexpr int threads = 2;
    constexpr int rounds = 50;
    const auto body = [this](LineChannel& parent) {
        if (!parent.read_line()) return 1;
        Client client{patient(this->server_.uri())};
        this->run_threads(client, threads, rounds);
        return 0;
    };
    std::vector<ChildProcess> children;
    for (int i = 0; i < processes; ++i) children.emplace_back(body);
    for (ChildProcess& child : children) EXPECT_TRUE(child.write_line("go"));
    for (ChildProcess& child : children) EXPECT_EQ(child.wait(100s), ExitStatus{});
    expect_exact(this->server_, processes * threads * rounds);
    EXPECT_FALSE(this->redis_.exists("job"));
}

TYPED_TEST(Exclusion, holds_while_processes_are_killed_in_the_middle) {
    constexpr auto lease = 1500ms;
    const auto body = [&](LineChannel& parent) {
        Client client{patient(this->server_.uri())};
        Lock<TypeParam> lock{client, "job", {.lease = lease}};
        lock.lock();
        parent.write_line("inside");
        parent.read_line();
        return 1;
    };
    ChildProcess victim{body};
    ASSERT_EQ(victim.read_line(), "inside");
    int killed_in_time = 0;
    // On a busy machine a lease that nobody renews may end before its holder does: that shows nothing.
    const auto kill_the_holder = [&] {
        const std::string token = this->owner();
        ChildProcess next{body};
        const bool came = eventually(
            [&] { return this->redis_.exists("redlatch:queue:{job}") || this->owner() != token; });
        EXPECT_TRUE(came);
        victim.kill();
        EXPECT_TRUE(victim.wait());
        const Stopwatch since;
        const std::chrono::milliseconds left{this->redis_.pttl("job")};
        const bool in_time = this->owner() == token;
        EXPECT_EQ(next.read_line(), "inside");
        if (in_time) {
            EXPECT_GE(since.elapsed(), left - (lease / 100 + 2ms)) << "the dead one's lease";
            ++killed_in_time;
        }
        victim = std::move(next);
        return killed_in_time == 2 || this->HasFailure();
    };
    EXPECT_TRUE(eventually(kill_the_holder));
    victim.kill();
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); }));
}

using ExclusionOfShapes = LockTest;

TEST_F(ExclusionOfShapes, handles_with_and_without_a_watchdog_are_one_lock) {
    Lock<Simple> plain{client_, "job"};
    Lock<Watchdog<Simple>> watched{client_, "job"};
    Lock<Watchdog<Simple>> elsewhere{other_client_, "job"};
    {
        const std::lock_guard guard{plain};
        EXPECT_FALSE(on_another_thread([&] { return watched.try_lock(); }));
        EXPECT_FALSE(elsewhere.try_lock());
    }
    const std::lock_guard guard{watched};
    EXPECT_FALSE(on_another_thread([&] { return plain.try_lock(); }));
    EXPECT_FALSE(elsewhere.try_lock());
}

TEST_F(ExclusionOfShapes, one_name_has_one_shape_at_a_time) {
    Lock<Simple> simple{client_, "job"};
    Lock<Reentrant> reentrant{client_, "job"};
    Lock<Reentrant> elsewhere{other_client_, "job"};
    simple.lock();
    EXPECT_EQ(code_of(reentrant.acquire()), Errc::wrong_type);
    EXPECT_EQ(code_of(elsewhere.acquire()), Errc::wrong_type);
    EXPECT_TRUE(simple.held());
    simple.unlock();
    EXPECT_TRUE(reentrant.try_lock());
    EXPECT_EQ(code_of(simple.acquire()), Errc::wrong_type);
    reentrant.unlock();
}

TEST_F(ExclusionOfShapes, names_and_databases_are_apart) {
    Lock<> one{client_, "one"};
    Lock<> two{other_client_, "two"};
    Client elsewhere{patient(server_.uri() + "?db=1")};
    Lock<> other_one{elsewhere, "one"};
    EXPECT_TRUE(one.try_lock());
    EXPECT_TRUE(two.try_lock());
    EXPECT_TRUE(other_one.try_lock());
}

}  // namespace
}  // namespace redlatch::test
