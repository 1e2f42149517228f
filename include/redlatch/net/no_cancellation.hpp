#pragma once

#include <redlatch/compilation.hpp>

#include <pthread.h>

namespace redlatch::inline v0::detail {

/// While it lives, this thread is not cancelled: for system calls in code that a cancellation may not leave,
/// such as a destructor.
class NoCancellation {
public:
    NoCancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;
    ~NoCancellation() { ::pthread_setcancelstate(before_, nullptr); }

private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace redlatch::inline v0::detail
