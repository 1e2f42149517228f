#pragma once

#include <redlatch/core/acquisition.hpp>
#include <redlatch/core/lock_table.hpp>
#include <redlatch/net/reply.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace redlatch::inline v0::detail {

/// Where the lock is another's. `will_be_told` as the server has it: the client may not listen yet.
inline void read_refusal(const Reply& reply, AcquireAnswer& answer) {
    const ReplyView view = reply.view();
    answer.refusal.ttl = std::chrono::milliseconds{*view[1].integer()};
    if (view.size() == 6U) answer.refusal.owner = *view[5].string();
    if (view.size() < 5U || *view[2].integer() < 0) return;
    answer.place = *view[2].integer();
    answer.time = view.time(ReplyShape::acquired).value_or(std::chrono::microseconds::zero());
    answer.server = reply.server;
    answer.will_be_told = view[4].integer() == 1;
}

/// Where the lock is ours: for how long, and under which fencing token. `Answer`: an `AcquireAnswer` or a `Grant`.
template <class Answer>
void read_lease(const ReplyView& view, Answer& answer) {
    answer.ttl = std::chrono::milliseconds{*view[1].integer()};
    const std::int64_t fence = view.size() == 5U ? *view[4].integer() : 0;
    answer.fence = static_cast<std::uint64_t>(std::max<std::int64_t>(fence, 0));
}

/// What the server says to a try. When it was sent, and how far it has got, the caller adds.
inline AcquireAnswer acquire_answer(const Reply& reply) {
    using Kind = AcquireAnswer::Kind;
    const ReplyView view = reply.view();
    AcquireAnswer answer{.repeated = reply.repeated};
    if (reply.replicas < reply.replicas_wanted) {
        answer.kind = Kind::not_replicated;
        answer.replicas = reply.replicas;
        answer.replicas_wanted = reply.replicas_wanted;
    } else if (view.is_taken(ReplyShape::ok_or_nil)) {
        answer.kind = Kind::ours;
    } else if (view.is_taken(ReplyShape::acquired)) {
        answer.kind = Kind::ours;
        read_lease(view, answer);
        answer.others_wait = view.size() > 2U && view[2].integer() > 0;
    } else if (view.is_nil()) {
        answer.kind = Kind::no;
    } else if (view.fits(ReplyShape::acquired) && view[0].integer() == 0) {
        answer.kind = Kind::not_ours;
        read_refusal(reply, answer);
    }
    return answer;
}

/// What it says to the question whether readers may go on with a claim.
inline LockTable::ClaimNews claim_news(const Reply& reply) {
    const ReplyView view = reply.view();
    return {.is_there = view[0].integer() != 0, .others_wait = view[1].integer() > 0};
}

}  // namespace redlatch::inline v0::detail
