#pragma once

#include "../history/history.hpp"
#include "../history/recorder.hpp"

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace redlatch::test::fault {

/// Writes down when the machine gave nobody any time: a thread that sleeps for a moment and wakes up far too
/// late.
class StandstillWatch {
public:
    explicit StandstillWatch(const std::string& file) : recorder_{file} {}

private:
    void run(const std::stop_token& stop) {
        constexpr std::chrono::milliseconds nap{20};
        constexpr std::chrono::milliseconds too_long{200};
        while (!stop.stop_requested()) {
            const Time asleep = now();
            std::this_thread::sleep_for(nap);
            const Time awake = now();
            if (awake - asleep > too_long) note(asleep, awake);
        }
    }

    void note(Time begin, Time end) {
        Event event;
        event.op = Op::fault;
        event.outcome = standstill;
        constexpr std::uint64_t first = 1'000'000'000;  // the injector counts in the same process
        event.call = first + recorder_.next_number();
        for (const auto& [at, stage] :
             {std::pair{begin, Stage::invoke}, std::pair{end, Stage::ok}}) {
            event.at = at;
            event.stage = stage;
            recorder_.write(event);
        }
    }

    Recorder recorder_;
    std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

}  // namespace redlatch::test::fault
