#pragma once

#include <redlatch/error.hpp>
#include <redlatch/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// An error without a key: a caller that knows the key adds it.
inline Error make_error(Errc code, std::string message = {}, std::string node = {}) {
    return {code, {}, std::move(node), std::move(message), {}};
}

/// A command that got no usable answer.
struct Fault {
    Error error;
    bool transient = true;        ///< the same command may well succeed later
    bool maybe_executed = false;  ///< it may have run, or may still run
    bool disconnected = false;    ///< the other end closed the connection, or it broke
    bool from_server = false;     ///< it is what the server said
    bool refuses_log_in = false;  ///< the server refuses the user or the password
    bool refuses_client = false;  ///< the server lets nobody in from here, or not by that log-in
    bool in_client = false;       ///< it did not get as far as the server
};

/// Why a call was cancelled.
inline constexpr const char* cancelled_by_caller = "cancelled by the caller";
inline constexpr const char* cancelled_by_close = "the client was closed";

inline Fault cancelled_fault(const char* why = cancelled_by_caller) {
    return {.error = make_error(Errc::cancelled, why), .transient = false};
}

/// Nobody knows what has become of the command, if it was sent.
inline Fault unanswered_fault() {
    return {.error = make_error(Errc::unavailable, "the server had not answered by then")};
}

/// The server gave the lock, and its validity ended on the way.
inline Fault late_answer_fault() {
    return {.error = make_error(Errc::unavailable, "the answer took longer than the lease")};
}

/// An error that followed on another: the last try often has little time left, and the error before says
/// more. An error that tells its own causes is left alone. The latest ones come first, each once.
inline Error following(Error error, const std::optional<Error>& before) {
    constexpr std::size_t most = 8;  // a long wait may meet many
    if (!before || !error.causes.empty()) return error;
    const auto add = [&error](const Error& cause) {
        const bool may_be_there =
            cause.node == error.node || cause.node.empty() || error.node.empty();
        const bool is_told = cause.message == error.message && may_be_there;
        if (is_told || error.causes.size() == most) return;
        error.causes.push_back(cause);
        error.causes.back().causes.clear();
    };
    add(*before);
    for (const Error& cause : before->causes) add(cause);
    return error;
}

/// Fewer replicas have the lock than are wanted. `node`: the master.
inline Error too_few_replicas(std::int64_t have, std::int64_t wanted, std::string node) {
    return make_error(Errc::not_replicated,
                      std::to_string(have) + " of " + std::to_string(wanted) + " replicas have it",
                      std::move(node));
}

/// An answer of a shape that the command never gives: it may be another command's.
inline Fault unexpected_reply() {
    return {.error = make_error(Errc::protocol, "an answer of an unexpected shape"),
            .transient = false,
            .maybe_executed = true};
}

}  // namespace redlatch::inline v0::detail
