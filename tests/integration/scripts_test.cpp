// The Lua on a real server: known by the right name, safe to run twice and late.

#include "lock_test.hpp"
#include "support/still_clock.hpp"
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/scripts.hpp>

#include <map>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

std::vector<std::pair<std::string, const Script*>> scripts_of(const LockScripts& scripts) {
    std::vector<std::pair<std::string, const Script*>> all{{"acquire", &scripts.acquire},
                                                           {"extend", &scripts.extend},
                                                           {"release", &scripts.release},
                                                           {"inspect", &scripts.inspect},
                                                           {"force_unlock", &scripts.force_unlock}};
    if (!scripts.nest.source().empty()) all.emplace_back("nest", &scripts.nest);
    return all;
}

class Scripts : public ::testing::TestWithParam<KeyType> {
protected:
    RawReply run(const Script& script, const std::vector<std::string>& arguments) {
        RawRedis::Command command{"EVAL", std::string{script.source()}, "1", "job"};
        command.insert(command.end(), arguments.begin(), arguments.end());
        return redis_.command(command);
    }
    long long number(const Script& script, const std::vector<std::string>& arguments) {
        const RawReply reply = run(script, arguments);
        EXPECT_EQ(reply.type, RawReply::Type::integer) << reply.text;
        return reply.integer;
    }
    /// Whether `acquire` says "ours", and the ttl it says.
    std::pair<bool, long long> acquire(const std::string& token, const std::string& lease) {
        const RawReply reply = run(scripts_.acquire, {token, lease});
        EXPECT_GE(reply.elements.size(), 2U) << reply.text;
        if (reply.elements.size() < 2) return {};
        return {reply.elements[0].integer == 1, reply.elements[1].integer};
    }
    std::string owner() {
        if (GetParam() == KeyType::string) return redis_.get("job").value_or("");
        const auto fields = redis_.hgetall("job");
        return fields.size() == 1 ? fields.begin()->first : "";
    }
    std::string count() { return redis_.hgetall("job").begin()->second; }
    /// The server's clock, in microseconds.
    long long now() {
        const RawReply time = redis_.command({"TIME"});
        return std::stoll(time.elements.at(0).text) * 1'000'000 +
               std::stoll(time.elements.at(1).text);
    }
    RawReply dump() { return redis_.command({"DUMP", "job"}); }

    /// Nothing but the lock, and nothing of it.
    bool absent() { return redis_.keys().empty(); }

    RedisServer server_;
    RawRedis redis_{server_};
    const LockScripts& scripts_ = GetParam() == KeyType::string ? lua::on_string() : lua::on_hash();
};

INSTANTIATE_TEST_SUITE_P(On, Scripts, ::testing::Values(KeyType::string, KeyType::hash),
                         [](const auto& key_type) -> std::string {
                             return key_type.param == KeyType::string ? "string" : "hash";
                         });

TEST_P(Scripts, are_known_to_the_server_by_the_sha_that_is_computed_here) {
    for (const auto& [name, script] : scripts_of(scripts_)) {
        const RawReply reply = redis_.command({"SCRIPT", "LOAD", script->source()});
        EXPECT_EQ(reply.text, script->sha()) << name;
    }
}

TEST_P(Scripts, acquire_takes_a_free_key) {
    EXPECT_EQ(acquire("me", "5000"), std::make_pair(true, 5000LL));
    EXPECT_EQ(owner(), "me");
    EXPECT_GT(redis_.pttl("job"), 3000);
    EXPECT_LE(redis_.pttl("job"), 5000);
    EXPECT_EQ(redis_.type("job"), GetParam() == KeyType::string ? "string" : "hash");
}

TEST_P(Scripts, acquire_run_again_is_ours_with_a_full_lease_and_never_shorter) {
    acquire("me", "5000");
    EXPECT_EQ(acquire("me", "60000"), std::make_pair(true, 60000LL));
    EXPECT_GT(redis_.pttl("job"), 50'000);
    const auto [ours, ttl] = acquire("me", "1000");
    EXPECT_TRUE(ours);
    EXPECT_GT(ttl, 50'000);
    EXPECT_GT(redis_.pttl("job"), 50'000);
    EXPECT_EQ(owner(), "me");
}

TEST_P(Scripts, acquire_leaves_anothers_alone_and_tells_its_ttl) {
    acquire("other", "5000");
    const RawReply before = dump();
    for (int i = 0; i < 2; ++i) {
        const auto [ours, ttl] = acquire("me", "60000");
        EXPECT_FALSE(ours);
        EXPECT_GT(ttl, 0);
        EXPECT_LE(ttl, 5000);
    }
    EXPECT_EQ(dump().text, before.text);
    EXPECT_LE(redis_.pttl("job"), 5000);
    redis_.command({"PERSIST", "job"});
    EXPECT_EQ(acquire("me", "60000"), std::make_pair(false, -1LL));
    EXPECT_EQ(redis_.pttl("job"), -1);
}

TEST_P(Scripts, acquire_run_late_takes_a_free_key_until_its_lease_ends) {
    acquire("me", "5000");
    number(scripts_.release, {"me"});
    EXPECT_TRUE(acquire("me", "100").first);
    EXPECT_TRUE(eventually([&] { return absent(); }));
}

TEST_P(Scripts, acquire_beyond_its_time_changes_nothing) {
    const auto late = [this] {
        return run(scripts_.acquire, {"me", "60000", "0", "0", "-", std::to_string(now() - 1)});
    };
    EXPECT_TRUE(late().text.starts_with("LATE " + std::to_string(now() / 10'000'000)))
        << late().text;
    EXPECT_TRUE(absent());
    acquire("me", "5000");
    EXPECT_TRUE(late().is_error());
    EXPECT_LE(redis_.pttl("job"), 5000);
}

TEST_P(Scripts, acquire_in_time_tells_the_time) {
    const long long before = now();
    const RawReply reply =
        run(scripts_.acquire, {"me", "5000", "0", "0", "-", std::to_string(before + 60'000'000)});
    ASSERT_EQ(reply.elements.size(), 5U) << reply.text;
    EXPECT_GE(reply.elements[3].integer, before);
    EXPECT_LE(reply.elements[3].integer, now());
    EXPECT_EQ(owner(), "me");
}

TEST_P(Scripts, that_are_run_again_write_also_what_is_there) {
    // Replicas are asked whether they have what the same connection has written last.
    const StillClock clock;
    RedisServer server{{.env = clock.env()}};
    RawRedis redis{server};
    const auto writes = [&](const Script& script, const std::vector<std::string>& arguments) {
        const auto changes = [&redis] {
            const std::string info = redis.command({"INFO", "persistence"}).text;
            const std::string name = "rdb_changes_since_last_save:";
            return std::stoll(info.substr(info.find(name) + name.size()));
        };
        const long long before = changes();
        RawRedis::Command command{"EVAL", std::string{script.source()}, "1", "job"};
        command.insert(command.end(), arguments.begin(), arguments.end());
        EXPECT_EQ(redis.command(command).elements.at(0).integer, 1);
        return changes() > before;
    };
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(writes(scripts_.acquire, {"me", "5000"})) << i;
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(writes(scripts_.move, {"me", "5000", "next"})) << i;
}

TEST_P(Scripts, move_beyond_its_time_changes_nothing) {
    acquire("me", "5000");
    const RawReply reply = run(scripts_.move, {"me", "60000", "next", std::to_string(now() - 1)});
    EXPECT_TRUE(reply.text.starts_with("LATE ")) << reply.text;
    EXPECT_EQ(owner(), "me");
    EXPECT_LE(redis_.pttl("job"), 5000);
    const RawReply moved =
        run(scripts_.move, {"me", "60000", "next", std::to_string(now() + 60'000'000)});
    ASSERT_EQ(moved.elements.size(), 3U) << moved.text;
    EXPECT_EQ(moved.elements[0].integer, 1);
    EXPECT_EQ(owner(), "next");
}

TEST_P(Scripts, extend_lengthens_and_never_shortens) {
    acquire("me", "5000");
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(number(scripts_.extend, {"me", "60000"}), 1);
        EXPECT_GT(redis_.pttl("job"), 50'000);
    }
    EXPECT_EQ(number(scripts_.extend, {"me", "1000"}), 1);
    EXPECT_GT(redis_.pttl("job"), 50'000);
    EXPECT_EQ(number(scripts_.extend, {"me", "0"}), 1);
    EXPECT_GT(redis_.pttl("job"), 50'000);
    EXPECT_EQ(owner(), "me");
}

TEST_P(Scripts, extend_run_late_does_nothing) {
    EXPECT_EQ(number(scripts_.extend, {"me", "60000"}), 0);
    EXPECT_TRUE(absent());
    acquire("other", "5000");
    EXPECT_EQ(number(scripts_.extend, {"me", "60000"}), 0);
    EXPECT_LE(redis_.pttl("job"), 5000);
    EXPECT_EQ(owner(), "other");
}

TEST_P(Scripts, release_frees_once) {
    acquire("me", "5000");
    EXPECT_EQ(number(scripts_.release, {"me"}), 1);
    EXPECT_TRUE(absent());
    EXPECT_EQ(number(scripts_.release, {"me"}), 0);
    EXPECT_TRUE(absent());
}

TEST_P(Scripts, release_run_late_leaves_the_next_owners_alone) {
    acquire("other", "5000");
    const RawReply before = dump();
    EXPECT_EQ(number(scripts_.release, {"me"}), 0);
    EXPECT_EQ(dump().text, before.text);
    EXPECT_GT(redis_.pttl("job"), 0);
}

TEST_P(Scripts, inspect_reads_only) {
    RawReply reply = run(scripts_.inspect, {""});
    ASSERT_EQ(reply.elements.size(), 4U);
    EXPECT_EQ(reply.elements[0].text, "");
    EXPECT_EQ(reply.elements[1].integer, 0);
    EXPECT_EQ(reply.elements[2].integer, -2);
    EXPECT_TRUE(absent());

    acquire("me", "5000");
    const RawReply before = dump();
    for (int i = 0; i < 2; ++i) {
        reply = run(scripts_.inspect, {""});
        ASSERT_EQ(reply.elements.size(), 4U);
        EXPECT_EQ(reply.elements[0].text, "me");
        EXPECT_EQ(reply.elements[1].integer, 1);
        EXPECT_GT(reply.elements[2].integer, 0);
    }
    EXPECT_EQ(dump().text, before.text);
}

TEST_P(Scripts, force_removes_the_owner_that_was_seen_and_no_other) {
    EXPECT_EQ(number(scripts_.force_unlock, {"me"}), 0);
    acquire("me", "5000");
    EXPECT_EQ(number(scripts_.force_unlock, {"me"}), 1);
    EXPECT_TRUE(absent());
    acquire("other", "5000");
    EXPECT_EQ(number(scripts_.force_unlock, {"me"}), 0);
    EXPECT_EQ(owner(), "other");
}

TEST_P(Scripts, nest_sets_the_count_however_often_it_runs) {
    if (GetParam() == KeyType::string) return;  // a string doesn't nest
    acquire("me", "5000");
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(number(scripts_.nest, {"me", "2", "60000"}), 1);
        EXPECT_EQ(count(), "2");
        EXPECT_GT(redis_.pttl("job"), 50'000);
    }
    EXPECT_EQ(number(scripts_.nest, {"me", "1", "0"}), 1);
    EXPECT_EQ(count(), "1");
    EXPECT_GT(redis_.pttl("job"), 50'000) << "a lease of 0 leaves the ttl alone";
    EXPECT_EQ(number(scripts_.nest, {"me", "3", "1000"}), 1);
    EXPECT_GT(redis_.pttl("job"), 50'000) << "a shorter one too";
    EXPECT_EQ(number(scripts_.release, {"me"}), 1) << "whatever its count";
    EXPECT_TRUE(absent());
}

TEST_P(Scripts, lease_of_zero_ends_no_lock_whose_key_never_expires) {
    acquire("me", "5000");
    redis_.command({"PERSIST", "job"});
    EXPECT_EQ(number(scripts_.extend, {"me", "0"}), 1);
    EXPECT_EQ(owner(), "me");
    if (GetParam() == KeyType::hash) {
        EXPECT_EQ(number(scripts_.nest, {"me", "1", "0"}), 1);
    }
    EXPECT_EQ(owner(), "me");
    EXPECT_EQ(redis_.pttl("job"), -1);
}

TEST_P(Scripts, nest_run_late_writes_nothing) {
    if (GetParam() == KeyType::string) return;
    EXPECT_EQ(number(scripts_.nest, {"me", "2", "60000"}), 0);
    EXPECT_TRUE(absent());
    acquire("other", "5000");
    const RawReply before = dump();
    EXPECT_EQ(number(scripts_.nest, {"me", "2", "60000"}), 0);
    EXPECT_EQ(dump().text, before.text);
    EXPECT_LE(redis_.pttl("job"), 5000);
}

TEST_P(Scripts, on_a_key_of_another_type_say_wrongtype_and_change_nothing) {
    const std::vector<RawRedis::Command> others{{"RPUSH", "job", "data"},
                                                {"SADD", "job", "data"},
                                                GetParam() == KeyType::string
                                                    ? RawRedis::Command{"HSET", "job", "data", "1"}
                                                    : RawRedis::Command{"SET", "job", "data"}};
    for (const RawRedis::Command& other : others) {
        redis_.del("job");
        redis_.command(other);
        const RawReply before = dump();
        for (const auto& [name, script] : scripts_of(scripts_)) {
            const std::vector<std::string> arguments =
                name == "nest" ? std::vector<std::string>{"data", "2", "60000"}
                               : std::vector<std::string>{"data", "60000"};
            const RawReply reply = run(*script, arguments);
            EXPECT_TRUE(reply.is_error()) << name;
            EXPECT_NE(reply.text.find("WRONGTYPE"), std::string::npos) << name << reply.text;
            EXPECT_EQ(dump().text, before.text) << name;
            EXPECT_EQ(redis_.pttl("job"), -1) << name;
        }
    }
}

using ScriptCache = LockTest;

TEST_F(ScriptCache, flushed_between_calls_is_unnoticed) {
    Lock<Reentrant> lock{client_, "job"};
    Lock<Reentrant> elsewhere{other_client_, "job"};
    const auto flush = [this] { redis_.script_flush(); };
    for (int round = 0; round < 2; ++round) {
        flush();
        lock.lock();
        flush();
        EXPECT_FALSE(elsewhere.try_lock());
        flush();
        EXPECT_TRUE(lock.try_lock());
        flush();
        EXPECT_TRUE(lock.extend(40s));
        flush();
        EXPECT_EQ(elsewhere.inspect().value().hold_count, 2U);
        flush();
        EXPECT_EQ(lock.release().value(), Release::still_held);
        flush();
        EXPECT_EQ(lock.release().value(), Release::released);
        flush();
        EXPECT_EQ(lock.force_unlock().value(), Forced::absent);
    }
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_F(ScriptCache, flushed_again_and_again_does_not_disturb_renewal) {
    Lock<Watchdog<Simple>> simple{client_, "simple", {.lease = 6s}};
    Lock<Watchdog<Reentrant>> reentrant{client_, "reentrant", {.lease = 6s}};
    Held one = simple.acquire().value();
    Held two = reentrant.acquire().value();
    EXPECT_TRUE(stays(
        [&] {
            redis_.script_flush();
            return one.held() && two.held();
        },
        8s));
    EXPECT_EQ(one.release().value(), Release::released);
    EXPECT_EQ(two.release().value(), Release::released);
}

TEST_F(ScriptCache, is_used) {
    Lock<Reentrant> lock{client_, "job"};
    for (int i = 0; i < 10; ++i) lock.acquire().value().release().value();
    EXPECT_EQ(redis_.command_calls("eval"), 2) << "acquire and release, sent whole once";
    EXPECT_EQ(redis_.command_calls("evalsha"), 20);
}

}  // namespace
}  // namespace redlatch::test
