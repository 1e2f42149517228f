#pragma once

#include "support/temp_folder.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace redlatch::test {

/// The wall clock of a redis-server that stands still until the test moves it, so that a run of many
/// leases takes no time and goes the same way each time. Start the server with `env()`.
class StillClock {
public:
    StillClock();
    ~StillClock();
    StillClock(const StillClock&) = delete;
    StillClock& operator=(const StillClock&) = delete;

    [[nodiscard]] std::map<std::string, std::string> env() const;

    /// Microseconds since 1970.
    [[nodiscard]] std::int64_t now() const { return *shown_; }
    void advance(std::chrono::microseconds time) { *shown_ = *shown_ + time.count(); }

private:
    TempFolder folder_;
    volatile std::int64_t* shown_ = nullptr;  // in a file that the server maps, too
};

}  // namespace redlatch::test
