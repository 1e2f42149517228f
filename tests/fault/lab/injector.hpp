#pragma once

#include "../history/recorder.hpp"
#include "dice.hpp"
#include "faults.hpp"

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace redlatch::test::fault {

class Laboratory;

/// Begins and ends faults by chance, and writes down each. The seed decides which, where, and for how
/// long; when exactly they hit is up to the machine.
class Injector {
public:
    struct Setup {
        std::uint64_t seed = 0;
        FaultClass faults = FaultClass::inside;
        Range pause{std::chrono::milliseconds{5}, std::chrono::milliseconds{120}};
        std::vector<std::string> only{};    ///< names of faults; empty: all
        std::vector<std::string> except{};  ///< of those
    };

    Injector(Laboratory& laboratory, std::string log, const Setup& setup);

    /// Makes faults for so long, and ends them all.
    void storm(std::chrono::milliseconds duration);

    /// How often each fault was made.
    [[nodiscard]] const std::map<std::string, int>& made() const { return made_; }

private:
    /// What a fault hits. The number is 0 where it says nothing.
    struct Place {
        Victim victim;
        std::size_t station;
        std::size_t server;

        friend auto operator<=>(const Place&, const Place&) = default;
    };
    struct Active {
        Event begun;
        Time ends_at;
        std::function<void()> end;
    };

    void begin_one();
    void begin_at(const Fault& fault, const Place& place);
    void write_end(Event event);
    void end_due(Time moment);
    [[nodiscard]] Time next_end() const;

    Laboratory* laboratory_;
    Recorder recorder_;
    Setup setup_;
    Dice dice_;
    std::vector<const Fault*> choice_;
    std::map<Place, Active> active_;
    std::map<std::string, int> made_;
};

}  // namespace redlatch::test::fault
