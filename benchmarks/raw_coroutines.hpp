#pragma once

#include "compare.hpp"
#include "coroutines.hpp"
#include "raw_connection.hpp"
#include <redlatch/redlatch.hpp>

#include <hiredis/async.h>

#include <poll.h>

#include <array>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace redlatch::bench {

/// What one writes by hand on hiredis's asynchronous interface: coroutines on one thread and one connection, with the
/// commands of the library. No lease is looked after, and nothing has a deadline.
class RawCoroutines {
public:
    RawCoroutines(const std::string& uri, const std::vector<std::string>& names,
                  std::chrono::milliseconds lease)
        : names_(names), lease_(std::to_string(lease.count())) {
        release_ = RawConnection{uri}.load(Simple::scripts().release.source());
        connect(uri);
    }

    Sample run_for(std::chrono::milliseconds duration) {
        done_ = 0;
        stop_ = false;
        error_.clear();
        left_ = names_.size();
        const Stretch stretch;
        for (const std::string& name : names_) take_and_give_back(name);
        while (left_ != 0) {
            if (stretch.is_over(duration)) stop_ = true;
            wait_and_handle();
        }
        return stretch.sample(done_, error_);
    }

private:
    /// One command, and whether its answer was a good one.
    template <std::size_t N>
    struct Command {
        RawCoroutines* self;
        std::array<std::string_view, N> words;
        std::coroutine_handle<> waiting{};
        bool good = false;

        bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<> handle) {
            waiting = handle;
            std::array<const char*, N> data{};
            std::array<std::size_t, N> lengths{};
            for (std::size_t i = 0; i < N; ++i) {
                data[i] = words[i].data();
                lengths[i] = words[i].size();
            }
            redisAsyncCommandArgv(self->context_.get(), answered, this, static_cast<int>(N),
                                  data.data(), lengths.data());
        }
        bool await_resume() const noexcept { return good; }

        static void answered(redisAsyncContext*, void* answer, void* command) {
            auto* const self = static_cast<Command*>(command);
            const auto* const reply = static_cast<redisReply*>(answer);
            self->good =
                reply != nullptr && (reply->type == REDIS_REPLY_STATUS ||
                                     (reply->type == REDIS_REPLY_INTEGER && reply->integer == 1));
            self->waiting.resume();
        }
    };

    Task take_and_give_back(std::string name) {
        const std::string queue = "redlatch:queue:{" + name + "}";
        const std::string waiters = "redlatch:waiters:{" + name + "}";
        const std::string fence = "redlatch:fence:{" + name + "}";
        while (!stop_) {
            const std::string token = tokens_.next();
            const bool taken = co_await Command<6>{this, {"SET", name, token, "NX", "PX", lease_}};
            const bool released = co_await Command<9>{
                this, {"EVALSHA", release_, "4", name, queue, waiters, fence, token, server}};
            if (!taken || !released) {
                error_ = "a lock was not taken or not released";
                break;
            }
            ++done_;
        }
        --left_;
    }

    void connect(const std::string& uri) {
        constexpr std::string_view unix_scheme = "unix://";
        if (uri.starts_with(unix_scheme)) {
            context_.reset(redisAsyncConnectUnix(uri.substr(unix_scheme.size()).c_str()));
        } else {
            const auto host = uri.find("//") + 2;
            const auto colon = uri.rfind(':');
            context_.reset(redisAsyncConnect(uri.substr(host, colon - host).c_str(),
                                             std::stoi(uri.substr(colon + 1))));
        }
        if (context_ == nullptr || context_->err != 0) throw std::runtime_error{"raw: connect"};
        context_->ev = {};
        context_->ev.data = this;
        context_->ev.addRead = [](void* self) { events_of(self) |= POLLIN; };
        context_->ev.delRead = [](void* self) { events_of(self) &= ~POLLIN; };
        context_->ev.addWrite = [](void* self) { events_of(self) |= POLLOUT; };
        context_->ev.delWrite = [](void* self) { events_of(self) &= ~POLLOUT; };
        events_ = POLLOUT;
    }

    static int& events_of(void* self) { return static_cast<RawCoroutines*>(self)->events_; }

    void wait_and_handle() {
        pollfd socket{.fd = context_->c.fd, .events = static_cast<short>(events_), .revents = 0};
        ::poll(&socket, 1, 100);
        if ((socket.revents & POLLIN) != 0) redisAsyncHandleRead(context_.get());
        if ((socket.revents & POLLOUT) != 0) redisAsyncHandleWrite(context_.get());
        if ((socket.revents & (POLLERR | POLLHUP)) != 0) {
            throw std::runtime_error{"raw: the connection broke"};
        }
    }

    /// Of the length of a run id.
    static constexpr std::string_view server = "0123456789012345678901234567890123456789";

    struct Free {
        void operator()(redisAsyncContext* context) const noexcept { redisAsyncFree(context); }
    };

    const std::vector<std::string> names_;
    const std::string lease_;
    std::string release_;
    RawTokens tokens_;
    std::unique_ptr<redisAsyncContext, Free> context_;
    int events_ = 0;  ///< what hiredis wants to know of its socket
    std::size_t done_ = 0;
    std::size_t left_ = 0;
    bool stop_ = false;
    std::string error_;
};

}  // namespace redlatch::bench
