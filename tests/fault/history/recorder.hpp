#pragma once

#include "event.hpp"
#include "support/socket.hpp"

#include <atomic>
#include <cstdint>
#include <string>

namespace redlatch::test::fault {

/// Writes one process's events to a file, each with a single write: what was written before a
/// SIGKILL is there, and at most the last line is cut. Thread-safe.
class Recorder {
public:
    /// Throws std::system_error where the file cannot be made.
    explicit Recorder(const std::string& path);

    /// Fills in the process, the thread and, where it is zero, the time.
    void write(Event event);

    /// A number for a call or a hold that this process has not used yet.
    [[nodiscard]] std::uint64_t next_number() { return ++numbers_; }

private:
    UniqueFd file_;
    std::atomic<std::uint64_t> numbers_{0};
};

}  // namespace redlatch::test::fault
