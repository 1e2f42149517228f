// The rows about claims of the table in policy/scripts.hpp, cell by cell: what a command does whose answer was lost,
// and one that reaches the server a second time: at once, and when its token is dead.

#include "replay_tools.hpp"
#include "support/proxy.hpp"
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/scripts.hpp>

#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using Store = Lock<Fenced<Shared>>;

/// How claims of one kind on `job` are taken; by `take_all` so that nothing fits in beside.
struct Writing {
    static constexpr const char* fence = "time";
    static constexpr const char* taken = "1";
    static constexpr const char* all_taken = "1";
    static const LockScripts& scripts() { return lua::on_shared_claims(); }
    static Result<Held> take(Client& client, Wait wait, Lease lease) {
        return Store{client, "job"}.acquire({.wait = wait, .lease = lease});
    }
    static Result<Held> take_all(Client& client, Lease lease) { return take(client, 0s, lease); }
    static bool inspect(Client& client) { return Store{client, "job"}.inspect().has_value(); }
    static Forced force(Client& client, const std::string& token) {
        return Store{client, "job"}.force_unlock(token).value();
    }
};

struct Reading : Writing {
    static Result<Held> take(Client& client, Wait wait, Lease lease) {
        return Store{client, "job"}.acquire_shared({.wait = wait, .lease = lease});
    }
};

struct TwoPermits {
    static constexpr const char* fence = "0";
    static constexpr const char* taken = "2";
    static constexpr const char* all_taken = "3";
    static const LockScripts& scripts() { return lua::on_permits(); }
    static Result<Held> take(Client& client, Wait wait, Lease lease, std::ptrdiff_t permits = 2) {
        return Semaphore<Permits>{client, "job", 3}.take(
            {.permits = permits, .wait = wait, .lease = lease});
    }
    static Result<Held> take_all(Client& client, Lease lease) { return take(client, 0s, lease, 3); }
    static bool inspect(Client& client) {
        return Semaphore<Permits>{client, "job", 3}.inspect().has_value();
    }
    static Forced force(Client& client, const std::string& token) {
        return Semaphore<Permits>{client, "job", 3}.force_release(token).value();
    }
};

/// One client whose commands can be delivered again, and another one.
template <class Kind>
class Scene {
public:
    static constexpr auto my_lease = 60s;
    static constexpr auto others_lease = 40s;
    static constexpr long long my_lease_ms = 60'000;

    explicit Scene(std::chrono::milliseconds timeout = long_timeout)
        : timeout_of_mine{timeout}, mine{options_for(proxy.uri(), timeout)} {
        const LockScripts& all = Kind::scripts();
        for (const Script* script : {&all.acquire, &all.extend, &all.release, &all.inspect,
                                     &all.force_unlock, &all.move, &all.downgrade}) {
            redis.command({"SCRIPT", "LOAD", script->source()});
        }
        EXPECT_TRUE(succeeds(mine.ping()));
    }

    void take() { held.push_back(Kind::take(mine, 0s, my_lease).value()); }
    void release() {
        EXPECT_TRUE(is_outcome(held.back().release(), Release::released));
        held.pop_back();
    }
    void other_takes() { others = Kind::take_all(other, others_lease).value(); }
    /// In a thread of `mine`.
    void wait() {
        waiting = in_background([this] { return Kind::take(mine, patience, my_lease); });
    }

    /// Nobody has anything, or wants it.
    void end() {
        others.reset();
        while (!held.empty()) release();
        if (waiting.valid()) let_go(waiting.get());
        EXPECT_FALSE(redis.exists("job"));
    }

    /// The claim that is there, and its end by the server's clock.
    std::pair<std::string, double> claim() {
        const RawReply all = redis.command({"ZRANGE", "job", "1", "1", "WITHSCORES"});
        return {all.elements.at(0).text, std::stod(all.elements.at(1).text)};
    }

    RedisServer server;
    RawRedis redis{server};
    Proxy proxy{server.uri()};
    const std::chrono::milliseconds timeout_of_mine;
    Client mine;
    Client other{options_for(server.uri(), long_timeout)};
    std::vector<Held> held;  // by `mine`
    std::optional<Held> others;
    std::future<Result<Held>> waiting;
};

template <class Kind>
std::vector<Row<Scene<Kind>>> table() {
    using S = Scene<Kind>;
    const LockScripts& scripts = Kind::scripts();
    const std::string taken = std::string{"{1 ttl 0 time "} + Kind::fence + "}";
    const auto claims_of = [](const std::string& number) {
        return "{'' " + number + " ttl 0 -1 token ttl}";
    };
    std::vector<Row<Scene<Kind>>> rows{
        {"acquire",
         &scripts.acquire,
         [](S& scene) { scene.take(); },
         {taken},
         {"{0 ttl -1 time 1 token}"},
         {taken, Effect::lock},
         {"LATE"}},
        {"acquire that waits",
         &scripts.acquire,
         [](S& scene) {
             scene.other_takes();
             scene.wait();
             EXPECT_TRUE(queue_grows_to(scene.redis, 1));
         },
         {"{0 ttl 0 time 1 token}"},
         {"{0 ttl 0 time 1 token}", Effect::place},
         {taken, Effect::lock},
         {"LATE"}},
        {"extend",
         &scripts.extend,
         [](S& scene) {
             scene.take();
             EXPECT_TRUE(succeeds(scene.held.back().extend(S::my_lease)));
         },
         {"1"},
         {"0"},
         {"0"},
         {"0"}},
        {"release",
         &scripts.release,
         [](S& scene) {
             scene.take();
             scene.release();
         },
         {"0"},
         {"0"},
         {"0"},
         {"0"}},
        {"inspect",
         &scripts.inspect,
         [](S& scene) {
             scene.take();
             EXPECT_TRUE(Kind::inspect(scene.mine));
         },
         {claims_of(Kind::taken)},
         {claims_of(Kind::all_taken)},
         {"{'' 0 -2 0 -1}"},
         {"{'' 0 -2 0 -1}"}},
        {"force",
         &scripts.force_unlock,
         [](S& scene) {
             scene.take();
             EXPECT_EQ(Kind::force(scene.mine, scene.held.back().token()), Forced::removed);
             scene.held.clear();
         },
         {"0"},
         {"0"},
         {"0"},
         {"0"}},
    };
    if (!std::is_same_v<Kind, Writing>) return rows;
    rows.push_back({"downgrade",
                    &scripts.downgrade,
                    [](S& scene) {
                        scene.take();
                        EXPECT_TRUE(succeeds(scene.held.back().downgrade()));
                    },
                    {"1"},
                    {"0"},
                    {"0"},
                    {"0"}});
    rows.push_back({"move",
                    &scripts.move,
                    [](S& scene) {
                        // Once the waiting thread is there.
                        EXPECT_TRUE(eventually([&scene] {
                            scene.end();
                            scene.take();
                            scene.wait();
                            std::this_thread::sleep_for(10ms);
                            scene.release();
                            return scene.proxy.has_copy();
                        }));
                        scene.held.push_back(scene.waiting.get().value());
                    },
                    {"{1 0 time}"},
                    {"{0 0 0}"},
                    {"{0 0 0}"},
                    {"LATE"}});
    return rows;
}

template <class Kind>
class ReplayedClaim : public ::testing::Test {
protected:
    /// For each row: the library sends the script, and `test` has the copy.
    template <class Test>
    void for_each_script(Test test, int lost_answers = 0,
                         std::chrono::milliseconds timeout = long_timeout) {
        for (const Row<Scene<Kind>>& row : table<Kind>()) {
            SCOPED_TRACE(row.name);
            Scene<Kind> scene{timeout};
            const std::string sha{row.script->sha()};
            scene.proxy.copy_once(sha);
            if (lost_answers > 0) scene.proxy.drop_replies_once(lost_answers, sha);
            row.send(scene);
            ASSERT_TRUE(scene.proxy.has_copy());
            test(scene, row);
            if (testing::Test::HasFatalFailure()) return;
        }
    }

    /// Delivers the copy, which does no more than the cell says.
    static void deliver(Scene<Kind>& scene, const Cell& expected) {
        const std::string before = content_of(scene.redis);
        EXPECT_EQ(gist(scene.proxy.deliver_copy()), expected.answer);
        EXPECT_EQ(content_of(scene.redis) == before, expected.effect == Effect::none)
            << before << "and then\n"
            << content_of(scene.redis);
        EXPECT_EQ(waiters(scene.redis), expected.effect == Effect::place ? 1 : 0);
    }
};

using Kinds = ::testing::Types<Reading, Writing, TwoPermits>;
TYPED_TEST_SUITE(ReplayedClaim, Kinds);

TYPED_TEST(ReplayedClaim, whose_answer_was_lost_is_sent_again_and_counts_once) {
    this->for_each_script(
        [](auto& scene, const auto&) {
            // The waiting one's place is at the server before the proxy has read the answer.
            EXPECT_TRUE(eventually([&] { return scene.proxy.counts().dropped_replies == 1; }));
            if (!scene.held.empty()) {
                EXPECT_TRUE(scene.held.back().held());
                EXPECT_EQ(scene.redis.command({"ZCARD", "job"}).integer, 2) << "a sum, and a claim";
            }
            scene.end();
            EXPECT_EQ(waiters(scene.redis), 0);
        },
        1);
}

TYPED_TEST(ReplayedClaim, at_once_says_the_same_again_and_changes_nothing) {
    this->for_each_script([](auto& scene, const auto& row) {
        const std::string before = content_of(scene.redis);
        EXPECT_EQ(gist(scene.proxy.deliver_copy()), row.at_once.answer);
        EXPECT_EQ(content_of(scene.redis), before);
        if (scene.held.empty()) return scene.end();
        const auto [claim, end] = scene.claim();
        const std::string later = std::to_string(end + 2e6 * scene.my_lease_ms / 1000);
        scene.redis.command({"ZADD", "job", later, claim});
        scene.redis.command({"PEXPIRE", "job", std::to_string(2 * scene.my_lease_ms)});
        scene.proxy.deliver_copy();
        EXPECT_EQ(scene.claim(), std::pair(claim, std::stod(later))) << "not shorter than before";
        EXPECT_GT(scene.redis.pttl("job"), scene.my_lease_ms);
        scene.end();
    });
}

TYPED_TEST(ReplayedClaim, leaves_the_claim_of_another_owner_alone) {
    this->for_each_script([this](auto& scene, const auto& row) {
        scene.end();
        scene.other_takes();
        const auto claim = scene.claim();
        this->deliver(scene, row.on_anothers);
        EXPECT_EQ(scene.claim(), claim);
        EXPECT_TRUE(scene.others->held());
        EXPECT_TRUE(is_outcome(scene.others->release(), Release::released));
        // A grant that nobody of its client wants is passed on.
        EXPECT_TRUE(eventually([&] { return !scene.redis.exists("job"); }));
    });
}

TYPED_TEST(ReplayedClaim, takes_what_is_free_at_most_for_its_lease) {
    this->for_each_script([this](auto& scene, const auto& row) {
        scene.end();
        this->deliver(scene, row.on_free);
        EXPECT_EQ(scene.redis.exists("job"), row.on_free.effect == Effect::lock);
        EXPECT_NE(scene.redis.pttl("job"), -1);
        EXPECT_LE(scene.redis.pttl("job"), scene.my_lease_ms);
    });
}

TYPED_TEST(ReplayedClaim, changes_nothing_when_nobody_waits_for_its_answer) {
    const auto test = [this](auto& scene, const auto& row) {
        scene.end();
        if (row.too_late.answer == "LATE") let_it_be_late(scene.redis, scene.timeout_of_mine);
        this->deliver(scene, row.too_late);
        EXPECT_FALSE(scene.redis.exists("job"));
    };
    this->for_each_script(test, 0, short_timeout);
}

// ---- What stands beside the rows

/// Claims beside that of a copy.
class ReplayedBeside : public ::testing::Test {
protected:
    static constexpr std::chrono::milliseconds timeout{4000};

    RedisServer server_;
    RawRedis redis_{server_};
    Proxy proxy_{server_.uri()};
    Client mine_{options_for(proxy_.uri(), timeout)};
    Client other_{options_for(server_.uri(), long_timeout)};
};

TEST_F(ReplayedBeside, release_ends_one_claim_of_many) {
    Store lock{mine_, "job"};
    Store others{other_, "job"};
    Held beside = others.acquire_shared().value();
    ASSERT_TRUE(succeeds(lock.acquire_shared()));
    proxy_.copy_once(std::string{lua::on_shared_claims().release.sha()});
    ASSERT_TRUE(succeeds(lock.acquire_shared()));
    ASSERT_TRUE(proxy_.has_copy());
    Held again = lock.acquire_shared().value();
    EXPECT_EQ(gist(proxy_.deliver_copy()), "0");
    EXPECT_EQ(others.inspect().value().holders.size(), 2U);
    let_go(again);
    let_go(beside);
    EXPECT_FALSE(redis_.exists("job")) << "the sum is right";
}

TEST_F(ReplayedBeside, downgrade_makes_no_reader_of_the_next_writer) {
    Store lock{mine_, "job"};
    proxy_.copy_once(std::string{lua::on_shared_claims().downgrade.sha()});
    Held first = lock.acquire().value();
    ASSERT_TRUE(succeeds(first.downgrade()));
    ASSERT_TRUE(succeeds(first.extend(40s)));
    EXPECT_EQ(gist(proxy_.deliver_copy()), "1") << "it is a reader already";
    let_go(first);
    Held second = lock.acquire().value();
    EXPECT_EQ(gist(proxy_.deliver_copy()), "0");
    EXPECT_TRUE(lock.inspect().value().holders.at(0).writes);
    let_go(second);
}

TEST_F(ReplayedBeside, old_acquisition_of_a_writer_makes_none_of_a_reader) {
    Store lock{mine_, "job"};
    Store others{other_, "job"};
    ASSERT_TRUE(succeeds(lock.acquire()));  // the server knows the script now
    proxy_.copy_once(std::string{lua::on_shared_claims().acquire.sha()});
    Held held = lock.acquire().value();
    ASSERT_TRUE(succeeds(held.downgrade()));
    Held beside = others.acquire_shared().value();
    EXPECT_EQ(gist(proxy_.deliver_copy()), "{1 ttl 0 time time}") << "ours, as a reader";
    const LockInfo info = lock.inspect().value();
    ASSERT_EQ(info.holders.size(), 2U);
    EXPECT_FALSE(info.holders[0].writes || info.holders[1].writes);
    EXPECT_TRUE(held.held() && beside.held());
}

/// A number of permits that was set, and is set a second time by a command that comes late.
class ReplayedSetting : public ReplayedBeside {
protected:
    /// Of the two commands the one that sets: behind the number stands when it was issued.
    static std::string setting_of(int permits) {
        return "$1\r\n" + std::to_string(permits) + "\r\n$16\r\n";
    }
    std::uint64_t permits() { return gpus_.inspect().value().permits; }

    Semaphore<Permits> gpus_{mine_, "job", 5};
};

TEST_F(ReplayedSetting, counts_until_a_later_one_was_issued) {
    proxy_.copy_once(setting_of(2));
    ASSERT_TRUE(succeeds(gpus_.set_permits(2)));
    ASSERT_TRUE(proxy_.has_copy());
    EXPECT_EQ(gist(proxy_.deliver_copy()), "1");
    EXPECT_EQ(permits(), 2U);
    ASSERT_TRUE(succeeds(gpus_.set_permits(3)));
    EXPECT_EQ(gist(proxy_.deliver_copy()), "0");
    EXPECT_EQ(permits(), 3U);
    let_it_be_late(redis_, timeout);
    EXPECT_EQ(gist(proxy_.deliver_copy()), "LATE");
    redis_.del("redlatch:permits:{job}");
    EXPECT_EQ(gist(proxy_.deliver_copy()), "LATE") << "also where the later one is forgotten";
    EXPECT_EQ(permits(), 5U);
}

TEST_F(ReplayedSetting, whose_answer_was_lost_counts) {
    ASSERT_TRUE(succeeds(gpus_.set_permits(1)));  // the server knows the script now
    const std::string sha{lua::on_permits().set_permits.sha()};
    for (int permits = 2; permits < 4; ++permits) {
        proxy_.drop_replies_once(1, permits == 2 ? sha : setting_of(permits));
        EXPECT_TRUE(succeeds(gpus_.set_permits(permits)));
        EXPECT_EQ(proxy_.counts().dropped_replies, permits - 1);
        EXPECT_EQ(this->permits(), static_cast<std::uint64_t>(permits));
    }
}

TEST_F(ReplayedBeside, late_commands_take_no_claim_and_no_place) {
    if (redis_server_version() < redis_6_2) GTEST_SKIP() << "the server counts no errors";
    const Held other = Store{other_, "busy"}.acquire().value();
    Client mine{options_for(proxy_.uri(), short_timeout)};
    const auto found_late = [this] {
        const auto errors = redis_.info("errorstats");
        const auto late = errors.find("errorstat_LATE");
        return late == errors.end() ? std::string{} : late->second;
    };
    const std::vector<std::function<Result<Held>()>> calls{
        [&mine] {
            return Store{mine, "job"}.acquire_shared({.wait = 0s});
        },
        [&mine] {
            return Semaphore<Permits>{mine, "gpus", 3}.take({.permits = 2, .wait = 0s});
        },
        [&mine] {
            return Store{mine, "busy"}.acquire_shared({.wait = 1500ms});
        }};
    for (std::size_t i = 0; i < calls.size(); ++i) {
        static_cast<void>(calls[i]());       // the server knows the script
        ASSERT_TRUE(succeeds(mine.ping()));  // and there is a connection
        const long long written = redis_.command_calls("zadd");
        proxy_.delay_requests(short_timeout + 1s);
        EXPECT_TRUE(fails_with(calls[i](), Errc::unavailable));
        const std::string expected = "count=" + std::to_string(i + 1);
        EXPECT_TRUE(eventually([&] { return found_late() == expected; })) << found_late();
        EXPECT_EQ(redis_.command_calls("zadd"), written);
        proxy_.pass();
    }
}

}  // namespace
}  // namespace redlatch::test
