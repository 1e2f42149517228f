#pragma once

#include <redlatch/compilation.hpp>

#include <hiredis/hiredis.h>

#include <array>
#include <string_view>

namespace redlatch::inline v0::detail {

/// The replies that most answers are. Nobody writes to them. Made before the program starts: a child that is forked
/// while another thread makes them would wait for ever.
struct UsualReplyValues {
    std::array<char, 3> ok_text{'O', 'K', '\0'};
    redisReply ok{};
    std::array<redisReply, 2> numbers{};
    redisReply nil{};

    constexpr UsualReplyValues() noexcept {
        ok.type = REDIS_REPLY_STATUS;
        ok.str = ok_text.data();
        ok.len = 2;
        for (redisReply& number : numbers) number.type = REDIS_REPLY_INTEGER;
        numbers[1].integer = 1;
        nil.type = REDIS_REPLY_NIL;
    }
};

inline constinit UsualReplyValues usual_reply_values;

/// Most replies are `OK`, nil, 0 or 1. Of each of these there is one, which is not freed: hiredis would allocate and
/// free up to two blocks for it.
class UsualReplies {
public:
    /// Null for another status.
    static redisReply* status(std::string_view text) noexcept {
        return text == "OK" ? &usual_reply_values.ok : nullptr;
    }
    /// Null for another number.
    static redisReply* integer(long long number) noexcept {
        return number == 0 || number == 1 ? &usual_reply_values.numbers[number == 1 ? 1 : 0]
                                          : nullptr;
    }
    static redisReply* nil() noexcept { return &usual_reply_values.nil; }

    /// Whatever it is; may be null.
    static void free(void* reply) noexcept {
        if (!is_usual(reply)) ::freeReplyObject(reply);
    }

private:
    static bool is_usual(const void* reply) noexcept {
        UsualReplyValues& usual = usual_reply_values;
        return reply == &usual.ok || reply == &usual.numbers[0] || reply == &usual.numbers[1] ||
               reply == &usual.nil;
    }
};

}  // namespace redlatch::inline v0::detail
