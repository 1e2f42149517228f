#include "support/process.hpp"

#include "support/sanitizers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <ostream>
#include <system_error>
#include <thread>

#ifdef REDLATCH_TEST_TSAN
// A child forked from a process with threads may start threads of its own, at which TSan would end
// it. It still cannot check such a child, so the better tests fork first.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
    return "die_after_fork=0";
}
#endif

// Asked by the leak checker as a process ends: whether to let it be. A forked child has memory that only
// its parent's other threads knew of, on stacks that it does not have.
static const pid_t first_process = ::getpid();
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() {
    return ::getpid() != first_process;
}

namespace redlatch::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int parent_already_gone = 98;

[[noreturn]] void fail(const std::string& action, int error) {
    throw std::system_error{error, std::generic_category(), action};
}

/// Rounded up, so that a poll never ends a little too early and spins.
int poll_timeout(Clock::time_point end) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, INT_MAX));
}

/// Called by the child: the kernel kills it when the thread that forked it ends.
void die_with_parent(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) {
        ::_exit(parent_already_gone);
    }
}

/// Called by the child: g++'s TSan ends it when a new thread gets the id of one that only the parent
/// has. An id is the address of a stack; stacks of another size do not stand where those stood.
void avoid_old_thread_ids() {
#ifdef REDLATCH_TEST_TSAN
    pthread_attr_t attributes;
    std::size_t size = 0;
    ::pthread_getattr_default_np(&attributes);
    ::pthread_attr_getstacksize(&attributes, &size);
    ::pthread_attr_setstacksize(&attributes, size + (std::size_t{1} << 20));
    ::pthread_setattr_default_np(&attributes);
    ::pthread_attr_destroy(&attributes);
#endif
}

/// Forks; in the child runs `body`, which must not return.
pid_t fork_here(const std::function<void()>& body) {
    const pid_t parent = ::getpid();
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
        die_with_parent(parent);
        avoid_old_thread_ids();
        body();
        ::_exit(ChildProcess::threw);
    }
    if (pid < 0) {
        fail("fork", errno);
    }
    return pid;
}

void wait_without_reaping(pid_t pid) {
    siginfo_t ignored;
    while (::waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
}

/// Forks on a thread that lives at least as long as the child; see the top of the header.
pid_t fork_lasting(const std::function<void()>& body) {
    if (::gettid() == ::getpid()) {
        return fork_here(body);
    }
    std::promise<pid_t> promise;
    std::future<pid_t> result = promise.get_future();
    std::thread{[&body, promise = std::move(promise)]() mutable {
        pid_t pid = 0;
        try {
            pid = fork_here(body);
            promise.set_value(pid);
        } catch (...) {
            promise.set_exception(std::current_exception());
            return;
        }
        wait_without_reaping(pid);
    }}.detach();
    return result.get();
}

std::pair<UniqueFd, UniqueFd> socket_pair() {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
        fail("socketpair", errno);
    }
    return {UniqueFd{fds[0]}, UniqueFd{fds[1]}};
}

[[noreturn]] void run_body(const ChildProcess::Body& body, LineChannel& parent) {
    int code = ChildProcess::threw;
    try {
        code = body(parent);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "child process: %s\n", e.what());
    } catch (...) {
        std::fprintf(stderr, "child process: unknown exception\n");
    }
    std::fflush(nullptr);
    ::_exit(code);
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
    std::vector<std::string> result;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text{*entry};
        if (added.count(text.substr(0, text.find('='))) == 0) {
            result.push_back(text);
        }
    }
    for (const auto& [name, value] : added) {
        result.push_back(name + "=" + value);
    }
    return result;
}

std::vector<char*> c_strings(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) {
        result.push_back(text.data());
    }
    result.push_back(nullptr);
    return result;
}

// Between fork and exec only calls that are safe in the child of a process with threads: no memory
// is allocated, nothing is locked.

void close_all_but_standard(int kept) {
    constexpr unsigned first = 3;
    const auto kept_fd = static_cast<unsigned>(kept);
    const bool below = kept_fd == first || ::syscall(SYS_close_range, first, kept_fd - 1, 0) == 0;
    if (below && ::syscall(SYS_close_range, kept_fd + 1, ~0U, 0) == 0) {
        return;
    }
    const long limit = std::min(::sysconf(_SC_OPEN_MAX), 65536L);
    for (int fd = first; fd < limit; ++fd) {
        if (fd != kept) {
            ::close(fd);
        }
    }
}

void default_signals() {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
}

struct PreparedProgram {
    char* const* argv;
    char* const* environment;
    int input;
    int output;
    int error;
    int failure;  ///< a failed exec writes its errno here
};

[[noreturn]] void execute(const PreparedProgram& program) {
    ::dup2(program.input, STDIN_FILENO);
    ::dup2(program.output, STDOUT_FILENO);
    ::dup2(program.error, STDERR_FILENO);
    close_all_but_standard(program.failure);
    default_signals();
    ::execvpe(program.argv[0], program.argv, program.environment);
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(program.failure, &error, sizeof error);
    ::_exit(127);
}

/// A copy above the standard three, so that the dup2 calls of the child cannot overwrite it.
UniqueFd copy_above_standard(int fd) {
    UniqueFd copy{::fcntl(fd, F_DUPFD_CLOEXEC, 3)};
    if (!copy) {
        fail("duplicate descriptor", errno);
    }
    return copy;
}

UniqueFd copy_or_null(int fd, int otherwise) {
    if (fd >= 0) {
        return copy_above_standard(fd);
    }
    if (::fcntl(otherwise, F_GETFD) >= 0) {
        return copy_above_standard(otherwise);
    }
    const UniqueFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    return copy_above_standard(null.get());
}

UniqueFd input_of(const Program& program) {
    if (program.input >= 0) {
        return copy_above_standard(program.input);
    }
    const UniqueFd null{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    return copy_above_standard(null.get());
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ExitStatus& status) {
    if (status.signal != 0) {
        return out << "signal " << status.signal;
    }
    return out << "exit code " << status.code;
}

std::optional<std::string> LineChannel::read_line(std::chrono::milliseconds limit) {
    const Clock::time_point end = Clock::now() + limit;
    std::size_t line_end = buffer_.find('\n');
    while (line_end == std::string::npos) {
        if (!fill(end)) {
            return std::nullopt;
        }
        line_end = buffer_.find('\n');
    }
    std::string line = buffer_.substr(0, line_end);
    buffer_.erase(0, line_end + 1);
    return line;
}

bool LineChannel::fill(Clock::time_point end) {
    pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&readable, 1, poll_timeout(end));
    if (ready < 0 && errno == EINTR) {
        return true;
    }
    if (ready <= 0) {
        return false;
    }
    std::array<char, 4096> chunk{};
    const ssize_t size = ::recv(socket_.get(), chunk.data(), chunk.size(), 0);
    if (size <= 0) {
        at_end_ = true;
        return false;
    }
    buffer_.append(chunk.data(), static_cast<std::size_t>(size));
    return true;
}

bool LineChannel::write_line(std::string_view line) {
    const std::string text = std::string{line} + '\n';
    std::size_t sent = 0;
    while (sent < text.size()) {
        const ssize_t size =
            ::send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (size < 0 && errno != EINTR) {
            return false;
        }
        sent += size < 0 ? 0 : static_cast<std::size_t>(size);
    }
    return true;
}

ProcessHandle::ProcessHandle(pid_t pid) : pid_{pid}, owner_{::getpid()}, reaped_{false} {}

ProcessHandle::ProcessHandle(ProcessHandle&& other) noexcept
    : pid_{other.pid_},
      owner_{other.owner_},
      reaped_{std::exchange(other.reaped_, true)},
      status_{other.status_} {}

ProcessHandle& ProcessHandle::operator=(ProcessHandle&& other) noexcept {
    if (this != &other) {
        end();
        pid_ = other.pid_;
        owner_ = other.owner_;
        reaped_ = std::exchange(other.reaped_, true);
        status_ = other.status_;
    }
    return *this;
}

ProcessHandle::~ProcessHandle() {
    end();
}

bool ProcessHandle::running() {
    return !reaped_ && !wait(std::chrono::milliseconds{0});
}

std::optional<ExitStatus> ProcessHandle::wait(std::chrono::milliseconds limit) {
    const auto ended = [this] {
        int status = 0;
        if (!reaped_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
            reaped_ = true;
            status_ = WIFSIGNALED(status) ? ExitStatus{.code = 0, .signal = WTERMSIG(status)}
                                          : ExitStatus{.code = WEXITSTATUS(status), .signal = 0};
        }
        return reaped_;
    };
    if (pid_ == 0 || !eventually(ended, limit)) {
        return std::nullopt;
    }
    return status_;
}

void ProcessHandle::kill(int signal) {
    if (!reaped_ && owner_ == ::getpid()) {
        ::kill(pid_, signal);
    }
}

void ProcessHandle::freeze() {
    const auto stopped = [this] {
        siginfo_t info{};
        const int options = WSTOPPED | WEXITED | WNOWAIT | WNOHANG;
        return ::waitid(P_PID, static_cast<id_t>(pid_), &info, options) != 0 || info.si_pid == pid_;
    };
    kill(SIGSTOP);
    if (!reaped_ && !eventually(stopped)) {
        throw std::runtime_error{"process " + std::to_string(pid_) + " does not stop"};
    }
}

void ProcessHandle::thaw() {
    kill(SIGCONT);
}

void ProcessHandle::end() {
    if (!reaped_ && owner_ == ::getpid()) {
        kill(SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        reaped_ = true;
    }
}

ProcessHandle spawn(const Program& program) {
    std::vector<std::string> arguments = program.argv;
    std::vector<std::string> environment = merged_environment(program.env);
    const std::vector<char*> argv = c_strings(arguments);
    const std::vector<char*> envp = c_strings(environment);
    const UniqueFd input = input_of(program);
    const UniqueFd output = copy_or_null(program.output, STDOUT_FILENO);
    const UniqueFd error = copy_or_null(program.error, STDERR_FILENO);
    auto [failure_here, failure_there] = socket_pair();
    failure_there = copy_above_standard(failure_there.get());

    const PreparedProgram prepared{argv.data(),  envp.data(), input.get(),
                                   output.get(), error.get(), failure_there.get()};
    ProcessHandle process{fork_lasting([&prepared] { execute(prepared); })};
    failure_there.reset();
    int reason = 0;
    if (::recv(failure_here.get(), &reason, sizeof reason, MSG_WAITALL) == sizeof reason) {
        fail("cannot execute " + program.argv.front(), reason);
    }
    return process;
}

ChildProcess::ChildProcess(const Body& body) : channel_{UniqueFd{}} {
    auto [here, there] = socket_pair();
    process_ = ProcessHandle{fork_lasting([&body, &parents_end = here, &childs_end = there] {
        parents_end.reset();
        LineChannel parent{std::move(childs_end)};
        run_body(body, parent);
    })};
    channel_ = LineChannel{std::move(here)};
}

ChildProcess::ChildProcess(ProcessHandle process, LineChannel channel)
    : process_{std::move(process)}, channel_{std::move(channel)} {}

ChildProcess ChildProcess::exec(const std::string& path, const std::vector<std::string>& arguments,
                                const std::map<std::string, std::string>& env) {
    auto [here, there] = socket_pair();
    Program program{.argv = {path}, .env = env, .input = there.get(), .output = there.get()};
    program.argv.insert(program.argv.end(), arguments.begin(), arguments.end());
    ProcessHandle process = spawn(program);
    return ChildProcess{std::move(process), LineChannel{std::move(here)}};
}

bool process_alive(pid_t pid) {
    std::ifstream stat{"/proc/" + std::to_string(pid) + "/stat"};
    std::string text;
    std::getline(stat, text);
    // "pid (name) S ...": the state follows the last parenthesis, the name may contain any.
    const std::size_t name_end = text.rfind(") ");
    return name_end != std::string::npos && text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

std::string own_path() {
    return std::filesystem::read_symlink("/proc/self/exe").string();
}

bool other_threads_sleep() {
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        if (task.path().filename() == std::to_string(::gettid())) continue;
        std::ifstream file{task.path() / "stat"};
        std::string stat{std::istreambuf_iterator<char>{file}, {}};
        const std::size_t end_of_name = stat.rfind(") ");  // a name may contain anything
        if (end_of_name != std::string::npos && stat[end_of_name + 2] != 'S') return false;
    }
    return true;
}

}  // namespace redlatch::test
