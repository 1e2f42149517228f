#pragma once

#include "../history/history.hpp"
#include "../history/recorder.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace redlatch::test::fault {

/// Writes down when the machine gave others no time: a thread that sleeps for a moment and then asks a server, over a
/// link without faults, and is answered far too late. Server and link are few threads among the many of all clients.
class StandstillWatch {
public:
    /// `server`: the address of one that does next to nothing.
    StandstillWatch(const std::string& file, std::string_view server)
        : recorder_{file}, link_{server}, server_{link_.uri(), std::chrono::minutes{5}} {}

private:
    void run(const std::stop_token& stop) {
        constexpr std::chrono::milliseconds nap{20};
        constexpr std::chrono::milliseconds too_long{200};
        while (!stop.stop_requested()) {
            const Time asleep = now();
            std::this_thread::sleep_for(nap);
            static_cast<void>(server_.command({"PING"}));
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
    Proxy link_;
    RawRedis server_;
    std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

}  // namespace redlatch::test::fault
