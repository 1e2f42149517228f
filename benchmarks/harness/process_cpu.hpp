#pragma once

#include "harness/statistics.hpp"

#include <sys/types.h>
#include <time.h>

#include <chrono>
#include <stdexcept>

namespace redlatch::bench {

/// CPU time of a process so far, of its threads and its time in the kernel, to the nanosecond and
/// without its help. (/proc counts in hundredths of a second, getrusage knows only the own one.)
inline Seconds cpu_of_process(pid_t process) {
    clockid_t clock = 0;
    timespec time{};
    if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) {
        throw std::runtime_error{"no CPU clock of a process"};
    }
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

}  // namespace redlatch::bench
