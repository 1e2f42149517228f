#pragma once

#include "event.hpp"

#include <optional>
#include <string>
#include <vector>

namespace redlatch::test::fault {

/// What happened in a run, in the order of time.
using History = std::vector<Event>;

/// Reads all `*.jsonl` files of a folder. A last line that is cut off is left out; anything else that is
/// no event throws std::runtime_error.
[[nodiscard]] History read_history(const std::string& folder);

/// A call with its completion, or without one where it never came back. A fault is a call of the
/// injector's.
struct Call {
    Event invoke;
    std::optional<Event> completion;
};

/// All calls, in the order of their beginning, each with its first completion.
[[nodiscard]] std::vector<Call> calls_of(const History& history);

/// A piece of time, without its end.
struct Span {
    Time begin{};
    Time end{};

    [[nodiscard]] Time length() const { return end - begin; }
    friend bool operator==(const Span&, const Span&) = default;
};

/// How much of `whole` the spans cover; they may overlap each other.
[[nodiscard]] Time covered(Span whole, std::vector<Span> spans);

/// Sorted, and those that touch each other made one.
[[nodiscard]] std::vector<Span> merged(std::vector<Span> spans);

/// The injector's faults, each with `settle` of time for what follows it.
[[nodiscard]] std::vector<Span> disturbances(const History& history, Time settle);

/// The whole machine stood still: no fault of the injector's.
inline constexpr const char* standstill = "standstill";

/// When a process stood still (the injector's "freeze client"), or for most of the time ("stop and go"), or the
/// whole machine did.
[[nodiscard]] std::vector<Span> frozen_spans(const History& history, int process);

/// What clients were told before they were closed: holds that were left then ended with it.
[[nodiscard]] History until_closed(const History& history);

/// When the injector killed the process, if it did (the injector's "kill client").
[[nodiscard]] std::optional<Time> killed_at(const History& history, int process);

}  // namespace redlatch::test::fault
