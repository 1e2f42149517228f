#pragma once

// What the examples share: a redis-server of their own, so that they run anywhere and touch nobody's data.
// No part of the library.

#include <redlatch/redlatch.hpp>
#include <redlatch/testing.hpp>
#if defined(REDLATCH_EXAMPLE_TLS)
#include <redlatch/tls.hpp>
#endif

#include <chrono>
#include <cstdio>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace example {

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
            const redlatch::TestServer server;
            body(server.uri());
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "FAILED: %s\n", error.what());
        return 1;
    }
}

}  // namespace example
