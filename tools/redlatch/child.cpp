#include "child.hpp"

#include "exit_codes.hpp"
#include "text.hpp"
#include "variables.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace tool {

namespace {

constexpr char word_to_start = 's';
constexpr char word_to_let_go = 'q';
constexpr std::string_view is_executed{"x"};

struct Pipe {
    Descriptor read;
    Descriptor write;
};

Pipe make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw std::system_error{errno, std::system_category(), "pipe"};
    }
    return {Descriptor{ends[0]}, Descriptor{ends[1]}};
}

::pid_t fork_or_throw() {
    const ::pid_t pid = ::fork();
    if (pid < 0) throw std::system_error{errno, std::system_category(), "fork"};
    return pid;
}

void write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno != EINTR) return;
        if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
    }
}

std::string read_all(int fd) {
    std::string bytes;
    std::array<char, 4096> buffer{};
    for (;;) {
        const ssize_t n = ::read(fd, buffer.data(), buffer.size());
        if (n > 0) bytes.append(buffer.data(), static_cast<std::size_t>(n));
        if (n == 0 || (n < 0 && errno != EINTR)) return bytes;
    }
}

/// A watcher that goes by this program's name would be killed together with it by whoever kills by name, and the group
/// would live on. The short name comes last: a watcher that bears it has the other one too.
void call_itself_watcher() {
    constexpr const char* name = "watcher";
    ::strncpy(program_invocation_name, name, std::strlen(program_invocation_name));
    ::prctl(PR_SET_NAME, name);
}

/// From one process group to another. Returns whether that one had it.
bool move_terminal(int terminal, ::pid_t from, ::pid_t to) {
    if (::tcgetpgrp(terminal) != from) return false;
    ::tcsetpgrp(terminal, to);
    ::kill(-to, SIGCONT);  // a program of this group that asked for it meanwhile has stopped
    return true;
}

}  // namespace

int Descriptor::release() noexcept {
    return std::exchange(fd_, -1);
}

void Descriptor::reset(int fd) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
}

Child::Child(const Options& options) : terminal_(::open("/dev/tty", O_RDWR | O_CLOEXEC)) {
    Pipe word = make_pipe();
    Pipe report = make_pipe();
    Pipe alive = make_pipe();
    const ::pid_t starter = ::getpgrp();
    const ::pid_t parent = ::getpid();
    pid_ = fork_or_throw();
    if (pid_ == 0) {
        ::setpgid(0, 0);
        // The watcher may be killed together with this program. Kept by what it executes.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(0);
        word.write.reset();
        alive.write.reset();
        become_command(options, std::move(word.read), std::move(report.write));
    }
    ::setpgid(pid_, pid_);  // both do it: neither waits for the other
    word_ = std::move(word.write);
    report_ = std::move(report.read);
    report.write.reset();
    try {
        watcher_ = fork_or_throw();
    } catch (...) {
        send(SIGKILL);
        throw;
    }
    if (watcher_ == 0) {
        ::setpgid(0, pid_);
        call_itself_watcher();
        terminal_.reset();
        word_.reset();
        alive.write.reset();
        watch(alive.read.get(), starter);
    }
    ::setpgid(watcher_, pid_);
    alive_ = std::move(alive.write);
}

Child::~Child() {
    if (is_detached_) return;
    send(SIGKILL);
    reap_watcher();
    ::waitpid(pid_, nullptr, 0);
}

void Child::become_command(const Options& options, Descriptor word, Descriptor report) const {
    const std::string variables = read_all(word.get());
    if (variables.empty() || variables.front() != word_to_start) ::_exit(0);
    // A tool in the command would take another server for the one that is meant.
    if (options.server_is_named) ::setenv(needs_uri, "1", 1);
    ::unsetenv("REDLATCH_URI");  // it may have a password
    // Where this runs in a command of its own kind, they are of the outer one's lock.
    for (const char* const ours : {"REDLATCH_NAME", "REDLATCH_TOKEN", "REDLATCH_FENCE",
                                   "REDLATCH_NAMES", "REDLATCH_FENCES"}) {
        ::unsetenv(ours);
    }
    for (std::size_t at = 1; at < variables.size();) {
        const std::string variable{variables.c_str() + at};
        const std::size_t equals = variable.find('=');
        ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
        at += variable.size() + 1;
    }
    if (terminal_.get() >= 0) {
        if (!options.stoppable) std::signal(SIGTSTP, SIG_IGN);
        // By these it asks for the terminal. A shell ignores them in a command substitution.
        for (const int signal : {SIGTTIN, SIGTTOU}) std::signal(signal, SIG_DFL);
    }
    if (options.ignores_child) std::signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, &options.signals, nullptr);
    std::vector<char*> argv;
    for (const std::string& argument : options.command) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    write_all(report.get(), is_executed);
    ::execv(options.path.c_str(), argv.data());
    int error = errno;
    if (error == ENOEXEC) {  // a script that does not say whose: the shell's, as for execvp
        std::string shell{"/bin/sh"};
        std::string script{options.path};
        argv.front() = script.data();
        argv.insert(argv.begin(), shell.data());
        ::execv(shell.c_str(), argv.data());
        error = errno;
    }
    write_all(report.get(), std::to_string(error));
    ::_exit(error == ENOENT ? not_found : not_executable);
}

void Child::watch(int pipe, ::pid_t starter) {
    // Signals for the group are not meant for the watcher.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    // It holds no descriptor that somebody waits for the end of.
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
    char word = 0;
    ssize_t n = 0;
    do {
        n = ::read(pipe, &word, 1);
    } while (n < 0 && errno == EINTR);
    if (n == 1 && word == word_to_let_go) ::_exit(0);
    // Else a script that goes on after this program's death would have to do without its terminal.
    move_terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC), ::getpgrp(), starter);
    ::kill(0, SIGKILL);
    ::_exit(0);
}

void Child::start(const std::vector<std::string>& variables) {
    std::string word(1, word_to_start);
    for (const std::string& variable : variables) word.append(variable).append(1, '\0');
    write_all(word_.get(), word);
    word_.reset();
}

std::optional<int> Child::why_never_ran() const {
    const std::string report = read_all(report_.get());
    if (report == is_executed) return std::nullopt;
    return report.empty() ? 0 : std::stoi(report.substr(is_executed.size()));
}

void Child::reap_others() noexcept {
    siginfo_t over{};
    while (::waitid(P_ALL, 0, &over, WEXITED | WNOHANG | WNOWAIT) == 0 && over.si_pid != 0 &&
           over.si_pid != pid_) {
        ::waitpid(over.si_pid, nullptr, WNOHANG);
        if (over.si_pid == watcher_) watcher_ = -1;  // somebody has killed it
    }
}

void Child::reap_watcher() noexcept {
    if (watcher_ > 0) ::waitpid(watcher_, nullptr, 0);
    watcher_ = -1;
}

void Child::send(int signal) const noexcept {
    ::kill(-pid_, signal);
}

void Child::detach_group() noexcept {
    write_all(alive_.get(), std::string_view{&word_to_let_go, 1});
    if (watcher_ > 0) ::kill(watcher_, SIGCONT);  // somebody may have stopped its whole group
    reap_watcher();
    is_detached_ = true;
}

bool Child::is_in_foreground() const noexcept {
    const ::pid_t group = ::tcgetpgrp(terminal_.get());
    return group == pid_ || group == ::getpgrp();
}

bool Child::has_lost_terminal() const noexcept {
    return terminal_.get() >= 0 && ::tcgetpgrp(terminal_.get()) < 0;
}

void Child::give_terminal() const noexcept {
    ::tcsetpgrp(terminal_.get(), pid_);
}

bool Child::take_terminal() const noexcept {
    return move_terminal(terminal_.get(), pid_, ::getpgrp());
}

std::string find_program(const std::string& name, int& code) {
    code = not_found;
    const auto fits = [&code](const std::string& path) {
        struct stat status {};
        if (::stat(path.c_str(), &status) != 0) return false;
        const bool can_run = S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
        if (!can_run) code = not_executable;
        return can_run;
    };
    if (name.find('/') != std::string::npos) return fits(name) ? name : std::string{};
    const char* const variable = std::getenv("PATH");
    const std::string path{variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin"};
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find(':', begin), path.size());
        const std::string folder = end == begin ? "." : path.substr(begin, end - begin);
        if (std::string candidate = folder + "/" + name; !name.empty() && fits(candidate)) {
            return candidate;
        }
        begin = end + 1;
    }
    return {};
}

}  // namespace tool
