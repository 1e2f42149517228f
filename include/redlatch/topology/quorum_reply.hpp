#pragma once

#include <redlatch/core/quorum_call.hpp>
#include <redlatch/net/reply.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace redlatch::inline v0::detail {

/// What a command to several masters is about, by the shape of its answer.
inline QuorumSubject subject_of(ReplyShape answer) noexcept {
    switch (answer) {
        case ReplyShape::ok_or_nil:
        case ReplyShape::acquired: return QuorumSubject::taking;
        case ReplyShape::integer:
        case ReplyShape::moved: return QuorumSubject::keeping;
        case ReplyShape::any:
        case ReplyShape::claims:
        case ReplyShape::lock_info: break;
    }
    return QuorumSubject::asking;
}

/// What an answer of the right shape says.
inline Vote vote_of(const ReplyView& reply, ReplyShape answer) {
    switch (answer) {
        case ReplyShape::integer: return reply.integer() > 0 ? Vote::yes : Vote::no;
        case ReplyShape::ok_or_nil: return reply.is_nil() ? Vote::no : Vote::yes;
        case ReplyShape::acquired:
        case ReplyShape::moved: return reply[0].integer() == 1 ? Vote::yes : Vote::no;
        case ReplyShape::any:
        case ReplyShape::claims:
        case ReplyShape::lock_info: break;
    }
    return Vote::yes;
}

/// Who has the lock, or which claims it has.
inline std::vector<std::string> owners_in(const ReplyView& reply, ReplyShape answer) {
    std::vector<std::string> owners;
    if (answer == ReplyShape::claims) {
        for (std::size_t i = 5; i < *reply.size(); i += 2) owners.emplace_back(reply[i].text());
    } else if (!reply[0].text().empty()) {
        owners.emplace_back(reply[0].text());
    }
    return owners;
}

inline MasterAnswer master_answer(const Reply& reply, ReplyShape shape) {
    const ReplyView view = reply.view();
    MasterAnswer answer{
        .vote = vote_of(view, shape), .repeated = reply.repeated, .server = reply.server};
    if (shape == ReplyShape::acquired) {
        answer.ttl = view[1].integer().value_or(0);
        if (view.size() == 5U) answer.fence = view[4].integer().value_or(0);
    }
    if (shape == ReplyShape::lock_info || shape == ReplyShape::claims) {
        answer.owners = owners_in(view, shape);
    }
    return answer;
}

}  // namespace redlatch::inline v0::detail
