// Other clients' locks on the same key: who has it keeps the others out, whoever that is, and nobody
// touches what is not his.

#include "integration/granted_tools.hpp"
#include "integration/lock_test.hpp"
#include "other_client.hpp"
#include "support/foreign_program.hpp"
#include "support/overlap_detector.hpp"

#include <algorithm>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {

// Not hidden, for the sake of the tests' names.
struct RedisPy {
    using Policy = Simple;
    static constexpr auto start = redis_py;
};
struct NodeRedlock {
    using Policy = Simple;
    static constexpr auto start = node_redlock;
};
struct Redisson {
    using Policy = Reentrant;
    static constexpr auto start = redisson;
};

namespace {

constexpr std::chrono::seconds lease{60};
constexpr std::chrono::milliseconds short_lease{300};

template <class Kind>
class OtherClients : public LockTest {
protected:
    using Policy = typename Kind::Policy;

    void SetUp() override {
        try {
            theirs_ = Kind::start(server_);
        } catch (const Absent& absent) {
            GTEST_SKIP() << absent.what();
        }
    }

    bool they_take() { return theirs_->acquire(0ms, lease); }

    /// Refused, or by an error.
    [[nodiscard]] bool they_get_nothing() {
        try {
            return !they_take();
        } catch (const std::runtime_error&) {
            return true;
        }
    }

    std::future<bool> they_wait() {
        return in_background([this] { return theirs_->acquire(patience, lease); });
    }

    /// Whether the other client goes on asking; others of these tests ask a few times at most.
    [[nodiscard]] bool they_keep_asking() {
        const long long before = questions();
        return eventually([&] { return questions() > before + 20; });
    }

    /// Whether a client of ours has asked for the lock and sent nothing since, for a second.
    [[nodiscard]] bool pauses_after_a_try(const std::string& name) {
        return eventually([&] {
            auto all = redis_.client_list();
            return std::any_of(all.begin(), all.end(), [&](auto& client) {
                return client["name"] == name && client["cmd"].starts_with("eval") &&
                       client["idle"] != "0";
            });
        });
    }

    /// An operator removes the lock, of which its holder knows nothing.
    void remove_lock() { ASSERT_TRUE(redis_.del(shared_key)); }

    /// All that the server knows of the lock, but how long it will last.
    std::string content() {
        const bool hash = redis_.type(shared_key) == "hash";
        if (!hash) return redis_.get(shared_key).value_or("nobody");
        std::string text;
        for (const auto& [owner, count] : redis_.hgetall(shared_key)) {
            text += owner + " has it " + count + " times";
        }
        return text;
    }

    std::unique_ptr<OtherClient> theirs_;
    Lock<Policy> ours_{client_, shared_key};

private:
    long long questions() {
        return redis_.command_calls("set") + redis_.command_calls("eval") +
               redis_.command_calls("evalsha");
    }
};
using Kinds = ::testing::Types<RedisPy, NodeRedlock, Redisson>;
TYPED_TEST_SUITE(OtherClients, Kinds);

TYPED_TEST(OtherClients, keep_us_out_until_they_release) {
    ASSERT_TRUE(this->they_take());
    EXPECT_FALSE(this->ours_.try_lock());
    EXPECT_TRUE(fails_with(this->ours_.acquire({.wait = 0ms}), Errc::timed_out));
    EXPECT_TRUE(this->ours_.inspect().value().locked);
    // Where the last try got no answer in time, its place is given back behind the call.
    EXPECT_TRUE(eventually([this] { return waiters(this->redis_) == 0; }));

    auto waiter = enqueue<typename TypeParam::Policy>(this->redis_, this->client_);
    EXPECT_TRUE(this->theirs_->release());
    ASSERT_TRUE(finishes(waiter));
    let_go(waiter.get());
}

TYPED_TEST(OtherClients, keep_us_out_until_they_expire) {
    ASSERT_TRUE(this->theirs_->acquire(0ms, short_lease));
    auto held = this->ours_.acquire({.wait = patience});
    ASSERT_TRUE(succeeds(held));
    EXPECT_FALSE(this->theirs_->release());
    let_go(*held);
}

TYPED_TEST(OtherClients, are_kept_out_until_we_release) {
    this->ours_.lock();
    EXPECT_FALSE(this->they_take());
    EXPECT_FALSE(this->theirs_->acquire(20ms, lease));
    EXPECT_TRUE(this->ours_.held());

    auto theirs = this->they_wait();
    EXPECT_TRUE(this->they_keep_asking());
    EXPECT_FALSE(finishes(theirs, 0ms));
    this->ours_.unlock();
    ASSERT_TRUE(finishes(theirs));
    EXPECT_TRUE(theirs.get());
    EXPECT_FALSE(this->ours_.try_lock());
    EXPECT_TRUE(this->theirs_->release());
}

TYPED_TEST(OtherClients, are_kept_out_until_we_expire) {
    this->ours_.lock(short_lease);
    EXPECT_TRUE(this->theirs_->acquire(patience, lease));
    EXPECT_FALSE(this->ours_.held());
    EXPECT_TRUE(is_outcome(this->ours_.release(), Release::expired));
    EXPECT_TRUE(this->theirs_->release());
}

TYPED_TEST(OtherClients, are_kept_out_by_a_watchdog) {
    Lock<Watchdog<typename TypeParam::Policy>> watched{this->client_, shared_key, {.lease = 3s}};
    const std::lock_guard guard{watched};
    EXPECT_FALSE(this->theirs_->acquire(4500ms, lease));
    EXPECT_TRUE(watched.held());
}

TYPED_TEST(OtherClients, take_turns_with_a_fenced_lock) {
    Lock<Fenced<typename TypeParam::Policy>> fenced{this->client_, shared_key};
    ASSERT_TRUE(this->they_take());
    EXPECT_FALSE(fenced.try_lock());
    EXPECT_TRUE(this->theirs_->release());
    EXPECT_TRUE(fenced.try_lock());
    EXPECT_FALSE(this->they_take());
    fenced.unlock();
    EXPECT_TRUE(this->they_take());
}

TYPED_TEST(OtherClients, leave_our_lock_alone) {
    ASSERT_TRUE(this->they_take());
    this->remove_lock();
    this->ours_.lock(30s);
    const std::string before = this->content();

    EXPECT_FALSE(this->theirs_->extend(2 * lease));
    EXPECT_EQ(this->content(), before);
    EXPECT_LE(this->redis_.pttl(shared_key), 30'000);
    EXPECT_FALSE(this->theirs_->release());
    EXPECT_EQ(this->content(), before);
    EXPECT_TRUE(is_outcome(this->ours_.release(), Release::released));
}

TYPED_TEST(OtherClients, take_nothing_of_ours_that_has_claims) {
    Lock<Shared> shared{this->client_, std::string{shared_key}, {.lease = 60s}};
    auto reading = shared.acquire_shared();
    ASSERT_TRUE(succeeds(reading));
    EXPECT_TRUE(this->they_get_nothing());
    EXPECT_EQ(shared.inspect().value().holders.at(0).owner, reading->token());
    EXPECT_TRUE(is_outcome(reading->release(), Release::released));

    Semaphore<> semaphore{this->client_, std::string{shared_key}, 2};
    auto permit = semaphore.take({.lease = 60s});
    ASSERT_TRUE(succeeds(permit));
    EXPECT_TRUE(this->they_get_nothing());
    EXPECT_TRUE(is_outcome(permit->release(), Release::released));

    ASSERT_TRUE(this->they_take());
    const std::string before = this->content();
    EXPECT_TRUE(fails_with(shared.acquire_shared({.wait = 0ms}), Errc::wrong_type));
    EXPECT_TRUE(fails_with(semaphore.take({.wait = 0ms}), Errc::wrong_type));
    EXPECT_EQ(this->content(), before);
    EXPECT_TRUE(this->theirs_->release());
}

TYPED_TEST(OtherClients, are_left_alone_by_us) {
    this->ours_.lock();
    this->remove_lock();
    ASSERT_TRUE(this->they_take());
    const std::string before = this->content();

    EXPECT_TRUE(fails_with(this->ours_.extend(2 * lease), Errc::lost));
    EXPECT_EQ(this->content(), before);
    EXPECT_LE(this->redis_.pttl(shared_key), 60'000);
    EXPECT_TRUE(is_outcome(this->ours_.release(), Release::expired));
    EXPECT_EQ(this->content(), before);
    EXPECT_TRUE(this->theirs_->extend(2 * lease));
    EXPECT_GT(this->redis_.pttl(shared_key), 60'000);
    EXPECT_TRUE(this->theirs_->release());
}

TYPED_TEST(OtherClients, see_no_free_key_while_ours_queue) {
    Client third{patient(this->server_.uri())};
    Result<Held> held = this->ours_.acquire();
    std::vector<std::future<Result<Held>>> queue;
    for (Client* client : {&this->other_client_, &third}) {
        queue.push_back(enqueue<typename TypeParam::Policy>(this->redis_, *client));
    }

    auto theirs = this->they_wait();
    for (auto& waiter : queue) {
        EXPECT_TRUE(this->they_keep_asking());
        EXPECT_FALSE(finishes(theirs, 0ms));
        let_go(std::move(held));
        ASSERT_TRUE(finishes(waiter));
        held = waiter.get();
    }
    EXPECT_TRUE(this->they_keep_asking());
    EXPECT_FALSE(finishes(theirs, 0ms));

    let_go(std::move(held));
    ASSERT_TRUE(finishes(theirs));
    EXPECT_TRUE(theirs.get());
    EXPECT_TRUE(this->theirs_->release());
}

TYPED_TEST(OtherClients, come_in_between_where_ours_poll) {
    std::stop_source enough;
    const LockOptions seldom{.wait_strategy = WaitStrategy::polling,
                             .backoff = {.min = 30s, .max = 50s}};
    ClientOptions options = patient(this->server_.uri());
    options.client_name = "poller";
    Client poller{options};
    this->ours_.lock();
    auto ours = start_waiting<typename TypeParam::Policy>(
        poller, {.wait = patience, .stop = enough.get_token()}, seldom);
    ASSERT_TRUE(this->pauses_after_a_try("poller"));
    auto theirs = this->they_wait();
    EXPECT_TRUE(this->they_keep_asking());
    this->ours_.unlock();
    ASSERT_TRUE(finishes(theirs, 15s));
    EXPECT_TRUE(theirs.get());
    EXPECT_FALSE(finishes(ours, 0ms));
    enough.request_stop();
    EXPECT_TRUE(finishes(ours));
}

TYPED_TEST(OtherClients, and_ours_exclude_each_other_at_work) {
    constexpr int rounds = 60;
    const LockOptions eager{.wait_strategy = WaitStrategy::polling,
                            .local_handoffs = 1,
                            .backoff = {.min = 1ms, .max = 8ms}};
    auto theirs = in_background([&] { this->theirs_->pass_through(rounds); });
    const auto pass_through = [&](Client& client) {
        OverlapDetector detector{this->server_.socket_path(), "sections"};
        Lock<typename TypeParam::Policy> lock{client, shared_key, eager};
        for (int i = 0; i < rounds; ++i) {
            const std::lock_guard guard{lock};
            const OverlapDetector::Section section{detector};
        }
    };
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { pass_through(this->client_); });
    threads.emplace_back([&] { pass_through(this->client_); });
    threads.emplace_back([&] { pass_through(this->other_client_); });
    for (std::jthread& thread : threads) thread.join();
    theirs.get();

    OverlapDetector detector{this->server_.socket_path(), "sections"};
    EXPECT_EQ(detector.overlaps(), 0);
    EXPECT_EQ(detector.sections(), 4 * rounds);
    EXPECT_EQ(detector.counter(), 4 * rounds);
    EXPECT_FALSE(this->redis_.exists(shared_key));
}

using RedissonNest = OtherClients<Redisson>;

TEST_F(RedissonNest, keeps_us_out_until_its_last_release) {
    ASSERT_TRUE(they_take());
    ASSERT_TRUE(they_take());
    EXPECT_TRUE(theirs_->release());
    EXPECT_FALSE(ours_.try_lock());
    EXPECT_TRUE(theirs_->release());
    EXPECT_TRUE(ours_.try_lock());
}

TEST_F(RedissonNest, is_kept_out_until_our_last_release) {
    ours_.lock();
    ours_.lock();
    ours_.unlock();
    EXPECT_FALSE(they_take());
    ours_.unlock();
    EXPECT_TRUE(they_take());
    EXPECT_TRUE(theirs_->release());
}

TEST_F(RedissonNest, is_what_inspect_tells) {
    ASSERT_TRUE(they_take());
    ASSERT_TRUE(they_take());
    const LockInfo info = ours_.inspect().value();
    EXPECT_TRUE(info.locked);
    EXPECT_EQ(info.hold_count, 2U);
    EXPECT_TRUE(info.owner.ends_with(":1")) << info.owner;
}

}  // namespace
}  // namespace redlatch::test
