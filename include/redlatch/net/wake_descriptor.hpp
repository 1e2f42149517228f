#pragma once

#include <redlatch/net/descriptor.hpp>
#include <redlatch/net/no_cancellation.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace redlatch::inline v0::detail {

/// Ends the `poll` of one thread. Any thread may ring, also before that `poll` begins.
class WakeDescriptor {
public:
    /// To be called before the first use. False where the system has no descriptor to give.
    bool open() noexcept {
        if (!descriptor_.valid())
            descriptor_ = Descriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
        return descriptor_.valid();
    }

    /// To be called after the last use.
    void close() noexcept { descriptor_ = Descriptor{}; }

    void ring() const noexcept {
        const NoCancellation uncancelled;
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(descriptor_.get(), &one, sizeof one);
    }

    pollfd entry() const noexcept {
        return {.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
    }

    /// Forgets who has rung so far.
    void reset() const noexcept {
        const NoCancellation uncancelled;
        std::uint64_t rings = 0;
        [[maybe_unused]] const ssize_t n = ::read(descriptor_.get(), &rings, sizeof rings);
    }

private:
    Descriptor descriptor_;
};

}  // namespace redlatch::inline v0::detail
