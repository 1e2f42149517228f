#pragma once

#include <redlatch/compilation.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace redlatch::inline v0::detail {

/// The sockets of this process that lead to servers. A forked child lets go of them: a server sees a
/// connection end only when each process that has its socket has closed it, and takes a waiter that died
/// for alive until then. A child that was made by a bare `clone` keeps them. Takes no lock and allocates
/// nothing, as threads of the parent may be anywhere when it forks.
class ProcessSockets {
public:
    /// Once it is open.
    static void add(int fd) noexcept {
        if (!is_tracked(fd)) return;
        const std::size_t word = word_of(fd);
        sockets[word].fetch_or(bit_of(fd));
        std::size_t used = words_used;
        while (used <= word && !words_used.compare_exchange_weak(used, word + 1)) {
        }
    }

    /// Before it is closed. Does nothing for any other descriptor.
    static void remove(int fd) noexcept {
        if (is_tracked(fd)) sockets[word_of(fd)].fetch_and(~bit_of(fd));
    }

private:
    static constexpr std::size_t word_bits = 64;
    /// By default, a process has 2^20 descriptors at most.
    static constexpr std::size_t max_words = (std::size_t{1} << 20U) / word_bits;

    static bool is_tracked(int fd) noexcept { return fd >= 0 && word_of(fd) < max_words; }
    static std::size_t word_of(int fd) noexcept { return static_cast<std::size_t>(fd) / word_bits; }
    static std::uint64_t bit_of(int fd) noexcept {
        return std::uint64_t{1} << (static_cast<std::size_t>(fd) % word_bits);
    }

    /// Puts a socket that leads nowhere in the place of each: the numbers stay taken, as objects that the
    /// child has inherited still name them.
    static void let_go_in_child() noexcept {
        const std::size_t used = words_used;
        int nowhere = -1;
        for (std::size_t word = 0; word != used; ++word) {
            std::uint64_t left = sockets[word];
            if (left == 0) continue;
            if (nowhere < 0) nowhere = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (nowhere < 0) return;
            sockets[word] = 0;
            for (; left != 0; left &= left - 1) {
                const auto fd = word * word_bits + static_cast<std::size_t>(std::countr_zero(left));
                ::dup3(nowhere, static_cast<int>(fd), O_CLOEXEC);
            }
        }
        if (nowhere >= 0) ::close(nowhere);
    }

    static inline std::array<std::atomic<std::uint64_t>, max_words> sockets{};
    static inline std::atomic<std::size_t> words_used{0};
    static inline const bool lets_go = ::pthread_atfork(nullptr, nullptr, &let_go_in_child) == 0;
};

}  // namespace redlatch::inline v0::detail
