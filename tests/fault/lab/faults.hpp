#pragma once

#include "dice.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace redlatch::test::fault {

class Laboratory;

/// Which promises hold while a fault is on.
enum class FaultClass {
    inside,   ///< the server keeps its keys and its clock: locks exclude
    outside,  ///< keys are lost, or clocks step: only a fenced store is safe
};

/// What a fault hits; it has one fault at a time.
enum class Victim { link, client, server };

/// Where a fault hits, and for how long.
struct Attack {
    std::size_t station = 0;
    std::size_t server = 0;
    std::chrono::milliseconds duration{0};
};

/// A kind of fault.
struct Fault {
    const char* name;
    Victim victim;
    FaultClass of_class;
    Range duration;  ///< 0: it is over at once

    /// Begins it. Returns what ends it after its time, or nothing.
    std::function<std::function<void()>(Laboratory&, const Attack&, Dice&)> begin;
};

/// All kinds, by victim.
[[nodiscard]] const std::vector<Fault>& all_faults();

}  // namespace redlatch::test::fault
