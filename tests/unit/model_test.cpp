// What the model of a redis-server does beyond answering as a real one: its clock, what it refuses
// to a script, who is told what.

#include "support/model_redis.hpp"
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/scripts.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using Value = ModelRedis::Value;
using Words = std::vector<std::string>;

class Model : public ::testing::Test {
protected:
    Value run(const Words& words) { return model_.command(words); }
    Value eval(std::string_view source, const Words& keys = {}, const Words& arguments = {}) {
        return model_.eval(source, keys, arguments);
    }

    ModelRedis model_{1'700'000'000'000'001};
};

TEST_F(Model, tells_its_own_time) {
    EXPECT_EQ(run({"TIME"}), Value::array({Value::of("1700000000"), Value::of("1")}));
    model_.advance(2'500'000us);
    EXPECT_EQ(model_.now_us(), 1'700'000'002'500'001);
    EXPECT_EQ(eval("local t = redis.call('TIME') return t[1] * 1000000 + t[2]"),
              Value::of(1'700'000'002'500'001));
}

TEST_F(Model, lets_a_key_live_through_its_last_millisecond) {
    run({"SET", "a", "1", "PX", "100"});
    EXPECT_EQ(run({"PTTL", "a"}), Value::of(100));
    model_.advance(100ms);
    EXPECT_EQ(run({"PTTL", "a"}), Value::of(0));
    EXPECT_EQ(run({"GET", "a"}), Value::of("1"));
    model_.advance(1ms);
    EXPECT_EQ(run({"PTTL", "a"}), Value::of(-2));
    EXPECT_EQ(run({"GET", "a"}), Value{});
    EXPECT_TRUE(model_.keys().empty());
}

TEST_F(Model, lets_its_clock_be_put_back) {
    run({"SET", "a", "1", "PX", "100"});
    model_.advance(-1s);
    EXPECT_EQ(run({"PTTL", "a"}), Value::of(1100));
}

TEST_F(Model, plays_a_lock) {
    const LockScripts& scripts = lua::on_hash();
    const Words key{"job"};
    const Words mine{"me", "1000"};
    const Words theirs{"them", "1000"};
    const auto acquire = [&](const Words& who) { return eval(scripts.acquire.source(), key, who); };
    const Value taken =
        Value::array({Value::of(1), Value::of(1000), Value::of(0), Value::of(0), Value::of(0)});
    EXPECT_EQ(acquire(mine), taken);
    model_.advance(400ms);
    EXPECT_EQ(acquire(theirs), Value::array({Value::of(0), Value::of(600)}));
    model_.advance(601ms);
    EXPECT_EQ(acquire(theirs), taken);
    EXPECT_EQ(eval(scripts.release.source(), key, mine), Value::of(0));
    EXPECT_EQ(eval(scripts.release.source(), key, theirs), Value::of(1));
    EXPECT_TRUE(model_.keys().empty());
}

TEST_F(Model, ends_a_script_that_touches_an_undeclared_key) {
    run({"SET", "b", "1"});
    for (const char* const script :
         {"return redis.call('DEL', 'a', 'b')", "redis.pcall('DEL', 'b') return {1, {2}}",
          "pcall(redis.call, 'DEL', 'b')"}) {
        const Value reply = eval(script, {"a"});
        EXPECT_EQ(reply, Value::error("ERR undeclared key 'b' in del")) << script;
    }
    EXPECT_EQ(eval("return redis.call('DEL', KEYS[2])", {"a", "b"}), Value::of(1));
    model_.set_strict_keys(false);
    EXPECT_EQ(eval("return redis.call('DEL', 'a', 'b')"), Value::of(0));
}

TEST_F(Model, tells_of_messages_when_the_script_is_over) {
    std::vector<std::string> heard;
    model_.on_publish([&](std::string_view channel, std::string_view message) {
        heard.push_back(std::string{channel} + ":" + std::string{message});
        if (message == "one") run({"PUBLISH", "inner", "three"});
    });
    model_.set_subscribers("news", 2);
    EXPECT_EQ(eval("local heard = redis.call('PUBLISH', 'news', 'one') "
                   "redis.call('PUBLISH', 'other', 'two') return heard"),
              Value::of(2));
    EXPECT_EQ(heard, (Words{"news:one", "inner:three", "other:two"}));
}

TEST_F(Model, forgets_its_keys_and_nothing_else) {
    run({"SET", "a", "1"});
    run({"HSET", "b", "f", "1"});
    EXPECT_EQ(model_.keys(), (Words{"a", "b"}));
    model_.set_subscribers("news", 1);
    model_.deny("GET");
    model_.flush();
    EXPECT_TRUE(model_.keys().empty());
    EXPECT_EQ(run({"PUBLISH", "news", ""}), Value::of(1));
    EXPECT_TRUE(run({"GET", "a"}).is_error());
}

TEST_F(Model, knows_scripts_by_their_text_not_their_address) {
    std::string source = "return 1";
    EXPECT_EQ(eval(source), Value::of(1));
    source.back() = '2';
    EXPECT_EQ(eval(source), Value::of(2));
    EXPECT_EQ(eval(std::string_view{source}.substr(0, 6)), Value{});
    source.back() = '}';
    EXPECT_TRUE(eval(source).is_error());
    EXPECT_TRUE(eval(source).is_error());
}

TEST_F(Model, survives_what_scripts_get_wrong) {
    EXPECT_EQ(eval("local t = {} t[1] = t return t").type, Value::Type::array);
    EXPECT_TRUE(eval("local function f() return f() + 1 end return f()").is_error());
    EXPECT_TRUE(eval("error({})").is_error());
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(eval("return redis.call('FOO')").is_error());
    EXPECT_EQ(eval("return 1"), Value::of(1));
}

}  // namespace
}  // namespace redlatch::test
