#pragma once

#include <redlatch/compilation.hpp>

#include <cstdint>

namespace redlatch::inline v0::detail {

/// When to release, in the background, a token that nobody uses any more. Only a hold that is lost, or a
/// try that was abandoned, is cleaned up by others; a hold that was released or passed on is the
/// business of its release.
struct CleanUp {
    bool at_once = false;
    bool once_more = false;  ///< after the time in which a late command may still run
    /// Such a release with none at once before it also waits for the end of a `lock_delay`: of its
    /// hold's, or of that of others who have lost its claim.
    bool is_delayed = false;

    constexpr bool needed() const noexcept { return at_once || once_more; }
    friend bool operator==(const CleanUp&, const CleanUp&) = default;
};

/// Which commands with a token got no answer, and may still be carried out.
struct Unanswered {
    bool acquire = false;  ///< one that asks for the lock
    bool extend = false;   ///< one that makes it last longer
};

/// What the server may have under the token of a hold that is lost.
enum class ServerKeeps : std::uint8_t {
    nothing,  ///< the lease is over there, too
    lock,
    longer,  ///< the lock, past the hold's validity: a command that prolongs it got a late answer, or none
    removed,  ///< nothing, as it says, though the lease was not over: somebody has removed the lock
};

/// How a hold was lost.
struct Loss {
    bool first = true;  ///< as opposed to a hold that is known to be lost already
    ServerKeeps server = ServerKeeps::nothing;
    bool several_masters = false;
    Unanswered unanswered{};
    bool is_delayed = false;  ///< it has a `lock_delay`
};

/// Of several masters, a minority may still have the lock. A lock that the server keeps for its `lock_delay`
/// stays until its holder, who may still be at work, ends the hold (`after_delayed_loss`). A lock that it
/// keeps for longer is released when the delay is over.
constexpr CleanUp after_loss(const Loss& loss) noexcept {
    const bool keeps_longer = loss.server == ServerKeeps::longer;
    const Unanswered unanswered = loss.first ? loss.unanswered : Unanswered{};
    const bool may_last = unanswered.acquire || unanswered.extend;
    if (loss.is_delayed && (keeps_longer || loss.server == ServerKeeps::nothing)) {
        const bool lasts_longer = keeps_longer || may_last;
        return {.once_more = lasts_longer, .is_delayed = lasts_longer};
    }
    const bool has_lock = keeps_longer || loss.server == ServerKeeps::lock;
    const bool may_have_it = loss.first && (loss.several_masters || unanswered.extend);
    return {.at_once = has_lock || may_have_it, .once_more = may_last};
}

/// A hold was lost, and its holder has ended it since.
constexpr CleanUp after_ended_loss() noexcept {
    return {.at_once = true};
}

/// A hold with a `lock_delay` was lost, and its holder has ended it since.
constexpr CleanUp after_delayed_loss(Unanswered unanswered) noexcept {
    return {.at_once = true, .once_more = unanswered.acquire || unanswered.extend};
}

/// Nobody goes on with a reader's claim. Others have lost it, and may still be at work in their `lock_delay`.
constexpr CleanUp after_delayed_claim() noexcept {
    return {.once_more = true, .is_delayed = true};
}

/// Nobody asks with the token any more. `may_have`: the server may have a place in the queue under it,
/// or the lock. `unclear`: one of its tries got no answer.
constexpr CleanUp after_abandoned_try(bool may_have, bool unclear) noexcept {
    return {.at_once = may_have, .once_more = may_have && unclear};
}

/// What is known after a release that was waited for.
struct ReleaseEnd {
    bool outcome_known = true;
    bool client_closed = false;  ///< before it was sent
    bool all_told = true;        ///< every master that was asked for the lock has answered, or will
    bool acquire_unanswered = false;
};

/// A master that was not told, as its connection was still being made, is told at once on the renewal's.
/// Where the client has closed, all that was not sent is told at once too, as there is no later.
constexpr CleanUp after_release(const ReleaseEnd& end) noexcept {
    return {.at_once = !end.all_told || end.client_closed,
            .once_more = !end.outcome_known || !end.all_told || end.acquire_unanswered};
}

/// One of several masters has not answered a release at all.
constexpr CleanUp after_silent_master() noexcept {
    return {.once_more = true};
}

/// The lock is free, but it has not been given to a live waiter yet.
constexpr CleanUp after_sent_release(bool serves_on, bool acquire_unanswered) noexcept {
    return {.at_once = serves_on, .once_more = serves_on || acquire_unanswered};
}

/// A release that was only sent got no answer.
constexpr CleanUp after_unanswered_sent_release() noexcept {
    return {.at_once = true, .once_more = true};
}

/// The server may have given the lock to the next token, which nobody here will use.
constexpr CleanUp after_unanswered_move() noexcept {
    return {.at_once = true, .once_more = true};
}

}  // namespace redlatch::inline v0::detail
