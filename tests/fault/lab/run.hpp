#pragma once

#include "../checkers/violation.hpp"
#include "faults.hpp"
#include "injector.hpp"
#include "plan.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace redlatch::test::fault {

/// One run of the laboratory.
struct RunPlan {
    std::uint64_t seed = 1;
    FaultClass faults = FaultClass::inside;
    std::chrono::milliseconds storm{5000};  ///< with faults
    std::chrono::milliseconds calm{1000};   ///< without, behind them
    int rounds = 1;                         ///< of both
    std::size_t stations = 3;
    std::size_t masters = 1;               ///< servers of which a majority decides
    ClientPlan client{};                   ///< the subject, the threads, their habits
    std::chrono::milliseconds latency{0};  ///< of all links, each way
    Range pause{std::chrono::milliseconds{5}, std::chrono::milliseconds{120}};
    std::vector<std::string> only{};  ///< names of faults; empty: all of the class
    std::string other_client{};  ///< a program; every second client runs it, of another version
    bool keep = true;            ///< the histories of a run with violations
};

/// What came of it.
struct RunReport {
    std::uint64_t seed = 0;
    Violations violations;
    Violations overlaps;     ///< outside the promise: counted, no violation
    std::string folder;      ///< histories and the injector's log, if they were kept
    std::size_t events = 0;  ///< in all histories
    std::map<std::string, long long> faults;  ///< how often each was made
    std::map<std::string, long long> counts;  ///< what the clients did, and how it ended
};

std::ostream& operator<<(std::ostream& out, const RunReport& report);

/// Runs it and checks the history. On a violation the histories stay in a folder of their own below
/// the folder for temporary files, with a file `report.txt`; otherwise they are removed. Has to be
/// called by the main thread.
[[nodiscard]] RunReport run(const RunPlan& plan);

/// The seed that the environment's REDLATCH_FAULT_SEED asks for, or else this one.
[[nodiscard]] std::uint64_t seed_or(std::uint64_t otherwise);

}  // namespace redlatch::test::fault
