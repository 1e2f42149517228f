// Every event that could make a waiter at the lock table the next one wakes it, or it sleeps no longer than
// that. Nothing but time follows each event: no other call may have to come to a waiter's help.

#include "lock_table_tools.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using detail::Hold;
using detail::LockTable;
using detail::Phase;
using Outcome = LockTable::Outcome;

/// What one does that has got the lock.
enum class Manner {
    releases,
    gives_up,  ///< leaves its turn without a hold; who has got a hold releases it
    hangs,     ///< keeps it and does nothing: for others it is over with its validity
};

std::string name_of(Manner manner) {
    switch (manner) {
        case Manner::releases: return "who_releases";
        case Manner::gives_up: return "who_gives_up";
        case Manner::hangs: return "who_hangs";
    }
    return {};
}

void PrintTo(Manner manner, std::ostream* out) {
    *out << name_of(manner);
}

/// A table, some who wait for one lock, and the order in which they got it.
class Scene : public Locks {
public:
    explicit Scene(Manner manner) : manner_{manner} {}

    /// A hold that waiters may inherit. Long enough for all of them to have come before it is over.
    static HoldRecipe inheritable() { return {.lease = 300ms}; }
    /// A hold whose next owner has to ask the server.
    static HoldRecipe brief() { return {.lease = 100ms, .drift = {.factor = 0, .floor = 1ms}}; }
    static HoldRecipe lasting() {
        return {.lease = std::chrono::hours{1}, .drift = {.factor = 0, .floor = 1ms}};
    }

    void begin_turn() { turn = enter({.id = next_id_++}).turn(); }

    void take(const HoldRecipe& recipe) {
        begin_turn();
        hold = taken(recipe);
        hold->nest.push_back({next_id_++, &some_handle, false});
        EXPECT_TRUE(table.finish(turn, hold, false, now));
    }

    /// Releases it. `at_server`: what follows where that takes a command.
    void end(const std::function<void()>& at_server) {
        auto ending = table.end_innermost("key", me);
        if (ending.can_hand_off) table.hand_off(ending, now);
        if (ending.kind == Kind::last) at_server();
    }

    void add_waiter(Wait wait = Wait::unlimited()) {
        waiters_.push_back({&enter({.wait = wait,
                                    .owner = other,
                                    .id = next_id_++,
                                    .lease = inheritable().lease,
                                    .local_handoffs = 100}),
                            static_cast<int>(waiters_.size())});
        ASSERT_EQ(waiters_.back().asker->said.outcome, Outcome::queued);
    }

    /// A newcomer that does not wait looks at the lock, and leaves what it gets.
    void look_in() { static_cast<void>(ask({.owner = other, .id = next_id_++})); }

    /// Whoever is woken or has slept enough goes on, until nothing moves any more; in an hour at most.
    void run() {
        const auto end = now + 2h;
        while (now < end) {
            while (run_woken()) {
            }
            const auto next = std::ranges::min_element(
                waiters_, {}, [](const Sleeping& one) { return one.asker->said.wake_at; });
            if (next == waiters_.end()) return;
            now = std::max(now, next->asker->said.wake_at);
            go_on(*next->asker);
        }
    }

    void let_front_run_out_of_time() {
        now = waiters_.front().asker->request.deadline;
        go_on(*waiters_.front().asker);
    }
    void stop_front() {
        waiters_.front().asker->stop_requested = true;
        go_on(*waiters_.front().asker);
    }

    const std::vector<int>& served() const { return served_; }
    std::size_t waiting() const { return waiters_.size(); }

    LockTable::Turn turn;
    std::shared_ptr<Hold> hold;

private:
    struct Sleeping {
        Asker* asker;
        int number;
    };

    bool run_woken() {
        const auto all = woken();
        for (const auto* const waiter : all) {
            const auto one = std::ranges::find(
                waiters_, waiter, [](const Sleeping& sleeping) -> const LockTable::Waiter* {
                    return sleeping.asker;
                });
            if (one != waiters_.end()) go_on(*one->asker);
        }
        return !all.empty();
    }

    void go_on(Asker& asker) {
        if (resume(asker) == Outcome::queued) return;
        const auto one = std::ranges::find(waiters_, &asker, &Sleeping::asker);
        const int number = one->number;
        waiters_.erase(one);
        const bool got_it =
            asker.said.outcome == Outcome::turn || asker.said.outcome == Outcome::handed;
        if (!got_it) return;
        served_.push_back(number);
        use(asker);
    }

    void use(Asker& asker) {
        std::shared_ptr<Hold> mine = asker.said.hold;
        if (asker.turn() && manner_ == Manner::gives_up) return table.end_turn(asker.turn());
        if (asker.turn()) {
            HoldRecipe recipe = brief();
            recipe.owner = other;
            mine = taken(recipe);
            mine->nest.push_back(asker.request.acquisition);
            if (!table.finish(asker.turn(), mine, false, now)) return;
        }
        if (manner_ != Manner::hangs) Locks::end(*mine, asker.request.acquisition.id);
    }

    Manner manner_;
    std::vector<int> served_;
    std::uint64_t next_id_ = 1;
    std::vector<Sleeping> waiters_;
};

/// What can make the one who waits in front the next.
struct Cause {
    std::string name;
    std::function<void(Scene&)> before;  ///< anybody comes to wait
    std::function<void(Scene&)> event;   ///< once all of them sleep
};

void PrintTo(const Cause& cause, std::ostream* out) {
    *out << cause.name;
}

std::vector<Cause> causes_of_a_turn() {
    const auto begin_turn = [](Scene& scene) { scene.begin_turn(); };
    const auto finish = [](Scene& scene, const std::shared_ptr<Hold>& hold) {
        EXPECT_TRUE(scene.table.finish(scene.turn, hold, false, scene.now));
    };
    return {
        {"contender_gives_up", begin_turn, [](Scene& scene) { scene.table.end_turn(scene.turn); }},
        {"contender_leaves_its_place", begin_turn,
         [](Scene& scene) {
             scene.table.announce(scene.turn, *asked_hold());
             EXPECT_TRUE(scene.table.pass_place_on(scene.turn, false));
         }},
        {"contender_gets_a_hold_that_runs_out", begin_turn,
         [finish](Scene& scene) { finish(scene, scene.taken(Scene::brief())); }},
        {"contender_gets_a_hold_that_has_run_out", begin_turn,
         [finish](Scene& scene) {
             const auto hold = scene.taken(Scene::brief());
             scene.now += 1s;
             finish(scene, hold);
         }},
        {"contender_gets_a_hold_that_was_lost_meanwhile", begin_turn,
         [finish](Scene& scene) {
             const auto hold = scene.taken(Scene::brief());
             scene.lose(hold);
             finish(scene, hold);
         }},
    };
}

std::vector<Cause> causes_of_a_hold() {
    const auto take = [](const HoldRecipe& recipe) {
        return [recipe](Scene& scene) { scene.take(recipe); };
    };
    const auto nothing = [](Scene&) {};
    const auto move_to_next = [](Scene& scene) {
        return scene.table.moved(*scene.hold, {.token = {"next"}, .refreshed = scene.now}, false,
                                 scene.now);
    };
    const auto pass_on = [move_to_next](Scene& scene) {
        scene.now += detail::longest_unrefreshed;  // so that it takes a command
        scene.end([&] { EXPECT_TRUE(move_to_next(scene)); });
    };
    const auto release = [](Scene& scene) { scene.end([&scene] { scene.free(*scene.hold); }); };
    return {
        {"release", take(Scene::lasting()), release},
        {"release_after_the_end", take(Scene::brief()),
         [release](Scene& scene) {
             scene.now = scene.hold->valid_until();
             release(scene);
         }},
        {"lock_passes_on_in_memory", take(Scene::inheritable()), release},
        {"lock_passes_on_by_a_command", take(Scene::inheritable()), pass_on},
        {"lock_passes_on_and_a_newcomer_finds_it_run_out", take(Scene::inheritable()),
         [pass_on](Scene& scene) {
             pass_on(scene);
             scene.now += Scene::inheritable().lease.duration() + 100ms;
             scene.look_in();
         }},
        {"move_is_refused", take(Scene::lasting()),
         [move_to_next](Scene& scene) {
             scene.end([&] {
                 EXPECT_FALSE(move_to_next(scene));
                 scene.free(*scene.hold);
             });
         }},
        {"hold_runs_out", take(Scene::brief()), nothing},
        {"hold_is_extended_and_runs_out", take(Scene::brief()),
         [](Scene& scene) {
             scene.hold->confirm_in_time(scene.now, scene.now, Scene::brief().lease);
         }},
        {"hold_is_lost", take(Scene::lasting()), [](Scene& scene) { scene.lose(scene.hold); }},
        {"hold_is_released_when_it_is_lost", take(Scene::lasting()),
         [](Scene& scene) {
             scene.hold->advance(Phase::held,
                                 Phase::lost);  // whoever noticed tells the lock table later
             scene.end([] { ADD_FAILURE() << "it is not there to be released"; });
             scene.table.lost(scene.hold);
         }},
        {"hold_runs_out_and_a_newcomer_sees_it", take(Scene::brief()),
         [](Scene& scene) {
             scene.now = scene.hold->valid_until();
             scene.look_in();
         }},
    };
}

std::vector<Cause> all_causes() {
    std::vector<Cause> all = causes_of_a_turn();
    for (Cause& cause : causes_of_a_hold()) all.push_back(std::move(cause));
    return all;
}

class LockTableWakeups : public testing::TestWithParam<std::tuple<Cause, Manner>> {};

INSTANTIATE_TEST_SUITE_P(Events, LockTableWakeups,
                         testing::Combine(testing::ValuesIn(all_causes()),
                                          testing::Values(Manner::releases, Manner::gives_up,
                                                          Manner::hangs)),
                         [](const auto& one) {
                             return std::get<Cause>(one.param).name + "_to_one_" +
                                    name_of(std::get<Manner>(one.param));
                         });

TEST_P(LockTableWakeups, serve_all_who_wait_in_their_order) {
    const auto& [cause, manner] = GetParam();
    Scene scene{manner};
    cause.before(scene);
    for (int i = 0; i < 3; ++i) scene.add_waiter();
    const auto began = scene.now;
    cause.event(scene);
    scene.run();
    EXPECT_EQ(scene.served(), (std::vector{0, 1, 2}));
    EXPECT_LT(scene.now, began + 1min) << "nobody slept longer than the holds before it";
}

/// The one in front goes before the event; whoever gets the lock then keeps it.
class LockTableWakeupsBehindOneWhoLeaves : public testing::TestWithParam<Cause> {
protected:
    void SetUp() override { GetParam().before(scene); }

    Scene scene{Manner::hangs};
};

INSTANTIATE_TEST_SUITE_P(Events, LockTableWakeupsBehindOneWhoLeaves,
                         testing::ValuesIn(all_causes()),
                         [](const auto& one) { return one.param.name; });

TEST_P(LockTableWakeupsBehindOneWhoLeaves, serve_all_when_it_was_cancelled) {
    for (int i = 0; i < 3; ++i) scene.add_waiter();
    scene.stop_front();
    const auto began = scene.now;
    GetParam().event(scene);
    scene.run();
    EXPECT_EQ(scene.served(), (std::vector{1, 2}));
    EXPECT_LT(scene.now, began + 1min);
}

TEST_P(LockTableWakeupsBehindOneWhoLeaves, serve_all_when_it_ran_out_of_time) {
    scene.add_waiter(50ms);
    for (int i = 0; i < 2; ++i) scene.add_waiter();
    scene.let_front_run_out_of_time();
    const auto began = scene.now;
    GetParam().event(scene);
    scene.run();
    EXPECT_EQ(scene.served(), (std::vector{1, 2}));
    EXPECT_LT(scene.now, began + 1min);
}

TEST_P(LockTableWakeupsBehindOneWhoLeaves, end_all_waits_when_the_client_is_closed) {
    for (int i = 0; i < 3; ++i) scene.add_waiter();
    GetParam().event(scene);
    static_cast<void>(scene.table.close());
    const auto began = scene.now;
    scene.run();
    EXPECT_EQ(scene.waiting(), 0U);
    EXPECT_EQ(scene.now, began) << "at once";
}

TEST(WakeList, serves_each_once_and_in_order_also_where_others_come_meanwhile) {
    std::vector<detail::LockWaiter> waiters(4);
    detail::WakeList list;
    for (const std::size_t i : {0U, 1U, 0U}) list.push(&waiters[i]);
    list.push(nullptr);
    EXPECT_EQ(list.take(), &waiters[0]);
    list.push(&waiters[2]);
    list.push(&waiters[0]);
    for (const std::size_t i : {1U, 2U, 0U}) EXPECT_EQ(list.take(), &waiters[i]);
    EXPECT_EQ(list.take(), nullptr);
    list.push(&waiters[3]);
    EXPECT_EQ(list.take(), &waiters[3]);
    EXPECT_EQ(list.take(), nullptr);
}

}  // namespace
}  // namespace redlatch::test
