#pragma once

#include <redlatch/core/fault.hpp>

#include <sys/types.h>

#include <span>
#include <string_view>

namespace redlatch::inline v0::detail {

/// What carries a connection's bytes where that is more than its socket, such as TLS. Waits for
/// nothing but what `block` allows. One thread at a time.
class Stream {
public:
    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    virtual ~Stream() = default;

    /// How many bytes were taken; -1 where it was none, with `errno`: EAGAIN where the socket has to
    /// become ready first. Raises no SIGPIPE and does not block.
    virtual ssize_t write(std::string_view bytes) = 0;

    /// How many bytes have come; 0 at the end, -1 where there are none, as above. With `block`, may
    /// wait as long as the socket's own limit allows.
    virtual ssize_t read(std::span<char> buffer, bool block) = 0;

    /// What to wait for, as `poll` says it, before the next read can go on. The last one may have had to write,
    /// for example to agree on new keys.
    virtual short read_awaits() const = 0;

    /// The same for the next write, which may have to read first.
    virtual short write_awaits() const = 0;

    /// After any other error: what went wrong.
    virtual Fault fault() const = 0;
};

}  // namespace redlatch::inline v0::detail
