#pragma once

#include "support/socket.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace redlatch::test::fault {

/// The wall clock of a server that runs with `env()`: it shows the machine's time plus an offset.
class WallClock {
public:
    /// `file`: where the offset is kept; it lies in memory while this object lives.
    explicit WallClock(std::string file);
    ~WallClock();
    WallClock(const WallClock&) = delete;
    WallClock& operator=(const WallClock&) = delete;

    /// For `RedisServerOptions::env`.
    [[nodiscard]] std::map<std::string, std::string> env() const;

    void set(std::chrono::microseconds offset);

private:
    std::string file_;
    volatile std::int64_t* offset_;
};

}  // namespace redlatch::test::fault
