#pragma once

#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/hold.hpp>

#include <memory>

namespace redlatch::inline v0::detail {

/// What a client does when a hold is over without a release, in this order. The first of several calls
/// counts. Nothing, where the hold was released or passed on: its token belongs to somebody else by now, or
/// to nobody. A claim that somebody has removed is lost to all readers that went on with it.
template <class Client>
void lose(Client& client, const std::shared_ptr<Hold>& hold, ServerKeeps server) {
    const bool first = hold->advance(Phase::held, Phase::lost);
    if (!hold->in(Phase::lost)) return;
    if (server == ServerKeeps::removed) client.declare_lost(client.close_claim_of(*hold));
    if (first) client.leave(*hold);
    client.clean_up(hold, after_loss({.first = first,
                                      .server = server,
                                      .several_masters = client.has_several_masters(),
                                      .unanswered = hold->unanswered(),
                                      .is_delayed = hold->has_lock_delay()}));
    if (first) client.tell_lost(hold);
}

/// Whether a token that is to be cleaned up when its client has closed is still released, once. The closing
/// has seen to all that the client held.
inline bool is_released_when_closed(const Hold& hold, CleanUp what) noexcept {
    return what.at_once && !hold.in(Phase::lost);
}

/// A command that was carried out late, or for a waiter that has left, has taken the lock for a token that
/// nobody goes by. The hold that is known under that token may have a `min_hold`.
template <class Client>
void release_unowned(Client& client, const HoldTerms& terms, const Token& token) {
    std::shared_ptr<Hold> hold = client.cleaned_up(token.bytes);
    if (hold == nullptr) hold = std::make_shared<Hold>(terms, token, LockOwner{});
    client.clean_up(hold, after_abandoned_try(true, false));
}

}  // namespace redlatch::inline v0::detail
