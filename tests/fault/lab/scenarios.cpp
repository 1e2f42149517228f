#include "scenarios.hpp"

#include <algorithm>
#include <stdexcept>

namespace redlatch::test::fault {
namespace {

using std::chrono::milliseconds;

/// Nothing is in its way.
RunPlan undisturbed(milliseconds time) {
    RunPlan plan;
    plan.client.subject = "library";
    plan.client.coroutines = 0;
    plan.client.names = 1;
    plan.client.command_timeout = {milliseconds{250}, milliseconds{400}};
    plan.storm = milliseconds{0};
    plan.calm = time;
    return plan;
}

/// Threads hang in a process that lives, long after their leases are over. There is no other process that
/// could take the lock instead of those who wait behind them.
RunPlan hanging_threads() {
    RunPlan plan = undisturbed(milliseconds{9000});
    plan.stations = 1;
    plan.client.threads = 8;
    Habits& habits = plan.client.habits;
    plan.client.subject = "simple";
    habits.lease = {milliseconds{200},
                    milliseconds{200}};  // the same, so that locks pass in memory
    habits.wait = {milliseconds{6000}, milliseconds{8000}};
    habits.no_wait = 0;
    habits.polls = 0;
    habits.hangs = 20;
    habits.nests = 0;
    habits.extends = 0;
    return plan;
}

RunPlan slow_observers() {
    RunPlan plan = undisturbed(milliseconds{7000});
    plan.client.slow_observer = true;
    plan.client.names = 8;
    plan.client.threads = 6;
    Habits& habits = plan.client.habits;
    habits.lease = {milliseconds{100}, milliseconds{200}};
    habits.work = {milliseconds{0}, milliseconds{5}};
    habits.shares = 0;
    habits.listens = 100;
    habits.hangs = 10;
    habits.lingers = 10;
    return plan;
}

/// The answer to an extension is under way while another thread releases the lock, and a third one of the
/// process gets it.
RunPlan shared_holds() {
    RunPlan plan = undisturbed(milliseconds{5000});
    plan.latency = milliseconds{8};
    plan.stations = 2;
    plan.client.threads = 4;
    Habits& habits = plan.client.habits;
    habits.lease = {milliseconds{500}, milliseconds{500}};
    habits.work = {milliseconds{0}, milliseconds{20}};
    habits.polls = 0;
    habits.no_wait = 0;
    habits.hangs = 0;
    habits.shares = 70;
    return plan;
}

/// Leases below 100 ms beside some of seconds, all of them renewed.
RunPlan short_beside_long_leases() {
    RunPlan plan = undisturbed(milliseconds{8000});
    plan.latency = milliseconds{8};
    plan.stations = 1;
    plan.client.subject = "watched";
    plan.client.threads = 28;
    plan.client.names = 60;
    Habits& habits = plan.client.habits;
    habits.briefly = 98;  // they come and go, while those that last add up
    habits.lastingly = 100;
    habits.brief = {milliseconds{36}, milliseconds{42}};
    habits.lasting = {milliseconds{1500}, milliseconds{1600}};
    habits.shares = 0;
    habits.nests = 0;
    habits.extends = 0;
    habits.lingers = 80;
    return plan;
}

/// All that is so short that a stopped process may be over it when it goes on.
RunPlan stopped_again_and_again() {
    RunPlan plan = undisturbed(milliseconds{8000});
    plan.storm = milliseconds{5000};
    plan.only = {"stop and go"};
    plan.pause = {milliseconds{1}, milliseconds{3}};
    plan.stations = 1;
    plan.client.slow_observer = true;
    plan.client.threads = 4;
    Habits& habits = plan.client.habits;
    habits.lease = {milliseconds{10}, milliseconds{60}};
    habits.wait = {milliseconds{6000}, milliseconds{8000}};
    habits.no_wait = 0;
    habits.work = {};
    habits.hangs = 0;
    habits.lingers = 0;
    habits.shares = 0;
    habits.nests = 0;
    habits.extends = 0;
    return plan;
}

RunPlan mixed_nests() {
    RunPlan plan = undisturbed(milliseconds{9000});
    plan.stations = 2;
    plan.client.subject = "mixed";
    plan.client.threads = 30;
    plan.client.habits.mixes = 100;
    plan.client.habits.lasting = {milliseconds{1500}, milliseconds{1600}};
    return plan;
}

/// Clients end while threads wait in them, also for a server that does not answer.
RunPlan ends_amid_calls() {
    RunPlan plan = undisturbed(milliseconds{500});
    plan.storm = milliseconds{10'000};
    plan.only = {"close client", "freeze server for long"};
    plan.pause = {milliseconds{300}, milliseconds{600}};
    plan.latency = milliseconds{8};
    plan.client.subject = "reentrant";
    plan.client.closes = true;
    plan.client.names = 3;
    plan.client.threads = 4;
    plan.client.coroutines = 4;
    Habits& habits = plan.client.habits;
    habits.lease = {milliseconds{200}, milliseconds{400}};
    habits.endless = 60;
    habits.nests = 100;
    habits.hangs = 0;
    return plan;
}

/// Many coroutines on one loop beside some threads, which cancel, go away, and keep the loop from its work, while
/// the links of their clients break and freeze.
RunPlan coroutines() {
    RunPlan plan = undisturbed(milliseconds{3000});
    plan.storm = milliseconds{5000};
    plan.only = {"delay", "stall", "black hole", "late requests", "late replies",    "lost replies",
                 "cut",   "reset", "half-close", "freeze client", "kill connections"};
    plan.stations = 2;
    plan.client.subject = "library";
    plan.client.threads = 2;
    plan.client.coroutines = 12;
    plan.client.names = 3;
    Habits& habits = plan.client.habits;
    habits.cancels = 30;
    habits.abandons = 25;
    habits.shares = 25;
    return plan;
}

/// Six threads of each client at the same locks.
RunPlan crowded(const char* subject) {
    RunPlan plan = undisturbed(milliseconds{6000});
    plan.latency = milliseconds{4};
    plan.client.subject = subject;
    plan.client.threads = 6;
    return plan;
}

/// Many readers and some writers of one lock, beside coroutines that write.
RunPlan readers_and_writers() {
    RunPlan plan = crowded("shared");
    plan.client.coroutines = 2;
    plan.client.habits.polls = 10;
    return plan;
}

RunPlan permits() {
    RunPlan plan = crowded("permits");
    plan.client.habits.polls = 10;
    return plan;
}

/// Sets of several locks, in any order, beside single ones of the same.
RunPlan sets() {
    RunPlan plan = crowded("sets");
    plan.client.names = 4;
    plan.client.habits.wait = {milliseconds{500}, milliseconds{4000}};
    return plan;
}

std::vector<Scenario> make_scenarios() {
    return {{"hanging threads", hanging_threads()},
            {"slow observers", slow_observers()},
            {"shared holds", shared_holds()},
            {"short beside long leases", short_beside_long_leases()},
            {"stopped again and again", stopped_again_and_again()},
            {"mixed nests", mixed_nests()},
            {"ends amid calls", ends_amid_calls()},
            {"coroutines", coroutines()},
            {"readers and writers", readers_and_writers()},
            {"permits", permits()},
            {"sets", sets()}};
}

}  // namespace

const std::vector<Scenario>& all_scenarios() {
    static const std::vector<Scenario> scenarios = make_scenarios();
    return scenarios;
}

const Scenario& scenario(const std::string& name) {
    const auto found = std::ranges::find(all_scenarios(), name, &Scenario::name);
    if (found == all_scenarios().end()) throw std::invalid_argument{"no such scenario: " + name};
    return *found;
}

RunPlan common_plan(FaultClass faults, std::uint64_t seed) {
    RunPlan plan;
    plan.seed = seed;
    plan.faults = faults;
    plan.client.subject = "library";
    plan.client.slow_observer = seed % 2 == 1;
    plan.client.closes = seed / 2 % 2 == 1;
    return plan;
}

}  // namespace redlatch::test::fault
