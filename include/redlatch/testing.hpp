#pragma once

#include <redlatch/client.hpp>
#include <redlatch/clock.hpp>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

// For the tests of programs that use locks. Not part of <redlatch/redlatch.hpp>.

namespace redlatch::inline v0 {

/// A redis-server of a test's own: on a Unix socket in a temporary folder, reachable by nobody else, without
/// persistence. It answers when the constructor returns. The destructor ends it and removes the folder; where
/// the thread that started it ends without that, the kernel kills it.
///
/// Each start takes some 20 ms. One thread at a time may use an object, and it does nothing in a forked child.
class TestServer {
public:
    /// Starts a server. `program`: a path, or a name to find in PATH, such as "valkey-server".
    /// `arguments`: more of them, as on redis-server's command line, such as {"--requirepass",
    /// "secret"}. With a password or an ACL the constructor takes a refused log-in for the answer that it waits for.
    /// It cannot start a replica, which takes no writes and counts as a server that does not answer.
    ///
    /// Throws `std::system_error` where there is no folder or process to be had, or where TMPDIR is too long for a
    /// socket's path. Throws `std::runtime_error`, with what the program wrote, where the program ends or does not
    /// answer within 10 s.
    explicit TestServer(std::string program = "redis-server",
                        std::vector<std::string> arguments = {})
        : program_(std::move(program)), arguments_(std::move(arguments)), folder_(make_folder()) {
        try {
            start();
        } catch (...) {
            remove_folder();
            throw;
        }
    }
    TestServer(const TestServer&) = delete;
    TestServer& operator=(const TestServer&) = delete;
    /// Ends the server and removes its folder.
    ~TestServer() {
        stop();
        remove_folder();
    }

    /// For a `Client`: `unix://…`, with the path of its socket percent-encoded.
    std::string uri() const {
        std::string uri = "unix://";
        for (const char c : socket()) uri += is_plain(c) ? std::string(1, c) : encoded(c);
        return uri;
    }

    /// The path of its socket.
    std::string socket() const { return folder_ + "/redis.sock"; }

    /// Ends it at once: its keys are gone, and nobody can connect. Does nothing where it has ended.
    void stop() noexcept {
        if (server_ <= 0 || !is_ours()) return;
        ::kill(server_, SIGKILL);
        while (::waitpid(server_, nullptr, 0) < 0 && errno == EINTR) {
        }
        server_ = -1;
    }

    /// After `stop()`: a new one without keys, at the same place. It ends with the thread that calls this.
    void start() {
        if (server_ > 0 || !is_ours()) return;
        spawn();
        try {
            wait_for_answer();
        } catch (...) {
            stop();
            throw;
        }
    }

    /// Connections stay open, and the server answers nothing until `thaw()`.
    void freeze() const noexcept {
        if (server_ > 0 && is_ours()) ::kill(server_, SIGSTOP);
    }
    /// Ends `freeze()`: the server now answers what it was asked meanwhile.
    void thaw() const noexcept {
        if (server_ > 0 && is_ours()) ::kill(server_, SIGCONT);
    }

private:
    /// Whether it stands in a URI as it is.
    static bool is_plain(char c) noexcept {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view{"/-._~"}.find(c) != std::string_view::npos;
    }

    static std::string encoded(char c) {
        constexpr std::string_view digits = "0123456789ABCDEF";
        const auto byte = static_cast<unsigned char>(c);
        return {'%', digits[byte >> 4U], digits[byte & 0xfU]};
    }

    static std::string make_folder() {
        const auto parent = std::filesystem::absolute(std::filesystem::temp_directory_path());
        std::string folder = parent / "redlatch-test-XXXXXX";
        if (::mkdtemp(folder.data()) == nullptr) {
            throw std::system_error{errno, std::system_category(), folder};
        }
        return folder;
    }

    /// Whether this process has made it, not one that forked it.
    bool is_ours() const noexcept { return owner_ == ::getpid(); }

    void remove_folder() const noexcept {
        if (!is_ours()) return;
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    void spawn() {
        std::vector<std::string> words{program_, "--port", "0", "--unixsocket", socket(), "--dir",
                                       folder_,  "--save", "",  "--appendonly", "no"};
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        words.insert(words.end(), {"--daemonize", "no"});  // a configuration file may say otherwise
        std::vector<char*> argv;
        argv.reserve(words.size() + 1);
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);

        // A forked child of a program with threads may not even allocate.
        const std::string log_file = log_path();
        const std::string cannot = "cannot execute '" + program_ + "': ";
        const ::pid_t parent = ::getpid();
        server_ = ::fork();
        if (server_ < 0) throw std::system_error{errno, std::system_category(), "fork"};
        if (server_ > 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::sigset_t none;
        ::sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        const int log = ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
        ::dup2(log, STDOUT_FILENO);
        ::dup2(log, STDERR_FILENO);
        if (log > STDERR_FILENO) ::close(log);
        ::execvp(argv[0], argv.data());
        // Should this wait for a lock of another thread's, the process is killed after 10 s.
        const char* const why = std::strerror(errno);
        const bool is_told = ::write(STDERR_FILENO, cannot.data(), cannot.size()) > 0 &&
                             ::write(STDERR_FILENO, why, std::strlen(why)) > 0;
        ::_exit(is_told ? 127 : 126);
    }

    void wait_for_answer() {
        Client client{uri()};
        const auto end = Clock::now() + std::chrono::seconds{10};
        for (;;) {
            const auto answer = client.ping();
            if (answer || answer.error().code == Errc::denied) return;
            const bool ended = ::waitpid(server_, nullptr, WNOHANG) != 0;
            if (ended) server_ = -1;
            if (ended || Clock::now() > end) {
                const std::string why = ended ? "it has ended" : answer.error().describe();
                throw std::runtime_error{program_ + " does not answer: " + why + "\n" + log()};
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{5});
        }
    }

    std::string log_path() const { return folder_ + "/server.log"; }

    /// What the program wrote since it was started.
    std::string log() const {
        std::ostringstream text;
        text << std::ifstream{log_path()}.rdbuf();
        return text.str();
    }

    const std::string program_;
    const std::vector<std::string> arguments_;
    const std::string folder_;
    const ::pid_t owner_ = ::getpid();
    ::pid_t server_ = -1;
};

}  // namespace redlatch::inline v0
