// Fencing tokens: greater with each new holder, whatever happens in between.

#include "granted_tools.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/scripts.hpp>

#include <algorithm>
#include <cstdint>
#include <future>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

const std::string fence_key = "redlatch:fence:{job}";

template <class Policy>
class FencedLock : public LockTest {
protected:
    using Lock = redlatch::Lock<Policy>;

    Held take(Client& client, LockOptions options = {}) {
        return Lock{client, "job", options}.acquire({.wait = patience}).value();
    }

    /// The fence of a hold that is taken and released.
    std::uint64_t next(Client& client) { return take(client).fence(); }

    /// The server's clock, in microseconds.
    std::uint64_t server_time() {
        const RawReply time = redis_.command({"TIME"});
        return std::stoull(time.elements.at(0).text) * 1'000'000 +
               std::stoull(time.elements.at(1).text);
    }
};

using FencedPolicies = ::testing::Types<Fenced<Simple>, Fenced<Reentrant>,
                                        Watchdog<Fenced<Reentrant>>, Fenced<Watchdog<Simple>>>;
TYPED_TEST_SUITE(FencedLock, FencedPolicies);

TYPED_TEST(FencedLock, has_a_greater_number_each_time) {
    std::uint64_t last = 0;
    for (int i = 0; i < 20; ++i) {
        const std::uint64_t fence = this->next(i % 3 == 0 ? this->other_client_ : this->client_);
        EXPECT_GT(fence, last);
        last = fence;
    }
    EXPECT_LE(last, this->server_time());
    EXPECT_GT(last, this->server_time() - 60'000'000);
}

TYPED_TEST(FencedLock, shows_its_number_to_who_holds_it_and_to_nobody_else) {
    typename TestFixture::Lock lock{this->client_, "job"};
    EXPECT_EQ(lock.fence(), 0U);
    lock.lock();
    const std::uint64_t fence = lock.fence();
    EXPECT_GT(fence, 0U);
    EXPECT_EQ(on_another_thread([&] { return lock.fence(); }), 0U);
    EXPECT_EQ((typename TestFixture::Lock{this->client_, "job"}.fence()), fence);
    lock.unlock();
    EXPECT_EQ(lock.fence(), 0U);

    Held held = lock.acquire().value();
    EXPECT_GT(held.fence(), fence);
    Held moved = std::move(held);
    EXPECT_GT(moved.fence(), fence);
    EXPECT_EQ(held.fence(), 0U);  // NOLINT(bugprone-use-after-move)
    let_go(moved);
    EXPECT_EQ(moved.fence(), 0U);
}

TYPED_TEST(FencedLock, keeps_its_number_as_long_as_it_is_held) {
    Held held = this->take(this->client_);
    const std::uint64_t fence = held.fence();
    EXPECT_TRUE(succeeds(held.extend(60s)));
    EXPECT_EQ(held.fence(), fence);
    EXPECT_EQ(this->redis_.get(fence_key), std::to_string(fence));
    if (TypeParam::reentrant) {
        Held nested = this->take(this->client_);
        EXPECT_EQ(nested.fence(), fence);
        EXPECT_TRUE(is_outcome(nested.release(), Release::still_held));
    }
    EXPECT_EQ(this->redis_.get(fence_key), std::to_string(fence));
}

TYPED_TEST(FencedLock, has_a_greater_number_than_one_that_ran_out) {
    Held stale = this->take(this->client_);
    this->redis_.del("job");  // as if its lease had ended
    Held held = this->take(this->other_client_);
    EXPECT_GT(held.fence(), stale.fence());
    EXPECT_GT(stale.fence(), 0U) << "who writes by it has to be refused";
}

TYPED_TEST(FencedLock, has_a_greater_number_than_before_a_restart_without_data) {
    const std::uint64_t before = this->next(this->client_);
    this->server_.kill();
    this->server_.start();
    EXPECT_GT(this->next(this->client_), before);
}

TYPED_TEST(FencedLock, has_a_greater_number_after_the_loss_of_the_counter) {
    RawRedis redis{this->server_};
    std::uint64_t last = 0;
    const std::vector<RawRedis::Command> losses{{"DEL", fence_key},
                                                {"FLUSHALL"},
                                                {"SET", fence_key, "somebody's"},
                                                {"SET", fence_key, "inf"},
                                                {"SET", fence_key, "-5"},
                                                {"SET", fence_key, "9007199254740993"},
                                                {"LPUSH", fence_key, "somebody's"}};
    for (const RawRedis::Command& loss : losses) {
        redis.command({"DEL", fence_key});
        redis.command(loss);
        const std::uint64_t fence = this->next(this->client_);
        EXPECT_GT(fence, last) << loss.back();
        EXPECT_LE(fence, this->server_time()) << loss.back();
        last = fence;
    }
}

TYPED_TEST(FencedLock, counts_on_where_the_servers_clock_was_set_back) {
    constexpr std::uint64_t from_the_future = 4'000'000'000'000'000;
    this->redis_.set(fence_key, std::to_string(from_the_future));
    EXPECT_EQ(this->next(this->client_), from_the_future + 1);
    EXPECT_EQ(this->next(this->other_client_), from_the_future + 2);
}

TYPED_TEST(FencedLock, leaves_a_counter_for_a_day_and_nothing_else) {
    constexpr long long day = 86'400'000;
    Held held = this->take(this->client_, {.lease = 30s});
    EXPECT_GT(this->redis_.pttl(fence_key), day);
    EXPECT_LE(this->redis_.pttl(fence_key), day + 30'000);
    EXPECT_TRUE(succeeds(held.extend(48h)));
    EXPECT_GT(this->redis_.pttl(fence_key), 2 * day);
    let_go(held);
    EXPECT_EQ(this->redis_.keys(), std::vector<std::string>{fence_key});
}

/// The counter is kept a day longer than the lock. A machine may stand still between the two questions.
void expect_counter_to_outlast_lock(RawRedis& redis) {
    constexpr long long day = 86'400'000;
    constexpr long long minute = 60'000;
    const long long lock = redis.pttl("job");
    EXPECT_GT(lock, 2 * day);
    EXPECT_GT(redis.pttl(fence_key), lock + day - minute);
}

TYPED_TEST(FencedLock, leaves_a_counter_that_outlasts_its_min_hold) {
    Held held = this->take(this->client_, {.min_hold = 72h});
    EXPECT_LT(this->redis_.pttl("job"), 60'000);
    let_go(held);
    expect_counter_to_outlast_lock(this->redis_);
}

using FencedNest = FencedLock<Fenced<Reentrant>>;

TEST_F(FencedNest, has_a_counter_that_outlasts_the_longest_of_its_leases) {
    FencedNest::Lock lock{client_, "job"};
    const Held outer = lock.acquire().value();
    const Held inner = lock.acquire({.lease = 72h}).value();
    EXPECT_EQ(inner.fence(), outer.fence());
    expect_counter_to_outlast_lock(redis_);
}

TYPED_TEST(FencedLock, that_was_granted_has_the_number_that_the_server_gave_it) {
    Held held = this->take(this->client_);
    const std::uint64_t first = held.fence();
    std::vector<std::future<Result<Held>>> waiters;
    waiters.push_back(enqueue<TypeParam>(this->redis_, this->other_client_));
    EXPECT_TRUE(settles(this->redis_));
    let_go(held);
    ASSERT_TRUE(finishes(waiters.back()));
    auto granted = waiters.back().get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_GT(granted->fence(), first);
    EXPECT_EQ(this->redis_.get(fence_key), std::to_string(granted->fence()));
}

TYPED_TEST(FencedLock, passes_from_thread_to_thread_with_a_number_of_its_own_each_time) {
    constexpr int threads = 4;
    constexpr int rounds = 50;
    std::vector<std::uint64_t> fences;  // guarded by the lock
    std::vector<std::future<void>> users;
    for (int i = 0; i < threads; ++i) {
        users.push_back(in_background([&] {
            for (int round = 0; round < rounds; ++round) {
                const Held held = this->take(this->client_);
                fences.push_back(held.fence());
            }
        }));
    }
    for (auto& user : users) user.get();
    ASSERT_EQ(fences.size(), static_cast<std::size_t>(threads * rounds));
    EXPECT_TRUE(std::is_sorted(fences.begin(), fences.end()));
    EXPECT_EQ((std::set<std::uint64_t>{fences.begin(), fences.end()}).size(), fences.size());
}

TYPED_TEST(FencedLock, rises_between_processes_that_contend) {
    constexpr int rounds = 60;
    std::vector<std::uint64_t> fences;  // guarded by the lock
    std::vector<std::future<void>> users;
    for (Client* const client : {&this->client_, &this->other_client_}) {
        for (int thread = 0; thread < 2; ++thread) {
            users.push_back(in_background([&, client] {
                for (int round = 0; round < rounds; ++round) {
                    const Held held = this->take(*client, {.local_handoffs = 1});
                    fences.push_back(held.fence());
                }
            }));
        }
    }
    for (auto& user : users) user.get();
    EXPECT_TRUE(std::is_sorted(fences.begin(), fences.end()));
    EXPECT_EQ((std::set<std::uint64_t>{fences.begin(), fences.end()}).size(), 4U * rounds);
}

template <class Policy>
struct Plain;
template <class P>
struct Plain<Fenced<P>> {
    using type = P;
};
template <class P>
struct Plain<Watchdog<Fenced<P>>> {
    using type = Watchdog<P>;
};

TYPED_TEST(FencedLock, waits_in_one_queue_with_others_that_want_no_number) {
    using Other = typename Plain<TypeParam>::type;
    const std::uint64_t before = this->next(this->client_);
    Held held = take<Other>(this->client_);
    EXPECT_EQ(held.fence(), 0U);
    Client third{patient(this->server_.uri())};
    auto fenced = enqueue<TypeParam>(this->redis_, this->other_client_);
    auto plain = enqueue<Other>(this->redis_, third);
    // Who does not listen yet is passed over.
    EXPECT_TRUE(this->are_queued("redlatch:queue:{job}", 2));
    let_go(held);
    ASSERT_TRUE(finishes(fenced));
    auto second = fenced.get();
    ASSERT_TRUE(succeeds(second));
    const std::uint64_t fence = second->fence();
    EXPECT_GT(fence, before);
    let_go(*second);
    ASSERT_TRUE(finishes(plain));
    auto last = plain.get();
    ASSERT_TRUE(succeeds(last));
    EXPECT_EQ(last->fence(), 0U);
    EXPECT_EQ(this->redis_.get(fence_key), std::to_string(fence));
    let_go(*last);
}

/// A place in the queue that a thread leaves behind is no use to one that wants another kind of lock.
TYPED_TEST(FencedLock, inherits_no_place_from_a_thread_that_wanted_no_number) {
    using Other = typename Plain<TypeParam>::type;
    Held held = this->take(this->client_);
    const std::uint64_t before = held.fence();
    auto first = enqueue<Other>(this->redis_, this->other_client_, {.wait = 2s});
    auto heir = start_waiting<TypeParam>(this->other_client_);
    const Errc code = code_of(first.get());
    EXPECT_TRUE(code == Errc::timed_out || code == Errc::unavailable)
        << "the second where a busy machine's last answer is late: " << make_error_code(code);
    EXPECT_TRUE(settles(this->redis_));
    EXPECT_TRUE(eventually([&] { return waiters(this->redis_) == 1; }));
    let_go(held);
    ASSERT_TRUE(finishes(heir));
    auto got = heir.get();
    ASSERT_TRUE(succeeds(got));
    EXPECT_GT(got->fence(), before);
}

TYPED_TEST(FencedLock, needs_the_counter_to_be_allowed) {
    RedisServer server{
        {.acl = {"alice on >secret ~job* ~redlatch:queue:* ~redlatch:waiters:* +@all"}}};
    RawRedis redis{server};
    Client client{patient("unix://alice:secret@" + server.socket_path())};
    typename TestFixture::Lock lock{client, "job"};
    EXPECT_EQ(code_of(lock.acquire({.wait = 0s})), Errc::denied);
    EXPECT_TRUE(redis.keys().empty());
}

/// What a lock protects. It knows of no lock, and refuses whoever comes with an older fencing token than it has seen.
class FencedStore {
public:
    explicit FencedStore(const RedisServer& server) : redis_(server) {}

    bool write(std::uint64_t fence, const std::string& text) {
        return run(fence, "redis.call('HSET', KEYS[1], 'text', ARGV[2])", text);
    }
    bool accepts(std::uint64_t fence) { return run(fence, ""); }

    std::string text() { return redis_.hgetall("store").at("text"); }
    std::uint64_t seen() { return std::stoull(redis_.hgetall("store").at("fence")); }

private:
    bool run(std::uint64_t fence, const std::string& action, const std::string& text = {}) {
        const std::string script =
            "if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then "
            "return 0 end redis.call('HSET', KEYS[1], 'fence', ARGV[1]) " +
            action + " return 1";
        return redis_.command({"EVAL", script, "1", "store", std::to_string(fence), text})
                   .integer == 1;
    }

    RawRedis redis_;
};

/// Readers and writers of a store, of which one process is stopped for longer than its lease.
template <class Policy>
class FencedReadersAndWriters : public ::testing::Test {
protected:
    using Lock = redlatch::Lock<Policy>;

    static constexpr auto brief = 500ms;

    /// Writes, and says with which fencing token.
    std::uint64_t write(Client& client, const std::string& text) {
        Lock lock{client, "job"};
        auto held = lock.acquire({.wait = patience}).value();
        const std::uint64_t fence = held.fence();
        EXPECT_TRUE(store_.write(fence, text));
        let_go(held);
        return fence;
    }

    /// A process that takes the lock with a brief lease when it is told to, says its fencing token, and when it is
    /// told to go on writes to the store without another look at the lock. No client here before it is made: a fork
    /// should find one thread.
    template <class Take>
    ChildProcess make_slow_one(Take take) {
        return ChildProcess{[this, take](LineChannel& parent) {
            if (!parent.read_line(patience)) return 1;
            Client client{patient(server_.uri())};
            Lock lock{client, "job", {.lease = brief}};
            const Held held = take(lock).value();
            FencedStore store{server_};
            const bool accepted_in_time = store.accepts(held.fence());
            parent.write_line(std::to_string(held.fence()));
            if (!parent.read_line(patience)) return 2;
            const bool accepted = store.write(held.fence(), "late");
            parent.write_line(accepted ? "accepted" : "refused");
            return accepted_in_time && !held.held() ? 0 : 3;
        }};
    }

    static std::uint64_t take(ChildProcess& slow_one) {
        slow_one.write_line("take");
        return std::stoull(slow_one.read_line().value_or("0"));
    }

    RedisServer server_;
    FencedStore store_{server_};
};

using FencedSharedPolicies = ::testing::Types<Fenced<Shared>, Watchdog<Fenced<Shared>>>;
TYPED_TEST_SUITE(FencedReadersAndWriters, FencedSharedPolicies);

TYPED_TEST(FencedReadersAndWriters, refuse_a_reader_that_was_stopped_while_another_wrote) {
    ChildProcess slow =
        this->make_slow_one([](auto& lock) { return lock.acquire_shared({.wait = patience}); });
    Client client{patient(this->server_.uri())};
    const std::uint64_t first = this->write(client, "first");
    EXPECT_EQ(this->take(slow), first) << "the last writer's";
    slow.freeze();
    const std::uint64_t second = this->write(client, "second");
    EXPECT_GT(second, first);
    slow.thaw();
    slow.write_line("go on");
    EXPECT_EQ(slow.read_line(), "refused");
    EXPECT_EQ(slow.wait(), ExitStatus{});
    EXPECT_EQ(this->store_.text(), "second");
    EXPECT_EQ(this->store_.seen(), second);
}

TYPED_TEST(FencedReadersAndWriters, refuse_a_writer_that_was_stopped_while_another_wrote) {
    ChildProcess slow =
        this->make_slow_one([](auto& lock) { return lock.acquire({.wait = patience}); });
    Client client{patient(this->server_.uri())};
    const std::uint64_t first = this->write(client, "first");
    const std::uint64_t of_the_slow_one = this->take(slow);
    EXPECT_GT(of_the_slow_one, first);
    slow.freeze();
    const std::uint64_t second = this->write(client, "second");
    EXPECT_GT(second, of_the_slow_one);
    slow.thaw();
    slow.write_line("go on");
    EXPECT_EQ(slow.read_line(), "refused");
    EXPECT_EQ(slow.wait(), ExitStatus{});
    EXPECT_EQ(this->store_.text(), "second");

    typename TestFixture::Lock lock{client, "job"};
    const Held reading = lock.acquire_shared({.wait = patience}).value();
    EXPECT_EQ(reading.fence(), this->store_.seen());
    EXPECT_TRUE(this->store_.accepts(reading.fence()));
}

class FencedFault : public ::testing::Test {
protected:
    RedisServer server_;
    RawRedis redis_{server_};
    Proxy proxy_{server_.uri()};
    Client client_{patient(proxy_.uri())};
};

TEST_F(FencedFault, number_of_a_lost_answer_is_not_used_up) {
    Lock<Fenced<Simple>> lock{client_, "job"};
    lock.acquire().value().release().value();
    const std::string script{lua::on_string().acquire.sha()};
    proxy_.drop_replies_once(2, script);
    Held held = lock.acquire({.wait = patience}).value();
    EXPECT_EQ(proxy_.counts().dropped_replies, 2);
    EXPECT_EQ(redis_.get(fence_key), std::to_string(held.fence()));
}

TEST_F(FencedFault, number_that_was_lost_while_its_answer_was_is_made_anew) {
    Lock<Fenced<Reentrant>> lock{client_, "job"};
    const std::uint64_t before = lock.acquire().value().fence();
    proxy_.hold_replies();
    auto held = in_background([&] { return lock.acquire({.wait = patience}); });
    EXPECT_TRUE(eventually([&] { return redis_.exists("job"); }));
    redis_.del(fence_key);
    proxy_.cut();
    proxy_.pass();
    auto got = held.get();
    ASSERT_TRUE(succeeds(got));
    EXPECT_GT(got->fence(), before);
    EXPECT_EQ(redis_.get(fence_key), std::to_string(got->fence()));
}

/// Its answers say nothing of a fencing token.
struct WithoutNumber : Simple {
    static const LockScripts& scripts() {
        static const LockScripts scripts = [] {
            LockScripts own = lua::on_string();
            own.acquire = Script{
                "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return {1, tonumber(ARGV[2])}"};
            return own;
        }();
        return scripts;
    }
};

TEST_F(FencedFault, policy_whose_scripts_give_no_number_is_told_so) {
    Lock<Fenced<WithoutNumber>> lock{client_, "job"};
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 0s}), Errc::protocol));
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

}  // namespace
}  // namespace redlatch::test
