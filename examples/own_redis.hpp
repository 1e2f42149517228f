#pragma once

// What the examples share: a redis-server of their own, so that they run anywhere and touch nobody's data.
// No part of the library.

#include <redlatch/redlatch.hpp>
#if defined(REDLATCH_EXAMPLE_TLS)
#include <redlatch/tls.hpp>
#endif

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace example {

/// A redis-server on a private Unix socket in a temporary folder, without persistence. It dies with
/// this process, however that ends; the destructor ends it and removes the folder.
class OwnRedis {
public:
    OwnRedis() {
        const std::string pattern =
            std::filesystem::temp_directory_path() / "redlatch-example-XXXXXX";
        folder_ = pattern;
        if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error{"mkdtemp " + pattern};
        start();
    }
    OwnRedis(const OwnRedis&) = delete;
    OwnRedis& operator=(const OwnRedis&) = delete;
    ~OwnRedis() {
        ::kill(server_, SIGTERM);
        ::waitpid(server_, nullptr, 0);
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    std::string socket() const { return folder_ + "/redis.sock"; }
    std::string uri() const { return "unix://" + socket(); }

private:
    void start() {
        const ::pid_t parent = ::getpid();
        server_ = ::fork();
        if (server_ < 0) throw std::runtime_error{"fork"};
        if (server_ > 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket().c_str(),
                 "--dir", folder_.c_str(), "--logfile", "server.log", "--save", "", nullptr);
        std::perror("redis-server");
        ::_exit(127);
    }

    std::string folder_;
    ::pid_t server_ = -1;
};

/// For any URI, or those of several masters with a space in between. Over TLS too where this is built
/// with it: with the authorities that the system trusts, or those of the file that SSL_CERT_FILE names.
inline redlatch::ClientOptions options_for(const std::string& uris) {
    redlatch::ClientOptions options;
    std::istringstream words{uris};
    for (std::string uri; words >> uri;) {
#if defined(REDLATCH_EXAMPLE_TLS)
        if (uri.starts_with("rediss")) options.tls = redlatch::tls();
#endif
        options.uris.emplace_back(uri);
    }
    return options;
}

/// Waits until the server answers, as one that was just started takes a moment.
inline void wait_for(const std::string& uri) {
    using namespace std::chrono_literals;
    redlatch::Client redis{options_for(uri)};
    const auto end = redlatch::Clock::now() + 10s;
    for (auto answer = redis.ping(); !answer; answer = redis.ping()) {
        if (redlatch::Clock::now() > end) answer.value();  // throws what was wrong
        std::this_thread::sleep_for(10ms);
    }
}

/// An example checks its own outcome.
inline void require(bool condition, const char* what) {
    if (!condition) throw std::runtime_error{std::string{"it should be that "} + what};
}

/// Runs `body(uri)` on the server, or the several masters, that the program's arguments name, or else
/// on a server of its own. Returns main's result: 0 if the body had nothing to complain about.
template <class Body>
int run(int argc, char** argv, Body body) {
    try {
        if (argc > 1) {
            std::string uris = argv[1];
            for (int i = 2; i < argc; ++i) uris.append(" ").append(argv[i]);
            wait_for(uris);
            body(uris);
        } else {
            const OwnRedis server;
            wait_for(server.uri());
            body(server.uri());
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "FAILED: %s\n", error.what());
        return 1;
    }
}

}  // namespace example
