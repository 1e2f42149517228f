#include "standard_error.hpp"

#include "child.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>

namespace tool {

namespace {

using SteadyClock = std::chrono::steady_clock;

/// A terminal is ready where it has room for one byte, and a write then waits until it has taken all. So a terminal
/// or a pipe is opened anew, not to block: standard error itself is the command's too, and of others, for whom it is
/// to block. Nothing where that cannot be done, and for a file, where a new description would write over what there
/// is.
Descriptor opened_anew() {
    struct stat status {};
    if (::fstat(STDERR_FILENO, &status) != 0) return Descriptor{};
    if (!S_ISCHR(status.st_mode) && !S_ISFIFO(status.st_mode)) return Descriptor{};
    return Descriptor{::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
}

bool is_ready_before(SteadyClock::time_point end, int fd) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - SteadyClock::now());
    pollfd entry{fd, POLLOUT, 0};
    return ::poll(&entry, 1, std::max(static_cast<int>(left.count()), 0)) != 0;
}

/// A line break, which is two characters to a terminal, may not fit where the terminal is ready.
void wait_a_little() {
    constexpr int pause_ms = 5;
    ::poll(nullptr, 0, pause_ms);
}

}  // namespace

void write_what_is_taken(std::string_view text) {
    constexpr std::chrono::milliseconds patience{100};
    const Descriptor own = opened_anew();
    const int fd = own.get() >= 0 ? own.get() : STDERR_FILENO;
    const auto end = SteadyClock::now() + patience;
    // At least once, also where the machine stood still.
    do {
        if (!is_ready_before(end, fd)) return;
        // A part that fits into a pipe where that is ready.
        const ssize_t n = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
        if (n < 0 && errno == EAGAIN) wait_a_little();
        if (n < 0 && errno != EAGAIN && errno != EINTR) return;
        if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
    } while (!text.empty() && SteadyClock::now() < end);
}

}  // namespace tool
