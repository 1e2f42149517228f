// `LockOptions::min_hold`: after a release nobody gets the lock until that long after it was taken.

#include "queue_tools.hpp"
#include "support/in_background.hpp"

#include <mutex>
#include <thread>

namespace redlatch::test {
namespace {

constexpr std::string_view suffix = ":min_hold";

template <class Policy>
class MinHold : public CountedWaits {
protected:
    /// The token that the server has; for a hash its field.
    std::string owner() {
        if (redis_.type("job") == "hash") return redis_.hgetall("job").begin()->first;
        return redis_.get("job").value_or("");
    }

    Lock<Policy> lock(Client& client, std::chrono::milliseconds min_hold) {
        return {client, "job", {.lease = 10s, .min_hold = min_hold}};
    }
};
TYPED_TEST_SUITE(MinHold, EveryPolicy);

TYPED_TEST(MinHold, leaves_the_lock_to_nobody_after_a_release) {
    auto lock = this->lock(this->client_, 1h);
    auto held = lock.acquire();
    const std::string token = held->token();
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_EQ(this->owner(), token + ":min_hold");
    EXPECT_GT(this->redis_.pttl("job"), 3'000'000) << "of any length, whatever the lease";
    EXPECT_LE(this->redis_.pttl("job"), 3'600'000);
    EXPECT_FALSE(lock.try_lock());
    EXPECT_FALSE(Lock<TypeParam>(this->other_client_, "job").try_lock());
    EXPECT_FALSE(lock.held());
}

TYPED_TEST(MinHold, counts_from_when_the_lock_was_taken) {
    auto lock = this->lock(this->client_, 300ms);
    const auto before = std::chrono::steady_clock::now();
    auto held = lock.acquire();
    EXPECT_EQ(held->release().value(), Release::released);
    ASSERT_TRUE(Lock<TypeParam>(this->other_client_, "job").acquire().has_value());
    EXPECT_GE(std::chrono::steady_clock::now() - before, 300ms);
}

TYPED_TEST(MinHold, that_is_over_before_the_release_keeps_nobody_out) {
    auto lock = this->lock(this->client_, 20ms);
    auto held = lock.acquire();
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_FALSE(this->redis_.exists("job"));
}

TYPED_TEST(MinHold, hands_nothing_on_in_memory_before) {
    auto first = this->lock(this->counted_, 0ms);
    auto lock = this->lock(this->counted_, 300ms);
    auto held = first.acquire({.owner = Owner::hold});
    // It gives the lock back so soon that the next one could have it in memory, were it not for `min_hold`.
    auto brief = in_background([&] { return lock.acquire().value().release(); });
    ASSERT_TRUE(this->waits_->become(1));
    auto next = in_background([&] {
        auto second = lock.acquire();
        return second ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
    });
    ASSERT_TRUE(this->waits_->become(2));
    const auto before = std::chrono::steady_clock::now();
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_EQ(brief.get().value(), Release::released);
    EXPECT_GE(next.get() - before, 300ms);
}

TYPED_TEST(MinHold, tells_who_waits_at_the_server_when_to_look) {
    constexpr auto min_hold = 500ms;
    constexpr auto recheck = 1s;  // who is told nothing looks no sooner than that
    auto waits = this->lock(this->other_client_, 0ms);
    const auto time_with = [&](std::chrono::milliseconds kept) {
        auto lock = this->lock(this->client_, kept);
        const auto before = std::chrono::steady_clock::now();
        auto held = lock.acquire();
        auto next = in_background([&] {
            auto second = waits.acquire();
            return second ? std::chrono::steady_clock::now() - before : 0ms;
        });
        EXPECT_TRUE(this->are_queued("redlatch:queue:{job}", 1));
        EXPECT_EQ(held->release().value(), Release::released);
        return next.get();
    };
    EXPECT_GT(time_with(0ms), 0ms);  // from now on it listens before it asks
    // A busy machine may be late, but not always.
    const auto is_in_time = [&] {
        const auto time = time_with(min_hold);
        EXPECT_GE(time, min_hold);
        return time < recheck;
    };
    EXPECT_TRUE(eventually(is_in_time));
}

TYPED_TEST(MinHold, outlives_its_client) {
    std::optional<Client> brief{std::in_place, patient(this->server_.uri())};
    const auto held = this->lock(*brief, 1h).acquire();
    EXPECT_EQ(this->owner(), held->token());
    brief.reset();
    EXPECT_EQ(held->state(), HoldState::lost);
    EXPECT_TRUE(this->owner().ends_with(suffix));
}

TYPED_TEST(MinHold, is_ended_by_force_unlock) {
    auto lock = this->lock(this->client_, 1h);
    { const std::lock_guard scope{lock}; }
    const LockInfo info = lock.inspect().value();
    EXPECT_TRUE(info.locked);
    EXPECT_EQ(info.owner, this->owner());
    EXPECT_EQ(lock.force_unlock(info.owner).value(), Forced::removed);
    EXPECT_TRUE(lock.try_lock());
}

TYPED_TEST(MinHold, does_not_go_along_with_a_hold_that_is_detached) {
    auto held = this->lock(this->client_, 1h).acquire();
    const Ticket ticket = held->detach().value();
    auto adopted = Lock<TypeParam>{this->other_client_, "job"}.adopt(ticket);
    ASSERT_TRUE(adopted) << adopted.error().describe();
    EXPECT_EQ(adopted->release().value(), Release::released);
    EXPECT_FALSE(this->redis_.exists("job"));
}

TYPED_TEST(MinHold, holds_for_a_release_that_is_only_sent) {
    Lock<TypeParam> lock{this->client_, "job", {.release_mode = ReleaseMode::sent, .min_hold = 1h}};
    lock.lock();
    lock.unlock();
    EXPECT_TRUE(eventually([&] { return this->owner().ends_with(suffix); }));
}

TYPED_TEST(MinHold, outlasts_a_grant_that_is_heard_after_the_release_has_failed) {
    if (redis_server_version() < redis_7) GTEST_SKIP() << "the server refuses no scripts";
    Client brief{{.uris = {this->server_.uri()}, .command_timeout = 2s}};
    auto lock = this->lock(brief, 1h);
    auto other = Lock<TypeParam>{this->other_client_, "job"}.acquire();
    auto waiter = in_background([&] { return lock.acquire(); });
    ASSERT_TRUE(this->are_queued("redlatch:queue:{job}", 1));
    EXPECT_EQ(other->release().value(), Release::released);
    auto held = waiter.get();
    ASSERT_TRUE(held.has_value());
    const std::string token = held->token();

    this->redis_.command({"CONFIG", "SET", "min-replicas-to-write", "1"});
    EXPECT_FALSE(held->release().has_value()) << "the server writes nothing";
    const std::string type = this->redis_.type("job") == "hash" ? "h" : "s";
    const std::string micros = this->redis_.command({"TIME"}).elements[0].text + "999999";
    const std::string size = std::to_string(token.size());
    this->redis_.command({"PUBLISH", channel(token),
                          "10000 " + micros + " - " + type + " 0 " + size + " " + token + "job"});
    EXPECT_TRUE(stays([&] { return this->owner() == token; }, 200ms));
    this->redis_.command({"CONFIG", "SET", "min-replicas-to-write", "0"});
    EXPECT_TRUE(eventually([&] { return this->owner() == token + ":min_hold"; }));
}

using MinHoldOfANest = LockTest;
using MinHoldOfTheDead = LockTest;

TEST_F(MinHoldOfTheDead, ends_with_the_lease) {
    Lock<Simple> dies{client_, "job", {.lease = 50ms, .min_hold = 1h}};
    const auto held = dies.acquire();
    EXPECT_TRUE((Lock<Simple>{other_client_, "job"}.acquire({.wait = 30s}).has_value()));
}

TEST_F(MinHoldOfANest, begins_with_its_outermost_hold) {
    Lock<Fenced<Reentrant>> lock{client_, "job", {.min_hold = 1h}};
    auto outer = lock.acquire();
    auto inner = lock.acquire();
    EXPECT_EQ(outer->release().value(), Release::still_held);
    EXPECT_EQ(redis_.hgetall("job").size(), 1U);
    const std::string token = inner->token();
    EXPECT_EQ(inner->release().value(), Release::released);
    EXPECT_TRUE(redis_.hgetall("job").contains(token + ":min_hold"));
}

using MinHoldOfSeveralMasters = LockTest;

TEST_F(MinHoldOfSeveralMasters, is_kept_by_all_that_had_the_lock) {
    RedisServer second;
    RedisServer third;
    const auto options = [&](std::chrono::milliseconds longest) {
        return ClientOptions{.uris = {server_.uri(), second.uri(), third.uri()},
                             .connect_timeout = 10s,
                             .command_timeout = 10s,
                             .node_timeout = 10s,
                             .longest_lease = longest};
    };
    Client client{options(0ms)};
    Lock<Simple> lock{client, "job", {.lease = 60s, .min_hold = 1h}};
    auto held = lock.acquire();
    ASSERT_TRUE(held.has_value()) << held.error().describe();
    const std::string tombstone = held->token() + ":min_hold";
    EXPECT_EQ(held->release().value(), Release::released);
    for (const RedisServer* server : {&server_, &second, &third}) {
        RawRedis raw{*server};
        EXPECT_TRUE(eventually([&] { return raw.get("job") == tombstone; }));
    }
    Client other{options(0ms)};
    EXPECT_FALSE((Lock<Simple>{other, "job"}.try_lock()));
    Client forgetful{options(30s)};
    EXPECT_THROW((Lock<Simple>{forgetful, "job", {.min_hold = 31s}}), LockError);
}

// ---- The script

class Tombstone : public Queue {
protected:
    long long keep(const std::string& token, int kept_for) {
        return number(scripts_.tombstone, {token, run_id, std::to_string(kept_for)});
    }
};

TEST_P(Tombstone, is_left_by_every_repetition_and_never_lasts_longer) {
    hold();
    EXPECT_EQ(keep(holder, 60'000), 1);
    EXPECT_EQ(keep(holder, 90'000), 1) << "sent again";
    expect_owner(holder + ":min_hold", 60'000);
    EXPECT_EQ(release(holder), 0) << "sent when the min_hold was over";
    expect_owner(holder + ":min_hold", 60'000);
    EXPECT_FALSE(acquire({.token = holder}).ours) << "a late command of the token";
}

TEST_P(Tombstone, is_not_made_of_what_is_anothers_or_gone) {
    EXPECT_EQ(keep(holder, 60'000), 0);
    expect_free();
    ASSERT_TRUE(acquire({.token = a}).ours);
    EXPECT_EQ(keep(holder, 60'000), 0);
    expect_owner(a, 60'000);
}

TEST_P(Tombstone, of_a_token_that_waits_takes_it_out_of_the_queue) {
    hold();
    ASSERT_EQ(acquire({.token = a}).place, 0);
    EXPECT_EQ(keep(a, 60'000), 0);
    expect_queue({});
}

TEST_P(Tombstone, of_a_token_that_asked_for_a_place_late_takes_it_out_of_the_queue) {
    hold();
    EXPECT_EQ(keep(holder, 60'000), 1);
    ASSERT_EQ(acquire({.token = holder}).place, 0) << "sent before that, and carried out now";
    EXPECT_EQ(keep(holder, 60'000), 1) << "the clean-up";
    expect_queue({});
    expect_owner(holder + ":min_hold", 60'000);
}

TEST_P(Tombstone, keeps_those_who_wait_waiting_and_tells_them_when_to_look) {
    hold();
    ASSERT_EQ(acquire({.token = a, .hears = true}).place, 0);
    Listener listener{server_, a};
    EXPECT_EQ(keep(holder, 60'000), 1);
    const auto notice = listener.next_grant();
    ASSERT_TRUE(notice);
    EXPECT_TRUE(notice->is_notice());
    EXPECT_EQ(notice->token, a);
    EXPECT_EQ(notice->key, keys_.lock);
    const Answered asked = acquire({.token = a, .hears = true});
    EXPECT_FALSE(asked.ours);
    EXPECT_LE(asked.ttl, 60'000);
    EXPECT_TRUE(asked.grants) << "it need not poll";
    expect_queue({a});
}

// PEXPIRE deletes a key whose end has come, as here, and as where it comes while the script runs: what is written after
// that would have no end.
TEST_P(Tombstone, whose_time_is_over_by_then_is_none) {
    hold();
    EXPECT_EQ(keep(holder, key_type() == KeyType::hash ? 0 : 1), 1);
    EXPECT_TRUE(eventually([&] { return !redis_.exists(keys_.lock); }));
}

TEST_P(Tombstone, is_left_on_a_full_server) {
    hold();
    redis_.command({"CONFIG", "SET", "maxmemory", "1"});
    EXPECT_EQ(keep(holder, 60'000), 1);
    expect_owner(holder + ":min_hold", 60'000);
}

TEST_P(Tombstone, that_is_removed_by_force_serves_the_queue) {
    hold();
    ASSERT_EQ(acquire({.token = a}).place, 0);
    EXPECT_EQ(keep(holder, 60'000), 1);
    EXPECT_EQ(force(), 1);
    expect_owner(a, 60'000);
}

TEST_P(Tombstone, is_followed_by_the_first_in_the_queue) {
    hold();
    ASSERT_EQ(acquire({.token = a}).place, 0);
    ASSERT_EQ(acquire({.token = b}).place, 1);
    EXPECT_EQ(keep(holder, 1), 1);
    ASSERT_TRUE(eventually([&] { return !redis_.exists(keys_.lock); }));
    EXPECT_FALSE(acquire({.token = b}).ours);
    expect_owner(a, 60'000);
}

INSTANTIATE_TEST_SUITE_P(KeyTypes, Tombstone, ::testing::Values(KeyType::string, KeyType::hash),
                         [](const auto& type) { return to_string(type.param); });

}  // namespace
}  // namespace redlatch::test
