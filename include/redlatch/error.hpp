#pragma once

#include <redlatch/compilation.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace redlatch::inline v0 {

/// What went wrong, sorted by what the caller can do about it. Being too late (`timed_out`), a
/// fault (`unavailable`) and the caller's own wish (`cancelled`) are never mixed up.
enum class Errc {
    timed_out = 1,   ///< the wait ended while the lock was taken
    cancelled,       ///< the caller's stop token, or the end of the client, ended the wait
    lost,            ///< the hold ended before this call: its lease ran out or it was removed
    not_held,        ///< the caller holds nothing here
    unavailable,     ///< no server gave a usable answer in time
    denied,          ///< one side failed to authenticate, or the ACL forbids a command
    wrong_type,      ///< the key holds something that is not a lock of this policy
    not_replicated,  ///< too few replicas have the lock
    no_quorum,       ///< too few of several masters gave a usable answer in time
    unclear,         ///< a release whose outcome cannot be known
    deadlock,  ///< the calling thread waits without limit for its own lock, or to write what it reads
    protocol,          ///< an answer that Redis should never give
    invalid_argument,  ///< refused before any I/O; or no server has what the URI names
};

namespace detail {

constexpr std::string_view describe(Errc code) noexcept {
    switch (code) {
        case Errc::timed_out: return "the lock is taken";
        case Errc::cancelled: return "the wait was cancelled";
        case Errc::lost: return "the lock was lost";
        case Errc::not_held: return "the caller does not hold the lock";
        case Errc::unavailable: return "no usable answer in time";
        case Errc::denied: return "access denied";
        case Errc::wrong_type: return "the key is not a lock of this policy";
        case Errc::not_replicated: return "too few replicas have acknowledged the lock";
        case Errc::no_quorum: return "no quorum";
        case Errc::unclear: return "the outcome of the release is not known";
        case Errc::deadlock: return "the calling thread already holds this lock";
        case Errc::protocol: return "unexpected answer from the server";
        case Errc::invalid_argument: return "invalid argument";
    }
    return "unknown error";
}

class ErrorCategory final : public std::error_category {
public:
    const char* name() const noexcept override { return "redlatch"; }

    std::string message(int code) const override {
        return std::string{describe(static_cast<Errc>(code))};
    }

    std::error_condition default_error_condition(int code) const noexcept override {
        switch (static_cast<Errc>(code)) {
            case Errc::timed_out: return std::errc::timed_out;
            case Errc::cancelled: return std::errc::operation_canceled;
            case Errc::not_held: return std::errc::operation_not_permitted;
            case Errc::denied: return std::errc::permission_denied;
            case Errc::deadlock: return std::errc::resource_deadlock_would_occur;
            case Errc::protocol: return std::errc::protocol_error;
            case Errc::invalid_argument: return std::errc::invalid_argument;
            default: return {code, *this};
        }
    }
};

/// `bytes` with everything but printable ASCII as `\xNN`: names are bytes, messages are text.
inline std::string printable(std::string_view bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size());
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7f) {
            text += c;
        } else {
            text.append("\\x").append(1, digits[byte >> 4U]).append(1, digits[byte & 0xfU]);
        }
    }
    return text;
}

// Not inside the function: its first call would then take a lock, at which a child that was forked
// right then would wait for ever.
inline constinit const ErrorCategory the_error_category;

}  // namespace detail

/// The category of `Errc`, named "redlatch". Codes for which there is a `std::errc` compare equal
/// to it.
inline const std::error_category& error_category() noexcept {
    return detail::the_error_category;
}

/// `code` as the standard library's `std::error_code`.
inline std::error_code make_error_code(Errc code) noexcept {
    return {static_cast<int>(code), error_category()};
}

/// One failure: what happened, to which key, on which node. Never holds a secret.
struct Error {
    Errc code{};          ///< what kind of failure
    std::string key;      ///< the lock's name; empty where no lock is concerned
    std::string node;     ///< the server, as `host:port` or socket path; empty for none, or several
    std::string message;  ///< the server's or the system's own words, or what was wrong
    std::vector<Error> causes;  ///< what led here, where that is more than one thing

    /// One line for a log, such as
    /// "access denied: WRONGPASS … (lock 'order:pay' on 127.0.0.1:6379)".
    std::string describe() const;
};

namespace detail {

inline Error not_held(std::string key = {}) {
    return {Errc::not_held, std::move(key), {}, {}, {}};
}

inline Error invalid(std::string message, std::string key = {}) {
    return {Errc::invalid_argument, std::move(key), {}, std::move(message), {}};
}

/// `Error::describe()`, with each lock's name as `show` gives it.
template <class Show>
std::string describe(const Error& error, Show show) {
    const auto& [code, key, node, message, causes] = error;
    std::string text{describe(code)};
    if (!message.empty()) text.append(": ").append(message);
    if (!key.empty() || !node.empty()) {
        text.append(" (");
        if (!key.empty()) text.append("lock '").append(show(key)).append("'");
        if (!key.empty() && !node.empty()) text.append(" ");
        if (!node.empty()) text.append("on ").append(node);
        text.append(")");
    }
    for (const Error& cause : causes) text.append("; ").append(describe(cause, show));
    return text;
}

}  // namespace detail

inline std::string Error::describe() const {
    return detail::describe(*this, detail::printable);
}

/// Thrown by the calls that have the shape of `std::mutex` and by constructors; `code()` compares
/// with `Errc` and, where one fits, with `std::errc`.
class LockError : public std::system_error {
public:
    /// Carries `error`.
    explicit LockError(Error error)
        : std::system_error(make_error_code(error.code)),
          told_(std::make_shared<const Told>(Told{error.describe(), std::move(error)})) {}

    /// @{
    /// A copy shares the error with its original. A move is a copy: the object that it was made of stays as
    /// it is.
    LockError(const LockError&) noexcept = default;
    LockError& operator=(const LockError&) noexcept = default;
    /// @}

    /// The same text as `error().describe()`.
    const char* what() const noexcept override { return told_->text.c_str(); }
    /// The failure in full.
    const Error& error() const noexcept { return told_->error; }

private:
    struct Told {
        std::string text;
        Error error;
    };
    std::shared_ptr<const Told> told_;
};

}  // namespace redlatch::inline v0

template <>
struct std::is_error_code_enum<redlatch::Errc> : std::true_type {};
