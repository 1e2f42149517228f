#pragma once

#include "support/socket.hpp"
#include "support/wait.hpp"

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Real child processes. Two ways to make one:
//
// `ChildProcess child{[](LineChannel& parent) { ...; return 0; }}` forks. It sees the test's
// variables and is the natural choice while the process has one thread: at the beginning of a test,
// before the first Client, Proxy or std::thread. A fork of a process with threads copies only the
// forking one; a mutex that another one held stays locked for ever, and TSan checks nothing in such
// a child.
//
// `ChildProcess::exec(path, arguments)` runs a program afresh. Right whenever threads are running,
// and where a test should stand for an unrelated process. The program reads the parent's lines on
// its standard input and writes its own to standard output (and flushes: `std::endl`).
//
// No child outlives the test process, however that one ends: the kernel kills it
// (PR_SET_PDEATHSIG). That signal goes by the *thread* that forked, so a fork asked for by another
// thread than the main one is done on a helper thread that lives as long as the child; a forked
// body then sees the helper's thread-local variables, not those of the thread that asked.
//
// The objects belong to one thread at a time, and to the process that made them: in a forked copy
// of it, their destructors do nothing.

namespace redlatch::test {

/// How a process ended: by `_exit(code)`, or by a signal.
struct ExitStatus {
    int code = 0;
    int signal = 0;

    [[nodiscard]] bool success() const { return code == 0 && signal == 0; }
    friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

std::ostream& operator<<(std::ostream& out, const ExitStatus& status);

/// Lines to and from another process.
class LineChannel {
public:
    /// Takes over a connected stream socket.
    explicit LineChannel(UniqueFd socket) : socket_{std::move(socket)} {}

    /// The next line without its end; nothing when `limit` is over or the other side is gone.
    std::optional<std::string> read_line(std::chrono::milliseconds limit = generous_limit);

    /// False when the other side is gone. Raises no SIGPIPE.
    bool write_line(std::string_view line);

    /// Whether the other side has closed and everything it wrote has been read.
    [[nodiscard]] bool at_end() const { return at_end_ && buffer_.empty(); }

private:
    bool fill(std::chrono::steady_clock::time_point end);

    UniqueFd socket_;
    std::string buffer_;
    bool at_end_ = false;
};

/// Owner of a running child of this process, whatever it runs. The destructor kills and reaps it.
class ProcessHandle {
public:
    ProcessHandle() = default;
    explicit ProcessHandle(pid_t pid);
    ProcessHandle(ProcessHandle&& other) noexcept;
    ProcessHandle& operator=(ProcessHandle&& other) noexcept;
    ~ProcessHandle();

    /// The id; stays known after the end. 0 when nothing was ever started.
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] bool running();

    /// How it ended; nothing if it still runs after `limit`.
    std::optional<ExitStatus> wait(std::chrono::milliseconds limit = generous_limit);

    /// Sends a signal unless the process has been reaped, so that it never hits somebody else.
    void kill(int signal = SIGKILL);

    /// SIGSTOP; when it returns, every thread of the process has stopped.
    void freeze();
    void thaw();

private:
    void end();

    pid_t pid_ = 0;
    pid_t owner_ = 0;
    bool reaped_ = true;
    ExitStatus status_;
};

/// What `spawn` runs.
struct Program {
    std::vector<std::string> argv;                ///< argv[0] is a path, or a name found in PATH
    std::map<std::string, std::string> env = {};  ///< added to this process's environment

    /// Descriptors to run with; -1 is /dev/null for the input, this process's own for the others.
    int input = -1;
    int output = -1;
    int error = -1;
};

/// Forks and executes a program, which inherits no other descriptor than the standard three. Throws
/// std::system_error when it cannot be executed.
[[nodiscard]] ProcessHandle spawn(const Program& program);

/// A child that talks with the test in lines. See the top of this file for which kind to use.
class ChildProcess {
public:
    /// Runs in the child; what it returns is the exit code. Google Test's own failures stay unseen
    /// in there: check with plain code and return, or write, what was found.
    using Body = std::function<int(LineChannel& parent)>;

    /// Exit code of a body that threw; the message is on standard error.
    static constexpr int threw = 99;

    explicit ChildProcess(const Body& body);
    static ChildProcess exec(const std::string& path,
                             const std::vector<std::string>& arguments = {},
                             const std::map<std::string, std::string>& env = {});

    std::optional<std::string> read_line(std::chrono::milliseconds limit = generous_limit) {
        return channel_.read_line(limit);
    }
    bool write_line(std::string_view line) { return channel_.write_line(line); }

    [[nodiscard]] pid_t pid() const { return process_.pid(); }
    [[nodiscard]] bool running() { return process_.running(); }
    std::optional<ExitStatus> wait(std::chrono::milliseconds limit = generous_limit) {
        return process_.wait(limit);
    }
    void kill(int signal = SIGKILL) { process_.kill(signal); }
    void freeze() { process_.freeze(); }
    void thaw() { process_.thaw(); }

private:
    ChildProcess(ProcessHandle process, LineChannel channel);

    ProcessHandle process_;
    LineChannel channel_;
};

/// Whether a process with this id runs, be it a child or not; a zombie does not.
[[nodiscard]] bool process_alive(pid_t pid);

/// The path of the running program, to `ChildProcess::exec` a test binary once more.
[[nodiscard]] std::string own_path();

/// Whether every other thread of this process sleeps: ASan's allocator survives a fork then.
[[nodiscard]] bool other_threads_sleep();

}  // namespace redlatch::test
