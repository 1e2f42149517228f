// The queue of a lock with claims where very many wait, command by command, on a real server.

#include "queue_tools.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace redlatch::test {
namespace {

/// A semaphore whose permits are all taken, and for which the operations of one client wait.
class CrowdAtPermits : public ::testing::Test {
protected:
    static constexpr int crowd = 400;  // one command lets in some 300

    CrowdAtPermits() {
        EXPECT_EQ(acquire(holder, crowd).elements.at(0).integer, 1);
        for (int i = 0; i < crowd; ++i) {
            EXPECT_EQ(acquire(waiter(i), 1).elements.at(0).integer, 0);
        }
    }

    static std::string waiter(int i) { return (is_dead(i) ? b : a) + ":" + std::to_string(i); }

    /// Their process has died, and the server has not noticed yet that nobody listens.
    static bool is_dead(int i) { return i >= first_dead && i < first_dead + dead; }
    static constexpr int first_dead = 303;
    static constexpr int dead = 15;

    RawReply acquire(const std::string& token, int weight) {
        return run(scripts_.acquire, {token, "60000", "30000", "1", run_id, "0", "0",
                                      std::to_string(weight), std::to_string(crowd)});
    }

    /// As somebody sets them.
    void set_permits(int number) {
        const long long issued = setting(number, 0);
        EXPECT_EQ(setting(number, issued), 1);
    }

    long long left() { return redis_.command({"ZCARD", keys_.queue}).integer; }

    RedisServer server_;
    RawRedis redis_{server_};
    const LockKeys keys_{"job"};
    Listener listener_{server_, a};

private:
    RawReply run(const Script& script, const std::vector<std::string>& arguments) {
        return eval(redis_, script, {keys_.lock, keys_.queue, keys_.waiters, keys_.permits},
                    arguments);
    }
    long long setting(int number, long long issued) {
        return run(scripts_.set_permits,
                   {"", run_id, std::to_string(number), std::to_string(issued), "0"})
            .integer;
    }

    const LockScripts& scripts_ = lua::on_permits();
};

TEST_F(CrowdAtPermits, is_told_to_ask_where_one_command_does_not_let_in_all) {
    set_permits(3 * crowd);
    std::vector<Grant> all = listener_.pending_grants();
    const long long behind = left();
    const auto let_in = static_cast<std::size_t>(crowd - behind);
    ASSERT_GT(behind, dead + 8) << "else the crowd is too small";
    ASSERT_LE(let_in, static_cast<std::size_t>(first_dead)) << "else none of the next is dead";
    ASSERT_EQ(all.size(), let_in + 8) << "eight are told";
    int next = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        while (is_dead(next)) ++next;
        EXPECT_EQ(all[i].token, waiter(next++));
        EXPECT_EQ(all[i].is_notice(), i >= let_in) << i;
        EXPECT_EQ(all[i].key, keys_.lock);
    }
    EXPECT_EQ(acquire(all[let_in].token, 1).elements.at(0).integer, 1);
    EXPECT_EQ(left(), dead) << "who asks lets in those behind it";
    for (const Grant& grant : listener_.pending_grants())
        EXPECT_FALSE(grant.is_notice()) << grant.token;
}

TEST_F(CrowdAtPermits, is_not_looked_at_while_there_are_none) {
    set_permits(0);
    const long long before = redis_.command_calls("hget");
    EXPECT_EQ(acquire(waiter(crowd), 1).elements.at(0).integer, 0);
    EXPECT_EQ(acquire(waiter(crowd - 1), 1).elements.at(0).integer, 0);
    EXPECT_LE(redis_.command_calls("hget") - before, 8);
    EXPECT_EQ(left(), crowd + 1);
    EXPECT_TRUE(listener_.pending_grants().empty());
    set_permits(2 * crowd);
    EXPECT_FALSE(listener_.pending_grants().empty()) << "they wait in their order";
}

enum class Kind { shared, permits };

/// A lock that somebody has, and for which two wait, at a server that becomes full.
class ClaimsOnFullServer : public ::testing::TestWithParam<Kind> {
protected:
    ClaimsOnFullServer() {
        EXPECT_EQ(ask(holder).elements.at(0).integer, 1);
        for (const std::string& token : {a, b}) EXPECT_EQ(ask(token).elements.at(0).integer, 0);
    }

    bool is_shared() const { return GetParam() == Kind::shared; }
    /// What nothing fits in beside.
    std::string much() const { return is_shared() ? "1000000000" : "3"; }

    RawReply run(const Script& script, const Tokens& arguments) {
        const std::string& last = is_shared() ? keys_.fence : keys_.permits;
        return test::eval(redis_, script, {keys_.lock, keys_.queue, keys_.waiters, last},
                          arguments);
    }
    RawReply ask(const std::string& token) {
        return run(scripts_.acquire, {token, "60000", "30000", "0", run_id, "0", "0", much(), "3"});
    }
    /// Nobody has heard of it for too long.
    void kill(const std::string& waiter) {
        const std::string kind = is_shared() ? "shared" : "permits";
        redis_.command({"HSET", keys_.waiters, waiter, kind + " 60000 1 0 0 " + much() + " 3"});
    }
    void fill() { redis_.command({"CONFIG", "SET", "maxmemory", "1"}); }

    bool has_claim(const std::string& token) {
        return !redis_.command({"ZSCORE", keys_.lock, much() + " " + token}).is_nil();
    }
    Tokens queue() {
        Tokens tokens;
        for (const RawReply& token : redis_.command({"ZRANGE", keys_.queue, "0", "-1"}).elements) {
            tokens.push_back(token.text);
        }
        return tokens;
    }

    const LockScripts& scripts_ = is_shared() ? lua::on_shared_claims() : lua::on_permits();
    RedisServer server_;
    RawRedis redis_{server_};
    const LockKeys keys_{"job"};
};

INSTANTIATE_TEST_SUITE_P(Of, ClaimsOnFullServer, ::testing::Values(Kind::shared, Kind::permits),
                         [](const auto& kind) -> std::string {
                             return kind.param == Kind::shared ? "writers" : "permits";
                         });

TEST_P(ClaimsOnFullServer, keep_who_asks_again_alive) {
    kill(a);
    kill(b);
    fill();
    const RawReply refused = ask(b);
    ASSERT_EQ(refused.elements.size(), 6U) << refused.text;
    EXPECT_EQ(refused.elements[0].integer, 0);
    EXPECT_EQ(queue(), Tokens{b}) << "behind one that has not asked";
    EXPECT_EQ(run(scripts_.release, {holder, run_id, much()}).integer, 1);
    EXPECT_TRUE(has_claim(b));
    EXPECT_FALSE(has_claim(holder));
    EXPECT_TRUE(queue().empty());
}

TEST_P(ClaimsOnFullServer, have_no_place_for_who_comes) {
    fill();
    const RawReply refused = ask(c);
    EXPECT_NE(refused.text.find("OOM "), std::string::npos) << refused.text;
    EXPECT_EQ(queue(), (Tokens{a, b}));
    EXPECT_FALSE(redis_.hgetall(keys_.waiters).contains(c));
}

}  // namespace
}  // namespace redlatch::test
