#pragma once

#include <redlatch/service/session.hpp>
#include <redlatch/steps/new_stop_source.hpp>

#include <memory>
#include <stop_token>

namespace redlatch::inline v0::detail {

/// A token that has been told to stop already.
inline std::stop_token stopped_token() {
    std::stop_source source = new_stop_source();
    source.request_stop();
    return source.get_token();
}

/// `hold`'s loss as a token, with the clock watched for it.
inline std::stop_token lost_token(Session& session, const std::shared_ptr<Hold>& hold) {
    if (hold->state(Clock::now()) == HoldState::lost) return stopped_token();
    auto token = hold->lost_token();
    session.prepare_for_loss();
    session.watch_clock(hold);
    // Lost in between: the thread that declared it may have told nobody, as nobody had asked.
    return hold->in(Phase::lost) ? stopped_token() : token;
}

}  // namespace redlatch::inline v0::detail
