// The Lua about claims where one command that it uses is forbidden, for each command and each script: nobody is
// beside a writer, nobody has more permits than there are, and no error leaves anything for ever.

#include "queue_tools.hpp"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

constexpr long long all = 1'000'000'000;

enum class Kind { shared, permits };

/// A script that is run by a user, and what it makes of the lock.
struct Step {
    std::string name;
    std::function<RawReply()> run;
    std::string taker = {};  ///< who has a claim where the answer is "yours"
};

class LimitedClaims : public ::testing::TestWithParam<Kind> {
protected:
    static constexpr long long limit = 3;

    void SetUp() override {
        redis_.command({"ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "+@all"});
        limited_.auth("limited", "any");
    }

    bool is_shared() const { return GetParam() == Kind::shared; }
    /// What nothing fits in beside, and what fits in beside its like.
    std::string much() const { return is_shared() ? std::to_string(all) : "3"; }
    static std::string little() { return "1"; }

    /// All commands that the scripts use inside, as their sources say.
    std::set<std::string> all_commands_inside() const {
        std::set<std::string> names;
        for (const Script* script :
             {&scripts_.acquire, &scripts_.extend, &scripts_.release, &scripts_.inspect,
              &scripts_.force_unlock, &scripts_.move, &scripts_.downgrade, &scripts_.set_permits}) {
            names.merge(commands_inside(*script));
        }
        return names;
    }

    RawReply eval(RawRedis& redis, const Script& script, const Tokens& arguments) {
        const std::string& last = is_shared() ? keys_.fence : keys_.permits;
        return test::eval(redis, script, {keys_.lock, keys_.queue, keys_.waiters, last}, arguments);
    }
    RawReply ask(RawRedis& redis, const std::string& token, const std::string& weight,
                 const std::string& stay = "0", const std::string& hears = "1") {
        return eval(redis, scripts_.acquire,
                    {token, "60000", stay, hears, run_id, "0", fenced_ ? "1" : "0", weight,
                     std::to_string(limit)});
    }
    RawReply run(const Script& script, const Tokens& arguments) {
        return eval(limited_, script, arguments);
    }

    /// What somebody does: the holder, one who waits, and one who just comes.
    std::vector<Step> steps() {
        const std::string weight = weight_;
        std::vector<Step> steps{
            {"release",
             [=, this] {
                 return run(scripts_.release, {holder, run_id, weight});
             }},
            {"force",
             [=, this] {
                 return run(scripts_.force_unlock, {holder, run_id, weight});
             }},
            {"extend",
             [=, this] {
                 return run(scripts_.extend, {holder, "90000", "1", weight, "0"});
             }},
            {"move",
             [=, this] {
                 return run(scripts_.move,
                            {holder, "60000", c, "0", fenced_ ? "1" : "0", weight, weight});
             },
             c},
            {"acquire by the holder", [=, this] { return ask(limited_, holder, weight); }, holder},
            {"inspect", [this] { return run(scripts_.inspect, {""}); }},
            {"release by a waiter",
             [=, this] {
                 return run(scripts_.release, {b, run_id, little()});
             }},
            {"release by nobody",
             [=, this] {
                 return run(scripts_.release, {c, run_id, little()});
             }},
        };
        for (const std::string stay : {"30000", "0", "-1"}) {
            for (const std::string& wanted : {little(), much()}) {
                steps.push_back({"acquire " + wanted + ", stay " + stay,
                                 [=, this] { return ask(limited_, c, wanted, stay); }, c});
            }
            steps.push_back({"acquire by a waiter, stay " + stay,
                             [=, this] { return ask(limited_, b, little(), stay); }, b});
        }
        if (is_shared()) {
            steps.push_back({"downgrade", [this] {
                                 return run(scripts_.downgrade, {holder, run_id});
                             }});
        } else {
            for (const std::string number : {"1", "5"}) {
                steps.push_back(
                    {"set to " + number, [=, this] {
                         return run(scripts_.set_permits, {"", run_id, number, "17", "0"});
                     }});
            }
        }
        return steps;
    }

    struct Claims {
        std::map<std::string, long long> weights;
        long long used = 0;
        long long sum = 0;
    };
    Claims claims() {
        Claims claims;
        const auto members = redis_.command({"ZRANGE", keys_.lock, "0", "-1", "WITHSCORES"});
        for (std::size_t i = 0; i + 1 < members.elements.size(); i += 2) {
            const std::string& member = members.elements[i].text;
            const std::size_t space = member.find(' ');
            if (space == member.npos) {
                claims.sum = -static_cast<long long>(std::stod(members.elements[i + 1].text));
                continue;
            }
            const long long weight = std::stoll(member.substr(0, space));
            claims.weights[member.substr(space + 1)] = weight;
            claims.used += weight;
        }
        return claims;
    }

    /// Everything that a script could leave.
    std::set<std::string> traces() {
        std::set<std::string> traces;
        for (const std::string& key : redis_.keys()) traces.insert(key);
        for (const RawReply& waiter : redis_.command({"ZRANGE", keys_.queue, "0", "-1"}).elements) {
            traces.insert("place of " + waiter.text);
        }
        for (const auto& [token, weight] : claims().weights) traces.insert("claim of " + token);
        return traces;
    }

    /// Somebody has a claim, or nobody; of those who wait the first cannot be told just now.
    void set_the_scene(const std::string& held, bool waiting) {
        redis_.flushall();
        weight_ = held.empty() ? little() : held;
        if (waiting) {
            ASSERT_EQ(ask(redis_, c, much()).elements.at(0).integer, 1);
            ask(redis_, a, much(), "30000");
            ask(redis_, b, little(), "30000");
            redis_.del(keys_.lock);
        }
        if (held.empty()) return;
        if (waiting) redis_.command({"RENAME", keys_.queue, "aside"});
        ASSERT_EQ(ask(redis_, holder, held).elements.at(0).integer, 1);
        if (waiting) redis_.command({"RENAME", "aside", keys_.queue});
    }

    void expect_sane(const Step& step, const std::string& command, const RawReply& reply,
                     const std::set<std::string>& before, Listener& ear) {
        const Claims now = claims();
        EXPECT_GE(now.sum, now.used) << "more may come in than fits";
        if (is_shared()) {
            EXPECT_TRUE(now.used < all || now.weights.size() == 1) << "beside a writer";
        } else if (!step.name.starts_with("set to")) {
            EXPECT_LE(now.used, limit);
        }
        auto grant = ear.pending_grant();
        if (grant && grant->is_notice()) grant.reset();
        if (grant) {
            EXPECT_EQ(grant->token, b);
            EXPECT_TRUE(now.weights.contains(b)) << "was told, and has it not";
        }
        const bool taken =
            !step.taker.empty() && reply.elements.size() > 2 && reply.elements[0].integer == 1;
        if (taken) {
            EXPECT_TRUE(now.weights.contains(step.taker)) << "was answered, and has it not";
        }
        const bool ends = step.name.starts_with("release") || step.name.starts_with("force");
        if (ends && reply.type == RawReply::Type::integer && reply.integer == 1) {
            EXPECT_FALSE(now.weights.contains(holder)) << "is said to be released";
        }
        for (const std::string& key : redis_.keys()) EXPECT_GT(redis_.pttl(key), 0) << key;
        if (!reply.is_error()) return;
        std::set<std::string> allowed = before;
        if (command == "PUBSUB") allowed.insert("claim of " + a);  // nobody can be counted
        if (grant) allowed.insert("claim of " + b);
        if (allowed != before) allowed.insert({keys_.lock, keys_.fence});
        for (const std::string& trace : traces()) {
            EXPECT_TRUE(allowed.contains(trace)) << trace << " is left by: " << reply.text;
        }
    }

    const LockScripts& scripts_ = is_shared() ? lua::on_shared_claims() : lua::on_permits();
    RedisServer server_;
    RawRedis redis_{server_};
    RawRedis limited_{server_};
    LockKeys keys_{"job"};
    bool fenced_ = false;
    std::string weight_;  // of the holder's claim
};

INSTANTIATE_TEST_SUITE_P(Of, LimitedClaims, ::testing::Values(Kind::shared, Kind::permits),
                         [](const auto& kind) -> std::string {
                             return kind.param == Kind::shared ? "readers" : "permits";
                         });

TEST_P(LimitedClaims, let_nobody_in_who_does_not_fit_and_leave_nothing_whatever_is_forbidden) {
    Listener ear{server_, b};
    for (const std::string& command : all_commands_inside()) {
        redis_.command({"ACL", "SETUSER", "limited", "+@all"});
        const RawReply done = redis_.command({"ACL", "SETUSER", "limited", "-" + command});
        if (done.is_error()) continue;  // no such command here: then the script does without it
        for (const bool fenced : {false, true}) {
            if (fenced && !is_shared()) continue;
            for (const std::string& held : {std::string{}, little(), much()}) {
                for (const bool waiting : {false, true}) {
                    fenced_ = fenced;
                    weight_ = held.empty() ? little() : held;
                    for (const Step& step : steps()) {
                        SCOPED_TRACE(step.name + " without " + command +
                                     (held.empty() ? ", free" : ", " + held + " held") +
                                     (waiting ? ", waiting" : "") + (fenced ? ", fenced" : ""));
                        set_the_scene(held, waiting);
                        const std::set<std::string> before = traces();
                        const RawReply reply = step.run();
                        expect_sane(step, command, reply, before, ear);
                    }
                }
            }
        }
    }
}

TEST_P(LimitedClaims, stay_with_who_has_them_where_they_cannot_be_passed_on) {
    redis_.command({"ACL", "SETUSER", "limited", "-pexpire"});
    for (const std::string& next : {much(), little()}) {
        if (next != much() && !is_shared()) continue;  // permits stay as many
        set_the_scene(much(), false);
        const RawReply refused = run(scripts_.move, {holder, "60000", c, "0", "0", much(), next});
        EXPECT_TRUE(refused.is_error());
        const std::map<std::string, long long> before{{holder, std::stoll(much())}};
        EXPECT_EQ(claims().weights, before);
        EXPECT_EQ(claims().sum, std::stoll(much()));
        EXPECT_GT(redis_.pttl(keys_.lock), 0);
    }
}

TEST_P(LimitedClaims, stay_a_writers_where_they_cannot_become_a_readers) {
    if (!is_shared()) return;  // permits are no writers
    for (const std::string command : {"zadd", "zrem"}) {
        SCOPED_TRACE(command);
        redis_.command({"ACL", "SETUSER", "limited", "+@all"});
        redis_.command({"ACL", "SETUSER", "limited", "-" + command});
        set_the_scene(much(), false);
        EXPECT_TRUE(run(scripts_.downgrade, {holder, run_id}).is_error());
        const std::map<std::string, long long> before{{holder, all}};
        EXPECT_EQ(claims().weights, before);
        EXPECT_EQ(claims().sum, all);
    }
}

}  // namespace
}  // namespace redlatch::test
