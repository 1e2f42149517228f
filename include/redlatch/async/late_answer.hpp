#pragma once

#include <redlatch/core/grant.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/net/reply.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace redlatch::inline v0::detail {

/// What the answer to a try that was given up says to whoever goes on with its token; nothing where it is not
/// "yours". `asked`: what the try was made with.
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
    grant.ttl = std::chrono::milliseconds{*view[1].integer()};
    const std::int64_t fence = view.size() == 5U ? *view[4].integer() : 0;
    grant.fence = static_cast<std::uint64_t>(std::max<std::int64_t>(fence, 0));
    return grant;
}

}  // namespace redlatch::inline v0::detail
