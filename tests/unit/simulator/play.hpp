#pragma once

#include "shrink.hpp"
#include "simulation.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace redlatch::test::simulator {

/// For all schedules: it takes a while to open Lua.
inline const std::vector<std::unique_ptr<ModelRedis>>& models() {
    static const auto made = [] {
        std::vector<std::unique_ptr<ModelRedis>> models;
        for (std::size_t i = 0; i < most_masters; ++i) {
            models.push_back(std::make_unique<ModelRedis>());
        }
        return models;
    }();
    return made;
}

inline std::uint64_t& played_steps() {
    static std::uint64_t steps = 0;
    return steps;
}

/// What was wrong in a schedule; nothing where all was well.
inline std::optional<std::string> violation(const Plan& plan, std::string* trace = nullptr) {
    Simulation simulation{plan, models(), trace != nullptr};
    std::optional<std::string> wrong;
    try {
        simulation.run();
    } catch (const Violation& violation) {
        wrong = violation.what();
    }
    played_steps() += simulation.steps();
    if (trace != nullptr) *trace = simulation.trace();
    return wrong;
}

/// The promise, without the token that it is about.
inline std::string kind_of(const std::string& wrong) {
    return wrong.substr(0, wrong.find(':'));
}

/// The smallest plan that fails in that way, and how.
inline std::string smallest(const Plan& plan, const std::string& kind) {
    const auto fails = [&kind](const Plan& changed) {
        const auto wrong = violation(changed);
        return wrong && kind_of(*wrong) == kind;
    };
    const Plan small = Shrinker{plan, fails}.run();
    std::string trace;
    const auto wrong = violation(small, &trace);
    std::ostringstream text;
    text << wrong.value_or("it did not fail again") << "\nThe smallest plan that fails:\n"
         << small << trace;
    return text.str();
}

}  // namespace redlatch::test::simulator
