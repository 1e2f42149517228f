#pragma once

#include <redlatch/core/grant.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/steps/acquire_answer.hpp>

#include <chrono>
#include <optional>

namespace redlatch::inline v0::detail {

/// What the answer to a try that was given up says to the one that goes on with its token; nothing where it
/// is not "yours". `asked`: what the try was made with.
inline std::optional<Grant> late_grant(const Hold& asked, const AbandonedTry& given_up,
                                       const Reply& reply) {
    const ReplyView view = reply.view();
    Grant grant{.ttl = std::chrono::milliseconds{asked.server_ttl(asked.terms().lease)},
                .time = {},
                .server = {},
                .key_type = {},
                .token = asked.token().bytes,
                .key = asked.key(),
                .weight = asked.weight(),
                .answers = given_up};
    if (view.is_taken(ReplyShape::ok_or_nil)) return grant;
    if (!view.is_taken(ReplyShape::acquired)) return std::nullopt;
    read_lease(view, grant);
    return grant;
}

}  // namespace redlatch::inline v0::detail
