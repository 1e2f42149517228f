#pragma once

#include <redlatch/compilation.hpp>

#include <pthread.h>

#include <csignal>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// What a service thread runs. One type for all: each one that a `std::thread` takes costs a file 90 functions.
struct ServiceMain {
    const char* name;
    std::function<void()> run;

    void operator()() const {
        pthread_setname_np(pthread_self(), name);
        run();
    }
};

/// Starts a service thread that the process's signals pass by: a handler of the user's runs on the
/// user's threads. `name`: for debuggers and `top -H`, which see 15 bytes of it. Returns one that is not
/// joinable where the system has no thread to give, or no memory for one.
template <class Run>
std::thread start_service_thread(const char* name, Run&& run) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct Restore {
        sigset_t mask;
        ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
    } const restore{before};
    try {
        return std::thread{ServiceMain{name, std::forward<Run>(run)}};
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    return {};
}

}  // namespace redlatch::inline v0::detail
