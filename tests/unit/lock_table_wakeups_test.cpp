// A thread that waits at the lock table is woken by every event that could make it the next. Nothing but time
// follows each event: no other call may have to come to the thread's help.

#include "lock_table_tools.hpp"
#include "service_tools.hpp"
#include "support/wait.hpp"
#include <redlatch/service/lock_table_monitor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using detail::Hold;
using detail::LockTable;
using detail::LockTableMonitor;
using detail::Phase;
using detail::TimePoint;
using Outcome = LockTable::Outcome;
using Kind = LockTable::Ending::Kind;

/// What a thread does that has got the lock.
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

/// A table, some threads that wait for one lock, and the order in which they got it.
class Scene {
public:
    explicit Scene(Manner manner) : manner_{manner} {}
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;
    ~Scene() {
        static_cast<void>(table.close());
        over_ = true;
    }

    /// A hold that waiters may inherit. Long enough for all of them to have come before it is over.
    static HoldRecipe inheritable() { return {.lease = 300ms}; }
    /// A hold whose next owner has to ask the server.
    static HoldRecipe brief() { return {.lease = 100ms, .drift = {.factor = 0, .floor = 1ms}}; }
    static HoldRecipe lasting() {
        return {.lease = std::chrono::hours{1}, .drift = {.factor = 0, .floor = 1ms}};
    }

    LockTableMonitor::Admission enter(Wait wait, std::stop_token stop = {}) {
        const detail::HoldTerms terms = terms_of(inheritable());
        const TimePoint deadline = detail::saturating_add(
            Clock::now(), std::max(wait.duration(), Clock::duration::zero()));
        return table.enter({.terms = terms,
                            .owner = detail::this_thread(),
                            .caller = detail::this_thread(),
                            .wait = wait,
                            .deadline = deadline,
                            .acquisition = {next_id_++, nullptr, false},
                            .handoffs = {.in_row = 100, .others_poll = false}},
                           stop);
    }

    /// The test's own thread has its turn.
    void begin_turn() {
        auto admission = enter(Wait::none());
        turn.emplace(*std::move(admission.turn));
    }

    /// The test's own thread holds the lock.
    void take(const std::shared_ptr<Hold>& taken) {
        begin_turn();
        hold = taken;
        hold->nest.push_back({next_id_++, &hold, false});
        static_cast<void>(turn->finish(hold));
    }

    /// The test's own thread releases it. `at_server`: what follows where that takes a command.
    void end(const std::function<void()>& at_server) {
        const auto ending = table.end_innermost("key", detail::this_thread());
        if (ending.kind == Kind::last) at_server();
    }
    void free_at_server() {
        hold->advance(Phase::releasing, Phase::released);
        table.released(*hold);
    }

    void lose() {
        hold->advance(Phase::held, Phase::lost);
        table.lost(hold);
    }

    void add_waiter(Wait wait = Wait::unlimited(), std::stop_token stop = {}) {
        const int number = static_cast<int>(waiters_.size());
        waiters_.push_back(std::make_unique<Waiter>([this, number, wait, stop] {
            auto admission = enter(wait, stop);
            ++admitted_;
            if (admission.outcome != Outcome::turn && admission.outcome != Outcome::handed) return;
            {
                const std::lock_guard lock{mutex_};
                served_.push_back(number);
            }
            use(std::move(admission));
        }));
        waiters_.back()->wait_until_asleep();
    }

    std::vector<int> served() {
        const std::lock_guard lock{mutex_};
        return served_;
    }

    /// How many waits have ended, in whatever way.
    int admitted() const { return admitted_; }

    void wait_until_run_out() const { std::this_thread::sleep_until(hold->valid_until() + 1ms); }

    LockTableMonitor table;
    std::optional<LockTableMonitor::Turn> turn;
    std::shared_ptr<Hold> hold;

private:
    void use(LockTableMonitor::Admission admission) {
        std::shared_ptr<Hold> mine = admission.hold;
        if (admission.turn && manner_ == Manner::gives_up) return admission.turn.reset();
        if (admission.turn) {
            mine = taken_hold(brief());
            mine->nest.push_back({next_id_++, nullptr, false});
            const auto id = mine->nest.back().id;
            if (!admission.turn->finish(mine)) return;
            return manner_ == Manner::hangs ? hang() : release(*mine, id);
        }
        manner_ == Manner::hangs ? hang() : release_handed(*mine);
    }

    void hang() {
        static_cast<void>(eventually([this] { return over_.load(); }, 10 * generous_limit));
    }

    /// Its acquisition is the one that it entered with, and it has no other.
    void release_handed(Hold& mine) { release(mine, mine.nest.front().id); }

    void release(Hold& mine, std::uint64_t id) {
        const auto ending = table.end_acquisition(mine, id);
        if (ending.kind != Kind::last) return;
        ending.hold->advance(Phase::releasing, Phase::released);
        table.released(*ending.hold);
    }

    Manner manner_;
    std::mutex mutex_;
    std::vector<int> served_;
    std::atomic<std::uint64_t> next_id_{1};
    std::atomic<int> admitted_{0};
    std::atomic<bool> over_{false};
    std::vector<std::unique_ptr<Waiter>> waiters_;
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
    return {
        {"contender_gives_up", begin_turn, [](Scene& scene) { scene.turn.reset(); }},
        {"contender_leaves_its_place", begin_turn,
         [](Scene& scene) {
             scene.turn->announce(*asked_hold());
             EXPECT_TRUE(scene.turn->pass_place_on(false));
         }},
        {"contender_gets_a_hold_that_runs_out", begin_turn,
         [](Scene& scene) { static_cast<void>(scene.turn->finish(taken_hold(Scene::brief()))); }},
        {"contender_gets_a_hold_that_has_run_out", begin_turn,
         [](Scene& scene) { static_cast<void>(scene.turn->finish(run_out_hold(Scene::brief()))); }},
        {"contender_gets_a_hold_that_was_lost_meanwhile", begin_turn,
         [](Scene& scene) {
             scene.hold = taken_hold(Scene::brief());
             scene.lose();
             static_cast<void>(scene.turn->finish(scene.hold));
         }},
    };
}

std::vector<Cause> causes_of_a_hold() {
    const auto take = [](const HoldRecipe& recipe) {
        return [recipe](Scene& scene) { scene.take(taken_hold(recipe)); };
    };
    const auto nothing = [](Scene&) {};
    const auto pass_on = [](Scene& scene) {
        scene.end([&scene] {
            static_cast<void>(scene.table.moved(
                *scene.hold, {.token = {"next"}, .refreshed = Clock::now()}, false));
        });
    };
    const auto release = [](Scene& scene) { scene.end([&scene] { scene.free_at_server(); }); };
    return {
        {"release", take(Scene::lasting()), release},
        {"release_after_the_end", take(Scene::brief()),
         [release](Scene& scene) {
             scene.wait_until_run_out();
             release(scene);
         }},
        {"lock_passes_on", take(Scene::inheritable()), pass_on},
        {"lock_passes_on_and_a_newcomer_finds_it_run_out", take(Scene::inheritable()),
         [pass_on](Scene& scene) {
             pass_on(scene);
             std::this_thread::sleep_for(Scene::inheritable().lease.duration() + 100ms);
             static_cast<void>(scene.enter(Wait::none()));
         }},
        {"move_is_refused", take(Scene::lasting()),
         [](Scene& scene) {
             scene.end([&scene] {
                 EXPECT_FALSE(scene.table.moved(
                     *scene.hold, {.token = {"next"}, .refreshed = Clock::now()}, false));
                 scene.free_at_server();
             });
         }},
        {"hold_runs_out", take(Scene::brief()), nothing},
        {"hold_is_extended_and_runs_out", take(Scene::brief()),
         [](Scene& scene) {
             scene.hold->confirm_in_time(Clock::now(), Clock::now(), Scene::brief().lease);
         }},
        {"hold_is_lost", take(Scene::lasting()), [](Scene& scene) { scene.lose(); }},
        {"hold_is_released_when_it_is_lost", take(Scene::lasting()),
         [](Scene& scene) {
             scene.hold->advance(Phase::held,
                                 Phase::lost);  // whoever noticed tells the lock table later
             scene.end([] { ADD_FAILURE() << "it is not there to be released"; });
             scene.table.lost(scene.hold);
         }},
        {"hold_runs_out_and_a_newcomer_sees_it", take(Scene::brief()),
         [](Scene& scene) {
             scene.wait_until_run_out();
             static_cast<void>(scene.enter(Wait::none()));
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
    cause.event(scene);
    EXPECT_TRUE(eventually([&] { return scene.served().size() == 3; }));
    EXPECT_EQ(scene.served(), (std::vector{0, 1, 2}));
}

/// The one in front goes before the event; whoever gets the lock then keeps it.
class LockTableWakeupsBehindOneWhoLeaves : public testing::TestWithParam<Cause> {
protected:
    /// Whether the one in front was served before it left is up to the machine.
    void expect_others_served() {
        EXPECT_TRUE(eventually([&] {
            const std::vector<int> served = scene.served();
            return std::ranges::count(served, 1) == 1 && std::ranges::count(served, 2) == 1;
        }));
    }

    Scene scene{Manner::hangs};
};

INSTANTIATE_TEST_SUITE_P(Events, LockTableWakeupsBehindOneWhoLeaves,
                         testing::ValuesIn(all_causes()),
                         [](const auto& one) { return one.param.name; });

TEST_P(LockTableWakeupsBehindOneWhoLeaves, serve_all_when_it_was_cancelled) {
    GetParam().before(scene);
    std::stop_source stop;
    scene.add_waiter(Wait::unlimited(), stop.get_token());
    for (int i = 0; i < 2; ++i) scene.add_waiter();
    stop.request_stop();
    GetParam().event(scene);
    expect_others_served();
}

TEST_P(LockTableWakeupsBehindOneWhoLeaves, serve_all_when_it_ran_out_of_time) {
    GetParam().before(scene);
    scene.add_waiter(50ms);
    for (int i = 0; i < 2; ++i) scene.add_waiter();
    GetParam().event(scene);
    expect_others_served();
}

TEST_P(LockTableWakeupsBehindOneWhoLeaves, end_all_waits_when_the_client_is_closed) {
    GetParam().before(scene);
    for (int i = 0; i < 3; ++i) scene.add_waiter();
    GetParam().event(scene);
    static_cast<void>(scene.table.close());
    EXPECT_TRUE(eventually([&] { return scene.admitted() == 3; }));
}

}  // namespace
}  // namespace redlatch::test
