// The table in policy/scripts.hpp, cell by cell: what a command does that the library has sent and that
// reaches the server a second time, on another connection: at once, and when its token is dead.

#include "replay_tools.hpp"
#include "support/proxy.hpp"
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

/// The lock `job` of one client, whose commands can be delivered again, and another client.
template <class Policy>
class Scene {
public:
    static constexpr auto my_lease = 60s;
    static constexpr auto others_lease = 40s;

    explicit Scene(std::chrono::milliseconds timeout = long_timeout)
        : timeout_of_mine{timeout}, mine{options_for(proxy.uri(), timeout)} {
        for (const Script* script : {&scripts.acquire, &scripts.extend, &scripts.release,
                                     &scripts.inspect, &scripts.force_unlock, &scripts.move}) {
            redis.command({"SCRIPT", "LOAD", script->source()});
        }
        redis.command({"SCRIPT", "LOAD", scripts.nest.source()});
        EXPECT_TRUE(succeeds(mine.ping()));
    }

    static long long ms(std::chrono::milliseconds time) { return time.count(); }

    void take() { held.push_back(lock.acquire({.wait = 0s}).value()); }
    void release() {
        EXPECT_TRUE(held.back().release().has_value());
        held.pop_back();
    }
    void other_takes() {
        Lock<Policy> anothers{other, "job", {.lease = others_lease}};
        others = anothers.acquire({.wait = 0s}).value();
    }
    /// In a thread of `mine`.
    void wait() { waiting = start_waiting<Policy>(mine, {.wait = patience}, {.lease = my_lease}); }

    /// Nobody has the lock, or wants it.
    void end() {
        others.reset();
        while (!held.empty()) release();
        if (waiting.valid()) let_go(waiting.get());
        EXPECT_FALSE(redis.exists("job"));
    }

    std::string content() { return content_of(redis); }
    void let_it_be_late() { test::let_it_be_late(redis, timeout_of_mine); }

    const LockScripts& scripts = Policy::scripts();
    RedisServer server;
    RawRedis redis{server};
    Proxy proxy{server.uri()};
    const std::chrono::milliseconds timeout_of_mine;
    Client mine;
    Client other{options_for(server.uri(), long_timeout)};
    Lock<Policy> lock{mine, "job", {.lease = my_lease}};
    std::vector<Held> held;  // by `mine`
    std::optional<Held> others;
    std::future<Result<Held>> waiting;
};

template <class Policy>
std::vector<Row<Scene<Policy>>> table() {
    using S = Scene<Policy>;
    const LockScripts& scripts = Policy::scripts();
    std::vector<Row<Scene<Policy>>> rows{
        {"acquire",
         &scripts.acquire,
         [](S& scene) { scene.take(); },
         {"{1 ttl 0 time time}"},
         {"{0 ttl -1 time 1 token}"},
         {"{1 ttl 0 time time}", Effect::lock},
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
         {"{1 ttl 0 time time}", Effect::lock},
         {"LATE"}},
        {"move",
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
             EXPECT_TRUE(succeeds(scene.lock.inspect()));
         },
         {"{token 1 ttl 0}"},
         {"{token 1 ttl 0}"},
         {"{'' 0 -2 0}"},
         {"{'' 0 -2 0}"}},
        {"force",
         &scripts.force_unlock,
         [](S& scene) {
             scene.take();
             EXPECT_TRUE(succeeds(scene.lock.force_unlock()));
             scene.held.clear();
         },
         {"0"},
         {"0"},
         {"0"},
         {"0"}},
    };
    if (Policy::reentrant) {
        rows.push_back({"nest",
                        &scripts.nest,
                        [](S& scene) {
                            scene.take();
                            scene.take();
                        },
                        {"1"},
                        {"0"},
                        {"0"},
                        {"0"}});
    }
    return rows;
}

template <class Policy>
class Replayed : public ::testing::Test {
protected:
    /// For each row: the library sends the script, and `test` has the copy.
    template <class Test>
    void for_each_script(Test test, std::chrono::milliseconds timeout = long_timeout) {
        for (const Row<Scene<Policy>>& row : table<Policy>()) {
            SCOPED_TRACE(row.name);
            Scene<Policy> scene{timeout};
            scene.proxy.copy_once(std::string{row.script->sha()});
            row.send(scene);
            ASSERT_TRUE(scene.proxy.has_copy());
            test(scene, row);
            if (testing::Test::HasFatalFailure()) return;
        }
    }

    /// Delivers the copy, which does no more than the cell says. Nothing it may touch lasts longer.
    static void deliver(Scene<Policy>& scene, const Cell& expected) {
        const std::string before = scene.content();
        EXPECT_EQ(gist(scene.proxy.deliver_copy()), expected.answer);
        EXPECT_EQ(scene.content() == before, expected.effect == Effect::none)
            << before << "and then\n"
            << scene.content();
        EXPECT_EQ(waiters(scene.redis), expected.effect == Effect::place ? 1 : 0);
    }
};

using Numbered = testing::Types<Fenced<Simple>, Fenced<Reentrant>>;
TYPED_TEST_SUITE(Replayed, Numbered);

TYPED_TEST(Replayed, at_once_says_the_same_again_and_changes_nothing) {
    this->for_each_script([](auto& scene, const auto& row) {
        const bool held = scene.redis.exists("job");
        const long long waiting = waiters(scene.redis);
        const std::string before = scene.content();
        EXPECT_EQ(gist(scene.proxy.deliver_copy()), row.at_once.answer);
        EXPECT_EQ(scene.content(), before);
        EXPECT_EQ(waiters(scene.redis), waiting);
        EXPECT_EQ(scene.redis.exists("job"), held);
        if (!held) return;
        EXPECT_LE(scene.redis.pttl("job"), scene.ms(scene.my_lease));
        scene.redis.command({"PEXPIRE", "job", std::to_string(scene.ms(2 * scene.my_lease))});
        scene.proxy.deliver_copy();
        EXPECT_GT(scene.redis.pttl("job"), scene.ms(scene.my_lease)) << "shorter than before";
        scene.end();
    });
}

TYPED_TEST(Replayed, leaves_the_lock_of_another_owner_alone) {
    this->for_each_script([this](auto& scene, const auto& row) {
        scene.end();
        scene.other_takes();
        const long long ttl = scene.redis.pttl("job");
        this->deliver(scene, row.on_anothers);
        EXPECT_LE(scene.redis.pttl("job"), ttl);
        EXPECT_GT(scene.redis.pttl("job"), 0);
        EXPECT_TRUE(scene.others->held());
        EXPECT_TRUE(is_outcome(scene.others->release(), Release::released));
        // A grant that nobody of its client wants is passed on.
        EXPECT_TRUE(eventually([&] { return !scene.redis.exists("job"); }));
    });
}

TYPED_TEST(Replayed, takes_what_is_free_at_most_for_its_lease) {
    this->for_each_script([this](auto& scene, const auto& row) {
        scene.end();
        this->deliver(scene, row.on_free);
        EXPECT_EQ(scene.redis.exists("job"), row.on_free.effect == Effect::lock);
        EXPECT_NE(scene.redis.pttl("job"), -1);
        EXPECT_LE(scene.redis.pttl("job"), scene.ms(scene.my_lease));
    });
}

TYPED_TEST(Replayed, changes_nothing_when_nobody_waits_for_its_answer) {
    const auto test = [this](auto& scene, const auto& row) {
        scene.end();
        if (row.too_late.answer == "LATE") scene.let_it_be_late();
        this->deliver(scene, row.too_late);
        EXPECT_FALSE(scene.redis.exists("job"));
    };
    this->for_each_script(test, short_timeout);
}

// ---- What stands beside the table

TEST(ReplayedNest, an_old_hold_count_keeps_no_lock) {
    Scene<Reentrant> scene;
    scene.take();
    scene.proxy.copy_once(std::string{scene.scripts.nest.sha()});
    scene.take();
    scene.release();
    EXPECT_EQ(scene.redis.hgetall("job").begin()->second, "1");
    EXPECT_EQ(scene.proxy.deliver_copy().integer, 1);
    EXPECT_EQ(scene.redis.hgetall("job").begin()->second, "2");
    EXPECT_TRUE(is_outcome(scene.held.back().release(), Release::released));
    EXPECT_FALSE(scene.redis.exists("job"));
}

TEST(ReplayedPlainSet, takes_only_what_is_free_and_for_its_lease) {
    Scene<Simple> scene;
    scene.proxy.copy_once("\r\nNX\r\n");
    scene.take();
    const std::string mine = *scene.redis.get("job");
    EXPECT_TRUE(scene.proxy.deliver_copy().is_nil());
    scene.end();
    scene.other_takes();
    EXPECT_TRUE(scene.proxy.deliver_copy().is_nil());
    EXPECT_NE(scene.redis.get("job"), mine);
    scene.end();
    EXPECT_EQ(scene.proxy.deliver_copy().text, "OK");
    EXPECT_EQ(scene.redis.get("job"), mine);
    EXPECT_LE(scene.redis.pttl("job"), scene.ms(scene.my_lease));
    EXPECT_GT(scene.redis.pttl("job"), 0);
}

}  // namespace
}  // namespace redlatch::test
