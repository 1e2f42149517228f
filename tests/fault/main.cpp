// Runs the laboratory from the command line. Prints the seed and what was done before it says whether
// a promise was broken; the exit code is 1 if so.

#include "lab/controls.hpp"
#include "lab/run.hpp"
#include "lab/scenarios.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>

namespace redlatch::test::fault {
namespace {

constexpr const char* usage = R"(fault_laboratory [option value]...
  --seconds N     how long in all (60)
  --seed N        which faults (random)
  --class NAME    inside or outside the promise (inside)
  --masters N     servers of which a majority decides (1)
  --subject NAME  library, or a seeded bug (library)
  --fault NAME    only this one, may stand several times (all of the class)
  --beside PATH   a fault_client of another version; every second client runs it
fault_laboratory scenario NAME [seed]
  a run of its own kind; "all" for all of them
fault_laboratory controls [seed]
  lets the seeded bugs run, and fails unless the checkers find each of them
)";

struct Arguments {
    RunPlan plan;
    std::chrono::milliseconds time{60'000};
};

FaultClass class_named(const std::string& name) {
    if (name == "inside") return FaultClass::inside;
    if (name == "outside") return FaultClass::outside;
    throw std::invalid_argument{"no such class: " + name};
}

Arguments read(int argc, char** argv) {
    Arguments arguments;
    arguments.plan.client.subject = "library";
    std::uint64_t seed = std::random_device{}();
    for (int i = 1; i < argc; i += 2) {
        const std::string option = argv[i];
        if (i + 1 == argc) throw std::invalid_argument{option + " needs a value"};
        const std::string value = argv[i + 1];
        if (option == "--seconds") {
            arguments.time = std::chrono::seconds{std::stol(value)};
        } else if (option == "--seed") {
            seed = std::stoull(value);
        } else if (option == "--class") {
            arguments.plan.faults = class_named(value);
        } else if (option == "--masters") {
            arguments.plan.masters = std::stoul(value);
        } else if (option == "--subject") {
            arguments.plan.client.subject = value;
        } else if (option == "--fault") {
            arguments.plan.only.push_back(value);
        } else if (option == "--beside") {
            arguments.plan.other_client = value;
        } else {
            throw std::invalid_argument{"no such option: " + option};
        }
    }
    const RunPlan common = common_plan(arguments.plan.faults, seed);
    arguments.plan.seed = seed;
    arguments.plan.client.slow_observer = common.client.slow_observer;
    arguments.plan.client.closes = common.client.closes;
    return arguments;
}

/// Storms and calms of which each is long enough for what it is for.
void share_out(Arguments& arguments) {
    constexpr std::chrono::milliseconds round{25'000};
    constexpr std::chrono::milliseconds calm{10'000};
    RunPlan& plan = arguments.plan;
    if (arguments.time < round) {
        plan.calm = arguments.time / 4;
        plan.storm = arguments.time - plan.calm;
        return;
    }
    plan.rounds = static_cast<int>(arguments.time / round);
    plan.calm = calm;
    plan.storm = arguments.time / plan.rounds - calm;
}

int run_controls(std::uint64_t seed) {
    int missed = 0;
    std::cout << "seed " << seed << std::endl;
    for (const Control& control : all_controls()) {
        std::ostringstream report;
        const bool found = is_found(control, seed, report);
        std::cout << (found ? "found:  " : "MISSED: ") << control.subject << std::endl;
        if (found) continue;
        ++missed;
        std::cout << report.str();
    }
    return missed == 0 ? 0 : 1;
}

int run_scenarios(const std::string& name, std::uint64_t seed) {
    if (name != "all") static_cast<void>(scenario(name));  // throws where there is none
    bool clean = true;
    for (const Scenario& each : all_scenarios()) {
        if (name != "all" && name != each.name) continue;
        RunPlan plan = each.plan;
        plan.seed = seed;
        const RunReport report = run(plan);
        std::cout << each.name << ": " << report;
        clean = clean && report.violations.empty();
    }
    return clean ? 0 : 1;
}

int run_laboratory(Arguments arguments) {
    share_out(arguments);
    std::cout << "seed " << arguments.plan.seed << std::endl;
    const RunReport report = run(arguments.plan);
    std::cout << report;
    return report.violations.empty() ? 0 : 1;
}

}  // namespace
}  // namespace redlatch::test::fault

int main(int argc, char** argv) try {
    using namespace redlatch::test::fault;
    if (argc > 1 && std::string{argv[1]} == "controls") {
        return run_controls(argc > 2 ? std::stoull(argv[2]) : std::random_device{}());
    }
    if (argc > 2 && std::string{argv[1]} == "scenario") {
        return run_scenarios(argv[2], argc > 3 ? std::stoull(argv[3]) : std::random_device{}());
    }
    return run_laboratory(read(argc, argv));
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n%s", error.what(), redlatch::test::fault::usage);
    return 2;
}
