// Readers, writers, permits and sets of locks that count as taken only when replicas have them.

#include "replicas_tools.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

namespace redlatch::test {
namespace {

using Config = Lock<Watchdog<Shared>>;

/// A way to take a claim.
struct Claiming {
    std::string name;
    std::string weight;
    std::function<Result<Held>(Client&, LockOptions, Wait)> take;
};

void PrintTo(const Claiming& claiming, std::ostream* out) {
    *out << claiming.name;
}

const Claiming by_reading{"reading", "1", [](Client& client, LockOptions options, Wait wait) {
                              return Config{client, "job", options}.acquire_shared({.wait = wait});
                          }};
const Claiming by_writing{"writing", "1000000000",
                          [](Client& client, LockOptions options, Wait wait) {
                              return Config{client, "job", options}.acquire({.wait = wait});
                          }};
const Claiming by_permits{
    "two_permits", "2", [](Client& client, LockOptions options, Wait wait) {
        return Semaphore<>{client, "job", 3, options}.take({.permits = 2, .wait = wait});
    }};

class ReplicatedClaim : public WithReplica, public ::testing::WithParamInterface<Claiming> {
protected:
    Result<Held> take(Client& client, Wait wait = patience, Replicas replicas = 1) {
        return GetParam().take(client, {.replicas = replicas}, wait);
    }

    bool replica_knows(const Held& held) {
        const std::string claim = GetParam().weight + " " + held.token();
        return !replica_redis_.command({"ZSCORE", "job", claim}).is_nil();
    }

    /// What nothing fits in beside.
    Held take_all() {
        const LockOptions options{};
        const Claiming& all = GetParam().name == "two_permits" ? by_permits : by_writing;
        return all.take(other_client_, options, patience).value();
    }

    [[nodiscard]] bool nothing_left() {
        return eventually([this] { return redis_.keys().empty(); });
    }

    Client hasty_client_{options_for(server_.uri(), 2s)};
};

INSTANTIATE_TEST_SUITE_P(Of, ReplicatedClaim, ::testing::Values(by_reading, by_writing, by_permits),
                         [](const auto& claiming) { return claiming.param.name; });

TEST_P(ReplicatedClaim, is_known_to_the_replica_when_it_is_taken) {
    for (const Replicas replicas : {Replicas{1}, Replicas::all()}) {
        auto held = take(client_, 0s, replicas);
        ASSERT_TRUE(succeeds(held));
        EXPECT_TRUE(replica_knows(*held));
        let_go(*held);
    }
    EXPECT_EQ(waits(), 2);
}

TEST_P(ReplicatedClaim, is_given_back_where_too_few_have_it) {
    replica_.freeze();
    EXPECT_TRUE(fails_with(take(hasty_client_, 0s), Errc::not_replicated));
    EXPECT_TRUE(nothing_left());
    replica_.thaw();
}

TEST_P(ReplicatedClaim, that_was_granted_is_known_to_the_replica_too) {
    Held before = take_all();
    auto waiter = in_background([this] { return take(client_); });
    ASSERT_TRUE(queue_grows_to(redis_, 1));
    EXPECT_TRUE(settles(redis_));
    EXPECT_EQ(waits(), 0) << "who is refused asks nobody";
    let_go(before);
    ASSERT_TRUE(finishes(waiter));
    auto held = waiter.get();
    ASSERT_TRUE(succeeds(held));
    EXPECT_EQ(waits(), 1);
    EXPECT_TRUE(replica_knows(*held));
    let_go(*held);
}

TEST_P(ReplicatedClaim, that_was_granted_is_given_back_where_too_few_have_it) {
    Held before = take_all();
    auto waiter = in_background([this] { return take(hasty_client_, 5s); });
    ASSERT_TRUE(queue_grows_to(redis_, 1));
    replica_.freeze();
    let_go(before);
    ASSERT_TRUE(finishes(waiter));
    EXPECT_TRUE(is_not_replicated(waiter.get()));
    EXPECT_TRUE(nothing_left());
    replica_.thaw();
}

using ReplicatedSet = WithReplica;

TEST_F(ReplicatedSet, is_given_back_as_a_whole_where_too_few_have_it) {
    LockSet<Simple> patient{client_, {"a", "b"}, {.replicas = 1}};
    HeldSet held = patient.acquire({.wait = patience}).value();
    EXPECT_TRUE(replica_redis_.exists("a") && replica_redis_.exists("b"));
    EXPECT_TRUE(is_outcome(held.release(), Release::released));
    Client hasty{options_for(server_.uri(), 2s)};
    LockSet<Simple> set{hasty, {"a", "b"}, {.replicas = 1}};
    replica_.freeze();
    EXPECT_TRUE(fails_with(set.acquire({.wait = 0s}), Errc::not_replicated));
    EXPECT_TRUE(eventually([this] { return redis_.keys().empty(); }));
    replica_.thaw();
}

}  // namespace
}  // namespace redlatch::test
