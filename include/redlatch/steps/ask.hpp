#pragma once

#include <redlatch/net/reply.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <utility>

namespace redlatch::inline v0::detail {

/// The reply, or the error that the observer was told of.
inline Result<Reply> told(Session& session, const LockSpec& spec, Expected<Reply, Fault> reply) {
    if (reply) return *std::move(reply);
    Error error = std::move(reply).error().error;
    error.key = spec.key();
    session.events().error(error);
    return Unexpected{std::move(error)};
}

/// Why nothing may be sent any more, where the client was closed.
inline Result<void> check_open(const Session& session, const LockSpec& spec) {
    if (!session.is_closed()) return {};
    return Unexpected{Error{Errc::cancelled, spec.key(), {}, cancelled_by_close, {}}};
}

/// Runs a command about a lock, and about no hold: the reply, or the error that the observer was told of. A client that
/// was closed sends nothing.
inline Result<Reply> ask(Session& session, const LockSpec& spec, const Call& call,
                         const Limit& limit) {
    if (auto open = check_open(session, spec); !open) return Unexpected{std::move(open).error()};
    return told(session, spec, session.run(call, limit));
}

}  // namespace redlatch::inline v0::detail
