#pragma once

#include "support/socket.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {

/// A server on a port of 127.0.0.1 that answers what the test says, for answers that no real one gives.
class ScriptedServer {
public:
    using Words = std::vector<std::string>;

    /// The answer to a command, as bytes; `received`: all words that ever came on the connection.
    /// Called on several threads.
    using Answer = std::function<std::string(const Words& command, const Words& received)>;

    explicit ScriptedServer(Answer answer) : answer_(std::move(answer)) {}
    ~ScriptedServer() {
        stop_ = true;
        thread_.join();
        for (std::thread& thread : threads_) thread.join();
    }

    std::uint16_t port() const { return address_.port; }
    std::string place() const { return address_.host + ":" + std::to_string(address_.port); }

    static std::string bulk(std::string_view bytes) {
        return "$" + std::to_string(bytes.size()) + "\r\n" + std::string{bytes} + "\r\n";
    }

    /// What CLUSTER SLOTS answers where one master has all slots.
    static std::string slots(std::string_view host, std::uint16_t port) {
        return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + bulk(host) + ":" + std::to_string(port) +
               "\r\n";
    }

    /// What a Redis that keeps everything to itself answers to the questions of a handshake.
    static std::optional<std::string> of_handshake(const Words& command) {
        const std::string& name = command.front();
        if (name == "INFO") return bulk("");
        if (name == "TIME") return "*2\r\n" + bulk("1700000000") + bulk("0");
        if (name == "AUTH" || name == "CLIENT" || name == "SELECT") return "+OK\r\n";
        return std::nullopt;
    }

private:
    void run() {
        while (!stop_) {
            if (!readable(listener_.get())) continue;
            const int fd = ::accept(listener_.get(), nullptr, nullptr);
            if (fd >= 0) threads_.emplace_back([this, fd] { serve(UniqueFd{fd}); });
        }
    }

    void serve(const UniqueFd& connection) {
        Words received;
        std::string unread;
        std::array<char, 4096> buffer{};
        while (!stop_) {
            if (!readable(connection.get())) continue;
            const ssize_t size = ::recv(connection.get(), buffer.data(), buffer.size(), 0);
            if (size <= 0) return;
            unread.append(buffer.data(), static_cast<std::size_t>(size));
            std::string answers;
            while (const auto command = take_command(unread)) {
                received.insert(received.end(), command->begin(), command->end());
                answers += answer_(*command, received);
            }
            ::send(connection.get(), answers.data(), answers.size(), MSG_NOSIGNAL);
        }
    }

    /// Takes one whole command away from the front of `bytes`.
    static std::optional<Words> take_command(std::string& bytes) {
        std::size_t at = 0;
        const auto number = [&]() -> std::optional<std::size_t> {
            const std::size_t end = bytes.find("\r\n", at);
            if (end == std::string::npos) return std::nullopt;
            const std::size_t value = std::stoul(bytes.substr(at + 1, end - at - 1));
            at = end + 2;
            return value;
        };
        const auto count = number();
        if (!count) return std::nullopt;
        Words words;
        while (words.size() < *count) {
            const auto size = number();
            if (!size || bytes.size() < at + *size + 2) return std::nullopt;
            words.push_back(bytes.substr(at, *size));
            at += *size + 2;
        }
        bytes.erase(0, at);
        return words;
    }

    static bool readable(int fd) {
        pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
        return ::poll(&entry, 1, 10) > 0;
    }

    const Answer answer_;
    Address address_{.path = {}, .host = "127.0.0.1", .port = 0};
    UniqueFd listener_ = listen_on(address_);
    std::atomic<bool> stop_{false};
    std::list<std::thread> threads_;
    std::thread thread_{[this] { run(); }};
};

}  // namespace redlatch::test
