#pragma once

#include <hiredis/hiredis.h>

#include <poll.h>
#include <sys/time.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

namespace redlatch::bench {

/// What one writes by hand on hiredis if it has to be quick and right: one blocking context for
/// each thread, arguments as they are instead of a format string, a token of its own for each
/// acquisition, scripts by their SHA. No queue, no retry, no idea of when the lease is over.
class RawConnection {
public:
    class Reply {
    public:
        explicit Reply(void* reply) : reply_(static_cast<redisReply*>(reply)) {
            if (reply_ == nullptr) throw std::runtime_error{"raw: the connection broke"};
            if (reply_->type == REDIS_REPLY_ERROR) throw std::runtime_error{"raw: " + text()};
        }
        bool is_ok() const noexcept { return reply_->type == REDIS_REPLY_STATUS; }
        bool is_one() const noexcept {
            return reply_->type == REDIS_REPLY_INTEGER && reply_->integer == 1;
        }
        bool is_array() const noexcept { return reply_->type == REDIS_REPLY_ARRAY; }
        bool is_nil() const noexcept { return reply_->type == REDIS_REPLY_NIL; }
        std::string text() const { return {reply_->str, reply_->len}; }

    private:
        struct Free {
            void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
        };
        std::unique_ptr<redisReply, Free> reply_;
    };

    /// `patience` bounds the connect and the wait for each reply. A thousand who connect at once may
    /// have to knock again, which TCP does after 1 s and 3 s.
    explicit RawConnection(const std::string& uri,
                           std::chrono::seconds patience = std::chrono::seconds{10}) {
        const timeval timeout{.tv_sec = static_cast<time_t>(patience.count()), .tv_usec = 0};
        constexpr std::string_view unix_scheme = "unix://";
        if (uri.starts_with(unix_scheme)) {
            const std::string path = uri.substr(unix_scheme.size());
            context_.reset(redisConnectUnixWithTimeout(path.c_str(), timeout));
        } else {
            const auto host = uri.find("//") + 2;
            const auto colon = uri.rfind(':');
            context_.reset(redisConnectWithTimeout(uri.substr(host, colon - host).c_str(),
                                                   std::stoi(uri.substr(colon + 1)), timeout));
        }
        if (context_ == nullptr || context_->err != 0) throw std::runtime_error{"raw: connect"};
        if (redisSetTimeout(context_.get(), timeout) != REDIS_OK) {
            throw std::runtime_error{"raw: timeout"};
        }
    }

    template <std::size_t N>
    Reply command(const std::array<std::string_view, N>& words) {
        append(words);
        return reply();
    }

    /// The next reply, before which all that was appended is sent.
    Reply reply() {
        void* reply = nullptr;
        redisGetReply(context_.get(), &reply);
        return Reply{reply};
    }

    /// A command that goes out with others; its reply is left to reply().
    template <std::size_t N>
    void append(const std::array<std::string_view, N>& words) {
        std::array<const char*, N> data{};
        std::array<std::size_t, N> lengths{};
        for (std::size_t i = 0; i < N; ++i) {
            data[i] = words[i].data();
            lengths[i] = words[i].size();
        }
        if (redisAppendCommandArgv(context_.get(), static_cast<int>(N), data.data(),
                                   lengths.data()) != REDIS_OK) {
            throw std::runtime_error{"raw: the connection broke"};
        }
    }

    /// Sends a command and leaves its reply to next().
    template <std::size_t N>
    void send(const std::array<std::string_view, N>& words) {
        append(words);
        int done = 0;
        while (done == 0) {
            if (redisBufferWrite(context_.get(), &done) != REDIS_OK) {
                throw std::runtime_error{"raw: the connection broke"};
            }
        }
    }

    /// The next reply or message, if one comes in time; zero takes only what is there.
    std::optional<Reply> next(std::chrono::milliseconds limit) {
        const auto end = std::chrono::steady_clock::now() + limit;
        for (;;) {
            void* reply = nullptr;
            if (redisGetReplyFromReader(context_.get(), &reply) != REDIS_OK) {
                throw std::runtime_error{"raw: a reply that is none"};
            }
            if (reply != nullptr) return Reply{reply};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(
                end - std::chrono::steady_clock::now());
            pollfd readable{.fd = context_->fd, .events = POLLIN, .revents = 0};
            const auto wait = left.count() > 0 ? static_cast<int>(left.count()) : 0;
            if (::poll(&readable, 1, wait) <= 0) return std::nullopt;
            if (redisBufferRead(context_.get()) != REDIS_OK) {
                throw std::runtime_error{"raw: the connection broke"};
            }
        }
    }

    std::string load(std::string_view script) {
        return command<3>({"SCRIPT", "LOAD", script}).text();
    }

private:
    struct Free {
        void operator()(redisContext* context) const noexcept { redisFree(context); }
    };

    std::unique_ptr<redisContext, Free> context_;
};

/// Names for acquisitions that nobody else has.
class RawTokens {
public:
    std::string next() { return prefix_ + std::to_string(++count_); }

private:
    static std::string random_prefix() {
        std::random_device source;
        std::string text;
        for (int i = 0; i < 4; ++i) text += std::to_string(source()) + ":";
        return text;
    }

    const std::string prefix_ = random_prefix();
    std::uint64_t count_ = 0;
};

}  // namespace redlatch::bench
