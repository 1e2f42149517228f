#pragma once

#include "child.hpp"

#include <chrono>
#include <csignal>
#include <optional>

namespace tool {

/// The signals of this process, as something to wait for. They are blocked from its construction on, in all
/// threads that are made later. Those that were ignored when the program started stay ignored, but for
/// SIGCHLD, which only the command is to ignore then.
class Signals {
public:
    Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    /// The mask of before: a command starts with it.
    const sigset_t& original() const noexcept { return original_; }

    /// Whether SIGCHLD was ignored before.
    bool ignored_child() const noexcept { return ignored_child_; }

    int descriptor() const noexcept { return descriptor_.get(); }

    struct Received {
        int signal;
        bool
            from_key;  ///< the terminal's interrupt or quit key, of which the whole foreground group hears
    };

    /// The next one that has come; nothing where none has.
    std::optional<Received> next() noexcept;

    /// Stops this process as `signal`, one of a terminal's, does by default: not where there is no shell to
    /// bring it back.
    static void stop(int signal) noexcept;

    /// Ends this process by `signal`, which it has not ignored, and leaves no core.
    static void end_by(int signal) noexcept;

    /// Whether the kernel stops by `signal` a group that wants the terminal and does not have it.
    static bool asks_for_terminal(int signal) noexcept;

    /// Whether `signal` is one that a command gets too.
    static bool is_forwarded(int signal) noexcept;

private:
    const bool ignored_child_;
    sigset_t original_{};
    Descriptor descriptor_;
};

/// Wakes a `poll`.
class Event {
public:
    Event();
    int descriptor() const noexcept { return descriptor_.get(); }
    void set() noexcept;
    bool take() noexcept;

private:
    Descriptor descriptor_;
};

}  // namespace tool
