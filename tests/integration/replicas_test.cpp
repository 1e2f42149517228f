// A lock that counts as taken only when replicas have it.

#include "replicas_tools.hpp"
#include <redlatch/net/server_error.hpp>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace redlatch::test {
namespace {

template <class Policy>
class Replicated : public WithReplica {
protected:
    using Lock = redlatch::Lock<Policy>;

    bool replica_knows(const std::string& token) {
        const auto fields =
            is_hash<Policy> ? replica_redis_.hgetall("job") : std::map<std::string, std::string>{};
        return is_hash<Policy> ? fields.contains(token) : replica_redis_.get("job") == token;
    }

    std::shared_ptr<Journal> journal_ = std::make_shared<Journal>();
    /// How long the hasty client waits for replicas.
    static constexpr std::chrono::milliseconds limit = 2s;
    ClientOptions options() {
        ClientOptions options = options_for(server_.uri(), limit);
        options.observer = journal_;
        return options;
    }
    Client hasty_client_{options()};
};

using Policies = ::testing::Types<Simple, Reentrant>;
TYPED_TEST_SUITE(Replicated, Policies);

TYPED_TEST(Replicated, is_known_to_the_replica_when_it_is_taken) {
    for (const Replicas replicas : {Replicas{1}, Replicas::all()}) {
        typename TestFixture::Lock lock{this->client_, "job", {.replicas = replicas}};
        for (int i = 0; i < 5; ++i) {
            auto held = lock.acquire({.wait = 0s});
            ASSERT_TRUE(succeeds(held));
            EXPECT_TRUE(this->replica_knows(held->token()));
            let_go(*held);
        }
    }
    EXPECT_EQ(this->waits(), 10);
}

TYPED_TEST(Replicated, asks_nobody_where_nobody_is_to_be_asked) {
    typename TestFixture::Lock lock{this->client_, "job"};
    let_go(lock.acquire());
    EXPECT_EQ(this->waits(), 0);
}

TYPED_TEST(Replicated, is_given_back_where_too_few_have_it) {
    this->replica_.freeze();
    for (const Replicas replicas : {Replicas{1}, Replicas{2}, Replicas::all()}) {
        typename TestFixture::Lock lock{this->hasty_client_, "job", {.replicas = replicas}};
        const Stopwatch watch;
        const auto held = lock.acquire({.wait = 0s});
        ASSERT_TRUE(fails_with(held, Errc::not_replicated));
        EXPECT_LT(watch.elapsed(), TestFixture::limit + 10s);
        EXPECT_TRUE(speaks_of(held.error(), "0 of ")) << held.error().describe();
        EXPECT_FALSE(held.error().node.empty());
        EXPECT_FALSE(lock.held());
        EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); }));
    }
    this->replica_.thaw();
}

TYPED_TEST(Replicated, wants_no_more_replicas_than_there_are_where_all_are_asked) {
    this->replica_.kill();
    ASSERT_TRUE(eventually([&] { return this->replicas_online() == "0"; }));
    typename TestFixture::Lock all{this->client_, "job", {.replicas = Replicas::all()}};
    let_go(all.acquire({.wait = 0s}));
    typename TestFixture::Lock one{this->hasty_client_, "job", {.replicas = 1}};
    EXPECT_TRUE(fails_with(one.acquire({.wait = 0s}), Errc::not_replicated));
}

TYPED_TEST(Replicated, is_waited_for_until_the_replica_is_back) {
    this->replica_.freeze();
    auto waiter = in_background([this] {
        return typename TestFixture::Lock{this->hasty_client_, "job", {.replicas = 1}}.acquire(
            {.wait = patience});
    });
    const auto told = [this] {
        const auto errors = this->journal_->errors();
        return !errors.empty() && errors.front().code == Errc::not_replicated;
    };
    EXPECT_TRUE(eventually(told));
    this->replica_.thaw();
    ASSERT_TRUE(finishes(waiter));
    auto held = waiter.get();
    ASSERT_TRUE(succeeds(held));
    EXPECT_TRUE(this->replica_knows(held->token()));
    let_go(*held);
}

TYPED_TEST(Replicated, that_was_granted_is_known_to_the_replica_too) {
    Held held = take<TypeParam>(this->client_);
    auto waiter =
        enqueue<TypeParam>(this->redis_, this->other_client_, {.wait = patience}, {.replicas = 1});
    EXPECT_TRUE(settles(this->redis_));
    EXPECT_EQ(this->waits(), 0) << "who is refused asks nobody";
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    auto granted = waiter.get();
    ASSERT_TRUE(succeeds(granted));
    EXPECT_EQ(this->waits(), 1);
    EXPECT_TRUE(this->replica_knows(granted->token()));
    let_go(*granted);
}

TYPED_TEST(Replicated, that_was_granted_counts_only_when_it_is_known) {
    Held held = take<TypeParam>(this->client_);
    auto waiter =
        enqueue<TypeParam>(this->redis_, this->other_client_, {.wait = 5s}, {.replicas = 1});
    EXPECT_TRUE(settles(this->redis_));
    this->replica_.freeze();
    let_go(held);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(is_not_replicated(waiter.get()));
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); }));
    this->replica_.thaw();
}

TYPED_TEST(Replicated, that_was_handed_over_is_adopted_only_when_it_is_known) {
    typename TestFixture::Lock theirs{this->client_, "job"};
    auto held = theirs.acquire();
    ASSERT_TRUE(succeeds(held));
    const auto ticket = held->detach();
    ASSERT_TRUE(succeeds(ticket));
    this->replica_.freeze();
    typename TestFixture::Lock ours{this->hasty_client_, "job", {.replicas = 1}};
    const auto adopted = ours.adopt(*ticket);
    ASSERT_TRUE(is_not_replicated(adopted));
    EXPECT_TRUE(speaks_of(adopted.error(), "0 of 1 replicas")) << adopted.error().describe();
    EXPECT_FALSE(adopted.error().node.empty());
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); })) << "it is given back";
    this->replica_.thaw();
}

TYPED_TEST(Replicated, is_asked_about_for_each_thread_of_a_process) {
    constexpr int threads = 4;
    constexpr int rounds = 10;
    std::vector<std::future<void>> users;
    for (int i = 0; i < threads; ++i) {
        users.push_back(in_background([this] {
            for (int round = 0; round < rounds; ++round) {
                const Held held = take<TypeParam>(this->client_, {.replicas = 1});
                EXPECT_TRUE(this->client_.ping());
            }
        }));
    }
    for (auto& user : users) user.get();
    EXPECT_EQ(this->waits(), threads * rounds);
}

TYPED_TEST(Replicated, refused_try_asks_nobody) {
    Held held = take<TypeParam>(this->other_client_);
    this->replica_.freeze();
    typename TestFixture::Lock lock{this->client_, "job", {.replicas = 1}};
    EXPECT_FALSE(lock.try_lock());
    EXPECT_EQ(this->waits(), 0);
    this->replica_.thaw();
    let_go(held);
}

TYPED_TEST(Replicated, extension_and_nested_hold_ask_nobody) {
    typename TestFixture::Lock lock{this->client_, "job", {.replicas = 1}};
    Held held = lock.acquire().value();
    EXPECT_TRUE(succeeds(held.extend(60s)));
    if (TypeParam::reentrant) {
        EXPECT_TRUE(is_outcome(lock.acquire().value().release(), Release::still_held));
    }
    EXPECT_EQ(this->waits(), 1);
    let_go(held);
}

TYPED_TEST(Replicated, is_given_back_where_the_server_stops_to_be_a_master) {
    this->replica_.freeze();
    auto waiter = in_background([&] {
        return
            typename TestFixture::Lock{this->client_, "job", {.replicas = 1}}.acquire({.wait = 0s});
    });
    EXPECT_TRUE(
        eventually([&] { return this->redis_.info("clients").at("blocked_clients") == "1"; }));
    this->redis_.command({"REPLICAOF", "127.0.0.1", "1"});
    ASSERT_TRUE(finishes(waiter));
    const auto held = waiter.get();
    ASSERT_TRUE(fails_with(held, Errc::unavailable));
    EXPECT_TRUE(speaks_of(held.error(), "UNBLOCKED")) << held.error().describe();
    this->redis_.command({"REPLICAOF", "NO", "ONE"});
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); }));
    this->replica_.thaw();
}

/// As where a server becomes one between the lock's command and the `WAIT` behind it.
TYPED_TEST(Replicated, is_asked_for_elsewhere_where_wait_finds_a_replica) {
    const RawReply answer = this->replica_redis_.command({"WAIT", "1", "1"});
    ASSERT_TRUE(answer.is_error());
    const auto meaning = detail::classify_server_error(answer.text);
    EXPECT_EQ(meaning.code, Errc::unavailable) << answer.text;
    EXPECT_TRUE(meaning.transient);
}

TYPED_TEST(Replicated, is_given_back_where_wait_is_forbidden) {
    this->redis_.command({"ACL", "SETUSER", "alice", "on", ">secret", "~*", "+@all", "-wait"});
    Client client{options_for("unix://alice:secret@" + this->server_.socket_path(), 10s)};
    typename TestFixture::Lock lock{client, "job", {.replicas = 1}};
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 0s}), Errc::denied));
    EXPECT_TRUE(eventually([&] { return !this->redis_.exists("job"); }));
}

}  // namespace
}  // namespace redlatch::test
