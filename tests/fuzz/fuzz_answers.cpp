// Any answers from a server that greets as Redis does: what a lock makes of them is a result or a typed
// error, in a moment. The first byte chooses the lock, the others are what the server says.

#include <redlatch/redlatch.hpp>

#include <hiredis/hiredis.h>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;

void require(bool condition) {
    if (!condition) std::abort();
}

void require_told(const auto& result) {
    require(result || !result.error().describe().empty());
}

std::string bulk(std::string_view text) {
    return "$" + std::to_string(text.size()) + "\r\n" + std::string{text} + "\r\n";
}

/// Says the same on each connection, without having heard anything, and then no more.
class Server {
public:
    explicit Server(std::string says) : says_(std::move(says)) {}
    ~Server() {
        for (const int end : ends_) ::close(end);
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// Of any thread.
    redisContext* connect() {
        std::array<int, 2> ends{};
        require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
        require(::write(ends[1], says_.data(), says_.size()) == static_cast<ssize_t>(says_.size()));
        ::shutdown(ends[1], SHUT_WR);
        const std::lock_guard lock{mutex_};
        ends_.push_back(ends[1]);
        return redisConnectFd(ends[0]);
    }

private:
    const std::string says_;
    std::mutex mutex_;
    std::vector<int> ends_;
};

constexpr std::chrono::milliseconds lease = 30s;

template <class Policy>
void use_lock(Client& client) {
    Lock<Policy> lock{client, "job"};
    auto held = lock.acquire({.wait = Wait::none()});
    if (held) {
        require(held->remaining() <= lease);
        require_told(held->extend(lease));
        require(held->remaining() <= lease);
    } else {
        require_told(held);
    }
    require_told(lock.inspect());
    require_told(lock.force_unlock());
    if (held) require_told(held->release());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0 || size > 4096) return 0;
    const std::string_view said{reinterpret_cast<const char*>(data) + 1, size - 1};
    Server server{bulk("run_id:0123456789abcdef0123456789abcdef01234567") + bulk("role:master") +
                  "*2\r\n" + bulk("1700000000") + bulk("0") + std::string{said}};
    const auto connect = [&server](std::chrono::milliseconds) { return server.connect(); };
    Client client{{.factories = {{.connect = connect}}, .command_timeout = 20ms}};
    switch (data[0] % 4) {
        case 0: use_lock<Simple>(client); break;
        case 1: use_lock<Reentrant>(client); break;
        case 2: use_lock<Fenced<Simple>>(client); break;
        default: use_lock<Watchdog<Reentrant>>(client); break;
    }
    return 0;
}
