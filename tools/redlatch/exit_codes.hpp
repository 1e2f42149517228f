#pragma once

#include <redlatch/error.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace tool {

/// Why the program ends by itself, and not with its command's code.
enum class Failure : std::size_t { usage, type, server, internal, busy, denied, lost };

/// The exit codes, which `-E name=code` changes. The defaults are those of sysexits.h where it has one.
class ExitCodes {
public:
    /// False for a name that there is not, or a code outside 0 to 255.
    bool set(std::string_view name, int code);

    int of(Failure failure) const { return codes_[static_cast<std::size_t>(failure)]; }
    int of(const redlatch::Error& error) const;

private:
    std::array<int, 7> codes_{64, 65, 69, 70, 75, 77, 79};
};

/// The shell's codes for a command that cannot be run, and for one that a signal has ended.
inline constexpr int not_executable = 126;
inline constexpr int not_found = 127;
inline constexpr int ended_by_signal(int signal) {
    return 128 + signal;
}

}  // namespace tool
