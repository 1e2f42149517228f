#include "signals.hpp"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace tool {

namespace {

constexpr std::array forwarded{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

Descriptor checked(int fd, const char* what) {
    if (fd < 0) throw std::system_error{errno, std::system_category(), what};
    return Descriptor{fd};
}

}  // namespace

Signals::Signals() : ignored_child_(is_ignored(SIGCHLD)) {
    // Of children whose end is ignored nobody learns the status.
    std::signal(SIGCHLD, SIG_DFL);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGCONT);
    if (!is_ignored(SIGTSTP)) sigaddset(&wanted, SIGTSTP);
    for (const int signal : forwarded) {
        if (!is_ignored(signal)) sigaddset(&wanted, signal);
    }
    // A program of this one's group, such as a pager, asks for the terminal. The kernel stops the whole group
    // then, and this program must go on. Blocked, SIGTTOU stops no message from the background either.
    for (const int signal : {SIGTTIN, SIGTTOU}) sigaddset(&wanted, signal);
    descriptor_ = checked(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd");
    sigaddset(&wanted, SIGPIPE);  // a command that died before it started
    sigprocmask(SIG_BLOCK, &wanted, &original_);
}

std::optional<Signals::Received> Signals::next() noexcept {
    signalfd_siginfo info{};
    if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
    const int signal = static_cast<int>(info.ssi_signo);
    const bool is_of_key = signal == SIGINT || signal == SIGQUIT;
    return Received{signal, is_of_key && info.ssi_code == SI_KERNEL};
}

void Signals::stop(int signal) noexcept {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, signal);
    ::raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
    pthread_sigmask(SIG_BLOCK, &stop, nullptr);
}

void Signals::end_by(int signal) noexcept {
    const rlimit none{};
    ::setrlimit(RLIMIT_CORE, &none);
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, signal);
    ::raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
}

bool Signals::asks_for_terminal(int signal) noexcept {
    return signal == SIGTTIN || signal == SIGTTOU;
}

bool Signals::is_forwarded(int signal) noexcept {
    return std::ranges::find(forwarded, signal) != forwarded.end();
}

Event::Event() : descriptor_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {}

void Event::set() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(descriptor_.get(), &one, sizeof one);
}

bool Event::take() noexcept {
    std::uint64_t count = 0;
    return ::read(descriptor_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace tool
