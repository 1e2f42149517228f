#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace redlatch::test::fault {

/// Time since the machine started, by the clock that the library goes by (CLOCK_BOOTTIME): the same
/// for all processes.
using Time = std::chrono::nanoseconds;

[[nodiscard]] Time now();

/// What an event is about.
enum class Op {
    acquire,   ///< the outermost acquisition of a hold
    nest,      ///< another acquisition by the thread that holds the lock
    extend,    ///< a lease set anew
    release,   ///< the end of one acquisition
    probe,     ///< a look at `held()` and `remaining()`: no I/O
    lost,      ///< `lost()` has fired; or "asked" for, or "not fired" for who asked after the end
    write,     ///< a change of the resource that the lock protects, as the store saw it
    close,     ///< the end of a client: all its waits end, and it has no lock any more
    fault,     ///< something that the injector did
    snapshot,  ///< what a process, or the server, has in use
};

enum class Stage {
    invoke,  ///< before a call, or a fault
    ok,      ///< after a call that did what was asked, or when a fault is over
    fail,    ///< after a call that did not
    note,    ///< something seen, without a duration
};

/// One line of a history. Fields that mean nothing for an event stay as they are here, and are not
/// written.
struct Event {
    Time at{};
    Op op{};
    Stage stage{};
    int process = 0;              ///< process id of the client; 0 for a server
    int thread = 0;               ///< thread id of the client
    std::uint64_t call = 0;       ///< pairs an invoke with its completion, within one process
    std::string lock{};           ///< its name
    std::string policy{};         ///< what the client takes it with
    std::uint64_t hold = 0;       ///< number of the outermost acquisition, within one process
    std::string token{};          ///< the owner's token
    std::uint64_t fence = 0;      ///< the fencing token; 0 for none
    std::optional<Time> limit{};  ///< the call has to be back by then
    std::optional<bool> held{};   ///< what `held()` said

    /// The validity that the client was told of: it ends between these two. `remaining()` rounds
    /// down, and the clock goes on while it is asked.
    std::optional<Time> valid_until{};
    std::optional<Time> valid_at_most{};

    std::string
        outcome{};         ///< name of a result, an error, a state, a fault, or the store's verdict
    std::string detail{};  ///< for people
    std::map<std::string, long long> counts{};
};

/// 0 where it does not say.
[[nodiscard]] long long count_of(const Event& event, const std::string& name);

/// One line of JSON, without a line end.
[[nodiscard]] std::string to_line(const Event& event);

/// Throws std::runtime_error for anything else than such a line.
[[nodiscard]] Event from_line(std::string_view line);

}  // namespace redlatch::test::fault
