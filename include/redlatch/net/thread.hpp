#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// Starts a service thread that the process's signals pass by: a handler of the user's runs on the
/// user's threads.
template <class Function>
std::thread start_service_thread(Function run) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct Restore {
        sigset_t mask;
        ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
    } const restore{before};
    return std::thread{std::move(run)};
}

}  // namespace redlatch::inline v0::detail
