#include "run.hpp"

#include "../checkers/completion.hpp"
#include "../checkers/exclusion.hpp"
#include "../checkers/fence_order.hpp"
#include "../checkers/honesty.hpp"
#include "../checkers/hygiene.hpp"
#include "../checkers/liveness.hpp"
#include "../checkers/ownership.hpp"
#include "../checkers/reentrant.hpp"
#include "../checkers/renewal.hpp"
#include "../checkers/store.hpp"
#include "../history/history.hpp"
#include "laboratory.hpp"
#include "run_folder.hpp"

#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>

namespace redlatch::test::fault {
namespace {

using std::chrono::milliseconds;

/// How much later than promised a call may be back on a busy machine.
constexpr milliseconds slack{3000};

/// How long an idle lock may wait for whoever stands in front: the next re-check.
constexpr milliseconds longest_recheck{2000};

/// For allocators and caches that are still filling up.
constexpr long long allowed_growth_kib = 24 * 1024;

const char* name_of(Op op) {
    switch (op) {
        case Op::acquire: return "acquire";
        case Op::nest: return "nest";
        case Op::extend: return "extend";
        case Op::release: return "release";
        case Op::write: return "write";
        case Op::lost: return "lost";
        case Op::close: return "close";
        default: return nullptr;
    }
}

std::map<std::string, long long> counts_of(const History& history) {
    std::map<std::string, long long> counts;
    for (const Event& event : history) {
        if (event.stage == Stage::invoke || name_of(event.op) == nullptr) continue;
        ++counts[std::string{name_of(event.op)} + " " + event.outcome];
    }
    return counts;
}

void add(Violations& to, Violations from) {
    for (Violation& violation : from) to.push_back(std::move(violation));
}

/// The faults after which a lock may be gone before its time.
std::vector<std::string> key_losses() {
    std::vector<std::string> names;
    for (const Fault& fault : all_faults()) {
        if (fault.of_class == FaultClass::outside) names.emplace_back(fault.name);
    }
    return names;
}

/// Locks exclude where the server keeps them; and where several masters have them, also while those restart
/// without: they have no vote then for as long as a lock may last.
bool excludes(const RunPlan& plan) {
    return plan.faults == FaultClass::inside || plan.masters > 1;
}

IdleLimits idle_limits(const RunPlan& plan) {
    milliseconds longest = plan.client.habits.longest_lease() + longest_recheck;
    if (plan.masters > 1) longest += plan.client.longest_lease();
    return {.longest = longest, .settle = longest + plan.client.command_timeout.most + slack};
}

/// Shorter leases may run out where the machine is busy with something else for as long as two thirds of
/// them.
RenewalLimits renewal_limits(const RunPlan& plan) {
    constexpr milliseconds shortest{1500};
    return {.shortest = shortest,
            .settle = plan.client.command_timeout.most + slack,
            .slow = plan.client.command_timeout.least / 2};
}

void check(const RunPlan& plan, const History& whole, RunReport& report) {
    const History history = until_closed(whole);
    Violations overlaps = check_exclusion(history);
    if (excludes(plan)) {
        add(report.violations, std::move(overlaps));
        add(report.violations, check_lost_updates(history));
    } else {
        report.overlaps = std::move(overlaps);
    }
    if (plan.faults == FaultClass::inside) {
        add(report.violations, check_honest_ends(history));
        add(report.violations, check_idle_locks(whole, idle_limits(plan)));
        add(report.violations, check_renewal(history, renewal_limits(plan)));
    }
    add(report.violations, check_completions(whole));
    add(report.violations, check_ownership(history, key_losses()));
    add(report.violations, check_fence_order(history));
    add(report.violations, check_fenced_store(history));
    add(report.violations, check_deadlines(whole, slack));
    add(report.violations, check_honesty(history, slack));
    add(report.violations, check_reentrancy(history));
    add(report.violations, check_hygiene(whole, allowed_growth_kib));
}

/// Fencing tokens follow the server's clock where their counter is lost. So either of both may happen
/// in a run, but no step of the clock between the loss and the next token.
/// Over several masters keys are lost by restarts only: nobody can tell that they were flushed.
/// A server that is silent for long leaves no time for anything else.
std::vector<std::string> left_out(const RunPlan& plan) {
    if (!plan.only.empty()) return {};
    const std::string silence = "freeze server for long";
    if (plan.masters > 1) return {silence, "step clock", "flush", "evict"};
    if (Dice{plan.seed}.percent(50)) return {silence, "step clock"};
    return {silence, "kill server and its data", "flush", "evict"};
}

/// Works in the laboratory, and writes the histories into the folder.
void work(const RunPlan& plan, const std::string& folder, RunReport& report) {
    ClientPlan client = plan.client;
    client.only_fences = !excludes(plan);
    Laboratory laboratory{{.folder = folder,
                           .seed = plan.seed,
                           .faults = plan.faults,
                           .stations = plan.stations,
                           .masters = plan.masters,
                           .client = client,
                           .latency = plan.latency,
                           .other_client = plan.other_client}};
    Injector injector{laboratory,
                      folder + "/faults.jsonl",
                      {.seed = plan.seed,
                       .faults = plan.faults,
                       .pause = plan.pause,
                       .only = plan.only,
                       .except = left_out(plan)}};
    for (int round = 0; round < plan.rounds; ++round) {
        if (plan.storm > milliseconds{0}) injector.storm(plan.storm);
        std::this_thread::sleep_for(plan.calm);
    }
    constexpr milliseconds stop_limit{20'000};
    for (std::string& trouble : laboratory.stop_clients(stop_limit)) {
        report.violations.push_back({"end", std::move(trouble), now()});
    }
    laboratory.note_servers(plan.client.habits.longest_lease() + 2 * slack);
    laboratory.save_store_log();
    for (const auto& [name, times] : injector.made()) report.faults[name] = times;
}

void print(std::ostream& out, const char* title, const std::map<std::string, long long>& counts) {
    long long all = 0;
    for (const auto& [name, count] : counts) all += count;
    out << title << ' ' << all;
    const char* separator = " (";
    for (const auto& [name, count] : counts) {
        out << std::exchange(separator, ", ") << name << ": " << count;
    }
    out << (counts.empty() ? "\n" : ")\n");
}

void print(std::ostream& out, const char* title, const Violations& violations) {
    constexpr std::size_t most = 40;
    out << title << ' ' << violations.size() << '\n';
    for (std::size_t i = 0; i < std::min(most, violations.size()); ++i) {
        out << "  " << violations[i] << '\n';
    }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const RunReport& report) {
    out << "seed " << report.seed << '\n';
    out << "events: " << report.events << '\n';
    print(out, "faults:", report.faults);
    print(out, "calls:", report.counts);
    if (!report.overlaps.empty()) {
        print(out, "overlaps, outside the promise:", report.overlaps);
    }
    print(out, "violations:", report.violations);
    if (!report.folder.empty()) out << "kept in " << report.folder << '\n';
    return out;
}

RunReport run(const RunPlan& plan) {
    RunFolder folder{std::to_string(plan.seed)};
    RunReport report;
    report.seed = plan.seed;
    work(plan, folder.path(), report);
    const History history = read_history(folder.path());
    report.events = history.size();
    report.counts = counts_of(history);
    check(plan, history, report);
    if (plan.keep && !report.violations.empty()) {
        folder.keep();
        report.folder = folder.path();
        std::ofstream{folder.path() + "/report.txt"} << report;
    }
    return report;
}

std::uint64_t seed_or(std::uint64_t otherwise) {
    const char* const seed = std::getenv("REDLATCH_FAULT_SEED");
    return seed == nullptr || *seed == '\0' ? otherwise : std::stoull(seed);
}

}  // namespace redlatch::test::fault
