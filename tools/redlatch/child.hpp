#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// A file descriptor with an owner.
class Descriptor {
public:
    explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        reset(other.release());
        return *this;
    }
    ~Descriptor() { reset(); }

    int get() const noexcept { return fd_; }
    int release() noexcept;
    void reset(int fd = -1) noexcept;

private:
    int fd_;
};

/// A command in a process group of its own. It is forked at once, and executed when it is told to
/// start. The whole group dies when this process does, however it ends: a watcher, a further process of
/// the group, sees the end of a pipe. The command itself dies also where the watcher was killed first.
class Child {
public:
    struct Options {
        std::vector<std::string> command;
        std::string path;              ///< of the program
        sigset_t signals;              ///< the mask that it starts with
        bool stoppable = false;        ///< by the terminal's stop key
        bool server_is_named = false;  ///< by an option or the environment
        bool ignores_child = false;    ///< SIGCHLD
    };

    /// Forks: call it while this process has one thread. Throws std::system_error.
    explicit Child(const Options& options);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    /// Kills what is left of the group, unless `detach_group()` was called.
    ~Child();

    ::pid_t pid() const noexcept { return pid_; }

    /// Executes the command, with `variables` ("NAME=value") added to its environment.
    void start(const std::vector<std::string>& variables);

    /// Once it is over: why it was not executed, as an `errno`, or 0 where it died before it was told to start. Nothing
    /// where it was executed. To be called once.
    std::optional<int> why_never_ran() const;

    /// Forgets what has ended beside the command: processes that were left to this one, as to the init of a container.
    void reap_others() noexcept;

    /// To the whole group.
    void send(int signal) const noexcept;

    /// The command is over, and what it has left behind may go on.
    void detach_group() noexcept;

    /// Whether this program's group has the controlling terminal, or the command's group has it.
    bool is_in_foreground() const noexcept;

    /// There was a controlling terminal, and it has been hung up.
    bool has_lost_terminal() const noexcept;

    /// The command's group gets the terminal, or gives it back to this program's. The caller has blocked
    /// SIGTTOU, which would stop the one that does this from the background.
    void give_terminal() const noexcept;
    /// Returns whether the command's group had it.
    bool take_terminal() const noexcept;

private:
    [[noreturn]] void become_command(const Options& options, Descriptor word,
                                     Descriptor report) const;
    [[noreturn]] static void watch(int pipe, ::pid_t starter);
    void reap_watcher() noexcept;

    ::pid_t pid_ = -1;
    ::pid_t watcher_ = -1;  // until it has ended
    bool is_detached_ = false;
    Descriptor terminal_;  // the controlling one, whatever standard input is; none without one
    Descriptor word_;      // to the command: start, and with which variables
    Descriptor report_;    // from it: that it begins to be executed, and that it could not be
    Descriptor alive_;     // to the watcher: closed when this process ends
};

/// The path of the program that a shell would execute for `name`. Where there is none: empty, and `code`
/// says 126 or 127.
std::string find_program(const std::string& name, int& code);

}  // namespace tool
