#pragma once

#include "../history/recorder.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace redlatch::test::fault {

/// Looks at the tokens of holds, and writes down when they fire: also where the holder hangs and the
/// library's own callbacks do.
class LossWatch {
public:
    explicit LossWatch(Recorder& recorder)
        : recorder_{&recorder}, thread_{[this](const std::stop_token& stop) { run(stop); }} {}

    /// `facts`: of the hold that `lost` belongs to.
    void add(Event facts, std::stop_token lost) {
        facts.op = Op::lost;
        facts.stage = Stage::note;
        note(facts, "asked");
        const std::lock_guard lock{mutex_};
        watched_[facts.hold] = {std::move(facts), std::move(lost)};
    }

    /// The holder ends the hold, so that nobody has to hear of a loss.
    void remove(std::uint64_t hold) {
        const std::lock_guard lock{mutex_};
        const auto found = watched_.find(hold);
        if (found == watched_.end()) return;
        if (found->second.lost.stop_requested()) note(found->second.facts, "");
        watched_.erase(found);
    }

private:
    struct Watched {
        Event facts;
        std::stop_token lost;
    };

    void run(const std::stop_token& stop) {
        std::unique_lock lock{mutex_};
        while (!stop.stop_requested()) {
            std::erase_if(watched_, [this](const auto& entry) {
                if (!entry.second.lost.stop_requested()) return false;
                note(entry.second.facts, "");
                return true;
            });
            wake_.wait_for(lock, stop, std::chrono::milliseconds{5}, [] { return false; });
        }
    }

    void note(Event event, const char* outcome) {
        event.outcome = outcome;
        event.at = now();
        recorder_->write(std::move(event));
    }

    Recorder* recorder_;
    std::mutex mutex_;
    std::map<std::uint64_t, Watched> watched_;
    std::condition_variable_any wake_;
    std::jthread thread_;
};

}  // namespace redlatch::test::fault
