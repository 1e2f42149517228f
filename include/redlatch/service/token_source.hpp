#pragma once

#include <redlatch/core/describe_owner.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/key_space.hpp>
#include <redlatch/core/lock_owner.hpp>

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace redlatch::inline v0::detail {

/// 128 bits from the system's source, in hexadecimal: no other client has the same.
inline std::string random_id() {
    std::array<unsigned char, 16> bytes{};
    std::size_t have = 0;
    while (have < bytes.size()) {
        const ssize_t n = ::getrandom(bytes.data() + have, bytes.size() - have, 0);
        if (n > 0) {
            have += static_cast<std::size_t>(n);
        } else if (errno != EINTR) {
            throw std::system_error{errno, std::system_category(), "getrandom"};
        }
    }
    std::string id;
    for (const unsigned char byte : bytes) {
        id += "0123456789abcdef"[byte >> 4U];
        id += "0123456789abcdef"[byte & 0xfU];
    }
    return id;
}

/// `host:pid`, with what `CLIENT SETNAME` refuses left out.
inline std::string default_client_name() {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    std::string name;
    for (const char c : std::string_view{host.data()}) {
        if (c > ' ' && c <= '~' && name.size() < 48) name += c;
    }
    return name + ":" + std::to_string(::getpid());
}

/// Makes the owner tokens of one client in one process, and knows them again. Thread-safe.
class TokenSource {
public:
    /// `client_name`: for people who look at a lock; empty for `host:pid`.
    TokenSource(const std::string& client_name, const std::string& key_space)
        : client_name_(client_name.empty() ? default_client_name() : client_name),
          key_space_mark_(mark_of(key_space)) {}

    /// Nobody else's client has the same.
    const std::string& id() const noexcept { return id_; }
    const std::string& client_name() const noexcept { return client_name_; }

    /// A name for a new acquisition of `owner` that was never used and never will be.
    Token next(LockOwner owner) {
        const auto number = last_.fetch_add(1, std::memory_order_relaxed) + 1;
        const auto thread = owner.thread();
        Token token;
        token.bytes.reserve(prefix_.size() + 48 + key_space_mark_.size());
        token.bytes += prefix_;
        if (thread) {
            append(token.bytes, static_cast<std::uint64_t>(*thread));
        } else {
            token.bytes += "hold";
        }
        token.bytes += ':';
        append(token.bytes, number);
        token.bytes += key_space_mark_;
        return token;
    }

    /// Whether it comes from here.
    bool made(std::string_view token) const noexcept { return token.starts_with(prefix_); }

    /// Whether it is of a client that does not know our queue.
    bool is_of_other_key_space(std::string_view token) const {
        return detail::is_of_other_key_space(token, key_space_mark_);
    }

private:
    static void append(std::string& bytes, std::uint64_t number) {
        std::array<char, 20> digits;
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
        bytes.append(digits.data(), end.ptr);
    }

    const std::string id_ = random_id();
    const std::string client_name_;
    const std::string key_space_mark_;
    const std::string prefix_ = id_ + ":" + client_name_ + ":";
    std::atomic<std::uint64_t> last_{0};
};

}  // namespace redlatch::inline v0::detail
