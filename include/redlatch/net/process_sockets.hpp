#pragma once

#include <redlatch/compilation.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
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
        note_owner();
        const std::size_t word = word_of(fd);
        sockets[word].fetch_or(bit_of(fd));
        std::size_t used = words_used;
        while (used <= word && !words_used.compare_exchange_weak(used, word + 1)) {
        }
    }

    /// Before it is removed, where it is the only one of its connection: that ends for the server too where a
    /// child that is being forked just now keeps a copy. Does nothing for a socket of another process.
    static void shut_down(int fd) noexcept {
        if (is_tracked(fd) && (sockets[word_of(fd)] & bit_of(fd)) != 0 && owner == ::getpid()) {
            ::shutdown(fd, SHUT_RDWR);
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

    /// A child that came to be without `fork` may use the numbers of its parent's sockets for something else.
    static void note_owner() noexcept {
        const ::pid_t here = ::getpid();
        const ::pid_t before = owner.exchange(here);
        if (before != here && before != 0) forget_all();
    }
    static void forget_all() noexcept {
        for (std::size_t word = 0; word != words_used; ++word) sockets[word] = 0;
    }

    static void note_forking() noexcept { forking = ::getpid(); }

    /// Puts a socket that leads nowhere in the place of each: the numbers stay taken, as objects that the
    /// child has inherited still name them.
    static void let_go_in_child() noexcept {
        if (owner.exchange(::getpid()) != forking) return forget_all();
        int nowhere = -1;
        for (std::size_t word = 0; word != words_used; ++word) {
            for (std::uint64_t left = sockets[word].exchange(0); left != 0; left &= left - 1) {
                const auto bit = static_cast<std::size_t>(std::countr_zero(left));
                replace(static_cast<int>(word * word_bits + bit), nowhere);
            }
        }
        if (nowhere >= 0) ::close(nowhere);
    }

    /// `nowhere`: negative before the first one. The limit of descriptors may be below the number: then it is closed.
    static void replace(int fd, int& nowhere) noexcept {
        if (nowhere < 0) {
            ::close(fd);  // first, as the process may have no descriptor left
            nowhere = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        }
        if (nowhere == fd) {
            nowhere = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
        } else if (nowhere < 0 || ::dup3(nowhere, fd, O_CLOEXEC) < 0) {
            ::close(fd);
        }
    }

    static inline std::array<std::atomic<std::uint64_t>, max_words> sockets{};
    static inline std::atomic<std::size_t> words_used{0};
    static inline std::atomic<::pid_t> owner{0};    // of those; 0 before the first one
    static inline std::atomic<::pid_t> forking{0};  // the last process that has forked
    static inline const bool lets_go =
        ::pthread_atfork(&note_forking, nullptr, &let_go_in_child) == 0;
};

}  // namespace redlatch::inline v0::detail
