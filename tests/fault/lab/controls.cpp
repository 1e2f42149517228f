#include "controls.hpp"

#include <algorithm>
#include <utility>

namespace redlatch::test::fault {
namespace {

using std::chrono::milliseconds;

/// Short leases of one lock, nothing but what the bug needs.
Control control(std::string subject, std::string found_by, Habits habits,
                std::vector<std::string> faults) {
    RunPlan plan;
    plan.client.subject = subject;
    plan.client.coroutines = 0;
    plan.client.names = 1;
    plan.client.command_timeout = {milliseconds{250}, milliseconds{250}};
    plan.client.habits = habits;
    plan.storm = milliseconds{2000};
    plan.calm = milliseconds{0};
    plan.pause = {milliseconds{1}, milliseconds{10}};
    plan.only = std::move(faults);
    plan.keep = false;
    return {std::move(subject), std::move(found_by), std::move(plan)};
}

Habits hasty() {
    Habits habits;
    habits.lease = {milliseconds{120}, milliseconds{250}};
    habits.wait = {milliseconds{500}, milliseconds{2000}};
    habits.work = {milliseconds{0}, milliseconds{20}};
    habits.no_wait = 0;
    habits.polls = 100;
    habits.nests = 0;
    habits.extends = 0;
    habits.lingers = 0;
    return habits;
}

/// Mistakes that only an asynchronous client makes.
Control asynchronous(std::string subject, std::string found_by, const Habits& habits,
                     milliseconds time) {
    Control result = control(std::move(subject), std::move(found_by), habits, {});
    result.plan.client.threads = 0;
    result.plan.client.coroutines = 3;
    result.plan.storm = milliseconds{0};
    result.plan.calm = time;
    return result;
}

void add_asynchronous(std::vector<Control>& controls) {
    controls.push_back(asynchronous("completes twice", "completion", hasty(), milliseconds{1000}));

    controls.push_back(
        asynchronous("delivers what is over", "completion", hasty(), milliseconds{1000}));

    Habits habits = hasty();
    habits.wait = {milliseconds{200}, milliseconds{500}};
    controls.push_back(asynchronous("completes late", "deadline", habits, milliseconds{6000}));

    // What is delivered late lasts for less than a lease from then on.
    habits = hasty();
    habits.stalls = 30;
    habits.lingers = 80;
    controls.push_back(
        asynchronous("validity from the delivery", "exclusion", habits, milliseconds{3000}));

    habits = hasty();
    habits.polls = 0;
    habits.wait = {milliseconds{4000}, milliseconds{4500}};
    habits.abandons = 30;
    controls.push_back(
        asynchronous("keeps what nobody takes", "idle lock", habits, milliseconds{6000}));
}

std::vector<Control> make_controls() {
    std::vector<Control> controls;
    controls.push_back(control("release by DEL", "exclusion", hasty(), {"lost replies"}));

    Habits habits = hasty();
    habits.lingers = 80;
    controls.push_back(
        control("validity from the reply", "exclusion", habits, {"late replies", "delay"}));

    // Where keys are lost, a lock is another's before the validity of its holder is over. Who tries only
    // once took it certainly after the loss.
    habits = hasty();
    habits.lease = {milliseconds{400}, milliseconds{800}};
    habits.work = {milliseconds{20}, milliseconds{60}};
    habits.no_wait = 100;
    habits.extends = 100;
    Control extend = control("extend without owner check", "ownership", habits, {"flush"});
    extend.plan.faults = FaultClass::outside;
    extend.plan.pause = {milliseconds{20}, milliseconds{60}};
    controls.push_back(std::move(extend));

    controls.push_back(control("reused token", "exclusion", hasty(), {"lost replies"}));

    habits = hasty();
    habits.nests = 100;
    habits.work = {milliseconds{10}, milliseconds{60}};
    controls.push_back(control("relative count", "exclusion", habits, {"lost replies"}));

    Control counter = control("fence from a counter alone", "fence order", hasty(), {"flush"});
    counter.plan.faults = FaultClass::outside;
    controls.push_back(std::move(counter));

    // Two of the three masters have to be restarted within one hold, also where that takes them long.
    habits = hasty();
    habits.lease = {milliseconds{1000}, milliseconds{2000}};
    habits.work = {milliseconds{300}, milliseconds{900}};
    Control vote =
        control("vote after a restart", "exclusion", habits, {"kill server and its data"});
    vote.plan.storm = milliseconds{3000};
    vote.plan.client.trusts_masters = true;
    vote.plan.masters = 3;
    vote.plan.faults = FaultClass::outside;
    controls.push_back(std::move(vote));

    habits = hasty();
    habits.polls = 0;
    habits.wait = {milliseconds{4000}, milliseconds{4500}};
    Control silent = control("silent release", "idle lock", habits, {});
    silent.plan.storm = milliseconds{0};
    silent.plan.calm = milliseconds{3500};
    controls.push_back(std::move(silent));

    habits = hasty();
    habits.hangs = 100;
    Control deaf = control("deaf", "honesty", habits, {});
    deaf.plan.storm = milliseconds{0};
    deaf.plan.calm = milliseconds{6000};
    controls.push_back(std::move(deaf));

    habits = hasty();
    habits.lastingly = 100;
    habits.lingers = 100;
    Control unwatched = control("unwatched", "renewal", habits, {});
    unwatched.plan.storm = milliseconds{0};
    unwatched.plan.calm = milliseconds{4500};
    controls.push_back(std::move(unwatched));
    add_asynchronous(controls);
    for (const char* subject :
         {"a writer beside readers", "a permit too many", "a part of a set"}) {
        habits = hasty();
        habits.work = {milliseconds{10}, milliseconds{60}};
        Control crowded = control(subject, "exclusion", habits, {});
        crowded.plan.client.names = 2;
        crowded.plan.storm = milliseconds{0};
        crowded.plan.calm = milliseconds{2000};
        controls.push_back(std::move(crowded));
    }
    return controls;
}

}  // namespace

const std::vector<Control>& all_controls() {
    static const std::vector<Control> controls = make_controls();
    return controls;
}

bool is_found(const Control& control, std::uint64_t seed, std::ostream& out) {
    // Each try finds it with a chance of about one half. A busy machine gets less done in the same time:
    // later tries are longer.
    constexpr int tries = 20;
    for (int i = 0; i < tries; ++i) {
        RunPlan plan = control.plan;
        plan.seed = seed + static_cast<std::uint64_t>(i);
        plan.storm *= 1 + i / 5;
        plan.calm *= 1 + i / 5;
        const RunReport report = run(plan);
        const bool found = std::ranges::any_of(
            report.violations,
            [&control](const Violation& violation) { return violation.check == control.found_by; });
        if (found || i == tries - 1) out << report;
        if (found) return true;
    }
    return false;
}

}  // namespace redlatch::test::fault
