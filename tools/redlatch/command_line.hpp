#pragma once

#include "exit_codes.hpp"
#include <redlatch/redlatch.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tool {

enum class Verb { run, status, remove, help, version };

/// Of a lock that many may read and one may write: how it is taken.
enum class Sharing { none, reads, writes };

/// What the user asks for.
struct Settings {
    Verb verb = Verb::help;
    std::vector<std::string> names;    ///< the locks'; one but for `run`
    std::vector<std::string> command;  ///< `run`: the program and its arguments
    std::vector<std::string> uris;
    bool server_is_named = true;  ///< as opposed to the default one
    redlatch::Wait wait = redlatch::Wait::unlimited();
    std::chrono::milliseconds lease{std::chrono::seconds{10}};
    std::chrono::milliseconds kill_after{std::chrono::seconds{10}};
    std::chrono::milliseconds at_least{0};
    std::optional<std::chrono::milliseconds> longest_lease{};
    std::optional<std::ptrdiff_t> permits;  ///< a semaphore of so many
    Sharing sharing = Sharing::none;
    std::optional<std::string> key_space;
    bool fenced = true;
    bool stoppable = false;  ///< a stop signal from the terminal stops the command
    bool json = false;
    bool yes = false;
    bool quiet = false;
    bool verbose = false;
    ExitCodes codes;
};

/// The arguments make no sense: `what()` says which.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Reads the arguments into `settings`, those before a mistake too. The URIs come from the arguments and the
/// files that they name, in that order, else from the environment's REDLATCH_URI, else they are
/// `redis://127.0.0.1:6379`, unless REDLATCH_URI was kept from this program. Throws `UsageError`.
void read_command_line(int argc, char** argv, Settings& settings);

/// The text of `--help`.
const char* help_text();

}  // namespace tool
