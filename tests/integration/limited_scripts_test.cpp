// The Lua where one thing is forbidden or in the way: each command that a script uses, for each script;
// each companion key as something else than ours.

#include "queue_tools.hpp"

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

/// All commands that the scripts use inside, as their sources say.
std::set<std::string> all_commands_inside() {
    std::set<std::string> names;
    for (const LockScripts* scripts :
         {&lua::on_string(), &lua::on_hash(), &lua::on_hash_for_redisson()}) {
        for (const Script* script :
             {&scripts->acquire, &scripts->extend, &scripts->release, &scripts->inspect,
              &scripts->force_unlock, &scripts->nest, &scripts->move, &scripts->tombstone}) {
            names.merge(commands_inside(*script));
        }
    }
    return names;
}

/// A script that is run by a user, and what it makes of the lock.
struct Step {
    std::string name;
    std::function<RawReply()> run;
    std::string taker = {};  ///< who has the lock where the answer is "yours"
};

class LimitedScripts : public Queue {
protected:
    void SetUp() override {
        redis_.command({"ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "+@all"});
        limited_.auth("limited", "any");
    }

    RawReply eval(const Script& script, const std::vector<std::string>& keys,
                  const std::vector<std::string>& arguments) {
        return test::eval(limited_, script, keys, arguments);
    }
    RawReply ask(const std::string& token, const std::string& stay, const std::string& fenced) {
        return eval(scripts_.acquire, all_keys(), {token, "60000", stay, "1", run_id, "0", fenced});
    }
    RawReply move(const std::string& from, const std::string& to) {
        return eval(scripts_.move, {keys_.lock, keys_.queue, keys_.fence},
                    {from, "60000", to, "0", "1"});
    }
    std::vector<std::string> all_keys() const {
        return {keys_.lock, keys_.queue, keys_.waiters, keys_.fence};
    }

    /// What the holder does, and others about a lock that is held.
    std::vector<Step> steps_on_held() {
        const std::string now_on = std::to_string(now());
        std::vector<Step> steps{
            {"release",
             [this] {
                 return eval(scripts_.release, all_keys(), {holder, run_id});
             }},
            {"tombstone",
             [this] {
                 return eval(scripts_.tombstone, all_keys(), {holder, run_id, "90000"});
             }},
            {"force",
             [this] {
                 return eval(scripts_.force_unlock, all_keys(), {holder, run_id});
             }},
            {"move", [this] { return move(holder, c); }, c},
            {"extend",
             [this] {
                 return eval(scripts_.extend, {keys_.lock, keys_.fence}, {holder, "90000", "1"});
             }},
            {"acquire by the holder", [this] { return ask(holder, "0", "1"); }, holder},
            {"inspect", [this] { return eval(scripts_.inspect, all_keys(), {""}); }},
            {"release by a waiter",
             [this] {
                 return eval(scripts_.release, all_keys(), {b, run_id});
             }},
            {"release by nobody",
             [this] {
                 return eval(scripts_.release, all_keys(), {c, run_id});
             }},
        };
        for (const std::string stay : {"30000", "0", "-1"}) {
            steps.push_back({"acquire, stay " + stay, [=, this] { return ask(c, stay, "0"); }, c});
            steps.push_back(
                {"acquire by a waiter, stay " + stay, [=, this] { return ask(b, stay, "1"); }, b});
        }
        if (GetParam() == KeyType::hash) {
            steps.push_back(
                {"nest", [this] {
                     return eval(scripts_.nest, {keys_.lock, keys_.fence}, {holder, "2", "60000"});
                 }});
            steps.push_back(
                {"release for Redisson", [this] {
                     return eval(lua::on_hash_for_redisson().release, all_keys(), {holder, run_id});
                 }});
            steps.push_back({"force for Redisson", [this] {
                                 return eval(lua::on_hash_for_redisson().force_unlock, all_keys(),
                                             {holder, run_id});
                             }});
        }
        return steps;
    }

    /// What others do about a lock that is free.
    std::vector<Step> steps_on_free() {
        std::vector<Step> steps{
            {"release by a waiter",
             [this] {
                 return eval(scripts_.release, all_keys(), {b, run_id});
             }},
            {"release by nobody",
             [this] {
                 return eval(scripts_.release, all_keys(), {c, run_id});
             }},
        };
        for (const std::string stay : {"30000", "0", "-1"}) {
            for (const std::string fenced : {"0", "1"}) {
                steps.push_back({"acquire, stay " + stay + (fenced == "1" ? ", fenced" : ""),
                                 [=, this] { return ask(c, stay, fenced); }, c});
            }
            steps.push_back(
                {"acquire by a waiter, stay " + stay, [=, this] { return ask(b, stay, "1"); }, b});
        }
        return steps;
    }

    /// Everything that a script could leave: keys, tokens in the lock and in the queue, terms.
    std::set<std::string> traces() {
        std::set<std::string> all;
        for (const std::string& key : redis_.keys()) all.insert(key);
        for (const std::string& token : queue()) all.insert("place of " + token);
        for (const auto& [token, terms] : redis_.hgetall(keys_.waiters)) {
            all.insert("terms of " + token);
        }
        if (!redis_.exists(keys_.lock)) return all;
        if (key_type() == KeyType::string) {
            all.insert("lock of " + *redis_.get(keys_.lock));
        } else {
            for (const auto& [token, count] : redis_.hgetall(keys_.lock)) {
                all.insert("lock of " + token);
            }
        }
        return all;
    }

    /// Somebody holds the lock. In front waits one who cannot be told just now, and behind one who
    /// can, if any waits at all.
    void set_the_scene(bool waiting, KeyType waiter, bool fenced) {
        redis_.flushall();
        if (waiting) {
            hold_by_hand(waiter);
            acquire({.token = a, .hears = true, .fenced = fenced}, waiter);
            acquire({.token = b, .hears = true, .fenced = fenced}, waiter);
        }
        hold_by_hand(GetParam());
        ASSERT_TRUE(acquire({.token = holder, .fenced = true}).ours);
    }

    /// Never two who believe, and nothing that stays for ever.
    void expect_sane(const Step& step, const std::string& command, const RawReply& reply,
                     Listener& ear) {
        auto grant = ear.pending_grant();
        if (grant && grant->is_notice()) grant.reset();
        const std::string now_owner = redis_.exists(keys_.lock) ? owner() : "";
        const bool taken =
            !step.taker.empty() && reply.elements.size() > 2 && reply.elements[0].integer == 1;
        if (grant) {
            EXPECT_EQ(grant->token, b);
            EXPECT_EQ(now_owner, b) << "was told, and has it not";
            EXPECT_FALSE(reply.is_error()) << reply.text;
        }
        if (taken) {
            EXPECT_EQ(now_owner, step.taker) << "was answered, and has it not";
        }
        if (grant && step.taker != b) {
            EXPECT_FALSE(taken);
        }
        const std::string uncounted = command == "PUBSUB" ? a : "";
        const std::set<std::string> sane{"",         holder,    b,
                                         step.taker, uncounted, holder + ":min_hold"};
        EXPECT_TRUE(sane.contains(now_owner)) << now_owner;
        const bool ends = step.name.starts_with("release") || step.name.starts_with("force") ||
                          step.name == "tombstone";
        if (ends && reply.integer == 1) {
            EXPECT_NE(now_owner, holder) << "is said to be released";
        }
        for (const std::string& key : redis_.keys()) EXPECT_GT(redis_.pttl(key), 0) << key;
        EXPECT_FALSE(ear.pending_grant());
    }

    /// What ends in an error leaves nothing that was not there before.
    void expect_no_trace_of_an_error(const RawReply& reply, const std::set<std::string>& before) {
        if (!reply.is_error()) return;
        for (const std::string& trace : traces()) {
            EXPECT_TRUE(before.contains(trace)) << trace << " is left by: " << reply.text;
        }
    }

    RawRedis limited_{server_};
};

INSTANTIATE_TEST_SUITE_P(On, LimitedScripts, ::testing::Values(KeyType::string, KeyType::hash),
                         [](const auto& key_type) -> std::string {
                             return key_type.param == KeyType::string ? "string" : "hash";
                         });

TEST_P(LimitedScripts, make_no_two_owners_and_leave_no_key_for_ever_whatever_command_is_forbidden) {
    Listener ear{server_, b};
    for (const std::string& command : all_commands_inside()) {
        redis_.command({"ACL", "SETUSER", "limited", "+@all"});
        const RawReply done = redis_.command({"ACL", "SETUSER", "limited", "-" + command});
        if (done.is_error()) continue;  // no such command here: then the script does without it
        for (const bool free : {false, true}) {
            for (const Step& step : free ? steps_on_free() : steps_on_held()) {
                for (const bool waiting : {false, true}) {
                    for (const KeyType waiter : {KeyType::string, KeyType::hash}) {
                        for (const bool fenced : {false, true}) {
                            SCOPED_TRACE(step.name + " without " + command +
                                         (free ? ", free" : "") + (waiting ? ", waiting" : "") +
                                         (waiter == KeyType::string ? " s" : " h") +
                                         (fenced ? ", fenced" : ""));
                            if (!waiting && waiter == KeyType::hash) continue;
                            set_the_scene(waiting, waiter, fenced);
                            if (free) redis_.del(keys_.lock);
                            if (fenced) redis_.del(keys_.fence);  // the last one's is forgotten
                            const std::set<std::string> before = traces();
                            const RawReply reply = step.run();
                            expect_sane(step, command, reply, ear);
                            expect_no_trace_of_an_error(reply, before);
                        }
                    }
                }
            }
        }
    }
}

TEST_P(LimitedScripts, tell_no_place_that_they_cannot_see) {
    redis_.command({"ACL", "SETUSER", "limited", "-zrange"});
    set_the_scene(true, GetParam(), false);
    EXPECT_TRUE(ask(b, "30000", "0").is_error());
    expect_queue({a, b});
}

TEST_P(LimitedScripts, give_nobody_a_lock_whose_fencing_token_is_refused) {
    if (redis_server_version() < redis_7) GTEST_SKIP() << "an ACL has no selectors";
    const RawReply done =
        redis_.command({"ACL", "SETUSER", "limited", "resetkeys", "~" + keys_.lock,
                        "~" + keys_.queue, "~" + keys_.waiters, "(+eval ~*)"});
    ASSERT_FALSE(done.is_error()) << done.text;
    const RawReply refused = ask(c, "0", "1");
    EXPECT_TRUE(refused.is_error());
    EXPECT_EQ(refused.text.find("WRONGTYPE"), std::string::npos) << refused.text;
    EXPECT_TRUE(redis_.keys().empty());
    for (const KeyType waiter : {KeyType::string, KeyType::hash}) {
        SCOPED_TRACE("waits for " + to_string(waiter));
        hold_by_hand(waiter);
        acquire({.token = a, .fenced = true}, waiter);
        hold_by_hand(GetParam());
        EXPECT_EQ(eval(scripts_.release, all_keys(), {holder, run_id}).integer, 1);
        EXPECT_TRUE(redis_.keys().empty());
    }
}

// ---- A companion key that is somebody else's data

/// One companion as something else than ours, with the others as they are when two wait.
class OccupiedCompanion : public LimitedScripts {
protected:
    void occupy(const std::string& key, const RawRedis::Command& write) {
        set_the_scene(true, GetParam(), true);
        redis_.del(key);
        EXPECT_FALSE(redis_.command(write).is_error());
        key_ = key;
        dump_ = redis_.command({"DUMP", key}).text;
    }
    bool untouched() {
        return redis_.command({"DUMP", key_}).text == dump_ && redis_.pttl(key_) == -1;
    }

    /// For each way in which the queue, or the waiters' terms, can be something else.
    template <class Test>
    void for_each_occupant(Test test) {
        for (const std::string& key : {keys_.queue, keys_.waiters}) {
            for (const RawRedis::Command& write : std::vector<RawRedis::Command>{
                     {"SET", key, "data"},
                     {"RPUSH", key, "data"},
                     {"SADD", key, "data"},
                     key == keys_.queue ? RawRedis::Command{"HSET", key, "data", "1"}
                                        : RawRedis::Command{"ZADD", key, "1", "data"},
                     {"XADD", key, "*", "data", "1"}}) {
                SCOPED_TRACE(write[0] + " " + key);
                occupy(key, write);
                test();
                EXPECT_TRUE(untouched());
            }
        }
    }

    std::string key_;
    std::string dump_;
};

INSTANTIATE_TEST_SUITE_P(On, OccupiedCompanion, ::testing::Values(KeyType::string, KeyType::hash),
                         [](const auto& key_type) -> std::string {
                             return key_type.param == KeyType::string ? "string" : "hash";
                         });

TEST_P(OccupiedCompanion, does_not_keep_a_lock_from_being_released) {
    for_each_occupant([this] {
        EXPECT_EQ(release(c), 0) << "it does not have it";
        EXPECT_EQ(owner(), holder);
        EXPECT_EQ(release(holder), 1);
        expect_free();
        EXPECT_EQ(release(holder), 0);
    });
    for_each_occupant([this] {
        EXPECT_EQ(force(), 1);
        expect_free();
    });
    if (GetParam() == KeyType::string) return;
    for_each_occupant([this] {
        EXPECT_EQ(number(lua::on_hash_for_redisson().release, {holder, run_id}), 1);
        expect_free();
    });
}

TEST_P(OccupiedCompanion, does_not_disturb_who_has_the_lock) {
    for_each_occupant([this] {
        EXPECT_TRUE(acquire({.token = holder}).ours);
        EXPECT_EQ(eval(scripts_.extend, {keys_.lock, keys_.fence}, {holder, "90000"}).integer, 1);
        EXPECT_GT(redis_.pttl(keys_.lock), 80'000);
        const RawReply info = run(scripts_.inspect, {""});
        ASSERT_EQ(info.elements.size(), 4U) << info.text;
        EXPECT_EQ(info.elements[0].text, holder);
        EXPECT_EQ(info.elements[3].integer, key_ == keys_.queue ? 0 : 2);
        EXPECT_EQ(move(holder, c).elements.at(0).integer, 1);
        EXPECT_EQ(owner(), c);
    });
}

TEST_P(OccupiedCompanion, is_named_to_who_wants_a_place) {
    for_each_occupant([this] {
        const auto before = redis_.keys();
        const RawReply refused = ask(c, "30000", "0");
        EXPECT_TRUE(refused.is_error());
        EXPECT_TRUE(refused.text.starts_with("WRONGTYPE ")) << refused.text;
        EXPECT_NE(refused.text.find(key_), std::string::npos) << refused.text;
        EXPECT_EQ(owner(), holder);
        EXPECT_EQ(redis_.keys(), before);
    });
}

TEST_P(OccupiedCompanion, is_named_to_who_asks_for_a_free_lock_that_others_wait_for) {
    for (const std::string stay : {"30000", "0", "-1"}) {
        for_each_occupant([&] {
            redis_.del(keys_.lock);
            const auto before = redis_.keys();
            const RawReply refused = ask(c, stay, "0");
            EXPECT_TRUE(refused.text.starts_with("WRONGTYPE ")) << refused.text;
            EXPECT_NE(refused.text.find(key_), std::string::npos) << refused.text;
            EXPECT_EQ(redis_.keys(), before);
        });
    }
}

TEST_P(OccupiedCompanion, is_named_to_the_first_who_waits) {
    for_each_occupant([this] {
        for (const std::string& other : {keys_.queue, keys_.waiters}) {
            if (other != key_) redis_.del(other);
        }
        const RawReply refused = ask(c, "30000", "0");
        EXPECT_NE(refused.text.find(key_), std::string::npos) << refused.text;
        EXPECT_EQ(redis_.keys().size(), 3U) << "the lock, its fence, and what is in the way";
        EXPECT_EQ(release(holder), 1);
        expect_free();
        if (key_ == keys_.queue) {
            EXPECT_NE(ask(c, "0", "0").text.find(key_), std::string::npos);
        } else {
            EXPECT_EQ(ask(c, "0", "0").elements.at(0).integer, 1) << "nobody has to wait";
        }
    });
}

TEST_P(OccupiedCompanion, that_counts_the_fences_is_overwritten) {
    for (const RawRedis::Command& write :
         std::vector<RawRedis::Command>{{"RPUSH", keys_.fence, "data"},
                                        {"SADD", keys_.fence, "data"},
                                        {"HSET", keys_.fence, "data", "1"},
                                        {"ZADD", keys_.fence, "1", "data"}}) {
        SCOPED_TRACE(write[0]);
        for (const bool free : {false, true}) {
            set_the_scene(true, GetParam(), true);
            redis_.del(keys_.fence);
            redis_.command(write);
            if (GetParam() == KeyType::hash) {
                EXPECT_EQ(
                    eval(scripts_.nest, {keys_.lock, keys_.fence}, {holder, "2", "60000"}).integer,
                    1);
            }
            EXPECT_EQ(eval(scripts_.extend, {keys_.lock, keys_.fence}, {holder, "60000"}).integer,
                      1);
            Listener ear{server_, b};
            if (free) {
                redis_.del(keys_.lock);
                EXPECT_EQ(ask(c, "0", "0").elements.at(0).integer, 0);
            } else {
                EXPECT_EQ(release(holder), 1);
            }
            const auto grant = ear.next_grant();
            ASSERT_TRUE(grant);
            EXPECT_EQ(owner(), b);
            EXPECT_EQ(redis_.get(keys_.fence), std::to_string(grant->fence));
            EXPECT_GT(redis_.pttl(keys_.fence), 0);
        }
    }
}

}  // namespace
}  // namespace redlatch::test
