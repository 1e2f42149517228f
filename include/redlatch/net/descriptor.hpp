#pragma once

#include <redlatch/net/no_cancellation.hpp>
#include <redlatch/net/process_sockets.hpp>

#include <unistd.h>

#include <utility>

namespace redlatch::inline v0::detail {

/// A file descriptor, owned.
class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() {
        if (fd_ < 0) return;
        const NoCancellation uncancelled;
        ProcessSockets::remove(fd_);
        ::close(fd_);
    }

    int get() const noexcept { return fd_; }
    bool valid() const noexcept { return fd_ >= 0; }
    int release() noexcept { return std::exchange(fd_, -1); }

private:
    int fd_ = -1;
};

}  // namespace redlatch::inline v0::detail
