#pragma once

#include "../history/history.hpp"
#include "support/raw_redis.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace redlatch::test::fault {

/// The resource that locks protect: one number per lock, at a server of its own that has no faults.
/// Whoever holds the lock reads the number and writes the next one. The store itself refuses what
/// comes after the writer's validity ("late") or after a writer with a higher fencing token
/// ("stale"), as a careful resource would, and keeps a log of all it was asked. One thread at a time.
class Store {
public:
    explicit Store(std::string_view address) : redis_{address} {}

    struct Write {
        std::string lock;
        int process = 0;
        std::uint64_t hold = 0;
        std::uint64_t fence = 0;  ///< 0 for none
        long long read = 0;       ///< what the writer had read
        Time at{};
        /// The store's own clock must not be later; zero for any time.
        std::chrono::microseconds not_after{0};
    };

    [[nodiscard]] long long read(const std::string& lock);

    /// The verdict: "accepted", "late" or "stale".
    std::string write(const Write& write);

    /// All writes so far, as notes of `Op::write`.
    [[nodiscard]] History log();

private:
    RawRedis redis_;
};

/// What the store's clock shows; for `not_after`.
[[nodiscard]] std::chrono::microseconds store_time();

}  // namespace redlatch::test::fault
