#pragma once

#include <redlatch/compilation.hpp>

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace redlatch::inline v0::detail {

/// The id of this process, without asking the kernel: each call of a lock compares it, to notice
/// that it runs in a forked child, and `getpid` costs a quarter of a microsecond. A child that was
/// made by a bare `clone` is not noticed.
class ProcessId {
public:
    static ::pid_t of_this_process() noexcept {
        return kept_up_to_date ? latest.load(std::memory_order_relaxed) : ::getpid();
    }

private:
    static void read() noexcept { latest.store(::getpid(), std::memory_order_relaxed); }

    static bool keep_up_to_date() noexcept {
        read();
        return ::pthread_atfork(nullptr, nullptr, &read) == 0;
    }

    static inline std::atomic<::pid_t> latest{0};
    // From before `main`, and false till then. At the first use it would be made under a lock, and
    // a child that was forked right then would wait for it for ever.
    static inline const bool kept_up_to_date = keep_up_to_date();
};

}  // namespace redlatch::inline v0::detail
