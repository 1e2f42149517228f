#pragma once

#include <redlatch/error.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/net/stream.hpp>

#include <hiredis/hiredis.h>

#include <poll.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

#if HIREDIS_MAJOR >= 1

/// Keeps a SIGPIPE that this thread causes from the process, whose signals are its own business.
class NoSigpipe {
public:
    NoSigpipe() noexcept {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    NoSigpipe(const NoSigpipe&) = delete;
    NoSigpipe& operator=(const NoSigpipe&) = delete;
    ~NoSigpipe() {
        const int kept = errno;
        constexpr timespec at_once{};
        if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = kept;
    }

private:
    sigset_t pipe_{};
    sigset_t before_{};
    bool was_pending_ = false;
};

/// A connection whose bytes hiredis carries by other means than the socket: its TLS, or the user's
/// own functions. hiredis does not say what it waits for, so that is taken to be the obvious.
class HiredisStream final : public Stream {
public:
    /// Nothing for a context that reads and writes its socket.
    static std::unique_ptr<Stream> of(redisContext* context) {
        const ContextPtr plain{redisConnectFd(-1)};
        if (plain == nullptr || plain->funcs == context->funcs) return nullptr;
        return std::make_unique<HiredisStream>(context);
    }

    explicit HiredisStream(redisContext* context) : context_(context) {
        context_->flags &= ~REDIS_BLOCK;  // "later" is no error then
    }

    ssize_t write(std::string_view bytes) override {
        const NoSigpipe no_signal;
        const bool again = std::exchange(kept_, false);
        if (!again &&
            redisAppendFormattedCommand(context_, bytes.data(), bytes.size()) != REDIS_OK) {
            return fail();
        }
        int done = 0;
        if (redisBufferWrite(context_, &done) != REDIS_OK) return fail();
        if (done != 0) return static_cast<ssize_t>(bytes.size());
        kept_ = true;
        errno = EAGAIN;
        return -1;
    }

    ssize_t read(std::span<char> buffer, bool) override {
        const NoSigpipe no_signal;  // TLS answers some of what it reads
        const ssize_t n = context_->funcs->read(context_, buffer.data(), buffer.size());
        if (n > 0) return n;
        if (n < 0) return context_->err == REDIS_ERR_EOF ? 0 : fail();
        errno = EAGAIN;
        return -1;
    }

    short read_awaits() const override { return POLLIN; }
    short write_awaits() const override { return POLLOUT; }
    Fault fault() const override { return io_fault(printable(context_->errstr)); }

private:
    static ssize_t fail() {
        errno = EPROTO;
        return -1;
    }

    redisContext* context_;
    bool kept_ = false;  // hiredis has the bytes given last, and not sent all of them
};

inline std::unique_ptr<Stream> stream_of(redisContext* context) {
    return HiredisStream::of(context);
}

#else

/// This hiredis reads and writes sockets only.
inline std::unique_ptr<Stream> stream_of(redisContext*) {
    return nullptr;
}

#endif

}  // namespace redlatch::inline v0::detail
